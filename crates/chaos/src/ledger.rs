//! The judge: who was inside when, and with which token.
//!
//! A claim begins and ends at moments at which its holder was told that it holds the lock, so that it
//! never says more than the holder may rely on: an overlap is always a fault of the lock. It may say
//! less, by the time between two looks. Not here: anything about locks; this is arithmetic.

use crate::clock::Moment;

/// One holder's stay inside, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which process.
    pub holder: usize,
    /// When it first looked and was told that the lock is held.
    pub from: Moment,
    /// When it last did.
    pub to: Moment,
    /// What it got to show to the resource.
    pub token: Option<u64>,
}

/// All claims to one resource.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    claims: Vec<Claim>,
}

impl Ledger {
    /// Takes note of a stay that is over.
    pub fn add(&mut self, claim: Claim) {
        self.claims.push(claim);
    }

    /// How many stays there were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether nobody was ever inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Stays that began while another one lasted, each with that other one.
    #[must_use]
    pub fn double_holders(&self) -> Vec<(Claim, Claim)> {
        let mut claims = self.claims.clone();
        claims.sort_by_key(|claim| claim.from);
        let mut doubles = Vec::new();
        let mut latest: Option<Claim> = None;
        for claim in claims {
            if let Some(other) = latest.filter(|other| claim.from <= other.to) {
                doubles.push((other, claim));
            }
            latest = latest.filter(|other| other.to >= claim.to).or(Some(claim));
        }
        doubles
    }

    /// Tokens that were given twice, and stays that began after another had ended and have no larger
    /// token than that one. A stay without a token is not looked at.
    #[must_use]
    pub fn disorders(&self) -> Vec<(Claim, Claim)> {
        let mut disorders = self.twice();
        disorders.extend(self.backwards());
        disorders
    }

    fn twice(&self) -> Vec<(Claim, Claim)> {
        let mut claims = self.with_tokens();
        claims.sort_by_key(|claim| claim.token);
        let pairs = claims.windows(2).filter(|pair| pair[0].token == pair[1].token);
        pairs.map(|pair| (pair[0], pair[1])).collect()
    }

    fn backwards(&self) -> Vec<(Claim, Claim)> {
        let (mut begun, mut ended) = (self.with_tokens(), self.with_tokens());
        begun.sort_by_key(|claim| claim.from);
        ended.sort_by_key(|claim| claim.to);
        let mut ended = ended.into_iter().peekable();
        let mut largest: Option<Claim> = None;
        let mut disorders = Vec::new();
        for claim in begun {
            while let Some(earlier) = ended.next_if(|earlier| earlier.to < claim.from) {
                largest = largest.filter(|other| other.token >= earlier.token).or(Some(earlier));
            }
            // Equal ones have been found already.
            if let Some(earlier) = largest.filter(|earlier| earlier.token > claim.token) {
                disorders.push((earlier, claim));
            }
        }
        disorders
    }

    fn with_tokens(&self) -> Vec<Claim> {
        self.claims.iter().copied().filter(|claim| claim.token.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(claims: &[(u64, u64, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (holder, &(from, to, token)) in claims.iter().enumerate() {
            let (from, to) = (Moment(from), Moment(to));
            ledger.add(Claim { holder, from, to, token: Some(token) });
        }
        ledger
    }

    fn doubles(claims: &[(u64, u64, u64)]) -> Vec<(usize, usize)> {
        let doubles = ledger(claims).double_holders();
        doubles.iter().map(|(one, other)| (one.holder, other.holder)).collect()
    }

    fn disorders(claims: &[(u64, u64, u64)]) -> Vec<(usize, usize)> {
        let disorders = ledger(claims).disorders();
        disorders.iter().map(|(one, other)| (one.holder, other.holder)).collect()
    }

    #[test]
    fn stays_that_follow_each_other_are_fine() {
        assert_eq!(doubles(&[(5, 9, 2), (1, 4, 1), (10, 10, 3)]), []);
    }

    #[test]
    fn a_moment_in_common_is_one_too_many() {
        assert_eq!(doubles(&[(1, 4, 1), (4, 9, 2)]), [(0, 1)]);
    }

    /// The long one is still inside when the third comes, though the second is between them.
    #[test]
    fn a_long_stay_is_compared_with_all_that_begin_in_it() {
        assert_eq!(doubles(&[(1, 20, 1), (2, 3, 2), (15, 16, 3)]), [(0, 1), (0, 2)]);
    }

    #[test]
    fn tokens_that_grow_are_fine_whatever_the_order_of_the_reports() {
        assert_eq!(disorders(&[(5, 9, 7), (1, 4, 3), (10, 12, 8)]), []);
    }

    /// Of stays that overlap, either may have the larger one.
    #[test]
    fn a_smaller_token_later_is_a_disorder() {
        assert_eq!(disorders(&[(1, 4, 8), (5, 9, 7)]), [(0, 1)]);
        assert_eq!(disorders(&[(1, 9, 8), (5, 9, 7)]), []);
        assert_eq!(disorders(&[(1, 2, 8), (3, 4, 5), (6, 7, 6)]), [(0, 1), (0, 2)]);
    }

    #[test]
    fn the_same_token_twice_is_a_disorder() {
        assert_eq!(disorders(&[(1, 4, 8), (5, 9, 8)]), [(0, 1)]);
        assert_eq!(disorders(&[(1, 4, 8), (2, 3, 8)]), [(0, 1)]);
    }
}

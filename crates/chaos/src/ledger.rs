//! The judge: which process held the lock when, and with which token.
//!
//! A claim begins and ends at moments at which redbolt reported to its holder that the lock is
//! held. So a claim never exceeds what the holder may rely on, and an overlap is always a fault of
//! the lock. A claim may be shorter than the lease, by the time between two checks. This module is
//! arithmetic and knows nothing about locks.

use crate::clock::Moment;

/// The time for which one holder held the lock, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The number of the process.
    pub holder: usize,
    /// The first check that reported the lock as held.
    pub from: Moment,
    /// The last such check.
    pub to: Moment,
    /// Its fencing token.
    pub token: Option<u64>,
    /// True if others may share the resource at the same time.
    pub shared: bool,
}

impl Claim {
    pub(crate) fn alone(holder: usize, from: Moment, to: Moment, token: Option<u64>) -> Self {
        Self { holder, from, to, token, shared: false }
    }
}

/// The claims on one resource.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    claims: Vec<Claim>,
}

impl Ledger {
    /// Adds a claim that has ended.
    pub fn add(&mut self, claim: Claim) {
        self.claims.push(claim);
    }

    /// Returns the number of claims.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Returns true if there is no claim.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Returns the claims that began during another one, unless both are shared, each with that
    /// other one.
    #[must_use]
    pub fn double_holders(&self) -> Vec<(Claim, Claim)> {
        self.pairs(|one, other| !one.shared || !other.shared)
    }

    /// Returns the shared claims that began during another shared one, each with that other one.
    #[must_use]
    pub fn sharers(&self) -> Vec<(Claim, Claim)> {
        self.pairs(|one, other| one.shared && other.shared)
    }

    /// Returns the claims that began during others, each with the last to end of those that `count`
    /// together with it.
    fn pairs(&self, count: impl Fn(&Claim, &Claim) -> bool) -> Vec<(Claim, Claim)> {
        let mut claims = self.claims.clone();
        // Then each claim has to be compared only with those before it.
        claims.sort_by_key(|claim| claim.from);
        let mut pairs = Vec::new();
        // The last claim to end, exclusive and shared.
        let mut latest: [Option<Claim>; 2] = [None; 2];
        for claim in claims {
            let others = latest.iter().flatten().filter(|other| claim.from <= other.to);
            let longest = others.filter(|other| count(other, &claim)).max_by_key(|other| other.to);
            pairs.extend(longest.map(|other| (*other, claim)));
            let its = &mut latest[usize::from(claim.shared)];
            *its = its.filter(|other| other.to >= claim.to).or(Some(claim));
        }
        pairs
    }

    /// Returns pairs of claims with the same token, and claims that began after another had ended
    /// without having a larger token. Claims without a token are ignored.
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
            // Equal tokens have been reported already.
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
            ledger.add(Claim::alone(holder, from, to, Some(token)));
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
    fn claims_that_follow_each_other_do_not_overlap() {
        assert_eq!(doubles(&[(5, 9, 2), (1, 4, 1), (10, 10, 3)]), []);
    }

    #[test]
    fn claims_that_share_a_moment_overlap() {
        assert_eq!(doubles(&[(1, 4, 1), (4, 9, 2)]), [(0, 1)]);
    }

    /// The long claim is still active when the third begins, although the second lies between them.
    #[test]
    fn a_long_claim_is_compared_with_all_that_begin_in_it() {
        assert_eq!(doubles(&[(1, 20, 1), (2, 3, 2), (15, 16, 3)]), [(0, 1), (0, 2)]);
    }

    #[test]
    fn only_claims_that_are_all_shared_may_overlap() {
        let claims = |sorts: [bool; 3]| {
            let mut ledger = Ledger::default();
            for (holder, (shared, (from, to))) in
                sorts.into_iter().zip([(1, 20), (2, 30), (15, 16)]).enumerate()
            {
                let claim = Claim::alone(holder, Moment(from), Moment(to), None);
                ledger.add(Claim { shared, ..claim });
            }
            let numbers = |pairs: Vec<(Claim, Claim)>| -> Vec<_> {
                pairs.iter().map(|(one, other)| (one.holder, other.holder)).collect()
            };
            (numbers(ledger.double_holders()), numbers(ledger.sharers()))
        };
        assert_eq!(claims([true, true, true]), (vec![], vec![(0, 1), (1, 2)]));
        assert_eq!(claims([true, true, false]), (vec![(1, 2)], vec![(0, 1)]));
        assert_eq!(claims([false, true, true]), (vec![(0, 1), (0, 2)], vec![(1, 2)]));
        assert_eq!(claims([true, false, true]), (vec![(0, 1), (1, 2)], vec![(0, 2)]));
    }

    #[test]
    fn growing_tokens_are_valid_in_any_order_of_the_reports() {
        assert_eq!(disorders(&[(5, 9, 7), (1, 4, 3), (10, 12, 8)]), []);
    }

    /// Either of two overlapping claims may have the larger token.
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

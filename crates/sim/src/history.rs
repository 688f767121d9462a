//! The histories of resources, checked offline against the model of a read/write lock and semaphore
//! with owners.
//!
//! The online checks use validities. This check does not: it searches for an order of the
//! operations, each at an instant between its call and its return, that explains the results that
//! callers got. It would expose an online check that is wrong.

use crate::plan::MAX_PERMITS;
use crate::world::queue::Time;

/// An operation on one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) called: Time,
    /// The time of the result; `Time::MAX` if no caller got one.
    pub(crate) returned: Time,
    pub(crate) owner: u16,
    pub(crate) does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// The owner was granted the lock with this fencing token, exclusively, shared, or as one of
    /// its permits.
    Lock { token: u64, shared: bool, slot: Option<u16> },
    /// The owner, the only reader, has it exclusively now, with this fencing token.
    Upgrade { token: u64 },
    /// The owner, which had it exclusively, shares it now.
    Downgrade,
    /// The owner released, or its lease ended.
    Unlock,
}

/// The history of one resource.
#[derive(Default)]
pub(crate) struct History {
    operations: Vec<Operation>,
}

impl History {
    pub(crate) fn clear(&mut self) {
        self.operations.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Returns true if some order of the operations explains the history; with `fenced`, the order
    /// also has to explain that each token is larger than the previous one, or equal to that of
    /// others that share.
    ///
    /// A depth-first search that remembers failed sets of operations. Histories of more than 60
    /// operations are not judged.
    pub(crate) fn is_linearizable(&self, fenced: bool) -> bool {
        if self.operations.len() > 60 {
            return true;
        }
        let search = Search { operations: &self.operations, fenced };
        search.explains(0, State::default(), &mut Vec::new())
    }
}

struct Search<'h> {
    operations: &'h [Operation],
    fenced: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// A bit for each exclusive or sharing owner.
    owners: u64,
    /// True if the owners share.
    shared: bool,
    token: u64,
    /// For each permit, a bit for its owner, and its last token.
    permits: [(u64, u64); MAX_PERMITS],
}

impl Search<'_> {
    fn explains(&self, done: u64, state: State, dead: &mut Vec<(u64, State)>) -> bool {
        let is_open = |at: usize| done >> at & 1 == 0;
        let open = || (0..self.operations.len()).filter(|&at| is_open(at));
        // An operation without a result need not have happened.
        if open().all(|at| self.operations[at].returned == Time::MAX) {
            return true;
        }
        if dead.contains(&(done, state)) {
            return false;
        }
        // An operation that returned before another was called precedes it.
        let first = open().map(|at| self.operations[at].returned).min().unwrap_or(Time::MAX);
        for at in open().filter(|&at| self.operations[at].called <= first) {
            if let Some(next) = self.step(state, &self.operations[at])
                && self.explains(done | 1 << at, next, dead)
            {
                return true;
            }
        }
        dead.push((done, state));
        false
    }

    fn step(&self, state: State, operation: &Operation) -> Option<State> {
        // The bit is the owner's first operation, of which there are at most 60; a schedule can
        // have more owners than that.
        let is_owners = |other: &Operation| other.owner == operation.owner;
        let first = self.operations.iter().position(is_owners).expect("it is one of them");
        let owner = 1 << first;
        match operation.does {
            Does::Lock { token, slot: Some(slot), .. } => {
                let mut next = state;
                let (taken, last) = &mut next.permits[usize::from(slot)];
                let may_have_it = state.owners == 0 && *taken == 0;
                let grows = !self.fenced || token == 0 || token > *last;
                (*taken, *last) = (owner, token.max(*last));
                (may_have_it && grows).then_some(next)
            }
            Does::Lock { token, shared, slot: None } => {
                let are_given = state.permits.iter().any(|(taken, _)| *taken != 0);
                let may_have_it = !are_given && (state.owners == 0 || shared && state.shared);
                // A shared token is odd, and stays until an exclusive holder comes.
                let least = state.token + u64::from(!shared || state.token.is_multiple_of(2));
                let grows = !self.fenced || token == 0 || token >= least;
                let owners = state.owners | owner;
                let token = state.token.max(token);
                (may_have_it && grows).then_some(State { owners, shared, token, ..state })
            }
            Does::Upgrade { token } => {
                let may_have_it = state.owners == owner && state.shared;
                let grows = !self.fenced || token == 0 || token > state.token;
                let token = state.token.max(token);
                (may_have_it && grows).then_some(State { shared: false, token, ..state })
            }
            Does::Downgrade => {
                let had_it = state.owners == owner && !state.shared;
                had_it.then_some(State { shared: true, ..state })
            }
            Does::Unlock => {
                let mut next = state;
                next.owners &= !owner;
                let own = next.permits.iter_mut().filter(|(taken, _)| *taken == owner);
                own.for_each(|(taken, _)| *taken = 0);
                (next != state).then_some(next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u16, called: Time, returned: Time, token: u64) -> Operation {
        Operation { called, returned, owner, does: Does::Lock { token, shared: false, slot: None } }
    }

    fn share(owner: u16, called: Time, returned: Time, token: u64) -> Operation {
        Operation { called, returned, owner, does: Does::Lock { token, shared: true, slot: None } }
    }

    fn unlock(owner: u16, called: Time, returned: Time) -> Operation {
        Operation { called, returned, owner, does: Does::Unlock }
    }

    fn judged(operations: &[Operation], fenced: bool) -> bool {
        History { operations: operations.to_vec() }.is_linearizable(fenced)
    }

    /// The waiting class has up to 85 jobs, more than a bit set has bits.
    #[test]
    fn owners_with_large_numbers_are_distinguished() {
        let share = |owner, called| share(owner, called, called + 1, 0);
        let history = [share(1, 0), share(65, 2), unlock(1, 4, 5), lock(2, 6, 7, 0)];
        assert!(!judged(&history, false), "65 still shares");
        let history = [&history[..3], &[unlock(65, 6, 7), lock(2, 8, 9, 0)]].concat();
        assert!(judged(&history, false));
    }

    #[test]
    fn holders_one_after_another_are_explained() {
        let history =
            [lock(1, 0, 2, 5), unlock(1, 4, 6), lock(2, 3, 8, 6), unlock(2, 9, Time::MAX)];
        assert!(judged(&history, true));
    }

    #[test]
    fn two_holders_are_found() {
        assert!(!judged(&[lock(1, 0, 2, 5), lock(2, 3, 8, 6), unlock(1, 9, 10)], false));
    }

    #[test]
    fn an_unlock_that_overlaps_explains_it() {
        assert!(judged(&[lock(1, 0, 2, 0), lock(2, 3, 8, 0), unlock(1, 7, 10)], false));
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let history = [lock(1, 0, 2, 5), unlock(1, 3, 4), lock(2, 5, 6, 5)];
        assert!(judged(&history, false));
        assert!(!judged(&history, true));
    }

    #[test]
    fn sharing_holders_are_explained_and_an_exclusive_holder_among_them_is_not() {
        let two = [share(1, 0, 2, 5), share(2, 3, 4, 5)];
        assert!(judged(&two, true), "together, with one token");
        assert!(!judged(&[two[0], two[1], lock(3, 5, 6, 6)], false));
        assert!(!judged(&[lock(3, 0, 1, 4), share(1, 2, 3, 5)], false));
        let left = [two[0], two[1], unlock(1, 5, 6), unlock(2, 5, 6)];
        assert!(judged(&[&left[..], &[lock(3, 7, 8, 6)]].concat(), true));
        assert!(!judged(&[&left[..], &[lock(3, 7, 8, 4)]].concat(), true));
    }

    #[test]
    fn a_shared_token_from_before_an_exclusive_holder_is_found() {
        let between = [lock(1, 0, 1, 6), unlock(1, 2, 3)];
        assert!(judged(&[&between[..], &[share(2, 4, 5, 7)]].concat(), true));
        assert!(!judged(&[&between[..], &[share(2, 4, 5, 5)]].concat(), true));
        assert!(!judged(&[&between[..], &[share(2, 4, 5, 6)]].concat(), true));
    }

    #[test]
    fn holders_of_different_permits_are_explained_and_of_one_are_not() {
        let permit = |owner, called, slot, token| {
            let does = Does::Lock { token, shared: false, slot: Some(slot) };
            Operation { called, returned: called + 1, owner, does }
        };
        let two = [permit(1, 0, 0, 8), permit(2, 2, 1, 6)];
        assert!(judged(&two, true), "tokens of different permits are independent");
        assert!(!judged(&[two[0], two[1], permit(3, 4, 1, 10)], false));
        assert!(!judged(&[two[0], two[1], share(3, 4, 5, 0)], false));
        assert!(!judged(&[lock(3, 0, 1, 0), permit(1, 2, 0, 0)], false));
        let again = [two[0], unlock(1, 2, 3), permit(3, 4, 0, 8)];
        assert!(judged(&again, false) && !judged(&again, true));
    }

    #[test]
    fn no_owner_unlocks_for_another() {
        assert!(!judged(&[lock(1, 0, 1, 0), unlock(2, 2, 3), lock(3, 4, 5, 0)], false));
    }
}

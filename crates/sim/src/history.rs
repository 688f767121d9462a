//! The histories of resources, checked offline against the model of a mutex with owners.
//!
//! The online checks look at validities. This check knows nothing of them: it asks whether some
//! order of the operations, each at an instant between its call and its return, explains the
//! results that callers got. It would expose an online check that is wrong.

use crate::world::queue::Time;

/// An operation on one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) called: Time,
    /// Later than everything, if no caller got a result.
    pub(crate) returned: Time,
    pub(crate) owner: u16,
    pub(crate) does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// The owner was granted the lock, with this fencing token.
    Lock { token: u64 },
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

    /// Whether some order of the operations explains the history; with `fenced`, also why each
    /// token is larger than the one before.
    ///
    /// A depth-first search that remembers failed sets of operations. Histories of more than 60
    /// operations are not judged.
    pub(crate) fn is_linearizable(&self, fenced: bool) -> bool {
        if self.operations.len() > 60 {
            return true;
        }
        let search = Search { operations: &self.operations, fenced };
        search.explains(0, Mutex { owner: None, token: 0 }, &mut Vec::new())
    }
}

struct Search<'h> {
    operations: &'h [Operation],
    fenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mutex {
    owner: Option<u16>,
    token: u64,
}

impl Search<'_> {
    fn explains(&self, done: u64, mutex: Mutex, dead: &mut Vec<(u64, Mutex)>) -> bool {
        let is_open = |at: usize| done >> at & 1 == 0;
        let open = || (0..self.operations.len()).filter(|&at| is_open(at));
        // An operation without a result need not have happened.
        if open().all(|at| self.operations[at].returned == Time::MAX) {
            return true;
        }
        if dead.contains(&(done, mutex)) {
            return false;
        }
        // An operation that returned before another was called precedes it.
        let first = open().map(|at| self.operations[at].returned).min().unwrap_or(Time::MAX);
        for at in open().filter(|&at| self.operations[at].called <= first) {
            if let Some(next) = self.step(mutex, &self.operations[at])
                && self.explains(done | 1 << at, next, dead)
            {
                return true;
            }
        }
        dead.push((done, mutex));
        false
    }

    fn step(&self, mutex: Mutex, operation: &Operation) -> Option<Mutex> {
        match operation.does {
            Does::Lock { token } if mutex.owner.is_none() => {
                let grows = !self.fenced || token == 0 || token > mutex.token;
                let token = mutex.token.max(token);
                grows.then_some(Mutex { owner: Some(operation.owner), token })
            }
            Does::Lock { .. } => None,
            Does::Unlock => {
                (mutex.owner == Some(operation.owner)).then_some(Mutex { owner: None, ..mutex })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u16, called: Time, returned: Time, token: u64) -> Operation {
        Operation { called, returned, owner, does: Does::Lock { token } }
    }

    fn unlock(owner: u16, called: Time, returned: Time) -> Operation {
        Operation { called, returned, owner, does: Does::Unlock }
    }

    fn judged(operations: &[Operation], fenced: bool) -> bool {
        History { operations: operations.to_vec() }.is_linearizable(fenced)
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
    fn nobody_unlocks_for_another() {
        assert!(!judged(&[lock(1, 0, 1, 0), unlock(2, 2, 3), lock(3, 4, 5, 0)], false));
    }
}

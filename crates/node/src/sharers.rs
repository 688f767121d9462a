//! The readers of a resource: the view of a sorted set that the lock scripts need. Scores that are
//! not whole numbers, which no script of redbolt writes, are not supported. Expiry is left to the
//! scripts.

use std::collections::BTreeSet;

/// The members of a sorted set, by the time at which each ends, in Unix milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Sharers {
    /// The members with one end are in the order of their names, as on the server.
    by_end: BTreeSet<(i64, Vec<u8>)>,
}

impl Sharers {
    pub(crate) fn len(&self) -> usize {
        self.by_end.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// Returns all members with their ends.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], i64)> {
        self.by_end.iter().map(|(end, name)| (name.as_slice(), *end))
    }

    /// Returns the members that end after this time, without those that never end.
    pub(crate) fn ending_after(&self, time: i64) -> impl Iterator<Item = (&[u8], i64)> {
        let ending = self.iter().skip_while(move |(_, end)| *end <= time);
        ending.take_while(|(_, end)| *end < i64::MAX)
    }

    /// Returns the end of a member.
    pub(crate) fn end_of(&self, name: &[u8]) -> Option<i64> {
        self.iter().find(|(member, _)| *member == name).map(|(_, end)| end)
    }

    /// Sets the end of a member, which may be new. Returns true if this changed anything.
    pub(crate) fn end_at(&mut self, name: &[u8], end: i64) -> bool {
        let before = self.end_of(name);
        if before == Some(end) {
            return false;
        }
        self.remove(name);
        self.by_end.insert((end, name.to_vec()))
    }

    /// Removes a member and returns true if it existed.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.end_of(name).is_some_and(|end| self.by_end.remove(&(end, name.to_vec())))
    }

    /// Removes all members that end at this time or earlier. Returns true if there were any.
    pub(crate) fn remove_until(&mut self, time: i64) -> bool {
        let before = self.len();
        self.by_end.retain(|(end, _)| *end > time);
        self.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sharers: &Sharers) -> Vec<&[u8]> {
        sharers.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn members_are_ordered_by_their_ends_and_then_by_their_names() {
        let mut sharers = Sharers::default();
        for (name, end) in [("c", 20), ("a", 30), ("b", 20)] {
            assert!(sharers.end_at(name.as_bytes(), end));
        }
        assert_eq!(names(&sharers), [b"b", b"c", b"a"]);
        assert!(!sharers.end_at(b"a", 30), "that is when it ends already");
        assert!(sharers.end_at(b"a", 10));
        assert_eq!(names(&sharers), [b"a", b"b", b"c"]);
        assert_eq!(sharers.end_of(b"a"), Some(10));
    }

    #[test]
    fn a_member_expires_at_its_end() {
        let mut sharers = Sharers::default();
        sharers.end_at(b"a", 20);
        sharers.end_at(b"b", 21);
        assert!(!sharers.remove_until(19));
        assert!(sharers.remove_until(20));
        assert_eq!(names(&sharers), [b"b"]);
        assert!(!sharers.remove(b"a"));
        assert!(sharers.remove(b"b") && sharers.is_empty());
    }
}

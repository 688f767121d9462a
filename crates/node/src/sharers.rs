//! Those who share a resource: what a sorted set is to the lock scripts.
//!
//! Apart from the keys because it has an order of its own. Not here: scores that are no whole numbers, which no
//! script of redbolt writes, and whose time is over, which only the scripts judge.

use std::collections::BTreeSet;

/// The members of a sorted set, by the time at which each ends, in Unix milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Sharers {
    /// Those who end together are in the order of their names, as on the server.
    by_end: BTreeSet<(i64, Vec<u8>)>,
}

impl Sharers {
    pub(crate) fn len(&self) -> usize {
        self.by_end.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// All of them, each with its end.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], i64)> {
        self.by_end.iter().map(|(end, name)| (name.as_slice(), *end))
    }

    /// Those who end after this time, and not never.
    pub(crate) fn ending_after(&self, time: i64) -> impl Iterator<Item = (&[u8], i64)> {
        let ending = self.iter().skip_while(move |(_, end)| *end <= time);
        ending.take_while(|(_, end)| *end < i64::MAX)
    }

    /// When a member ends.
    pub(crate) fn end_of(&self, name: &[u8]) -> Option<i64> {
        self.iter().find(|(member, _)| *member == name).map(|(_, end)| end)
    }

    /// Lets a member, which may be a new one, end at this time. Returns whether that changed anything.
    pub(crate) fn end_at(&mut self, name: &[u8], end: i64) -> bool {
        let before = self.end_of(name);
        if before == Some(end) {
            return false;
        }
        self.remove(name);
        self.by_end.insert((end, name.to_vec()))
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.end_of(name).is_some_and(|end| self.by_end.remove(&(end, name.to_vec())))
    }

    /// Removes all that end at this time or earlier. Returns whether there were any.
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
    fn they_are_in_the_order_of_their_ends_and_then_of_their_names() {
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
    fn who_ends_now_is_over() {
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

//! A span on the machine's monotonic clock.

/// A span between two moments, in nanoseconds on the monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub begin: u64,
    /// The first moment after it.
    pub end: u64,
}

impl Span {
    /// The span from the machine's start on, without an end.
    pub const ALWAYS: Self = Self { begin: 0, end: u64::MAX };

    /// Returns `true` if a moment is in the span.
    #[must_use]
    pub fn contains(self, moment: u64) -> bool {
        (self.begin..self.end).contains(&moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_not_in_it() {
        let span = Span { begin: 3, end: 5 };
        assert!(span.contains(3) && !span.contains(5) && Span::ALWAYS.contains(0));
    }
}

//! A span on the machine's monotonic clock.

/// From one moment to another, in nanoseconds on the monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub begin: u64,
    /// The first moment behind it.
    pub end: u64,
}

impl Span {
    /// From the machine's start on, without an end.
    pub const ALWAYS: Self = Self { begin: 0, end: u64::MAX };

    /// Whether a moment is in it.
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

//! Every bound on what a peer can make the decoder hold, in one place.

/// The deepest nesting that any [`Limits`] can allow: the decoder's stack is an array of this size.
pub const MAX_DEPTH: usize = 32;

/// What a reply may cost before it is a [`Violation`](super::Violation).
///
/// All bounds are inclusive. None of them makes the decoder reserve memory: it borrows the
/// caller's buffer, and [`buffered`](Self::buffered) says how large that has to be. There are no
/// values that switch a bound off; one that is larger than memory comes to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one bulk string, without its header and its final CR LF.
    pub bulk: usize,
    /// Arrays that may be open at once, at most [`MAX_DEPTH`]. An array header inside this many
    /// open arrays is a violation, whatever it announces.
    pub depth: usize,
    /// Elements that all arrays of one reply may announce together.
    pub elements: u32,
    /// Bytes of one simple string or error, without its type byte and its final CR LF.
    pub line: usize,
    /// Bytes of one reply with everything nested in it.
    pub reply: u64,
}

impl Limits {
    /// The most bytes that have to be in one piece before the decoder can go on.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.bulk.max(self.line).saturating_add(LONGEST_HEADER + CR_LF)
    }
}

impl Default for Limits {
    /// Bounds that every reply of an ordinary command fits in.
    fn default() -> Self {
        Self { bulk: 1 << 20, depth: 8, elements: 1 << 20, line: 1 << 16, reply: 1 << 26 }
    }
}

/// The type byte, the 20 characters of `i64::MIN`, CR LF.
const LONGEST_HEADER: usize = 1 + 20 + CR_LF;
const CR_LF: usize = 2;

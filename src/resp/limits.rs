//! Every bound on what a peer can make a program hold.

/// The deepest nesting that any [`Limits`] can allow: the decoder's stack is an array of this size.
pub const MAX_DEPTH: usize = 32;

/// How large a reply may be. A larger one is a [`Violation`](super::Violation).
///
/// All bounds are inclusive. No bound makes a decoder reserve memory: [`buffered`](Self::buffered) says how large
/// the caller's buffer must be. No value switches a bound off, but one that is larger than memory bounds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one bulk string, without its header and its final CR LF.
    pub bulk: usize,
    /// Arrays that may be open at once, at most [`MAX_DEPTH`]. Inside this many open arrays any array is a
    /// violation, an empty or a null one too.
    pub depth: usize,
    /// Elements that all arrays of one reply may announce in total.
    pub elements: u32,
    /// Bytes of one simple string or error, without its type byte and its final CR LF.
    pub line: usize,
    /// Bytes of one reply with everything nested in it.
    pub reply: u64,
}

impl Limits {
    /// The size of the largest token: a buffer of so many bytes always lets a decoder go on.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.bulk.max(self.line).saturating_add(LONGEST_HEADER + CR_LF)
    }
}

impl Default for Limits {
    /// Bulk strings of 1 MiB, lines of 64 KiB, replies of 64 MiB with 2^20 elements, 8 arrays deep: room for the
    /// replies of ordinary commands.
    fn default() -> Self {
        Self { bulk: 1 << 20, depth: 8, elements: 1 << 20, line: 1 << 16, reply: 1 << 26 }
    }
}

/// The type byte, the 20 characters of `i64::MIN`, CR LF.
const LONGEST_HEADER: usize = 1 + 20 + CR_LF;
const CR_LF: usize = 2;

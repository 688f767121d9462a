//! The limits on what a peer can make a program hold.

/// The maximum of [`Limits::depth`]: the decoder's stack is an array of this size.
pub const MAX_DEPTH: usize = 32;

/// The maximum size of a reply. A larger reply is a [`Violation`](super::Violation).
///
/// All limits are inclusive. A decoder reserves no memory for them: [`buffered`](Self::buffered)
/// returns the size that the caller's buffer needs. No value turns a limit off, but one that is
/// larger than memory has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The bytes of one bulk string, without its header and its final CR LF.
    pub bulk: usize,
    /// The number of arrays that may be open at once, at most [`MAX_DEPTH`]. Inside that many open
    /// arrays any array is a violation, including an empty or a null one.
    pub depth: usize,
    /// The number of elements that all arrays of one reply may announce in total.
    pub elements: u32,
    /// The bytes of one simple string or error, without its type byte and its final CR LF.
    pub line: usize,
    /// The bytes of one reply with everything nested in it.
    pub reply: u64,
}

impl Limits {
    /// Returns the size of the largest token in bytes: with a buffer of this size a decoder always
    /// makes progress.
    #[must_use]
    pub fn buffered(&self) -> usize {
        // A token is decoded only when all of it is in the buffer.
        self.bulk.max(self.line).saturating_add(LONGEST_HEADER + CR_LF)
    }
}

impl Default for Limits {
    /// Returns limits for the replies of ordinary commands: bulk strings of 1 MiB, lines of 64 KiB,
    /// replies of 64 MiB with 2^20 elements, and 8 nested arrays.
    fn default() -> Self {
        Self { bulk: 1 << 20, depth: 8, elements: 1 << 20, line: 1 << 16, reply: 1 << 26 }
    }
}

/// The type byte, the 20 characters of `i64::MIN`, and CR LF.
const LONGEST_HEADER: usize = 1 + 20 + CR_LF;
const CR_LF: usize = 2;

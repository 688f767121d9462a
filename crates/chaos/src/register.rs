//! The protected resource, twice: a value that checks fencing tokens, and one that takes every
//! write.

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Register {
    /// The largest token seen.
    seen: u64,
    fenced: usize,
    plain: usize,
}

impl Register {
    /// Writes the holder's number to both values. Returns false if the fenced one refuses it.
    pub(crate) fn write(&mut self, token: u64, holder: usize) -> bool {
        self.plain = holder;
        let fresh = token >= self.seen;
        if fresh {
            (self.seen, self.fenced) = (token, holder);
        }
        fresh
    }

    /// Returns the last writer of the fenced value.
    pub(crate) fn fenced(&self) -> usize {
        self.fenced
    }

    /// Returns the last writer of the plain value.
    pub(crate) fn plain(&self) -> usize {
        self.plain
    }
}

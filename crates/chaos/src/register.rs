//! What a lock protects, twice: a value that looks at tokens, and one that believes everybody.

/// A value, with and without a look at fencing tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Register {
    /// The largest token that it has seen.
    seen: u64,
    fenced: usize,
    plain: usize,
}

impl Register {
    /// A holder writes its number; `false` if the fence refuses it. The plain value takes it anyway.
    pub(crate) fn write(&mut self, token: u64, holder: usize) -> bool {
        self.plain = holder;
        let fresh = token >= self.seen;
        if fresh {
            (self.seen, self.fenced) = (token, holder);
        }
        fresh
    }

    /// Who wrote last, by the value behind the fence.
    pub(crate) fn fenced(&self) -> usize {
        self.fenced
    }

    /// Who wrote last, by the value without a fence.
    pub(crate) fn plain(&self) -> usize {
        self.plain
    }
}

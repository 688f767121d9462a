//! A fuzz input, read byte by byte as choices.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn new(bytes: &'i [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next byte, if there is one.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Returns the next byte; zero past the end, so that the last choice of an input is complete.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// Returns up to `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'i [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'i [u8] {
        self.bytes(self.0.len())
    }

    /// Returns one of `choices`, by the next byte.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        pick(choices, self.byte())
    }
}

/// Returns one of `choices`, by a number of any size.
pub(crate) fn pick<T: Copy>(choices: &[T], number: u8) -> T {
    choices[usize::from(number) % choices.len()]
}

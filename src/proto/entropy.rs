//! Random bytes, drawn from the caller's source in portions of 1 KiB, so that an attempt usually
//! needs no system call.

use std::time::Duration;

/// A pool that is filled by the function given to the core.
pub(super) struct Entropy {
    source: Box<Source>,
    pool: [u8; POOL],
    /// The number of unused bytes, which are at the end of the pool.
    left: usize,
}

impl Entropy {
    pub(super) fn new(source: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        Self { source: Box::new(source), pool: [0; POOL], left: 0 }
    }

    /// Returns bytes that were never returned before, and erases them from the pool.
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        if self.left < N {
            (self.source)(&mut self.pool);
            self.left = POOL;
        }
        let from = POOL - self.left;
        self.left -= N;
        let mut out = [0; N];
        out.copy_from_slice(&self.pool[from..from + N]);
        // They may become a token, so no copy stays in memory.
        self.pool[from..from + N].fill(0);
        out
    }

    /// Returns a random span from zero up to, but not including, `bound`; zero if that is zero.
    pub(super) fn below(&mut self, bound: Duration) -> Duration {
        let bound = bound.as_nanos();
        let random = u128::from(u64::from_le_bytes(self.bytes()));
        // The product of two 64-bit numbers, shifted back: below 2^64.
        Duration::from_nanos(((bound.min(u64::MAX.into()) * random) >> 64) as u64)
    }
}

type Source = dyn FnMut(&mut [u8]) + Send;

const POOL: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_handed_out_twice() {
        let mut next = 0u32;
        let mut entropy = Entropy::new(move |pool| {
            for chunk in pool.chunks_exact_mut(4) {
                chunk.copy_from_slice(&next.to_le_bytes());
                next += 1;
            }
        });
        let mut last = None;
        for _ in 0..5_000 {
            let word = u32::from_le_bytes(entropy.bytes());
            assert!(last < Some(word));
            last = Some(word);
        }
    }

    #[test]
    fn spans_stay_below_their_bound() {
        let mut entropy = Entropy::new(|pool| pool.fill(0xff));
        assert_eq!(entropy.below(Duration::ZERO), Duration::ZERO);
        assert_eq!(entropy.below(Duration::from_nanos(1)), Duration::ZERO);
        assert_eq!(entropy.below(Duration::from_nanos(7)), Duration::from_nanos(6));
    }
}

//! Random numbers from a seed, the same on every machine. A world's draws must not depend on how
//! much its cores draw: give each a separate stream.

/// SplitMix64: small, fast, and good for any seed, even for small ones.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the stream of one part of the world. Leaving a part out of a schedule then does not
    /// change what the others draw.
    #[must_use]
    pub fn of(seed: u64, part: u64) -> Self {
        Self(mix(seed ^ mix(part.wrapping_add(GOLDEN))))
    }

    /// Returns the next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a stream without an end is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a number from zero up to, but not including, `bound`; zero if that is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number between both ends, inclusive.
    #[inline]
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns true in this many of a thousand cases.
    #[inline]
    pub fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.below(1000) < per_mille
    }

    /// Returns one of these values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns the entropy of a core, in tests that need no other random numbers.
    pub fn entropy(mut self) -> impl FnMut(&mut [u8]) + Send + 'static {
        move |bytes| {
            let (words, rest) = bytes.as_chunks_mut::<8>();
            for word in words {
                *word = self.next().to_le_bytes();
            }
            if !rest.is_empty() {
                rest.copy_from_slice(&self.next().to_le_bytes()[..rest.len()]);
            }
        }
    }
}

/// Mixes the bits of a number, so that close numbers give distant results.
#[inline]
#[must_use]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans are drawn from recorded seeds, so a seed must give the same numbers for ever.
    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        // The first numbers of SplitMix64 for this seed, as published by its authors.
        let mut random = Random::new(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.next(), random.next()], first);
    }
}

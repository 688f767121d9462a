//! The resources of a lock, in memory that is reused.

/// One or more byte strings, each preceded by its length. They are in one buffer, because a program
/// may hold very many locks.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    count: u32,
}

impl Keys {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0 }
    }

    pub(super) fn set<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        // Keeps the memory for the next lock in this slot.
        self.bytes.clear();
        self.count = 0;
        for key in keys {
            self.bytes.reserve(LENGTH + key.len());
            // It fits: there are at most MAX_KEYS keys of at most MAX_RESOURCE bytes.
            self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(key);
            self.count += 1;
        }
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.bytes.clone_from(&other.bytes);
        self.count = other.count;
    }

    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn first(&self) -> &[u8] {
        self.iter().next().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let (key, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(key)
        })
    }
}

const LENGTH: usize = size_of::<u32>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_were() {
        let mut keys = Keys::new();
        assert_eq!((keys.len(), keys.iter().count()), (0, 0));
        for of in [&[&b"a"[..], b"", b"\x00\xff longer"][..], &[b"one"]] {
            keys.set(of.iter().copied());
            let mut copy = Keys::new();
            copy.copy_from(&keys);
            assert_eq!(copy.iter().collect::<Vec<_>>(), of);
            assert_eq!((copy.len(), copy.first()), (of.len(), of[0]));
        }
    }
}

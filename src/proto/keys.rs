//! The resources of a lock, in memory that is used again.

/// One or more byte strings, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    pub(super) fn set<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.bytes.clear();
        self.ends.clear();
        for key in keys {
            self.bytes.extend_from_slice(key);
            // At most MAX_KEYS of MAX_RESOURCE bytes.
            self.ends.push(self.bytes.len() as u32);
        }
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.bytes.clone_from(&other.bytes);
        self.ends.clone_from(&other.ends);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn first(&self) -> &[u8] {
        &self.bytes[..self.ends[0] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let key = &self.bytes[start..end as usize];
            start = end as usize;
            key
        })
    }
}

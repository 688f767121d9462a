//! A hash: the permits of a semaphore, or the holder of a lock in Redisson's format.

use std::collections::BTreeMap;

/// The fields of a hash with their values.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Fields {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn value_of(&self, field: &[u8]) -> Option<&[u8]> {
        self.values.get(field).map(Vec::as_slice)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.values.keys().map(Vec::as_slice)
    }

    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) {
        self.values.insert(field.to_vec(), value.to_vec());
    }

    /// Removes a field and returns true if it existed.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        self.values.remove(field).is_some()
    }
}

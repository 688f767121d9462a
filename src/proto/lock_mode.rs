//! The mode of a lock: exclusive, shared, or with a permit.

/// The mode of a lock, which determines the locks that can be held at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// One holder and no other, as a writer.
    #[default]
    Exclusive,
    /// Any number of holders, as readers, and no exclusive holder.
    Shared,
    /// One of a semaphore's permits.
    Permit {
        /// The number of permits of the semaphore.
        of: u16,
    },
}

/// A mode in two bytes: the number of permits, or one of two numbers that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedMode(u16);

impl LockMode {
    pub(super) const fn packed(self) -> PackedMode {
        match self {
            Self::Exclusive => PackedMode(0),
            Self::Shared => PackedMode(u16::MAX),
            Self::Permit { of } => PackedMode(of),
        }
    }
}

impl From<PackedMode> for LockMode {
    #[inline]
    fn from(packed: PackedMode) -> Self {
        match packed.0 {
            0 => Self::Exclusive,
            u16::MAX => Self::Shared,
            of => Self::Permit { of },
        }
    }
}

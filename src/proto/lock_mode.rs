//! The mode of a lock: exclusive, shared, or with a permit.

/// Beside whom a lock may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// Beside nobody, as a writer.
    #[default]
    Exclusive,
    /// Beside others who share, as readers do, and beside nobody who excludes.
    Shared,
    /// With one of a semaphore's permits, beside holders of the others.
    Permit {
        /// How many permits the semaphore has.
        of: u16,
    },
}

/// A mode in two bytes: the number of permits, and two numbers that there cannot be.
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

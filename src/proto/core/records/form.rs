//! The part of a record about a lock whose holder has changed its mode: the kind of its claim, and
//! the second claim that goes along.

use super::detached::{
    DetachedLock, DetachedLockError, DetachedNode, LONGEST, Part, TextLines, digits,
};
use crate::proto::core::claims::hex;
use crate::proto::lease::Lease;
use crate::proto::lock_mode::LockMode;
use crate::proto::names::MAX_NODES;
use crate::proto::profile::Profile;
use crate::proto::time::Timestamp;

/// The kind of claim by which a lock is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// A claim of the lock's mode.
    #[default]
    Asked,
    /// A writer's claim, and the one that it has kept as a reader, unless that has expired.
    Upgraded(Option<Box<SecondClaim>>),
    /// A writer's claim, whose holder has become a reader.
    Downgraded,
    /// A claim of another library's lock.
    Foreign(Profile),
}

/// The reader's claim that an upgraded holder has kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecondClaim {
    parts: Vec<Part>,
    lease: Lease,
    keys_until: Timestamp,
    random: [u8; 16],
}

impl Form {
    /// Returns whether a lock on this number of nodes can have this form.
    pub(super) fn is_possible(&self, nodes: usize, quorum: usize) -> bool {
        match self {
            Self::Upgraded(Some(reader)) => reader.is_possible(nodes, quorum),
            _ => true,
        }
    }

    pub(super) fn write(&self, line: &mut impl FnMut(&str, &str)) {
        if let Self::Upgraded(Some(reader)) = self {
            reader.write(line);
        }
    }

    /// Reads what [`write`](Self::write) has written of such a form.
    pub(super) fn read(self, lines: &mut TextLines<'_>) -> Result<Self, DetachedLockError> {
        Ok(match self {
            Self::Upgraded(_) => Self::Upgraded(SecondClaim::read(lines)?.map(Box::new)),
            other => other,
        })
    }
}

impl SecondClaim {
    /// Returns the claim of the lock in this record.
    pub(super) fn of(reader: &DetachedLock) -> Self {
        Self {
            parts: reader.nodes.iter().map(|node| node.part).collect(),
            lease: reader.lease,
            keys_until: reader.keys_until,
            random: reader.random,
        }
    }

    /// Returns the record of a lock that shares the writer's resource by this claim.
    pub(super) fn beside(&self, writer: &DetachedLock) -> DetachedLock {
        let node = |&part| DetachedNode { name: String::new(), part };
        DetachedLock {
            nodes: self.parts.iter().map(node).collect(),
            mode: LockMode::Shared,
            form: Form::Asked,
            lease: self.lease,
            keys_until: self.keys_until,
            fencing_token: None,
            random: self.random,
            ..writer.clone()
        }
    }

    fn is_possible(&self, nodes: usize, quorum: usize) -> bool {
        let counted = self.parts.iter().filter(|&&part| part == Part::Counted).count();
        let span = u128::from(self.lease.parts().1);
        self.parts.len() == nodes && counted >= quorum && span <= LONGEST.as_nanos()
    }

    fn write(&self, line: &mut impl FnMut(&str, &str)) {
        for part in &self.parts {
            line(PART, part.word());
        }
        let (since, span_ns) = self.lease.parts();
        line("reader_boot_ns", &since.boot.0.to_string());
        line("reader_wall_ns", &since.wall.0.to_string());
        line("reader_span_ns", &span_ns.to_string());
        line("reader_keys_until_ns", &self.keys_until.0.to_string());
        let digits: String = self.random.into_iter().flat_map(hex).map(char::from).collect();
        line("reader_token", &digits);
    }

    /// Reads what [`write`](Self::write) has written, if it is there.
    fn read(lines: &mut TextLines<'_>) -> Result<Option<Self>, DetachedLockError> {
        if !lines.goes_on_with(PART) {
            return Ok(None);
        }
        let parts = lines.all(PART, MAX_NODES, Part::from_text)?;
        let lease = lines.lease("reader_boot_ns", "reader_wall_ns", "reader_span_ns")?;
        let keys_until = Timestamp(lines.number("reader_keys_until_ns")?);
        let random = digits(lines.field("reader_token")?);
        let random = random.ok_or_else(|| lines.wrong("reader_token"))?;
        Ok(Some(Self { parts, lease, keys_until, random }))
    }
}

impl std::fmt::Debug for SecondClaim {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecondClaim").finish_non_exhaustive()
    }
}

const PART: &str = "reader_node";

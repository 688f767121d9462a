//! The restart guard: the meaning of the value and the TTL of a node's restart guard key.
//!
//! The value names the server's run, the history of its data, `max_ttl`, the number of nodes and
//! the database. The TTL, compared with the fixed [`BIG_MS`], determines whether the node is
//! quarantined. [The manual](crate::manual::guard) has the rules.
//!
//! The functions are pure and public, so that the models of the protocol run the same code. The key
//! is read and written in `core/restart_guard/`.

use std::time::Duration;

use crate::resp::messages;

/// The 40 random hexadecimal digits that a server draws at each start.
pub type RunId = [u8; 40];

/// The 40 hexadecimal digits that identify the history of a server's data: its `master_replid`
/// ([Redis replication]). A replica has its master's, and draws a new one when it is promoted.
///
/// A master whose id has changed may have been a replica in between, with the data of another
/// server. Or it got its first replica, or its last one left long ago; later these cases cannot be
/// distinguished.
///
/// [Redis replication]: https://redis.io/docs/latest/operate/oss_and_stack/management/replication/
pub type ReplicationId = [u8; 40];

/// The TTL in ms at which a quarantine ends: four years. A restart guard is enrolled with a TTL of
/// this plus `max_ttl`, and so lives far longer than any process that relies on it.
pub const BIG_MS: u64 = 4 * 365 * 24 * 60 * 60 * 1000;

/// Whether nodes have restart guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuard {
    /// A grant counts only if the restart guard shows that the node has not lost locks.
    #[default]
    On,
    /// A node that restarted without its data votes at once, so that a lost lock can be granted
    /// twice. For nodes that never lose their data, or for locks that only save work.
    Off,
}

/// How to treat a node without the restart guard that this client expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setup {
    /// Enrol the node, and quarantine it for `max_ttl`.
    #[default]
    Enrol,
    /// If no node of the set has a restart guard, treat all as new and enrol them without a
    /// quarantine. Otherwise as [`Enrol`](Self::Enrol). Unsafe if all nodes can lose their data at
    /// the same time.
    IfNew,
    /// Let all nodes vote at once, because the operator states that they are new. Write nothing
    /// unless all nodes answer, none votes yet, and none has another restart guard than this
    /// client's.
    Init,
    /// Write nothing, for a client that only inspects.
    ReadOnly,
    /// Replace the restart guards of all nodes by this client's, with a quarantine of the larger
    /// `max_ttl`, and close their other connections, on which the old value was read.
    Change,
}

/// How far a restart guard is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartTrust {
    /// Only a restart guard of the server's present run is trusted.
    #[default]
    Strict,
    /// A restart guard of any earlier run is trusted as well, because the operator states that the
    /// server syncs every write to its disk (`appendfsync always`). Behind sentinels this is the
    /// same as [`Strict`](Self::Strict): a promoted replica may lack writes that its master has
    /// synced.
    Durable,
    /// A restart guard of any run is trusted, for a user that may not run `INFO`. A server that
    /// comes back with old data is not detected, and neither is anything else that `INFO` shows: a
    /// replica, cluster mode, an evicting policy, or one server under two names.
    MarkerOnly,
}

/// The restart guard that a client expects on a node.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the models state what is expected field by field")]
pub struct Expected {
    /// The server's present run; `None` if `INFO` is forbidden.
    pub run_id: Option<RunId>,
    /// The history of the server's data; `None` if the server does not report it.
    pub replication_id: Option<ReplicationId>,
    /// The longest TTL of any lock, in ms.
    pub max_ttl_ms: u64,
    /// The number of nodes in the set.
    pub nodes: u64,
    /// The database of the locks.
    pub database: u64,
    /// How far the restart guard is trusted.
    pub restart_trust: RestartTrust,
}

impl Expected {
    /// Returns the value with which this client enrols a node.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let mut value = self.run_id.map_or_else(|| b"-".to_vec(), |run_id| run_id.to_vec());
        if let (Some(_), Some(replication_id)) = (self.run_id, &self.replication_id) {
            value.push(b'.');
            value.extend_from_slice(replication_id);
        }
        let rest = format!(":{}:{}:{}", self.max_ttl_ms, self.nodes, self.database);
        value.extend_from_slice(rest.as_bytes());
        value
    }

    /// Returns the meaning of a restart guard's value for this client. `None` is a missing key.
    #[must_use]
    pub fn judge(&self, found: Option<&[u8]>) -> Found {
        let Some(found) = found else { return Found::Missing };
        let Some(value) = Value::parse(found) else { return Found::Unreadable };
        let is_strict = self.restart_trust == RestartTrust::Strict;
        // Limits come first: a client with others must never write, even to a node that lost data.
        match (value.max_ttl_ms, value.nodes) {
            (max_ttl_ms, nodes) if (max_ttl_ms, nodes) != (self.max_ttl_ms, self.nodes) => {
                Found::OtherLimits { max_ttl_ms, nodes }
            }
            _ if value.database != self.database => Found::OtherDatabase,
            _ if self.is_of_other_history(&value) => Found::OtherHistory,
            // Byte by byte: a value that this client would not write is of another run.
            _ if is_strict && found != self.value() => Found::OtherRun,
            _ => Found::Ours,
        }
    }

    /// Returns whether the value is of the present run but of other data. `Durable` does not change
    /// that: it is about restarts, not about data copied within a run.
    fn is_of_other_history(&self, value: &Value<'_>) -> bool {
        // REPLICAOF replaces the data within a run, so the run alone proves nothing
        // (docs/how-it-works/guard.md).
        let is_of_run = self.run_id.is_some_and(|run_id| value.run_id == run_id);
        is_of_run && value.replication_id != self.replication_id.as_ref().map(<[u8; 40]>::as_slice)
    }
}

/// The fields of a restart guard's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the fields of the value as it is on the nodes")]
pub struct Value<'a> {
    /// The run of the server, or `-` if it is unknown.
    pub run_id: &'a [u8],
    /// The history of the server's data, if it is known.
    pub replication_id: Option<&'a [u8]>,
    /// The longest TTL of any lock, in ms.
    pub max_ttl_ms: u64,
    /// The number of nodes in the set.
    pub nodes: u64,
    /// The database of the locks.
    pub database: u64,
}

impl<'a> Value<'a> {
    /// Parses `run_id.replication_id:max_ttl_ms:nodes:database`, in which `.replication_id` is
    /// optional. Returns `None` for anything else.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut parts = value.split(|&byte| byte == b':');
        let mut ids = parts.next()?.splitn(2, |&byte| byte == b'.');
        let run_id = ids.next().filter(|run_id| !run_id.is_empty())?;
        let replication_id = ids.next();
        let mut number = || {
            // `parse` alone would accept a plus sign.
            let digits = parts.next().filter(|part| part.iter().all(u8::is_ascii_digit))?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let (max_ttl_ms, nodes, database) = (number()?, number()?, number()?);
        let value = Self { run_id, replication_id, max_ttl_ms, nodes, database };
        parts.next().is_none().then_some(value)
    }
}

messages! {
    /// The meaning of a restart guard's value for a client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Found {
        /// There is no restart guard: the node is new, or it has lost its data.
        Missing: "no restart guard: it is new, or has lost its memory",
        /// It was set up for another `max_ttl` or number of nodes. Clients that disagree about
        /// these could both have a quorum, so the node does not vote for this client, which writes
        /// nothing.
        OtherLimits {
            /// The longest TTL of any lock, in ms, in the value.
            max_ttl_ms: u64,
            /// The number of nodes in the value.
            nodes: u64,
        }: "set up for {nodes} nodes and a max_ttl of {:?}"
            with (Duration::from_millis(*max_ttl_ms)),
        /// It was written into another database and got here by `SWAPDB`.
        OtherDatabase: "the restart guard of another database",
        /// It is of the server's present run but of other data: the server may have been a replica
        /// in between.
        OtherHistory: "the restart guard of other data: its replication id changed",
        /// It is of an earlier run of the server, which may have come back with old data.
        OtherRun: "the restart guard of an earlier run: it was restarted",
        /// It is as this client expects.
        Ours: "guarded",
        /// The key does not hold a restart guard.
        Unreadable: "its restart guard's key holds something else",
    }
}

impl Found {
    /// Returns whether the node must be enrolled. All ways of losing data are treated alike.
    #[must_use]
    pub fn calls_for_enrolment(self) -> bool {
        // A guard with other limits is never overwritten: clients that disagree about them could
        // both find a quorum, which only an operator can resolve.
        matches!(self, Self::Missing | Self::OtherDatabase | Self::OtherHistory | Self::OtherRun)
    }
}

/// The meaning of a restart guard's TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the models decide by each of them")]
pub enum Standing {
    /// There is no TTL: the key was altered.
    Endless,
    /// There is no restart guard any more.
    Missing,
    /// The node must not vote yet.
    Quarantined {
        /// The remaining time in ms.
        left_ms: u64,
    },
    /// The node has every lock that may still be valid.
    Votes,
}

impl Standing {
    /// Returns the meaning of a reply to `PTTL`.
    #[must_use]
    pub fn of(pttl: i64) -> Self {
        // One TTL has both states. From two keys a client could read one and miss the other.
        match u64::try_from(pttl) {
            Ok(ms) if ms <= BIG_MS => Self::Votes,
            Ok(ms) => Self::Quarantined { left_ms: ms - BIG_MS },
            Err(_) if pttl == -1 => Self::Endless,
            Err(_) => Self::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = *b"0123456789abcdef0123456789abcdef01234567";

    fn expected() -> Expected {
        let run_id = Some(RUN);
        Expected {
            run_id,
            replication_id: None,
            max_ttl_ms: 30_000,
            nodes: 3,
            database: 0,
            restart_trust: RestartTrust::Strict,
        }
    }

    fn judged(value: &str) -> Found {
        expected().judge(Some(value.as_bytes()))
    }

    #[test]
    fn the_value_that_a_client_writes_is_accepted() {
        let value = expected().value();
        assert_eq!(value, b"0123456789abcdef0123456789abcdef01234567:30000:3:0");
        assert_eq!(expected().judge(Some(&value)), Found::Ours);
    }

    /// Other limits come before another run: they need an operator in any run.
    #[test]
    fn every_difference_has_its_name() {
        let other = "1123456789abcdef0123456789abcdef01234567";
        assert_eq!(expected().judge(None), Found::Missing);
        assert_eq!(judged(&format!("{other}:30000:3:0")), Found::OtherRun);
        let limits = Found::OtherLimits { max_ttl_ms: 10_000, nodes: 5 };
        assert_eq!(judged(&format!("{other}:10000:5:1")), limits);
        let run = std::str::from_utf8(&RUN).unwrap();
        assert_eq!(judged(&format!("{run}:30000:3:1")), Found::OtherDatabase);
        // Compared byte for byte: redbolt does not write a leading zero.
        assert_eq!(judged(&format!("{run}:30000:03:0")), Found::OtherRun);
        for unreadable in ["", "x", ":30000:3:0", "r:30000:3", "r:30000:3:0:1", "r:3e4:3:0", "r:::"]
        {
            assert_eq!(judged(unreadable), Found::Unreadable, "{unreadable}");
        }
        assert!(!limits.calls_for_enrolment() && !Found::Unreadable.calls_for_enrolment());
        assert!(Found::Missing.calls_for_enrolment() && Found::OtherRun.calls_for_enrolment());
    }

    #[test]
    fn relaxed_trust_accepts_other_runs_but_no_other_difference() {
        for restart_trust in [RestartTrust::Durable, RestartTrust::MarkerOnly] {
            let expected = Expected { restart_trust, ..expected() };
            assert_eq!(expected.judge(Some(b"-:30000:3:0")), Found::Ours);
            assert_eq!(expected.judge(None), Found::Missing);
            assert_eq!(expected.judge(Some(b"-:30000:3:1")), Found::OtherDatabase);
            assert_ne!(expected.judge(Some(b"-:30000:4:0")), Found::Ours);
        }
        let unknown =
            Expected { run_id: None, restart_trust: RestartTrust::MarkerOnly, ..expected() };
        assert_eq!(unknown.value(), b"-:30000:3:0");
    }

    /// A guard that was copied to a replica and back is the same, but the data has another history.
    #[test]
    fn a_restart_guard_that_was_copied_back_is_not_ours() {
        let of = |digit, restart_trust| Expected {
            replication_id: Some([digit; 40]),
            restart_trust,
            ..expected()
        };
        let (before, after) = (of(b'a', RestartTrust::Strict), of(b'b', RestartTrust::Strict));
        let value = before.value();
        assert_eq!(value.len(), 40 + 1 + 40 + ":30000:3:0".len());
        assert_eq!(before.judge(Some(&value)), Found::Ours);
        assert_eq!(after.judge(Some(&value)), Found::OtherHistory);
        assert!(Found::OtherHistory.calls_for_enrolment());
        assert_eq!(judged(std::str::from_utf8(&value).unwrap()), Found::OtherHistory);
        // `Durable` is about restarts, not about data that was copied within a run.
        let durable = of(b'b', RestartTrust::Durable);
        assert_eq!(durable.judge(Some(&value)), Found::OtherHistory);
        let other_run = Expected { run_id: Some([b'f'; 40]), ..durable };
        assert_eq!(other_run.judge(Some(&value)), Found::Ours);
        // A server that does not report its run does not report the history of its data either.
        let unknown = Expected { run_id: None, ..of(b'b', RestartTrust::MarkerOnly) };
        assert_eq!(unknown.value(), b"-:30000:3:0");
        assert_eq!(unknown.judge(Some(&value)), Found::Ours);
    }

    #[test]
    fn the_ttl_determines_whether_a_node_votes() {
        let big = i64::try_from(BIG_MS).unwrap();
        assert_eq!(Standing::of(-2), Standing::Missing);
        assert_eq!(Standing::of(-1), Standing::Endless);
        assert_eq!(Standing::of(0), Standing::Votes);
        assert_eq!(Standing::of(big), Standing::Votes);
        assert_eq!(Standing::of(big + 1), Standing::Quarantined { left_ms: 1 });
    }
}

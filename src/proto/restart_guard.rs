//! The restart guard: what a node's restart guard key says, and what follows from it.
//!
//! [The manual](crate::manual::guard) has the rules. The key's value says for which run of the server, which
//! history of its data, which `max_ttl`, how many nodes and which database it speaks; its TTL says the rest, measured
//! against the fixed [`BIG_MS`].
//!
//! Pure functions, and public, so that the models that search this protocol for holes decide with the
//! same code. Not here: when the key is read and written, see `core/restart_guard/`.

use std::time::Duration;

use crate::resp::messages;

/// The 40 hexadecimal digits that a server draws at each start.
pub type RunId = [u8; 40];

/// The 40 hexadecimal digits that name the history of a server's data: its `master_replid`. A replica has its master's, and
/// draws its own when it is promoted. So a master that has another one than before may have been a replica meanwhile, with
/// the memory of another server; or its first replica came, or the last one left long ago, which nobody can tell apart later.
pub type ReplicationId = [u8; 40];

/// The TTL in ms at which a quarantine ends: four years. A restart guard is enrolled for this long and
/// `max_ttl`, and so lives far longer than any process that relies on it.
pub const BIG_MS: u64 = 4 * 365 * 24 * 60 * 60 * 1000;

/// Whether nodes are guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuard {
    /// A grant counts only where the restart guard says that the node remembers every lock.
    #[default]
    On,
    /// A node that was restarted without its memory votes at once, so that a lock which it forgot can
    /// be granted twice. For nodes that never lose their memory, or for locks that only save work.
    Off,
}

/// What happens to a node that has no restart guard for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setup {
    /// It is enrolled, and quarantined for `max_ttl`.
    #[default]
    Enrol,
    /// If no node of the set has a restart guard, all are new: they are enrolled without a quarantine. Else as
    /// [`Enrol`](Self::Enrol). Wrong where all nodes can lose their memory at once.
    IfNew,
    /// If no node of the set votes, and none has another restart guard than ours, the operator's word is taken
    /// that all are new, and they vote at once. Else nothing is written.
    Init,
    /// Nothing is written, whatever is found: for a client that only inspects.
    ReadOnly,
    /// All nodes get our restart guard, whatever they have, with a quarantine of the larger `max_ttl`, and
    /// drop their other connections, on which the old value was read.
    Change,
}

/// How much of a restart guard is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartTrust {
    /// It must be of the server's present run.
    #[default]
    Strict,
    /// The operator's word that the server syncs every write to its disk (`appendfsync always`): a
    /// guard of any earlier run will do. Behind sentinels as [`Strict`](Self::Strict): a replica that is
    /// promoted may lack writes that its master has synced.
    Durable,
    /// The user may not run `INFO`, so that the run is unknown and any will do. A server that comes
    /// back with stale data goes unseen, and so does what else `INFO` tells: a replica, cluster mode, a
    /// policy that evicts, the same server under two names.
    MarkerOnly,
}

/// What the restart guard of a node has to say for this client.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the models state what is expected field by field")]
pub struct Expected {
    /// The server's present run; `None` where `INFO` is forbidden.
    pub run_id: Option<RunId>,
    /// The history of its data; `None` where the server does not tell.
    pub replication_id: Option<ReplicationId>,
    /// The longest TTL of any lock, in ms.
    pub max_ttl_ms: u64,
    /// How many nodes the set has.
    pub nodes: u64,
    /// The database of the locks.
    pub database: u64,
    /// How much of it is believed.
    pub restart_trust: RestartTrust,
}

impl Expected {
    /// The value that this client enrols a node with.
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

    /// What a restart guard's value means to this client; `None` is a missing key.
    #[must_use]
    pub fn judge(&self, found: Option<&[u8]>) -> Found {
        let Some(found) = found else { return Found::Missing };
        let Some(value) = Value::parse(found) else { return Found::Unreadable };
        let is_strict = self.restart_trust == RestartTrust::Strict;
        match (value.max_ttl_ms, value.nodes) {
            (max_ttl_ms, nodes) if (max_ttl_ms, nodes) != (self.max_ttl_ms, self.nodes) => {
                Found::OtherLimits { max_ttl_ms, nodes }
            }
            _ if value.database != self.database => Found::OtherDatabase,
            _ if self.is_of_other_history(&value) => Found::OtherHistory,
            _ if is_strict && found != self.value() => Found::OtherRun,
            _ => Found::Ours,
        }
    }

    /// Whether it is of the present run, and of other data. No operator's word is about that.
    fn is_of_other_history(&self, value: &Value<'_>) -> bool {
        let is_of_run = self.run_id.is_some_and(|run_id| value.run_id == run_id);
        is_of_run && value.replication_id != self.replication_id.as_ref().map(<[u8; 40]>::as_slice)
    }
}

/// A restart guard's value, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the fields of the value as it is on the nodes")]
pub struct Value<'a> {
    /// The run of the server for which it speaks; `-` if that is not known.
    pub run_id: &'a [u8],
    /// The history of the server's data, if that is known.
    pub replication_id: Option<&'a [u8]>,
    /// The longest TTL of any lock, in ms.
    pub max_ttl_ms: u64,
    /// How many nodes the set has.
    pub nodes: u64,
    /// The database of the locks.
    pub database: u64,
}

impl<'a> Value<'a> {
    /// Reads `run_id.replication_id:max_ttl_ms:nodes:database`, or that without a replication id; `None` for anything else.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut parts = value.split(|&byte| byte == b':');
        let mut ids = parts.next()?.splitn(2, |&byte| byte == b'.');
        let run_id = ids.next().filter(|run_id| !run_id.is_empty())?;
        let replication_id = ids.next();
        let mut number = || {
            let digits = parts.next().filter(|part| part.iter().all(u8::is_ascii_digit))?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let (max_ttl_ms, nodes, database) = (number()?, number()?, number()?);
        let value = Self { run_id, replication_id, max_ttl_ms, nodes, database };
        parts.next().is_none().then_some(value)
    }
}

messages! {
    /// What a restart guard's value means to a client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Found {
        /// No restart guard: the node is new, or it has lost its memory.
        Missing: "no restart guard: it is new, or has lost its memory",
        /// It was set up for another `max_ttl` or number of nodes. Clients that disagree about these could
        /// both have a quorum: this one has no vote there, and writes nothing.
        OtherLimits {
            /// The longest TTL of any lock, in ms.
            max_ttl_ms: u64,
            /// How many nodes the set has.
            nodes: u64,
        }: "set up for {nodes} nodes and a max_ttl of {:?}"
            with (Duration::from_millis(*max_ttl_ms)),
        /// It was written into another database, and came here by a swap.
        OtherDatabase: "the restart guard of another database",
        /// It is of the present run of the server and of other data: the server may have been a replica meanwhile.
        OtherHistory: "the restart guard of other data: its replication id changed",
        /// It is of an earlier run of the server, which may have come back with stale data.
        OtherRun: "the restart guard of an earlier run: it was restarted",
        /// What this client expects.
        Ours: "guarded",
        /// No restart guard of redbolt's.
        Unreadable: "its restart guard's key holds something else",
    }
}

impl Found {
    /// Whether the node is to be enrolled: the one answer to every way of having lost memory.
    #[must_use]
    pub fn calls_for_enrolment(self) -> bool {
        matches!(self, Self::Missing | Self::OtherDatabase | Self::OtherHistory | Self::OtherRun)
    }
}

/// What a restart guard's TTL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the models decide by each of them")]
pub enum Standing {
    /// No TTL at all: somebody altered the key.
    Endless,
    /// There is no restart guard any more.
    Missing,
    /// The node must not vote yet.
    Quarantined {
        /// For how many ms more.
        left_ms: u64,
    },
    /// The node remembers every lock that may be alive.
    Votes,
}

impl Standing {
    /// Reads the answer to `PTTL`.
    #[must_use]
    pub fn of(pttl: i64) -> Self {
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
    fn our_own_value_is_ours() {
        let value = expected().value();
        assert_eq!(value, b"0123456789abcdef0123456789abcdef01234567:30000:3:0");
        assert_eq!(expected().judge(Some(&value)), Found::Ours);
    }

    /// Other limits come before another run: of whichever run, they are a matter for an operator.
    #[test]
    fn every_difference_has_its_name() {
        let other = "1123456789abcdef0123456789abcdef01234567";
        assert_eq!(expected().judge(None), Found::Missing);
        assert_eq!(judged(&format!("{other}:30000:3:0")), Found::OtherRun);
        let limits = Found::OtherLimits { max_ttl_ms: 10_000, nodes: 5 };
        assert_eq!(judged(&format!("{other}:10000:5:1")), limits);
        let run = std::str::from_utf8(&RUN).unwrap();
        assert_eq!(judged(&format!("{run}:30000:3:1")), Found::OtherDatabase);
        // Byte for byte: a number spelled otherwise was not written by us.
        assert_eq!(judged(&format!("{run}:30000:03:0")), Found::OtherRun);
        for unreadable in ["", "x", ":30000:3:0", "r:30000:3", "r:30000:3:0:1", "r:3e4:3:0", "r:::"]
        {
            assert_eq!(judged(unreadable), Found::Unreadable, "{unreadable}");
        }
        assert!(!limits.calls_for_enrolment() && !Found::Unreadable.calls_for_enrolment());
        assert!(Found::Missing.calls_for_enrolment() && Found::OtherRun.calls_for_enrolment());
    }

    #[test]
    fn what_an_operator_has_confirmed_holds_for_one_run_only() {
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

    /// Copied to a replica and back again, it is the same in all but that the data are of another history.
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
        // Durable is a word about restarts, and says nothing of what was copied within a run.
        let durable = of(b'b', RestartTrust::Durable);
        assert_eq!(durable.judge(Some(&value)), Found::OtherHistory);
        let other_run = Expected { run_id: Some([b'f'; 40]), ..durable };
        assert_eq!(other_run.judge(Some(&value)), Found::Ours);
        // A server that does not tell which run it is tells nothing of its data either.
        let unknown = Expected { run_id: None, ..of(b'b', RestartTrust::MarkerOnly) };
        assert_eq!(unknown.value(), b"-:30000:3:0");
        assert_eq!(unknown.judge(Some(&value)), Found::Ours);
    }

    #[test]
    fn the_ttl_says_the_rest() {
        let big = i64::try_from(BIG_MS).unwrap();
        assert_eq!(Standing::of(-2), Standing::Missing);
        assert_eq!(Standing::of(-1), Standing::Endless);
        assert_eq!(Standing::of(0), Standing::Votes);
        assert_eq!(Standing::of(big), Standing::Votes);
        assert_eq!(Standing::of(big + 1), Standing::Quarantined { left_ms: 1 });
    }
}

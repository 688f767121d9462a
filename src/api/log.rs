//! Notes of what happens, for the log of the program.
//!
//! A trait needs no dependency: the host writes each line with its own logger.

use std::fmt;
use std::sync::Arc;

use super::report::{NodeStatus, RefusalReport};
use crate::proto::{Cause, LockId, LossCause, RefusalReason, Released, messages};

/// A receiver of notes for a log. Pass one to [`ConfigBuilder::log`](super::ConfigBuilder::log).
///
/// It is called on the thread that drives the locks, when events are returned: in
/// [`Driver::poll_event`](super::Driver::poll_event), inside the calls of a
/// [`Client`](super::Client), and on the thread that drives an [`Engine`](super::Engine). It must
/// not block, because no lock is extended or released while it runs. It must not use the client or
/// driver that called it, and must not wait for the engine.
///
/// A panic in it propagates out of the call that returned the event, and that event is lost. The
/// locks are not harmed. An engine catches and counts the panic
/// ([`Engine::panics`](super::Engine::panics)).
///
/// No note has a token or a password, neither in a field nor in its text.
///
/// With the feature `log`, a configuration without a `Log` passes its notes to the crate `log`,
/// with the target `redbolt`: `env_logger`, `tracing-log` and others receive them.
///
/// ```
/// use std::sync::Arc;
/// use redbolt::{Config, log::{Level, Log, Note}};
///
/// struct Stderr;
///
/// impl Log for Stderr {
///     fn note(&self, note: &Note<'_>) {
///         if note.level() >= Level::Info {
///             eprintln!("redbolt: {note}");
///         }
///     }
/// }
///
/// let config = Config::builder().node("10.0.0.1").log(Arc::new(Stderr)).build()?;
/// # Ok::<(), redbolt::ConfigError>(())
/// ```
pub trait Log: Send + Sync {
    /// Receives a note.
    fn note(&self, note: &Note<'_>);
}

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the levels of every log")]
pub enum Level {
    /// A note that every lock causes.
    Debug,
    /// A rare note about normal operation.
    Info,
    /// A note about something that may recover by itself.
    Warning,
    /// A note that work was in danger without its lock, or that an operator has to act.
    Error,
}

messages! {
    /// One thing that happened. `Display` writes one line without a level and without a line end.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub enum Note<'a> {
        /// The node's clock is too far from the fencing token that we proposed: its clock or ours
        /// is wrong.
        ClockSkew {
            /// The node and its state.
            node: &'a NodeStatus,
            /// The size of the difference.
            words: &'a str,
        }: "node {} {}: {words}" with (node.number, node.address),
        /// A lock was extended.
        Extended {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
        }: "lock extended: {name}",
        /// A lock was granted.
        Granted {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
        }: "lock granted: {name}",
        /// A lock was lost before its holder released it.
        Lost {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// The cause.
            cause: LossCause,
        }: "lock lost: {name}: {cause}",
        /// A node does not vote.
        NodeDown {
            /// The node, with the reason in words.
            node: &'a NodeStatus,
            /// The reason.
            cause: Cause,
        }: "{node}",
        /// A node does not vote until all locks that it may have forgotten have ended.
        NodeQuarantined {
            /// The node, with the reason in words.
            node: &'a NodeStatus,
        }: "{node}",
        /// A node seems to hang. Nothing waits for it until it answers.
        NodeSuspected {
            /// The node.
            node: &'a NodeStatus,
        }: "{node}",
        /// A node votes, for the first time or again.
        NodeReady {
            /// The node.
            node: &'a NodeStatus,
            /// The number of connections to it before this one.
            reconnects: u64,
        }: "{node}{}" with (Reconnected(*reconnects)),
        /// An extension found no quorum. The lock is held until its validity ends.
        NotExtended {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// The vote of each node.
            report: &'a RefusalReport,
        }: "lock not extended: {name}: {report}",
        /// A node that waiters need does not push notifications, so waiters use their timers.
        PushUnavailable {
            /// The node.
            node: &'a NodeStatus,
            /// The reason.
            cause: Cause,
        }: "node {} {}: waiters are not told: {cause}"
                with (node.number, node.address),
        /// An acquisition was refused.
        Refused {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// The vote of each node.
            report: &'a RefusalReport,
        }: "lock refused: {name}: {report}",
        /// A lock was released.
        Released {
            /// The id of the lock.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// The confirmation that the release received.
            confirmed: Released,
        }: "lock released: {name}, {confirmed}",
    }
}

/// The number of reconnections of a node; nothing is shown for zero.
struct Reconnected(u64);

impl fmt::Display for Reconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", reconnected ({})", self.0) }
    }
}

impl Note<'_> {
    /// Returns the importance of the note.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Extended { .. } | Self::Granted { .. } | Self::Released { .. } => Level::Debug,
            Self::Refused { report, .. } => match report.reason() {
                RefusalReason::Cancelled => Level::Debug,
                _ if report.is_contended() => Level::Debug,
                _ => Level::Warning,
            },
            Self::NodeReady { .. } => Level::Info,
            Self::NodeDown { cause, .. } if cause.is_configuration() => Level::Error,
            Self::ClockSkew { .. }
            | Self::NodeDown { .. }
            | Self::NodeQuarantined { .. }
            | Self::NodeSuspected { .. }
            | Self::NotExtended { .. }
            | Self::PushUnavailable { .. } => Level::Warning,
            Self::Lost { .. } => Level::Error,
        }
    }
}

/// The logger of the crate `log`. Every note has the target `redbolt`.
#[cfg(any(test, feature = "log"))]
struct Facade;

#[cfg(any(test, feature = "log"))]
impl Log for Facade {
    fn note(&self, note: &Note<'_>) {
        let level = match note.level() {
            Level::Debug => ::log::Level::Debug,
            Level::Info => ::log::Level::Info,
            Level::Warning => ::log::Level::Warn,
            Level::Error => ::log::Level::Error,
        };
        ::log::log!(target: "redbolt", level, "{note}");
    }
}

/// The log of a configuration, if it has one.
#[derive(Clone)]
#[cfg_attr(not(feature = "log"), derive(Default))]
pub(super) struct Logger(pub(super) Option<Arc<dyn Log>>);

#[cfg(feature = "log")]
impl Default for Logger {
    fn default() -> Self {
        Self(Some(Arc::new(Facade)))
    }
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Logger(..)" } else { "None" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{Config, Driver};
    use super::*;
    use crate::proto::LockRequest;

    struct Kept(Mutex<Vec<(::log::Level, String)>>);

    impl ::log::Log for Kept {
        fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &::log::Record<'_>) {
            assert_eq!(record.target(), "redbolt");
            self.0.lock().unwrap().push((record.level(), record.args().to_string()));
        }

        fn flush(&self) {}
    }

    static KEPT: Kept = Kept(Mutex::new(Vec::new()));

    #[test]
    fn the_facade_passes_a_note_on_with_its_level() {
        ::log::set_logger(&KEPT).unwrap();
        ::log::set_max_level(::log::LevelFilter::Trace);
        let config = Config::builder().node("127.0.0.1:1").build().unwrap();
        let mut driver = Driver::new(config).unwrap();
        let (lock, name) = (driver.acquire(LockRequest::new("invoices")).unwrap(), "invoices");
        Facade.note(&Note::Granted { lock, name });
        Facade.note(&Note::Lost { lock, name, cause: LossCause::Expired });
        let lost = format!("lock lost: invoices: {}", LossCause::Expired);
        let kept = std::mem::take(&mut *KEPT.0.lock().unwrap());
        let granted = "lock granted: invoices".to_owned();
        assert_eq!(kept, [(::log::Level::Debug, granted), (::log::Level::Error, lost)]);
    }
}

//! Notes of what happens, for the log of the program.
//!
//! A trait and no dependency: the host writes the line, with whatever it logs with. `notes` makes the notes.

use std::fmt;
use std::sync::Arc;

use super::report::{NodeStatus, RefusalReport};
use crate::proto::{Cause, LockId, LossCause, RefusalReason, Released, messages};

/// Hears of what happens, for a log. Give one to [`ConfigBuilder::log`](super::ConfigBuilder::log).
///
/// It is called on the thread that drives the locks, when events are handed out: in
/// [`Driver::poll_event`](super::Driver::poll_event), inside the calls of a [`Client`](super::Client), and on
/// the thread of an [`Engine`](super::Engine). While it runs, no lock is extended or released, so it must
/// not block. It must not use the client or driver that called it, or wait for the engine. A panic in it
/// goes to whoever made the call, and nobody gets the event that it was called for; the locks are
/// not harmed. An engine catches and counts it ([`Engine::panics`](super::Engine::panics)).
///
/// No note has a token or a password in it, neither in a field nor in a text.
///
/// With the feature `log`, a configuration without a `Log` passes its notes to the crate `log`, under
/// the target `redbolt`: `env_logger`, `tracing-log` and the like receive them.
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
    /// Something happened.
    fn note(&self, note: &Note<'_>);
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the levels of every log")]
pub enum Level {
    /// Every lock makes some of these.
    Debug,
    /// As it should be, and seldom.
    Info,
    /// It may mend itself.
    Warning,
    /// What a lock protected was in danger, or an operator has to do something.
    Error,
}

messages! {
    /// One thing that happened. `Display` gives a line, without a level and without an end.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub enum Note<'a> {
        /// The node's clock is too far from the fencing token that we proposed: its clock or ours is wrong.
        ClockSkew {
            /// Which node, and what is known of it.
            node: &'a NodeStatus,
            /// By how much.
            words: &'a str,
        }: "node {} {}: {words}" with (node.number, node.address),
        /// A lock was extended.
        Extended {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
        }: "lock extended: {name}",
        /// A lock was granted.
        Granted {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
        }: "lock granted: {name}",
        /// A lock was lost before its holder let go.
        Lost {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// How.
            cause: LossCause,
        }: "lock lost: {name}: {cause}",
        /// A node does not vote.
        NodeDown {
            /// Which, and why in words.
            node: &'a NodeStatus,
            /// Why.
            cause: Cause,
        }: "{node}",
        /// A node does not vote until all locks are over that it may have forgotten.
        NodeQuarantined {
            /// Which, and why in words.
            node: &'a NodeStatus,
        }: "{node}",
        /// A node seems to hang. It is not waited for until it answers.
        NodeSuspected {
            /// Which.
            node: &'a NodeStatus,
        }: "{node}",
        /// A node votes, for the first time or again.
        NodeReady {
            /// Which.
            node: &'a NodeStatus,
            /// How many connections to it there were before this one.
            reconnects: u64,
        }: "{node}{}" with (Reconnected(*reconnects)),
        /// An extension found no quorum. The lock is held until its validity ends.
        NotExtended {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// Every node's vote.
            report: &'a RefusalReport,
        }: "lock not extended: {name}: {report}",
        /// A node that is waited for does not tell of changes, so that waiters go by their timers.
        PushUnavailable {
            /// Which.
            node: &'a NodeStatus,
            /// Why.
            cause: Cause,
        }: "node {} {}: waiters are not told: {cause}"
                with (node.number, node.address),
        /// An acquisition was refused.
        Refused {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// Every node's vote.
            report: &'a RefusalReport,
        }: "lock refused: {name}: {report}",
        /// A lock was released.
        Released {
            /// Which.
            lock: LockId,
            /// Its resources, printable and separated by commas.
            name: &'a str,
            /// How far it got.
            confirmed: Released,
        }: "lock released: {name}, {confirmed}",
    }
}

/// How often a node was reconnected, if it was.
struct Reconnected(u64);

impl fmt::Display for Reconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", reconnected ({})", self.0) }
    }
}

impl Note<'_> {
    /// How much it matters.
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

/// The facade of the crate `log`. Every note has the target `redbolt`.
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

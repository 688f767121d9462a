//! What is worth a line in somebody's log.
//!
//! A trait and no dependency: the host writes the line, with whatever it logs with. Notes are made by
//! the API when it hands out events, from what the core tells anyway; without a [`Log`] none is made.
//! Not here: numbers, see `metrics`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::config::Config;
use super::report::{NodeStatus, RefusalReport, explain};
use crate::proto::{
    Cause, Confirmed, Core, Event, LockId, LossCause, NodeId, NodeState, PushState, RefusalReason,
    printable,
};

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
/// let config = Config::builder().node("10.0.0.1")?.log(Arc::new(Stderr)).build()?;
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
    },
    /// A lock was extended.
    Extended {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
    },
    /// A lock was granted.
    Granted {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
    },
    /// A lock was lost before its holder let go.
    Lost {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
        /// How.
        cause: LossCause,
    },
    /// A node does not vote.
    NodeDown {
        /// Which, and why in words.
        node: &'a NodeStatus,
        /// Why.
        cause: Cause,
    },
    /// A node does not vote until all locks are over that it may have forgotten.
    NodeQuarantined {
        /// Which, and why in words.
        node: &'a NodeStatus,
    },
    /// A node seems to hang. It is not waited for until it answers.
    NodeSuspected {
        /// Which.
        node: &'a NodeStatus,
    },
    /// A node votes, for the first time or again.
    NodeReady {
        /// Which.
        node: &'a NodeStatus,
        /// How many connections to it there were before this one.
        reconnects: u64,
    },
    /// An extension found no quorum. The lock is held until its validity ends.
    NotExtended {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
        /// Every node's vote.
        report: &'a RefusalReport,
    },
    /// A node that is waited for does not tell of changes, so that waiters go by their timers.
    PushUnavailable {
        /// Which.
        node: &'a NodeStatus,
        /// Why.
        cause: Cause,
    },
    /// An acquisition was refused.
    Refused {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
        /// Every node's vote.
        report: &'a RefusalReport,
    },
    /// A lock was released.
    Released {
        /// Which.
        lock: LockId,
        /// Its resources, printable and separated by commas.
        name: &'a str,
        /// How far it got.
        confirmed: Confirmed,
    },
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

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockSkew { node, words } => {
                write!(f, "node {} {}: {words}", node.number, node.address)
            }
            Self::Extended { name, .. } => write!(f, "lock extended: {name}"),
            Self::Granted { name, .. } => write!(f, "lock granted: {name}"),
            Self::Lost { name, cause, .. } => write!(f, "lock lost: {name}: {cause}"),
            Self::NodeDown { node, .. }
            | Self::NodeQuarantined { node }
            | Self::NodeSuspected { node }
            | Self::NodeReady { node, reconnects: 0 } => node.fmt(f),
            Self::NodeReady { node, reconnects } => write!(f, "{node}, reconnected ({reconnects})"),
            Self::NotExtended { name, report, .. } => {
                write!(f, "lock not extended: {name}: {report}")
            }
            Self::PushUnavailable { node, cause } => {
                write!(f, "node {} {}: waiters are not told: {cause}", node.number, node.address)
            }
            Self::Refused { name, report, .. } => write!(f, "lock refused: {name}: {report}"),
            Self::Released { name, confirmed, .. } => {
                write!(f, "lock released: {name}, {confirmed}")
            }
        }
    }
}

/// The log that a configuration was given, if any.
#[derive(Clone, Default)]
pub(super) struct Logger(pub(super) Option<Arc<dyn Log>>);

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Logger(..)" } else { "None" })
    }
}

/// From events to notes.
pub(super) struct Notes {
    log: Arc<dyn Log>,
    nodes: Vec<Told>,
    /// The names of the locks that have not ended.
    names: HashMap<LockId, String>,
}

/// What was last told of a node. A node that is down is tried again all the time, which is no news.
#[derive(Clone, Default)]
struct Told {
    state: Option<NodeState>,
    reconnects: u64,
    push: Option<Cause>,
    skews: u64,
}

impl Notes {
    /// `None` if nobody wants to hear any.
    pub(super) fn new(config: &Config) -> Option<Box<Self>> {
        let log = config.log().0.clone()?;
        let nodes = vec![Told::default(); config.node_count()];
        Some(Box::new(Self { log, nodes, names: HashMap::new() }))
    }

    /// Notes the name of a lock that begins.
    pub(super) fn name<'r>(&mut self, lock: LockId, resources: impl Iterator<Item = &'r [u8]>) {
        let shown = resources.map(|resource| printable(&String::from_utf8_lossy(resource)));
        self.names.insert(lock, shown.collect::<Vec<_>>().join(", "));
    }

    /// Forgets a lock that leaves this process.
    pub(super) fn forget(&mut self, lock: LockId) {
        self.names.remove(&lock);
    }

    /// Tells of an event that is about to be handed out. What is known of the nodes comes before it: a
    /// refusal is their doing, and whoever hears of it may not ask for another event.
    pub(super) fn tell(&mut self, config: &Config, core: &Core, event: Option<Event>) {
        for node in config.node_ids() {
            self.tell_of_clock(config, core, node);
            self.tell_of_node(config, core, node);
            self.tell_of_push(config, core, node);
        }
        if let Some(event) = event {
            self.tell_of_lock(config, core, event);
        }
    }

    fn tell_of_lock(&mut self, config: &Config, core: &Core, event: Event) {
        let named = |lock: &LockId| self.names.get(lock).map_or("", String::as_str);
        match event {
            Event::NotExtended(lock, refusal) | Event::AutoExtendFailed(lock, refusal) => {
                let report = &RefusalReport::new(config, core, refusal);
                self.log.note(&Note::NotExtended { lock, name: named(&lock), report });
            }
            Event::Refused(lock, refusal) => {
                // Before the note: the log may panic.
                let name = self.names.remove(&lock).unwrap_or_default();
                let report = &RefusalReport::new(config, core, refusal);
                self.log.note(&Note::Refused { lock, name: &name, report });
            }
            Event::Extended(lock) | Event::AutoExtended(lock) => {
                self.log.note(&Note::Extended { lock, name: named(&lock) });
            }
            Event::Granted(lock) => self.log.note(&Note::Granted { lock, name: named(&lock) }),
            Event::Lost(lock, cause) => {
                let name = self.names.remove(&lock).unwrap_or_default();
                self.log.note(&Note::Lost { lock, name: &name, cause });
            }
            Event::Released(lock, confirmed) => {
                let name = self.names.remove(&lock).unwrap_or_default();
                self.log.note(&Note::Released { lock, name: &name, confirmed });
            }
            Event::Downgraded(_)
            | Event::DowngradeDelayed(..)
            | Event::Node(..)
            | Event::NotUpgraded(..)
            | Event::Observed(_)
            | Event::Shortened(_)
            | Event::Upgraded(_)
            | Event::Viewed(_) => {}
        }
    }

    fn tell_of_node(&mut self, config: &Config, core: &Core, id: NodeId) {
        let (state, told) = (core.node_state(id), &mut self.nodes[id.index()]);
        let reconnects = core.metrics().node(id).reconnects();
        let is_news = state == NodeState::Ready && told.reconnects != reconnects;
        if state == NodeState::Connecting || told.state == Some(state) && !is_news {
            return;
        }
        (told.state, told.reconnects) = (Some(state), reconnects);
        let node = &NodeStatus::new(config, core, id);
        self.log.note(&match state {
            NodeState::Down(Cause::Quarantined) => Note::NodeQuarantined { node },
            NodeState::Down(cause) => Note::NodeDown { node, cause },
            NodeState::Suspected => Note::NodeSuspected { node },
            NodeState::Connecting | NodeState::Ready => Note::NodeReady { node, reconnects },
        });
    }

    /// An attempt to get its word again is no news, and neither is a link that nobody waits for.
    fn tell_of_push(&mut self, config: &Config, core: &Core, id: NodeId) {
        let told = &mut self.nodes[id.index()].push;
        match core.push_state(id) {
            PushState::Active => *told = None,
            PushState::Unavailable(cause) if *told != Some(cause) => {
                *told = Some(cause);
                let node = &NodeStatus::new(config, core, id);
                self.log.note(&Note::PushUnavailable { node, cause });
            }
            _ => {}
        }
    }

    /// An ask that failed by our clock alone is repeated, and makes no event.
    fn tell_of_clock(&mut self, config: &Config, core: &Core, id: NodeId) {
        let skews = core.metrics().node(id).fails.of(Cause::ClockSkew);
        if std::mem::replace(&mut self.nodes[id.index()].skews, skews) != skews {
            let detail = core.detail(id, Cause::ClockSkew);
            let words = &explain(config, Cause::ClockSkew, detail.as_deref());
            let node = &NodeStatus::new(config, core, id);
            self.log.note(&Note::ClockSkew { node, words });
        }
    }
}

//! The configuration of the core: parsed once, never validated later.
//!
//! [`Settings`] is what a caller may say, [`Config`] what has been found possible. Not here:
//! addresses. The core knows nodes by their place in the list.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::fence;
use super::key_state::{MAX_LABEL, is_label};
use super::lease::Drift;
use super::names::{MAX_NODES, NodeId};
use super::profile::Profile;
use super::restart_guard::{RestartGuard, RestartTrust, Setup};
use crate::resp::{BufMut, command, messages};

/// All that can be chosen, with its defaults.
///
/// ```
/// use redbolt::proto::{NodeSettings, Settings};
///
/// let nodes = vec![NodeSettings::default().database(2); 3];
/// let settings = Settings::new(nodes).accept_evicting(true);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The nodes, 1 to 32.
    pub nodes: Vec<NodeSettings>,
    /// How many grants make a lock: more than half of the nodes. `None`: N/2 + 1.
    pub quorum: Option<usize>,
    /// The longest TTL that is accepted, at most one day. All clients of the same nodes have to agree
    /// about it: the restart guard sees to that. Also how long a node that may have forgotten locks is
    /// quarantined. Default 30 s.
    pub max_ttl: Duration,
    /// How long one lock may be held by extending it. `None`: without end, which the [Redlock
    /// page](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) warns of,
    /// since a stuck holder then blocks everybody. Default 24 h.
    pub max_hold: Option<Duration>,
    /// The share of a TTL that is not trusted to clocks, in parts per million, below 500 000.
    /// Default 10 000 (1 %); a clock that is being slewed can be off by more.
    pub drift_ppm: u32,
    /// How long a node may take to answer before it counts as no voter. Its connection stays open
    /// and its late answer is understood. It can be far longer than the way to any node, for it is waited
    /// out only where too few of the others vote: no verdict waits for a minority that is slow or hangs.
    /// An extension waits for a sixth of its TTL at the most, unless a quorum of the nodes is too far away for
    /// that. Default 1 s.
    pub response_timeout: Duration,
    /// How long opening a connection and its handshake may take. Default 5 s.
    pub connect_timeout: Duration,
    /// Silence after which a connection with answers due is given up. It should be longer than the other
    /// two, or a node that is slow is given up instead of waited for. Default 10 s.
    pub dead_peer_timeout: Duration,
    /// The pauses between attempts of a waiting acquisition grow from the first to the second.
    /// Default 5 ms to 200 ms.
    pub retry_backoff: (Duration, Duration),
    /// The pauses between connection attempts grow from the first to the second. A request that has
    /// a use for the link may open it earlier, first after 25 ms and at most every 200 ms later.
    /// Default 20 ms to 1 s.
    pub reconnect_backoff: (Duration, Duration),
    /// Appended to each token after a colon, up to 128 printable bytes, so that an operator sees
    /// who holds a lock. Default empty.
    pub label: Vec<u8>,
    /// The name of the connections in `CLIENT LIST`, printable and without spaces. Default
    /// `redbolt`.
    pub client_name: Vec<u8>,
    /// Whether a node whose `maxmemory` is set with an evicting policy may vote. It can drop a lock
    /// that is held. Default no.
    pub accept_evicting: bool,
    /// Whether a node has to prove that it remembers every lock before it votes. Default on.
    pub restart_guard: RestartGuard,
    /// The key of the restart guard on each node, the same for all clients. Default `redbolt:guard`.
    pub restart_guard_key: Vec<u8>,
    /// What happens to a node that has no restart guard for us. Default: it is enrolled, and quarantined.
    pub setup: Setup,
    /// How long a fencing counter lives after the last grant, one day to one year. Default 7 days.
    pub fencing_counter_ttl: Duration,
    /// How those who wait for one resource get it one after the other. Default: they wait in the queue.
    pub wake: WakeStrategy,
    /// The formats of other libraries that inspections and forced unlocks know, the likeliest first. Names of keys that they
    /// keep with their locks are refused. Default none.
    pub formats: Vec<Profile>,
}

/// How those who wait for one resource get it one after the other.
///
/// A node tells of changes by invalidation messages over a second connection, which is opened when somebody waits. A message
/// is only a hint: the remaining TTL of the keys in the way decides when a pause ends at the latest.
/// [The manual](crate::manual::waiting#waiting-in-the-queue) compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeStrategy {
    /// They wait in the queue on the nodes, in one order on a quorum of them, and a change wakes who is next. Whoever
    /// began to wait behind another one's place does not get the lock before it. Locks on several resources, locks of
    /// another library's [profile](super::Profile), and all locks where a node's ACL forbids the queue wait as with
    /// [`Lead`](Self::Lead).
    #[default]
    Queue,
    /// Each asks the node that reported a change, and the others when that one has granted: of many waiters one gets
    /// through to them. All get it in turn, in no order. It costs the nodes less where two take turns, and a round trip more.
    Lead,
    /// No node reports changes, and no second connection is opened: pauses alone. One process can be left out for many
    /// seconds.
    Timer,
}

impl Settings {
    /// The defaults for these nodes.
    #[must_use]
    pub fn new(nodes: Vec<NodeSettings>) -> Self {
        Self { nodes, ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            quorum: None,
            max_ttl: Duration::from_secs(30),
            max_hold: Some(Duration::from_secs(24 * 60 * 60)),
            drift_ppm: 10_000,
            response_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            dead_peer_timeout: Duration::from_secs(10),
            retry_backoff: (Duration::from_millis(5), Duration::from_millis(200)),
            reconnect_backoff: (Duration::from_millis(20), Duration::from_secs(1)),
            label: Vec::new(),
            client_name: b"redbolt".to_vec(),
            accept_evicting: false,
            restart_guard: RestartGuard::On,
            restart_guard_key: b"redbolt:guard".to_vec(),
            setup: Setup::Enrol,
            fencing_counter_ttl: 7 * DAY,
            wake: WakeStrategy::default(),
            formats: Vec::new(),
        }
    }
}

/// Lets fields be set one behind the other.
macro_rules! setters {
    ($of:ident { $($field:ident: $type:ty,)* }) => {
        impl $of {$(
            #[doc = concat!(
                "Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ")."
            )]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}

setters! {
    Settings {
        quorum: Option<usize>,
        max_ttl: Duration,
        max_hold: Option<Duration>,
        drift_ppm: u32,
        response_timeout: Duration,
        connect_timeout: Duration,
        dead_peer_timeout: Duration,
        retry_backoff: (Duration, Duration),
        reconnect_backoff: (Duration, Duration),
        label: Vec<u8>,
        client_name: Vec<u8>,
        accept_evicting: bool,
        restart_guard: RestartGuard,
        restart_guard_key: Vec<u8>,
        setup: Setup,
        fencing_counter_ttl: Duration,
        wake: WakeStrategy,
        formats: Vec<Profile>,
    }
}

setters! {
    NodeSettings {
        credentials: Option<Credentials>,
        database: u32,
        restart_trust: RestartTrust,
        has_sentinels: bool,
    }
}

/// What is said to a node before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSettings {
    /// Sent with `AUTH`.
    pub credentials: Option<Credentials>,
    /// Sent with `SELECT` unless zero.
    pub database: u32,
    /// How much of the node's restart guard is believed.
    pub restart_trust: RestartTrust,
    /// Whether sentinels say at which server it is, so that it may be another one at the next connection: to find a replica
    /// there is no mistake of the configuration, which would end a wait, but a failover.
    pub has_sentinels: bool,
}

impl NodeSettings {
    /// Whether a command sent before the handshake is confirmed could run as the wrong user or in
    /// the wrong database.
    pub(super) fn must_be_proven(&self) -> bool {
        self.credentials.is_some() || self.database != 0
    }
}

/// A password, or an ACL user with one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The ACL user; `None` is the default user.
    pub user: Option<Vec<u8>>,
    /// Its password.
    pub password: Secret,
}

impl Credentials {
    /// The password of this user; `None` is the default user.
    #[must_use]
    pub fn new(user: Option<Vec<u8>>, password: Secret) -> Self {
        Self { user, password }
    }

    /// Writes the `AUTH` that they are for.
    pub(crate) fn encode_auth(&self, out: &mut impl BufMut) {
        let auth = command(out, 2 + usize::from(self.user.is_some())).arg(b"AUTH");
        let auth = match &self.user {
            Some(user) => auth.arg(user),
            None => auth,
        };
        let _ = auth.arg(self.password.expose());
    }
}

/// Bytes that no log, error or `Debug` may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) settings: Settings,
    pub(super) quorum: u8,
    pub(super) drift: Drift,
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let nodes = settings.nodes.len();
        match nodes {
            0 => return Err(SettingsError::NoNodes),
            1..=MAX_NODES => {}
            _ => return Err(SettingsError::TooManyNodes { nodes }),
        }
        let quorum = settings.quorum.unwrap_or(nodes / 2 + 1);
        if quorum <= nodes / 2 || quorum > nodes {
            return Err(SettingsError::Quorum { quorum, nodes });
        }
        if settings.drift_ppm >= 500_000 {
            return Err(SettingsError::Drift { ppm: settings.drift_ppm });
        }
        if !is_label(&settings.label) {
            return Err(SettingsError::Text { what: "label", max: MAX_LABEL });
        }
        if !is_label(&settings.client_name) || settings.client_name.contains(&b' ') {
            return Err(SettingsError::Text { what: "client name", max: MAX_LABEL });
        }
        let drift = Drift { parts_per_million: settings.drift_ppm };
        check_spans(&settings, drift)?;
        check_restart_guard(&settings)?;
        // At most MAX_NODES.
        Ok(Self { settings, quorum: quorum as u8, drift })
    }

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.settings.nodes.len()
    }

    /// How many grants make a lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum.into()
    }

    /// What was asked for.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives other orders for nodes that have no restart guard for us.
    pub(crate) fn set_setup(&mut self, setup: Setup) {
        self.settings.setup = setup;
    }

    /// The restart guard's key; `None` where nodes are not guarded.
    pub(super) fn restart_guard_key(&self) -> Option<&[u8]> {
        (self.settings.restart_guard == RestartGuard::On)
            .then_some(&self.settings.restart_guard_key[..])
    }

    /// Whether locks can be fenced with it.
    pub(super) fn can_fence(&self) -> bool {
        self.settings.restart_guard == RestartGuard::On
            && self.settings.max_ttl >= fence::MIN_MAX_TTL
    }

    pub(super) fn node(&self, node: NodeId) -> &NodeSettings {
        &self.settings.nodes[node.index()]
    }

    /// All nodes, in order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.settings.nodes.len() as u8).map(NodeId)
    }
}

fn check_spans(settings: &Settings, drift: Drift) -> Result<(), SettingsError> {
    let (least, most) = (Duration::from_millis(1), LONGEST_SPAN);
    let spans = [
        ("max_ttl", settings.max_ttl),
        ("response_timeout", settings.response_timeout),
        ("connect_timeout", settings.connect_timeout),
        ("dead_peer_timeout", settings.dead_peer_timeout),
        ("the first pause", settings.retry_backoff.0),
        ("the longest pause", settings.retry_backoff.1),
        ("the first backoff", settings.reconnect_backoff.0),
        ("the longest backoff", settings.reconnect_backoff.1),
    ];
    for (what, span) in spans {
        if span < least || span > most {
            return Err(SettingsError::Span { what, span });
        }
    }
    if settings.max_ttl <= drift.of(settings.max_ttl) {
        return Err(SettingsError::Span { what: "max_ttl (less drift)", span: settings.max_ttl });
    }
    Ok(())
}

fn check_restart_guard(settings: &Settings) -> Result<(), SettingsError> {
    let key = &settings.restart_guard_key;
    if key.is_empty() || key.len() > MAX_RESTART_GUARD_KEY {
        return Err(SettingsError::RestartGuardKey { len: key.len() });
    }
    if !(DAY..=365 * DAY).contains(&settings.fencing_counter_ttl) {
        return Err(SettingsError::FencingCounterTtl { span: settings.fencing_counter_ttl });
    }
    Ok(())
}

/// The most bytes in the name of the restart guard's key.
const MAX_RESTART_GUARD_KEY: usize = 256;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// No lease, deadline or pause of a lock is meant to be longer.
const LONGEST_SPAN: Duration = DAY;

messages! {
    /// A setting out of its range.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum SettingsError {
        /// The life of a fencing counter is below a day or over a year.
        FencingCounterTtl {
            /// What was given.
            span: Duration,
        }: "a fencing counter's life of {span:?} is out of range (1 to 365 days)",
        /// The drift rate is not below 50 %.
        Drift {
            /// The rate that was given.
            ppm: u32,
        }: "a drift of {ppm} parts per million is not below 500000",
        /// The name of the restart guard's key is empty, or has more than 256 bytes.
        RestartGuardKey {
            /// Its length.
            len: usize,
        }: "the restart guard's key has {len} bytes: it must be 1 to {MAX_RESTART_GUARD_KEY}",
        /// There is no node.
        NoNodes: "no nodes given",
        /// The quorum is not more than half of the nodes, or more than all of them.
        Quorum {
            /// The quorum that was given.
            quorum: usize,
            /// How many nodes there are.
            nodes: usize,
        }: "a quorum of {quorum} does not fit {nodes} nodes: it must be {} to {nodes}"
            with (nodes / 2 + 1),
        /// A span of time is below 1 ms or over a day.
        Span {
            /// Which.
            what: &'static str,
            /// What was given.
            span: Duration,
        }: "{what} of {span:?} is out of range (1 ms to one day)",
        /// A text has bytes that are not printable, or too many.
        Text {
            /// Which.
            what: &'static str,
            /// The most bytes that it can have.
            max: usize,
        }: "the {what} must be printable ASCII, at most {max} bytes",
        /// There are more nodes than 32.
        TooManyNodes {
            /// How many.
            nodes: usize,
        }: "{nodes} nodes given, the limit is {MAX_NODES}",
    }
}

impl Error for SettingsError {}

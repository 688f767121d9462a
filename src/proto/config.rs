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
        if let Some(fault) = settings.faults().into_iter().next() {
            return Err(fault);
        }
        let nodes = settings.nodes.len();
        let drift = Drift { parts_per_million: settings.drift_ppm };
        // At most MAX_NODES.
        let quorum = settings.quorum.unwrap_or(nodes / 2 + 1) as u8;
        Ok(Self { settings, quorum, drift })
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

impl Settings {
    /// All that is out of its range.
    #[must_use]
    pub fn faults(&self) -> Vec<SettingsError> {
        let (nodes, key, ppm) = (self.nodes.len(), &self.restart_guard_key, self.drift_ppm);
        let quorum = self.quorum.unwrap_or(nodes / 2 + 1);
        let has_quorum = nodes == 0 || (nodes / 2 + 1..=nodes).contains(&quorum);
        let is_name = is_label(&self.client_name) && !self.client_name.contains(&b' ');
        let (max, max_ttl) = (MAX_LABEL, self.max_ttl);
        let lost = Drift { parts_per_million: ppm }.of(max_ttl);
        let (len, span) = (key.len(), self.fencing_counter_ttl);
        let has_key = (1..=MAX_RESTART_GUARD_KEY).contains(&len);
        let has_counter_ttl = (DAY..=365 * DAY).contains(&span);
        let is_longer = ppm >= 500_000 || max_ttl > lost;
        let texts = [
            (nodes > 0, SettingsError::NoNodes),
            (nodes <= MAX_NODES, SettingsError::TooManyNodes { nodes }),
            (has_quorum, SettingsError::Quorum { quorum, nodes }),
            (ppm < 500_000, SettingsError::Drift { ppm }),
            (is_label(&self.label), SettingsError::Text { what: "label", max }),
            (is_name, SettingsError::Text { what: "client name", max }),
        ];
        let spans = self.spans().map(|(what, span)| {
            let is_in_range = (Duration::from_millis(1)..=LONGEST_SPAN).contains(&span);
            (is_in_range, SettingsError::Span { what, span })
        });
        let rest = [
            (is_longer, SettingsError::Span { what: "max_ttl (less drift)", span: max_ttl }),
            (has_key, SettingsError::RestartGuardKey { len }),
            (has_counter_ttl, SettingsError::FencingCounterTtl { span }),
        ];
        let all = texts.into_iter().chain(spans).chain(rest);
        all.filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }

    fn spans(&self) -> [(&'static str, Duration); 8] {
        [
            ("max_ttl", self.max_ttl),
            ("response_timeout", self.response_timeout),
            ("connect_timeout", self.connect_timeout),
            ("dead_peer_timeout", self.dead_peer_timeout),
            ("the first pause", self.retry_backoff.0),
            ("the longest pause", self.retry_backoff.1),
            ("the first backoff", self.reconnect_backoff.0),
            ("the longest backoff", self.reconnect_backoff.1),
        ]
    }
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

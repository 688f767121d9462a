//! The configuration of the core.
//!
//! [`Settings`] are the caller's, and [`Config`] is their validated form. Invariant: a [`Config`]
//! is valid, so nothing is validated later. Nodes have an index here, and no address.

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

/// All settings, with their defaults.
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
    /// The number of grants that make a lock: more than half of the nodes. `None` is N/2 + 1.
    pub quorum: Option<usize>,
    /// The longest TTL that is accepted, 1 ms to one day. All clients of the same nodes must have
    /// the same value, which the restart guard enforces. A node that may have lost locks is
    /// quarantined for this time. Default 30 s.
    pub max_ttl: Duration,
    /// How long a lock may be held by extending it. `None` is without limit: a stuck holder then
    /// blocks all other clients, which the [Redlock
    /// page](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) warns of.
    /// Default 24 h.
    pub max_hold: Option<Duration>,
    /// The part of a TTL that is subtracted for clock drift, in parts per million, below 500,000.
    /// Default 10,000 (1 %). A clock that is being slewed can be off by more.
    pub drift_ppm: u32,
    /// How long a node may take to answer before it counts as failed. Its connection stays open,
    /// and a late answer is still processed. The timeout can be far longer than the round trip to
    /// any node, because it is waited out only if too few other nodes vote: no verdict waits for a
    /// minority that is slow or hangs. An extension waits for at most a sixth of its TTL, unless a
    /// quorum of the nodes is too far away for that. 1 ms to one day, default 1 s.
    pub response_timeout: Duration,
    /// How long opening a connection, with its handshake, may take. 1 ms to one day, default 5 s.
    pub connect_timeout: Duration,
    /// How long a server may be silent while answers are due before its connection is closed. It
    /// should be longer than the other two timeouts, because otherwise a slow node loses its
    /// connection. 1 ms to one day, default 10 s.
    pub dead_peer_timeout: Duration,
    /// The shortest and the longest pause between the attempts of a waiting acquisition. Pauses
    /// grow from one to the other. Default 5 ms to 200 ms.
    pub retry_backoff: (Duration, Duration),
    /// The shortest and the longest pause between attempts to connect. Pauses grow from one to the
    /// other. A request that could use the link may open it earlier: first after 25 ms, then at
    /// most every 200 ms. Default 20 ms to 1 s.
    pub reconnect_backoff: (Duration, Duration),
    /// The label that is appended to each token after a colon, so that an operator sees the holder
    /// of a lock. Up to 128 bytes of printable ASCII. Default empty.
    pub label: Vec<u8>,
    /// The name of the connections in `CLIENT LIST`: up to 128 bytes of printable ASCII without
    /// spaces. Default `redbolt`.
    pub client_name: Vec<u8>,
    /// Whether a node may vote if its `maxmemory` is set with an evicting policy. Such a node can
    /// evict a lock that is held. Default off.
    pub accept_evicting: bool,
    /// Whether a node must prove that it has not lost locks before it votes. Default on.
    pub restart_guard: RestartGuard,
    /// The key of the restart guard on each node, 1 to 256 bytes, the same for all clients. Default
    /// `redbolt:guard`.
    pub restart_guard_key: Vec<u8>,
    /// How to treat a node without the restart guard that this client expects. Default: enrol and
    /// quarantine it.
    pub setup: Setup,
    /// How long a fencing counter is kept after the last grant, 1 to 365 days. Default 7 days.
    pub fencing_counter_ttl: Duration,
    /// How clients that wait for one resource take turns. Default: in the queue on the nodes.
    pub wake: WakeStrategy,
    /// The formats of other libraries that inspections and force-unlocks recognise, the most likely
    /// first. A resource with the name of a key that they keep with their locks is rejected.
    /// Default none.
    pub formats: Vec<Profile>,
}

/// How clients that wait for one resource take turns.
///
/// A node reports changes by invalidation messages over a second connection, which is opened when a
/// lock waits. A message is only a hint: without one, a pause ends when the keys in the way
/// expire. [The manual](crate::manual::waiting#waiting-in-the-queue) compares the strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeStrategy {
    /// Waiters form a queue on the nodes, in the same order on a quorum, and a change wakes the
    /// first of them. Once a quorum has recorded a waiter, no later waiter overtakes it. Locks on
    /// several resources, locks of another library's [profile](super::Profile), and all locks if a
    /// node's ACL forbids the queue wait as with [`Lead`](Self::Lead).
    #[default]
    Queue,
    /// Each waiter asks the node that reported a change, and the others once that node has granted,
    /// so that one of many waiters reaches them. Waiters get the lock in no fixed order. If two
    /// clients take turns it costs the nodes less than the queue, and a round trip more.
    Lead,
    /// No node reports changes, and no second connection is opened. Waiters only pause between
    /// attempts, and one process can be left without the lock for many seconds.
    Timer,
}

impl Settings {
    /// Returns the defaults for these nodes.
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

/// Implements methods that set one field each and can be chained.
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

/// The settings of one node's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSettings {
    /// The credentials for `AUTH`.
    pub credentials: Option<Credentials>,
    /// The database for `SELECT`, which is not sent for 0.
    pub database: u32,
    /// How far to trust the node's data after a restart.
    pub restart_trust: RestartTrust,
    /// Whether sentinels determine the node's server, so that the next connection may lead to
    /// another one. A replica then is the sign of a failover, and not a mistake in the
    /// configuration, which would end a wait.
    pub has_sentinels: bool,
}

impl NodeSettings {
    /// Returns whether a command that is sent before the handshake is confirmed could run as the
    /// wrong user or in the wrong database.
    pub(super) fn must_be_proven(&self) -> bool {
        // A failed AUTH would run the command as the default user, a failed SELECT in database 0.
        self.credentials.is_some() || self.database != 0
    }
}

/// A password, optionally of an ACL user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// The ACL user; `None` is the default user.
    pub user: Option<Vec<u8>>,
    /// The password.
    pub password: Secret,
}

impl Credentials {
    /// Returns the credentials of a user; `None` is the default user.
    #[must_use]
    pub fn new(user: Option<Vec<u8>>, password: Secret) -> Self {
        Self { user, password }
    }

    pub(crate) fn encode_auth(&self, out: &mut impl BufMut) {
        let auth = command(out, 2 + usize::from(self.user.is_some())).arg(b"AUTH");
        let auth = match &self.user {
            Some(user) => auth.arg(user),
            None => auth,
        };
        let _ = auth.arg(self.password.expose());
    }
}

/// Bytes that appear in no log, error or `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Returns a secret of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns whether the secret is empty.
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
        // Debug output ends up in logs.
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
    /// Validates the settings.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        if let Some(fault) = settings.faults().into_iter().next() {
            return Err(fault);
        }
        let nodes = settings.nodes.len();
        let drift = Drift { parts_per_million: settings.drift_ppm };
        // It fits into a byte: a valid quorum is at most MAX_NODES.
        let quorum = settings.quorum.unwrap_or(nodes / 2 + 1) as u8;
        Ok(Self { settings, quorum, drift })
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.settings.nodes.len()
    }

    /// Returns the number of grants that make a lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum.into()
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn set_setup(&mut self, setup: Setup) {
        self.settings.setup = setup;
    }

    /// Returns the restart guard's key; `None` if the restart guard is off.
    pub(super) fn restart_guard_key(&self) -> Option<&[u8]> {
        (self.settings.restart_guard == RestartGuard::On)
            .then_some(&self.settings.restart_guard_key[..])
    }

    pub(super) fn can_fence(&self) -> bool {
        // A node votes again only when the clocks have overtaken the counters that it lost.
        self.settings.restart_guard == RestartGuard::On
            && self.settings.max_ttl >= fence::MIN_MAX_TTL
    }

    pub(super) fn node(&self, node: NodeId) -> &NodeSettings {
        &self.settings.nodes[node.index()]
    }

    /// Returns all nodes, in order.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.settings.nodes.len() as u8).map(NodeId)
    }
}

impl Settings {
    /// Returns every setting that is out of its range.
    #[must_use]
    pub fn faults(&self) -> Vec<SettingsError> {
        let (nodes, key, ppm) = (self.nodes.len(), &self.restart_guard_key, self.drift_ppm);
        let quorum = self.quorum.unwrap_or(nodes / 2 + 1);
        // Two quorums must have a node in common, or two clients could hold one lock.
        let has_quorum = nodes == 0 || (nodes / 2 + 1..=nodes).contains(&quorum);
        // CLIENT SETNAME rejects spaces and control characters.
        let is_name = is_label(&self.client_name) && !self.client_name.contains(&b' ');
        let (max, max_ttl) = (MAX_LABEL, self.max_ttl);
        let lost = Drift { parts_per_million: ppm }.of(max_ttl);
        let (len, span) = (key.len(), self.fencing_counter_ttl);
        let has_key = (1..=MAX_RESTART_GUARD_KEY).contains(&len);
        let has_counter_ttl = (DAY..=365 * DAY).contains(&span);
        // A maximum that drift uses up would reject every TTL.
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

/// The maximum length of the restart guard's key in bytes.
const MAX_RESTART_GUARD_KEY: usize = 256;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const LONGEST_SPAN: Duration = DAY;

messages! {
    /// A setting that is out of its range.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum SettingsError {
        /// The lifetime of fencing counters is below 1 day or above 365 days.
        FencingCounterTtl {
            /// The given lifetime.
            span: Duration,
        }: "a fencing counter's life of {span:?} is out of range (1 to 365 days)",
        /// The drift rate is 500,000 parts per million (50 %) or more.
        Drift {
            /// The given rate, in parts per million.
            ppm: u32,
        }: "a drift of {ppm} parts per million is not below 500000",
        /// The name of the restart guard's key is empty or longer than 256 bytes.
        RestartGuardKey {
            /// The length of the name in bytes.
            len: usize,
        }: "the restart guard's key has {len} bytes: it must be 1 to {MAX_RESTART_GUARD_KEY}",
        /// No node was given.
        NoNodes: "no nodes given",
        /// The quorum is not more than half of the nodes, or more than all of them.
        Quorum {
            /// The given quorum.
            quorum: usize,
            /// The number of nodes.
            nodes: usize,
        }: "a quorum of {quorum} does not fit {nodes} nodes: it must be {} to {nodes}"
            with (nodes / 2 + 1),
        /// A span of time is below 1 ms or above one day.
        Span {
            /// The name of the setting.
            what: &'static str,
            /// The given span.
            span: Duration,
        }: "{what} of {span:?} is out of range (1 ms to one day)",
        /// A text is too long, or has bytes that are not printable ASCII.
        Text {
            /// The name of the setting.
            what: &'static str,
            /// The maximum length in bytes.
            max: usize,
        }: "the {what} must be printable ASCII, at most {max} bytes",
        /// More than 32 nodes were given.
        TooManyNodes {
            /// The number of nodes.
            nodes: usize,
        }: "{nodes} nodes given, the limit is {MAX_NODES}",
    }
}

impl Error for SettingsError {}

//! The configuration of an API: the core's, and the addresses.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::busy;
use super::label;
use super::log::{Log, Logger};
use crate::net::{self, Address, AddressError, Clock, HostResolver, NetAccess};
#[cfg(feature = "tls")]
use crate::net::{Connector, SentinelTls, TlsError, TlsSettings, TlsStream};
use crate::proto::{
    self, ClockReading, Credentials, MAX_LOCKS, NodeId, Profile, RestartGuard, RestartTrust,
    Secret, Settings, SettingsError, Setup, WakeStrategy, builder_methods, messages, sources,
};

/// Which nodes, and how. Cheap to clone.
///
/// ```
/// use std::time::Duration;
///
/// let config = redbolt::Config::builder()
///     .node("redis://10.0.0.1")
///     .node("valkey://:secret@10.0.0.2:6380/1")
///     .node("unix:///run/redis.sock")
///     .response_timeout(Duration::from_millis(20))
///     .build()?;
/// assert_eq!(config.quorum(), 2);
/// # Ok::<(), redbolt::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    core: Arc<proto::Config>,
    addresses: Arc<[Address]>,
    log: Logger,
    busy_poll: Duration,
    in_flight: usize,
    net: NetAccess,
}

impl Config {
    /// Begins a configuration with the defaults of [`Settings`].
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.core.node_count()
    }

    /// How many grants make a lock.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.core.quorum()
    }

    /// Everything else that was chosen.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }

    /// Where the nodes listen, in the order in which they were given.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// For how long reads are tried before a sleep; zero if they are not. See
    /// [`ConfigBuilder::busy_poll`].
    #[must_use]
    #[inline]
    pub fn busy_poll(&self) -> Duration {
        self.busy_poll
    }

    /// How many calls an engine takes at one time: see [`ConfigBuilder::in_flight`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Where the node at `address` is now, which is one of [`addresses`](Self::addresses): the same, or the place of the master that
    /// its [sentinels](crate::manual::sentinels) name. They are asked, which blocks for a time that the timeouts bound. For a tool that asks a node something else; locks ask by themselves.
    ///
    /// # Errors
    ///
    /// Not more than half of the sentinels have named the same master.
    pub fn locate(&self, address: &Address) -> io::Result<Address> {
        match address {
            Address::Sentinels(known) => {
                net::locate(known, &self.net.sentinels, &self.net.hosts, self.settings())
            }
            other => Ok(other.clone()),
        }
    }

    /// Speaks TLS over a stream to the node at `address`, which is one of [`addresses`](Self::addresses), or where one of them is
    /// [located](Self::locate), as the connections of locks do: for a tool that asks it something else. A stream that blocks should have a limit of time.
    ///
    /// # Errors
    ///
    /// No address asks for TLS, a file cannot be read, or the handshake fails.
    #[cfg(feature = "tls")]
    pub fn over_tls<S: io::Read + io::Write>(
        &self,
        address: &Address,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let tls = self.net.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        TlsStream::new(tls, address, stream)
    }

    /// The same, with other orders for nodes that have no restart guard for us.
    pub(super) fn with_setup(&self, setup: Setup) -> Self {
        let mut core = proto::Config::clone(&self.core);
        core.set_setup(setup);
        Self { core: Arc::new(core), ..self.clone() }
    }

    pub(super) fn core(&self) -> Arc<proto::Config> {
        Arc::clone(&self.core)
    }

    /// What everything that is made of it goes by.
    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.net.clock
    }

    pub(super) fn net(&self) -> &NetAccess {
        &self.net
    }

    pub(super) fn log(&self) -> &Logger {
        &self.log
    }

    pub(super) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.core.node_ids()
    }

    /// A node as people know it: its number from one, and its address.
    pub(super) fn address(&self, node: NodeId) -> &Address {
        &self.addresses[node.index()]
    }
}

/// Gathers a [`Config`]. Each method says what it changes; the defaults are those of
/// [`Settings`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build"]
pub struct ConfigBuilder {
    settings: Settings,
    addresses: Vec<Address>,
    log: Logger,
    busy_poll: Duration,
    in_flight: Option<usize>,
    net: NetAccess,
    /// Of the addresses.
    faults: Vec<ConfigFault>,
    /// Nodes whose address has a user without a password, and what is wrong if there is none.
    users_alone: Vec<(usize, AddressError)>,
    password: Option<Password>,
    sentinel_user: Option<Vec<u8>>,
    sentinel_password: Option<Password>,
    #[cfg(feature = "tls")]
    tls: TlsSettings,
    #[cfg(feature = "tls")]
    sentinel_tls: SentinelTls,
}

/// Where a password is.
#[derive(Clone, Debug)]
enum Password {
    Known(Secret),
    In(PathBuf),
}

impl ConfigBuilder {
    /// Adds a node: `host`, `host:port`, `redis://[user[:password]@]host[:port][/db]`,
    /// `valkey://…`, the same over [TLS](crate::manual::tls) with `rediss://…` or `valkeys://…`, or
    /// `unix:///path[?db=n]`, or `redis+sentinel://[user:password@]host[:port]+host…/master[/db]`, over TLS with
    /// `rediss+sentinel://…`, for the master that these [sentinels](crate::manual::sentinels) name. Nothing is looked up or
    /// connected yet, and an address that cannot be read is an error of [`build`](Self::build). A user without a password needs
    /// [`password_file`](Self::password_file) or [`password`](Self::password).
    pub fn node(mut self, address: &str) -> Self {
        let parsed = Address::parse_in_part(address);
        let Ok((address, settings, missing)) =
            parsed.map_err(|error| self.faults.push(error.into()))
        else {
            return self;
        };
        self.users_alone.extend(missing.map(|error| (self.addresses.len(), error)));
        let has_sentinels = matches!(address, Address::Sentinels(_));
        self.addresses.push(address);
        self.settings.nodes.push(settings.has_sentinels(has_sentinels));
        self
    }

    /// Adds all of these nodes, in this order; see [`node`](Self::node).
    ///
    /// ```
    /// let config = redbolt::Config::builder().nodes(["10.0.0.1", "10.0.0.2", "10.0.0.3"]).build()?;
    /// assert_eq!(config.node_count(), 3);
    /// # Ok::<(), redbolt::ConfigError>(())
    /// ```
    pub fn nodes<A: AsRef<str>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        addresses.into_iter().fold(self, |builder, address| builder.node(address.as_ref()))
    }

    /// Adds a node whose restart guard is believed in another way; see [`RestartTrust`].
    pub fn node_with(self, address: &str, restart_trust: RestartTrust) -> Self {
        let known = self.settings.nodes.len();
        let mut builder = self.node(address);
        let added = builder.settings.nodes.iter_mut().skip(known);
        added.for_each(|node| node.restart_trust = restart_trust);
        builder
    }

    /// What is wrong with the addresses that were added so far.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// What is said to [sentinels](crate::manual::sentinels) first: a password, or a user with one. Those of a node are in its
    /// address.
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_user = credentials.user;
        self.sentinel_password = Some(Password::Known(credentials.password));
        self
    }

    /// Labels locks with this host's name and this process's id, `web-1:4711`, so that an operator sees who
    /// holds a lock and not "unlabelled #8c1f03aa". The label goes with each ask and takes memory on the nodes,
    /// so there is none by default. A process that is forked later has the label of the one that called this.
    pub fn label_host_and_pid(self) -> Self {
        self.label_host_and_pid_of(std::process::id())
    }

    /// The same with the id of another process of this host: of the one that the locks are held for.
    pub fn label_host_and_pid_of(self, pid: u32) -> Self {
        self.label(label::of_process(pid))
    }

    builder_methods! {
        /// A file with the password for each node whose address has none: that of the user in the address, or of the default user.
        /// One end of a line behind it, `\n` or `\r\n`, is no part of it. Read when the configuration is built.
        pub fn password_file(file: impl Into<PathBuf>) =>
            password = Some(Password::In(file.into()));

        /// The same for a password that the program has read itself. An empty one is an error of [`build`](Self::build).
        pub fn password(password: Secret) => password = Some(Password::Known(password));

        /// The user that [sentinels](crate::manual::sentinels) know us by. Default their default user. It needs
        /// [`sentinel_password_file`](Self::sentinel_password_file).
        pub fn sentinel_user(user: impl AsRef<[u8]>) =>
            sentinel_user = Some(user.as_ref().to_vec());

        /// A file with the password of the [sentinels](crate::manual::sentinels), which is read as
        /// [`password_file`](Self::password_file) is.
        pub fn sentinel_password_file(file: impl Into<PathBuf>) =>
            sentinel_password = Some(Password::In(file.into()));

        /// The most acquisitions and looks at resources without an outcome that an [`Engine`](crate::Engine) has at one time, from 1 to
        /// 2²⁰; 8192 by default. One more is refused with [`EngineError::Busy`](crate::EngineError::Busy), and nothing is sent. Locks
        /// that are held do not count, and neither do their extensions, of which each has one at a time; releases are always taken.
        ///
        /// Above 16384 a node that answers slowly may refuse asks for a full pipeline
        /// ([`Cause::Backlog`](crate::report::Cause::Backlog)).
        pub fn in_flight(limit: usize) => in_flight = Some(limit);

        /// How many grants make a lock: more than half of the nodes.
        pub fn quorum(quorum: usize) => settings.quorum = Some(quorum);

        /// The longest TTL that is accepted. See [`Settings::max_ttl`].
        pub fn max_ttl(max_ttl: Duration) => settings.max_ttl = max_ttl;

        /// How long a lock may be held by extending it. See [`Settings::max_hold`].
        pub fn max_hold(max_hold: Option<Duration>) => settings.max_hold = max_hold;

        /// The rate of drift, in parts per million. See [`Settings::drift_ppm`].
        pub fn drift_ppm(drift_ppm: u32) => settings.drift_ppm = drift_ppm;

        /// How long a node may take to answer. See [`Settings::response_timeout`].
        pub fn response_timeout(span: Duration) => settings.response_timeout = span;

        /// How long opening a connection may take. See [`Settings::connect_timeout`]. All addresses of a host name share this time:
        /// they are tried side by side, up to 100 ms apart, and the first that answers is taken.
        pub fn connect_timeout(span: Duration) => settings.connect_timeout = span;

        /// The silence after which a connection is given up. See [`Settings::dead_peer_timeout`].
        pub fn dead_peer_timeout(span: Duration) => settings.dead_peer_timeout = span;

        /// The first and the longest pause between attempts. See [`Settings::retry_backoff`].
        pub fn retry_backoff(first: Duration, longest: Duration) =>
            settings.retry_backoff = (first, longest);

        /// The first and the longest pause between connections. See [`Settings::reconnect_backoff`].
        pub fn reconnect_backoff(first: Duration, longest: Duration) =>
            settings.reconnect_backoff = (first, longest);

        /// Who we are, for the operator who looks at a lock. See [`Settings::label`].
        pub fn label(label: impl AsRef<[u8]>) => settings.label = label.as_ref().to_vec();

        /// The name of our connections. See [`Settings::client_name`].
        pub fn client_name(name: impl AsRef<[u8]>) => settings.client_name = name.as_ref().to_vec();

        /// Whether a node that may evict locks may vote. See [`Settings::accept_evicting`].
        pub fn accept_evicting(accept: bool) => settings.accept_evicting = accept;

        /// Whether nodes have to prove that they remember every lock. See [`RestartGuard`].
        pub fn restart_guard(restart_guard: RestartGuard) => settings.restart_guard = restart_guard;

        /// The key of the restart guard, the same for all clients. See [`Settings::restart_guard_key`].
        pub fn restart_guard_key(key: impl AsRef<[u8]>) =>
            settings.restart_guard_key = key.as_ref().to_vec();

        /// Says that the nodes are new if none of them has a restart guard, so that the first lock need not wait
        /// for `max_ttl`. For nodes that were just made, such as those of a test; wrong where all nodes can
        /// lose their memory at once: see [new nodes](crate::manual::restart_guard#new-nodes).
        pub fn new_nodes() => settings.setup = Setup::IfNew;

        /// The formats of other libraries that [inspections](super::Client::inspect) and
        /// [forced unlocks](super::Client::force_unlock) know, the likeliest first; `&Profile::ALL` for all. Locks need no such
        /// word: each names its own [format](crate::LockRequest::format). A program contains only the formats that it names.
        ///
        /// ```
        /// use redbolt::{Config, Profile};
        ///
        /// let config = Config::builder().node("10.0.0.1").formats(&[Profile::REDISSON]).build()?;
        /// # Ok::<(), redbolt::ConfigError>(())
        /// ```
        pub fn formats(formats: &[Profile]) => settings.formats = formats.to_vec();

        /// Writes nothing to any node, so that nodes without our restart guard never vote: for a client that only
        /// inspects.
        pub fn read_only() => settings.setup = Setup::ReadOnly;

        /// How long a fencing counter lives. See [`Settings::fencing_counter_ttl`].
        pub fn fencing_counter_ttl(life: Duration) => settings.fencing_counter_ttl = life;

        /// How waiters for one resource get it one after the other. By default they queue on the nodes. See
        /// [`WakeStrategy`].
        pub fn wake(wake: WakeStrategy) => settings.wake = wake;

        /// Tries reads for so long before each sleep, instead of being woken when an answer has come: from 0 to
        /// 200 µs. Default 0, which is off.
        ///
        /// For callers with a core to spare, and nodes that answer within that time. It harms all others: see
        /// [busy polling](crate::manual::performance#busy-polling).
        pub fn busy_poll(span: Duration) => busy_poll = span;

        /// Who hears of what happens. Default nobody. [`Log`] says on which thread.
        pub fn log(log: Arc<dyn Log>) => log = Logger(Some(log));
    }

    /// For tests, which cannot set the clocks of a machine: replaces each reading by what `bend`
    /// makes of it. Sleeps are short then, so that the process notices when the clock jumps.
    #[doc(hidden)]
    pub fn bend_clock(
        mut self,
        bend: impl Fn(ClockReading) -> ClockReading + Send + Sync + 'static,
    ) -> Self {
        self.net.clock = Clock::bent(bend);
        self
    }

    /// For tests, which cannot make the resolver of a machine hang: what finds the addresses of a host name and a port.
    #[doc(hidden)]
    pub fn resolve_hosts_by(
        mut self,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.net.hosts = HostResolver::by(resolve);
        self
    }

    /// Checks it all.
    ///
    /// # Errors
    ///
    /// All that is wrong with it: an address that cannot be read, no nodes, more than 32, the same address twice, a value out of its
    /// range, a user without a password, or a password file that cannot be read. With TLS also: a file that cannot be used, or options
    /// of TLS where nobody is spoken with over it. The error shows no user and no password of an address.
    pub fn build(mut self) -> Result<Config, ConfigError> {
        #[cfg(feature = "tls")]
        let all_are_known = self.faults.is_empty();
        let mut faults = self.find_faults();
        let mut found = |fault| faults.push(fault);
        self.log_in().unwrap_or_else(&mut found);
        let credentials = self.sentinel_credentials_given().map_err(&mut found);
        self.net.sentinels.credentials = credentials.ok().flatten();
        #[cfg(feature = "tls")]
        {
            self.net.sentinels.is_over_tls = self.sentinel_tls.is_on;
            let connectors = Connector::for_all(self.tls, self.sentinel_tls, &self.addresses);
            (self.net.tls, self.net.sentinels.tls) = connectors.unwrap_or_else(|error| {
                // Options that seem to be for nobody may be for a node that was not understood.
                Some(error.into()).filter(|_| all_are_known).into_iter().for_each(found);
                (None, None)
            });
        }
        let (Ok(core), true) = (proto::Config::new(self.settings), faults.is_empty()) else {
            return Err(ConfigError { faults });
        };
        Ok(Config {
            core: Arc::new(core),
            addresses: self.addresses.into(),
            log: self.log,
            busy_poll: self.busy_poll,
            in_flight: self.in_flight.unwrap_or(IN_FLIGHT),
            net: self.net,
        })
    }
}

impl ConfigBuilder {
    /// What is wrong without a look at any file.
    fn find_faults(&mut self) -> Vec<ConfigFault> {
        let mut faults = std::mem::take(&mut self.faults);
        // Without the nodes that were not understood the others have other numbers, and may be too few.
        if faults.is_empty() {
            faults.extend(self.settings.faults().into_iter().map(ConfigFault::Settings));
            for (second, address) in self.addresses.iter().enumerate() {
                let first = self.addresses[..second].iter().position(|other| other == address);
                let address = address.clone();
                faults.extend(first.map(|first| ConfigFault::Duplicate { first, second, address }));
            }
        }
        if self.busy_poll > busy::LONGEST {
            faults.push(ConfigFault::BusyPoll { span: self.busy_poll });
        }
        if let Some(limit) = self.in_flight.filter(|limit| !(1..=MAX_LOCKS).contains(limit)) {
            faults.push(ConfigFault::InFlight { limit });
        }
        faults
    }
}

/// TLS.
#[cfg(feature = "tls")]
impl ConfigBuilder {
    builder_methods! {
        /// A file of certificates in PEM. Over TLS a server is believed if one of them has issued its certificate. Default
        /// those that the system trusts. Read again before each connection.
        pub fn tls_ca(file: impl Into<PathBuf>) => tls.ca = Some(file.into());

        /// A file with our own certificate in PEM, and those of its issuers behind it, for servers that want to know who we
        /// are. It needs [`tls_key`](Self::tls_key). Read again before each connection.
        pub fn tls_cert(file: impl Into<PathBuf>) => tls.certificate = Some(file.into());

        /// A file with the key of [`tls_cert`](Self::tls_cert) in PEM: PKCS #8, PKCS #1 or SEC1, without a password. Read again
        /// before each connection.
        pub fn tls_key(file: impl Into<PathBuf>) => tls.key = Some(file.into());

        /// The name that the certificate of each node must have, and that is sent as SNI. Default the host of its address.
        pub fn tls_server_name(name: impl Into<String>) => tls.server_name = Some(name.into());

        /// Believes every server, whatever certificate it shows. The connections are encrypted, and whoever is in between
        /// reads and changes what he likes: passwords, tokens, answers. For tests only.
        pub fn danger_accept_any_certificate() => tls.accept_any = true;

        /// Whether [sentinels](crate::manual::sentinels) are spoken with over TLS. Default as the masters that they name: over TLS
        /// behind `rediss+sentinel://`. If it is off there, [`tls_ca`](Self::tls_ca) or [`tls_server_name`](Self::tls_server_name) is
        /// required: the name of a master is not known otherwise, and anyone on the path to a sentinel can give one.
        pub fn sentinel_tls(is_on: bool) => sentinel_tls.is_on = Some(is_on);

        /// As [`tls_ca`](Self::tls_ca), for sentinels. Default that of the nodes.
        pub fn sentinel_tls_ca(file: impl Into<PathBuf>) => sentinel_tls.own.ca = Some(file.into());

        /// As [`tls_cert`](Self::tls_cert), for sentinels. Default that of the nodes. It needs
        /// [`sentinel_tls_key`](Self::sentinel_tls_key).
        pub fn sentinel_tls_cert(file: impl Into<PathBuf>) =>
            sentinel_tls.own.certificate = Some(file.into());

        /// As [`tls_key`](Self::tls_key), for [`sentinel_tls_cert`](Self::sentinel_tls_cert).
        pub fn sentinel_tls_key(file: impl Into<PathBuf>) =>
            sentinel_tls.own.key = Some(file.into());

        /// As [`tls_server_name`](Self::tls_server_name), for sentinels. Default that of the nodes.
        pub fn sentinel_tls_server_name(name: impl Into<String>) =>
            sentinel_tls.own.server_name = Some(name.into());
    }
}

impl ConfigBuilder {
    /// Records a fault, which [`build`](Self::build) reports.
    pub(super) fn report(&mut self, fault: ConfigFault) {
        self.faults.push(fault);
    }

    /// Gives up a peer after at least twice `span`, for which an answer may be awaited.
    pub(super) fn outlast(mut self, span: Duration) -> Self {
        let dead = &mut self.settings.dead_peer_timeout;
        *dead = span.saturating_mul(2).max(*dead);
        self
    }

    /// The password for all nodes whose address has none.
    fn log_in(&mut self) -> Result<(), ConfigFault> {
        let Some(password) = self.password.take() else {
            return match self.users_alone.first() {
                Some((_, missing)) => Err(missing.clone().into()),
                None => Ok(()),
            };
        };
        let password = password.read()?;
        for (at, node) in self.settings.nodes.iter_mut().enumerate() {
            let login = Credentials { user: None, password: password.clone() };
            let login = node.credentials.get_or_insert(login);
            if self.users_alone.iter().any(|(alone, _)| *alone == at) {
                login.password = password.clone();
            }
        }
        Ok(())
    }

    fn sentinel_credentials_given(&mut self) -> Result<Option<Credentials>, ConfigFault> {
        match (self.sentinel_user.take(), self.sentinel_password.take()) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConfigFault::SentinelUser),
            (user, Some(password)) => Ok(Some(Credentials { user, password: password.read()? })),
        }
    }
}

impl Password {
    fn read(self) -> Result<Secret, ConfigFault> {
        let file = match self {
            Self::Known(password) if password.is_empty() => {
                return Err(ConfigFault::EmptyPassword);
            }
            Self::Known(password) => return Ok(password),
            Self::In(file) => file,
        };
        let wrong = |reason: String| ConfigFault::PasswordFile { file: file.clone(), reason };
        let mut password = fs::read(&file).map_err(|error| wrong(error.to_string()))?;
        if password.pop_if(|byte| *byte == b'\n').is_some() {
            password.pop_if(|byte| *byte == b'\r');
        }
        match password.is_empty() {
            true => Err(wrong("it is empty".to_owned())),
            false => Ok(Secret::new(password)),
        }
    }
}

messages! {
    /// One thing that is wrong with a configuration.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ConfigFault {
        /// A node's address cannot be read.
        Address(error: AddressError): "{error}",
        /// The limit of an engine is out of its range.
        InFlight {
            /// What was given.
            limit: usize,
        }: "in_flight is {limit}, it must be from 1 to {MAX_LOCKS}",
        /// Reads would be tried for too long.
        BusyPoll {
            /// What was given.
            span: Duration,
        }: "busy_poll of {span:?} is out of range (0 to {:?})" with (busy::LONGEST),
        /// Two nodes have the same address.
        Duplicate {
            /// Place of the first, from zero.
            first: usize,
            /// Place of the second.
            second: usize,
            /// Their address.
            address: Address,
        }: "nodes {} and {} have the same address {address}" with (first + 1, second + 1),
        /// A password has no bytes.
        EmptyPassword: "the password is empty",
        /// The password file cannot be used.
        PasswordFile {
            /// Its path.
            file: PathBuf,
            /// Why.
            reason: String,
        }: "password file {}: {reason}" with (file.display()),
        /// There is a user of the sentinels without a password.
        SentinelUser: "a user of the sentinels without a password",
        /// A setting is out of its range.
        Settings(error: SettingsError): "{error}",
        /// TLS cannot be spoken as it was chosen.
        Tls(error: TlsError) if feature = "tls": "{error}",
        /// A variable of the environment cannot be used.
        Variable {
            /// Its name.
            name: &'static str,
            /// What is wrong with its value, which is not repeated.
            problem: &'static str,
        }: "{name}: {problem}",
    }
}

sources! {
    ConfigFault: Address, Settings, #[cfg(feature = "tls")] Tls;
    from Address(AddressError), Settings(SettingsError), #[cfg(feature = "tls")] Tls(TlsError)
}

/// A configuration that does not hold, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    faults: Vec<ConfigFault>,
}

impl ConfigError {
    /// What is wrong: at least one thing.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.faults.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}

impl Error for ConfigError {}

/// How many calls an engine takes at one time, unless said otherwise.
const IN_FLIGHT: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_password_is_an_error_unless_there_is_one_elsewhere() {
        let builder = Config::builder().nodes(["e", "redis://ann@h/3", "redis://:own@g"]);
        let error = builder.clone().build().unwrap_err().to_string();
        assert!(error.starts_with("node address `redis://(hidden)@h/3`: a user with"), "{error}");
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
        let config = builder.node("f").password(secret("pw")).build().unwrap();
        let [first, ann, own, last] = &config.settings().nodes[..] else { panic!("four") };
        let credentials = |user: Option<&str>, password| {
            Some(Credentials::new(user.map(|user| user.as_bytes().to_vec()), secret(password)))
        };
        assert_eq!(first.credentials, credentials(None, "pw"));
        assert_eq!(ann.credentials, credentials(Some("ann"), "pw"));
        assert_eq!(own.credentials, credentials(None, "own"));
        assert_eq!(last.credentials, credentials(None, "pw"));
    }

    #[test]
    fn an_empty_password_is_none() {
        let nothing = || Secret::new(Vec::new());
        let node = Config::builder().node("127.0.0.1");
        let error = node.clone().password(nothing()).build().unwrap_err();
        assert_eq!(error.to_string(), "the password is empty");
        let of_sentinels = node.sentinel_credentials(Credentials::new(None, nothing()));
        let error = of_sentinels.build().unwrap_err();
        assert_eq!(error.faults(), [ConfigFault::EmptyPassword]);
    }

    #[test]
    fn busy_poll_is_off_and_has_a_bound() {
        let node = Config::builder().node("127.0.0.1");
        assert_eq!(node.clone().build().unwrap().busy_poll(), Duration::ZERO);
        let most = Duration::from_micros(200);
        assert_eq!(node.clone().busy_poll(most).build().unwrap().busy_poll(), most);
        let error = node.busy_poll(most + Duration::from_nanos(1)).build().unwrap_err();
        let words = "busy_poll of 200.001µs is out of range (0 to 200µs)";
        assert_eq!(error.to_string(), words);
    }
}

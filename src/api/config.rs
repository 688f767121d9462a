//! The configuration of every API: the settings of the core and the addresses of the nodes.

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

/// The nodes and the settings of a client. Cheap to clone.
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

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.core.node_count()
    }

    /// Returns the number of grants that a lock needs.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.core.quorum()
    }

    /// Returns the settings, including the defaults that were not changed.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }

    /// Returns the addresses of the nodes, in the order in which they were given.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns for how long reads are tried before each sleep; zero if busy polling is off. See
    /// [`ConfigBuilder::busy_poll`].
    #[must_use]
    #[inline]
    pub fn busy_poll(&self) -> Duration {
        self.busy_poll
    }

    /// Returns how many calls an engine accepts at one time. See [`ConfigBuilder::in_flight`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the current address of the node at `address`, which is one of
    /// [`addresses`](Self::addresses): `address` itself, or that of the master that its
    /// [sentinels](crate::manual::sentinels) name.
    ///
    /// Blocks while it queries the sentinels, for a time that the timeouts bound. It serves tools
    /// that send a node other commands; locks find their masters themselves.
    ///
    /// # Errors
    ///
    /// No master is named by more than half of the sentinels.
    pub fn locate(&self, address: &Address) -> io::Result<Address> {
        match address {
            Address::Sentinels(known) => {
                net::locate(known, &self.net.sentinels, &self.net.hosts, self.settings())
            }
            other => Ok(other.clone()),
        }
    }

    /// Starts TLS over a stream to the node at `address`, with the settings that locks use.
    /// `address` is one of [`addresses`](Self::addresses), or where one of them is
    /// [located](Self::locate).
    ///
    /// It serves tools that send a node other commands. Set a timeout on a blocking stream.
    ///
    /// # Errors
    ///
    /// No address uses TLS, a file cannot be read, or the handshake fails.
    #[cfg(feature = "tls")]
    pub fn over_tls<S: io::Read + io::Write>(
        &self,
        address: &Address,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let tls = self.net.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        TlsStream::new(tls, address, stream)
    }

    /// Returns a copy with another rule for nodes that lack our restart guard.
    pub(super) fn with_setup(&self, setup: Setup) -> Self {
        let mut core = proto::Config::clone(&self.core);
        core.set_setup(setup);
        Self { core: Arc::new(core), ..self.clone() }
    }

    pub(super) fn core(&self) -> Arc<proto::Config> {
        Arc::clone(&self.core)
    }

    /// Returns the clock that everything made from this configuration reads.
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

    pub(super) fn address(&self, node: NodeId) -> &Address {
        &self.addresses[node.index()]
    }
}

/// The builder of a [`Config`]. The defaults are those of [`Settings`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build"]
pub struct ConfigBuilder {
    settings: Settings,
    addresses: Vec<Address>,
    log: Logger,
    busy_poll: Duration,
    in_flight: Option<usize>,
    net: NetAccess,
    /// The faults of the addresses added so far, and those given to `report`.
    faults: Vec<ConfigFault>,
    /// The nodes whose address has a user without a password, each with the error to report if no
    /// password is given elsewhere.
    users_alone: Vec<(usize, AddressError)>,
    password: Option<Password>,
    sentinel_user: Option<Vec<u8>>,
    sentinel_password: Option<Password>,
    #[cfg(feature = "tls")]
    tls: TlsSettings,
    #[cfg(feature = "tls")]
    sentinel_tls: SentinelTls,
}

#[derive(Clone, Debug)]
enum Password {
    Known(Secret),
    In(PathBuf),
}

impl ConfigBuilder {
    /// Adds a node. The address is one of:
    ///
    /// - `host` or `host:port`
    /// - `redis://[user[:password]@]host[:port][/db]`, or the same with `valkey://`
    /// - `rediss://…` or `valkeys://…`, the same over [TLS](crate::manual::tls)
    /// - `unix:///path[?db=n]`
    /// - `redis+sentinel://[user:password@]host[:port]+host…/master[/db]`, for the master that
    ///   these [sentinels](crate::manual::sentinels) name; over TLS with `rediss+sentinel://…`
    ///
    /// Neither resolves the host nor connects. An address that cannot be parsed is an error of
    /// [`build`](Self::build). A user without a password needs
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

    /// Adds several nodes, in this order. See [`node`](Self::node).
    ///
    /// ```
    /// let config = redbolt::Config::builder().nodes(["10.0.0.1", "10.0.0.2", "10.0.0.3"]).build()?;
    /// assert_eq!(config.node_count(), 3);
    /// # Ok::<(), redbolt::ConfigError>(())
    /// ```
    pub fn nodes<A: AsRef<str>>(self, addresses: impl IntoIterator<Item = A>) -> Self {
        addresses.into_iter().fold(self, |builder, address| builder.node(address.as_ref()))
    }

    /// Adds a node whose restart guard is trusted under another rule. See [`RestartTrust`].
    pub fn node_with(self, address: &str, restart_trust: RestartTrust) -> Self {
        let known = self.settings.nodes.len();
        let mut builder = self.node(address);
        let added = builder.settings.nodes.iter_mut().skip(known);
        added.for_each(|node| node.restart_trust = restart_trust);
        builder
    }

    /// Returns the faults of the addresses added so far.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// Sets the credentials sent to [sentinels](crate::manual::sentinels): a password, with or
    /// without a user. The credentials of a node are in its address.
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_user = credentials.user;
        self.sentinel_password = Some(Password::Known(credentials.password));
        self
    }

    /// Labels locks with the name of this host and the id of this process, such as `web-1:4711`, so
    /// that operators see the holder of a lock instead of "unlabelled #8c1f03aa".
    ///
    /// There is no label by default because it is sent with each request and takes memory on the
    /// nodes. The id is read now: a process forked later keeps the label of the process that called
    /// this.
    pub fn label_host_and_pid(self) -> Self {
        self.label_host_and_pid_of(std::process::id())
    }

    /// Labels locks as [`label_host_and_pid`](Self::label_host_and_pid) does, with the id of
    /// another process of this host, for which the locks are held.
    pub fn label_host_and_pid_of(self, pid: u32) -> Self {
        self.label(label::of_process(pid))
    }

    builder_methods! {
        /// Sets a file that holds the password for each node whose address has none. It belongs to
        /// the user in the address, or to the default user. One trailing `\n` or `\r\n` is removed.
        /// The file is read once, by [`build`](Self::build).
        pub fn password_file(file: impl Into<PathBuf>) =>
            password = Some(Password::In(file.into()));

        /// Sets the password of [`password_file`](Self::password_file) directly. An empty password
        /// is an error of [`build`](Self::build).
        pub fn password(password: Secret) => password = Some(Password::Known(password));

        /// Sets the user for [sentinels](crate::manual::sentinels). Defaults to their default user.
        /// Needs [`sentinel_password_file`](Self::sentinel_password_file).
        pub fn sentinel_user(user: impl AsRef<[u8]>) =>
            sentinel_user = Some(user.as_ref().to_vec());

        /// Sets a file that holds the password for [sentinels](crate::manual::sentinels). It is
        /// read as [`password_file`](Self::password_file) is.
        pub fn sentinel_password_file(file: impl Into<PathBuf>) =>
            sentinel_password = Some(Password::In(file.into()));

        /// Sets how many acquisitions and views of resources may be in flight in an
        /// [`Engine`](crate::Engine) at one time: 1 to 2²⁰, 8192 by default.
        ///
        /// Another one is refused with [`EngineError::Busy`](crate::EngineError::Busy), and nothing
        /// is sent. Held locks and their extensions (one at a time per lock) do not count. Releases
        /// are always accepted.
        ///
        /// Above 16384, a node that answers slowly may refuse requests because its pipeline is full
        /// ([`Cause::Backlog`](crate::report::Cause::Backlog)).
        pub fn in_flight(limit: usize) => in_flight = Some(limit);

        /// Sets the number of grants that a lock needs: more than half of the nodes.
        pub fn quorum(quorum: usize) => settings.quorum = Some(quorum);

        /// Sets the longest TTL that is accepted. See [`Settings::max_ttl`].
        pub fn max_ttl(max_ttl: Duration) => settings.max_ttl = max_ttl;

        /// Limits how long a lock may be held by extending it. See [`Settings::max_hold`].
        pub fn max_hold(max_hold: Option<Duration>) => settings.max_hold = max_hold;

        /// Sets the assumed clock drift, in parts per million. See [`Settings::drift_ppm`].
        pub fn drift_ppm(drift_ppm: u32) => settings.drift_ppm = drift_ppm;

        /// Sets how long a node may take to answer. See [`Settings::response_timeout`].
        pub fn response_timeout(span: Duration) => settings.response_timeout = span;

        /// Sets how long opening a connection may take. See [`Settings::connect_timeout`]. All
        /// addresses of a host name share this time: they are tried in parallel, started up to 100
        /// ms apart, and the first that answers is used.
        pub fn connect_timeout(span: Duration) => settings.connect_timeout = span;

        /// Sets the silence after which a connection is closed. See
        /// [`Settings::dead_peer_timeout`].
        pub fn dead_peer_timeout(span: Duration) => settings.dead_peer_timeout = span;

        /// Sets the first and the longest pause between attempts. See [`Settings::retry_backoff`].
        pub fn retry_backoff(first: Duration, longest: Duration) =>
            settings.retry_backoff = (first, longest);

        /// Sets the first and the longest pause between connections. See
        /// [`Settings::reconnect_backoff`].
        pub fn reconnect_backoff(first: Duration, longest: Duration) =>
            settings.reconnect_backoff = (first, longest);

        /// Sets the label that operators see on a lock. See [`Settings::label`].
        pub fn label(label: impl AsRef<[u8]>) => settings.label = label.as_ref().to_vec();

        /// Sets the name of the connections. See [`Settings::client_name`].
        pub fn client_name(name: impl AsRef<[u8]>) => settings.client_name = name.as_ref().to_vec();

        /// Sets whether a node that may evict locks may vote. See [`Settings::accept_evicting`].
        pub fn accept_evicting(accept: bool) => settings.accept_evicting = accept;

        /// Sets whether nodes have to prove that they remember every lock. See [`RestartGuard`].
        pub fn restart_guard(restart_guard: RestartGuard) => settings.restart_guard = restart_guard;

        /// Sets the key of the restart guard, the same for all clients. See
        /// [`Settings::restart_guard_key`].
        pub fn restart_guard_key(key: impl AsRef<[u8]>) =>
            settings.restart_guard_key = key.as_ref().to_vec();

        /// Declares the nodes new if none of them has a restart guard, so that the first lock need
        /// not wait for `max_ttl`. Use it only for nodes that were just created, such as those of a
        /// test. It is unsafe if all nodes can lose their memory at once: see [new
        /// nodes](crate::manual::restart_guard#new-nodes).
        pub fn new_nodes() => settings.setup = Setup::IfNew;

        /// Sets the formats of other libraries that [inspections](super::Client::inspect) and
        /// [forced unlocks](super::Client::force_unlock) recognize, the likeliest first;
        /// `&Profile::ALL` for all. Locks do not need it: each names its own
        /// [format](crate::LockRequest::format). A program contains only the formats that it names.
        ///
        /// ```
        /// use redbolt::{Config, Profile};
        ///
        /// let config = Config::builder().node("10.0.0.1").formats(&[Profile::REDISSON]).build()?;
        /// # Ok::<(), redbolt::ConfigError>(())
        /// ```
        pub fn formats(formats: &[Profile]) => settings.formats = formats.to_vec();

        /// Writes nothing to any node, so that nodes without our restart guard never vote. It is
        /// for clients that only inspect.
        pub fn read_only() => settings.setup = Setup::ReadOnly;

        /// Sets how long a fencing counter lives. See [`Settings::fencing_counter_ttl`].
        pub fn fencing_counter_ttl(life: Duration) => settings.fencing_counter_ttl = life;

        /// Sets how waiters for one resource take turns. By default they queue on the nodes. See
        /// [`WakeStrategy`].
        pub fn wake(wake: WakeStrategy) => settings.wake = wake;

        /// Tries reads for up to `span` before each sleep instead of waiting to be woken: 0 to 200
        /// µs, 0 (off) by default.
        ///
        /// Use it only with a CPU core to spare and nodes that answer within that time. Otherwise
        /// it does harm: see [busy polling](crate::manual::performance#busy-polling).
        pub fn busy_poll(span: Duration) => busy_poll = span;

        /// Sets the log that receives notes. There is none by default. [`Log`] documents on which
        /// thread it is called.
        pub fn log(log: Arc<dyn Log>) => log = Logger(Some(log));
    }

    /// Replaces each reading of the clock by the result of `bend`, for tests, which cannot set the
    /// clock of a machine. It shortens sleeps so that the process notices when the clock jumps.
    #[doc(hidden)]
    pub fn bend_clock(
        mut self,
        bend: impl Fn(ClockReading) -> ClockReading + Send + Sync + 'static,
    ) -> Self {
        self.net.clock = Clock::bent(bend);
        self
    }

    /// Replaces the resolver of host names and ports, for tests, which cannot make the resolver of
    /// a machine hang.
    #[doc(hidden)]
    pub fn resolve_hosts_by(
        mut self,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.net.hosts = HostResolver::by(resolve);
        self
    }

    /// Validates everything and builds the configuration.
    ///
    /// # Errors
    ///
    /// Returns all faults at once: an address that cannot be parsed, no nodes, more than 32, an
    /// address given twice, a value out of range, a user without a password, or a password file
    /// that cannot be read. With TLS also: a file that cannot be used, or TLS options although no
    /// connection uses TLS. The error shows no user and no password of an address.
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
                // TLS options that no parsed address uses may be for one that could not be parsed.
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
    /// Returns the faults that can be found without reading a file.
    fn find_faults(&mut self) -> Vec<ConfigFault> {
        let mut faults = std::mem::take(&mut self.faults);
        // Addresses that could not be parsed shift the numbers of the others and lower their count,
        // so further faults could be false.
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

#[cfg(feature = "tls")]
impl ConfigBuilder {
    builder_methods! {
        /// Sets a file of PEM certificates. A server is trusted if one of them has issued its
        /// certificate. Defaults to the certificates that the system trusts. The file is read again
        /// before each connection.
        pub fn tls_ca(file: impl Into<PathBuf>) => tls.ca = Some(file.into());

        /// Sets a file with the client's certificate in PEM, followed by those of its issuers, for
        /// servers that authenticate clients. Needs [`tls_key`](Self::tls_key). The file is read
        /// again before each connection.
        pub fn tls_cert(file: impl Into<PathBuf>) => tls.certificate = Some(file.into());

        /// Sets a file with the key of [`tls_cert`](Self::tls_cert) in PEM: PKCS #8, PKCS #1 or
        /// SEC1, without a password. The file is read again before each connection.
        pub fn tls_key(file: impl Into<PathBuf>) => tls.key = Some(file.into());

        /// Sets the name that the certificate of each node must have, and that is sent as SNI.
        /// Defaults to the host of its address.
        pub fn tls_server_name(name: impl Into<String>) => tls.server_name = Some(name.into());

        /// Accepts every server with any certificate. Connections are encrypted, but an attacker on
        /// the path can read and change passwords, tokens and answers. For tests only.
        pub fn danger_accept_any_certificate() => tls.accept_any = true;

        /// Sets whether connections to [sentinels](crate::manual::sentinels) use TLS. By default
        /// they do if those to their masters do, that is with `rediss+sentinel://`.
        ///
        /// If it is off there, [`tls_ca`](Self::tls_ca) or
        /// [`tls_server_name`](Self::tls_server_name) is required. Otherwise nothing fixes the name
        /// of a master, and an attacker on the path to a sentinel can supply one.
        pub fn sentinel_tls(is_on: bool) => sentinel_tls.is_on = Some(is_on);

        /// Sets [`tls_ca`](Self::tls_ca) for sentinels. Defaults to that of the nodes.
        pub fn sentinel_tls_ca(file: impl Into<PathBuf>) => sentinel_tls.own.ca = Some(file.into());

        /// Sets [`tls_cert`](Self::tls_cert) for sentinels. Defaults to that of the nodes. Needs
        /// [`sentinel_tls_key`](Self::sentinel_tls_key).
        pub fn sentinel_tls_cert(file: impl Into<PathBuf>) =>
            sentinel_tls.own.certificate = Some(file.into());

        /// Sets [`tls_key`](Self::tls_key) for [`sentinel_tls_cert`](Self::sentinel_tls_cert).
        pub fn sentinel_tls_key(file: impl Into<PathBuf>) =>
            sentinel_tls.own.key = Some(file.into());

        /// Sets [`tls_server_name`](Self::tls_server_name) for sentinels. Defaults to that of the
        /// nodes.
        pub fn sentinel_tls_server_name(name: impl Into<String>) =>
            sentinel_tls.own.server_name = Some(name.into());
    }
}

impl ConfigBuilder {
    pub(super) fn report(&mut self, fault: ConfigFault) {
        self.faults.push(fault);
    }

    /// Raises the dead-peer timeout to at least twice `span`, the time that an answer may be
    /// awaited.
    pub(super) fn outlast(mut self, span: Duration) -> Self {
        let dead = &mut self.settings.dead_peer_timeout;
        *dead = span.saturating_mul(2).max(*dead);
        self
    }

    /// Sets the password of all nodes whose address has none.
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
        // Editors end a file with a line break, which is not part of the password.
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
    /// One fault of a configuration.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ConfigFault {
        /// A node's address cannot be read.
        Address(error: AddressError): "{error}",
        /// The limit of an engine is out of its range.
        InFlight {
            /// The limit given.
            limit: usize,
        }: "in_flight is {limit}, it must be from 1 to {MAX_LOCKS}",
        /// The time of busy polling is out of its range.
        BusyPoll {
            /// The time given.
            span: Duration,
        }: "busy_poll of {span:?} is out of range (0 to {:?})" with (busy::LONGEST),
        /// Two nodes have the same address.
        Duplicate {
            /// The index of the first, from zero.
            first: usize,
            /// The index of the second, from zero.
            second: usize,
            /// Their address.
            address: Address,
        }: "nodes {} and {} have the same address {address}" with (first + 1, second + 1),
        /// A password has no bytes.
        EmptyPassword: "the password is empty",
        /// The password file cannot be used.
        PasswordFile {
            /// The path of the file.
            file: PathBuf,
            /// The reason.
            reason: String,
        }: "password file {}: {reason}" with (file.display()),
        /// A user for sentinels is given without a password.
        SentinelUser: "a user of the sentinels without a password",
        /// A setting is out of its range.
        Settings(error: SettingsError): "{error}",
        /// The settings of TLS cannot be used.
        Tls(error: TlsError) if feature = "tls": "{error}",
        /// An environment variable cannot be used.
        Variable {
            /// The name of the variable.
            name: &'static str,
            /// The fault of its value. The value itself is not shown.
            problem: &'static str,
        }: "{name}: {problem}",
    }
}

sources! {
    ConfigFault: Address, Settings, #[cfg(feature = "tls")] Tls;
    from Address(AddressError), Settings(SettingsError), #[cfg(feature = "tls")] Tls(TlsError)
}

/// The error of an invalid configuration, with all of its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    faults: Vec<ConfigFault>,
}

impl ConfigError {
    /// Returns the faults; there is at least one.
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

/// The default limit of calls in flight in an engine.
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

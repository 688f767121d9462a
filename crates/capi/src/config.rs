//! Configurations: the nodes and the settings. The library has the defaults and checks the ranges.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use redbolt::config::{RestartGuard, RestartTrust, WakeStrategy};
use redbolt::log::{Level, Log, Note};
use redbolt::{Config, ConfigBuilder, Profile, init, init_change};

use crate::call::{call, given, in_callback, look, may_wait};
use crate::failure::{Failure, words};
use crate::foreign::{EndCallback, OwnedData, bytes, text};
use crate::status::Status;

/// A configuration: the nodes and the settings. Any number of clients, drivers and engines can be
/// created from it, and it may be freed before them. Only one thread may change it; many threads
/// may read it at once.
pub struct ConfigHandle {
    builder: ConfigBuilder,
}

/// The trust in a node's restart guard.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustKind {
    /// The guard must be of the server's current run. This is the default.
    Strict = 0,
    /// The operator guarantees that the server syncs every write to its disk (`appendfsync
    /// always`).
    Durable = 1,
    /// The user may not run `INFO`, so a guard of any run is accepted.
    MarkerOnly = 2,
}

/// The way in which clients that wait for one resource take turns.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Clients wait in the queue on the nodes, and each asks when it is first. This is the default.
    Queue = 0,
    /// Each client asks the node that reported a change, and the others when that one has granted.
    Lead = 1,
    /// Clients ask after pauses only, and no node reports changes.
    Timer = 2,
}

/// The severity of a line of the log.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Every lock writes some of these lines.
    Debug = 0,
    /// Normal operation, in rare lines.
    Info = 1,
    /// A problem that may resolve itself.
    Warning = 2,
    /// The work that a lock protects was in danger, or an operator has to act.
    Error = 3,
}

/// Receives lines of the log. A line is UTF-8, without an end of line, and lives until the callback
/// returns. The callback runs on the thread that drives the locks: inside the calls of a client or
/// a driver, and on the thread of an engine. It must be quick, must not use the client or driver
/// that called it, and must not block: calls that do return `REDBOLT_STATUS_IN_CALLBACK`. No
/// exception may leave it.
pub type LogCallback =
    Option<extern "C" fn(data: *mut c_void, level: LogLevel, line: *const c_char)>;

/// Creates a configuration without nodes and with the defaults. `redbolt_config_free` ends it.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_new() -> Option<Box<ConfigHandle>> {
    look(None, || {
        let builder = Config::builder().formats(&Profile::ALL);
        Some(Box::new(ConfigHandle { builder }))
    })
}

/// Ends a configuration. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_free(config: Option<Box<ConfigHandle>>) {
    look((), || drop(config));
}

/// Adds a node: `host`, `host:port`, `redis://[user[:password]@]host[:port][/db]`, `valkey://...`,
/// the same over TLS with `rediss://...` or `valkeys://...`, `unix:///path[?db=n]`, or the master
/// that sentinels name, `redis+sentinel://[user:password@]host[:port]+host.../master[/db]`, over
/// TLS with `rediss+sentinel://...`. Nothing is looked up or connected yet. An error shows no user
/// and no password.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_add_node(
    config: Option<&mut ConfigHandle>,
    address: *const c_char,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    // SAFETY: the caller passes pointers that are valid, as the header requires.
    unsafe { redbolt_config_add_node_with(config, address, TrustKind::Strict as i32, error) }
}

/// Adds a node with another trust in its restart guard: `trust` is one of
/// `REDBOLT_RESTART_TRUST_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_add_node_with(
    config: Option<&mut ConfigHandle>,
    address: *const c_char,
    trust: i32,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let trust = match trust {
            it if it == TrustKind::Strict as i32 => RestartTrust::Strict,
            it if it == TrustKind::Durable as i32 => RestartTrust::Durable,
            it if it == TrustKind::MarkerOnly as i32 => RestartTrust::MarkerOnly,
            _ => return Err(Failure::argument("trust is none of REDBOLT_RESTART_TRUST_...")),
        };
        let config = given(config, "config")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let address = unsafe { text(address, "address") }?;
        let builder = config.builder.clone().node_with(address, trust);
        if let Some(fault) = builder.faults().last() {
            return Err(Failure::new(Status::Config, &fault.to_string()));
        }
        config.builder = builder;
        Ok(())
    })
}

/// Sets the number of grants that make a lock: more than half of the nodes, which is the default.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_quorum(
    config: Option<&mut ConfigHandle>,
    quorum: usize,
) -> Status {
    change(config, |builder| Ok(builder.quorum(quorum)))
}

/// Sets the longest TTL that is accepted. All clients of a set of nodes must have the same. Default
/// 30 s.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_max_ttl_ms(
    config: Option<&mut ConfigHandle>,
    max_ttl_ms: u64,
) -> Status {
    change(config, |builder| Ok(builder.max_ttl(Duration::from_millis(max_ttl_ms))))
}

/// Sets how long a lock may be held by extending it; 0 is without a limit, which is the default.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_max_hold_ms(
    config: Option<&mut ConfigHandle>,
    max_hold_ms: u64,
) -> Status {
    let max_hold = (max_hold_ms != 0).then(|| Duration::from_millis(max_hold_ms));
    change(config, |builder| Ok(builder.max_hold(max_hold)))
}

/// Sets the rate at which clocks may drift apart, in parts per million.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_drift_ppm(
    config: Option<&mut ConfigHandle>,
    drift_ppm: u32,
) -> Status {
    change(config, |builder| Ok(builder.drift_ppm(drift_ppm)))
}

/// Sets how long a node may take to answer.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_response_timeout_ms(
    config: Option<&mut ConfigHandle>,
    timeout_ms: u64,
) -> Status {
    change(config, |builder| Ok(builder.response_timeout(Duration::from_millis(timeout_ms))))
}

/// Sets how long opening a connection may take.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_connect_timeout_ms(
    config: Option<&mut ConfigHandle>,
    timeout_ms: u64,
) -> Status {
    change(config, |builder| Ok(builder.connect_timeout(Duration::from_millis(timeout_ms))))
}

/// Sets the silence after which a connection is closed.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_dead_peer_timeout_ms(
    config: Option<&mut ConfigHandle>,
    timeout_ms: u64,
) -> Status {
    change(config, |builder| Ok(builder.dead_peer_timeout(Duration::from_millis(timeout_ms))))
}

/// Sets the first and the longest pause between attempts.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_retry_backoff_ms(
    config: Option<&mut ConfigHandle>,
    first_ms: u64,
    longest_ms: u64,
) -> Status {
    let (first, longest) = (Duration::from_millis(first_ms), Duration::from_millis(longest_ms));
    change(config, |builder| Ok(builder.retry_backoff(first, longest)))
}

/// Sets the first and the longest pause between connections.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_reconnect_backoff_ms(
    config: Option<&mut ConfigHandle>,
    first_ms: u64,
    longest_ms: u64,
) -> Status {
    let (first, longest) = (Duration::from_millis(first_ms), Duration::from_millis(longest_ms));
    change(config, |builder| Ok(builder.reconnect_backoff(first, longest)))
}

/// Sets the label under which an inspection shows this holder: any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_label(
    config: Option<&mut ConfigHandle>,
    label: *const u8,
    length: usize,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.label(unsafe { bytes(label, length, "label") }?))
    })
}

/// Labels locks with this host's name and this process's id.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_label_host_and_pid(
    config: Option<&mut ConfigHandle>,
) -> Status {
    change(config, |builder| Ok(builder.label_host_and_pid()))
}

/// Sets the name of the connections, as `CLIENT LIST` shows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_client_name(
    config: Option<&mut ConfigHandle>,
    name: *const c_char,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.client_name(unsafe { text(name, "name") }?))
    })
}

/// Sets whether a node that may evict locks may vote. Default no.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_accept_evicting(
    config: Option<&mut ConfigHandle>,
    accept: bool,
) -> Status {
    change(config, |builder| Ok(builder.accept_evicting(accept)))
}

/// Sets whether nodes have to prove that they remember every lock. Default yes. Without it a node
/// that has lost its data votes at once after a restart, so a lock that it forgot can be granted
/// twice.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_restart_guard(
    config: Option<&mut ConfigHandle>,
    is_on: bool,
) -> Status {
    let restart_guard = if is_on { RestartGuard::On } else { RestartGuard::Off };
    change(config, |builder| Ok(builder.restart_guard(restart_guard)))
}

/// Sets the key of the restart guard, the same for all clients: any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_config_set_restart_guard_key(
    config: Option<&mut ConfigHandle>,
    key: *const u8,
    length: usize,
) -> Status {
    change(config, |builder| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(builder.restart_guard_key(unsafe { bytes(key, length, "key") }?))
    })
}

/// Declares the nodes as new if none of them has a restart guard, so that the first lock does not
/// wait for the longest TTL. This is for nodes that were just created, such as those of a test; it
/// is wrong if all nodes can lose their data at once. For others see `redbolt_init`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_new_nodes(config: Option<&mut ConfigHandle>) -> Status {
    change(config, |builder| Ok(builder.new_nodes()))
}

/// Sets how long a fencing counter lives.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_fencing_counter_ttl_ms(
    config: Option<&mut ConfigHandle>,
    ttl_ms: u64,
) -> Status {
    change(config, |builder| Ok(builder.fencing_counter_ttl(Duration::from_millis(ttl_ms))))
}

/// Sets how clients that wait for one resource take turns: one of `REDBOLT_WAKE_...`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_wake(config: Option<&mut ConfigHandle>, wake: i32) -> Status {
    change(config, |builder| {
        Ok(builder.wake(match wake {
            it if it == Wake::Lead as i32 => WakeStrategy::Lead,
            it if it == Wake::Timer as i32 => WakeStrategy::Timer,
            it if it == Wake::Queue as i32 => WakeStrategy::Queue,
            _ => return Err(Failure::argument("wake is none of REDBOLT_WAKE_...")),
        }))
    })
}

/// Sets how many acquisitions of an engine may be pending at one time, 1 to 1048576. Default 8192.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_in_flight(
    config: Option<&mut ConfigHandle>,
    in_flight: usize,
) -> Status {
    change(config, |builder| Ok(builder.in_flight(in_flight)))
}

/// Sets for how long reads are tried before each sleep, from 0, which is off and the default, to
/// 200 microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_busy_poll_us(
    config: Option<&mut ConfigHandle>,
    span_us: u64,
) -> Status {
    change(config, |builder| Ok(builder.busy_poll(Duration::from_micros(span_us))))
}

/// Sets the callback that receives the lines of the log, from the level `least` on, one of
/// `REDBOLT_LOG_LEVEL_...`. `data` is passed to it. `end`, if it is not null, is called once after
/// this configuration and all that was made of it have ended. Default none.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_config_set_log(
    config: Option<&mut ConfigHandle>,
    least: i32,
    callback: LogCallback,
    data: *mut c_void,
    end: EndCallback,
) -> Status {
    // From here on `end` is called with every outcome.
    let data = OwnedData::new(data, end);
    change(config, |builder| {
        let callback = given(callback, "callback")?;
        let log = HostLog { least, callback, data };
        Ok(builder.log(Arc::new(log)))
    })
}

/// Declares these nodes as new: none of them has ever granted a lock, so they can vote at once.
/// Call it once in the life of a set of nodes, and never in a start script. Waits for at most
/// `within_ms`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_init(
    config: Option<&ConfigHandle>,
    within_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        may_wait()?;
        let config = built(config)?;
        init(&config, Duration::from_millis(within_ms)).map_err(|error| Failure::setup(&error))?;
        Ok(())
    })
}

/// Moves a set of nodes to another longest TTL or to another number of nodes. Read the manual's
/// page on the restart guard first. Waits for at most `within_ms`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_init_change(
    config: Option<&ConfigHandle>,
    within_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        may_wait()?;
        let within = Duration::from_millis(within_ms);
        init_change(&built(config)?, within).map_err(|error| Failure::setup(&error))?;
        Ok(())
    })
}

/// Returns the library's configuration, checked.
pub(crate) fn built(config: Option<&ConfigHandle>) -> Result<Config, Failure> {
    Ok(given(config, "config")?.builder.clone().build()?)
}

/// Changes one value. It is checked when the configuration is first used.
pub(crate) fn change(
    config: Option<&mut ConfigHandle>,
    change: impl FnOnce(ConfigBuilder) -> Result<ConfigBuilder, Failure>,
) -> Status {
    call(None, || {
        let config = given(config, "config")?;
        config.builder = change(config.builder.clone())?;
        Ok(())
    })
}

struct HostLog {
    least: i32,
    callback: extern "C" fn(*mut c_void, LogLevel, *const c_char),
    data: OwnedData,
}

impl Log for HostLog {
    fn note(&self, note: &Note<'_>) {
        let level = match note.level() {
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warning => LogLevel::Warning,
            Level::Error => LogLevel::Error,
        };
        if level as i32 >= self.least {
            let line = words(&note.to_string());
            in_callback(|| (self.callback)(self.data.get(), level, line.as_ptr()));
        }
    }
}

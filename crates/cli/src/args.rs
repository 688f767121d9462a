//! The command line: the arguments, and the help that explains them.
//!
//! Everything that can be validated from the arguments alone is validated here, so the rest of the
//! program gets only valid requests. The library parses node addresses; its errors never repeat a
//! password.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{
    OsStringValueParser, PossibleValuesParser, RangedU64ValueParser, Resettable, TypedValueParser,
};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use redbolt::Profile;
use redbolt::config::{RestartGuard, RestartTrust};
use redbolt::proto::{MAX_LABEL, MAX_RESOURCE};

use crate::given::Given;
use crate::help::{
    ACQUIRE_HELP, BENCH_HELP, COMPLETION_HELP, DOCTOR_HELP, EXTEND_HELP, FIRST_STEPS, HOLD_HELP,
    INIT_HELP, LEAD_HELP, LEAD_USAGE, LIST_HELP, LOCK_HELP, LOCK_USAGE, MAN_HELP, NODE_HELP,
    NODES_FILE_HELP, OBSERVE_HELP, PASSWORD_FILE_HELP, RELEASE_HELP, STATUS_HELP, UNLOCK_HELP,
};
use crate::variables::{
    CONNECT_TIMEOUT_VARIABLE, LABEL_VARIABLE, MAX_TTL_VARIABLE, PASSWORD_FILE_VARIABLE,
    RESPONSE_TIMEOUT_VARIABLE, RESTART_GUARD_KEY_VARIABLE, RESTART_TRUST_VARIABLE,
    SENTINEL_PASSWORD_FILE_VARIABLE, SENTINEL_TLS_CA_VARIABLE, SENTINEL_TLS_CERT_VARIABLE,
    SENTINEL_TLS_KEY_VARIABLE, SENTINEL_TLS_SERVER_NAME_VARIABLE, SENTINEL_TLS_VARIABLE,
    SENTINEL_USER_VARIABLE, TLS_CA_VARIABLE, TLS_CERT_VARIABLE, TLS_KEY_VARIABLE,
    TLS_SERVER_NAME_VARIABLE,
};
use crate::{duration, exit};

/// Distributed locks on independent Redis or Valkey nodes, for the shell.
#[derive(Debug, Parser)]
#[command(name = "redbolt", bin_name = "redbolt", version, after_help = FIRST_STEPS)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Lock(LockArgs),
    /// Run a command while leading an election, and campaign again when the lead is lost
    Lead(LeadArgs),
    /// Show who leads an election, and each change
    Observe(ObserveArgs),
    /// Take a lease, for a script that holds a lock over several commands
    Acquire(AcquireArgs),
    /// Take a lock for as long as a script or another process runs
    Hold(HoldArgs),
    /// Extend a lease that `acquire` has taken
    Extend(ExtendArgs),
    /// Release a lease that `acquire` has taken
    Release(ReleaseArgs),
    /// Show who holds a lock, node by node; without a name, show the nodes
    Status(StatusArgs),
    /// List the locks that are held now
    List(ListArgs),
    /// Examine nodes: can they carry locks, and what should be changed
    Doctor(DoctorArgs),
    /// Delete a lock whose holder does not release it
    Unlock(UnlockArgs),
    /// Declare nodes as new: once in their life, never in a start script
    Init(InitArgs),
    /// Measure how fast nodes grant and release locks
    Bench(BenchArgs),
    /// Run an in-memory node, for development and tests
    Node(NodeArgs),
    /// Watch five nodes grant, refuse and survive, without any server
    Demo,
    /// Print a completion script for a shell
    #[command(after_help = COMPLETION_HELP)]
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
    /// Write the manual pages, one for each subcommand
    #[command(after_help = MAN_HELP)]
    Man {
        /// Where to write them; it is created if it does not exist
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

impl Command {
    /// The same with the names of keys, as they are on the nodes, for the names of locks.
    pub(crate) fn with_keys(mut self) -> Self {
        match &mut self {
            Self::Lock(args) => args.format.prefix.complete(&mut args.key),
            Self::Acquire(args) => args.format.prefix.complete(&mut args.key),
            Self::Hold(args) => args.format.prefix.complete(&mut args.key),
            Self::Status(args) => {
                args.key.iter_mut().for_each(|key| args.format.prefix.complete(key));
            }
            Self::Unlock(args) => args.format.prefix.complete(&mut args.key),
            _ => {}
        }
        self
    }

    /// The name of the one lock that the command is about, unless a token file has it.
    pub(crate) fn lock_name(&self) -> Option<&OsStr> {
        match self {
            Self::Lock(args) => Some(&args.key),
            Self::Lead(args) => Some(&args.key),
            Self::Observe(args) => Some(&args.key),
            Self::Acquire(args) => Some(&args.key),
            Self::Hold(args) => Some(&args.key),
            Self::Unlock(args) => Some(&args.key),
            Self::Status(args) => args.key.as_deref(),
            _ => None,
        }
    }
}

/// Where the nodes are, and the settings that all who use them must share.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes (the same for all who use them)")]
pub(crate) struct Nodes {
    #[arg(long = "node", value_name = "ADDRESS", help = NODE_HELP)]
    pub(crate) addresses: Vec<String>,

    #[arg(long, value_name = "FILE", help = NODES_FILE_HELP, conflicts_with = "addresses")]
    pub(crate) nodes_file: Option<PathBuf>,

    #[arg(long, value_name = "FILE", env = PASSWORD_FILE_VARIABLE, hide_env_values = true, help = PASSWORD_FILE_HELP)]
    pub(crate) password_file: Option<PathBuf>,

    /// The addresses that these and the environment give, once they are known
    #[arg(skip)]
    pub(crate) given: OnceCell<Vec<Given>>,

    /// The password in the file, once it is read
    #[arg(skip)]
    pub(crate) password: OnceCell<Vec<u8>>,

    /// The longest TTL of any lock. A node that may have forgotten locks does not vote for as long
    /// [default: 30s]
    #[arg(long, value_name = "TIME", env = MAX_TTL_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,

    /// The key of each node's restart guard [default: redbolt:guard]
    #[arg(long, value_name = "KEY", env = RESTART_GUARD_KEY_VARIABLE, hide_env_values = true)]
    pub(crate) restart_guard_key: Option<String>,

    /// What is believed after a restart of a node: one word for all nodes, or one for each in order
    /// [default: strict]
    #[arg(long, value_name = "WORD", env = RESTART_TRUST_VARIABLE, hide_env_values = true, value_delimiter = ',', value_enum)]
    pub(crate) restart_trust: Vec<RestartTrustWord>,

    /// How long to wait for a node's answer, unless enough of the others vote sooner [default: 1s]
    #[arg(long, value_name = "TIME", env = RESPONSE_TIMEOUT_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) response_timeout: Option<Duration>,

    /// How long a connection and its handshake may take [default: 5s]
    #[arg(long, value_name = "TIME", env = CONNECT_TIMEOUT_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<Duration>,

    /// Report on standard error what happens: nodes that connect, fail or are quarantined, and each grant, refusal,
    /// extension, release and loss of a lock
    #[arg(long, short, help_heading = Resettable::Reset)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) sentinels: SentinelArgs,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Who we are to sentinels, and they to us, where an address names these.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sentinels (for redis+sentinel:// addresses)")]
pub(crate) struct SentinelArgs {
    /// The user that the sentinels know us by [default: their default user]
    #[arg(long, value_name = "NAME", env = SENTINEL_USER_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_user: Option<String>,

    /// A file with the sentinels' password, which is not the nodes'. It is refused if others than its owner and group
    /// can read it
    #[arg(long, value_name = "FILE", env = SENTINEL_PASSWORD_FILE_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_password_file: Option<PathBuf>,

    /// The password in the file, once it is read
    #[arg(skip)]
    pub(crate) sentinel_password: OnceCell<Vec<u8>>,

    /// Whether sentinels are spoken with over TLS [default: as the nodes that they name]
    #[arg(long, value_name = "WORD", env = SENTINEL_TLS_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_tls: Option<SentinelTlsWord>,

    /// A file of certificates, as --tls-ca, for sentinels [default: that of the nodes]
    #[arg(long, value_name = "FILE", env = SENTINEL_TLS_CA_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_tls_ca: Option<PathBuf>,

    /// A file with our own certificate, as --tls-cert, for sentinels [default: that of the nodes]
    #[arg(long, value_name = "FILE", env = SENTINEL_TLS_CERT_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_tls_cert: Option<PathBuf>,

    /// A file with the key of --sentinel-tls-cert
    #[arg(long, value_name = "FILE", env = SENTINEL_TLS_KEY_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_tls_key: Option<PathBuf>,

    /// The name that each sentinel's certificate must have [default: as for the nodes]
    #[arg(long, value_name = "NAME", env = SENTINEL_TLS_SERVER_NAME_VARIABLE, hide_env_values = true)]
    pub(crate) sentinel_tls_server_name: Option<String>,
}

/// Whether TLS is spoken with sentinels, whatever is spoken with the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SentinelTlsWord {
    /// Also behind redis+sentinel://
    On,
    /// Not even behind rediss+sentinel://
    Off,
}

impl SentinelTlsWord {
    /// As it is typed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// What TLS is spoken with, where an address begins with `rediss://`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TLS (for rediss:// and valkeys:// addresses)")]
pub(crate) struct TlsArgs {
    /// A file of certificates: only servers whose certificate one of these has signed are believed
    /// [default: what the system trusts]
    #[arg(long, value_name = "FILE", env = TLS_CA_VARIABLE, hide_env_values = true)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// A file with our own certificate, for servers that want one
    #[arg(long, value_name = "FILE", env = TLS_CERT_VARIABLE, hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// A file with the key of --tls-cert
    #[arg(long, value_name = "FILE", env = TLS_KEY_VARIABLE, hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,

    /// The name that each server's certificate must have [default: the host of its address]
    #[arg(long, value_name = "NAME", env = TLS_SERVER_NAME_VARIABLE, hide_env_values = true)]
    pub(crate) tls_server_name: Option<String>,

    /// Believe every server, whatever certificate it shows: anybody in between can read and change everything. For
    /// tests only
    #[arg(long)]
    pub(crate) danger_accept_any_certificate: bool,
}

/// A [`RestartTrust`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartTrustWord {
    /// Quarantine a node after every restart, whatever it has kept
    Strict,
    /// Believe what it has kept: it syncs every write to its disk (appendfsync always)
    Durable,
    /// Do without INFO, which its user may not run: a restart with old data goes unnoticed
    MarkerOnly,
}

impl From<RestartTrustWord> for RestartTrust {
    fn from(word: RestartTrustWord) -> Self {
        match word {
            RestartTrustWord::Strict => Self::Strict,
            RestartTrustWord::Durable => Self::Durable,
            RestartTrustWord::MarkerOnly => Self::MarkerOnly,
        }
    }
}

/// A [`RestartGuard`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartGuardWord {
    /// A node that may have forgotten locks does not vote until they are over
    On,
    /// Such a node votes at once: a lock that it forgot can be held twice
    Off,
}

impl From<RestartGuardWord> for RestartGuard {
    fn from(word: RestartGuardWord) -> Self {
        match word {
            RestartGuardWord::On => Self::On,
            RestartGuardWord::Off => Self::Off,
        }
    }
}

/// Whose locks a lock is one of.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FormatArgs {
    /// Take part in the locks of another library: `redisson` in those of Redisson, `redisson-rw` in its readers and writers, `spring` in those of Spring's lock
    /// registry, `symfony` in those of Symfony, `python-redis-lock` and `redis-objects` in their own, `setnx` in those whose value is a time; `plain` is for all who lock by SET NX PX
    #[arg(long, value_name = "NAME", default_value = "plain", value_parser = profile())]
    pub(crate) profile: Profile,

    #[command(flatten)]
    pub(crate) prefix: PrefixArgs,
}

/// Whose locks are looked at.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SeenFormatArgs {
    /// Expect locks of redbolt, or of the members of this profile. Data of any other form is named, and never deleted
    /// without --foreign
    #[arg(long, value_name = "NAME", value_parser = profile())]
    pub(crate) profile: Option<Profile>,

    #[command(flatten)]
    pub(crate) prefix: PrefixArgs,
}

/// How the names of keys begin.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PrefixArgs {
    /// Put this before the name: where other programs keep their locks, such as `redlock:`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,
}

impl PrefixArgs {
    /// Makes a name that of the key.
    fn complete(&self, name: &mut OsString) {
        let mut key = self.prefix.clone();
        key.push(&*name);
        *name = key;
    }
}

fn profile() -> impl TypedValueParser<Value = Profile> {
    let names = Profile::ALL.map(Profile::name);
    PossibleValuesParser::new(names).map(|name| Profile::of_name(&name).unwrap_or_default())
}

/// How a lock is requested.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Give up if the lock does not become free within this time [default: wait without limit]
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: one attempt
    #[arg(long = "try", short = 'n', conflicts_with = "wait")]
    pub(crate) try_once: bool,

    /// Print no progress on standard error; failures, a lost lock and a lock that may stay taken are still
    /// reported. With -E 0, a lock that is held is not a failure
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Exit status when somebody else holds the lock
    #[arg(long, short = 'E', value_name = "N", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,

    /// Under which name others see the holder, such as the address or the pod of a service: at most 128
    /// printable ASCII characters [default: the host's name and redbolt's process id]
    #[arg(long, value_name = "NAME", env = LABEL_VARIABLE, hide_env_values = true, value_parser = label)]
    pub(crate) label: Option<String>,

    /// Whether a node must prove that it remembers every lock
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    /// If no node has a restart guard, declare all of them as new, as `redbolt init` does: for nodes that were
    /// just created, as in a test
    #[arg(long)]
    pub(crate) new_nodes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = LOCK_HELP, override_usage = LOCK_USAGE)]
pub(crate) struct LockArgs {
    /// How long the nodes keep the lock if redbolt vanishes. redbolt extends it every third of this time, which
    /// must be at least four round trips
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// Do not extend the lock: the command must end within one TTL
    #[arg(long)]
    pub(crate) no_extend: bool,

    /// Time between the command's SIGTERM and SIGKILL when the lock is lost, at most TTL/3
    /// [default: TTL/4]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// Keep the lock taken for at least this long, even if the command ends sooner
    #[arg(long, value_name = "TIME", conflicts_with = "no_extend", value_parser = duration::parse)]
    pub(crate) at_least: Option<Duration>,

    /// Hold the lock beside others who share it, as readers do, and beside nobody who holds it alone
    #[arg(long)]
    pub(crate) shared: bool,

    /// Let at most N commands run at once that all say so
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = permits())]
    pub(crate) permits: Option<u16>,

    /// Give the command a fencing token: a number that grows from holder to holder, for the store that it
    /// writes to
    #[arg(long)]
    pub(crate) fencing: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// Run this line with /bin/sh instead of CMD
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub(crate) shell_line: Option<OsString>,

    /// The name to lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    /// The command to run, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell_line")]
    pub(crate) command: Vec<OsString>,

    /// Set if the lock is a leader's
    #[arg(skip)]
    pub(crate) leads: bool,

    // Last, or its heading would stand over the rest.
    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

impl LockArgs {
    /// The words to execute: CMD, or a shell with the line of `-c`.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.shell_line {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// The time from SIGTERM to SIGKILL, or why the requested one is too long.
    pub(crate) fn grace(&self) -> Result<Duration, String> {
        grace(self.ttl, self.kill_after)
    }
}

fn grace(ttl: Duration, kill_after: Option<Duration>) -> Result<Duration, String> {
    let grace = kill_after.unwrap_or(ttl / 4);
    if grace <= ttl / 3 {
        return Ok(grace);
    }
    Err(format!(
        "--kill-after can be a third of the TTL ({}) at the most, or the command would be stopped \
         while the lock can still be extended",
        duration::show(ttl / 3)
    ))
}

#[derive(Debug, Args)]
#[command(after_help = LEAD_HELP, override_usage = LEAD_USAGE)]
pub(crate) struct LeadArgs {
    /// How long the lead lasts if redbolt vanishes. redbolt extends it every third of this time, which must be at
    /// least four round trips
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// When the lead is lost, exit with 70 instead of campaigning again
    #[arg(long)]
    pub(crate) once: bool,

    /// Time between the command's SIGTERM and SIGKILL when the lead is lost, at most TTL/3
    /// [default: TTL/4]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// Run this line with /bin/sh instead of CMD
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub(crate) shell_line: Option<OsString>,

    /// The name of the election
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    /// The command to run while leading, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell_line")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

impl From<LeadArgs> for LockArgs {
    fn from(args: LeadArgs) -> Self {
        Self {
            ttl: args.ttl,
            request: args.request,
            no_extend: false,
            kill_after: args.kill_after,
            at_least: None,
            shared: false,
            permits: None,
            fencing: true,
            format: FormatArgs::default(),
            shell_line: args.shell_line,
            key: args.key,
            command: args.command,
            leads: true,
            nodes: args.nodes,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = OBSERVE_HELP)]
pub(crate) struct ObserveArgs {
    /// Print one JSON object on each line
    #[arg(long)]
    pub(crate) json: bool,

    /// Print who leads now, and exit
    #[arg(long)]
    pub(crate) once: bool,

    /// The name of the election
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct AcquireArgs {
    /// Where to write the secret with which the lease is extended and released
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// How long the nodes keep the lock. Nothing extends it but `redbolt extend`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// Hold the lock beside others who share it, as readers do, and beside nobody who holds it alone
    #[arg(long)]
    pub(crate) shared: bool,

    /// Take one of N permits, beside others who do
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = permits())]
    pub(crate) permits: Option<u16>,

    /// Print a fencing token: a number that grows from holder to holder, for the store that the script
    /// writes to
    #[arg(long)]
    pub(crate) fencing: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// The name to lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

/// What happens to the process when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// It gets SIGTERM, and SIGKILL before the lock ends
    Stop,
    /// It goes on, and a line on standard error says so
    Warn,
}

#[derive(Debug, Args)]
#[command(after_help = HOLD_HELP)]
pub(crate) struct HoldArgs {
    /// How long the nodes keep the lock if redbolt is killed. redbolt extends it every third of this time, which
    /// must be at least four round trips
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// The process that has the lock, until it ends [default: the calling process]
    #[arg(long, value_name = "PID", value_parser = value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) pid: Option<u32>,

    /// Print lines for `eval` in a shell: variables, or an exit if the lock was not taken
    #[arg(long)]
    pub(crate) sh: bool,

    /// What happens to the process when the lock is lost
    #[arg(long, value_name = "WORD", default_value = "stop")]
    pub(crate) on_loss: OnLoss,

    /// Time between SIGTERM and SIGKILL when the lock is lost, at most TTL/3
    /// [default: TTL/4]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// Hold the lock together with others that share it, as readers do
    #[arg(long)]
    pub(crate) shared: bool,

    /// Take one of N permits
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = permits())]
    pub(crate) permits: Option<u16>,

    /// Print a fencing token: a number that grows from holder to holder, for the store that the script
    /// writes to
    #[arg(long)]
    pub(crate) fencing: bool,

    #[command(flatten)]
    pub(crate) format: FormatArgs,

    /// The name to lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

impl HoldArgs {
    /// The time from SIGTERM to SIGKILL, or why the requested one is too long.
    pub(crate) fn grace(&self) -> Result<Duration, String> {
        grace(self.ttl, self.kill_after)
    }
}

#[derive(Debug, Args)]
#[command(after_help = EXTEND_HELP)]
pub(crate) struct ExtendArgs {
    /// The file that `redbolt acquire` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// For how long from now; never shortens the lease [default: the TTL of `acquire`]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct ReleaseArgs {
    /// The file that `redbolt acquire` wrote; it is removed
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = UNLOCK_HELP)]
pub(crate) struct UnlockArgs {
    /// Delete the lock. Without this option, only show whose lock it is
    #[arg(long)]
    pub(crate) force: bool,

    /// Delete the key even if it is not a lock of redbolt
    #[arg(long, requires = "force")]
    pub(crate) foreign: bool,

    #[command(flatten)]
    pub(crate) format: SeenFormatArgs,

    /// The name of the lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

/// One of the words behind `status --wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VotersOrTime {
    /// All nodes must vote
    All,
    /// A quorum of them must
    Quorum,
    /// Within this time
    Time(Duration),
}

fn voters_or_time(word: &str) -> Result<VotersOrTime, String> {
    match word {
        "all" => Ok(VotersOrTime::All),
        "quorum" => Ok(VotersOrTime::Quorum),
        _ => match duration::parse(word) {
            Ok(time) => Ok(VotersOrTime::Time(time)),
            Err(error) => Err(format!("it is neither `all` nor `quorum`, and {error}")),
        },
    }
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Wait until all nodes vote, or a quorum of them, for at most TIME [default: without limit]. A node that was
    /// restarted gets its restart guard, so that its quarantine begins
    #[arg(long, value_names = ["all|quorum", "TIME"], num_args = 1..=2, conflicts_with = "key", value_parser = voters_or_time)]
    pub(crate) wait: Vec<VotersOrTime>,

    /// Exit with the status with which `redbolt lock --try KEY` would fail now: 75 if the lock is held, 69 if too few
    /// nodes vote, and 0 if it is free
    #[arg(long, requires = "key")]
    pub(crate) exit_status: bool,

    /// Whether to read the nodes' restart guards as well
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    #[command(flatten)]
    pub(crate) format: SeenFormatArgs,

    /// The name of the lock; without a name, show the nodes
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: Option<OsString>,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// List only locks whose names begin with TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,

    /// Stop after this many locks
    #[arg(long, value_name = "N", default_value = "100", value_parser = limit())]
    pub(crate) limit: usize,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Look for locks that never expire among the keys whose names begin with TEXT. Then every key without a TTL counts,
    /// and not only those that have the form of a lock
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,

    /// Whether the users of the nodes read restart guards
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = INIT_HELP)]
pub(crate) struct InitArgs {
    /// Move nodes that are in use to another --max-ttl or number of nodes; run it again until it
    /// succeeds
    #[arg(long)]
    pub(crate) change: bool,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct BenchArgs {
    /// How many locks to have in flight at a time, each on a key of its own
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=MAX_CONCURRENCY))]
    pub(crate) concurrency: u16,

    /// How long to measure, up to 1h
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = measured_for)]
    pub(crate) duration: Duration,

    /// How long to run before measuring, up to 1m
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = warmed_up_for)]
    pub(crate) warm_up: Duration,

    /// The TTL of each lock. If redbolt is killed, the keys that it leaves last no longer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    /// The length of the keys
    #[arg(long, value_name = "BYTES", default_value_t = SHORTEST_KEY, value_parser = value_parser!(u32).range(i64::from(SHORTEST_KEY)..=LONGEST_KEY))]
    pub(crate) key_size: u32,

    /// How long to try reads before each sleep, up to 200us: uses a core to save latency
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = duration::parse)]
    pub(crate) busy_poll: Duration,

    /// Whether a node must prove that it remembers every lock
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    /// Measure even nodes that seem to be in use
    #[arg(long)]
    pub(crate) yes: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The loopback port to listen on; 0 chooses a free one
    #[arg(long, default_value_t = 6379)]
    pub(crate) port: u16,
}

/// The arguments with which `redbolt lock` starts its shim. Not a subcommand, so that help and completions do not
/// mention it.
#[derive(Debug, Parser)]
#[command(name = SHIM)]
pub(crate) struct ShimArgs {
    /// The process that must still be the parent
    #[arg(long)]
    pub(crate) parent: i32,

    /// The signals that the caller has blocked: bit 0 is signal 1
    #[arg(long)]
    pub(crate) blocked: u64,

    /// Whether the caller ignores SIGPIPE
    #[arg(long)]
    pub(crate) ignore_pipe: bool,

    /// The parent's descriptor to write to when the command cannot be run
    #[arg(long)]
    pub(crate) complain: i32,

    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// The arguments with which the outer process of `redbolt lock` starts the inner one. Not a subcommand either.
#[derive(Debug, Parser)]
#[command(name = INNER)]
pub(crate) struct InnerArgs {
    /// The outer process
    #[arg(long)]
    pub(crate) outer: u32,

    /// The signals that the caller has blocked: bit 0 is signal 1
    #[arg(long)]
    pub(crate) blocked: u64,

    /// Whether the caller ignores SIGPIPE
    #[arg(long)]
    pub(crate) ignore_pipe: bool,

    /// The descriptor to read its signals from
    #[arg(long)]
    pub(crate) requests: i32,

    /// The descriptor to report the lease on
    #[arg(long)]
    pub(crate) notices: i32,

    /// What the user typed after `redbolt`
    #[arg(required = true, last = true)]
    pub(crate) words: Vec<OsString>,
}

fn some_bytes(key: OsString) -> Result<OsString, &'static str> {
    if key.is_empty() { Err("the name of a lock cannot be empty") } else { Ok(key) }
}

/// A label, as the library accepts it.
fn label(text: &str) -> Result<String, String> {
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match is_printable && text.len() <= MAX_LABEL {
        true => Ok(text.to_owned()),
        false => Err(format!("it must have at most {MAX_LABEL} printable ASCII characters")),
    }
}

/// How many locks are listed.
fn limit() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<u64>::new().range(1..=10_000).map(|limit| limit as usize)
}

fn measured_for(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    let is_sound = (Duration::from_millis(10)..=Duration::from_secs(60 * 60)).contains(&span);
    if is_sound { Ok(span) } else { Err("it must be from 10ms to 1h".to_owned()) }
}

fn warmed_up_for(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    if span <= Duration::from_secs(60) { Ok(span) } else { Err("at most 1m".to_owned()) }
}

/// The most locks that `bench` has in flight: far more than two processors can use, and far fewer than one
/// connection takes.
const MAX_CONCURRENCY: i64 = 4096;

/// The prefix of `bench`, its random part and a number.
pub(crate) const SHORTEST_KEY: u32 = 36;

/// The longest key that the library accepts.
const LONGEST_KEY: i64 = MAX_RESOURCE as i64;

/// The first word of the shim's command line, in place of a subcommand.
pub(crate) const SHIM: &str = "__exec";

/// The same for the inner process of `redbolt lock`.
pub(crate) const INNER: &str = "__inner";

/// How many permits there can be.
fn permits() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=u64::from(redbolt::proto::MAX_PERMITS))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn lock(words: &[&str]) -> Result<LockArgs, clap::Error> {
        let words = ["redbolt", "lock"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Lock(args) => Ok(args),
            other => panic!("not a lock: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_line_of_a_help_is_wider_than_a_terminal() {
        let helps = Cli::command();
        let helps = helps.get_subcommands().filter_map(clap::Command::get_after_help);
        for line in
            helps.flat_map(|help| help.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let args = lock(&["-n", "job", "--", "ls", "-n", "--ttl", "--"]).unwrap();
        assert!(args.request.try_once);
        assert_eq!(args.words(), ["ls", "-n", "--ttl", "--"]);
        let args = lock(&["job", "ls", "-n"]).unwrap();
        assert!(!args.request.try_once);
        assert_eq!(args.words(), ["ls", "-n"]);
    }

    #[test]
    fn a_shell_line_stands_before_or_behind_the_key() {
        for words in [["job", "-c", "a b"], ["-c", "a b", "job"]] {
            assert_eq!(lock(&words).unwrap().words(), ["/bin/sh", "-c", "a b"]);
        }
        assert!(lock(&["job", "-c", "a", "--", "b"]).is_err());
        assert!(lock(&["job"]).is_err());
        assert!(lock(&["", "--", "a"]).is_err());
    }

    #[test]
    fn waiting_and_trying_exclude_each_other() {
        assert!(lock(&["--wait", "1s", "--try", "job", "--", "a"]).is_err());
        assert!(lock(&["-w", "1", "job", "--", "a"]).is_err());
    }

    #[test]
    fn the_grace_is_a_third_of_the_ttl_at_most() {
        let grace =
            |after| lock(&["--ttl", "9s", "--kill-after", after, "j", "a"]).unwrap().grace();
        assert_eq!(lock(&["--ttl", "8s", "j", "a"]).unwrap().grace(), Ok(Duration::from_secs(2)));
        assert_eq!(grace("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(grace("0s"), Ok(Duration::ZERO));
        assert!(grace("3001ms").unwrap_err().contains("3.0 s"));
    }
}

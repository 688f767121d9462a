//! The command line: what can be typed, and the help that explains it.
//!
//! What the words alone can decide is decided here, so that the rest of the program sees only sound requests. Not
//! here: node addresses. The library reads them, and its errors never repeat a password.

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
    /// Extend a lease that `acquire` has taken
    Extend(ExtendArgs),
    /// Release a lease that `acquire` has taken
    Release(ReleaseArgs),
    /// Show who holds a lock, node by node; without a name, show the nodes
    Status(StatusArgs),
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
        let grace = self.kill_after.unwrap_or(self.ttl / 4);
        if grace <= self.ttl / 3 {
            return Ok(grace);
        }
        Err(format!(
            "--kill-after can be a third of the TTL ({}) at the most, or the command would be stopped \
             while the lock can still be extended",
            duration::show(self.ttl / 3)
        ))
    }
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

const NODE_HELP: &str = "\
A node: host, host:port, redis://[user[:password]@]host[:port][/db], the same over TLS with \
rediss://, unix:///path, or redis+sentinel://host[:port]+host.../master[/db] for the master that these sentinels name. Repeat the option for each node [env: REDBOLT_NODES, separated by commas]";

const NODES_FILE_HELP: &str = "\
A file with one node on each line, instead of --node. A line that begins with # is a comment. A file \
with passwords is refused if others than its owner and group can read it [env: REDBOLT_NODES_FILE]";

const PASSWORD_FILE_HELP: &str = "\
A file with the password for each node whose address has none: that of the user in it, or of the default user. It is \
refused if others than its owner and group can read it";

const FIRST_STEPS: &str = "\
First steps:
  redbolt demo                          see it work, no server needed
  redbolt node --port 7001              or start a node to try it on, and in another shell:
  redbolt init --node 127.0.0.1:7001    declare it as new, once in its life
  redbolt status --node 127.0.0.1:7001  whether it votes
  redbolt lock --node 127.0.0.1:7001 backup -- ./backup.sh
  redbolt status --node 127.0.0.1:7001 backup

Instead of repeating --node: export REDBOLT_NODES=10.0.0.1,10.0.0.2,10.0.0.3
or, for passwords, a file:   export REDBOLT_NODES_FILE=/etc/redbolt/nodes";

const LOCK_USAGE: &str = "\
redbolt lock [OPTIONS] KEY -- CMD [ARG]...
       redbolt lock [OPTIONS] KEY -c 'shell line'";

const LOCK_HELP: &str = "\
The command never outlives the lock: if the lock is lost or cannot be extended, the command and all
its descendants get SIGTERM, then SIGKILL. Signals to redbolt are passed on to the command, unless
it has them already: redbolt itself ends when the command does. It then releases the lock, and dies
of the signal that killed the command. It does not wait for what the command leaves running in the
background.

When the lock is known to be lost, SIGTERM comes at once, and SIGKILL after --kill-after. A lock
that cannot be extended ends with its TTL, of which 1 % and 2 ms are not relied on. SIGKILL comes
before that end, by a reserve of 5/32 of the TTL but at most 313 ms: on a busy machine it may come
late. SIGTERM comes --kill-after before SIGKILL. So with --no-extend --ttl 1s the command gets
SIGTERM after 0.58 s and SIGKILL after 0.83 s; with --ttl 10s after 7.1 s and 9.6 s.

redbolt runs as two processes, so that `kill -9` of either changes nothing: the other one ends the
command and its descendants before the lock ends. If redbolt itself is killed, the lock is released
as soon as they have ended. Two cases remain. If both processes are killed at once, only the
command itself gets SIGTERM, and a command that ignores it goes on. If both are stopped at once and
the command is not, the command goes on until one of them continues.

With --shared any number of commands that all use it run at once, and none beside a command
without it: readers and writers. Each of them counts for itself: one that dies keeps others out
for no longer than its own --ttl.

With --permits 10 at most ten commands that all use it run at once, on however many hosts, and none
beside a command without it. Each has a number of its own, from 0 to 9, in REDBOLT_SLOT.

The command gets REDBOLT_KEY and REDBOLT_TTL_MS in its environment, and with --fencing also
REDBOLT_FENCING_TOKEN. It does not get REDBOLT_NODES if there is a password in it. The store that
the command writes to should remember the largest token that it has seen and refuse smaller ones:
they come from holders whose lock is over.

With --at-least the lock stays taken for this long after the grant, whatever the command does. So a
short job that cron starts on many hosts runs on one of them, even if their clocks differ. When the
command has ended, redbolt leaves the lock on the nodes for the rest of the time and exits with the
command's status. It waits only while the rest is longer than --max-ttl. The lock may stay taken
for up to one TTL longer. While the command runs, redbolt must keep the lock: if redbolt is killed
or its host dies, the lock ends after --ttl, not after --at-least. If CMD cannot be run, redbolt
releases the lock at once.

Without --wait it waits without limit, for the holder and also for nodes that do not answer; it
reports those after a second. Only a problem that needs an operator ends a wait at once, with 69: a
wrong password or role, a forbidden command, other limits.

A node that was restarted, emptied or never used does not vote for --max-ttl, since it may have
forgotten a lock. redbolt reports it and waits. For new nodes there is `redbolt init`.

Exit status: that of the command (128 + signal if it was killed), or
   64  wrong usage                            70  lock lost, command stopped
   69  too few nodes vote; says why           75  held by somebody else (see -E)
   71  refused by the operating system       126  CMD cannot be executed
                                             127  CMD not found

Examples:
  redbolt lock nightly -- ./backup.sh --full
  redbolt lock --try nightly -- ./backup.sh || echo 'already running'
  redbolt lock --wait 30s --ttl 20s deploy -c 'git pull && make install'
  redbolt lock --shared data -- ./read.sh          (beside other readers, and never beside a writer)
  redbolt lock --permits 10 mail -- ./send.sh      (at most ten at once, on all hosts together)
  redbolt lock --try --at-least 30s nightly -- ./report.sh      (the crontab of each host)";

const LEAD_USAGE: &str = "\
redbolt lead [OPTIONS] KEY -- CMD [ARG]...
       redbolt lead [OPTIONS] KEY -c 'shell line'";

const LEAD_HELP: &str = "\
Of all that run it with the same KEY, one leads and runs its command; the others wait for it. As
with `redbolt lock`, the command never outlives the lead: if the lead is lost or cannot be extended,
the command and all its descendants get SIGTERM, then SIGKILL, and redbolt campaigns again. So it
runs the command once for each time that it is elected. With --once it exits with 70 instead.

When the command ends by itself, redbolt resigns and exits with the command's status. Signals are
passed on to the command; after SIGINT, SIGTERM or SIGQUIT, or when its terminal was closed,
redbolt does not campaign again, unless it ignores that signal. `kill -9` of redbolt changes
nothing: see `redbolt help lock`, which says as well when exactly the command gets its
signals, and what a wait reports.

The command gets REDBOLT_KEY, REDBOLT_TTL_MS and REDBOLT_TERM in its environment. The term is a
number that is larger for each later leader. The store that the command writes to should remember
the largest term that it has seen and refuse smaller ones: they come from leaders whose time is
over. `redbolt observe KEY` shows the leader's label and term.

Exit status: that of the command (128 + signal if it was killed), or
   64  wrong usage                            70  lead lost, command stopped (--once)
   69  too few nodes vote; says why           75  another one leads (--try, --wait; see -E)
   71  refused by the operating system       126  CMD cannot be executed
                                             127  CMD not found

Examples:
  redbolt lead --ttl 5s leader:shop -- ./lead.sh
  redbolt lead --label 10.0.0.7:8080 leader:shop -c './serve.sh --term \"$REDBOLT_TERM\"'";

const OBSERVE_HELP: &str = "\
Prints who leads, and a line for each change, until it is stopped or standard output has no reader.
It takes no part and writes nothing to the nodes. It is told of changes by a majority of the nodes,
within milliseconds; where they cannot or may not tell, it looks every other second.

What it prints is a hint: it may be over when it is read. Whoever acts on it must bear that. Writes
that only a leader may make carry its term, and the store refuses smaller terms.

With --json each line is an object: verdict is leader, nobody or unknown; leader is the leader's
label; term is null while no majority agrees on one, or if it has none; silent has the nodes that do
not tell, each with its reason. key_hex has the bytes of the name, and key is null if they are
not UTF-8.

Exit status: with --once 0 when somebody leads or nobody does, and 69 when that is not known. 69 as
well when only an operator can help, as after a wrong password. 64 for wrong usage.

Examples:
  redbolt observe leader:shop
  redbolt observe --once --json leader:shop | jq -r .leader";

/// How many permits there can be.
fn permits() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=u64::from(redbolt::proto::MAX_PERMITS))
}

const ACQUIRE_HELP: &str = "\
For a script that holds a lock over several commands. It gets a lease, which nothing extends when
redbolt has exited: it ends after --ttl, and the last 1 % and 2 ms must not be relied on. Choose a
TTL that covers the script (up to --max-ttl, 30s unless all users of the nodes set another), or call
`redbolt extend` between its steps and stop when it fails. If one command can do all the work,
`redbolt lock` is safer: it extends the lock itself, and stops the command when the lock is lost.

FILE must not exist, or be empty, or belong to a lock that is over; the file of a lock that is
still held is refused. It gets mode 0600. Whoever can read it can release the lock, so it is
refused later if others can read it. A file system where others can read every file is refused
before the lock is taken. If FILE cannot be written and read back, the lock is released and the
error says so. The lock can be extended and released on this machine only, and only until the
machine is restarted: then the lock is lost.

With --shared others who use it too can take the lock beside this one, and with --permits N so many
of them. On standard output --permits prints the number of the permit, from 0 on, and --fencing the
fencing token, each on a line of its own.

Exit status: 0 when the lock is taken, or
   64  wrong usage, FILE cannot be used       71  refused by the operating system
   69  too few nodes vote; says why           75  held by somebody else (see -E)
   70  ran out before FILE was written       128 + signal that ended the wait

Example:
  dir=$(mktemp -d) || exit
  trap '[ ! -e \"$dir/lock\" ] || redbolt release --token-file \"$dir/lock\"; rmdir \"$dir\"' EXIT
  trap 'exit 130' INT; trap 'exit 143' TERM
  redbolt acquire nightly --ttl 30s --token-file \"$dir/lock\" || exit
  ./dump.sh || exit
  redbolt extend --token-file \"$dir/lock\" || exit
  ./upload.sh || exit
  redbolt release --token-file \"$dir/lock\" || exit";

const EXTEND_HELP: &str = "\
Give the same nodes as to `redbolt acquire`, in the same order.

Exit status: 0 when it is held for another TTL, or
   64  wrong usage, FILE cannot be used       70  the lock is lost: stop what it protects
   69  too few nodes confirm; says how        71  refused by the operating system
       long the lock still lasts";

const RELEASE_HELP: &str = "\
Give the same nodes as to `redbolt acquire`, in the same order. FILE is removed when a quorum of
the nodes has confirmed the release, or if the lock was already lost. If too few nodes confirm,
FILE stays, so that you can try again until the TTL is over.

Exit status: 0 when the lock was held until now and is released, or
   64  wrong usage, FILE cannot be used       70  the lock was lost before: what it protected may
   69  too few nodes confirm that, or that        have been in other hands
       it was held until now; says why        71  refused by the operating system";

const UNLOCK_HELP: &str = "\
For a holder that hangs, or that exited without releasing a lock with a long TTL. It reads who
holds the lock on every node, deletes exactly that, and reports whose lock it deleted: by label,
and by a short hash that is the same on all nodes. Whoever takes the lock meanwhile keeps it. Where
others wait in the queue, they are shown, and the lock is kept for the first of them. The
holder is not told: it goes on until it checks its lock. So make sure that it is gone, or that the
store it writes to checks its fencing token.

A key that is not a lock of redbolt is left alone: it is a lock or data of another program. It is
shown by its type, and deleted only with --foreign, or if it has the form of a lock of the --profile
that is given; whoever waits in that library's way is told.

A lock that is free is a success, with --force and without, so a script can repeat the command. As
a misspelled name is free too, a line on standard error says that nothing was deleted.

Exit status: 0 when a quorum of the nodes no longer has that lock, also if it was free before; 69
when too few nodes answer; 64 for a lock that is held, without --force, for a key that is not a lock
of redbolt, and for wrong usage.";

const STATUS_HELP: &str = "\
It takes no lock, and writes nothing without --wait. Each node's line says who holds the lock there,
how many wait in the queue for it, whether its restart guard lets it vote, and how long its answer
took. Waiters are listed in their order, with how long each has waited. A name is shown on one line,
with escapes such as \\n and \\xff. In --json, key_hex has its bytes, and key is null if they are
not UTF-8; verdict is free, held, shared, permits, foreign or undecided. While too few nodes
vote to take a lock, reason says so, and no_key stands for free: nodes that do not vote may have
forgotten a lock.

A lock of another library is named by its form, with the profile that takes part in its locks. With
--profile, whatever has another form than the profile's is said to be none of its.

Without KEY, each node's line says whether it votes and why not, whether it notifies waiters of a
release (which needs a second connection), and how long its answer took.

With --wait it waits until all nodes vote, or a quorum of them. A node that was restarted is
quarantined for --max-ttl from the first connection of a client that takes locks; --wait counts as
one, and writes the restart guards that are missing or of an earlier run. It names the nodes that
it waits for on standard error. It exits with 69 when TIME has passed, or if only an operator can
help. For a rolling restart: restart a node, run `redbolt status --wait all 2m`, and so on.

Exit status: 0 when a quorum of the nodes agrees that the lock is held, that it is free, or that
the key is not a lock of redbolt; without KEY, when a quorum votes. 69 otherwise, 64 for wrong
usage. With --exit-status the state decides:
    0  free: `redbolt lock --try` would take it
   69  not known, or too few nodes vote to take it
   75  held, also shared or as a permit, or the key has data of another program

Example:
  redbolt status --exit-status nightly > /dev/null
  case $? in 0) echo free ;; 75) echo held ;; *) echo 'not known' ;; esac";

const INIT_HELP: &str = "\
A node without a restart guard is new or has lost its memory, and redbolt cannot tell which. So it
does not vote for --max-ttl: then every lock that it may have forgotten is over. `init` declares
that these nodes never held a lock, so they vote at once. Run it once in their life, for all nodes,
with the --max-ttl that all users will set. Never put it into a start script: a node that lost its
memory in a restart also looks new, and would be believed. It does not prompt. It writes nothing
unless all nodes answer and none of them votes.

With --change it moves nodes that are in use to another --max-ttl or another number of nodes. Give
all users of the nodes the new options too. It closes all connections to the nodes, and no node
votes until the longer of both --max-ttl is over; keep the nodes running until then. If it fails,
run it again until it succeeds: while only some of the nodes are moved, old and new users might
both find a quorum.

Exit status: 0 when it is done, or
   64  wrong usage; a node is in use and      71  refused by the operating system
       another is not, or has other limits    73  all nodes are already set up with these
   69  a node does not answer or cannot be        options: nothing was written
       set up

After 73 nothing is left to do, so a script that may run twice accepts it. It is not 0, so that
`init` in a start script is noticed before the day on which it believes nodes that lost their data.

Examples:
  redbolt init || [ $? -eq 73 ]
  redbolt init --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
  redbolt init --change --max-ttl 2m";

const BENCH_HELP: &str = "\
Takes and releases locks, each on a key of its own, and reports how long that takes from this host:
the acquisition, until a quorum has granted; the release, until a quorum has confirmed it; and the
pair of both. With --concurrency 8 it has eight locks in flight. Each begins again when it is
released, so slow nodes get fewer requests.

The table of nodes has the number of answers of each, the mean time to an answer, the times within
which 50 % and 99 % of them came, and the share of locks in which its grant came in time to count.
One thread does all the work, with the library's Driver in an event loop. `client CPU` is the
processor time of that thread.

Keys are named redbolt:bench:RANDOM:NUMBER. Nothing else is written, not even restart guards: new
nodes need `redbolt init` first. Ctrl-C ends it early: it releases all locks and reports what it
has measured.

Nodes that seem to be in use (they have keys, replicas, or more than one other client) are refused
unless --yes is given. Do not measure while others depend on these servers.

Exit status: 0 when it was measured, or
   64  wrong usage, or nodes in use           71  refused by the operating system
   69  too few nodes vote, or no lock was     128 + signal that ended it early
       granted; says why

Examples:
  redbolt bench --duration 5s
  redbolt bench --concurrency 64 --json > bench.json";

const MAN_HELP: &str = "\
redbolt man ~/.local/share/man/man1    and then: man redbolt-lock";

const COMPLETION_HELP: &str = "\
bash:  redbolt completions bash > ~/.local/share/bash-completion/completions/redbolt
zsh:   redbolt completions zsh > \"${fpath[1]}/_redbolt\"
fish:  redbolt completions fish > ~/.config/fish/completions/redbolt.fish";

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

//! The command line: what can be typed, and the help that explains it.
//!
//! Everything that can be decided from the words alone is decided here, so that the rest of the
//! program sees only sound requests. Not here: node addresses, which the library reads, because
//! its errors know how not to repeat a password.

use std::cell::OnceCell;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use redbolt::proto::MAX_RESOURCE;
use redbolt::{RestartGuard, RestartTrust};

use crate::addresses::Given;
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
    /// Take a lock and leave it taken, for a script that holds it over several commands
    Acquire(AcquireArgs),
    /// Keep a lock that `acquire` has taken for longer
    Extend(ExtendArgs),
    /// Let go of a lock that `acquire` has taken
    Release(ReleaseArgs),
    /// Show who holds a lock, node by node, without touching it; or how the nodes are
    Status(StatusArgs),
    /// Break a lock that its holder does not let go of
    Unlock(UnlockArgs),
    /// Say that nodes are new: once in their life, never in a start script
    Init(InitArgs),
    /// Measure how fast nodes grant and release locks
    Bench(BenchArgs),
    /// Serve a node from memory, for development and tests
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
        /// Where to; it is made if it is not there
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

/// Where the nodes are, and what everybody who uses them has to agree about.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes (the same for all who use them)")]
pub(crate) struct Nodes {
    #[arg(long = "node", value_name = "ADDRESS", help = NODE_HELP)]
    pub(crate) addresses: Vec<String>,

    #[arg(long, value_name = "FILE", help = NODES_FILE_HELP, conflicts_with = "addresses")]
    pub(crate) nodes_file: Option<PathBuf>,

    /// The addresses that these and the environment give, once they are known
    #[arg(skip)]
    pub(crate) given: OnceCell<Vec<Given>>,

    /// The longest TTL of any lock, and so the time for which a node that may have forgotten locks
    /// does not vote [default: 30s]
    #[arg(long, value_name = "TIME", env = MAX_TTL_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,

    /// The key of each node's restart guard [default: redbolt:guard]
    #[arg(long, value_name = "KEY", env = RESTART_GUARD_KEY_VARIABLE, hide_env_values = true)]
    pub(crate) restart_guard_key: Option<String>,

    /// How much of a node's restart guard is believed: one word for all nodes, or one for each in order
    /// [default: strict]
    #[arg(long, value_name = "WORD", env = RESTART_TRUST_VARIABLE, hide_env_values = true, value_delimiter = ',', value_enum)]
    pub(crate) restart_trust: Vec<RestartTrustWord>,

    /// How long a node may take to answer; waited out only while too few of the others vote
    /// [default: 1s]
    #[arg(long, value_name = "TIME", env = RESPONSE_TIMEOUT_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) response_timeout: Option<Duration>,

    /// How long a connection and its handshake may take [default: 5s]
    #[arg(long, value_name = "TIME", env = CONNECT_TIMEOUT_VARIABLE, hide_env_values = true, value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<Duration>,
}

/// A [`RestartTrust`] as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartTrustWord {
    /// A node that was restarted is quarantined, whatever it has kept
    Strict,
    /// It syncs every write to its disk (appendfsync always): what it has kept is believed
    Durable,
    /// Its user may not run INFO: a restart with old data goes unseen
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

/// A [`RestartGuard`] as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartGuardWord {
    /// A node that may have forgotten locks does not vote until they are over
    On,
    /// It votes at once: a lock that it forgot can be held twice
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

/// How a lock is asked for.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Give up when the lock was not free within this time [default: wait without limit]
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: one attempt
    #[arg(long = "try", short = 'n', conflicts_with = "wait")]
    pub(crate) try_once: bool,

    /// Make no notes on standard error of what is waited for, what is missing and what is kept; why it failed,
    /// and what becomes of a lock that is lost or may stay taken, is said all the same
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Exit status when somebody else holds the lock
    #[arg(long, short = 'E', value_name = "N", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,

    /// Whether nodes have to prove that they remember every lock
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    /// If no node has a restart guard, take all of them for new, as `redbolt init` does: for nodes that were
    /// just made, such as those of a test
    #[arg(long)]
    pub(crate) new_nodes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = LOCK_HELP, override_usage = LOCK_USAGE)]
pub(crate) struct LockArgs {
    /// How long the nodes keep the lock should redbolt vanish; extended every third of it, so that it must
    /// be four round trips at least
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// Hold the lock for one TTL and no longer; the command must end before
    #[arg(long)]
    pub(crate) no_extend: bool,

    /// Time between the command's SIGTERM and SIGKILL when the lock is lost, at most TTL/3
    /// [default: TTL/4]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// Keep the lock taken for that long, also if the command ends sooner
    #[arg(long, value_name = "TIME", conflicts_with = "no_extend", value_parser = duration::parse)]
    pub(crate) at_least: Option<Duration>,

    /// Give the command a fencing token: a number that grows from one holder to the next, for
    /// whatever it writes to
    #[arg(long)]
    pub(crate) fencing: bool,

    /// Run this line with /bin/sh instead of CMD
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub(crate) shell_line: Option<OsString>,

    /// The name to lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    /// The command to run, with its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell_line")]
    pub(crate) command: Vec<OsString>,

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

    /// The time from SIGTERM to SIGKILL, or why the one that was asked for cannot be.
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
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct AcquireArgs {
    /// Where to write what it takes to extend and release the lock; for nobody else's eyes
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// How long the nodes keep the lock unless it is extended: nobody else does that
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) request: RequestArgs,

    /// Print a fencing token: a number that grows from one holder to the next, for whatever the
    /// script writes to
    #[arg(long)]
    pub(crate) fencing: bool,

    /// The name to lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = EXTEND_HELP)]
pub(crate) struct ExtendArgs {
    /// What `redbolt acquire` has written
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    /// For how long from now; never shortens what is left [default: the TTL of `acquire`]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct ReleaseArgs {
    /// What `redbolt acquire` has written; it is removed
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = UNLOCK_HELP)]
pub(crate) struct UnlockArgs {
    /// Do it. Without, only show whose lock it would be
    #[arg(long)]
    pub(crate) force: bool,

    /// Delete what is there also if it is no lock of redbolt
    #[arg(long, requires = "force")]
    pub(crate) foreign: bool,

    /// The name of the lock
    #[arg(value_parser = OsStringValueParser::new().try_map(some_bytes))]
    pub(crate) key: OsString,

    #[command(flatten)]
    pub(crate) nodes: Nodes,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Whether to look at the nodes' restart guards as well
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    /// The name of the lock; without one, show how the nodes are
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
    /// How many locks are under way at a time, each on a key of its own
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=MAX_CONCURRENCY))]
    pub(crate) concurrency: u16,

    /// For how long to measure, up to 1h
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = measured_for)]
    pub(crate) duration: Duration,

    /// For how long to do the same before without measuring, up to 1m
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = warmed_up_for)]
    pub(crate) warm_up: Duration,

    /// The TTL of each lock; what is left behind when redbolt is killed lasts no longer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    /// The length of the keys
    #[arg(long, value_name = "BYTES", default_value_t = SHORTEST_KEY, value_parser = value_parser!(u32).range(i64::from(SHORTEST_KEY)..=LONGEST_KEY))]
    pub(crate) key_size: u32,

    /// For how long to try reads before each sleep, up to 200us: for callers with a core to spare
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = duration::parse)]
    pub(crate) busy_poll: Duration,

    /// Whether nodes have to prove that they remember every lock
    #[arg(long, value_name = "WORD", default_value = "on")]
    pub(crate) restart_guard: RestartGuardWord,

    /// Measure also nodes that look as if they were in use
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
    /// The loopback port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6379)]
    pub(crate) port: u16,
}

/// What `redbolt lock` says to its shim. Not a subcommand, so that no help and no completion
/// mentions it.
#[derive(Debug, Parser)]
#[command(name = SHIM)]
pub(crate) struct ShimArgs {
    /// The process that must still be the parent
    #[arg(long)]
    pub(crate) parent: i32,

    /// Numbers of the signals to unblock
    #[arg(long)]
    pub(crate) unblock: Vec<i32>,

    /// The parent's descriptor to write to when the command cannot be run
    #[arg(long)]
    pub(crate) complain: i32,

    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// What the outer process of `redbolt lock` says to the inner one. Not a subcommand either.
#[derive(Debug, Parser)]
#[command(name = INNER)]
pub(crate) struct InnerArgs {
    /// The outer process
    #[arg(long)]
    pub(crate) outer: u32,

    /// Numbers of the signals that are blocked here, and were not before
    #[arg(long)]
    pub(crate) unblock: Vec<i32>,

    /// The descriptor to read its signals from
    #[arg(long)]
    pub(crate) requests: i32,

    /// The descriptor to tell it of the lease
    #[arg(long)]
    pub(crate) notices: i32,

    /// What the user has typed behind `redbolt`
    #[arg(required = true, last = true)]
    pub(crate) words: Vec<OsString>,
}

impl InnerArgs {
    /// What the user has typed.
    pub(crate) fn cli(&self) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(
            [OsStr::new("redbolt")].into_iter().chain(self.words.iter().map(OsString::as_os_str)),
        )
    }
}

/// Names the environment in a refusal of a value that it gave, where the option was not typed.
pub(crate) fn blame_environment(mut refusal: clap::Error, words: &[OsString]) -> clap::Error {
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (refusal.get(ContextKind::InvalidArg), refusal.get(ContextKind::InvalidValue))
    else {
        return refusal;
    };
    let option = option.split([' ', '=']).next().unwrap_or_default();
    let is_typed = |word: &OsString| {
        let rest = word.as_encoded_bytes().strip_prefix(option.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
    };
    let variable =
        VARIABLES.iter().find(|(name, _)| *name == option).map(|(_, variable)| *variable);
    let said = variable.and_then(|variable| env::var(variable).ok()).unwrap_or_default();
    if let Some(variable) = variable
        && !typed(words).iter().take_while(|&word| word != "--").any(is_typed)
        && (said == *value || said.split(',').any(|part| part == value))
    {
        let blamed = ContextValue::String(format!("{variable} in the environment"));
        refusal.insert(ContextKind::InvalidArg, blamed);
    }
    refusal
}

/// What the user has typed behind `redbolt`. The inner process has it behind words of its own.
fn typed(words: &[OsString]) -> &[OsString] {
    let own = match words.get(1) {
        Some(word) if word == INNER => words.iter().position(|word| word == "--"),
        _ => Some(0),
    };
    own.map_or(&[], |own| &words[own + 1..])
}

/// Options that the environment can give, and what it calls them.
const VARIABLES: [(&str, &str); 5] = [
    ("--max-ttl", MAX_TTL_VARIABLE),
    ("--restart-guard-key", RESTART_GUARD_KEY_VARIABLE),
    ("--restart-trust", RESTART_TRUST_VARIABLE),
    ("--response-timeout", RESPONSE_TIMEOUT_VARIABLE),
    ("--connect-timeout", CONNECT_TIMEOUT_VARIABLE),
];

fn some_bytes(key: OsString) -> Result<OsString, &'static str> {
    if key.is_empty() { Err("the name of a lock cannot be empty") } else { Ok(key) }
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

/// The most locks that `bench` has under way: what two processors can keep busy many times over, and far
/// below what one connection takes.
const MAX_CONCURRENCY: i64 = 4096;

/// The prefix of `bench`, its random part and a number.
pub(crate) const SHORTEST_KEY: u32 = 36;

/// The longest that the library takes.
const LONGEST_KEY: i64 = MAX_RESOURCE as i64;

/// The first word of the shim's command line, in place of a subcommand.
pub(crate) const SHIM: &str = "__exec";

/// That of the inner process of `redbolt lock`.
pub(crate) const INNER: &str = "__inner";

/// Where options can come from as well.
pub(crate) const NODES_VARIABLE: &str = "REDBOLT_NODES";
pub(crate) const NODES_FILE_VARIABLE: &str = "REDBOLT_NODES_FILE";
pub(crate) const MAX_TTL_VARIABLE: &str = "REDBOLT_MAX_TTL";
pub(crate) const RESTART_GUARD_KEY_VARIABLE: &str = "REDBOLT_RESTART_GUARD_KEY";
pub(crate) const RESTART_TRUST_VARIABLE: &str = "REDBOLT_RESTART_TRUST";
pub(crate) const RESPONSE_TIMEOUT_VARIABLE: &str = "REDBOLT_RESPONSE_TIMEOUT";
pub(crate) const CONNECT_TIMEOUT_VARIABLE: &str = "REDBOLT_CONNECT_TIMEOUT";

const NODE_HELP: &str = "\
A node: host, host:port, redis://[user[:password]@]host[:port][/db] or unix:///path. Give it once \
for each node [env: REDBOLT_NODES, with commas between them]";

const NODES_FILE_HELP: &str = "\
A file of nodes in place of --node, one a line; a line that begins with # is a comment. Refused when \
others can read it, for it may have passwords [env: REDBOLT_NODES_FILE]";

const FIRST_STEPS: &str = "\
First steps:
  redbolt demo                          see it work, no server needed
  redbolt node --port 7001              or start a node to play with, and in another shell:
  redbolt init --node 127.0.0.1:7001    it is new; once in its life
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
that it started get SIGTERM, then SIGKILL. SIGINT, SIGTERM and SIGHUP are passed on to it. The lock
is let go when the command has ended; what it leaves running in the background is not waited for.

A lock that is known to be lost brings SIGTERM at once, and SIGKILL after --kill-after. One that
cannot be extended ends with what is left of its TTL, of which 1 % and 2 ms are not relied on.
SIGKILL comes before that by a reserve, since whoever kills may be late on a busy machine: 5/32 of
the TTL, and never more than 313 ms. SIGTERM comes --kill-after before SIGKILL. So with --no-extend
--ttl 1s the command gets SIGTERM after 0.58 s and SIGKILL after 0.83 s; with --ttl 10s after 7.1 s
and 9.6 s.

redbolt is two processes here, and `kill -9` of either changes nothing of that: the other one ends
the command, and all that it started, while the lock lasts. If redbolt itself is killed, the lock is
let go as soon as they have ended. What remains: if both processes are killed at once, only the
command itself gets SIGTERM, and what ignores it goes on; if both are stopped at once and the
command is not, it runs on until one of them continues.

The command finds REDBOLT_KEY and REDBOLT_TTL_MS in its environment, and with --fencing also
REDBOLT_FENCING_TOKEN, but not REDBOLT_NODES if there is a password in it. The store that the
command writes to should keep the largest token that it has seen, and refuse whoever comes with a
smaller one: that one was paused, and its lock is over.

With --at-least the lock stays taken for so long after it was granted, whatever the command does and
however it ends: so a job that cron starts on many hosts at once runs on one of them, though their
clocks differ and the job is short. As soon as the command has ended, redbolt lets the nodes keep
the lock for the rest of the time, and exits with the command's status; it stays only for what is
longer than --max-ttl. It may stay taken for up to one TTL longer. While the command runs nothing
but redbolt keeps it: should redbolt be killed, or its host die, the lock ends after --ttl, not
after --at-least. If CMD cannot be run at all, nothing has happened, and the lock is let go.

Without --wait it waits without limit: for the holder, and as well for nodes that do not answer,
which it says after a second. Only what an operator alone can mend ends a wait at once, with 69: a
wrong password or role, what is forbidden, other limits.

A node that was restarted, emptied or never used does not vote for --max-ttl, since it may have
forgotten a lock; redbolt says so, and waits for it. For new nodes there is `redbolt init`.

Exit status: that of the command (128 + signal if it was killed), or
   64  wrong usage                            70  lock lost, command stopped
   69  too few nodes vote; says why           75  held by somebody else (see -E)
   71  refused by the operating system       126  CMD cannot be executed
                                             127  CMD not found

Examples:
  redbolt lock nightly -- ./backup.sh --full
  redbolt lock --try nightly -- ./backup.sh || echo 'already running'
  redbolt lock --wait 30s --ttl 20s deploy -c 'git pull && make install'
  redbolt lock --try --at-least 30s nightly -- ./report.sh      (the crontab of each host)";

const ACQUIRE_HELP: &str = "\
For a script that holds a lock over several commands. Nothing keeps the lock when redbolt has ended:
it lasts for --ttl, of which 1 % and 2 ms are not to be relied on. Choose a TTL (up to --max-ttl,
which is 30s unless everybody says otherwise) that covers the script, or call `redbolt extend`
between its steps and stop when it fails. Where one command can do all the work, `redbolt lock` is
safer: it extends by itself, and stops the command when the lock is lost.

FILE is new, or empty, or what is left of a lock that is over; one of a lock that still lives is
refused. It has mode 0600. Whoever can read it can release the lock, so it is refused later if
others can. The lock can be extended and released on this machine only, and not after it was started
anew: it is lost then.

With --fencing the fencing token is printed on standard output.

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
The nodes must be given as to `redbolt acquire`, in the same order.

Exit status: 0 when it is held for another TTL, or
   64  wrong usage, FILE cannot be used       70  the lock is lost: stop what it protects
   69  too few nodes confirm; says how        71  refused by the operating system
       long the lock still lasts";

const RELEASE_HELP: &str = "\
The nodes must be given as to `redbolt acquire`, in the same order. FILE is removed when a quorum of
the nodes has confirmed the release, and when the lock was lost before. If too few nodes confirm it
stays, so that it can be tried again until the TTL is over.

Exit status: 0 when the lock was held until now and is let go, or
   64  wrong usage, FILE cannot be used       70  the lock was lost before: what it protected may
   69  too few nodes confirm that, or that        have been in other hands
       it was held until now; says why        71  refused by the operating system";

const UNLOCK_HELP: &str = "\
For a holder that hangs, or that left without letting go and with a long TTL. It looks who holds the
lock on every node, deletes just that, and says whose lock it broke: by label, and by a short hash
that is the same on all nodes. Whoever takes the lock meanwhile keeps it. The holder is not asked.
It goes on until it looks, so make sure that it is gone, or that what it writes to checks its
fencing token.

What is no lock of redbolt is left alone: another program keeps it there, as a lock of its own or as
data. It is shown by its type, and deleted only with --foreign.

Exit status: 0 when a quorum of the nodes no longer has what was there, 69 when too few nodes
answer, 64 without --force, for what is no lock of redbolt, and for wrong usage.";

const STATUS_HELP: &str = "\
It takes no lock and writes nothing. A node's line says who holds the lock there, whether its
restart guard lets it vote, and how long its answer took. A name is shown on one line, with \\n or
\\xff for what has no place there; --json has its bytes in key_hex, and null for key where it is not
UTF-8.

Without KEY a node's line says whether it votes and if not why, whether it tells those who wait of a
release (which needs a second connection), and how long its answer took.

Exit status: 0 when a quorum of the nodes agrees that the lock is held, free, or no lock of redbolt;
without KEY, when a quorum votes. 69 otherwise, 64 for wrong usage.";

const INIT_HELP: &str = "\
A node without a restart guard is either new or has lost its memory, and redbolt cannot tell which.
So it does not vote for --max-ttl, until every lock that it may have forgotten is over. `init` says
that these nodes never held a lock: they vote at once. Run it once in their life, with all nodes and
with the --max-ttl that everybody will use. Never put it into a start script: a node that lost its
memory in a restart looks new too, and would be believed. It asks nothing, and writes nothing unless
all nodes answer and none of them votes.

With --change it gives nodes that are in use another --max-ttl, or another number of nodes. Give
everybody the new options as well. No node votes until the longer of both --max-ttl is over, and all
connections to the nodes are closed; keep the nodes up until then. If it fails, run it again until
it succeeds: with only some of the nodes moved, old and new users might both find a quorum.

Exit status: 0 when it is done, 64 for nodes that are not new, 69 when a node does not answer or
cannot be set up.

Examples:
  redbolt init --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
  redbolt init --change --max-ttl 2m";

const BENCH_HELP: &str = "\
Takes locks and releases them at once, each on a key of its own, and tells how long that takes from
this host: the acquisition, which is over when a quorum has granted; the release, which is over when
a quorum has confirmed it; and the pair of both. With --concurrency 8 eight locks are under way at a
time; each begins anew when it is released, so that slow nodes are asked less often.

In the table of nodes: how many answers each gave, the mean time to an answer, the bounds within
which half of them and 99 % of them came, and in how many of the locks its grant was there in time
to count. All is done by one thread, with the library's Driver in an event loop, the same for one
lock and for many. `client CPU` is the time of that thread on a processor.

Keys are named redbolt:bench:RANDOM:NUMBER, and nothing else is written, no restart guards either:
nodes that are new need `redbolt init` before. Ctrl-C ends it early: all locks are released, and
what was measured until then is told.

Nodes that look as if they were in use (they have keys, replicas, or more than one other client) are
left alone unless --yes is given. Do not measure while others depend on these servers.

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
    fn what_the_user_has_typed_is_behind_the_words_of_the_inner_process() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(typed(&words("redbolt status --max-ttl x")), words("status --max-ttl x"));
        let inner = words("redbolt __inner --outer 7 -- lock --max-ttl x job -- a");
        assert_eq!(typed(&inner), words("lock --max-ttl x job -- a"));
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

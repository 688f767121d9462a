//! `redbolt lock`: take the lock, run the command, keep the lock, let go.
//!
//! Each part is in a file of its own: how long to wait ([`patience`]) and waiting ([`mod@line`]), what to
//! do while the command runs ([`keeper`], a state machine) and doing it ([`supervise`]), how the
//! command is started ([`command`], [`shim`]) and why it stays in redbolt's process group
//! ([`family`]), what `--at-least` does when it has ended ([`linger`]); and `redbolt acquire`, which waits the
//! same way ([`acquire`]). This file joins them and knows the exit statuses.

pub(crate) mod acquire;
mod command;
mod family;
mod keeper;
mod lease;
mod line;
mod linger;
mod patience;
mod poller;
pub(crate) mod shim;
mod supervise;
mod watch;

use std::ffi::OsStr;
use std::process;
use std::time::Duration;

use nix::sys::signal::Signal;
use redbolt::{Config, Wait};

use self::keeper::Terms;
use self::lease::{Lease, Wanted};
use self::line::{Line, Outcome};
use self::linger::{Rest, linger};
use self::patience::Patience;
use self::poller::{Poller, now};
use self::supervise::{Ended, Supervisor};
use crate::args::{AskArgs, LockArgs, Nodes};
use crate::exit::{self, Failure};
use crate::say::say;
use crate::signals::Signals;
use crate::{name, nodes};

/// Runs the command of `args` under its lock. The exit status.
pub(crate) fn run(args: &LockArgs) -> Result<u8, Failure> {
    let kill_after = args.grace().map_err(Failure::usage)?;
    let terms = Terms { ttl: args.ttl, kill_after, extend: !args.no_extend };
    let config = config(&args.ask, &args.nodes, args.ttl, process::id())?;
    let signals = Signals::block()?;
    if signals.is_ignored(Signal::SIGCHLD) {
        return Err(Failure::system(NO_SIGCHLD));
    }
    let poller = Poller::new(signals)?;
    let wanted = Wanted { key: &args.key, ttl: args.ttl, fenced: args.fence };
    let mut lease = Lease::new(config, &wanted, &args.nodes)?;
    let ended = wait_and_run(&mut lease, args, &poller, terms);
    let confirmed = lease.let_go(&poller)?;
    match ended? {
        Ended::Lost => Ok(exit::LOST),
        Ended::Kept { status } | Ended::NotBegun { status } => Ok(status),
        Ended::Itself { status } | Ended::NotRun { status } => {
            if !confirmed {
                say(UNCONFIRMED);
            }
            Ok(status)
        }
    }
}

fn wait_and_run(
    lease: &mut Lease,
    args: &LockArgs,
    poller: &Poller,
    terms: Terms,
) -> Result<Ended, Failure> {
    if let Some(status) = wait(lease, &args.ask, &args.key, poller)? {
        return Ok(Ended::NotBegun { status });
    }
    let since = now()?;
    let ended = Supervisor::start(lease, poller, args, terms)?.run()?;
    if let (Some(at_least), &Ended::Itself { status }) = (args.at_least, &ended)
        && linger(lease, poller, since.saturating_add(at_least))? == Rest::Kept
    {
        lease.hear_answers(poller)?;
        lease.hand_out();
        return Ok(Ended::Kept { status });
    }
    Ok(ended)
}

/// A configuration for somebody who takes locks, who is the process `holder`.
fn config(ask: &AskArgs, nodes: &Nodes, ttl: Duration, holder: u32) -> Result<Config, Failure> {
    let answer_within = (ttl / 20).clamp(ANSWER_WITHIN.0, ANSWER_WITHIN.1);
    let builder = nodes::builder_for(nodes, holder)?.answer_within(answer_within);
    let builder = builder.guard(ask.guard.into());
    let builder = if ask.new_nodes { builder.new_nodes() } else { builder };
    nodes::build(builder, nodes)
}

/// Waits until the lock is granted. If it is not, the status that says why.
fn wait(
    lease: &mut Lease,
    ask: &AskArgs,
    key: &OsStr,
    poller: &Poller,
) -> Result<Option<u8>, Failure> {
    let once = ask.try_once || ask.wait.is_some_and(|wait| wait.is_zero());
    lease.ask(if once { Wait::Try } else { Wait::Forever }).map_err(Failure::usage)?;
    let patience = Patience::new(ask.wait.filter(|_| !once), now()?);
    let status = match Line::join(lease, poller, patience)?.wait()? {
        // Between the grant and here this process may have been stopped for long.
        Outcome::Granted if lease.remaining().is_zero() => {
            say("the lock ran out before it could be used");
            exit::LOST
        }
        Outcome::Granted => return Ok(None),
        Outcome::Interrupted(signal) => exit::killed_by(signal as i32),
        Outcome::Contended(who) => {
            say(format_args!("{} is held by {who}", name::show(key)));
            ask.conflict_exit_code
        }
        Outcome::NoQuorum(why) => {
            say(why);
            exit::NO_QUORUM
        }
    };
    Ok(Some(status))
}

/// How long a node may take to answer: a twentieth of the TTL, within these bounds. Generous,
/// since it costs time only where nodes fail, and nobody tunes a shell command to its network.
const ANSWER_WITHIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

const UNCONFIRMED: &str = "warning: too few nodes confirmed the release; the lock may stay taken \
    until its TTL is over";

/// The kernel forgets the statuses of children whose end their parent ignores.
const NO_SIGCHLD: &str = "SIGCHLD is ignored here, so the command's exit status could not be had; \
    start redbolt with `env --default-signal=CHLD`";

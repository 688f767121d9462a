//! `redbolt lock`: acquires the lock, runs the command, extends the lock and releases it. `redbolt
//! lead` does the same for a leader's lock, and campaigns again after losing it.
//!
//! Two processes share the work, so that one remains if the other is killed ([`pair`]). The caller
//! starts a thin outer process ([`outer`], with [`backstop`] in case the inner process fails). The
//! inner process does the work, in this module.
//!
//! | file | part |
//! |---|---|
//! | [`patience`], [`waiting`] | how long to wait for the lock, and the wait itself |
//! | [`watchdog`], [`supervise`] | what to do while the command runs (a state machine), and doing it |
//! | [`command`], [`child`], [`shim`] | how the command is started |
//! | [`family`] | how it is stopped with its descendants, and why it stays in redbolt's process group |
//! | [`linger`] | `--at-least`, after the command has ended |
//! | [`minority`], [`speak`](crate::speak) | warnings about missing nodes, and messages that wait for no reader |
//! | [`acquire`] | `redbolt acquire`, which waits the same way |
//! | [`hold`], [`keeper`], [`bound`] | `redbolt hold`: its foreground and background process, and the process that it is for |
//!
//! This file connects them and chooses the exit status.

pub(crate) mod acquire;
mod backstop;
mod bound;
mod child;
mod command;
mod family;
pub(crate) mod hold;
pub(crate) mod keeper;
mod lease;
mod linger;
mod minority;
pub(crate) mod outer;
mod pair;
mod patience;
mod poller;
mod requests;
pub(crate) mod shim;
mod supervise;
mod waiting;
mod watch;
mod watchdog;

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use redbolt::{Config, LockMode, Profile, Wait};

use self::child::End;
use self::lease::{Lease, NOT_RUN, Wanted};
use self::linger::{Rest, linger};
use self::pair::{Notice, NoticeSender};
use self::patience::Patience;
use self::poller::{Poller, now};
use self::requests::Requests;
use self::supervise::{Ended, Supervisor};
use self::waiting::{Outcome, Waiting};
use self::watchdog::Terms;
use crate::args::{InnerArgs, LockArgs, Nodes, RequestArgs};
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::signals::{Callers, Mask, Signals};
use crate::speak::say;
use crate::{name, nodes};

/// Fails if `/proc` is not mounted. redbolt uses it to find its own program and the command's
/// processes.
pub(crate) fn check_proc() -> Result<(), Failure> {
    match fs::symlink_metadata("/proc/self/exe") {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::system(format_args!(
            "/proc is not mounted here, and redbolt needs it to run a command: {error}\n\
             the command was not run; to mount it: mount -t proc proc /proc"
        ))),
    }
}

/// Runs the command of `args` under its lock, in the inner process. Returns the exit status.
pub(crate) fn run(args: &LockArgs, inner: &InnerArgs) -> Result<u8, Failure> {
    let (requests, notices) = pair::inherit(inner)?;
    let kill_after = args.grace().map_err(Failure::usage)?;
    let terms = Terms { ttl: args.ttl, kill_after, extend: !args.no_extend };
    // The holder is the process that the caller started, not this one.
    let config = config(&args.request, &args.nodes, inner.outer)?;
    let callers = Callers { blocked: Mask(inner.blocked), ignores_pipe: inner.ignore_pipe };
    let poller = Poller::new(Requests::with_outer(Signals::keep_blocked(callers)?, requests))?;
    let wanted = Wanted {
        key: &args.key,
        ttl: args.ttl,
        mode: mode(args.shared, args.permits),
        fenced: args.fencing,
        profile: args.format.profile,
        quiet: args.request.quiet,
        verbose: args.nodes.verbose,
        runs_command: true,
    };
    let mut lease = Lease::new(config, &wanted, &args.nodes)?;
    let ended = wait_and_run(&mut lease, args, &poller, terms, &notices);
    let left = lease.remaining();
    let confirmed = lease.let_go(&poller)?;
    match ended? {
        Ended::Lost { .. } | Ended::Abandoned { .. } => Ok(exit::LOST),
        Ended::Kept { end } | Ended::NotBegun { end } => Ok(end.status()),
        Ended::Itself { end } | Ended::NotRun { end } => {
            if !confirmed {
                say(unconfirmed(args, left));
            }
            Ok(end.status())
        }
    }
}

fn wait_and_run(
    lease: &mut Lease,
    args: &LockArgs,
    poller: &Poller,
    terms: Terms,
    notices: &NoticeSender,
) -> Result<Ended, Failure> {
    match wait(lease, &args.request, &args.key, poller)? {
        Waited::Granted => {}
        Waited::RanOut => return Ok(not_begun(notices)),
        Waited::Ended(end) => {
            notices.send(Notice::Done { end, lost: false });
            return Ok(Ended::NotBegun { end });
        }
    }
    // A command must not start late under its lease: the grant or this process may be delayed.
    if supervise::usable(lease, terms).is_zero() {
        say(format_args!("{}: the lock ran out; {NOT_RUN}", lease.name()));
        return Ok(not_begun(notices));
    }
    let since = now()?;
    let ended = Supervisor::start(lease, poller, args, terms, notices).and_then(Supervisor::run);
    // From here on, background processes that the command left are not touched.
    let end = ended.as_ref().map_or(End::Exited(exit::SYSTEM), Ended::end);
    let lost = matches!(ended, Ok(Ended::Lost { all_ended: true }));
    notices.send(Notice::Done { end, lost });
    let ended = ended?;
    match (args.at_least, &ended) {
        (Some(at_least), &Ended::Itself { end })
            if linger(lease, poller, since.saturating_add(at_least))? == Rest::Kept =>
        {
            lease.hear_answers(poller)?;
            lease.detach();
            Ok(Ended::Kept { end })
        }
        (at_least, _) => {
            if is_left_to_its_ttl(&ended, at_least.is_some()) {
                lease.detach();
            }
            Ok(ended)
        }
    }
}

/// Reports that the lock expired before its command started.
fn not_begun(notices: &NoticeSender) -> Ended {
    let end = End::Exited(exit::LOST);
    notices.send(Notice::Done { end, lost: true });
    Ended::NotBegun { end }
}

/// Returns whether the lock is left to expire instead of being released: a process still runs under
/// it, or it must outlast redbolt.
fn is_left_to_its_ttl(ended: &Ended, has_least: bool) -> bool {
    match *ended {
        Ended::Lost { all_ended } => !all_ended,
        Ended::Abandoned { all_ended } => has_least || !all_ended,
        Ended::Itself { .. } | Ended::Kept { .. } => false,
        Ended::NotRun { .. } | Ended::NotBegun { .. } => false,
    }
}

/// Builds the configuration of a lock request. The holder is the process `holder`, unless `request`
/// has a label.
fn config(request: &RequestArgs, nodes: &Nodes, holder: u32) -> Result<Config, Failure> {
    let builder = nodes::builder_for(nodes, holder)?.restart_guard(request.restart_guard.into());
    let builder = if let Some(label) = &request.label { builder.label(label) } else { builder };
    let builder = if request.new_nodes { builder.new_nodes() } else { builder };
    nodes::build(builder, nodes)
}

/// Returns the mode of the lock.
fn mode(shared: bool, permits: Option<u16>) -> LockMode {
    match (shared, permits) {
        (_, Some(of)) => LockMode::Permit { of },
        (true, None) => LockMode::Shared,
        (false, None) => LockMode::Exclusive,
    }
}

/// The outcome of a wait for the lock.
enum Waited {
    Granted,
    /// The lock was granted but has expired already. This was reported.
    RanOut,
    /// The lock was not granted. redbolt ends this way.
    Ended(End),
}

/// Waits until the lock is granted.
fn wait(
    lease: &mut Lease,
    request: &RequestArgs,
    key: &OsStr,
    poller: &Poller,
) -> Result<Waited, Failure> {
    let once = request.try_once || request.wait.is_some_and(|wait| wait.is_zero());
    let asked = lease.request(if once { Wait::No } else { Wait::Forever });
    asked.map_err(|error| Failure::request(name::show(key), error))?;
    let patience = match once {
        true => Patience::of_one_attempt(now()?),
        false => Patience::new(request.wait, now()?),
    };
    let status = match Waiting::begin(lease, poller, patience)?.wait()? {
        // With `-q -E 0` a refusal is a success, about which cron must not send a mail.
        Outcome::Granted if lease.remaining().is_zero() => {
            say(format_args!("{}: the lock ran out before it could be used", lease.name()));
            return Ok(Waited::RanOut);
        }
        Outcome::Granted => return Ok(Waited::Granted),
        Outcome::Interrupted(signal) => return Ok(Waited::Ended(End::Killed(signal.as_raw()))),
        Outcome::Contended(who) => {
            // With -E 0 it is a success, about which cron must not send a mail.
            if !request.quiet || request.conflict_exit_code != exit::SUCCESS {
                say(format_args!("{} is held by {who}", name::show(key)));
            }
            request.conflict_exit_code
        }
        Outcome::NoQuorum(reason) => {
            say(lease.with_consequence(&reason));
            exit::NO_QUORUM
        }
    };
    Ok(Waited::Ended(End::Exited(status)))
}

/// Advice about a release that too few nodes have confirmed.
fn unconfirmed(args: &LockArgs, left: Duration) -> String {
    let profile = match args.format.profile {
        profile if profile == Profile::PLAIN => String::new(),
        profile => format!(" --profile {profile}"),
    };
    let command = nodes::command(&format!("unlock --force{profile}"), &args.nodes);
    format!(
        "warning: {}: too few nodes confirmed the release; the lock may stay taken for {}\n\
         to end it before: {command} {}",
        name::show(&args.key),
        show(left),
        name::last_word(&args.key)
    )
}

const UNCONFIRMED: &str = "warning: too few nodes confirmed the release; the lock may stay taken \
    until its TTL is over";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_under_which_somebody_goes_on_is_not_let_go() {
        for has_least in [true, false] {
            assert!(is_left_to_its_ttl(&Ended::Lost { all_ended: false }, has_least));
            assert!(is_left_to_its_ttl(&Ended::Abandoned { all_ended: false }, has_least));
            assert!(!is_left_to_its_ttl(&Ended::Lost { all_ended: true }, has_least));
            assert!(!is_left_to_its_ttl(&Ended::Itself { end: End::Exited(0) }, has_least));
        }
        assert!(is_left_to_its_ttl(&Ended::Abandoned { all_ended: true }, true));
        assert!(!is_left_to_its_ttl(&Ended::Abandoned { all_ended: true }, false));
    }
}

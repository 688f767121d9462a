//! `redbolt acquire`: acquires the lock, writes the file with which it is extended and released,
//! and leaves the lock taken.
//!
//! The wait is that of `redbolt lock`. Signals are ignored from the grant on: within milliseconds
//! either the file is written or the lock is released.

use std::io::{self, Write};
use std::os::unix::process::parent_id;

use super::Waited;
use super::child::End;
use super::lease::{Lease, Wanted};
use super::poller::Poller;
use super::requests::Requests;
use crate::args::AcquireArgs;
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::speak::say;
use crate::token_file::{self, Draft};

/// Acquires the lock of `args`. Returns the exit status.
pub(crate) fn run(args: &AcquireArgs) -> Result<u8, Failure> {
    // An end by a signal omits nothing here.
    take(args).map(End::imitate)
}

fn take(args: &AcquireArgs) -> Result<End, Failure> {
    let wanted = Wanted {
        key: &args.key,
        ttl: args.ttl,
        mode: super::mode(args.shared, args.permits),
        fenced: args.fencing,
        profile: args.format.profile,
        quiet: args.request.quiet,
        verbose: args.nodes.verbose,
        runs_command: false,
    };
    // The holder is the calling script, which continues when this process has ended.
    let config = super::config(&args.request, &args.nodes, parent_id())?;
    let poller = Poller::new(Requests::of(Signals::block()?))?;
    // From here on no signal can end this process with the lock taken.
    let draft = Draft::of_new(&args.token_file)?;
    let mut lease = Lease::new(config, &wanted, &args.nodes)?;
    let outcome = match super::wait(&mut lease, &args.request, &args.key, &poller) {
        Ok(Waited::Granted) => leave(&mut lease, &poller, args, draft).map(End::Exited),
        Ok(Waited::RanOut) => Ok(End::Exited(exit::LOST)),
        Ok(Waited::Ended(end)) => Ok(end),
        Err(failure) => Err(failure),
    };
    // This sends nothing if the lock was detached.
    lease.let_go(&poller)?;
    outcome
}

/// Hands the lock over to the file.
fn leave(
    lease: &mut Lease,
    poller: &Poller,
    args: &AcquireArgs,
    draft: Draft,
) -> Result<u8, Failure> {
    let path = &args.token_file;
    lease.hear_answers(poller)?;
    lease.tell_of_silent_minority();
    let slot = lease.slot().map(|slot| format!("{slot}\n"));
    let token = lease.fencing_token().map(|token| format!("{token}\n"));
    let told = [slot, token].into_iter().flatten().collect::<String>();
    let Some(detached) = lease.detach() else { return Ok(ran_out(lease)) };
    if let Err(error) = draft.keep(&detached) {
        lease.take_back(&detached);
        let words = format!("{}: {error}; {}: the lock is released", path.display(), lease.name());
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(words),
            _ => Failure::system(words),
        });
    }
    // The disk may have been slow.
    if detached.remaining(redbolt::net::now()).is_zero() {
        lease.take_back(&detached);
        token_file::remove(path, &detached)?;
        return Ok(ran_out(lease));
    }
    let printed = match told.as_str() {
        "" => Ok(()),
        told => io::stdout().write_all(told.as_bytes()),
    };
    if let Err(error) = printed {
        // The caller must not see a failure while the lock stays taken.
        lease.take_back(&detached);
        token_file::remove(path, &detached)?;
        return Err(Failure::system(format_args!(
            "standard output: {error}; {}: the lock is released",
            lease.name()
        )));
    }
    Ok(exit::SUCCESS)
}

fn ran_out(lease: &Lease) -> u8 {
    say(format_args!("{}: the lock ran out before it was written down", lease.name()));
    exit::LOST
}

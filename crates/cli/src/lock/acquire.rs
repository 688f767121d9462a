//! `redbolt acquire`: take the lock, write down what it takes to go on with it, and leave it taken.
//!
//! The wait is that of `redbolt lock`. From the grant on signals are not listened to: what follows is a
//! few milliseconds, and it ends with a file that says whose the lock is, or without the lock.

use std::io::{self, Write};
use std::os::unix::process::parent_id;

use super::lease::{Lease, Wanted};
use super::poller::Poller;
use super::requests::Requests;
use super::speak::say;
use crate::args::AcquireArgs;
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::token_file::{self, Draft};

/// Takes the lock of `args`. The exit status.
pub(crate) fn run(args: &AcquireArgs) -> Result<u8, Failure> {
    let wanted =
        Wanted { key: &args.key, ttl: args.ttl, fenced: args.fencing, quiet: args.request.quiet };
    // Who holds the lock when this process has ended: the script that runs it.
    let config = super::config(&args.request, &args.nodes, parent_id())?;
    let poller = Poller::new(Requests::of(Signals::block()?))?;
    // From here on no signal can leave it behind.
    let draft = Draft::of_new(&args.token_file)?;
    let mut lease = Lease::new(config, &wanted, &args.nodes)?;
    let outcome = match super::wait(&mut lease, &args.request, &args.key, &poller) {
        Ok(None) => leave(&mut lease, &poller, args, draft),
        Ok(Some(status)) => Ok(status),
        Err(failure) => Err(failure),
    };
    // Nothing, once the lock has left.
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
    let token = lease.fencing_token();
    let Some(detached) = lease.detach() else { return Ok(ran_out()) };
    if let Err(error) = draft.keep(&detached) {
        lease.take_back(&detached);
        let words = format!("{}: {error}; the lock is let go", path.display());
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(words),
            _ => Failure::system(words),
        });
    }
    // A disk may take its time.
    if detached.remaining(redbolt::net::now()).is_zero() {
        lease.take_back(&detached);
        token_file::remove(path, &detached)?;
        return Ok(ran_out());
    }
    let printed =
        token.map_or(Ok(()), |token| io::stdout().write_all(format!("{token}\n").as_bytes()));
    if let Err(error) = printed {
        // Whoever called us must not believe that it failed while the lock is taken.
        lease.take_back(&detached);
        token_file::remove(path, &detached)?;
        return Err(Failure::system(format_args!(
            "the fencing token: {error}; the lock is let go"
        )));
    }
    Ok(exit::SUCCESS)
}

fn ran_out() -> u8 {
    say("the lock ran out before it was written down");
    exit::LOST
}

//! `redbolt __exec`: what redbolt starts in place of the command, and what becomes it.
//!
//! Between fork and exec three things must happen that the standard library offers only through
//! unsafe code, so they happen in a program of their own, which then executes the command in the
//! same process:
//!
//! 1. ask for SIGTERM at the parent's death (Linux delivers it when the *thread* that forked ends;
//!    redbolt forks from its main thread);
//! 2. see that the parent is still there, or its death came before the wish and went unheard;
//! 3. unblock the signals that redbolt reads from a descriptor.
//!
//! When the command cannot be executed, the shim says why and exits as a shell would, with 126 or
//! 127; redbolt passes that on like any other status. A command may end with these as well, so the shim
//! tells redbolt, through a pipe, that nothing was run.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid};

use super::speak::say;
use crate::args::ShimArgs;
use crate::exit;

/// Becomes the command; returns only if that fails.
pub(crate) fn exec(args: &ShimArgs) -> u8 {
    let Some((program, rest)) = args.command.split_first() else { return exit::USAGE };
    if let Err(error) = prepare(args) {
        say(format_args!("cannot prepare {}: {error}", program.display()));
        complain(args);
        return exit::SYSTEM;
    }
    let error = Command::new(program).args(rest).exec();
    say(format_args!("cannot run {}: {error}", program.display()));
    complain(args);
    match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    }
}

/// Opened only now, so that no command inherits it.
fn complain(args: &ShimArgs) {
    let pipe = format!("/proc/{}/fd/{}", args.parent, args.complain);
    // Unheard, the lock is kept as if something had run, which is safe.
    let _ = OpenOptions::new().write(true).open(pipe).and_then(|mut pipe| pipe.write_all(b"!"));
}

fn prepare(args: &ShimArgs) -> io::Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    if getppid() != Pid::from_raw(args.parent) {
        return Err(io::Error::other("redbolt is gone"));
    }
    let ours = args.unblock.iter().filter_map(|&number| Signal::try_from(number).ok());
    ours.collect::<SigSet>().thread_unblock()?;
    Ok(())
}

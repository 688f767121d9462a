//! `redbolt __exec`: the program that redbolt starts, and that then becomes the command.
//!
//! Three things must happen between fork and exec. The standard library offers that only through
//! unsafe code, so a separate program does them, and then executes the command in the same process:
//!
//! 1. request SIGTERM at the parent's death (Linux sends it when the *thread* that forked ends; redbolt forks from its
//!    main thread);
//! 2. check that the parent still exists, since it may have died before that request;
//! 3. restore what the caller has set: redbolt blocks all signals, and the runtime of Rust programs ignores SIGPIPE.
//!
//! If the command cannot be executed, the shim reports why and exits with 126 or 127, as a shell
//! would. redbolt passes the status on. Commands can exit with these numbers too, so the shim also
//! reports through a pipe that nothing was run.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, execvp, getppid};

use crate::args::ShimArgs;
use crate::exit;
use crate::signals::{Mask, Signals};
use crate::speak::say;

/// Becomes the command. Returns only if that fails.
pub(crate) fn exec(args: &ShimArgs) -> u8 {
    let Some((program, rest)) = args.command.split_first() else { return exit::USAGE };
    if let Err(error) = prepare(args) {
        say(format_args!("cannot prepare {}: {error}", program.display()));
        complain(args);
        return exit::SYSTEM;
    }
    let error = match args.ignore_pipe {
        true => exec_as_we_are(&args.command),
        // This restores the default action of SIGPIPE.
        false => Command::new(program).args(rest).exec(),
    };
    // Standard error may be a file that has reached its limit.
    let _ = Signals::block();
    say(format_args!("cannot run {}: {error}", program.display()));
    complain(args);
    match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    }
}

/// Becomes the command, which ignores SIGPIPE as this process does.
fn exec_as_we_are(words: &[OsString]) -> io::Error {
    let words: Result<Vec<_>, _> = words.iter().map(|word| CString::new(word.as_bytes())).collect();
    match words.map(|words| execvp(&words[0], &words)) {
        Ok(Err(error)) => error.into(),
        Ok(Ok(never)) => match never {},
        Err(error) => error.into(),
    }
}

/// Reports that nothing was run. The pipe is opened only now, so that no command inherits it.
fn complain(args: &ShimArgs) {
    let pipe = format!("/proc/{}/fd/{}", args.parent, args.complain);
    // If this fails, the lock is treated as if a command had run, which is safe.
    let _ = OpenOptions::new().write(true).open(pipe).and_then(|mut pipe| pipe.write_all(b"!"));
}

fn prepare(args: &ShimArgs) -> io::Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    if getppid() != Pid::from_raw(args.parent) {
        return Err(io::Error::other("redbolt is gone"));
    }
    Mask(args.blocked).unblock_others()
}

//! The command that runs under the lock: how it is started, and how its end is heard.
//!
//! It runs where redbolt runs: same session, same process group, same terminal. See
//! [`family`](super::family) for why.

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redbolt::FencingToken;

use super::child::{Child, End};
use crate::addresses;
use crate::args::{LockArgs, NODES_VARIABLE, SHIM};
use crate::signals::Signals;

/// A command that was started.
#[derive(Debug)]
pub(super) struct Command {
    child: Child,
    complaint: Complaint,
}

/// A pipe that the shim opens, and writes to, if it cannot become the command.
#[derive(Debug)]
struct Complaint {
    reader: PipeReader,
    writer: Option<PipeWriter>,
}

impl Complaint {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer: Some(writer) })
    }

    /// Whether it came. The shim must have ended.
    fn is_there(&mut self) -> bool {
        // With the last writer gone, a pipe ends, and reading waits for nothing.
        self.writer = None;
        self.reader.read(&mut [0]).is_ok_and(|bytes| bytes > 0)
    }
}

impl Command {
    /// Starts the command of `args`, through the shim.
    pub(super) fn start(
        args: &LockArgs,
        token: Option<FencingToken>,
        signals: &Signals,
    ) -> io::Result<Self> {
        let complaint = Complaint::new()?;
        let mut command = process::Command::new("/proc/self/exe");
        command
            .arg0("redbolt")
            .arg(SHIM)
            .args(["--parent", &process::id().to_string()])
            .args(signals.to_unblock().iter().map(|signal| format!("--unblock={signal}")))
            .args(
                complaint
                    .writer
                    .iter()
                    .flat_map(|writer| ["--complain".to_owned(), writer.as_raw_fd().to_string()]),
            )
            .arg(OsStr::new("--"))
            .args(args.words())
            .env("REDBOLT_KEY", &args.key)
            .env("REDBOLT_TTL_MS", args.ttl.as_millis().to_string());
        if addresses::environment_is_secret() {
            command.env_remove(NODES_VARIABLE);
        }
        match token {
            Some(token) => command.env(FENCING_TOKEN, token.to_string()),
            // One that redbolt was started with is of another lock.
            None => command.env_remove(FENCING_TOKEN),
        };
        let child = command.spawn()?;
        Ok(Self { child: Child::of(child)?, complaint })
    }

    /// Whether it was run at all, once it has ended.
    pub(super) fn was_run(&mut self) -> bool {
        !self.complaint.is_there()
    }

    /// The process that was started.
    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// The exit status to pass on, once the command has ended.
    pub(super) fn status(&self) -> Option<u8> {
        self.child.end().map(End::status)
    }

    /// Hears of every process that has ended: the command, and orphans that it left to us.
    /// Whether any child is left.
    pub(super) fn reap(&mut self) -> bool {
        self.child.reap()
    }

    /// Passes a signal on, unless the command has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if self.child.end().is_none() {
            // It may be ending at this moment, or run as somebody else; both are its right.
            let _ = kill(self.pid(), signal);
        }
    }
}

const FENCING_TOKEN: &str = "REDBOLT_FENCING_TOKEN";

//! Starts the command that runs under the lock, and reports its end.
//!
//! The command runs in redbolt's session, process group and terminal, for reasons given in
//! [`family`](super::family).

use std::ffi::OsStr;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process;

use nix::unistd::{getpgid, getpgrp};

use super::child::{Child, End};
use super::lease::Lease;
use super::requests::Arrival;
use crate::addresses;
use crate::args::{LockArgs, SHIM};
use crate::signals::Signals;
use crate::variables::NODES_VARIABLE;

/// A command that was started.
#[derive(Debug)]
pub(super) struct Command {
    child: Child,
    complaint: Complaint,
}

/// A pipe that the shim opens and writes to if it cannot become the command.
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

    /// Returns whether the shim has written to the pipe. Call it after the shim has ended.
    fn is_there(&mut self) -> bool {
        // With the last writer closed, the read ends at once.
        self.writer = None;
        self.reader.read(&mut [0]).is_ok_and(|bytes| bytes > 0)
    }
}

impl Command {
    /// Starts the command of `args`, through the shim.
    pub(super) fn start(args: &LockArgs, lease: &Lease, signals: &Signals) -> io::Result<Self> {
        let complaint = Complaint::new()?;
        let mut command = process::Command::new("/proc/self/exe");
        command
            .arg0("redbolt")
            .arg(SHIM)
            .args(["--parent", &process::id().to_string()])
            .args(signals.callers().options())
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
        let its = if args.leads { TERM } else { FENCING_TOKEN };
        let of_lock = [
            (its, lease.fencing_token().map(|token| token.to_string())),
            (SLOT, lease.slot().map(|slot| slot.to_string())),
        ];
        for (name, value) in of_lock {
            match value {
                Some(value) => command.env(name, value),
                // The variable that redbolt itself inherited belongs to another lock.
                None => command.env_remove(name),
            };
        }
        let child = signals.spawn(&mut command)?;
        Ok(Self { child: Child::of(child)?, complaint })
    }

    /// Returns whether the command was executed. Call it after its process has ended.
    pub(super) fn was_run(&mut self) -> bool {
        !self.complaint.is_there()
    }

    /// Returns the process that was started.
    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    /// Returns the command's process, to reap or kill it.
    pub(super) fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns how the command ended, or `None` while it runs.
    pub(super) fn end(&self) -> Option<End> {
        self.child.end()
    }

    /// Reaps every child that has ended: the command, and orphans that it left to this process.
    /// Returns whether any child is left.
    pub(super) fn reap(&mut self) -> bool {
        self.child.reap()
    }

    /// Passes a signal on, unless the command has received it already or has ended.
    pub(super) fn pass_on(&self, arrival: Arrival) {
        let pid = self.child.pid();
        let is_in_group = || getpgid(Some(pid)) == Ok(getpgrp());
        if !arrival.has_reached(pid, is_in_group) {
            self.child.signal(arrival.request.signal);
        }
    }
}

const FENCING_TOKEN: &str = "REDBOLT_FENCING_TOKEN";
const SLOT: &str = "REDBOLT_SLOT";

/// A leader's fencing token. A command that leads may take other locks, whose tokens use the other
/// name.
const TERM: &str = "REDBOLT_TERM";

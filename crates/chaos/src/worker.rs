//! The director's handle of a worker process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::part::{Part, Role};
use crate::stage::Failure;
use crate::wire::{Order, Report};

/// A worker process. Dropping the handle kills it.
///
/// It also dies with the thread that started it.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    reports: Receiver<Result<Report, Failure>>,
    reader: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(program: &Path, part: &Part) -> Result<Self, Failure> {
        Self::start_as(Role::Takes, program, part)
    }

    pub(crate) fn start_as(role: Role, program: &Path, part: &Part) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .args(["worker", "--role", role.word()])
            .args(["--director", &part.director.to_string()])
            .args(["--nodes", &part.nodes.join(",")])
            .args(["--max-ttl-ms", &part.max_ttl.as_millis().to_string()])
            .args(["--restart-guard", if part.guarded { "on" } else { "off" }])
            .args(["--label", &part.label])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(output)) = (orders, output) else {
            return Err("the worker has no pipes".into());
        };
        let (sender, reports) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(Report::parse(&line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, orders, reports, reader: Some(reader) })
    }

    pub(crate) fn order(&mut self, order: &Order) -> Result<(), Failure> {
        Ok(writeln!(self.orders, "{}", order.line())?)
    }

    /// Waits for the next report.
    pub(crate) fn receive(&self, within: Duration) -> Result<Report, Failure> {
        let report = self.reports.recv_timeout(within);
        report.map_err(|error| format!("no report in {within:?}: {error}"))?
    }

    /// Returns the next report, if one has arrived.
    pub(crate) fn overhear(&self) -> Result<Option<Report>, Failure> {
        match self.reports.try_recv() {
            Ok(report) => report.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("a worker has ended".into()),
        }
    }

    /// Stops it with `SIGSTOP`.
    pub(crate) fn pause(&self) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    pub(crate) fn resume(&self) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The child is not reaped yet, so the process ID is still its own; if it has ended already,
        // the signal has no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

//! The background process of `redbolt hold`: it acquires the lock, and keeps it until the process
//! that it is bound to ends.
//!
//! The lock is committed when the foreground process receives its notice. Before that, the end of
//! the foreground process ends the wait. After it, the keeper has its own session, and has closed
//! the caller's standard output, for which a shell would wait.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process;

use nix::unistd::{dup2_stderr, dup2_stdout, setsid};

use super::Waited;
use super::bound::Bound;
use super::child::End;
use super::lease::{Lease, News, Wanted};
use super::pair::{self, Notice, NoticeSender};
use super::poller::{Poller, now};
use super::requests::Requests;
use super::supervise::{held, usable};
use super::watchdog::{Action, Terms, Watchdog};
use crate::args::{HoldArgs, InnerArgs, OnLoss};
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::name::word;
use crate::signals::{Callers, Mask, Signals};
use crate::speak::say;

/// Acquires the lock of `args` and keeps it. Returns the exit status.
pub(crate) fn run(args: &HoldArgs, inner: &InnerArgs) -> Result<u8, Failure> {
    let (requests, notices) = pair::inherit(inner)?;
    let callers = Callers { blocked: Mask(inner.blocked), ignores_pipe: inner.ignore_pipe };
    let poller = Poller::new(Requests::with_outer(Signals::keep_blocked(callers)?, requests))?;
    let terms =
        Terms { ttl: args.ttl, kill_after: args.grace().map_err(Failure::usage)?, extend: true };
    let mut bound = Bound::to(i32::try_from(inner.outer).unwrap_or_default())?;
    let config = super::config(&args.request, &args.nodes, inner.outer)?;
    let mut lease = Lease::new(config, &wanted(args), &args.nodes)?;
    let ended = match super::wait(&mut lease, &args.request, &args.key, &poller)? {
        Waited::Granted => match commit(args, terms, &mut lease, &bound, &poller, notices) {
            Ok(true) => Keeper::new(&mut lease, &poller, &mut bound, args, terms)?.run(),
            Ok(false) => Ok(End::Exited(exit::LOST)),
            Err(failure) => Err(failure),
        },
        Waited::RanOut => Ok(End::Exited(exit::LOST)),
        Waited::Ended(end) => {
            notices.send(Notice::Done { end, lost: false });
            Ok(end)
        }
    };
    lease.let_go(&poller)?;
    ended.map(End::status)
}

/// Hands the lock over to the caller. Returns whether enough validity was left.
fn commit(
    args: &HoldArgs,
    terms: Terms,
    lease: &mut Lease,
    bound: &Bound,
    poller: &Poller,
    notices: NoticeSender,
) -> Result<bool, Failure> {
    lease.hear_answers(poller)?;
    lease.tell_of_silent_minority();
    // The grant may have arrived late, or this process may have been stopped since.
    if usable(lease, terms).is_zero() {
        say(format_args!("{}: the lock ran out before it could be used", lease.name()));
        return Ok(false);
    }
    tell(args, lease, bound).map_err(|error| {
        let name = lease.name();
        Failure::system(format_args!("standard output: {error}; {name}: the lock is released"))
    })?;
    notices.send(held(lease, terms));
    leave_caller()?;
    Ok(true)
}

fn wanted(args: &HoldArgs) -> Wanted<'_> {
    Wanted {
        key: &args.key,
        ttl: args.ttl,
        mode: super::mode(args.shared, args.permits),
        fenced: args.fencing,
        profile: args.format.profile,
        quiet: args.request.quiet,
        verbose: args.nodes.verbose,
        runs_command: false,
    }
}

/// Prints the caller's output: lines for a shell, or the numbers of the lock.
fn tell(args: &HoldArgs, lease: &Lease, bound: &Bound) -> io::Result<()> {
    let slot = lease.slot().map(|slot| slot.to_string());
    let token = lease.fencing_token().map(|token| token.to_string());
    let mut text = String::new();
    if args.sh {
        if args.pid.is_none() {
            text += &format!(
                "[ \"$$\" = {} ] || {{ {SUBSHELL} exit {}; }}\n",
                bound.pid(),
                exit::USAGE
            );
        }
        text += &format!("REDBOLT_KEY={}; export REDBOLT_KEY\n", word(&args.key));
        text += &format!("REDBOLT_HOLD_PID={}\n", process::id());
        for (variable, value) in [("REDBOLT_SLOT", slot), ("REDBOLT_FENCING_TOKEN", token)] {
            if let Some(value) = value {
                text += &format!("{variable}={value}; export {variable}\n");
            }
        }
    } else {
        text.extend([slot, token].into_iter().flatten().map(|number| number + "\n"));
    }
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// A check in the shell that evaluates the output. Some shells start a separate process for `$(…)`.
const SUBSHELL: &str =
    "echo 'redbolt: the lock was taken for a subshell, which has ended: give --pid $$' >&2;";

/// Leaves the caller's terminal and standard output. Standard error stays open for messages, unless
/// it is the same pipe.
fn leave_caller() -> io::Result<()> {
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    if is_one_pipe()? {
        dup2_stderr(&nothing)?;
    }
    dup2_stdout(&nothing)?;
    // It fails only for the leader of a group, which this process is not.
    let _ = setsid();
    Ok(())
}

fn is_one_pipe() -> io::Result<bool> {
    let place = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
    let [out, err] = [io::stdout().as_fd(), io::stderr().as_fd()]
        .map(|stream| File::from(stream.try_clone_to_owned()?).metadata());
    let (out, err) = (out?, err?);
    Ok(std::os::unix::fs::FileTypeExt::is_fifo(&out.file_type()) && place(&out) == place(&err))
}

/// Keeps a lock for a process.
struct Keeper<'a> {
    lease: &'a mut Lease,
    poller: &'a Poller,
    bound: &'a mut Bound,
    watchdog: Watchdog,
    terms: Terms,
    on_loss: OnLoss,
    /// Whether the loss was reported.
    told: bool,
    /// Whether all processes ended after SIGKILL.
    killed: Option<bool>,
}

impl<'a> Keeper<'a> {
    fn new(
        lease: &'a mut Lease,
        poller: &'a Poller,
        bound: &'a mut Bound,
        args: &HoldArgs,
        terms: Terms,
    ) -> io::Result<Self> {
        let watchdog = Watchdog::new(terms, now()?, lease.remaining());
        let (on_loss, told, killed) = (args.on_loss, false, None);
        Ok(Self { lease, poller, bound, watchdog, terms, on_loss, told, killed })
    }

    /// Keeps the lock until the process ends, a signal asks for the end, or the lock is lost.
    fn run(mut self) -> Result<End, Failure> {
        let ended = self.keep();
        if ended.is_err() && self.on_loss == OnLoss::Stop {
            // The lock will be released, so the process must not continue.
            self.bound.kill();
        }
        ended.map_err(Failure::from)
    }

    fn keep(&mut self) -> io::Result<End> {
        loop {
            while let Some(action) = self.watchdog.act(now()?, usable(self.lease, self.terms)) {
                self.perform(action);
            }
            self.lease.process();
            self.lease.tell_of_minority()?;
            while let Some(news) = self.lease.news() {
                self.hear(news)?;
            }
            if let Some(end) = self.end() {
                return Ok(end);
            }
            let is_asked = self.poller.requests.interruption()?.is_some();
            if is_asked && self.watchdog.loss().is_none() {
                return Ok(End::Exited(exit::SUCCESS));
            }
            self.sleep()?;
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Extend => {
                if let Err(reason) = self.lease.extend() {
                    self.watchdog.not_extended(reason.to_string());
                }
            }
            Action::Terminate if self.on_loss == OnLoss::Stop => {
                self.bound.terminate();
                let grace = show(self.terms.kill_after);
                self.explain(&format!("SIGTERM, and SIGKILL within {grace}"));
            }
            Action::Kill if self.on_loss == OnLoss::Stop => {
                if !self.bound.have_all_ended() {
                    self.killed = Some(self.bound.kill());
                    self.explain("SIGKILL");
                }
            }
            Action::Terminate | Action::Kill => self.warn(),
        }
    }

    fn hear(&mut self, news: News) -> io::Result<()> {
        match news {
            News::Extended => self.watchdog.extended(),
            News::Shortened => self.watchdog.shortened(),
            News::NotExtended(reason) => self.watchdog.not_extended(reason),
            News::Lost(reason) => {
                if let Some(action) = self.watchdog.lost(reason, now()?) {
                    self.perform(action);
                }
            }
            // Each turn reads the remaining time, which covers this.
            News::Expired => {}
            News::Granted | News::Refused { .. } | News::Released { .. } | News::Seen(_) => {}
        }
        Ok(())
    }

    /// Returns how the keeper ends, once nothing is left to do. A lost lock is not released if a
    /// process may continue under it.
    fn end(&mut self) -> Option<End> {
        if self.watchdog.loss().is_none() {
            return self.bound.has_ended().then_some(End::Exited(exit::SUCCESS));
        }
        if self.on_loss == OnLoss::Warn {
            return Some(End::Exited(exit::LOST));
        }
        if self.killed == Some(false) {
            say("its process does not die of SIGKILL; giving up on it");
            self.lease.detach();
        }
        let is_over = self.killed.is_some() || self.bound.have_all_ended();
        is_over.then_some(End::Exited(exit::LOST))
    }

    fn sleep(&self) -> io::Result<()> {
        let watchdog = self.watchdog.idle(now()?, usable(self.lease, self.terms));
        let within = [watchdog, self.lease.deadline()].into_iter().flatten().min();
        // The descriptor of a process that has ended is always readable, and would end each sleep.
        let bound = (!self.bound.has_ended()).then(|| self.bound.as_fd());
        let fds: Vec<_> = [self.lease.as_fd()].into_iter().chain(bound).collect();
        self.poller.wait(&fds, within)
    }

    /// Reports the loss once, however the lock ends after that. The process continues.
    fn warn(&mut self) {
        let is_told = mem::replace(&mut self.told, true);
        if let Some(loss) = self.watchdog.loss().filter(|_| !is_told) {
            let name = self.lease.name();
            say(format_args!("{name}: {loss}\nits process goes on without it (--on-loss warn)"));
        }
    }

    fn explain(&mut self, measure: &str) {
        if mem::replace(&mut self.told, true) {
            return say(format_args!("its process goes on: {measure}"));
        }
        if let Some(loss) = self.watchdog.loss() {
            say(format_args!("{}: {loss}\nstopping its process: {measure}", self.lease.name()));
        }
    }
}

//! The command runs, and the lease is kept, in one loop.
//!
//! One `poll` over the nodes, the signals and a timer, so that an extension never delays a release
//! nor the other way round. What to do is decided by [`Keeper`]; here it is done. Each turn looks at
//! the lease before anything else: whoever was suspended must first learn that it is over.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::command::Command;
use super::family::Family;
use super::keeper::{Action, Keeper, Loss, Terms};
use super::lease::{Lease, News};
use super::poller::{Poller, now};
use crate::args::LockArgs;
use crate::duration::show;
use crate::say::say;
use crate::signals::Sender;

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The command ended by itself, under the lock.
    Itself {
        /// The exit status to pass on.
        status: u8,
    },
    /// It did, and the nodes keep the lock for a while.
    Kept {
        /// The exit status to pass on.
        status: u8,
    },
    /// The command could not be run; nothing has happened under the lock.
    NotRun {
        /// The exit status to pass on.
        status: u8,
    },
    /// The lock ended first.
    Lost,
    /// There was no lock to run it under.
    NotBegun {
        /// The exit status that says why.
        status: u8,
    },
}

/// Watches over a command and its lease.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    lease: &'a mut Lease,
    poller: &'a Poller,
    command: Command,
    family: Family,
    keeper: Keeper,
    kill_after: Duration,
    told: bool,
    killed: bool,
}

impl<'a> Supervisor<'a> {
    /// Starts the command of `args` under `lease`.
    pub(super) fn start(
        lease: &'a mut Lease,
        poller: &'a Poller,
        args: &LockArgs,
        terms: Terms,
    ) -> io::Result<Self> {
        let family = Family::found()?;
        let keeper = Keeper::new(terms, now()?);
        let command = Command::start(args, lease.fencing_token(), &poller.signals)?;
        let kill_after = terms.kill_after;
        Ok(Self { lease, poller, command, family, keeper, kill_after, told: false, killed: false })
    }

    /// Waits for the end of the command, or brings it about when the lease ends.
    pub(super) fn run(mut self) -> io::Result<Ended> {
        let ended = self.watch();
        if ended.is_err() {
            // The lock will be let go, and nobody is left to watch over the command.
            self.family.signal(Signal::SIGKILL);
        }
        ended
    }

    fn watch(&mut self) -> io::Result<Ended> {
        loop {
            while let Some(action) = self.keeper.act(now()?, self.lease.remaining()) {
                self.perform(action)?;
            }
            self.lease.turn();
            while let Some(news) = self.lease.news() {
                self.hear(news)?;
            }
            // Before the look at the command: whatever ends behind this leaves a signal that ends the sleep.
            self.pass_on_signals();
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            self.sleep()?;
        }
    }

    fn perform(&mut self, action: Action) -> io::Result<()> {
        match action {
            Action::Extend => {
                if let Err(why) = self.lease.extend() {
                    self.keeper.not_extended(why.to_string());
                }
            }
            Action::Terminate => {
                let grace = show(self.kill_after);
                self.explain(format_args!("SIGTERM, and SIGKILL within {grace}"));
                self.family.signal(Signal::SIGTERM);
            }
            Action::Kill => {
                self.explain(format_args!("SIGKILL"));
                self.killed = true;
                self.kill_family()?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, news: News) -> io::Result<()> {
        match news {
            News::Extended => self.keeper.extended(),
            News::NotExtended(why) => self.keeper.not_extended(why),
            News::Lost(why) => {
                if let Some(action) = self.keeper.lost(why, now()?) {
                    self.perform(action)?;
                }
            }
            // The time that is left says the same, and is asked for in each turn.
            News::Expired => {}
            News::Granted | News::Refused { .. } | News::Released { .. } | News::Seen(_) => {}
        }
        Ok(())
    }

    /// A command that was told to stop has ended when nothing of its family is left, or nothing
    /// that can be stopped.
    fn ended(&mut self) -> Option<Ended> {
        self.command.reap();
        if self.keeper.loss().is_some() {
            return (self.killed || self.family.members().is_empty()).then_some(Ended::Lost);
        }
        let status = self.command.status()?;
        if self.lease.remaining().is_zero() {
            say("the command has ended, but the lock was over before that was seen");
            return Some(Ended::Lost);
        }
        Some(match self.command.was_run() {
            true => Ended::Itself { status },
            false => Ended::NotRun { status },
        })
    }

    /// What the terminal sends has reached the command as well. What the command sends to its own
    /// process group has, too.
    fn pass_on_signals(&self) {
        while let Some(request) = self.poller.signals.next() {
            let has_it = match request.from {
                Sender::Terminal => true,
                Sender::Process(pid) => pid == self.command.pid(),
            };
            if !has_it {
                self.command.signal(request.signal);
            }
        }
    }

    fn sleep(&self) -> io::Result<()> {
        let keeper = self.keeper.idle(now()?, self.lease.remaining());
        let within = [keeper, self.lease.deadline()].into_iter().flatten().min();
        self.poller.wait(&[self.lease.as_fd()], within)
    }

    /// Orphans become our children as their parents die, and one that forks at the wrong moment
    /// is found in the next round.
    fn kill_family(&mut self) -> io::Result<()> {
        for _ in 0..KILL_ROUNDS {
            let out_of_reach = self.family.signal(Signal::SIGKILL);
            if out_of_reach > 0 {
                say(format_args!("{out_of_reach} processes belong to another user; they go on"));
                return Ok(());
            }
            self.command.reap();
            if self.family.members().is_empty() {
                return Ok(());
            }
            self.poller.wait(&[], Some(KILL_PAUSE))?;
            while self.poller.signals.next().is_some() {}
        }
        say("the command does not die of SIGKILL; giving up on it");
        Ok(())
    }

    fn explain(&mut self, measure: fmt::Arguments<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return say(format_args!("the command goes on: {measure}"));
        }
        let why = match self.keeper.loss() {
            Some(Loss::Known(why)) => format!("the lock is lost: {why}"),
            Some(Loss::NotExtended(Some(why))) => format!("the lock cannot be extended: {why}"),
            Some(Loss::NotExtended(None)) => "the lock was not extended in time".to_owned(),
            Some(Loss::UsedUp) => "the TTL is used up (--no-extend)".to_owned(),
            Some(Loss::Overslept) => "the lock ran out while redbolt did not run".to_owned(),
            None => return,
        };
        say(format_args!("{why}\nstopping the command: {measure}"));
    }
}

/// Together far longer than the kernel needs, unless a process hangs in a device.
const KILL_ROUNDS: usize = 250;
const KILL_PAUSE: Duration = Duration::from_millis(20);

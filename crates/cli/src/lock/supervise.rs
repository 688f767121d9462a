//! The loop that runs the command and extends the lease.
//!
//! One `poll` waits for the nodes, the signals and a timer, so extensions and releases never delay
//! each other. [`Watchdog`] decides what to do. Each turn checks the lease first because it may
//! have expired during a suspend.
//!
//! The outer process has a deadline for the command, and stops it then. It leaves a part of the
//! lease unused, because on a busy machine it wakes late and must find the processes to kill. This
//! process leaves slightly more unused, so that it acts first and can report why the lease ends.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use redbolt::net;
use redbolt::proto::ClockReading;

use super::child::End;
use super::command::Command;
use super::family::{Family, Kill};
use super::lease::{Lease, News};
use super::pair::{Held, Notice, NoticeSender};
use super::poller::{Poller, now};
use super::requests::Arrival;
use super::watchdog::{Action, Loss, Terms, Watchdog};
use crate::args::LockArgs;
use crate::duration::show;
use crate::exit;
use crate::signals::{Signal, is_ignored};
use crate::speak::say;

/// The outcome of a supervised command.
#[derive(Debug)]
pub(super) enum Ended {
    /// The command ended by itself, under the lock.
    Itself {
        /// The end of the command.
        end: End,
    },
    /// The command ended by itself, and the nodes keep the lock for a while.
    Kept {
        /// The end of the command.
        end: End,
    },
    /// The command could not be run; nothing happened under the lock.
    NotRun {
        /// The end of the attempt.
        end: End,
    },
    /// The lock ended before the command.
    Lost {
        /// Whether all processes have ended.
        all_ended: bool,
    },
    /// The outer process ended before the command.
    Abandoned {
        /// Whether all processes have ended.
        all_ended: bool,
    },
    /// The command was not started because there was no lock.
    NotBegun {
        /// The end of redbolt.
        end: End,
    },
}

impl Ended {
    /// Returns how redbolt ends.
    pub(super) fn end(&self) -> End {
        match *self {
            Self::Itself { end }
            | Self::Kept { end }
            | Self::NotRun { end }
            | Self::NotBegun { end } => end,
            Self::Lost { .. } | Self::Abandoned { .. } => End::Exited(exit::LOST),
        }
    }
}

/// Supervises a command and its lease.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    lease: &'a mut Lease,
    poller: &'a Poller,
    command: Command,
    family: Family,
    watchdog: Watchdog,
    terms: Terms,
    notices: &'a NoticeSender,
    told: bool,
    killed: Option<Kill>,
    /// Whether a signal has arrived that stops programs, and none since that continues them.
    stop_came: bool,
}

impl<'a> Supervisor<'a> {
    /// Starts the command of `args` under `lease`.
    pub(super) fn start(
        lease: &'a mut Lease,
        poller: &'a Poller,
        args: &LockArgs,
        terms: Terms,
        notices: &'a NoticeSender,
    ) -> io::Result<Self> {
        let family = Family::found()?;
        let watchdog = Watchdog::new(terms, now()?, lease.remaining());
        notices.send(held(lease, terms));
        let command = Command::start(args, lease, &poller.requests.signals)?;
        poller.requests.command_is_started();
        let (told, killed, stop_came) = (false, None, false);
        Ok(Self {
            lease,
            poller,
            command,
            family,
            watchdog,
            terms,
            notices,
            told,
            killed,
            stop_came,
        })
    }

    /// Waits for the command to end, or ends it when the lease ends.
    pub(super) fn run(mut self) -> io::Result<Ended> {
        let ended = self.watch();
        if ended.is_err() {
            // The lock will be released, so the command must not continue unwatched.
            self.kill_family();
        }
        ended
    }

    fn watch(&mut self) -> io::Result<Ended> {
        loop {
            let is_stopped = self.stop_came && self.family.is_stopped(self.command.child());
            self.watchdog.suspend(is_stopped);
            while let Some(action) = self.watchdog.act(now()?, self.remaining()) {
                self.perform(action);
            }
            self.lease.process();
            self.lease.tell_of_minority()?;
            while let Some(news) = self.lease.news() {
                self.hear(news)?;
            }
            self.poller.requests.signals.hear_children();
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            self.pass_on_signals()?;
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
            Action::Terminate => {
                self.family.signal(self.command.child(), Signal::TERM);
                let grace = show(self.terms.kill_after);
                self.explain(format_args!("SIGTERM, and SIGKILL within {grace}"));
            }
            Action::Kill => {
                // On a busy machine redbolt may be late, and the command may have ended.
                if self.kill_family() != Kill::Needless || !self.told {
                    self.explain(format_args!("SIGKILL"));
                }
            }
        }
    }

    fn hear(&mut self, news: News) -> io::Result<()> {
        match news {
            News::Extended => {
                self.notices.send(held(self.lease, self.terms));
                self.watchdog.extended();
            }
            News::Shortened => {
                self.notices.send(held(self.lease, self.terms));
                self.watchdog.shortened();
            }
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

    /// Returns the outcome once the command has ended. After a loss, all processes of its family
    /// must have ended or been killed, except those that cannot be.
    fn ended(&mut self) -> Option<Ended> {
        let has_children = self.command.reap();
        if let Some(loss) = self.watchdog.loss() {
            let is_over =
                self.killed.is_some() || self.family.is_gone(self.command.child(), has_children);
            let all_ended = self.killed != Some(Kill::Failed);
            if !is_over {
                return None;
            }
            return Some(match loss {
                Loss::Abandoned => Ended::Abandoned { all_ended },
                _ => Ended::Lost { all_ended },
            });
        }
        let end = self.command.end()?;
        if self.lease.remaining().is_zero() {
            let name = self.lease.name();
            say(format_args!(
                "{name}: the command has ended, but the lock was over before that was seen"
            ));
            return Some(Ended::Lost { all_ended: true });
        }
        Some(match self.command.was_run() {
            true => Ended::Itself { end },
            false => Ended::NotRun { end },
        })
    }

    fn pass_on_signals(&mut self) -> io::Result<()> {
        while let Some(arrival) = self.poller.requests.next() {
            self.note(arrival);
            self.command.pass_on(arrival);
        }
        if self.poller.requests.is_alone()
            && let Some(action) = self.watchdog.abandoned(now()?)
        {
            self.perform(action);
        }
        Ok(())
    }

    /// Notes signals that stop and continue the job. This process continues when the job is
    /// stopped, because it must end the command in time; the outer one is stopped in its place.
    fn note(&mut self, arrival: Arrival) {
        let signal = arrival.request.signal;
        if arrival.request.is_stop() && !is_ignored(signal) {
            self.stop_came = true;
        } else if signal == Signal::CONT {
            self.stop_came = false;
        }
    }

    fn sleep(&self) -> io::Result<()> {
        let watchdog = self.watchdog.idle(now()?, self.remaining());
        let within = [watchdog, self.lease.deadline()].into_iter().flatten().min();
        let children = self.poller.requests.signals.children();
        self.poller.wait(&[self.lease.as_fd(), children], within)
    }

    /// Returns the time that the lease leaves for the command.
    fn remaining(&self) -> Duration {
        usable(self.lease, self.terms)
    }

    fn kill_family(&mut self) -> Kill {
        let kill = self.family.kill(self.command.child_mut());
        self.killed = Some(kill);
        kill
    }

    fn explain(&mut self, measure: fmt::Arguments<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return say(format_args!("the command goes on: {measure}"));
        }
        if let Some(loss) = self.watchdog.loss() {
            say(format_args!("{}: {loss}\nstopping the command: {measure}", self.lease.name()));
        }
    }
}

/// Returns the time that a lease leaves for a command.
pub(super) fn usable(lease: &Lease, terms: Terms) -> Duration {
    lease.remaining().saturating_sub(5 * reserve(terms.ttl) / 4)
}

/// Returns a notice of the time until which the outer process lets the command run.
pub(super) fn held(lease: &Lease, terms: Terms) -> Notice {
    // The clocks are read first, so that time between the two readings shortens the lease.
    let now = net::now();
    let left = lease.remaining().saturating_sub(reserve(terms.ttl));
    let until = ClockReading { boot: now.boot + left, wall: now.wall + left };
    Notice::Held(Held { until, grace: terms.kill_after })
}

/// Returns the part of a lease that the outer process leaves unused.
fn reserve(ttl: Duration) -> Duration {
    (ttl / RESERVE_PART).min(LONGEST_RESERVE)
}

const RESERVE_PART: u32 = 8;

/// The longest reserve. A longer TTL does not delay a machine further.
const LONGEST_RESERVE: Duration = Duration::from_millis(250);

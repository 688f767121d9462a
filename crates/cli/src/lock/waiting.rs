//! Waits for the lock, from the request to the grant or the reason for giving up.
//!
//! One `poll` waits for the nodes, the signals and a timer. The library paces the attempts,
//! [`Patience`] decides when to give up, and [`Watch`] shows who holds the lock.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use redbolt::inspect::InspectionVerdict;
use redbolt::proto::Verdict;

use super::lease::{Lease, News};
use super::patience::{Advice, Patience};
use super::poller::{self, Poller, now};
use super::watch::Watch;
use crate::foreign;
use crate::signals::Signal;
use crate::speak::say;

/// The outcome of the wait.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The lock was granted.
    Granted,
    /// Another client holds the lock, or there is other data at its key, as described here.
    Contended(String),
    /// Too few nodes can vote, for the reason described here.
    NoQuorum(String),
    /// A signal ended the wait.
    Interrupted(Signal),
}

/// A wait for the lock.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    lease: &'a mut Lease,
    poller: &'a Poller,
    patience: Patience,
    watch: Watch,
    begun: Duration,
    /// The holder as last seen.
    seen: Option<InspectionVerdict>,
    /// Whether the look for the report at the end of the wait has begun.
    has_looked: bool,
}

impl<'a> Waiting<'a> {
    /// Starts waiting for a lease that has been requested.
    pub(super) fn begin(
        lease: &'a mut Lease,
        poller: &'a Poller,
        patience: Patience,
    ) -> io::Result<Self> {
        let begun = now()?;
        let watch = Watch::new(begun, lease.is_quiet(), lease.is_verbose());
        Ok(Self { lease, poller, patience, watch, begun, seen: None, has_looked: false })
    }

    /// Waits until there is an outcome.
    pub(super) fn wait(mut self) -> io::Result<Outcome> {
        let outcome = loop {
            self.lease.process();
            if let Some(outcome) = self.hear()? {
                break outcome;
            }
            if let Some(signal) = self.interruption()? {
                break Outcome::Interrupted(signal);
            }
            if let Some(outcome) = self.lose_patience()? {
                break outcome;
            }
            self.sleep()?;
        };
        self.watch.clear();
        Ok(outcome)
    }

    fn hear(&mut self) -> io::Result<Option<Outcome>> {
        while let Some(news) = self.lease.news() {
            match news {
                News::Granted => return Ok(Some(Outcome::Granted)),
                News::Refused { contended: true } => return Ok(Some(self.contended()?)),
                News::Refused { contended: false } => {
                    return Ok(Some(Outcome::NoQuorum(self.silence()?)));
                }
                News::Seen(seen) => {
                    if self.watch.is_on() {
                        let (name, quarantine) = (self.lease.name(), self.lease.quarantine());
                        self.watch.show(&name, &seen, quarantine, now()?);
                    }
                    self.seen = Some(seen);
                }
                News::Expired
                | News::Extended
                | News::Lost(_)
                | News::NotExtended(_)
                | News::Released { .. }
                | News::Shortened => {}
            }
        }
        Ok(None)
    }

    /// Returns a signal that ends the wait. The death of the outer process counts as SIGKILL, in
    /// place of the signal that killed it.
    fn interruption(&self) -> io::Result<Option<Signal>> {
        let requests = &self.poller.requests;
        let signal = requests.interruption()?;
        Ok(signal.or_else(|| requests.is_alone().then_some(Signal::KILL)))
    }

    fn lose_patience(&mut self) -> io::Result<Option<Outcome>> {
        match self.lease.verdict() {
            Verdict::Undecided => self.patience.note_no_verdict(self.lease.has_quorum()),
            verdict => self.patience.note(verdict, self.lease.quarantine(), now()?),
        }
        match self.patience.advice(now()?) {
            Advice::Wait => Ok(None),
            Advice::Tell => self.tell("waiting for nodes to come back"),
            Advice::TellQuarantine { left } => {
                let left = left.as_secs_f64().ceil();
                self.tell(&format!("waiting {left} s for the quarantine to end"))
            }
            Advice::Contended => Ok(Some(self.contended()?)),
            Advice::NoQuorum => Ok(Some(Outcome::NoQuorum(self.silence()?))),
        }
    }

    fn silence(&mut self) -> io::Result<String> {
        self.lease.silence(self.poller, self.patience.limit())
    }

    /// Finds out who holds the lock, for the message that it is taken. A lock that is granted
    /// meanwhile is kept.
    fn contended(&mut self) -> io::Result<Outcome> {
        let now = now()?;
        let until = match self.patience.limit() {
            Some(_) => now + OVERTIME,
            None => now + self.lease.patience_after(now.saturating_sub(self.begun)),
        };
        if let Some(seen) = self.seen.as_ref().filter(|_| self.has_looked) {
            return Ok(Outcome::Contended(holder(seen)));
        }
        if !std::mem::replace(&mut self.has_looked, true) {
            self.lease.look();
        }
        loop {
            while let Some(news) = self.lease.news() {
                match news {
                    News::Granted => return Ok(Outcome::Granted),
                    News::Seen(seen) => return Ok(Outcome::Contended(holder(&seen))),
                    _ => {}
                }
            }
            let left = until.saturating_sub(poller::now()?);
            if left.is_zero() {
                return Ok(Outcome::Contended(SOMEBODY.to_owned()));
            }
            let within = self.lease.deadline().map_or(left, |deadline| deadline.min(left));
            self.poller.wait_muted(&[self.lease.as_fd()], Some(within))?;
            self.lease.process();
        }
    }

    /// Says why it takes so long. To find that out takes a moment, in which the wait may end.
    fn tell(&mut self, what_follows: &str) -> io::Result<Option<Outcome>> {
        if self.lease.is_quiet() {
            return Ok(None);
        }
        let silence = self.silence()?;
        if let Some(outcome) = self.hear()? {
            return Ok(Some(outcome));
        }
        let have_come = self.lease.verdict() == Verdict::Undecided && self.lease.has_quorum();
        if !have_come {
            self.watch.clear();
            say(format_args!("{silence}\n{what_follows}"));
        }
        Ok(None)
    }

    fn sleep(&mut self) -> io::Result<()> {
        let now = now()?;
        if self.watch.is_due(now) {
            self.lease.look();
        }
        let last_look = self.patience.look_at().filter(|_| !self.has_looked);
        if last_look.is_some_and(|at| at <= now) {
            (self.has_looked, self.seen) = (true, None);
            self.lease.look();
        }
        let last_look = last_look.filter(|at| *at > now).map(|at| at - now);
        let own = [self.lease.deadline(), last_look];
        let deadlines = [self.patience.due_in(now), self.watch.due_in(now)].into_iter().chain(own);
        self.poller.wait(&[self.lease.as_fd()], deadlines.flatten().min())
    }
}

/// The holder of the lock, or the data at its key.
fn holder(seen: &InspectionVerdict) -> String {
    match seen {
        InspectionVerdict::Held(holder) => holder.to_string(),
        InspectionVerdict::Permits(permits) => permits.to_string(),
        InspectionVerdict::Shared(sharers) => sharers.to_string(),
        InspectionVerdict::Foreign(data) => foreign::holder(data),
        _ => SOMEBODY.to_owned(),
    }
}

/// How long the answer to a look may be late for the report at the end of a wait with a limit.
const OVERTIME: Duration = Duration::from_millis(100);

/// In place of a holder that is not known.
const SOMEBODY: &str = "another";

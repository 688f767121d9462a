//! A worker process that takes locks as it is ordered to, and uses redbolt like any other program.
//! The director checks the results from its reports.

use std::io::{self, BufRead};
use std::thread;

use redbolt::{
    AcquireError, Client, Config, Engine, ExtendError, LockGuard, LockMode, LockRequest, Wait,
    leader::Leadership,
};
use rustix::process::{Pid, Signal};

use crate::auto_extended;
use crate::clock::{Moment, now};
use crate::part::{BETWEEN_LOOKS, Part, Role};
use crate::stage::{Failure, RESOURCE};
use crate::wire::{Order, Report, Wants, say};

/// Carries out the orders on standard input, one per line, in its role, and reports on standard
/// output.
///
/// # Errors
///
/// Fails if an order cannot be read, a report cannot be written, or the system has no file
/// descriptors left.
pub fn serve(part: &Part, role: Role) -> Result<(), Failure> {
    die_with(part.director)?;
    match role {
        Role::Takes | Role::Queues | Role::WaitsByTimer => take(&role.config(part)?),
        Role::Leads => lead(&role.config(part)?),
        Role::AutoExtends => auto_extended::hold(part, false),
        Role::AutoExtendsCarelessly => auto_extended::hold(part, true),
    }
}

fn take(config: &Config) -> Result<(), Failure> {
    let mut steady = None;
    for line in io::stdin().lock().lines() {
        let order = Order::parse(&line?)?;
        if order.fresh {
            carry_out(&Client::new(config.clone())?, &order)?;
        } else {
            let client = match steady.take() {
                Some(client) => client,
                None => Client::new(config.clone())?,
            };
            carry_out(steady.insert(client), &order)?;
        }
        say(&Report::Done)?;
    }
    Ok(())
}

/// Campaigns, and leads for as long as it is ordered to and may.
fn lead(config: &Config) -> Result<(), Failure> {
    let engine = Engine::new(config.clone())?;
    for line in io::stdin().lock().lines() {
        let order = Order::parse(&line?)?;
        match engine.lock(RESOURCE).ttl(order.ttl).wait(order.wait).campaign().wait() {
            Ok(leadership) => stay_leader(leadership, &order)?,
            Err(AcquireError::Refused(report)) => say(&Report::Refused(report.to_string()))?,
            Err(error) => return Err(error.into()),
        }
        say(&Report::Done)?;
    }
    Ok(())
}

/// Stays like [`stay`], as a leader.
fn stay_leader(leadership: Leadership, order: &Order) -> Result<(), Failure> {
    let (from, term) = (now(), leadership.term().get());
    if !leadership.is_valid() {
        return say(&Report::Writes { token: term });
    }
    say(&Report::Entered { at: from, token: Some(term), slot: None })?;
    let mut last = from;
    let looked = loop {
        let at = now();
        if !leadership.is_valid() {
            break Some(at);
        }
        last = at;
        if order.keep.is_some_and(|keep| at.since(from) >= keep) {
            break None;
        }
        thread::sleep(BETWEEN_LOOKS);
    };
    say(&Report::Left { at: last, looked })?;
    let _ = leadership.resign().wait();
    Ok(())
}

/// Ends this process with the director: a stopped process would not notice the end of its input.
pub(crate) fn die_with(director: u32) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The director may have ended before the signal was set.
    let parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid);
    if i64::from(parent) == i64::from(director) {
        Ok(())
    } else {
        Err("the director has ended".into())
    }
}

fn carry_out(client: &Client, order: &Order) -> Result<(), Failure> {
    for _ in 0..order.times {
        let mut request =
            LockRequest::new(RESOURCE.as_bytes()).ttl(order.ttl).wait(Wait::UpTo(order.wait));
        if order.fenced {
            request = request.fenced();
        }
        request = match order.wants {
            Wants::Alone => request,
            Wants::Shared => request.shared(),
            Wants::Permit { of } => request.permits(of),
        };
        match client.acquire(request) {
            Ok(guard) => stay(guard, order)?,
            Err(AcquireError::Refused(report)) => say(&Report::Refused(report.to_string()))?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Holds the lock and checks it repeatedly. The clock is read before each check: if the check
/// succeeds, the lock was held at that moment.
fn stay(mut guard: LockGuard<'_>, order: &Order) -> Result<(), Failure> {
    let from = now();
    if guard.remaining().is_zero() {
        return say(&Report::Refused("the lease ended before the first check".to_owned()));
    }
    let token = guard.fencing_token().map(redbolt::FencingToken::get);
    say(&Report::Entered { at: from, token, slot: guard.slot() })?;
    let (mut extend_after, mut changed) = (order.extend_after, from);
    let mut last = from;
    let looked = loop {
        let at = now();
        if guard.remaining().is_zero() {
            break Some(at);
        }
        last = at;
        if order.keep.is_some_and(|keep| at.since(from) >= keep) {
            break None;
        }
        if extend_after.take_if(|after| at.since(from) >= *after).is_some() {
            say(&Report::Extended(guard.extend(order.ttl).is_ok()))?;
        }
        // Each change begins a lease, so without this limit some locks would never end.
        let may_change = at.since(from) < order.ttl;
        if may_change && order.change_every.is_some_and(|every| at.since(changed) >= every) {
            (last, changed) = (change_mode(&mut guard, last)?, at);
        }
        thread::sleep(BETWEEN_LOOKS);
    };
    if let Some(token) = token {
        // The worker also writes after the loss, like a process that was stopped between the check
        // and the write.
        say(&Report::Writes { token })?;
    }
    say(&Report::Left { at: last, looked })?;
    let _ = guard.release();
    Ok(())
}

/// Makes a reader a writer, or a writer a reader. Returns the last moment at which the lock is
/// known to be held.
fn change_mode(guard: &mut LockGuard<'_>, last: Moment) -> Result<Moment, Failure> {
    let asked = now();
    let (outcome, reads) = match guard.mode() {
        LockMode::Exclusive => (guard.downgrade().map(|()| true), true),
        _ => (guard.try_upgrade(), false),
    };
    // The holder is a reader from the call on, but a writer only when the call returns.
    let at = if reads { asked } else { now() };
    match outcome {
        Ok(true) if !guard.remaining().is_zero() => {
            say(&Report::Changed { until: last, at })?;
            return Ok(at);
        }
        Ok(true) | Err(ExtendError::Lost(_)) => {}
        Ok(false) => say(&Report::Refused("others share it".to_owned()))?,
        Err(error) => say(&Report::Refused(error.to_string()))?,
    }
    Ok(last)
}

//! A process that takes locks as it is told to: the one side of these programs that uses redbolt as a
//! user would.
//!
//! Not here: judging what happens, which is done where this process's reports are read.

use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use redbolt::{AcquireError, Client, Config, LockGuard, LockRequest, Wait, config::RestartGuard};
use rustix::process::{Pid, Signal};

use crate::clock::now;
use crate::wire::{Order, Report};
use crate::{Failure, RESOURCE, auto_extended};

/// What a process is given on its way.
#[derive(Clone, Debug)]
pub struct Part {
    /// The process that gives the orders.
    pub director: u32,
    /// Where the nodes listen.
    pub nodes: Vec<String>,
    /// The longest TTL.
    pub max_ttl: Duration,
    /// Whether nodes are guarded.
    pub guarded: bool,
    /// Who it is, for those who look at a lock on a node.
    pub label: String,
}

/// What a process does with the locks that it is told to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes them, and extends as it is told.
    Takes,
    /// Auto-extends them.
    AutoExtends,
    /// Auto-extends them, with a rival beside it that does it without care.
    AutoExtendsCarelessly,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Takes, Self::AutoExtends, Self::AutoExtendsCarelessly];

    /// Its name in a command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Takes => "takes",
            Self::AutoExtends => "auto-extends",
            Self::AutoExtendsCarelessly => "auto-extends-carelessly",
        }
    }
}

impl FromStr for Role {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        let named = Self::ALL.into_iter().find(|role| role.word() == word);
        named.ok_or_else(|| format!("no role: {word:?}").into())
    }
}

impl Part {
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let restart_guard = if self.guarded { RestartGuard::On } else { RestartGuard::Off };
        let mut builder = Config::builder()
            .max_ttl(self.max_ttl)
            .restart_guard(restart_guard)
            .label(self.label.as_bytes())
            .retry_backoff(Duration::from_millis(1), Duration::from_millis(8))
            .reconnect_backoff(Duration::from_millis(5), Duration::from_millis(20));
        for node in &self.nodes {
            builder = builder.node(node)?;
        }
        Ok(builder.build()?)
    }
}

/// Carries out the orders on standard input in its role, one in each line, until there are no more, and reports on
/// standard output.
///
/// # Errors
///
/// An order cannot be read, a report cannot be written, or the system has no file descriptors left.
pub fn serve(part: &Part, role: Role) -> Result<(), Failure> {
    die_with(part.director)?;
    match role {
        Role::Takes => take(part),
        Role::AutoExtends => auto_extended::hold(part, false),
        Role::AutoExtendsCarelessly => auto_extended::hold(part, true),
    }
}

fn take(part: &Part) -> Result<(), Failure> {
    let config = part.config()?;
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

/// A stopped process would not notice the end of its orders.
pub(crate) fn die_with(director: u32) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid);
    if i64::from(parent) == i64::from(director) {
        Ok(())
    } else {
        Err("the director is gone".into())
    }
}

fn carry_out(client: &Client, order: &Order) -> Result<(), Failure> {
    for _ in 0..order.times {
        let mut request =
            LockRequest::new(RESOURCE.as_bytes()).ttl(order.ttl).wait(Wait::UpTo(order.wait));
        if order.fenced {
            request = request.fenced();
        }
        match client.acquire(request) {
            Ok(guard) => stay(guard, order)?,
            Err(AcquireError::Refused(report)) => say(&Report::Refused(report.to_string()))?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Stays inside, and looks again and again. The clock is read before each look: at that moment the lock
/// was held if the look says so.
fn stay(mut guard: LockGuard<'_>, order: &Order) -> Result<(), Failure> {
    let from = now();
    if guard.remaining().is_zero() {
        return say(&Report::Refused("over before the first look".to_owned()));
    }
    let token = guard.fencing_token().map(redbolt::FencingToken::get);
    say(&Report::Entered { at: from, token })?;
    let mut extend_after = order.extend_after;
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
        thread::sleep(BETWEEN_LOOKS);
    };
    if let Some(token) = token {
        // Also after the loss: so does whoever is stopped between the look and the write.
        say(&Report::Writes { token })?;
    }
    say(&Report::Left { at: last, looked })?;
    let _ = guard.release();
    Ok(())
}

pub(crate) fn say(report: &Report) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", report.line())?;
    Ok(out.flush()?)
}

pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_micros(400);

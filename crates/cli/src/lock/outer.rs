//! The outer process of `redbolt lock` and `redbolt lead`, which the caller started and waits for.
//!
//! It starts the inner process, passes signals on to it and exits with its status. It also has a
//! deadline for the command, and ends the command and its descendants if the inner process was
//! killed or stopped, or hangs. [`Backstop`] decides when. This process cannot release the lock, so
//! the lock of a dead inner process ends with its TTL.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process;
use std::time::Duration;

use redbolt::net;

use super::backstop::{Action, Backstop};
use super::child::{Child, End};
use super::family::{Family, Kill};
use super::pair::{self, Heard, NoticeReceiver, RequestSender};
use super::poller::Poller;
use super::requests::Requests;
use crate::args::{Command, INNER};
use crate::duration::show;
use crate::environment;
use crate::exit::{self, Failure};
use crate::name;
use crate::signals::{Request, Sender, Signal, Signals, is_ignored, undergo};
use crate::speak::say;

/// Runs `redbolt lock` with the arguments of this process. Returns the exit status.
pub(crate) fn run() -> Result<u8, Failure> {
    Ok(Outer::start()?.watch()?.imitate())
}

/// Runs `redbolt lead` with the arguments of this process. When the lock is lost, starts another
/// inner process, unless redbolt was asked to end.
pub(crate) fn lead(once: bool) -> Result<u8, Failure> {
    let mut outer = Outer::start()?;
    loop {
        let end = outer.watch()?;
        if once || !outer.has_lost() || outer.ending.is_some() {
            return Ok(end.imitate());
        }
        say(format_args!("{}: campaigning again", name_of_lock()));
        if let Some(signal) = outer.pause()? {
            return Ok(End::Killed(signal.as_raw()).imitate());
        }
        outer.begin_again()?;
    }
}

fn start(signals: &Signals) -> io::Result<(Child, RequestSender, NoticeReceiver)> {
    let (requests, notices, inherited) = pair::pipes()?;
    let mut inner = process::Command::new("/proc/self/exe");
    inner
        .arg0("redbolt")
        .arg(INNER)
        .args(["--outer", &process::id().to_string()])
        .args(signals.callers().options())
        .args(inherited.options())
        .arg(OsStr::new("--"))
        .args(env::args_os().skip(1));
    Ok((Child::of(signals.spawn(&mut inner)?)?, requests, notices))
}

#[derive(Debug)]
struct Outer {
    inner: Child,
    requests: RequestSender,
    /// The notices, or `None` after the end of their pipe.
    notices: Option<NoticeReceiver>,
    family: Family,
    poller: Poller,
    backstop: Backstop,
    /// The outcome of killing everything that ran under the lock.
    killed: Option<Kill>,
    /// The signal that asked redbolt to end.
    ending: Option<Signal>,
}

impl Outer {
    fn start() -> Result<Self, Failure> {
        let signals = Signals::block()?;
        if is_ignored(Signal::CHILD) {
            return Err(Failure::system(NO_SIGCHLD));
        }
        let family = Family::found()?;
        let (inner, requests, notices) = start(&signals)?;
        let poller = Poller::new(Requests::of(signals))?;
        Ok(Self {
            inner,
            requests,
            notices: Some(notices),
            family,
            poller,
            backstop: Backstop::Idle,
            killed: None,
            ending: None,
        })
    }

    /// Starts an inner process to replace one that has ended.
    fn begin_again(&mut self) -> io::Result<()> {
        let (inner, requests, notices) = start(&self.poller.requests.signals)?;
        (self.inner, self.requests, self.notices) = (inner, requests, Some(notices));
        (self.backstop, self.killed) = (Backstop::Idle, None);
        Ok(())
    }

    /// Returns whether the lock was lost, and no process continues under it.
    fn has_lost(&self) -> bool {
        match self.backstop {
            Backstop::Done { lost, .. } => lost,
            Backstop::Killed => self.killed != Some(Kill::Failed),
            Backstop::Stopping { .. } => true,
            Backstop::Idle | Backstop::Watching(_) => false,
        }
    }

    /// Pauses before the next campaign: leads that are lost at once must not use a whole processor.
    /// Returns a signal that asks for the end.
    fn pause(&mut self) -> io::Result<Option<Signal>> {
        self.poller.wait(&[], Some(PAUSE))?;
        self.pass_on_signals()?;
        Ok(self.ending)
    }

    fn pass_on_signals(&mut self) -> io::Result<()> {
        while let Some(arrival) = self.poller.requests.next() {
            let request = arrival.request;
            if asks_for_the_end(request) && !is_ignored(request.signal) {
                self.ending = Some(request.signal);
            }
            match request.signal {
                // A waiting inner process may itself be stopped. It passes the signal on.
                Signal::CONT => self.inner.signal(request.signal),
                _ => self.requests.send(request),
            }
            if request.is_stop() {
                // A shell waits for this process to stop.
                undergo(request.signal)?;
            }
        }
        Ok(())
    }

    fn watch(&mut self) -> io::Result<End> {
        loop {
            self.poller.requests.signals.hear_children();
            self.pass_on_signals()?;
            // The clock is read first: if this process is stopped here, the notices are newer than
            // the time.
            let now = net::now();
            let has_children = self.inner.reap();
            self.hear();
            if let Some(end) = self.inner.end() {
                if let Some(end) = self.final_end(end, has_children) {
                    return Ok(end);
                }
                if let Some(action) = self.backstop.bereft(now) {
                    self.perform(action);
                }
            }
            if let Some(action) = self.backstop.act(now) {
                self.perform(action);
            } else {
                self.sleep()?;
            }
        }
    }

    fn hear(&mut self) {
        while let Some(notices) = &self.notices {
            match notices.hear() {
                Heard::Message(notice) => self.backstop.told(notice),
                Heard::Nothing => return,
                Heard::Gone => self.notices = None,
            }
        }
    }

    /// Returns how redbolt ends after the end `inner` of the inner process, once nothing is left to
    /// do.
    fn final_end(&self, inner: End, has_children: bool) -> Option<End> {
        match self.backstop {
            Backstop::Idle => {
                if let End::Killed(_) = inner {
                    say(Bereft { end: inner });
                }
                Some(End::Exited(inner.status()))
            }
            Backstop::Done { end, .. } => match inner {
                End::Exited(status) if status == end.status() => Some(end),
                End::Exited(_) => Some(inner),
                End::Killed(_) | End::Unknown => {
                    say(format_args!("{}\n{}", Bereft { end: inner }, super::UNCONFIRMED));
                    Some(end)
                }
            },
            Backstop::Watching(_) => None,
            Backstop::Stopping { .. } => {
                let is_gone = self.family.is_gone(&self.inner, has_children);
                is_gone.then_some(End::Exited(exit::LOST))
            }
            Backstop::Killed => Some(End::Exited(exit::LOST)),
        }
    }

    /// Performs the action, then reports it.
    fn perform(&mut self, action: Action) {
        let bereft = self.inner.end().map(|end| Bereft { end });
        match action {
            Action::Terminate => {
                self.family.signal(&self.inner, Signal::TERM);
                bereft.into_iter().for_each(say);
                if let Backstop::Stopping { held, .. } = &self.backstop {
                    let grace = show(held.grace);
                    say(format_args!("stopping the command: SIGTERM, and SIGKILL within {grace}"));
                }
            }
            Action::Kill => {
                let kill = self.family.kill(&mut self.inner);
                self.killed = Some(kill);
                if bereft.is_none() {
                    let name = name_of_lock();
                    say(format_args!(
                        "{name}: the lock ran out while redbolt's inner process did not run"
                    ));
                }
                if kill != Kill::Needless {
                    say("stopping the command: SIGKILL");
                }
            }
        }
    }

    fn sleep(&self) -> io::Result<()> {
        let notices = self.notices.as_ref().map(AsFd::as_fd);
        let children = self.poller.requests.signals.children();
        let heard: Vec<_> = notices.into_iter().chain([children]).collect();
        self.poller.wait(&heard, self.backstop.due_in(net::now()))
    }
}

/// Returns whether redbolt should end for good, and not only its command. A process that sends
/// SIGHUP asks some commands to reload their settings. The kernel sends it when the terminal
/// closes, and then no key can end redbolt later.
fn asks_for_the_end(request: Request) -> bool {
    let is_reload = request.signal == Signal::HUP && request.from != Sender::Kernel;
    request.is_interruption() && !is_reload
}

/// Returns the lock's name for a message. Parsing the arguments takes time, so it is done only when
/// there is something to report.
pub(crate) fn name_of_lock() -> String {
    let command = environment::parse(env::args_os()).map(|cli| cli.command.with_keys());
    let name = command.as_ref().ok().and_then(Command::lock_name);
    name.map_or_else(|| "the lock".to_owned(), name::show)
}

/// The pause between the loss of a lead and the next campaign.
const PAUSE: Duration = Duration::from_millis(200);

/// The message if SIGCHLD is ignored: the kernel then keeps no exit statuses of children.
const NO_SIGCHLD: &str = "SIGCHLD is ignored here, so the command's exit status could not be had; \
    start redbolt with `env --default-signal=CHLD`";

/// The end of the inner process, for a message.
struct Bereft {
    end: End,
}

impl fmt::Display for Bereft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: redbolt's inner process ", name_of_lock())?;
        match self.end {
            End::Exited(status) => write!(f, "has failed with status {status}"),
            End::Killed(signal) => write!(f, "was killed by signal {signal}"),
            End::Unknown => f.write_str("is gone"),
        }
    }
}

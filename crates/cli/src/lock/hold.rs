//! The foreground process of `redbolt hold`: it starts the keeper, and waits until the keeper has
//! the lock.
//!
//! A script continues when the lock is taken, so the foreground process exits then and leaves the
//! [`keeper`](super::keeper) behind, which owns the lock. Until then it passes signals on, and it
//! ends as the wait ends.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{self, Stdio};

use super::bound::Bound;
use super::child::{Child, End};
use super::pair::{self, Heard, Notice, NoticeReceiver, RequestSender};
use super::poller::Poller;
use super::requests::Requests;
use crate::args::{HoldArgs, INNER};
use crate::exit::{self, Failure};
use crate::say::print;
use crate::signals::{Signal, Signals, undergo};
use crate::speak::say;

/// Takes the lock of `args` for a process. Returns the exit status.
pub(crate) fn run(args: &HoldArgs) -> Result<u8, Failure> {
    super::check_proc()?;
    // Validated before a second process is started.
    args.grace().map_err(Failure::usage)?;
    let pid = args.pid.unwrap_or_else(parent_id);
    let bound = Bound::to(i32::try_from(pid).unwrap_or_default())?;
    if args.pid.is_none() && parent_id() != pid {
        return Err(Failure::system("the calling process has ended"));
    }
    if args.pid.is_none() && !args.sh && (args.fencing || args.permits.is_some()) {
        refuse_short_lived(pid)?;
    }
    let end = Hold::start(pid, bound)?.wait()?;
    if args.sh && end.status() != exit::SUCCESS {
        print(&exit_line(end.status()))?;
    }
    Ok(end.imitate())
}

/// Refuses a caller that ends after reading the output: a subshell of `$(…)`, with a pipe behind
/// it. With `--sh` the shell itself checks this.
fn refuse_short_lived(pid: u32) -> Result<(), Failure> {
    let is_piped = fs::metadata("/proc/self/fd/1").is_ok_and(|out| out.file_type().is_fifo());
    if is_piped && is_subshell(pid) {
        return Err(Failure::usage(SUBSHELL));
    }
    Ok(())
}

/// Returns whether the process was forked by its parent and has executed no program since. The two
/// then have the same arguments, and the addresses that the kernel chose for the program.
fn is_subshell(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let Some(parent) = fields.split_ascii_whitespace().nth(1) else { return false };
    ["cmdline", "auxv"].into_iter().all(|name| {
        let read = |pid: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let own = read(&pid.to_string());
        !own.is_empty() && own == read(parent)
    })
}

const SUBSHELL: &str = "the caller is a subshell, which may end with this command: \
    give --pid $$ for the script";

/// The line with which a shell that evaluates the output ends: it must not go on without the lock.
pub(crate) fn exit_line(status: u8) -> String {
    format!("exit {status}\n")
}

/// Returns whether this process is a `redbolt hold` whose output a shell evaluates, even if its
/// other arguments are wrong.
pub(crate) fn is_for_shell() -> bool {
    let mut words = env::args_os().skip(1);
    let is_hold = words.next().is_some_and(|word| word == "hold");
    is_hold && words.take_while(|word| word != "--").any(|word| word == "--sh")
}

struct Hold {
    keeper: Child,
    requests: RequestSender,
    notices: NoticeReceiver,
    poller: Poller,
    bound: Bound,
}

impl Hold {
    fn start(pid: u32, bound: Bound) -> io::Result<Self> {
        let signals = Signals::block()?;
        let (requests, notices, inherited) = pair::pipes()?;
        let mut keeper = process::Command::new("/proc/self/exe");
        keeper
            .arg0("redbolt")
            .arg(INNER)
            .args(["--outer", &pid.to_string()])
            .args(signals.callers().options())
            .args(inherited.options())
            .arg(OsStr::new("--"))
            .args(env::args_os().skip(1))
            .stdin(Stdio::null());
        let keeper = Child::of(signals.spawn(&mut keeper)?)?;
        let poller = Poller::new(Requests::of(signals))?;
        Ok(Self { keeper, requests, notices, poller, bound })
    }

    fn wait(mut self) -> io::Result<End> {
        loop {
            self.poller.requests.signals.hear_children();
            self.pass_on_signals()?;
            self.keeper.reap();
            match self.notices.hear() {
                // Both processes looked up the process by its number. It has not ended since, so
                // both have the same one.
                Heard::Message(Notice::Held(_)) if !self.bound.has_ended() => {
                    return Ok(End::Exited(exit::SUCCESS));
                }
                Heard::Message(Notice::Done { end, .. }) => return Ok(end),
                Heard::Message(Notice::Held(_)) | Heard::Nothing | Heard::Gone => {}
            }
            if let Some(end) = self.keeper.end() {
                return Ok(end);
            }
            if self.bound.has_ended() {
                say("the process that was to have the lock has ended");
                self.keeper.signal(Signal::TERM);
                return Ok(End::Exited(exit::LOST));
            }
            let children = self.poller.requests.signals.children();
            self.poller.wait(&[self.notices.as_fd(), children, self.bound.as_fd()], None)?;
        }
    }

    fn pass_on_signals(&self) -> io::Result<()> {
        while let Some(arrival) = self.poller.requests.next() {
            let request = arrival.request;
            match request.signal {
                // A waiting keeper may be stopped itself.
                Signal::CONT => self.keeper.signal(request.signal),
                _ => self.requests.send(request),
            }
            if request.is_stop() {
                undergo(request.signal)?;
            }
        }
        Ok(())
    }
}

//! The signals that redbolt handles while it waits for a lock, while a command runs and while it measures.
//!
//! They are blocked and read from a signalfd, so they arrive in the same poll as the nodes' replies. No handler is
//! installed, so the command inherits every disposition that the caller chose (`nohup` ignores SIGHUP). The shim
//! restores the mask for the command.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// The blocked signals, as a stream.
#[derive(Debug)]
pub(crate) struct Signals {
    requests: SignalFd,
    children: SignalFd,
    blocked_before: SigSet,
}

/// A signal that asks redbolt to end, and who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) signal: Signal,
    pub(crate) from: Sender,
}

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The terminal (Ctrl-C, hang-up), to every process of the foreground group.
    Terminal,
    /// A process.
    Process(Pid),
}

impl Signals {
    /// Blocks the signals of this thread, and of the threads that it starts later.
    pub(crate) fn block() -> io::Result<Self> {
        let blocked: SigSet = BLOCKED.into_iter().chain(REQUESTS).collect();
        let blocked_before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let stream = |signals: SigSet| {
            SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        };
        let requests = stream(REQUESTS.into_iter().collect())?;
        let children = stream(Signal::SIGCHLD.into())?;
        Ok(Self { requests, children, blocked_before })
    }

    /// As [`block`](Self::block), in a process that inherited them blocked. `to_unblock` are those that the parent blocked.
    pub(crate) fn keep_blocked(to_unblock: &[i32]) -> io::Result<Self> {
        let mut signals = Self::block()?;
        for signal in to_unblock.iter().filter_map(|&number| Signal::try_from(number).ok()) {
            signals.blocked_before.remove(signal);
        }
        Ok(signals)
    }

    /// The numbers of the signals that a command must unblock.
    pub(crate) fn to_unblock(&self) -> Vec<i32> {
        let blocked = BLOCKED.into_iter().chain(REQUESTS);
        blocked.filter(|&s| !self.blocked_before.contains(s)).map(|s| s as i32).collect()
    }

    /// The next request that has arrived.
    pub(crate) fn next(&self) -> Option<Request> {
        while let Ok(Some(info)) = self.requests.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            if let Ok(signal) = Signal::try_from(number) {
                return Some(Request { signal, from: sender(info.ssi_code, info.ssi_pid) });
            }
        }
        None
    }

    /// Readable when a child has ended since [`hear_children`](Self::hear_children).
    pub(crate) fn children(&self) -> BorrowedFd<'_> {
        self.children.as_fd()
    }

    /// Call it before asking whether children have ended: one that ends later then wakes the poll.
    pub(crate) fn hear_children(&self) {
        while let Ok(Some(_)) = self.children.read_signal() {}
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }
}

fn sender(code: i32, pid: u32) -> Sender {
    match i32::try_from(pid) {
        Ok(pid) if code != libc::SI_KERNEL => Sender::Process(Pid::from_raw(pid)),
        _ => Sender::Terminal,
    }
}

/// Whether the caller has this signal ignored. It is read from `/proc`, since `sigaction` would need unsafe code.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal as u32 - 1)) != 0
}

/// SIGQUIT is among them because the terminal sends it too, and redbolt must outlive the command.
const REQUESTS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Writing to the terminal from the background must not stop the process that extends the lease.
const BLOCKED: [Signal; 2] = [Signal::SIGCHLD, Signal::SIGTTOU];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_is_told_from_a_process() {
        assert_eq!(sender(libc::SI_KERNEL, 0), Sender::Terminal);
        assert_eq!(sender(0, 42), Sender::Process(Pid::from_raw(42)));
    }

    #[test]
    fn an_ignored_signal_is_known() {
        // The runtime of Rust programs ignores SIGPIPE.
        assert!(is_ignored(Signal::SIGPIPE));
        assert!(!is_ignored(Signal::SIGTERM));
    }
}

//! Handles the signals of redbolt's processes.
//!
//! Every signal that can be blocked is blocked, and read from a signalfd in the same poll as the
//! nodes' replies. So only SIGKILL and SIGSTOP end or stop a process that holds a lock. (The C
//! library reserves signals 32 and 33, and blocks them for no program.) No handler is installed, so
//! the command inherits every disposition that the caller chose (`nohup` ignores SIGHUP). The shim
//! restores the caller's mask for the command.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process;

use nix::libc;
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Named};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid};
pub(crate) use rustix::process::Signal;
use rustix::process::kill_process;
use rustix_libc_wrappers::process::SignalExt;

use crate::{birth, exit};

/// A stream of the blocked signals.
#[derive(Debug)]
pub(crate) struct Signals {
    requests: SignalFd,
    children: SignalFd,
    callers: Callers,
    /// The mask that this process was started with.
    before: SigSet,
}

/// The caller's settings that redbolt has changed for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Callers {
    /// The signals that the caller has blocked.
    pub(crate) blocked: Mask,
    /// Whether the caller ignores SIGPIPE.
    pub(crate) ignores_pipe: bool,
}

impl Callers {
    /// Returns options for the program that has to restore these settings.
    pub(crate) fn options(self) -> impl Iterator<Item = String> {
        let blocked = Some(format!("--blocked={}", self.blocked.0));
        blocked.into_iter().chain(self.ignores_pipe.then(|| "--ignore-pipe".to_owned()))
    }
}

/// A set of signals in the kernel's form: bit 0 is signal 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) u64);

/// A signal that has arrived, and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) signal: Signal,
    pub(crate) from: Sender,
}

/// The sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel: a key of the terminal, the end of the terminal, or a timer.
    Kernel,
    /// A process.
    Process(Pid),
}

impl Signals {
    /// Blocks the signals of this thread, and of the threads and processes that it starts later.
    pub(crate) fn block() -> io::Result<Self> {
        let blocked = Mask::of_this_process("SigBlk:");
        Self::keep_blocked(Callers { blocked, ignores_pipe: birth::ignored_pipe() })
    }

    /// Creates a stream like [`block`](Self::block), in a process that inherited the signals
    /// blocked. `callers` is from before that.
    pub(crate) fn keep_blocked(callers: Callers) -> io::Result<Self> {
        let mut requests = SigSet::all();
        let before = requests.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        requests.remove(Named::SIGCHLD);
        let stream = |signals: SigSet| {
            SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        };
        let children = stream(Named::SIGCHLD.into())?;
        Ok(Self { requests: stream(requests)?, children, callers, before })
    }

    /// Returns the caller's settings.
    pub(crate) fn callers(&self) -> Callers {
        self.callers
    }

    /// Starts a redbolt program that has to restore the caller's settings. It inherits all signals
    /// blocked, unless the caller has blocked only some real-time signals: such a set can be
    /// inherited, but not made without unsafe code. For such callers, the other real-time signals
    /// could end this process meanwhile.
    pub(crate) fn spawn(&self, command: &mut process::Command) -> io::Result<process::Child> {
        if !self.callers.blocked.has_some_real_time() {
            return command.spawn();
        }
        let mut inherited = self.before;
        inherited.extend(Named::iterator());
        inherited.thread_set_mask()?;
        let child = command.spawn();
        SigSet::all().thread_block()?;
        child
    }

    /// Returns the next request that has arrived.
    pub(crate) fn next(&self) -> Option<Request> {
        while let Ok(Some(info)) = self.requests.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            let Some(signal) = Signal::from_raw(number) else { continue };
            let request = Request { signal, from: sender(info.ssi_code, info.ssi_pid) };
            if !request.is_private(getpid()) {
                return Some(request);
            }
        }
        None
    }

    /// Returns a descriptor that is readable when a child has ended since
    /// [`hear_children`](Self::hear_children).
    pub(crate) fn children(&self) -> BorrowedFd<'_> {
        self.children.as_fd()
    }

    /// Clears the notification of ended children. Call it before asking whether children have
    /// ended, so that a child that ends later wakes the poll.
    pub(crate) fn hear_children(&self) {
        while let Ok(Some(_)) = self.children.read_signal() {}
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }
}

impl Request {
    /// Returns whether the signal asks redbolt to end while no command runs.
    pub(crate) fn is_interruption(self) -> bool {
        match self.signal {
            Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => true,
            // The signal of a timer that the caller set before it became redbolt.
            Signal::ALARM => self.from == Sender::Kernel,
            _ => false,
        }
    }

    /// Returns whether the signal stops a program that does not handle it, as Ctrl-Z does.
    pub(crate) fn is_stop(self) -> bool {
        [Signal::TSTP, Signal::TTIN, Signal::TTOU].contains(&self.signal)
    }

    /// Returns whether the signal has no name. Such signals are queued, and never merged.
    pub(crate) fn is_real_time(self) -> bool {
        Named::try_from(self.signal.as_raw()).is_err()
    }

    /// Returns whether the signal concerns only the process `us`: its own write to a full file or a
    /// closed pipe, or its own limit of processor time.
    fn is_private(self, us: Pid) -> bool {
        self.from == Sender::Process(us)
            || (self.from == Sender::Kernel && self.signal == Signal::XCPU)
    }
}

impl Mask {
    /// Reads a mask of this process by its name in `/proc`. Querying it otherwise would need unsafe
    /// code.
    fn of_this_process(name: &str) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn contains(self, number: i32) -> bool {
        self.0 >> (number - 1) & 1 == 1
    }

    fn has_some_real_time(self) -> bool {
        // Some C libraries do not leave the first one to programs.
        self.real_time() != 0 && self.real_time() | 1 != ALL_REAL_TIME
    }

    fn real_time(self) -> u64 {
        self.0 >> (FIRST_REAL_TIME - 1)
    }

    /// Unblocks all signals that are not in this mask. A mask with only some real-time signals has
    /// been inherited.
    pub(crate) fn unblock_others(self) -> io::Result<()> {
        let mut others = match self.real_time() {
            0 => SigSet::all(),
            _ => SigSet::empty(),
        };
        for signal in Named::iterator() {
            match self.contains(signal as i32) {
                true => others.remove(signal),
                false => others.add(signal),
            }
        }
        Ok(others.thread_unblock()?)
    }
}

/// Applies the signal's default action to this process, if the caller does not ignore it. After a
/// stop, returns when the process has been continued.
pub(crate) fn undergo(signal: Signal) -> io::Result<()> {
    let set = set_of(signal);
    set.thread_unblock()?;
    kill_process(rustix::process::getpid(), signal)?;
    Ok(set.thread_block()?)
}

/// Ends this process by the signal of this number, so that a calling shell sees how the command
/// ended. If the process survives, because the caller may ignore the signal, returns the exit
/// status that expresses the same.
pub(crate) fn die_of(number: i32) -> u8 {
    let _ = io::stdout().flush();
    // The command has left its core file already.
    let _ = set_dumpable(false);
    if let Some(signal) = Signal::from_raw(number) {
        // The first signal may reach the fault handler of Rust's runtime, which then removes
        // itself.
        let _ = undergo(signal).and_then(|()| undergo(signal));
    }
    exit::killed_by(number)
}

/// Blocks the signals that a short command does not use, so that no write or timer ends it
/// half-way. Signals that a user sends to end or stop it stay as they are.
pub(crate) fn shield() -> io::Result<()> {
    let mut set = SigSet::all();
    OF_A_USER.into_iter().for_each(|signal| set.remove(signal));
    Ok(set.thread_block()?)
}

/// The name of a signal, such as `SIGINT`.
pub(crate) fn name_of(signal: Signal) -> &'static str {
    Named::try_from(signal.as_raw()).map_or("a real-time signal", Named::as_str)
}

/// Whether the caller has this signal ignored.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    Mask::of_this_process("SigIgn:").contains(signal.as_raw())
}

/// The set of this signal; of all real-time signals for one of them.
fn set_of(signal: Signal) -> SigSet {
    if let Ok(signal) = Named::try_from(signal.as_raw()) {
        return signal.into();
    }
    let mut set = SigSet::all();
    Named::iterator().for_each(|signal| set.remove(signal));
    set
}

fn sender(code: i32, pid: u32) -> Sender {
    let is_process = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&code);
    match i32::try_from(pid) {
        Ok(pid) if is_process => Sender::Process(Pid::from_raw(pid)),
        _ => Sender::Kernel,
    }
}

const OF_A_USER: [Named; 8] = [
    Named::SIGINT,
    Named::SIGTERM,
    Named::SIGHUP,
    Named::SIGQUIT,
    Named::SIGTSTP,
    Named::SIGTTIN,
    Named::SIGTTOU,
    Named::SIGCHLD,
];

const FIRST_REAL_TIME: u32 = 34;
const ALL_REAL_TIME: u64 = u64::MAX >> (FIRST_REAL_TIME - 1);

#[cfg(test)]
mod tests {
    use super::*;

    const fn from_kernel(signal: Signal) -> Request {
        Request { signal, from: Sender::Kernel }
    }

    fn from(pid: i32, signal: Signal) -> Request {
        Request { signal, from: Sender::Process(Pid::from_raw(pid)) }
    }

    #[test]
    fn the_kernel_is_told_from_a_process() {
        assert_eq!(sender(libc::SI_KERNEL, 0), Sender::Kernel);
        assert_eq!(sender(libc::SI_TIMER, 1), Sender::Kernel);
        for code in [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL] {
            assert_eq!(sender(code, 42), Sender::Process(Pid::from_raw(42)));
        }
    }

    #[test]
    fn a_signal_about_this_process_alone_is_no_request() {
        let us = Pid::from_raw(7);
        assert!(from(7, Signal::XFSZ).is_private(us) && from(7, Signal::PIPE).is_private(us));
        assert!(from_kernel(Signal::XCPU).is_private(us));
        assert!(!from(8, Signal::XFSZ).is_private(us) && !from(8, Signal::XCPU).is_private(us));
        assert!(!from_kernel(Signal::ALARM).is_private(us));
    }

    #[test]
    fn only_a_signal_that_asks_for_the_end_interrupts_a_wait() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            assert!(from(8, signal).is_interruption() && from_kernel(signal).is_interruption());
        }
        for signal in [Signal::USR1, Signal::WINCH, Signal::CONT, Signal::ALARM, Signal::TSTP] {
            assert!(!from(8, signal).is_interruption());
        }
        assert!(from_kernel(Signal::ALARM).is_interruption());
    }

    #[test]
    fn an_ignored_signal_is_known() {
        // The runtime of Rust programs ignores SIGPIPE.
        assert!(is_ignored(Signal::PIPE));
        assert!(!is_ignored(Signal::TERM));
    }

    #[test]
    fn all_that_the_caller_did_not_block_is_unblocked_again() {
        let after = |callers: u64| {
            std::thread::spawn(move || {
                SigSet::all().thread_block().unwrap();
                Mask(callers).unblock_others().unwrap();
                let status = fs::read_to_string("/proc/thread-self/status").unwrap();
                let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
                u64::from_str_radix(mask.trim(), 16).unwrap()
            })
            .join()
            .unwrap()
        };
        let term = 1 << (Signal::TERM.as_raw() - 1);
        assert_eq!(after(0), 0);
        assert_eq!(after(term), term);
        let all = ALL_REAL_TIME << (FIRST_REAL_TIME - 1) | term;
        assert_eq!(after(all) & all, all);
        for (mask, has_some) in
            [(0, false), (term, false), (all, false), (1 << 33, true), (1 << 63, true)]
        {
            assert_eq!(Mask(mask).has_some_real_time(), has_some, "{mask:x}");
        }
    }
}

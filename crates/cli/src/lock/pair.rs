//! The two processes of `redbolt lock`, and the messages between them.
//!
//! One process remains if the other is killed by SIGKILL, and ends the command while the lease
//! lasts. The caller starts the *outer* process ([`outer`](super::outer)). It starts the *inner*
//! process, passes signals on to it and waits for its end. The inner process acquires the lock,
//! runs the command and extends the lease. Both are subreapers, so either can find the whole
//! family.
//!
//! ```text
//!             signals ───▶
//!   outer ═══════════════════ inner ─── command ─── …
//!             ◀─── until when the command may run
//! ```
//!
//! Two pipes join the processes. A pipe ends with its last writer, and the command inherits neither
//! pipe, so each process notices the other's death. Neither ever waits for the other, which may be
//! stopped: if a pipe is full, a signal is dropped, and a new lease replaces older ones.
//!
//! The inner process is the same program with another first argument. It inherits two descriptors
//! by number. It opens them again because taking ownership of a number would need unsafe code.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::unistd::{Pid, close, pipe2};
use redbolt::proto::{ClockReading, Timestamp};
use rustix_libc_wrappers::process::SignalExt;

use super::child::End;
use crate::args::InnerArgs;
use crate::signals::{Request, Sender, Signal};

/// The time until which a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The end of that time, on either clock.
    pub(super) until: ClockReading,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

impl Held {
    /// Returns the time left at `now`, on the clock that ends first.
    pub(super) fn remaining(&self, now: ClockReading) -> Duration {
        self.until.boot.since(now.boot).min(self.until.wall.since(now.wall))
    }
}

/// A message from the inner process to the outer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A command runs or is about to, until this time.
    Held(Held),
    /// The command has ended, was stopped, or was not started. redbolt will end with `end`. `lost`
    /// is true if the lock was lost and no process continues under it.
    Done { end: End, lost: bool },
}

impl Notice {
    fn bytes(self) -> [u8; NOTICE] {
        let words = match self {
            Self::Held(Held { until, grace }) => {
                let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
                [HELD, until.boot.0, until.wall.0, grace]
            }
            Self::Done { end: End::Killed(signal), lost } => {
                [KILLED, signal.unsigned_abs().into(), lost.into(), 0]
            }
            Self::Done { end, lost } => [DONE, end.status().into(), lost.into(), 0],
        };
        let mut bytes = [0; NOTICE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: [u8; NOTICE]) -> Self {
        let (words, _) = bytes.as_chunks();
        let [kind, first, second, third] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        match kind {
            HELD => Self::Held(Held {
                until: ClockReading { boot: Timestamp(first), wall: Timestamp(second) },
                grace: Duration::from_nanos(third),
            }),
            KILLED => {
                let signal = i32::try_from(first).unwrap_or(0);
                Self::Done { end: End::Killed(signal), lost: second != 0 }
            }
            _ => Self::Done { end: End::Exited(first.to_le_bytes()[0]), lost: second != 0 },
        }
    }
}

/// The outer process's end for signals.
#[derive(Debug)]
pub(super) struct RequestSender(File);

/// The outer process's end for notices.
#[derive(Debug)]
pub(super) struct NoticeReceiver(File);

/// The inner process's end for signals.
#[derive(Debug)]
pub(super) struct RequestReceiver(File);

/// The inner process's end for notices.
#[derive(Debug)]
pub(super) struct NoticeSender(File);

/// The pipe ends that the inner process inherits. The outer process closes them after starting it.
#[derive(Debug)]
pub(super) struct Inherited {
    requests: OwnedFd,
    notices: OwnedFd,
}

/// The result of reading a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<T> {
    /// A message.
    Message(T),
    /// No message is pending.
    Nothing,
    /// The other process has closed the pipe; no message will follow.
    Gone,
}

/// Creates both pipes.
pub(super) fn pipes() -> io::Result<(RequestSender, NoticeReceiver, Inherited)> {
    let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let (requests, sender) = pipe2(flags)?;
    let (receiver, notices) = pipe2(flags)?;
    for end in [&requests, &notices] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    let inherited = Inherited { requests, notices };
    Ok((RequestSender(sender.into()), NoticeReceiver(receiver.into()), inherited))
}

impl Inherited {
    /// Returns the options that pass these ends to the inner process.
    pub(super) fn options(&self) -> [String; 4] {
        let number = |end: &OwnedFd| end.as_raw_fd().to_string();
        let [requests, notices] = [number(&self.requests), number(&self.notices)];
        ["--requests".to_owned(), requests, "--notices".to_owned(), notices]
    }
}

/// Opens the inner process's ends.
pub(super) fn inherit(args: &InnerArgs) -> io::Result<(RequestReceiver, NoticeSender)> {
    let requests = reopen(args.requests, OpenOptions::new().read(true))?;
    // Also for reading, to remove outdated messages.
    let notices = reopen(args.notices, OpenOptions::new().read(true).write(true))?;
    Ok((RequestReceiver(requests), NoticeSender(notices)))
}

fn reopen(number: i32, options: &mut OpenOptions) -> io::Result<File> {
    let file =
        options.custom_flags(OFlag::O_NONBLOCK.bits()).open(format!("/proc/self/fd/{number}"))?;
    // The command must not inherit it.
    close(number)?;
    Ok(file)
}

impl RequestSender {
    /// Passes a signal on.
    pub(super) fn send(&self, request: Request) {
        let sender = match request.from {
            Sender::Kernel => KERNEL,
            Sender::Process(pid) => pid.as_raw(),
        };
        let words = [request.signal.as_raw(), sender].map(i32::to_le_bytes);
        // A process that has ended needs no signal. One with thousands unread does not miss one.
        let _ = (&self.0).write(words.as_flattened());
    }
}

impl RequestReceiver {
    /// Returns the next signal.
    pub(super) fn hear(&self) -> Heard<Request> {
        loop {
            let bytes = match next::<REQUEST>(&self.0) {
                Heard::Message(bytes) => bytes,
                Heard::Nothing => return Heard::Nothing,
                Heard::Gone => return Heard::Gone,
            };
            let (words, _) = bytes.as_chunks();
            let [signal, sender] = [0, 1].map(|at| i32::from_le_bytes(words[at]));
            let Some(signal) = Signal::from_raw(signal) else { continue };
            let from = match sender {
                KERNEL => Sender::Kernel,
                pid => Sender::Process(Pid::from_raw(pid)),
            };
            return Heard::Message(Request { signal, from });
        }
    }
}

impl NoticeSender {
    /// Sends a notice to the outer process, if it still exists.
    pub(super) fn send(&self, notice: Notice) {
        let bytes = notice.bytes();
        let full = |written: io::Result<usize>| {
            written.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        if full((&self.0).write(&bytes)) {
            while let Heard::Message(_) = next::<NOTICE>(&self.0) {}
            let _ = (&self.0).write(&bytes);
        }
    }
}

impl NoticeReceiver {
    /// Returns the next notice.
    pub(super) fn hear(&self) -> Heard<Notice> {
        match next(&self.0) {
            Heard::Message(bytes) => Heard::Message(Notice::read(bytes)),
            Heard::Nothing => Heard::Nothing,
            Heard::Gone => Heard::Gone,
        }
    }
}

impl AsFd for RequestReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for NoticeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the next message. Messages are written whole, so they are read whole.
fn next<const LENGTH: usize>(mut pipe: &File) -> Heard<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    loop {
        match pipe.read(&mut bytes) {
            Ok(length) if length == LENGTH => return Heard::Message(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return Heard::Gone,
        }
    }
}

const NOTICE: usize = 32;
const REQUEST: usize = 8;

/// A marker for signals sent by the kernel. Zero means a process in another PID namespace, such as
/// one that stops a container.
const KERNEL: i32 = -1;

const HELD: u64 = 1;
const DONE: u64 = 2;
const KILLED: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of both pipes, the inherited ones as the inner process has them.
    fn pair() -> (RequestSender, NoticeReceiver, RequestReceiver, NoticeSender) {
        let (requests, notices, inherited) = pipes().unwrap();
        let anew = |end: &OwnedFd, options: &mut OpenOptions| {
            let path = format!("/proc/self/fd/{}", end.as_raw_fd());
            options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path).unwrap()
        };
        let heard = anew(&inherited.requests, OpenOptions::new().read(true));
        let told = anew(&inherited.notices, OpenOptions::new().read(true).write(true));
        (requests, notices, RequestReceiver(heard), NoticeSender(told))
    }

    fn process(pid: i32) -> Sender {
        Sender::Process(Pid::from_raw(pid))
    }

    fn held(boot: u64) -> Notice {
        let until = ClockReading { boot: Timestamp(boot), wall: Timestamp(u64::MAX) };
        Notice::Held(Held { until, grace: Duration::from_millis(7) })
    }

    #[test]
    fn what_is_told_is_heard_and_then_the_end() {
        let (requests, notices, orders, told) = pair();
        assert_eq!(notices.hear(), Heard::Nothing);
        for notice in [
            held(5),
            Notice::Done { end: End::Exited(143), lost: false },
            Notice::Done { end: End::Killed(40), lost: false },
            Notice::Done { end: End::Exited(70), lost: true },
        ] {
            told.send(notice);
            assert_eq!(notices.hear(), Heard::Message(notice));
        }
        let real_time = Signal::rt(3).unwrap();
        for from in [Sender::Kernel, process(42), process(0)] {
            for signal in [Signal::HUP, real_time] {
                let request = Request { signal, from };
                requests.send(request);
                assert_eq!(orders.hear(), Heard::Message(request));
            }
        }
        assert_eq!(orders.hear(), Heard::Nothing);
        drop((requests, told));
        assert_eq!(orders.hear(), Heard::Gone);
        assert_eq!(notices.hear(), Heard::Gone);
    }

    /// A stopped outer process reads nothing. When it continues, it reads the last lease.
    #[test]
    fn a_pipe_that_nobody_reads_keeps_the_last_notice() {
        let (_requests, notices, _orders, told) = pair();
        for boot in 0..10_000 {
            told.send(held(boot));
        }
        let mut last = None;
        while let Heard::Message(notice) = notices.hear() {
            last = Some(notice);
        }
        assert_eq!(last, Some(held(9_999)));
    }

    #[test]
    fn a_lease_ends_by_the_clock_that_is_ahead() {
        let (boot, wall) = (Timestamp(1_000), Timestamp(9_000));
        let held = Held { until: ClockReading { boot, wall }, grace: Duration::ZERO };
        let remaining = |boot, wall| {
            held.remaining(ClockReading { boot: Timestamp(boot), wall: Timestamp(wall) }).as_nanos()
        };
        assert_eq!(remaining(900, 8_900), 100);
        assert_eq!(remaining(900, 8_990), 10);
        assert_eq!(remaining(999, 0), 1);
        assert_eq!(remaining(1_001, 0), 0);
        assert_eq!(remaining(0, 9_000), 0);
    }
}

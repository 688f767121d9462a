//! Sockets whose reads and writes are submitted to an io_uring, and come back as completions.
//!
//! The only unsafe code of the benchmarks, and all of it is submitting: the kernel reads and writes a buffer until the
//! completion comes. So each buffer is the ring's own, stays where it is, and is submitted once at a time; `Drop` gives none
//! back before everything has come. A caller hands over bytes and is shown bytes. Not here: what they mean, see
//! `redbolt_uring`.
#![allow(unsafe_code, reason = "the kernel has to be promised that a buffer stays")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Result, ensure};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::contract::PATIENCE;

/// Sockets, and what is under way on them.
pub(super) struct Ring {
    ring: IoUring,
    pipes: Vec<Pipe>,
    /// Submissions that have not come back.
    under_way: usize,
}

struct Pipe {
    socket: OwnedFd,
    /// What is being sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
    sends: bool,
    space: Box<[u8; ROOM]>,
    receives: bool,
}

impl Ring {
    /// An error says what the kernel answers: io_uring can be forbidden, or too old.
    pub(super) fn new(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        // At most one read and one write of each at once.
        let entries = (2 * sockets.len()).next_power_of_two() as u32;
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(entries)?;
        let pipe = |socket| {
            let (out, space) = (Vec::with_capacity(ROOM), Box::new([0; ROOM]));
            Pipe { socket, out, sent: 0, sends: false, space, receives: false }
        };
        Ok(Self { ring, pipes: sockets.into_iter().map(pipe).collect(), under_way: 0 })
    }

    /// Whether the last bytes for this socket are on their way, so that it takes more.
    pub(super) fn takes(&self, at: usize) -> bool {
        !self.pipes[at].sends
    }

    /// Takes bytes for a socket that takes some. They are sent with the next [`wait`](Self::wait).
    pub(super) fn send(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let pipe = &mut self.pipes[at];
        ensure!(!pipe.sends, "the last bytes are not sent yet");
        pipe.out.clear();
        pipe.out.extend_from_slice(bytes);
        pipe.sent = 0;
        self.submit(at, true)
    }

    /// Sends, and waits until something has come or `limit` is over. `take` is shown what has come, and from which socket.
    pub(super) fn wait(&mut self, limit: Duration, take: impl FnMut(usize, &[u8])) -> Result<()> {
        for at in 0..self.pipes.len() {
            if !self.pipes[at].receives {
                self.submit(at, false)?;
            }
        }
        // What is sent comes back first, and nobody waits for that alone.
        let sends = self.pipes.iter().filter(|pipe| pipe.sends).count();
        self.enter(sends + 1, limit)?;
        self.complete(take)
    }

    fn enter(&mut self, wanted: usize, limit: Duration) -> io::Result<()> {
        let limit = Timespec::from(limit);
        let arguments = SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn complete(&mut self, mut take: impl FnMut(usize, &[u8])) -> Result<()> {
        loop {
            let Some(done) = self.ring.completion().next() else { return Ok(()) };
            let (at, is_send) = (done.user_data() as usize / 2, done.user_data() % 2 == 1);
            self.under_way -= 1;
            let pipe = &mut self.pipes[at];
            *(if is_send { &mut pipe.sends } else { &mut pipe.receives }) = false;
            let Ok(length) = usize::try_from(done.result()) else {
                return Err(io::Error::from_raw_os_error(-done.result()).into());
            };
            if is_send {
                pipe.sent += length;
                if pipe.sent < pipe.out.len() {
                    self.submit(at, true)?;
                }
            } else {
                ensure!(length > 0, "the node closed the connection");
                take(at, &pipe.space[..length]);
            }
        }
    }

    fn submit(&mut self, at: usize, is_send: bool) -> Result<()> {
        let pipe = &mut self.pipes[at];
        let socket = Fd(pipe.socket.as_raw_fd());
        let entry = if is_send {
            pipe.sends = true;
            let rest = &pipe.out[pipe.sent..];
            opcode::Send::new(socket, rest.as_ptr(), rest.len() as u32).build()
        } else {
            pipe.receives = true;
            opcode::Recv::new(socket, pipe.space.as_mut_ptr(), ROOM as u32).build()
        };
        let entry = entry.user_data(2 * at as u64 + u64::from(is_send));
        // SAFETY: it points to a buffer of a pipe, which nobody changes, moves or frees while the pipe `sends` or `receives`:
        // until the completion has come. `Drop` waits for it, or leaks the pipes. The socket is the pipe's as well.
        unsafe { self.ring.submission().push(&entry) }?;
        self.under_way += 1;
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for pipe in &self.pipes {
            // Both ends everything that is under way there.
            let _ = shutdown(&pipe.socket, Shutdown::Both);
        }
        let _ = self.enter(self.under_way, PATIENCE);
        while self.complete(|_, _| {}).is_err() {}
        if self.under_way > 0 {
            std::mem::forget(std::mem::take(&mut self.pipes));
        }
    }
}

const ROOM: usize = 4096;

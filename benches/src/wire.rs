//! The base of the floors: non-blocking sockets, requests as bytes, replies of known length.
//!
//! No libc, no clock, no parser: a reply is split off by its length, and its first bytes are yes or
//! no.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Result, bail, ensure};
use redbolt::proto::script;
use redbolt_test_servers::{Connection, Reply};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::contender::contract::Node;

/// Connects, with the options that all contenders have.
pub(crate) fn connect(node: &Node) -> Result<OwnedFd> {
    Ok(match node {
        Node::Tcp(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.into()
        }
        Node::Unix(path) => UnixStream::connect(path)?.into(),
    })
}

/// Connects for commands that are not measured.
pub(crate) fn open(node: &Node) -> Result<Connection> {
    Ok(match node {
        Node::Tcp(address) => Connection::open(address),
        Node::Unix(path) => Connection::open_unix(path.as_ref())?,
    })
}

/// Loads the undo script on all nodes. Returns its digest.
pub(crate) fn load_undo(nodes: &[Node]) -> Result<Vec<u8>> {
    let mut digest = Vec::new();
    for node in nodes {
        match open(node)?.run(&[b"SCRIPT", b"LOAD", script::UNDO.text.as_bytes()]) {
            Reply::Bulk(loaded) => digest = loaded,
            other => bail!("SCRIPT LOAD was answered with {other:?}"),
        }
    }
    Ok(digest)
}

/// Writes the restart guard that the floors read, on all nodes.
pub(crate) fn write_restart_guards(nodes: &[Node]) -> Result<()> {
    for node in nodes {
        let reply = open(node)?.run(&[b"SET", GUARD, b"-", b"PX", b"126144000000"]);
        ensure!(
            reply == Reply::Status("OK".into()),
            "the restart guard was answered with {reply:?}"
        );
    }
    Ok(())
}

/// Waits until the socket is writable again: the node has fallen so far behind that it is full.
#[cold]
pub(crate) fn await_room(socket: &OwnedFd) -> Result<()> {
    let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout))?;
    ensure!(ready == 1, "the node does not read");
    Ok(())
}

/// A socket with a queue of bytes to write and one of due replies.
pub(crate) struct Wire {
    socket: OwnedFd,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    due: VecDeque<Due>,
}

/// A reply that has not arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Its length.
    pub(crate) len: usize,
    /// The index of its lock.
    pub(crate) slot: usize,
    /// The number of that lock's request.
    pub(crate) number: u64,
}

impl Wire {
    pub(crate) fn open(node: &Node) -> Result<Self> {
        let socket = connect(node)?;
        ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, outbox: Vec::new(), inbox: Vec::new(), due: VecDeque::new() })
    }

    /// Queues a request.
    #[inline]
    pub(crate) fn say(&mut self, request: &[u8], replies: impl IntoIterator<Item = Due>) {
        self.outbox.extend_from_slice(request);
        replies.into_iter().for_each(|due| self.due.push_back(due));
    }

    /// Writes the whole queue.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<()> {
        let mut written = 0;
        while written < self.outbox.len() {
            match send(&self.socket, &self.outbox[written..], SendFlags::NOSIGNAL) {
                Ok(len) => written += len,
                Err(Errno::AGAIN) => await_room(&self.socket)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.outbox.clear();
        Ok(())
    }

    /// Reads what has arrived, and passes on each complete reply.
    #[inline]
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Due, &[u8])) -> Result<()> {
        while self.read()? {}
        let mut at = 0;
        while let Some(due) = self.due.front().filter(|due| at + due.len <= self.inbox.len()) {
            each(*due, &self.inbox[at..at + due.len]);
            at += due.len;
            self.due.pop_front();
        }
        self.inbox.drain(..at);
        ensure!(!self.due.is_empty() || self.inbox.is_empty(), "the node said more than was due");
        Ok(())
    }

    /// Reads what has arrived while nothing is due, and returns the number of bytes.
    pub(crate) fn hear_bytes(&mut self) -> Result<usize> {
        while self.read()? {}
        let heard = self.inbox.len();
        self.inbox.clear();
        Ok(heard)
    }

    /// Reads into the inbox, and returns `true` if there may be more: a read that does not fill the
    /// buffer was the last one.
    #[inline]
    fn read(&mut self) -> Result<bool> {
        self.inbox.reserve(SPACE);
        let room = self.inbox.capacity() - self.inbox.len();
        match recv(&self.socket, spare_capacity(&mut self.inbox), RecvFlags::empty()) {
            Ok((0, _)) => bail!("the node closed the connection"),
            Ok((len, _)) => Ok(len == room),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The reply to a request, as far as it is always the same.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) begins: &'static [u8],
    pub(crate) len: usize,
}

/// The reply to a lock request and to the restart-guard check behind it.
pub(crate) const GRANT: Expected = Expected { begins: b"+OK\r\n:1261", len: 20 };

/// The key of the floors' restart guard, which differs from redbolt's because that holds another
/// value.
pub(crate) const GUARD: &[u8] = b"raw-epo:guard";

/// A token as long as redbolt's without a label.
pub(crate) const TOKEN: &[u8; 34] = b"00112233445566778899aabbccddeeff00";

/// The smallest buffer space for a read.
const SPACE: usize = 16 << 10;

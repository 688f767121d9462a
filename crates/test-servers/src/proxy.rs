//! A TCP proxy in front of a server that delays, splits, joins and cuts the byte streams.
//!
//! It does not parse the bytes: `impostor` has the faults of the protocol.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::acceptor::{Acceptor, Open, cut};

/// The effect of a [`Proxy`] on the bytes of each connection, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The proxy forwards bytes as they arrive.
    Pass,
    /// The proxy writes every byte separately.
    Bytes,
    /// The proxy holds bytes for this long, and forwards all that arrived meanwhile in one write.
    Coalesce(Duration),
    /// The proxy ends a connection after this many more bytes toward the client.
    CutAfter(usize),
    /// The proxy ends a connection after this many more bytes toward the server.
    CutSentAfter(usize),
    /// The proxy accepts connections and forwards nothing. Held bytes are forwarded when the mode
    /// changes.
    Stall,
    /// The proxy ends the clients' side of all present connections, and holds what they had sent
    /// until the mode changes. New connections pass.
    Orphan,
    /// The proxy ends all connections, and each new one as soon as it is accepted.
    Refuse,
}

/// A proxy on a free loopback port. Dropping it ends its connections and threads.
#[derive(Debug)]
pub struct Proxy {
    switch: Arc<Switch>,
    acceptor: Acceptor,
}

impl Proxy {
    /// Starts a proxy in front of the server at `target`, in [`Mode::Pass`].
    pub fn before(target: &str) -> Self {
        let switch = Arc::new(Switch::default());
        let (ours, target) = (Arc::clone(&switch), target.to_owned());
        let acceptor = Acceptor::start(move |client, open| relay(client, &target, &ours, open));
        Self { switch, acceptor }
    }

    /// Does the same as [`before`](Self::before), with so small buffers that a client soon cannot
    /// send more while the proxy stalls.
    pub fn narrow_before(target: &str) -> Self {
        let switch = Arc::new(Switch::default());
        let (ours, target) = (Arc::clone(&switch), target.to_owned());
        let acceptor = Acceptor::narrow(move |client, open| relay(client, &target, &ours, open));
        Self { switch, acceptor }
    }

    /// Returns the address to connect to, as `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.acceptor.address()
    }

    /// Returns how many bytes have been forwarded toward clients.
    pub fn passed(&self) -> usize {
        self.switch.passed.load(Ordering::Relaxed)
    }

    /// Changes the mode, also for open connections. Byte counts restart.
    pub fn set(&self, mode: Mode) {
        self.switch.set(mode);
        match mode {
            Mode::Refuse => self.acceptor.cut_all(),
            Mode::Orphan => self.acceptor.cut_accepted(),
            _ => {}
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Threads that wait for the end of a stall find a changed mode and then a dead socket.
        self.set(Mode::Refuse);
    }
}

/// The present mode, and how often it has changed.
#[derive(Debug)]
struct Switch {
    setting: Mutex<(Mode, u64)>,
    changed: Condvar,
    /// The number of bytes forwarded toward clients.
    passed: AtomicUsize,
}

impl Default for Switch {
    fn default() -> Self {
        let setting = Mutex::new((Mode::Pass, 0));
        Self { setting, changed: Condvar::new(), passed: AtomicUsize::new(0) }
    }
}

impl Switch {
    fn set(&self, mode: Mode) {
        let mut setting = self.setting.lock().unwrap();
        *setting = (mode, setting.1 + 1);
        self.changed.notify_all();
    }

    /// Waits for a mode that does not hold back a connection as old as `born`.
    fn awaited(&self, born: u64) -> (Mode, u64) {
        let holds = |(mode, epoch): &mut (Mode, u64)| match mode {
            Mode::Stall => true,
            Mode::Orphan => born < *epoch,
            _ => false,
        };
        *self.changed.wait_while(self.setting.lock().unwrap(), holds).unwrap()
    }

    fn setting(&self) -> (Mode, u64) {
        *self.setting.lock().unwrap()
    }
}

fn relay(client: &TcpStream, target: &str, switch: &Switch, open: &Open) {
    let (mode, born) = switch.setting();
    if mode == Mode::Refuse {
        return;
    }
    let Ok(server) = TcpStream::connect(target).map(Arc::new) else {
        return;
    };
    if !open.note(&server) {
        return;
    }
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    thread::scope(|scope| {
        scope.spawn(|| pump(client, &server, switch, born, Direction::ToServer));
        pump(&server, client, switch, born, Direction::ToClient);
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// Forwards bytes in one direction until one side ends; then ends both sides.
fn pump(from: &TcpStream, to: &TcpStream, switch: &Switch, born: u64, direction: Direction) {
    let mut passage = Passage { from, to, direction, epoch: 0, passed: 0 };
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = (&mut &*from).read(&mut buffer) {
        let (mode, epoch) = switch.awaited(born);
        if direction == Direction::ToClient {
            switch.passed.fetch_add(length, Ordering::Relaxed);
        }
        if passage.pass(&mut buffer, length, mode, epoch).is_err() {
            break;
        }
    }
    cut(from);
    cut(to);
}

/// One direction of one connection.
struct Passage<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    direction: Direction,
    epoch: u64,
    passed: usize,
}

impl Passage<'_> {
    /// Forwards the first `length` bytes of the buffer. An error ends the connection.
    fn pass(&mut self, buffer: &mut [u8], length: usize, mode: Mode, epoch: u64) -> io::Result<()> {
        let mut to = self.to;
        match mode {
            Mode::Bytes => buffer[..length].chunks(1).enumerate().try_for_each(|(at, byte)| {
                to.write_all(byte)?;
                // This lets the reader see the byte before the next one.
                if at < YIELDS {
                    thread::yield_now();
                }
                Ok(())
            }),
            Mode::Coalesce(span) => {
                thread::sleep(span);
                let more = read_ready(self.from, &mut buffer[length..])?;
                to.write_all(&buffer[..length + more])
            }
            Mode::CutAfter(limit) if self.direction == Direction::ToClient => {
                self.pass_within(&buffer[..length], limit, epoch)
            }
            Mode::CutSentAfter(limit) if self.direction == Direction::ToServer => {
                self.pass_within(&buffer[..length], limit, epoch)
            }
            Mode::Refuse => Err(io::ErrorKind::ConnectionAborted.into()),
            Mode::Pass | Mode::CutAfter(_) | Mode::CutSentAfter(_) | Mode::Orphan | Mode::Stall => {
                to.write_all(&buffer[..length])
            }
        }
    }

    fn pass_within(&mut self, bytes: &[u8], limit: usize, epoch: u64) -> io::Result<()> {
        if self.epoch != epoch {
            (self.epoch, self.passed) = (epoch, 0);
        }
        let allowed = bytes.len().min(limit - self.passed);
        let mut to = self.to;
        to.write_all(&bytes[..allowed])?;
        self.passed += allowed;
        match self.passed < limit {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Reads what has arrived, without waiting.
///
/// The non-blocking flag also affects the other direction's writes to this socket. Such a write
/// fails if the socket is full, which ends the connection; a test's few bytes never fill it.
fn read_ready(mut from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    if buffer.is_empty() {
        return Ok(0);
    }
    from.set_nonblocking(true)?;
    let outcome = from.read(buffer);
    from.set_nonblocking(false)?;
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

const BUFFER: usize = 64 * 1024;

/// The number of bytes after which the writer yields: on a busy machine each yield costs a time
/// slice, so a long text would take minutes.
const YIELDS: usize = 64;

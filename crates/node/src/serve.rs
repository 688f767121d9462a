//! The loop that moves bytes between sockets and a store, and reads the clock. Buffers are bounded:
//! the loop does not read from a client that does not read its replies.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr},
    time::{Duration, Instant},
};

use mio::{
    Events, Interest, Poll, Registry, Waker,
    net::{TcpListener, TcpStream},
};
use socket2::SockRef;

use crate::{clock::Clock, reply::Reply, request::Requests, session::ConnId, store::Store};

/// A listener and its connections.
pub(crate) struct Server {
    poll: Poll,
    listener: TcpListener,
    clients: BTreeMap<ConnId, Client>,
    clock: Clock,
}

struct Client {
    id: ConnId,
    stream: TcpStream,
    requests: Requests,
    /// The replies that the socket has not taken.
    unsent: Vec<u8>,
    /// True if nothing more is read. The client ends when the remaining replies are sent.
    leaving: bool,
}

/// The result of a client's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The client waits for its socket.
    Waits,
    /// There is more to do, but other clients come first.
    Yields,
    Ends,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that another thread starts has a copy of the listener between its fork and its
        // exec, so closing alone might leave the port in use for a moment. If this fails, the port
        // is freed a little later.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

impl Server {
    pub(crate) fn bind(address: SocketAddr, clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { poll, listener, clients: BTreeMap::new(), clock })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a waker that ends [`run`](Self::run). Only one may exist.
    pub(crate) fn stopper(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), STOP)
    }

    /// Serves until stopped. The listener and all connections are closed when the server is
    /// dropped.
    pub(crate) fn run(&mut self, store: &mut Store) {
        let mut events = Events::with_capacity(128);
        let mut expired = Instant::now();
        loop {
            // Expiry is pushed only to connections that track a key.
            let patience = store.awaits_expiry().then_some(EXPIRY_PERIOD);
            match self.poll.poll(&mut events, patience) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
                Ok(()) => {}
            }
            if patience.is_some() && expired.elapsed() >= EXPIRY_PERIOD {
                expired = Instant::now();
                store.expire(self.clock.now());
                self.deliver(store);
            }
            for event in &events {
                match event.token() {
                    STOP => return,
                    LISTENER => self.accept(store),
                    client => self.turn(client, store),
                }
            }
        }
    }

    /// Accepts new connections. An error of `accept` concerns one connection or is temporary: the
    /// next connection tries again.
    fn accept(&mut self, store: &mut Store) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS {
                let id = store.connect();
                match Client::new(id, stream, self.poll.registry()) {
                    Ok(client) => drop(self.clients.insert(id, client)),
                    Err(_) => store.disconnect(id),
                }
            }
        }
    }

    fn turn(&mut self, token: mio::Token, store: &mut Store) {
        let id = client_of(token);
        let Some(client) = self.clients.get_mut(&id) else {
            // Another client ended it in this round.
            return;
        };
        let turn = client.turn(store, &self.clock);
        let lost = turn == Turn::Yields && client.come_again(self.poll.registry()).is_err();
        if turn == Turn::Ends || lost {
            store.disconnect(id);
            self.clients.remove(&id);
        }
        self.deliver(store);
        self.end_killed(store);
    }

    /// Sends pushed messages. A connection that does not read them is ended, as by a real server,
    /// because senders cannot be slowed down.
    fn deliver(&mut self, store: &mut Store) {
        while let Some((id, message)) = store.poll_push() {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            client.unsent.extend_from_slice(&message);
            if client.flush().is_err() || client.unsent.len() > MAX_UNHEARD {
                store.disconnect(id);
                self.clients.remove(&id);
            }
        }
    }

    /// Ends the connections that the store has closed, once their last reply is sent.
    fn end_killed(&mut self, store: &mut Store) {
        while let Some(id) = store.poll_close() {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            client.leaving = true;
            if client.turn(store, &self.clock) == Turn::Ends {
                self.clients.remove(&id);
            }
        }
    }
}

impl Client {
    fn new(id: ConnId, mut stream: TcpStream, registry: &Registry) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        registry.register(&mut stream, token_of(id), INTEREST)?;
        Ok(Self { id, stream, requests: Requests::new(), unsent: Vec::new(), leaving: false })
    }

    /// Answers, writes and reads until the socket blocks.
    fn turn(&mut self, store: &mut Store, clock: &Clock) -> Turn {
        // One busy client must not keep the others waiting.
        for _ in 0..ROUNDS_PER_TURN {
            let more = !self.leaving && self.answer(store, clock);
            if self.flush().is_err() {
                return Turn::Ends;
            }
            match (self.unsent.len(), self.leaving) {
                (0, true) => return Turn::Ends,
                (_, true) => return Turn::Waits,
                (MAX_UNSENT.., _) => return Turn::Waits,
                _ if more => continue,
                _ => {}
            }
            match self.read() {
                Ok(0) => return Turn::Ends,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Waits,
                Err(_) => return Turn::Ends,
            }
        }
        Turn::Yields
    }

    /// Runs the complete requests. Returns true if it left some because the client does not read
    /// its replies.
    fn answer(&mut self, store: &mut Store, clock: &Clock) -> bool {
        let (id, replies) = (self.id, &mut self.unsent);
        while replies.len() < MAX_UNSENT {
            match self.requests.next(|words| store.command(id, words, clock.now(), replies)) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(malformed) => {
                    // It is unknown where the next request begins.
                    let text = format!("ERR Protocol error: {}", malformed.0);
                    Reply::new(replies).error(text.as_bytes());
                    store.disconnect(id);
                    self.leaving = true;
                    return false;
                }
            }
        }
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while taken < self.unsent.len() {
            match self.stream.write(&self.unsent[taken..]) {
                Ok(length) => taken += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..taken);
        Ok(())
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = [0; PIECE];
        loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(length) => {
                    self.requests.take(&piece[..length]);
                    return Ok(length);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Registers the client again, which reports what is ready now. Events report changes only.
    fn come_again(&mut self, registry: &Registry) -> io::Result<()> {
        registry.reregister(&mut self.stream, token_of(self.id), INTEREST)
    }
}

fn token_of(id: ConnId) -> mio::Token {
    mio::Token(id.number() as usize + FIRST_CLIENT)
}

fn client_of(token: mio::Token) -> ConnId {
    ConnId::from_number((token.0 - FIRST_CLIENT) as u64)
}

const STOP: mio::Token = mio::Token(0);
const LISTENER: mio::Token = mio::Token(1);
/// The first token of a client. Connection numbers begin at 1.
const FIRST_CLIENT: usize = 1;

const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);
const MAX_CLIENTS: usize = 1024;
const MAX_UNSENT: usize = 1 << 20;
const MAX_UNHEARD: usize = 8 << 20;
/// The delay of a pushed expiry: the same as on a real server with its defaults.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);
const PIECE: usize = 16 << 10;
const ROUNDS_PER_TURN: usize = 64;

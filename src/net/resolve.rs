//! Name look-ups that never stall a lock.
//!
//! The system's resolver blocks, sometimes for half a minute. So each look-up runs in a short-lived thread of its
//! own, named `redbolt-resolve`, at most one for each link at a time. Its answer wakes the loop through a socket
//! pair: a `Poll` has at most one `Waker`, and that is the host's. IP addresses are not looked up. If no node has a
//! name, there is no resolver. Sentinels are asked in the same way.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::{Interest, Registry};

use super::sentinel::Question;

/// The answer to a look-up.
pub(super) struct Found {
    pub(super) link: usize,
    pub(super) addresses: io::Result<Vec<SocketAddr>>,
}

pub(super) struct Resolver {
    found: Receiver<Found>,
    sender: Sender<Found>,
    bell: Arc<UnixStream>,
    heard: mio::net::UnixStream,
}

impl Resolver {
    pub(super) fn new(registry: &Registry, token: mio::Token) -> io::Result<Self> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let mut heard = mio::net::UnixStream::from_std(heard);
        registry.register(&mut heard, token, Interest::READABLE)?;
        let (sender, found) = channel();
        Ok(Self { found, sender, bell: Arc::new(bell), heard })
    }

    /// Begins a look-up.
    pub(super) fn look_up(&self, link: usize, host: &str, port: u16) -> io::Result<()> {
        let host = host.to_owned();
        self.begin(link, move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect))
    }

    /// Begins to ask sentinels.
    pub(super) fn ask(&self, link: usize, question: Question) -> io::Result<()> {
        self.begin(link, move || question.ask())
    }

    fn begin(
        &self,
        link: usize,
        find: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<()> {
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        let look_up = move || {
            let addresses = find();
            // Sending fails if the client is gone. The bell is full only if it has been rung.
            let _ = sender.send(Found { link, addresses });
            let _ = (&*bell).write(&[1]);
        };
        thread::Builder::new().name("redbolt-resolve".to_owned()).spawn(look_up).map(drop)
    }

    /// The next answer. Call it after the bell rang, until there is none.
    pub(super) fn answer(&mut self) -> Option<Found> {
        let mut sink = [0; 64];
        while matches!(self.heard.read(&mut sink), Ok(1..)) {}
        self.found.try_recv().ok()
    }
}

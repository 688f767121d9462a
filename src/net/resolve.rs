//! Name look-ups that never stall a lock.
//!
//! The system's resolver blocks, sometimes for half a minute. So each look-up runs in a short-lived thread of its
//! own, named `redbolt-resolve`, at most one for each link at a time. Its answer wakes the loop through a socket
//! pair: a `Poll` has at most one `Waker`, and that is the host's. IP addresses are not looked up. If no node has a
//! name, there is no resolver. Sentinels are asked in the same way.

use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use mio::{Interest, Registry};
use socket2::SockRef;

use super::sentinel::{Master, Place, Question, Told};
use super::socket::send;

/// What a thread of its own has found out.
pub(super) enum Answer {
    Found(Found),
    /// What one of the sentinels of a link's node has said, before it counts.
    Told(usize, Told),
}

/// The answer to a look-up.
pub(super) struct Found {
    pub(super) link: usize,
    pub(super) addresses: io::Result<Vec<SocketAddr>>,
    /// The place of the master that sentinels have named.
    pub(super) master: Option<Place>,
}

pub(super) struct Resolver {
    answers: Receiver<Answer>,
    post: Post,
    heard: mio::net::UnixStream,
}

/// How an answer comes to the loop.
#[derive(Clone)]
struct Post {
    sender: Sender<Answer>,
    bell: Arc<UnixStream>,
}

impl Post {
    fn send(&self, answer: Answer) {
        // Sending fails if the client is gone. The bell is full only if it has been rung.
        let _ = self.sender.send(answer);
        let _ = send(SockRef::from(&*self.bell), &[1]);
    }
}

impl Resolver {
    pub(super) fn new(registry: &Registry, token: mio::Token) -> io::Result<Self> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let mut heard = mio::net::UnixStream::from_std(heard);
        registry.register(&mut heard, token, Interest::READABLE)?;
        let (sender, answers) = channel();
        Ok(Self { answers, post: Post { sender, bell: Arc::new(bell) }, heard })
    }

    /// Begins a look-up.
    pub(super) fn look_up(&self, link: usize, host: &str, port: u16) -> io::Result<()> {
        let host = host.to_owned();
        self.begin(move |_| {
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            Found { link, addresses, master: None }
        })
    }

    /// Begins to ask sentinels. Those that answer are listened to from then on, if that is wanted.
    pub(super) fn ask(&self, link: usize, question: Question, listen: bool) -> io::Result<()> {
        self.begin(move |post| {
            let post = post.clone();
            let keep = move |told| {
                if listen {
                    post.send(Answer::Told(link, told))
                }
            };
            match question.ask(keep) {
                Ok(Master { place, addresses }) => {
                    Found { link, addresses: Ok(addresses), master: Some(place) }
                }
                Err(error) => Found { link, addresses: Err(error), master: None },
            }
        })
    }

    fn begin(&self, find: impl FnOnce(&Post) -> Found + Send + 'static) -> io::Result<()> {
        let post = self.post.clone();
        let look_up = move || post.send(Answer::Found(find(&post)));
        thread::Builder::new().name("redbolt-resolve".to_owned()).spawn(look_up).map(drop)
    }

    /// The next answer. Call it after the bell rang, until there is none.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let mut sink = [0; 64];
        while matches!(self.heard.read(&mut sink), Ok(1..)) {}
        self.answers.try_recv().ok()
    }
}

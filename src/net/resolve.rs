//! Finding addresses and reading the files of TLS before a connection, without stalling a lock.
//!
//! The system's resolver blocks, sometimes for half a minute, and a file system can hang. So each runs in a short-lived
//! thread, named `redbolt-resolve`, at most one for each link at a time. Its answer wakes the loop through a socket
//! pair: a `Poll` has at most one `Waker`, and that is the host's. IP addresses are not looked up. If no node has a
//! name or needs files, there is no resolver. Sentinels are asked in the same way.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::{Interest, Registry};
use socket2::SockRef;

use super::hosts::LookUps;
use super::sentinel::{Place, Question, Told};
use super::socket::send;
use super::threads;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Connector};
use crate::proto::Cause;

/// What a thread of its own has found out.
pub(super) enum Answer {
    Found(Found),
    /// What one of the sentinels of a link's node has said, before it counts.
    Told(usize, Told),
}

/// The answer to a look-up.
pub(super) struct Found {
    pub(super) link: usize,
    pub(super) way: Result<Way, (Cause, io::Error)>,
}

/// How a link gets to its node.
#[derive(Default)]
pub(super) struct Way {
    pub(super) addresses: Vec<SocketAddr>,
    /// The place of the master that sentinels have named.
    pub(super) master: Option<Place>,
    /// The contents of the files of TLS, if the link has it.
    #[cfg(feature = "tls")]
    pub(super) certificates: Option<Certificates>,
}

/// With what a way is found.
pub(super) struct Means {
    pub(super) look_ups: Arc<LookUps>,
    /// Whose files are read, if TLS is spoken there.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Connector>,
}

impl Means {
    /// The way to these addresses. Reads the files, which blocks.
    fn way(
        &self,
        addresses: Vec<SocketAddr>,
        master: Option<Place>,
    ) -> Result<Way, (Cause, io::Error)> {
        Ok(Way {
            addresses,
            master,
            #[cfg(feature = "tls")]
            certificates: match self.tls.as_ref().map(Connector::read) {
                Some(read) => Some(read.map_err(|error| (Cause::Io, io::Error::other(error)))?),
                None => None,
            },
        })
    }
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
    pub(super) fn look_up(&self, link: usize, place: Place, means: Means) -> io::Result<()> {
        self.begin(link, move |_| {
            let addresses = means.look_ups.resolver().resolve(&place);
            means.way(addresses.map_err(|error| (Cause::NameLookup, error))?, None)
        })
    }

    /// Begins to ask sentinels. Those that answer are listened to from then on, if that is wanted.
    pub(super) fn ask(
        &self,
        link: usize,
        question: Question,
        means: Means,
        listen: bool,
    ) -> io::Result<()> {
        self.begin(link, move |post| {
            let post = post.clone();
            let keep = move |told| {
                if listen {
                    post.send(Answer::Told(link, told))
                }
            };
            let master = question.ask(keep).map_err(|error| (Cause::NameLookup, error))?;
            means.way(master.addresses, Some(master.place))
        })
    }

    fn begin(
        &self,
        link: usize,
        find: impl FnOnce(&Post) -> Result<Way, (Cause, io::Error)> + Send + 'static,
    ) -> io::Result<()> {
        let post = self.post.clone();
        let look_up = move || {
            let way = find(&post);
            post.send(Answer::Found(Found { link, way }));
        };
        threads::start("redbolt-resolve", look_up).map(drop)
    }

    /// The next answer. Call it after the bell rang, until there is none.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let mut sink = [0; 64];
        while matches!(self.heard.read(&mut sink), Ok(1..)) {}
        self.answers.try_recv().ok()
    }
}

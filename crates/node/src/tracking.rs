//! Messages: invalidations, which are server-assisted client-side caching as RESP2 clients see it, and what is published.
//!
//! A connection that tracks is remembered with each key that it reads. The next change of the key sends a message to
//! the connection that it redirects to, if that one is subscribed. Then all readers of the key are forgotten. Commands
//! only note what they read and change. The store sends the messages when a command is over, since expiry changes
//! keys too.
//!
//! With OPTIN it is remembered only with what the one command behind CLIENT CACHING YES reads.
//!
//! Not here: the modes BCAST and OPTOUT, and the server's limit on what it remembers.

use std::mem;

use crate::{
    reply::Reply,
    store::{ConnId, Store},
};

/// How a connection tracks.
#[derive(Clone, Copy)]
pub(crate) struct Tracking {
    /// The connection that gets the messages. Without one none are sent: in RESP2 a connection cannot get its own.
    pub(crate) redirect: Option<ConnId>,
    /// Its own changes send no message.
    pub(crate) no_loop: bool,
    /// Only what the command behind CLIENT CACHING YES reads is tracked.
    pub(crate) opt_in: bool,
    /// CLIENT CACHING YES was said, and the next command has not come.
    pub(crate) caches_next: bool,
    /// A message was due, and the connection that should get it is gone.
    pub(crate) is_broken: bool,
}

/// What a command did that matters to tracking.
pub(crate) enum Happening {
    /// It has read. The server counts this for all keys that the command names.
    Read,
    Changed(Vec<u8>),
    Flushed,
    /// It has published this, which these connections are subscribed to.
    Said(Vec<ConnId>, Vec<u8>),
}

/// What one command did, in order.
#[derive(Default)]
pub(crate) struct Journal {
    happenings: Vec<Happening>,
}

impl Journal {
    pub(crate) fn read(&mut self) {
        if !matches!(self.happenings.last(), Some(Happening::Read)) {
            self.happenings.push(Happening::Read);
        }
    }

    pub(crate) fn changed(&mut self, key: &[u8]) {
        self.happenings.push(Happening::Changed(key.to_vec()));
    }

    pub(crate) fn flushed(&mut self) {
        self.happenings.push(Happening::Flushed);
    }

    fn said(&mut self, to: Vec<ConnId>, message: Vec<u8>) {
        self.happenings.push(Happening::Said(to, message));
    }
}

impl Store {
    /// Sends a message to all who are subscribed to its channel, behind what was changed before. How many they are.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let subscribed = self.sessions.iter().filter(|session| session.channels.contains(channel));
        let to: Vec<ConnId> = subscribed.map(|session| session.id).collect();
        let count = to.len();
        if count > 0 {
            self.journal.said(to, message_on(channel, message));
        }
        count
    }

    /// Whether a command of this connection can matter to any tracking connection.
    pub(crate) fn is_watched(&self, conn: ConnId) -> bool {
        self.awaits_expiry() || self.tracking(conn).is_some()
    }

    /// Whether any connection waits for the expiry of a key, so that [`expire`](Self::expire) matters.
    pub fn awaits_expiry(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Sends the messages for everything noted during a command of `current` that named these keys, or outside of any
    /// command.
    pub(crate) fn settle(&mut self, current: Option<ConnId>, named: &[&[u8]]) {
        if self.journal.happenings.is_empty() {
            return;
        }
        // The connection of the command gets its messages last, after its reply.
        let mut to_itself = Vec::new();
        let mut happenings = mem::take(&mut self.journal.happenings);
        for happening in happenings.drain(..) {
            match happening {
                Happening::Read => self.remember(current, named),
                Happening::Changed(key) => self.tell_readers(current, key, &mut to_itself),
                Happening::Flushed => self.tell_all(current, &mut to_itself),
                Happening::Said(to, message) => {
                    self.pushes.extend(to.into_iter().map(|conn| (conn, message.clone())));
                }
            }
        }
        self.journal.happenings = happenings;
        for news in to_itself {
            current.into_iter().for_each(|tracker| self.tell(tracker, &news));
        }
    }

    pub(crate) fn forget_reader(&mut self, conn: ConnId) {
        self.readers.retain(|_, readers| {
            readers.remove(&conn);
            !readers.is_empty()
        });
    }

    fn remember(&mut self, current: Option<ConnId>, named: &[&[u8]]) {
        let remembers = |tracking: Tracking| !tracking.opt_in || tracking.caches_next;
        let tracks = |&conn: &ConnId| self.tracking(conn).is_some_and(remembers);
        let Some(reader) = current.filter(tracks) else { return };
        for key in named {
            match self.readers.get_mut(*key) {
                Some(readers) => drop(readers.insert(reader)),
                None => drop(self.readers.insert(key.to_vec(), [reader].into())),
            }
        }
    }

    fn tell_readers(&mut self, current: Option<ConnId>, key: Vec<u8>, to_itself: &mut Vec<News>) {
        for reader in self.readers.remove(&key).unwrap_or_default() {
            match self.tracking(reader) {
                Some(tracking) if current == Some(reader) => {
                    if !tracking.no_loop {
                        to_itself.push(News::Key(key.clone()));
                    }
                }
                _ => self.tell(reader, &News::Key(key.clone())),
            }
        }
    }

    /// Also to connections that have read nothing, and to one that did it itself and tracks with NOLOOP.
    fn tell_all(&mut self, current: Option<ConnId>, to_itself: &mut Vec<News>) {
        self.readers.clear();
        let all: Vec<ConnId> = self.sessions.iter().map(|session| session.id).collect();
        for conn in all {
            if current == Some(conn) {
                to_itself.push(News::AllKeys);
            } else {
                self.tell(conn, &News::AllKeys);
            }
        }
    }

    /// Sends a message to the connection that this one redirects to, if it tracks.
    fn tell(&mut self, tracker: ConnId, news: &News) {
        let Some(target) = self.tracking(tracker).and_then(|tracking| tracking.redirect) else {
            return;
        };
        match self.session(target).map(|session| session.is_subscribed()) {
            Some(true) => self.pushes.push_back((target, news.message())),
            Some(false) => {}
            None => self.note_broken(tracker),
        }
    }

    fn note_broken(&mut self, tracker: ConnId) {
        let tracking = self.session(tracker).and_then(|session| session.tracking.as_mut());
        tracking.into_iter().for_each(|tracking| tracking.is_broken = true);
    }

    fn tracking(&self, conn: ConnId) -> Option<Tracking> {
        self.place(conn).and_then(|at| self.sessions[at].tracking)
    }
}

fn message_on(channel: &[u8], message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes);
    reply.array(3);
    [b"message", channel, message].into_iter().for_each(|word| reply.bulk(word));
    bytes
}

/// What a message is about.
enum News {
    Key(Vec<u8>),
    AllKeys,
}

impl News {
    /// On this channel, whatever the receiver is subscribed to.
    fn message(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut reply = Reply::new(&mut bytes);
        reply.array(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
        match self {
            Self::AllKeys => reply.nil(),
            Self::Key(key) => {
                reply.array(1);
                reply.bulk(key);
            }
        }
        bytes
    }
}

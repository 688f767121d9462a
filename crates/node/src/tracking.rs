//! Messages to connections: published ones, and invalidations, which are server-assisted
//! client-side caching in RESP2.
//!
//! A connection that tracks is recorded with each key that it reads. The next change of the key
//! sends a message to the connection to which it redirects, if that one is subscribed. Then all
//! readers of the key are forgotten. Commands only note their reads and changes. The store sends
//! the messages when a command has ended, because expiry changes keys too.
//!
//! With OPTIN, a connection is recorded only with the reads of the one command behind CLIENT
//! CACHING YES. The modes BCAST and OPTOUT, and the server's limit on what it records, are not
//! supported.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use crate::{
    reply::Reply,
    session::{ConnId, Sessions, Tracking},
};

/// An action of a command that matters to tracking.
enum Happening {
    /// It has read. The server counts this for all keys that the command names.
    Read,
    Changed(Vec<u8>),
    Flushed,
    /// It has published this message, and these connections are subscribed to its channel.
    Published(Vec<ConnId>, Vec<u8>),
}

/// The actions of one command, in order.
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

    /// Notes a message to all subscribers of its channel. Returns their number.
    pub(crate) fn published(
        &mut self,
        sessions: &Sessions,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let subscribed = sessions.iter().filter(|session| session.channels.contains(channel));
        let to: Vec<ConnId> = subscribed.map(|session| session.id).collect();
        let count = to.len();
        if count > 0 {
            self.happenings.push(Happening::Published(to, message_on(channel, message)));
        }
        count
    }
}

/// The connections to notify of changes, and the messages that they have not been sent.
#[derive(Default)]
pub(crate) struct Messages {
    /// The keys that tracking connections have read since the last change. A key counts as the same
    /// one in all databases.
    readers: BTreeMap<Vec<u8>, BTreeSet<ConnId>>,
    unsent: VecDeque<(ConnId, Vec<u8>)>,
}

impl Messages {
    /// Returns true if any connection waits for the expiry of a key.
    pub(crate) fn awaits_expiry(&self) -> bool {
        !self.readers.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<(ConnId, Vec<u8>)> {
        self.unsent.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.readers.clear();
        self.unsent.clear();
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&mut self, conn: ConnId) {
        self.readers.retain(|_, readers| {
            readers.remove(&conn);
            !readers.is_empty()
        });
        self.unsent.retain(|(target, _)| *target != conn);
    }

    /// Adds the messages for everything noted during a command of `current` that named these keys,
    /// or outside of any command. Empties the journal.
    pub(crate) fn add(
        &mut self,
        journal: &mut Journal,
        sessions: &mut Sessions,
        current: Option<ConnId>,
        named: &[&[u8]],
    ) {
        if journal.happenings.is_empty() {
            return;
        }
        // The connection of the command gets its messages last, after its reply.
        let mut to_itself = Vec::new();
        let mut happenings = mem::take(&mut journal.happenings);
        for happening in happenings.drain(..) {
            match happening {
                Happening::Read => self.remember(sessions, current, named),
                Happening::Changed(key) => {
                    self.notify_readers(sessions, current, key, &mut to_itself);
                }
                Happening::Flushed => self.notify_all(sessions, current, &mut to_itself),
                Happening::Published(to, message) => {
                    self.unsent.extend(to.into_iter().map(|conn| (conn, message.clone())));
                }
            }
        }
        journal.happenings = happenings;
        for change in to_itself {
            current.into_iter().for_each(|tracker| self.notify(sessions, tracker, &change));
        }
    }

    fn remember(&mut self, sessions: &Sessions, current: Option<ConnId>, named: &[&[u8]]) {
        let remembers = |tracking: Tracking| !tracking.opt_in || tracking.caches_next;
        let tracks = |&conn: &ConnId| sessions.tracking(conn).is_some_and(remembers);
        let Some(reader) = current.filter(tracks) else { return };
        for key in named {
            match self.readers.get_mut(*key) {
                Some(readers) => drop(readers.insert(reader)),
                None => drop(self.readers.insert(key.to_vec(), [reader].into())),
            }
        }
    }

    fn notify_readers(
        &mut self,
        sessions: &mut Sessions,
        current: Option<ConnId>,
        key: Vec<u8>,
        to_itself: &mut Vec<Change>,
    ) {
        for reader in self.readers.remove(&key).unwrap_or_default() {
            match sessions.tracking(reader) {
                Some(tracking) if current == Some(reader) => {
                    if !tracking.no_loop {
                        to_itself.push(Change::Key(key.clone()));
                    }
                }
                _ => self.notify(sessions, reader, &Change::Key(key.clone())),
            }
        }
    }

    /// Notifies all connections that track, including those that have read nothing, and the current
    /// one even with NOLOOP.
    fn notify_all(
        &mut self,
        sessions: &mut Sessions,
        current: Option<ConnId>,
        to_itself: &mut Vec<Change>,
    ) {
        self.readers.clear();
        let all: Vec<ConnId> = sessions.iter().map(|session| session.id).collect();
        for conn in all {
            if current == Some(conn) {
                to_itself.push(Change::AllKeys);
            } else {
                self.notify(sessions, conn, &Change::AllKeys);
            }
        }
    }

    /// Adds a message to the connection that this one redirects to, if it tracks.
    fn notify(&mut self, sessions: &mut Sessions, tracker: ConnId, change: &Change) {
        let Some(target) = sessions.tracking(tracker).and_then(|tracking| tracking.redirect) else {
            return;
        };
        match sessions.get(target).map(|session| session.is_subscribed()) {
            Some(true) => self.unsent.push_back((target, change.message())),
            Some(false) => {}
            None => {
                let session = sessions.get(tracker);
                let tracking = session.and_then(|session| session.tracking.as_mut());
                tracking.into_iter().for_each(|tracking| tracking.is_broken = true);
            }
        }
    }
}

fn message_on(channel: &[u8], message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes);
    reply.array(3);
    [b"message", channel, message].into_iter().for_each(|word| reply.bulk(word));
    bytes
}

/// The subject of an invalidation.
enum Change {
    Key(Vec<u8>),
    AllKeys,
}

impl Change {
    /// Returns the message, always on the channel `__redis__:invalidate`.
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

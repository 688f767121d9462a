//! The connections of a node.

use std::collections::BTreeSet;

/// A connection, by the number that `CLIENT ID` replies. Numbers begin again after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(u64);

impl ConnId {
    /// Returns the number that `CLIENT ID` replies.
    pub fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// The state of one connection.
pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) name: Vec<u8>,
    pub(crate) database: usize,
    /// False until AUTH, if a password is set.
    pub(crate) authenticated: bool,
    /// The channels that it is subscribed to.
    pub(crate) channels: BTreeSet<Vec<u8>>,
    pub(crate) tracking: Option<Tracking>,
}

impl Session {
    /// Creates a session for a new connection, or after RESET.
    pub(crate) fn new(id: ConnId, authenticated: bool) -> Self {
        let (name, channels) = (Vec::new(), BTreeSet::new());
        Self { id, name, database: 0, authenticated, channels, tracking: None }
    }

    /// Returns true if it is subscribed. In RESP2 a subscribed connection may run few commands.
    pub(crate) fn is_subscribed(&self) -> bool {
        !self.channels.is_empty()
    }
}

/// The tracking mode of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Tracking {
    /// The connection that gets the messages. Without one none are sent, because in RESP2 a
    /// connection cannot get its own.
    pub(crate) redirect: Option<ConnId>,
    /// True if its own changes send no message.
    pub(crate) no_loop: bool,
    /// True if only reads of the command behind CLIENT CACHING YES are tracked.
    pub(crate) opt_in: bool,
    /// True if CLIENT CACHING YES was the last command.
    pub(crate) caches_next: bool,
    /// True if a message was due and the connection that should get it has ended.
    pub(crate) is_broken: bool,
}

/// The connections, in the order of their numbers.
#[derive(Default)]
pub(crate) struct Sessions {
    sessions: Vec<Session>,
    last_id: u64,
}

impl Sessions {
    pub(crate) fn open(&mut self, authenticated: bool) -> ConnId {
        self.last_id += 1;
        let id = ConnId(self.last_id);
        self.sessions.push(Session::new(id, authenticated));
        id
    }

    /// Removes a connection and returns true if it existed.
    pub(crate) fn remove(&mut self, conn: ConnId) -> bool {
        let place = self.place(conn);
        place.into_iter().for_each(|at| drop(self.sessions.remove(at)));
        place.is_some()
    }

    /// Removes all connections; their numbers begin again.
    pub(crate) fn clear(&mut self) {
        self.sessions.clear();
        self.last_id = 0;
    }

    pub(crate) fn get(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.place(conn).map(|at| &mut self.sessions[at])
    }

    pub(crate) fn tracking(&self, conn: ConnId) -> Option<Tracking> {
        self.place(conn).and_then(|at| self.sessions[at].tracking)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter()
    }

    fn place(&self, conn: ConnId) -> Option<usize> {
        self.sessions.binary_search_by_key(&conn, |session| session.id).ok()
    }
}

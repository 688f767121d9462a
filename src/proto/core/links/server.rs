//! The server that a node's connection leads to, as far as the handshake has found out.
//!
//! A node has an address, a server process a run id, and a connection to it a client id. This
//! outlives connections, because a dead connection is killed only if the process is certainly the
//! same.

use crate::proto::restart_guard::{ReplicationId, RunId};

/// The server of one node.
#[derive(Debug)]
pub(crate) struct Server {
    /// Whether this connection is in the wrong database, leads to another node's server, or has not
    /// shown in time where it leads. An undo of a request that was sent on another connection would
    /// find nothing here, and count as a confirmation.
    is_wrong: bool,
    /// Whether AUTH and SELECT have succeeded with these settings, or are not needed.
    is_proven: bool,
    /// The run id of the last connection whose handshake was complete.
    run_id: Option<RunId>,
    /// The history of its data, as last reported.
    replication_id: Option<ReplicationId>,
    /// Its replicas, as last reported.
    replicas: Option<Replicas>,
    /// The present connection, if its handshake was complete.
    connection: Option<Connection>,
    /// The dead connection whose unread requests may still run. `None` if there are several, or if
    /// its client id is unknown.
    ghosts_in: Option<Connection>,
    /// The lead of its clock over this client's, in µs, when it last refused a fencing token.
    clock_ahead_us: Option<i64>,
}

/// The replicas of a node, as reported when its connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replicas {
    /// The number of connected replicas.
    pub connected: u32,
    /// The number of replicas that are in time, if the node needs some for writes
    /// ([`min-replicas-to-write`][replication]). `None` if it needs none.
    ///
    /// [replication]: https://redis.io/docs/latest/operate/oss_and_stack/management/replication/
    pub in_time: Option<u32>,
}

/// The server process that a connection led to, and the connection's client id there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    run_id: RunId,
    client_id: u64,
}

impl Server {
    pub(super) fn new(is_proven: bool) -> Self {
        Self {
            is_wrong: false,
            is_proven,
            run_id: None,
            replication_id: None,
            replicas: None,
            connection: None,
            ghosts_in: None,
            clock_ahead_us: None,
        }
    }

    /// Returns whether AUTH and SELECT have succeeded, or are not needed, so that requests may
    /// follow them at once.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(super) fn set_proven(&mut self, is_proven: bool) {
        self.is_proven = is_proven;
    }

    /// Returns whether the connection leads to another server than the node's, or may do so.
    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    pub(super) fn set_wrong(&mut self, is_wrong: bool) {
        self.is_wrong = is_wrong;
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run_id
    }

    /// Returns the history of its data, which has changed if it was a replica.
    pub(crate) fn replication_id(&self) -> Option<ReplicationId> {
        self.replication_id
    }

    pub(crate) fn set_replication_id(&mut self, replication_id: Option<ReplicationId>) {
        self.replication_id = replication_id;
    }

    pub(crate) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    pub(super) fn set_replicas(&mut self, replicas: Option<Replicas>) {
        self.replicas = replicas;
    }

    /// Forgets the process. It may have moved to another address, and is accepted next time.
    pub(super) fn forget_process(&mut self) {
        self.run_id = None;
    }

    pub(crate) fn clock_ahead_us(&self) -> Option<i64> {
        self.clock_ahead_us
    }

    pub(crate) fn set_clock_ahead(&mut self, ahead_us: Option<i64>) {
        self.clock_ahead_us = ahead_us;
    }

    /// Records the process and the connection's client id there. Returns whether another process
    /// was here before.
    pub(super) fn identify(&mut self, run_id: RunId, client_id: Option<u64>) -> bool {
        self.connection = client_id.map(|client_id| Connection { run_id, client_id });
        self.run_id.replace(run_id).is_some_and(|before| before != run_id)
    }

    /// Forgets the connection that has ended. Returns it if its client id was known.
    pub(super) fn forget_connection(&mut self) -> Option<Connection> {
        self.is_wrong = false;
        // Otherwise one server that stood in for two nodes would be a quorum of clocks.
        self.clock_ahead_us = None;
        self.connection.take()
    }

    /// Records that requests may still run out of several dead connections.
    pub(crate) fn spread_ghosts(&mut self) {
        self.set_ghosts_in(None);
    }

    /// Records that requests may still run out of this dead connection only, or out of several if
    /// `None`.
    pub(super) fn set_ghosts_in(&mut self, connection: Option<Connection>) {
        self.ghosts_in = connection;
    }

    /// Returns the client id of the dead connection from which requests may still run, if there is
    /// only one and it led to this process.
    pub(super) fn ghosts_in(&self, run_id: RunId) -> Option<u64> {
        // In another process this id belongs to another client's connection.
        let dead = self.ghosts_in.filter(|dead| dead.run_id == run_id)?;
        Some(dead.client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_connection_is_named_to_its_own_process_only() {
        let mut server = Server::new(true);
        assert!(!server.identify([b'1'; 40], Some(7)), "nobody was here before");
        let dead = server.forget_connection();
        server.set_ghosts_in(dead);
        assert_eq!(server.ghosts_in([b'1'; 40]), Some(7));
        assert_eq!(server.ghosts_in([b'2'; 40]), None);
        assert!(server.identify([b'2'; 40], None), "another process is here");
        assert!(server.forget_connection().is_none(), "its client id is not known");
        server.set_ghosts_in(None);
        assert_eq!(server.ghosts_in([b'1'; 40]), None);
    }

    #[test]
    fn a_new_connection_is_not_wrong() {
        let mut server = Server::new(false);
        server.set_wrong(true);
        assert!(server.is_wrong() && !server.is_proven());
        server.forget_connection();
        assert!(!server.is_wrong());
    }
}

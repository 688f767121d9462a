//! Which server a node's connection leads to, as far as the handshake has found out.
//!
//! A node is known by its address, a server process by its run id, and a connection to it by its client id. Apart from
//! the handshake, which reads both ids, because this outlives connections: a dead connection is killed only where the
//! process is certainly the same. Not here: that two nodes are one process, which the folder's `mod.rs` finds out.

use crate::proto::restart_guard::{ReplicationId, RunId};

/// Who a node is.
#[derive(Debug)]
pub(crate) struct Server {
    /// This connection is in the wrong database, leads to another node's server, or did not say in time where it
    /// leads: an undo of anything that was not asked for on it would find nothing, and be taken for a confirmation.
    is_wrong: bool,
    /// AUTH and SELECT have succeeded here with these settings, or are not needed.
    is_proven: bool,
    /// Of the last connection whose handshake was complete.
    run_id: Option<RunId>,
    /// The history of its data, as it was told last.
    replication_id: Option<ReplicationId>,
    /// Its replicas, as it was told last.
    replicas: Option<Replicas>,
    /// The present connection, once its handshake was complete.
    connection: Option<Connection>,
    /// The dead connection whose unread asks may still run here; `None` if there are several such connections, or if its
    /// client id is not known.
    ghosts_in: Option<Connection>,
    /// How far its clock was ahead of ours when it last refused a fencing token, in µs.
    clock_ahead_us: Option<i64>,
}

/// The replicas of a node, as it told when its connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replicas {
    /// How many are connected.
    pub connected: u32,
    /// How many of them are in time, where the node takes no writes without some:
    /// [`min-replicas-to-write`](https://redis.io/docs/latest/operate/oss_and_stack/management/replication/). `None`: it
    /// takes writes without any.
    pub in_time: Option<u32>,
}

/// Which server process a connection led to, and its client id there.
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

    /// Whether AUTH and SELECT have succeeded here, or are not needed, so that asks may follow them unanswered.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(super) fn set_proven(&mut self, is_proven: bool) {
        self.is_proven = is_proven;
    }

    /// Whether the connection leads to another server than the node's, or may do so.
    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    pub(super) fn set_wrong(&mut self, is_wrong: bool) {
        self.is_wrong = is_wrong;
    }

    /// The process that the last connection led to.
    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run_id
    }

    /// The history of its data, which changes when it was a replica.
    pub(crate) fn replication_id(&self) -> Option<ReplicationId> {
        self.replication_id
    }

    pub(crate) fn set_replication_id(&mut self, replication_id: Option<ReplicationId>) {
        self.replication_id = replication_id;
    }

    /// Its replicas, if it has told.
    pub(crate) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    pub(super) fn set_replicas(&mut self, replicas: Option<Replicas>) {
        self.replicas = replicas;
    }

    /// Forgets which process it is. It may have moved to another address, and is believed next time.
    pub(super) fn forget_process(&mut self) {
        self.run_id = None;
    }

    /// How far its clock was ahead of ours when it last refused a fencing token, in µs.
    pub(crate) fn clock_ahead_us(&self) -> Option<i64> {
        self.clock_ahead_us
    }

    pub(crate) fn set_clock_ahead(&mut self, ahead_us: Option<i64>) {
        self.clock_ahead_us = ahead_us;
    }

    /// Records which process this is, and the connection's client id there. Returns whether another process was here
    /// before.
    pub(super) fn identify(&mut self, run_id: RunId, client_id: Option<u64>) -> bool {
        self.connection = client_id.map(|client_id| Connection { run_id, client_id });
        self.run_id.replace(run_id).is_some_and(|before| before != run_id)
    }

    /// Forgets the connection that has ended. Returns it if its client id was known.
    pub(super) fn forget_connection(&mut self) -> Option<Connection> {
        self.is_wrong = false;
        // Or one server that stood in for two nodes would be a quorum of clocks.
        self.clock_ahead_us = None;
        self.connection.take()
    }

    /// Records that the ghosts are in several connections.
    pub(crate) fn spread_ghosts(&mut self) {
        self.set_ghosts_in(None);
    }

    /// Records that asks may still run out of this dead connection, and out of no other. `None`: out of several.
    pub(super) fn set_ghosts_in(&mut self, connection: Option<Connection>) {
        self.ghosts_in = connection;
    }

    /// The client id of the dead connection that all ghosts are in, if it was to this process: in another process that id
    /// is a stranger's.
    pub(super) fn ghosts_in(&self, run_id: RunId) -> Option<u64> {
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

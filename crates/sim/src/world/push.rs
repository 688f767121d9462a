//! Push links: the servers' notifications, and how late servers expire keys.

use redbolt::proto::PushState;
use redbolt_node::model::ConnId;

use super::World;
use super::queue::Event;
use super::wire::Wire;
use crate::coverage::Phase;
use crate::plan::{MAX_NODES, MS};

impl World {
    /// Returns the indices of all links of a client.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.plan.nodes).chain(MAX_NODES..MAX_NODES + self.plan.nodes)
    }

    /// Sends the notifications that servers have queued since the last event.
    pub(super) fn spread(&mut self) {
        for node in 0..self.plan.nodes {
            while let Some((conn, message)) = self.nodes[node].store.poll_push() {
                self.report(node, conn, &message);
            }
            let node_now = &mut self.nodes[node];
            if !node_now.is_expiring && node_now.store.awaits_expiry() {
                node_now.is_expiring = true;
                let after = self.random.below(EXPIRY_PERIOD);
                self.queue.push(self.now + after, Event::Expire(node as u8));
            }
        }
    }

    fn report(&mut self, node: usize, conn: ConnId, message: &[u8]) {
        let is_it = |wire: &Wire| wire.server_alive && wire.node == node && wire.conn == Some(conn);
        let Some(at) = self.wires[..self.sockets_used].iter().position(is_it) else { return };
        let Wire { client, client_alive, .. } = self.wires[at];
        if !client_alive {
            return;
        }
        if self.wires[at].drops > 0 && !self.is_healed {
            self.wires[at].drops -= 1;
            return self.met(19, client);
        }
        self.story(|| format!("node {node} tells c{client}"));
        self.note(0x80 + node as u64);
        self.wires[at].down.bytes.extend_from_slice(message);
        self.send(at, false);
    }

    /// Expires keys on a server, as long as any client is to be notified.
    pub(super) fn expire(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.now);
        let it = &mut self.nodes[node];
        it.is_expiring = false;
        if it.is_up && it.paused_until <= self.now {
            it.store.expire(clock);
        }
    }

    /// Returns the phase of a client with an open push link.
    pub(super) fn push_phase(&self, client: usize, slot: usize) -> Phase {
        let core = &self.clients[client].core;
        match core.push_state(self.links[slot].node()) {
            PushState::Active => Phase::Told,
            _ => Phase::Subscribing,
        }
    }

    /// Records when a node begins to notify.
    pub(super) fn notice_pushes(&mut self, client: usize) {
        let core = &self.clients[client].core;
        let reports = |&node: &usize| core.push_state(self.links[node].node()) == PushState::Active;
        let reported_by =
            (0..self.plan.nodes).filter(reports).fold(0, |nodes, node| nodes | 1 << node);
        let before = std::mem::replace(&mut self.clients[client].reported_by, reported_by);
        if reported_by & !before != 0 {
            self.reached(client, Phase::Told);
        }
    }
}

/// The period of a server's expiry cycle.
const EXPIRY_PERIOD: u64 = 100 * MS;

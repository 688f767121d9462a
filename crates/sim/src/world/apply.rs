//! The effects of faults on the world.

use redbolt::proto::LockState;

use super::World;
use super::queue::{Event, Step, Time};
use super::wire::Wire;
use crate::fault::{Fault, Loss, What};
use crate::plan::{MAX_NODES, MS, Plan};

impl World {
    /// Applies a fault.
    pub(super) fn apply(&mut self, at: usize) {
        let fault = self.plan.faults[at];
        let (client, node) = (usize::from(fault.client), usize::from(fault.node) % self.plan.nodes);
        if self.is_healed || client >= self.clients.len() {
            return;
        }
        self.story(|| format!("f{at} {:?} c{client} node {node}", fault.what));
        self.note(0x50 + fault.what.number() as u64);
        self.count(&fault, client);
        let until = self.now + fault.span;
        match fault.what {
            What::Stall
            | What::Ghost
            | What::Reset
            | What::Finish
            | What::CutReply
            | What::Mute => {
                let slot = self.hurt_slot(&fault, client, node);
                self.hurt_wire(&fault, client, slot);
            }
            What::HoleUp => self.clients[client].holes[node].0 = until,
            What::HoleDown => self.clients[client].holes[node].1 = until,
            What::Partition => {
                for node in (0..self.plan.nodes).filter(|node| fault.amount >> node & 1 == 1) {
                    self.clients[client].holes[node] = (until, until);
                }
            }
            What::Isolate => {
                for client in &mut self.clients {
                    client.holes[node] = (until, until);
                }
            }
            What::PauseNode => self.nodes[node].paused_until = until,
            What::Crash { .. } => {
                self.crash(node, fault.amount & 1 == 1);
                self.queue.push(until, Event::FaultEnds(at as u16));
            }
            What::CrashGrants { loss } => self.wipe_grants(&fault, client, loss),
            What::FlushAll => self.flush_all(node),
            What::FlushScripts => drop(self.nodes[node].observe(&[b"SCRIPT", b"FLUSH"], self.now)),
            What::FlushBehindSet => self.nodes[node].flush_behind_set = true,
            What::StepNode { back } => {
                let by = fault.amount.cast_signed();
                self.nodes[node].step(if back { -by } else { by });
                // A clock that is set forward ends keys early.
                self.keys_may_be_gone |= !back;
            }
            What::StepGrants => self.step_grants(client, fault.amount),
            What::PauseClient => self.pause(client, fault.span, false),
            What::Freeze => self.pause(client, fault.span, true),
            What::StepWall { back } | What::Skew { back } => {
                let by = fault.amount.cast_signed();
                self.clients[client].set_wall(if back { -by } else { by });
                self.wall_stepped(client);
            }
            What::Errors(error) => self.nodes[node].errors = (error, until),
            What::Garbage => {
                let slot = self.hurt_slot(&fault, client, node);
                self.poison(client, slot, fault.amount);
            }
            What::Refuse => {
                self.nodes[node].refuses_until = until;
                // Only new connections are refused, so the old one has to end.
                self.reset(client, node);
            }
            What::Silent => {
                self.nodes[node].silent_until = until;
                self.reset(client, node);
            }
            What::OpenFails => {
                self.clients[client].opens_fail_until = until;
                self.reset(client, node);
            }
            What::Choke => self.clients[client].choked_until = until,
            What::ShortWrites => self.clients[client].short_until = until,
            What::Cancel => self.cancel_all(client),
            What::Twin => {
                self.clients[client].routes[node] = (node + 1) % self.plan.nodes;
                self.clients[client].strayed[node] = true;
                self.reset(client, node);
                self.queue.push(until, Event::FaultEnds(at as u16));
            }
            What::Replica { .. } => {
                self.nodes[node].follows_until = until;
                self.nodes[node].store.follows(true);
                self.queue.push(until, Event::FaultEnds(at as u16));
            }
            What::PushLost => {
                if let Some(at) = self.clients[client].wires[MAX_NODES + node] {
                    self.wires[at as usize].drops = 1 + fault.amount % 3;
                }
            }
            What::PushBroken => self.forget_tracking(client, node),
            What::PushForbidden if fault.amount & 1 == 1 => {
                self.nodes[node].no_tracking_until = until;
            }
            What::PushForbidden => self.nodes[node].no_subscribing_until = until,
            What::PushReset => self.reset(client, MAX_NODES + node),
            What::Denied => {
                if self.nodes[node].deny(fault.amount, self.now) {
                    self.reset(client, node);
                    self.queue.push(until, Event::FaultEnds(at as u16));
                }
            }
            // The client was created with them.
            What::OtherLimits => {}
            What::Change => {
                self.is_changed = true;
                self.is_quarantined = true;
                self.settle(self.clients.len() - 1);
            }
        }
    }

    /// Counts the client that a fault meets, and its phases.
    fn count(&mut self, fault: &Fault, client: usize) {
        let everybody = matches!(
            fault.what,
            What::Isolate
                | What::PauseNode
                | What::Crash { .. }
                | What::FlushAll
                | What::FlushScripts
                | What::StepNode { .. }
                | What::CrashGrants { .. }
                | What::Replica { .. }
                | What::StepGrants
        );
        let number = fault.what.number();
        if everybody {
            (0..self.clients.len()).for_each(|client| self.met(number, client));
        } else {
            self.met(number, client);
        }
    }

    /// Ends a fault that lasts.
    pub(super) fn ends(&mut self, at: usize) {
        let fault = self.plan.faults[at];
        let (client, node) = (usize::from(fault.client), usize::from(fault.node) % self.plan.nodes);
        match fault.what {
            What::Crash { loss, loading } if !self.nodes[node].is_up => {
                self.restart(node, loss);
                if loading && !self.is_healed {
                    self.nodes[node].loading_until = self.now + fault.span / 2 + MS;
                }
            }
            What::Denied => self.nodes[node].allow(),
            What::Replica { of_its_own } if self.nodes[node].follows_until == self.now => {
                self.keys_may_be_gone = true;
                self.is_quarantined |= self.plan.setup.restart_guard;
                let Plan { nodes, setup, .. } = &self.plan;
                self.nodes[node].was_replica(of_its_own, *nodes, setup, self.now);
                self.note(0x70 + node as u64);
                self.story(|| format!("node {node} is a master again, its memory another"));
            }
            What::Twin if !self.is_healed => {
                self.clients[client].routes[node] = node;
                self.reset(client, node);
            }
            _ => {}
        }
    }

    /// Returns the link that a connection fault hits: sometimes the push link, if there is one.
    fn hurt_slot(&self, fault: &Fault, client: usize, node: usize) -> usize {
        let push = MAX_NODES + node;
        let hits_push = fault.amount >> 28 & 3 == 3 && self.clients[client].wires[push].is_some();
        if hits_push { push } else { node }
    }

    /// Makes the server stop notifying the client's push link.
    fn forget_tracking(&mut self, client: usize, node: usize) {
        let Some(at) = self.clients[client].wires[node] else { return };
        let Wire { node, conn, .. } = self.wires[at as usize];
        let clock = self.nodes[node].clock(self.now);
        if let Some(conn) = conn {
            let off = [&b"CLIENT"[..], b"TRACKING", b"OFF"];
            self.nodes[node].store.command(conn, &off, clock, &mut Vec::new());
        }
    }

    fn hurt_wire(&mut self, fault: &Fault, client: usize, slot: usize) {
        let Some(at) = self.clients[client].wires[slot] else { return };
        let wire = &mut self.wires[at as usize];
        match fault.what {
            What::Stall => {
                let by = fault.span.min(1_000 * MS);
                let later: Vec<_> = wire.up.delay(by).collect();
                later.into_iter().for_each(|time| self.queue.push(time, Event::Up(at)));
                let later: Vec<_> = self.wires[at as usize].down.delay(by).collect();
                later.into_iter().for_each(|time| self.queue.push(time, Event::Down(at)));
            }
            What::Ghost => {
                let later: Vec<_> = wire.up.delay(fault.span).collect();
                later.into_iter().for_each(|time| self.queue.push(time, Event::Up(at)));
                self.queue.push(self.now, Event::Reset(at));
            }
            What::Finish => self.finish(at as usize),
            What::Mute if !wire.is_open() => {}
            What::Mute => {
                self.forget(at as usize);
                let wire = &mut self.wires[at as usize];
                wire.down.lose();
                wire.tags.clear();
                (wire.lost, wire.mute) = (true, true);
            }
            What::CutReply => {
                let unread = wire.down.unread();
                wire.down.cut(fault.amount as usize % (unread + 1));
                // The connection ends once the cut reply has arrived.
                let end = wire.down.last_at().max(self.now);
                self.forget(at as usize);
                self.queue.push(end, Event::Reset(at));
            }
            _ => self.reset(client, slot),
        }
    }

    /// Closes both ends and loses everything in flight.
    fn reset(&mut self, client: usize, slot: usize) {
        let Some(at) = self.clients[client].wires[slot] else { return };
        self.forget(at as usize);
        self.wires[at as usize].down.lose();
        self.wires[at as usize].tags.clear();
        self.queue.push(self.now, Event::Reset(at));
    }

    /// Ends a server's process, or silently its whole machine.
    pub(crate) fn crash(&mut self, node: usize, silently: bool) {
        if !self.nodes[node].is_up {
            return;
        }
        self.nodes[node].is_up = false;
        for at in 0..self.sockets_used {
            let wire = &mut self.wires[at];
            if wire.node != node || !wire.server_alive {
                continue;
            }
            wire.unacknowledged = wire.up.unread() > 0;
            wire.lost = silently;
            self.forget(at);
            if !silently {
                self.queue.push(self.now + self.plan.net.delay, Event::Reset(at as u32));
            }
        }
    }

    /// Restarts the server. Clients that have sent something meanwhile get a reset.
    pub(super) fn restart(&mut self, node: usize, loss: Loss) {
        self.keys_may_be_gone |= loss != Loss::Kept;
        self.is_quarantined |= self.plan.setup.restart_guard;
        self.nodes[node].restart(node, loss, self.now);
        self.note(0x60 + node as u64);
        self.story(|| format!("node {node} is up again, its memory {loss:?}"));
        for at in 0..self.sockets_used {
            let wire = &self.wires[at];
            if wire.node == node && wire.is_notified_of_its_end() {
                self.queue.push(self.now + 2 * self.plan.net.delay, Event::Reset(at as u32));
            }
        }
    }

    /// Restarts nodes that granted the lock without it, one after another.
    fn wipe_grants(&mut self, fault: &Fault, client: usize, loss: Loss) {
        let grants = self.grants_of(client);
        for (turn, node) in grants.into_iter().take(fault.amount as usize).enumerate() {
            let at = self.now + turn as Time * fault.span;
            let loss = loss as u8;
            self.queue.push(at, Event::Wipe(node as u8, loss));
        }
    }

    pub(super) fn wipe(&mut self, node: usize, loss: u8) {
        if !self.is_healed {
            let loss = [Loss::Kept, Loss::Lost, Loss::Stale][usize::from(loss)];
            self.crash(node, false);
            self.restart(node, loss);
        }
    }

    fn step_grants(&mut self, client: usize, micros: u64) {
        self.keys_may_be_gone = true;
        for node in self.grants_of(client) {
            self.nodes[node].step(micros.cast_signed());
        }
    }

    /// Returns the nodes that granted a lock which the client holds.
    fn grants_of(&self, client: usize) -> Vec<usize> {
        let core = &self.clients[client].core;
        let mut jobs = self.plan.jobs.iter().zip(&self.jobs);
        let held = jobs.find_map(|(plan, job)| {
            let id = job.id.filter(|_| usize::from(plan.client) == client)?;
            matches!(core.state(id), LockState::Held | LockState::Extending).then_some(id)
        });
        held.map_or_else(Vec::new, |id| {
            core.votes(id).grants().iter().map(redbolt::proto::NodeId::index).collect()
        })
    }

    fn pause(&mut self, client: usize, span: Time, with_boot_clock: bool) {
        let now = self.now;
        self.clients[client].pause(now, span, with_boot_clock);
    }

    /// Injects bytes that are not a reply, or an unsolicited reply.
    fn poison(&mut self, client: usize, slot: usize, amount: u64) {
        let Some(at) = self.clients[client].wires[slot] else { return };
        let at = at as usize;
        let unsent = !self.clients[client].core.transmit(self.links[slot]).is_empty();
        let wire = &mut self.wires[at];
        if !wire.is_open() {
            return;
        }
        wire.poisoned = true;
        let is_idle = !unsent
            && wire.asked == wire.answered
            && wire.up.unread() == 0
            && wire.down.unread() == 0;
        let at_once = is_idle
            && self.clients[client].paused_until <= self.now
            && self.clients[client].holes[wire.node].1 <= self.now;
        let bytes = if at_once {
            UNASKED[amount as usize % UNASKED.len()]
        } else {
            NONSENSE[amount as usize % NONSENSE.len()]
        };
        if at_once {
            wire.down.push_arrived(bytes);
            self.deliver(at);
        } else {
            wire.down.bytes.extend_from_slice(bytes);
            self.send(at, false);
        }
    }

    fn cancel_all(&mut self, client: usize) {
        for job in 0..self.jobs.len() {
            if usize::from(self.plan.jobs[job].client) == client {
                self.queue.push(self.now, Event::Act(job as u16, Step::Cancel));
            }
        }
    }

    /// Ends all faults and releases all jobs. Afterwards newcomers want the locks.
    pub(super) fn heal(&mut self) {
        let holes = |client: &super::Client| client.holes.map(|(up, down)| up.max(down));
        let clients =
            self.clients.iter().flat_map(|c| holes(c).into_iter().chain([c.paused_until]));
        let nodes = self.nodes[..self.plan.nodes].iter().map(|node| node.paused_until);
        let latest = clients.chain(nodes).max().unwrap_or(0);
        if latest > self.now {
            return self.queue.push(latest, Event::Heal);
        }
        self.is_healed = true;
        self.story(|| "all faults are healed".to_owned());
        for node in 0..self.plan.nodes {
            self.heal_node(node);
        }
        for client in 0..self.clients.len() {
            if self.is_used(client) {
                self.heal_client(client);
            }
        }
        self.come_afterwards();
    }

    fn heal_node(&mut self, node: usize) {
        if !self.nodes[node].is_up {
            let of_it = |fault: &&Fault| usize::from(fault.node) % self.plan.nodes == node;
            let loss = self.plan.faults.iter().filter(of_it).find_map(|fault| match fault.what {
                What::Crash { loss, .. } => Some(loss),
                _ => None,
            });
            self.restart(node, loss.unwrap_or(Loss::Kept));
        }
        let node = &mut self.nodes[node];
        (node.silent_until, node.refuses_until, node.loading_until) = (0, 0, 0);
        (node.errors.1, node.follows_until) = (0, 0);
        node.store.follows(false);
        (node.no_subscribing_until, node.no_tracking_until) = (0, 0);
        node.allow();
        node.flush_behind_set = false;
    }

    fn heal_client(&mut self, client: usize) {
        let it = &mut self.clients[client];
        (it.choked_until, it.short_until, it.opens_fail_until) = (0, 0, 0);
        let routes = self.clients[client].routes;
        for slot in self.slots() {
            let name = slot % MAX_NODES;
            let it = &mut self.clients[client];
            let strayed = routes[name] != name;
            it.routes[name] = name;
            let wire = it.wires[slot].map(|wire| &self.wires[wire as usize]);
            let lost = wire.is_some_and(|wire| wire.lost && !wire.mute);
            if strayed || lost {
                self.reset(client, slot);
            }
        }
        for job in 0..self.jobs.len() {
            let is_its = usize::from(self.plan.jobs[job].client) == client;
            if is_its && !self.jobs[job].is_let_go() {
                self.queue.push(self.now, Event::Act(job as u16, Step::LetGo));
            }
        }
        self.settle(client);
    }
}

/// Unsolicited replies.
const UNASKED: [&[u8]; 5] =
    [b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"-ERR of nothing\r\n", b"+OK\r\n+OK\r\n"];

/// Bytes that no server sends.
const NONSENSE: [&[u8]; 8] = [
    b"_\r\n",
    b"$99999999\r\n",
    b"*17\r\n",
    b"\0",
    b"*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    b"+OK\n",
    b":12x\r\n",
    b"HTTP/1.1 400 Bad Request\r\n",
];

//! A world in virtual time: clients on the shipping core, model nodes, and the wires between them.
//!
//! It is deterministic: everything is drawn from the plan's seed, each part from a separate stream.
//! A world runs one schedule after another and reuses its memory. The cores are driven here call by
//! call, and not by the test kit, for two reasons: the meaning of each reply is recorded before the
//! core reads it, and this loop's speed limits the number of schedules searched.
//!
//! The loop and the clients' side of the wires are here. `serve` is the servers' side, `apply` the
//! effects of faults, `check` the final checks, `actor` the jobs of clients.

mod apply;
mod check;
pub(crate) mod client;
pub(crate) mod node;
mod push;
pub(crate) mod queue;
mod serve;
pub(crate) mod wire;

use std::sync::Arc;

use redbolt::proto::{
    Cause, ClockReading, Config, Core, LinkId, LinkOp, LockState, NodeState, PushState,
};
use redbolt_testkit::{Random, command_links};

use self::client::Client;
use self::node::Node;
use self::queue::{Event, Queue, Step, Time};
use self::wire::{NO_SLOT, Says, Wire};
use crate::coverage::{Coverage, Phase, Phases};
use crate::fault::{Fault, Loss, What, When};
use crate::history::History;
use crate::invariant::Violation;
use crate::notes::{Holdings, Running, Ticket, Watch};
use crate::plan::{Class, ClientPlan, KEYS, LANES, MAX_NODES, MS, Plan, Setup, Start};
use crate::register::Register;

/// The world of one schedule, and the memory for many.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    pub(crate) queue: Queue,
    pub(crate) clients: Vec<Client>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) wires: Vec<Wire>,
    sockets_used: usize,
    pub(crate) jobs: Vec<Running>,
    pub(crate) members: Vec<Holdings>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) watches: [Watch; KEYS.len()],
    pub(crate) tickets: Vec<Ticket>,
    /// The time at which a node last ran a script.
    pub(crate) scripted_at: Time,
    pub(crate) registers: [Register; LANES],
    pub(crate) histories: [History; KEYS.len()],
    /// The tokens that were returned, and when, for each resource.
    pub(crate) tokens: [Vec<(Time, u64)>; LANES],
    /// Faults that wait for a phase.
    armed: Vec<u16>,
    pub(crate) is_healed: bool,
    /// A node may be quarantined.
    is_quarantined: bool,
    /// The nodes may have been given other limits.
    pub(crate) is_changed: bool,
    healed_at: Time,
    /// The arrival time of the last bytes that were in flight at the healing, from dead connections
    /// too.
    quiet_at: Time,
    /// True if a node has lost memory, or its clock stepped forward: keys may be missing.
    pub(crate) keys_may_be_gone: bool,
    /// True if the story of the schedule is printed.
    pub(crate) is_notified: bool,
    /// True if the more expensive checks run in this schedule.
    pub(crate) is_sampled: bool,
    pub(crate) coverage: Coverage,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<Violation>,
    hash: u64,
    events: u32,
    pub(crate) random: Random,
    /// The links, by slot.
    links: Vec<LinkId>,
    configs: Vec<(usize, Setup, Arc<Config>)>,
    scratch: Vec<u8>,
}

/// The requests under one token, and the nodes' answers to them.
pub(crate) struct Attempt {
    pub(crate) tag: u128,
    pub(crate) job: u16,
    /// The client that asked.
    pub(crate) client: u8,
    /// The order of the client's attempts.
    pub(crate) serial: u64,
    /// The time of the first grant; `Time::MAX` before.
    pub(crate) begun: Time,
    /// The time at which the client read the grant, by its node numbers.
    pub(crate) granted: [Option<Time>; MAX_NODES],
    /// The slot of each grant of a permit.
    pub(crate) slots: [u16; MAX_NODES],
    /// The counter of each grant.
    pub(crate) counters: [u64; MAX_NODES],
    /// The TTL of the last successful extension, as the client read it.
    pub(crate) extended: [u64; MAX_NODES],
    /// The latest end of the key on each node, according to what the client read; 0 once it is
    /// missing.
    pub(crate) until: [Time; MAX_NODES],
    /// The nodes whose denial the client read.
    pub(crate) denied: [bool; MAX_NODES],
    /// The nodes whose reply that there was no key to extend the client read.
    pub(crate) gone: [bool; MAX_NODES],
    /// The nodes whose reply that the undo succeeded the client read.
    pub(crate) undone: [bool; MAX_NODES],
    /// The servers that ran a request from a dead connection.
    pub(crate) has_ghosts: [bool; MAX_NODES],
}

/// The counts of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) grants: u64,
    pub(crate) fenced: u64,
    pub(crate) refusals: u64,
    pub(crate) losses: u64,
    pub(crate) upgrades: u64,
    pub(crate) upgrades_refused: u64,
    pub(crate) downgrades: u64,
    pub(crate) downgrades_delayed: u64,
    pub(crate) stale_writes: u64,
    pub(crate) writes_refused: u64,
    /// Violations that the class expects.
    pub(crate) expected: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            plan: Plan::draw(Class::Safe, 0),
            now: 0,
            queue: Queue::default(),
            clients: Vec::new(),
            nodes: (0..MAX_NODES).map(|_| Node::new()).collect(),
            wires: Vec::new(),
            sockets_used: 0,
            jobs: Vec::new(),
            members: Vec::new(),
            attempts: Vec::new(),
            watches: Default::default(),
            tickets: Vec::new(),
            scripted_at: 0,
            registers: Default::default(),
            histories: Default::default(),
            tokens: Default::default(),
            armed: Vec::new(),
            is_healed: false,
            is_quarantined: false,
            is_changed: false,
            healed_at: 0,
            quiet_at: 0,
            keys_may_be_gone: false,
            is_notified: false,
            is_sampled: false,
            coverage: Coverage::default(),
            tally: Tally::default(),
            violation: None,
            hash: 0,
            events: 0,
            random: Random::new(0),
            // Push links are added when they are opened.
            links: command_links(MAX_NODES).repeat(2),
            configs: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Plays the plan to its end, or to the first violation.
    pub(crate) fn run(&mut self) {
        self.set_up();
        while self.violation.is_none() {
            let Some((at, event)) = self.queue.pop() else { break };
            debug_assert!(at >= self.now, "time does not run backwards");
            self.now = at;
            self.events += 1;
            if self.events > MANY {
                self.violation = Some(Violation::Endless);
            }
            if !self.happens(event) {
                break;
            }
        }
    }

    /// Returns a hash of the whole trace.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u32 {
        self.events
    }

    pub(crate) fn set_up(&mut self) {
        self.now = 0;
        self.queue.clear();
        self.sockets_used = 0;
        self.attempts.clear();
        self.watches = Default::default();
        self.tickets.clear();
        self.scripted_at = 0;
        self.registers.iter_mut().for_each(Register::clear);
        self.histories.iter_mut().for_each(History::clear);
        self.tokens.iter_mut().for_each(Vec::clear);
        self.armed.clear();
        (self.is_healed, self.keys_may_be_gone) = (false, false);
        self.is_quarantined = self.plan.setup.start == Start::Bare;
        self.is_changed = false;
        (self.violation, self.hash, self.events) = (None, 0, 0);
        self.tally = Tally::default();
        self.random = Random::of(self.plan.seed, 1);
        self.is_sampled = self.plan.seed % 16 == 3;
        for name in 0..self.plan.nodes {
            let Plan { nodes, setup, node_clocks, counters, faults, .. } = &self.plan;
            let is_notified = faults.iter().any(|fault| matches!(fault.what, What::Replica { .. }));
            self.nodes[name].reset(name, *nodes, setup, node_clocks[name], is_notified);
            self.nodes[name].count_from(counters[name]);
        }
        let config = self.config(self.plan.setup);
        self.clients.clear();
        let setup = self.plan.setup;
        for at in 0..self.plan.clients.len() {
            let client = self.plan.clients[at];
            let entropy = Random::of(self.plan.seed, 1_000 + at as u64);
            let other_limits =
                |fault: &Fault| fault.what == What::OtherLimits && usize::from(fault.client) == at;
            if self.plan.faults.iter().any(other_limits) {
                let other = Setup { max_ttl_ms: setup.other_ttl_ms, ..setup };
                let config = self.config(other);
                self.clients.push(Client::new(&config, at, client, entropy));
            } else {
                self.clients.push(Client::new(&config, at, client, entropy));
            }
        }
        if self.plan.faults.iter().any(|fault| fault.what == What::Change) {
            self.call_operator();
        }
        self.jobs.clear();
        for at in 0..self.plan.jobs.len() {
            let job = self.plan.jobs[at];
            self.jobs.push(Running::default());
            self.begin(at, &job);
        }
        self.members.clear();
        for at in 0..self.plan.members.len() {
            let member = self.plan.members[at];
            self.join(at, &member);
        }
        for at in 0..self.plan.faults.len() {
            self.arm_fault(at);
        }
        self.queue.push(self.plan.heal_at, Event::Heal);
        for client in 0..self.clients.len() {
            if self.is_used(client) {
                self.settle(client);
            }
        }
    }

    /// Returns true if any job runs on this client.
    fn is_used(&self, client: usize) -> bool {
        let wants = self.plan.jobs.iter().any(|job| usize::from(job.client) == client);
        wants || self.clients[client].is_started
    }

    /// Adds a client that changes the limits of the nodes, and wants no lock.
    fn call_operator(&mut self) {
        let setup = self.plan.setup;
        let (max_ttl_ms, start) = (setup.other_ttl_ms, Start::Changed);
        let config = self.config(Setup { max_ttl_ms, start, ..setup });
        let (name, client) = (self.clients.len(), self.plan.clients[0]);
        let entropy = Random::of(self.plan.seed, 999);
        self.clients.push(Client::new(&config, name, client, entropy));
    }

    fn arm_fault(&mut self, at: usize) {
        let fault = self.plan.faults[at];
        if let What::Crash { loss: Loss::Stale, .. }
        | What::CrashGrants { loss: Loss::Stale }
        | What::Replica { of_its_own: true } = fault.what
        {
            for node in 0..self.plan.nodes {
                self.queue.push(fault.at / 2, Event::Snapshot(node as u8));
            }
        }
        match fault.when {
            When::Time => self.queue.push(fault.at, Event::Fault(at as u16)),
            When::Reached(..) => self.armed.push(at as u16),
        }
    }

    /// Returns the configuration of a setup, built once for each.
    fn config(&mut self, setup: Setup) -> Arc<Config> {
        let nodes = self.plan.nodes;
        let known = self.configs.iter().find(|known| known.0 == nodes && known.1 == setup);
        if let Some((.., config)) = known {
            return Arc::clone(config);
        }
        let config = Arc::new(client::config(nodes, &setup));
        self.configs.push((nodes, setup, Arc::clone(&config)));
        config
    }

    /// Handles an event. Returns true if the schedule goes on.
    pub(crate) fn happens(&mut self, event: Event) -> bool {
        self.nobody_sleeps();
        let goes_on = self.takes_place(event);
        self.spread();
        self.watch();
        self.no_slot_stays_free();
        goes_on
    }

    fn takes_place(&mut self, event: Event) -> bool {
        match event {
            Event::Act(job, step) => self.act(job.into(), step),
            Event::Member(member, next) => self.moves(member.into(), next),
            Event::Fault(fault) => self.apply(fault.into()),
            Event::FaultEnds(fault) => self.ends(fault.into()),
            Event::Connect(wire) => self.connect(wire as usize),
            Event::Up(wire) => self.serve(wire as usize),
            Event::Down(wire) => self.deliver(wire as usize),
            Event::Writable(wire) => self.writable(wire as usize),
            Event::Eof(wire) => self.ended(wire as usize, Cause::ConnectionClosed),
            Event::Reset(wire) => self.ended(wire as usize, Cause::ConnectionReset),
            Event::Timer(client) => self.timer(client.into()),
            Event::Heal => self.heal(),
            Event::Probe(job) => self.act(job.into(), Step::Start),
            Event::Expire(node) => self.expire(node.into()),
            Event::Wipe(node, loss) => self.wipe(node.into(), loss),
            Event::Snapshot(node) => self.nodes[usize::from(node)].take_snapshot(),
            Event::Leftovers => self.leftovers(),
            Event::Final => {
                self.recheck();
                return false;
            }
        }
        true
    }

    /// Adds to the trace.
    #[inline]
    pub(crate) fn note(&mut self, what: u64) {
        let mixed = self.hash.rotate_left(5) ^ what ^ self.now;
        self.hash = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Prints a line of the story, in a replay.
    pub(crate) fn story(&self, line: impl FnOnce() -> String) {
        if self.is_notified {
            println!("{:>12.3} ms  {}", self.now as f64 / 1e6, line());
        }
    }

    /// Records a violation. The first one ends the schedule, unless the class expects it.
    pub(crate) fn violated(&mut self, violation: Violation) {
        if violation.is_exclusion() && self.plan.class.breaks_exclusion() {
            self.tally.expected += 1;
        } else if self.violation.is_none() {
            self.violation = Some(violation);
        }
    }

    pub(crate) fn clocks(&self, client: usize) -> ClockReading {
        self.clients[client].clocks(self.now)
    }

    pub(crate) fn link(&self, slot: usize) -> LinkId {
        self.links[slot]
    }

    /// Returns the first number of wires that are opened later.
    pub(crate) fn sockets_used(&self) -> usize {
        self.sockets_used
    }

    pub(crate) fn core(&mut self, client: usize) -> &mut Core {
        &mut self.clients[client].core
    }

    // Phases, and the faults that wait for them.

    /// Records that a client has entered a phase, and schedules the faults that waited for it.
    pub(crate) fn reached(&mut self, client: usize, phase: Phase) {
        if self.armed.is_empty() || self.is_healed {
            return;
        }
        let mut at = 0;
        while at < self.armed.len() {
            let fault = self.plan.faults[usize::from(self.armed[at])];
            match fault.when {
                When::Reached(wanted, lag)
                    if wanted == phase
                        && usize::from(fault.client) == client
                        && self.now >= fault.at =>
                {
                    let fault = self.armed.swap_remove(at);
                    self.queue.push(self.now + lag, Event::Fault(fault));
                }
                _ => at += 1,
            }
        }
    }

    /// Returns the phases of a client.
    pub(crate) fn phases(&self, client: usize) -> Phases {
        let mut phases = Phases::default();
        let it = &self.clients[client];
        for wire in it.wires.iter().flatten() {
            let wire = &self.wires[*wire as usize];
            if wire.is_push() {
                phases.insert(self.push_phase(client, wire.slot));
            } else if wire.conn.is_none() {
                phases.insert(Phase::Connecting);
            } else {
                let state = it.core.node_state(self.links[wire.slot].node());
                if state == NodeState::Connecting {
                    phases.insert(Phase::Handshaking);
                }
            }
        }
        for (plan, job) in self.plan.jobs.iter().zip(&self.jobs) {
            let Some(id) = job.id.filter(|_| usize::from(plan.client) == client) else { continue };
            match it.core.state(id) {
                LockState::Asked if it.core.votes(id).grants().is_empty() => {
                    phases.insert(Phase::Asked);
                }
                LockState::Asked | LockState::Fencing => phases.insert(Phase::Partly),
                LockState::Pausing => phases.insert(Phase::Waiting),
                LockState::Extending => phases.insert(Phase::Extending),
                LockState::Held => phases.insert(Phase::Granted),
                LockState::Releasing => phases.insert(Phase::Releasing),
                _ => {}
            }
        }
        phases
    }

    /// Counts a fault that met a client.
    pub(crate) fn met(&mut self, fault: usize, client: usize) {
        let phases = self.phases(client);
        self.coverage.fault(fault, phases);
    }

    // A client's side of its wires.

    /// Carries out a core's outputs until there are none.
    pub(crate) fn settle(&mut self, client: usize) {
        self.clients[client].is_started = true;
        loop {
            let mut moved = false;
            while let Some(op) = self.core(client).poll_link() {
                moved = true;
                self.link_op(client, op);
            }
            while let Some(event) = self.core(client).poll_event() {
                moved = true;
                self.reported(client, event);
            }
            if !moved || self.violation.is_some() {
                break;
            }
        }
        for slot in self.slots() {
            self.write(client, slot);
        }
        self.notice(client);
        self.notice_pushes(client);
        self.arm(client);
    }

    /// Schedules the event of a core's timer.
    fn arm(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let Some(due) = it.core.poll_timeout() else { return };
        let at = it.when(due).saturating_add(it.late()).max(self.now);
        if at < it.armed {
            it.armed = at;
            self.queue.push(at, Event::Timer(client as u16));
        }
    }

    fn timer(&mut self, client: usize) {
        if self.clients[client].armed != self.now {
            return;
        }
        let until = self.clients[client].paused_until;
        if until > self.now {
            self.clients[client].armed = until;
            return self.queue.push(until, Event::Timer(client as u16));
        }
        self.clients[client].armed = Time::MAX;
        // A driver reads its sockets before it fires its timers.
        for slot in self.slots() {
            if let Some(wire) = self.clients[client].wires[slot] {
                self.read(wire as usize);
            }
        }
        let now = self.clocks(client);
        self.core(client).timeout(now);
        if self.clients[client].fired(self.now) > MAX_FIRES {
            self.violated(Violation::Spins { client });
        }
        self.note(0x71 + client as u64);
        self.settle(client);
    }

    fn link_op(&mut self, client: usize, op: LinkOp) {
        match op {
            LinkOp::Open(link) => {
                let slot = slot_of(link);
                self.links[slot] = link;
                self.open(client, slot);
            }
            LinkOp::Close(link) => {
                if let Some(wire) = self.clients[client].wires[slot_of(link)].take() {
                    self.blame(wire as usize);
                    self.hang_up(wire as usize);
                }
            }
        }
    }

    fn open(&mut self, client: usize, slot: usize) {
        self.note(0x10 + slot as u64);
        let it = &mut self.clients[client];
        if it.opens_fail_until > self.now && !self.is_healed {
            let cause = if self.random.chance(500) { Cause::Io } else { Cause::NameLookup };
            let (now, link) = (self.clocks(client), self.links[slot]);
            return self.core(client).disconnected(link, cause, now);
        }
        let server = it.routes[slot % MAX_NODES];
        let at = self.sockets_used;
        self.sockets_used += 1;
        if at == self.wires.len() {
            self.wires.push(Wire::new());
        }
        let random =
            Random::of(self.plan.seed, ((at as u64) << 8) | (client as u64) << 4 | slot as u64);
        self.wires[at].open(client, slot, server, random);
        self.clients[client].wires[slot] = Some(at as u32);
        let delay = 2 * self.plan.net.delay
            + 2 * self.far(client)
            + self.wires[at].random.below(self.plan.net.jitter + 1);
        self.queue.push(self.now + delay, Event::Connect(at as u32));
        if slot < MAX_NODES {
            self.reached(client, Phase::Connecting);
        }
    }

    /// Checks that a client closes a link for garbage only if there was some.
    fn blame(&mut self, wire: usize) {
        let Wire { client, slot, poisoned, .. } = self.wires[wire];
        let (core, node) = (&self.clients[client].core, self.links[slot].node());
        let cause = match (core.push_state(node), core.node_state(node)) {
            (PushState::Unavailable(cause), _) if self.wires[wire].is_push() => Some(cause),
            (_, NodeState::Down(cause)) if !self.wires[wire].is_push() => Some(cause),
            _ => None,
        };
        if matches!(cause, Some(Cause::Violation | Cause::UnexpectedReply)) && !poisoned {
            self.violated(Violation::BlamedWrongly { client, node: node.index() });
        }
    }

    /// Closes the client's end. The bytes that it has written stay in flight.
    fn hang_up(&mut self, wire: usize) {
        let it = &mut self.wires[wire];
        it.client_alive = false;
        it.down.lose();
        it.tags.clear();
        if it.server_alive && it.up.unread() == 0 {
            let conn = it.conn.expect("a live server has accepted the connection");
            it.server_alive = false;
            self.nodes[it.node].store.disconnect(conn);
        }
    }

    /// Ends a connection at the client.
    fn ended(&mut self, wire: usize, cause: Cause) {
        let it = &self.wires[wire];
        let (client, slot) = (it.client, it.slot);
        if !it.client_alive {
            return;
        }
        let until = self.clients[client].paused_until;
        if until > self.now {
            let again = match cause {
                Cause::ConnectionClosed => Event::Eof(wire as u32),
                _ => Event::Reset(wire as u32),
            };
            return self.queue.push(until, again);
        }
        if cause == Cause::ConnectionClosed {
            self.read(wire);
            if !self.wires[wire].client_alive {
                return;
            }
        }
        self.note(0x20 + slot as u64);
        self.story(|| format!("c{client} lost its connection to node {slot}: {cause}"));
        self.hang_up(wire);
        self.clients[client].wires[slot] = None;
        let (now, link) = (self.clocks(client), self.links[slot]);
        self.core(client).disconnected(link, cause, now);
        self.settle(client);
    }

    fn writable(&mut self, wire: usize) {
        let Wire { client, slot, client_alive, .. } = self.wires[wire];
        if client_alive && self.wait_for(client, Event::Writable(wire as u32)) {
            self.write(client, slot);
        }
    }

    /// Returns true if a client is awake; if not, the event is repeated when it is.
    pub(crate) fn wait_for(&mut self, client: usize, event: Event) -> bool {
        let until = self.clients[client].paused_until;
        if until > self.now {
            self.queue.push(until, event);
        }
        until <= self.now
    }

    /// Writes as much as the socket accepts.
    fn write(&mut self, client: usize, slot: usize) {
        let it = &mut self.clients[client];
        let Some(at) = it.wires[slot] else { return };
        let unsent = it.core.transmit(self.links[slot]).len();
        let wire = &mut self.wires[at as usize];
        if unsent == 0 || wire.conn.is_none() {
            return;
        }
        if unsent > MAX_OUTBOX {
            self.violated(Violation::Unbounded { client, what: "bytes to write", amount: unsent });
            return;
        }
        if it.choked_until > self.now {
            self.queue.push(it.choked_until, Event::Writable(at));
            return;
        }
        let short = it.short_until > self.now;
        let taken = if short { unsent.min(1 + wire.random.below(40) as usize) } else { unsent };
        let bytes = &it.core.transmit(self.links[slot])[..taken];
        let is_received = wire.server_alive;
        if is_received {
            wire.up.bytes.extend_from_slice(bytes);
        }
        it.core.transmitted(self.links[slot], taken);
        self.note(taken as u64);
        if taken < unsent {
            self.queue.push(self.now + 50_000, Event::Writable(at));
        }
        if is_received {
            self.send(at as usize, true);
        } else if self.wires[at as usize].lost {
            self.wires[at as usize].unacknowledged = true;
            let Wire { node, mute, .. } = self.wires[at as usize];
            if self.nodes[node].is_up && !mute {
                self.queue.push(self.now + 2 * self.plan.net.delay, Event::Reset(at));
            }
        }
    }

    /// Returns the extra delay of a client. An operator has none.
    fn far(&self, client: usize) -> Time {
        let is_far = |client: &&ClientPlan| self.now >= client.far_from;
        self.plan.clients.get(client).filter(is_far).map_or(0, |client| client.far)
    }

    /// Sends the newly written bytes.
    pub(crate) fn send(&mut self, at: usize, up: bool) {
        let (net, far) = (self.plan.net, self.far(self.wires[at].client));
        let wire = &mut self.wires[at];
        let client = wire.client;
        let stream = if up { &mut wire.up } else { &mut wire.down };
        let mut arrives = self.now + net.delay + far + wire.random.below(net.jitter + 1);
        let (mut tail, mut loss) = (false, false);
        if !self.is_healed {
            tail = wire.random.chance(net.tail_per_mille);
            loss = wire.random.chance(net.loss_per_mille);
            arrives += if tail { wire.random.below(net.tail) } else { 0 };
            arrives += if loss { RETRANSMISSION } else { 0 };
        }
        let end = stream.bytes.len();
        let start = stream.sent.min(end);
        stream.sent = end;
        let pieces = if self.is_healed { 1 } else { net.pieces };
        let event = if up { Event::Up(at as u32) } else { Event::Down(at as u32) };
        let cuts = if pieces > 1 { wire.random.below(pieces as u64) } else { 0 };
        for _ in 0..cuts {
            let cut = start + wire.random.below((end - start) as u64 + 1) as usize;
            if let Some(at) = stream.piece(arrives, cut.max(stream.last_end())) {
                self.queue.push(at, event);
            }
            arrives += 1 + wire.random.below(net.delay / 4 + 1);
        }
        if let Some(at) = stream.piece(arrives, end) {
            self.queue.push(at, event);
        }
        if tail {
            self.met(1, client);
        }
        if loss {
            self.met(2, client);
        }
        if cuts > 0 {
            self.met(3, client);
        }
    }

    fn deliver(&mut self, wire: usize) {
        let Wire { client, node, client_alive, .. } = self.wires[wire];
        if !client_alive {
            return;
        }
        let until = self.clients[client].holes[node].1;
        if until > self.now {
            return self.queue.push(until + 1, Event::Down(wire as u32));
        }
        if self.wait_for(client, Event::Down(wire as u32)) {
            self.read(wire);
        }
    }

    /// Lets the client read what has arrived.
    fn read(&mut self, at: usize) {
        let Wire { client, slot, node, .. } = self.wires[at];
        if self.clients[client].holes[node].1 > self.now {
            return;
        }
        self.wires[at].down.arrive(self.now);
        let link = self.links[slot];
        let most = if self.is_healed { usize::MAX } else { self.plan.net.read };
        while self.wires[at].client_alive && self.violation.is_none() {
            let it = &mut self.clients[client];
            let now = it.clocks(self.now);
            let stream = &mut self.wires[at].down;
            let ready = &stream.bytes[stream.read..stream.arrived];
            if ready.is_empty() {
                break;
            }
            let space = it.core.space(link);
            let taken = ready.len().min(space.len()).min(most);
            space[..taken].copy_from_slice(&ready[..taken]);
            stream.read += taken;
            self.credit(at);
            self.core(client).received(link, taken, now);
            self.note(taken as u64 + 0x1000);
            self.settle(client);
        }
    }

    /// Records the meaning of the replies that the client is about to read.
    fn credit(&mut self, at: usize) {
        let Wire { client, slot, poisoned, .. } = self.wires[at];
        let mut partly = false;
        while let Some(&tag) = self.wires[at].tags.front() {
            if tag.end > self.wires[at].down.read {
                break;
            }
            self.wires[at].tags.pop_front();
            self.wires[at].answered += 1;
            match tag.says {
                Says::LetIn => self.clients[client].let_in[slot] = true,
                Says::Granted { .. } => self.wires[at].unproven.push(tag.attempt),
                Says::Proven => {
                    for attempt in self.wires[at].unproven.drain(..) {
                        self.attempts[usize::from(attempt)].granted[slot] = Some(self.now);
                    }
                }
                _ => {}
            }
            let Some(attempt) = self.attempts.get_mut(usize::from(tag.attempt)) else { continue };
            let job = usize::from(attempt.job);
            let (job, plan) = (&self.jobs[job], self.plan.jobs[job]);
            // A client that has detached the lock may still read replies to its requests, which the
            // new client never learns of.
            let has_it = usize::from(plan.client) == client;
            let is_asked = |ttl| has_it && (!job.was_detached || job.extend_ttl == ttl);
            match tag.says {
                Says::Granted { slot: permit, counter, until } => {
                    attempt.granted[slot] = Some(self.now);
                    attempt.slots[slot] = permit;
                    attempt.until[slot] = until.max(attempt.until[slot]);
                    // A healed node raises no counter.
                    if permit == NO_SLOT || counter > 0 {
                        attempt.counters[slot] = counter;
                    }
                    partly |= attempt.granted.iter().flatten().count() == 1;
                }
                Says::Raised { counter } => attempt.counters[slot] = counter,
                Says::Extended { ttl, until } => {
                    attempt.until[slot] = until.max(attempt.until[slot]);
                    if is_asked(ttl) {
                        attempt.extended[slot] = ttl;
                    }
                }
                Says::Denied => {
                    attempt.denied[slot] = true;
                    attempt.slots[slot] = NO_SLOT;
                }
                Says::Gone { ttl } => {
                    attempt.gone[slot] = true;
                    // No reply counts behind garbage.
                    if is_asked(ttl) && !poisoned {
                        attempt.until[slot] = 0;
                    }
                }
                Says::Undone => attempt.undone[slot] = true,
                Says::LetIn | Says::Other | Says::Proven => {}
            }
        }
        if partly {
            self.reached(client, Phase::Partly);
        }
    }
}

/// Returns the index of a link, the same for any number of nodes.
fn slot_of(link: LinkId) -> usize {
    link.node().index() + if link.is_push() { MAX_NODES } else { 0 }
}

/// The maximum number of events of a schedule.
const MANY: u32 = 200_000;

/// The limit of I7: the maximum number of unsent bytes of a link, a few locks' worth of scripts.
const MAX_OUTBOX: usize = 128 << 10;

/// The maximum number of times that a timer may fire at one instant.
const MAX_FIRES: u32 = 20;

const RETRANSMISSION: Time = 200 * MS;

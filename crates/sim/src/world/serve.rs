//! The servers' side of the wires: accepts connections, runs requests, and records the meaning of
//! replies.

use std::mem;

use redbolt::proto::Cause;
use redbolt::proto::restart_guard::{BIG_MS, Standing};
use redbolt::proto::script::{
    ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT, ACQUIRE_PERMIT_IN_QUEUE, DOWNGRADE, UPGRADE, UPGRADE_FENCED,
};
use redbolt_node::model::ConnId;
use redbolt_testkit::command::number;
use redbolt_testkit::request::{Request, request};
use redbolt_testkit::{Command, GUARD, Kind};

use super::node::tag;
use super::queue::Event;
use super::wire::{NO_SLOT, Says, Tag, Wire};
use super::{Attempt, World};
use crate::coverage::Phase;
use crate::fault::errors::{Fits, PREFIXES};
use crate::invariant::Violation;
use crate::patience::keys_of;
use crate::plan::{KEYS, MAX_NODES, MS};

impl World {
    /// Accepts a new connection on a server.
    pub(super) fn connect(&mut self, at: usize) {
        let Wire { client, slot, node, client_alive, .. } = self.wires[at];
        if !client_alive || !self.wait_for(client, Event::Connect(at as u32)) {
            return;
        }
        let (up, down) = self.clients[client].holes[node];
        let server = &self.nodes[node];
        let hidden = up.max(down).max(server.silent_until);
        if hidden > self.now {
            return self.queue.push(hidden + 1, Event::Connect(at as u32));
        }
        let (now, link) = (self.clients[client].clocks(self.now), self.links[slot]);
        if !server.is_up || server.refuses_until > self.now {
            self.wires[at].client_alive = false;
            self.clients[client].wires[slot] = None;
            self.core(client).disconnected(link, Cause::ConnectionRefused, now);
            return self.settle(client);
        }
        self.note(0x30 + node as u64);
        self.story(|| format!("c{client} is connected to node {node} as {slot}"));
        self.wires[at].conn = Some(self.nodes[node].store.connect());
        self.wires[at].server_alive = true;
        self.wires[at].accepted_at = self.now;
        self.turn_away(at);
        let is_push = self.wires[at].is_push();
        self.core(client).connected(link, now);
        self.settle(client);
        self.reached(client, if is_push { Phase::Subscribing } else { Phase::Handshaking });
    }

    /// Sends an error on accept, before the connection is closed.
    fn turn_away(&mut self, at: usize) {
        let Wire { client, node, .. } = self.wires[at];
        let (error, until) = self.nodes[node].errors;
        let prefix = PREFIXES[usize::from(error)];
        if until <= self.now || prefix.fits != Fits::Accept {
            return;
        }
        self.coverage.prefix(error.into());
        self.met(13, client);
        let down = &mut self.wires[at].down.bytes;
        down.extend_from_slice(b"-");
        down.extend_from_slice(prefix.text.as_bytes());
        down.extend_from_slice(b"\r\n");
        self.send(at, false);
        self.finish(at);
    }

    /// Closes a connection after the server's pending replies.
    pub(super) fn finish(&mut self, at: usize) {
        self.forget(at);
        let eof = self.wires[at].down.last_at().max(self.now + 1);
        self.queue.push(eof, Event::Eof(at as u32));
    }

    /// Closes the server's end of a connection, and loses everything unread.
    pub(super) fn forget(&mut self, at: usize) {
        let wire = &mut self.wires[at];
        if let Some(conn) = wire.conn.filter(|_| wire.server_alive) {
            self.nodes[wire.node].store.disconnect(conn);
        }
        wire.server_alive = false;
        wire.up.lose();
    }

    /// Runs the requests that have arrived at a server.
    pub(super) fn serve(&mut self, at: usize) {
        let Wire { client, node, server_alive, .. } = self.wires[at];
        if !server_alive {
            return;
        }
        let blocked = self.clients[client].holes[node].0.max(self.nodes[node].paused_until);
        if blocked > self.now {
            return self.queue.push(blocked + 1, Event::Up(at as u32));
        }
        self.wires[at].up.arrive(self.now);
        let (mut read, arrived) = (self.wires[at].up.read, self.wires[at].up.arrived);
        let bytes = mem::take(&mut self.wires[at].up.bytes);
        let mut replies = mem::take(&mut self.wires[at].down.bytes);
        let before = replies.len();
        let mut words = [&[][..]; MAX_WORDS];
        while self.wires[at].server_alive {
            match request(&bytes[read..arrived], &mut words) {
                Request::Complete { words: count, length } => {
                    self.run_one(at, &words[..count], read, &mut replies);
                    read += length;
                }
                Request::Incomplete => break,
                Request::Malformed => {
                    self.violated(Violation::Malformed { client });
                    break;
                }
            }
        }
        let wire = &mut self.wires[at];
        wire.down.bytes = replies;
        wire.up.bytes = bytes;
        wire.up.read = read;
        if !wire.server_alive {
            wire.up.lose();
        }
        if !wire.client_alive {
            wire.down.bytes.truncate(before);
            wire.tags.clear();
            if wire.up.unread() == 0 {
                self.forget(at);
            }
        } else if wire.down.bytes.len() > before {
            self.send(at, false);
        }
    }

    /// Runs one request, which begins at `offset` of the stream, and appends the reply.
    fn run_one(&mut self, at: usize, words: &[&[u8]], offset: usize, out: &mut Vec<u8>) {
        let Wire { client, node, conn, .. } = self.wires[at];
        let request = Command::new(words);
        let attempt = self.attempt(client, &request, words);
        if request.kind == Kind::Extend {
            self.extension_is_due(at, offset, attempt);
        }
        if request.kind == Kind::Move {
            self.is_let_in(at);
        }
        if request.kind == Kind::Ask {
            self.is_let_in(at);
            if let Some(attempt) = attempt.filter(|_| self.wires[at].client_alive) {
                self.is_asked(self.attempts[usize::from(attempt)].job.into(), node);
            }
        }
        self.wires[at].asked += 1;
        let start = out.len();
        let conn = conn.expect("a live server has accepted the connection");
        let called = self.called_first(node, &request, words);
        if !self.refused(at, conn, words, &request, out) {
            let clock = self.nodes[node].clock(self.now);
            self.nodes[node].store.command(conn, words, clock, out);
        }
        self.story(|| {
            let reply = String::from_utf8_lossy(&out[start..]);
            let (first, rest) = reply.split_at(reply.len().min(40));
            let dots = if rest.is_empty() { "" } else { "..." };
            format!("node {node} runs c{client} {:?} {attempt:?}: {first:?}{dots}", request.kind)
        });
        self.note((number_of(&request) << 8) | out.len() as u64);
        let reply = &out[start..];
        let reported = match request.kind {
            Kind::Check => self.restart_guard_reply(at, reply),
            _ => attempt.map(|attempt| (attempt, self.meaning(at, attempt, &request, reply))),
        };
        if request.script.is_some() {
            self.scripted_at = self.now;
        }
        if let Some((attempt, _)) = reported {
            self.keeps_to_the_queue(at, attempt, &request, words, reply);
            self.raises_for_its_holder(at, attempt, &request, reply);
            self.moves_where_it_votes(at, attempt, &request, reply);
            if let Some(called) = called {
                self.leaves_the_turn(node, attempt, words, called);
            }
        }
        let is_in = words[0] == b"SELECT" && reply == b"+OK\r\n";
        let reported = if is_in { Some((u16::MAX, Says::LetIn)) } else { reported };
        let reported =
            if request.kind == Kind::Info { Some((u16::MAX, Says::Proven)) } else { reported };
        let (attempt, says) = reported.unwrap_or((u16::MAX, Says::Other));
        self.wires[at].tags.push_back(Tag { end: out.len(), attempt, says });
        if matches!(request.kind, Kind::Kill | Kind::KillOthers) {
            self.killed(node, client);
        }
        let asks = matches!(request.kind, Kind::Ask | Kind::Move);
        let is_granted = asks && out[start..].starts_with(b"+OK");
        let key = words.get(if words[0] == b"SET" { 1 } else { 3 }).copied().unwrap_or_default();
        let (accepted_at, now) = (self.wires[at].accepted_at, self.now);
        if is_granted && self.nodes[node].cannot_undo(key, accepted_at, now) {
            self.violated(Violation::KeptForGood { client, node });
        }
        if is_granted && mem::take(&mut self.nodes[node].flush_behind_set) && !self.is_healed {
            self.flush_all(node);
            self.met(10, client);
        }
    }

    /// Checks that a node in quarantine does not grant a move either.
    fn moves_where_it_votes(
        &mut self,
        at: usize,
        attempt: u16,
        request: &Command<'_>,
        reply: &[u8],
    ) {
        let (node, now) = (self.wires[at].node, self.now);
        let is_moved = request.kind == Kind::Move && reply.starts_with(b"+OK");
        let Some(attempt) = self.attempts.get(usize::from(attempt)).filter(|_| is_moved) else {
            return;
        };
        let job = usize::from(attempt.job);
        let left = self.nodes[node].observe(&[b"PTTL", GUARD], now).to_vec();
        let left = std::str::from_utf8(&left).ok().and_then(|text| text.trim()[1..].parse().ok());
        let votes = left.is_some_and(|left: i64| Standing::of(left) == Standing::Votes);
        if self.plan.setup.restart_guard && !votes {
            self.violated(Violation::Miscredited { job, what: "a slot", node });
        }
    }

    /// Checks I4: a node raises its counter only for a holder of the lock there.
    fn raises_for_its_holder(
        &mut self,
        at: usize,
        attempt: u16,
        request: &Command<'_>,
        reply: &[u8],
    ) {
        let Some(attempt) = self.attempts.get(usize::from(attempt)) else { return };
        let (node, tag, job) = (self.wires[at].node, attempt.tag, usize::from(attempt.job));
        if request.kind != Kind::WriteBack || reply != b":1\r\n" {
            return;
        }
        let mut keys = keys_of(&self.plan.jobs[job]);
        let now = self.now;
        let has = |key: usize| self.nodes[node].owners(KEYS[key], now).contains(&tag);
        if !keys.all(has) {
            self.violated(Violation::Miscredited { job, what: "a write-back", node });
        }
    }

    /// Returns the attempt that a request belongs to. A lock request may begin a new one.
    fn attempt(&mut self, client: usize, request: &Command<'_>, words: &[&[u8]]) -> Option<u16> {
        let tag = tag(request.token)?;
        let known = self.attempts.iter().rposition(|attempt| attempt.tag == tag);
        if known.is_some() || request.kind != Kind::Ask {
            return known.map(|at| at as u16);
        }
        let is_its = |job: &crate::plan::Job| {
            usize::from(job.client) == client && job.ttl_ms == request.number
        };
        // The second claim of a holder names the first one.
        let is_second = request
            .script
            .is_some_and(|script| [&DOWNGRADE, &UPGRADE, &UPGRADE_FENCED].contains(&script));
        let job = if is_second {
            let first = super::node::tag(words.last()?)?;
            self.attempts.iter().rfind(|attempt| attempt.tag == first)?.job
        } else {
            self.plan.jobs.iter().position(is_its)? as u16
        };
        self.attempts.push(Attempt {
            tag,
            job,
            client: client as u8,
            serial: super::client::serial(tag),
            begun: u64::MAX,
            granted: [None; MAX_NODES],
            slots: [NO_SLOT; MAX_NODES],
            counters: [0; MAX_NODES],
            extended: [0; MAX_NODES],
            until: [0; MAX_NODES],
            denied: [false; MAX_NODES],
            gone: [false; MAX_NODES],
            undone: [false; MAX_NODES],
            has_ghosts: [false; MAX_NODES],
        });
        Some(self.attempts.len() as u16 - 1)
    }

    /// Checks I8: no extension of a lock may be written behind its release.
    fn extension_is_due(&mut self, at: usize, offset: usize, attempt: Option<u16>) {
        let Some(attempt) = attempt else { return };
        let job = usize::from(self.attempts[usize::from(attempt)].job);
        let Some(marks) = &self.jobs[job].released else { return };
        let slot = self.wires[at].slot;
        let is_later = at >= marks.wires || marks.offsets[slot] == Some((at, offset));
        let is_behind =
            marks.offsets[slot].is_some_and(|(wire, mark)| wire == at && offset >= mark);
        if is_later || is_behind {
            self.violated(Violation::ExtendedAfterRelease { job });
        }
    }

    /// Answers with an error, if a fault asks for that now.
    fn refused(
        &mut self,
        at: usize,
        conn: ConnId,
        words: &[&[u8]],
        request: &Command<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Wire { client, node, .. } = self.wires[at];
        let (mut error, until) = self.nodes[node].errors;
        if let Some(text) = self.forbidden(node, request.kind) {
            out.extend_from_slice(text);
            self.met(19, client);
            return true;
        }
        let is_loading = self.nodes[node].loading_until > self.now;
        let follows = self.nodes[node].follows_until > self.now && fits(Fits::Write, request);
        if is_loading {
            error = 0;
        } else if follows {
            error = READONLY;
        } else if until <= self.now || !fits(PREFIXES[usize::from(error)].fits, request) {
            return false;
        }
        if PREFIXES[usize::from(error)].fits == Fits::Unknown && self.wires[at].random.chance(500) {
            let clock = self.nodes[node].clock(self.now);
            let mut unheard = mem::take(&mut self.scratch);
            self.nodes[node].store.command(conn, words, clock, &mut unheard);
            unheard.clear();
            self.scratch = unheard;
        }
        out.extend_from_slice(b"-");
        out.extend_from_slice(PREFIXES[usize::from(error)].text.as_bytes());
        repeat(words, out);
        out.extend_from_slice(b"\r\n");
        self.coverage.prefix(error.into());
        self.met(if is_loading { 9 } else { 13 }, client);
        true
    }

    /// Returns the error for a client that may not subscribe or track.
    fn forbidden(&self, node: usize, kind: Kind) -> Option<&'static [u8]> {
        let node = &self.nodes[node];
        match kind {
            Kind::Hear | Kind::Subscribe if node.no_subscribing_until > self.now => {
                Some(NO_CHANNEL)
            }
            Kind::Track | Kind::Untrack if node.no_tracking_until > self.now => Some(NO_TRACKING),
            _ => None,
        }
    }

    /// Returns the meaning of a reply for the client that will read it.
    fn meaning(&mut self, at: usize, attempt: u16, request: &Command<'_>, reply: &[u8]) -> Says {
        let Wire { node, client_alive, .. } = self.wires[at];
        let until = self.now.saturating_add(request.number.saturating_mul(MS));
        // A detached lock may be undone over another connection before this request runs.
        let job = usize::from(self.attempts[usize::from(attempt)].job);
        let is_ghost = !client_alive || self.jobs[job].was_detached;
        match request.kind {
            Kind::Ask | Kind::Move if reply.starts_with(b"+OK") => {
                let guarded = self.is_guarded();
                let known = &mut self.attempts[usize::from(attempt)];
                known.begun = known.begun.min(self.now);
                known.has_ghosts[node] |= is_ghost;
                let (slot, counter) = match request.script {
                    Some(script) if *script == ACQUIRE_PERMIT => permit(&words_of(reply)),
                    Some(script) if *script == ACQUIRE_PERMIT_IN_QUEUE => {
                        permit(&words_of(reply)[1..])
                    }
                    Some(script) if *script == ACQUIRE_IN_QUEUE => {
                        (NO_SLOT, counter_in_queue(reply))
                    }
                    _ if reply.len() > 5 => (NO_SLOT, number(&reply[4..reply.len() - 2])),
                    _ => (NO_SLOT, 0),
                };
                let granted = Says::Granted { slot, counter, until };
                // The script has checked the restart guard itself.
                if request.script.is_some() || !guarded {
                    return granted;
                }
                self.wires[at].pending = Some((attempt, granted));
                Says::Other
            }
            Kind::Ask | Kind::Move if is_denial(reply) => Says::Denied,
            // An unknown error may hide that the request ran.
            Kind::Ask | Kind::Move if reply.starts_with(b"-") => {
                self.attempts[usize::from(attempt)].has_ghosts[node] |= is_ghost;
                Says::Other
            }
            Kind::Extend if reply == b":0\r\n" => Says::Gone { ttl: request.number },
            Kind::WriteBack if reply == b":0\r\n" => Says::Denied,
            Kind::Extend if reply == b":1\r\n" => Says::Extended { ttl: request.number, until },
            Kind::WriteBack if reply == b":1\r\n" => Says::Raised { counter: request.number },
            Kind::Undo if reply.starts_with(b":") => Says::Undone,
            // Any other reply does not confirm that nothing is left.
            Kind::Delete if reply == b":1\r\n" => Says::Undone,
            _ => Says::Other,
        }
    }

    /// Reads the reply of the restart-guard check behind a grant, without which the grant does not
    /// count.
    fn restart_guard_reply(&mut self, at: usize, reply: &[u8]) -> Option<(u16, Says)> {
        let pending = self.wires[at].pending.take()?;
        let votes = reply.first() == Some(&b':')
            && reply.get(1) != Some(&b'-')
            && number(&reply[1..reply.len() - 2]) <= BIG_MS;
        votes.then_some(pending)
    }

    /// Checks that a client has only its own connections killed.
    pub(crate) fn killed(&mut self, node: usize, client: usize) {
        while let Some(conn) = self.nodes[node].store.poll_close() {
            // An operator who changes the limits disconnects all clients, including the simulator's
            // observer.
            let is_operator = client >= self.plan.clients.len();
            if is_operator && self.nodes[node].reconnect(conn, self.now) {
                continue;
            }
            let is_it =
                |wire: &Wire| wire.server_alive && wire.node == node && wire.conn == Some(conn);
            let known = self.wires[..self.sockets_used].iter().position(is_it);
            let is_own = known.is_some_and(|at| self.wires[at].client == client);
            if let Some(at) = known {
                self.finish(at);
            }
            if !is_own && !is_operator {
                self.violated(Violation::KilledStranger { client, node });
            }
        }
    }

    pub(super) fn flush_all(&mut self, node: usize) {
        self.keys_may_be_gone = true;
        self.is_quarantined |= self.plan.setup.restart_guard;
        self.note(0x40 + node as u64);
        self.nodes[node].observe(&[b"FLUSHALL"], self.now);
    }

    /// Returns true if clients check restart guards.
    fn is_guarded(&self) -> bool {
        self.plan.setup.restart_guard
    }
}

/// Returns true if a lock request was denied.
fn is_denial(reply: &[u8]) -> bool {
    reply == b"$-1\r\n" || reply.starts_with(b":") || reply.starts_with(b"+WAIT ")
}

/// Returns the counter of a grant in the queue, behind the stamp of its ticket; 0 if there is none.
fn counter_in_queue(reply: &[u8]) -> u64 {
    words_of(reply).get(1).map_or(0, |word| number(word))
}

/// Returns the words behind the `OK` of a grant.
fn words_of(reply: &[u8]) -> Vec<&[u8]> {
    reply[4..reply.len() - 2].split(|&byte| byte == b' ').collect()
}

/// Returns the slot of a grant, and its counter.
fn permit(words: &[&[u8]]) -> (u16, u64) {
    let counter = match words {
        [_, counter] | [_, _, _, counter] => number(counter),
        _ => 0,
    };
    (number(words[0]) as u16, counter)
}

/// Returns the kind of a request, as a number for the trace.
fn number_of(request: &Command<'_>) -> u64 {
    match request.kind {
        Kind::Ask => u64::from(request.script.is_some()),
        Kind::Enrol => 2,
        Kind::Extend => 3,
        Kind::Check => 5,
        Kind::Kill | Kind::KillOthers => 6,
        Kind::Getrange | Kind::Pttl | Kind::Type => 7,
        Kind::Undo => 8,
        Kind::Delete => 15,
        Kind::Leave => 14,
        Kind::WriteBack => 9,
        Kind::Move => 13,
        Kind::Subscribe => 10,
        Kind::Hear | Kind::NoLongerHear => 16,
        Kind::Track | Kind::Untrack => 11,
        Kind::ProbeWrite => 12,
        _ => HANDSHAKE,
    }
}

/// The number of all requests that are part of a handshake.
const HANDSHAKE: u64 = 4;

/// Returns true if a server could answer this request with such an error.
fn fits(fits: Fits, request: &Command<'_>) -> bool {
    match fits {
        Fits::Any | Fits::Unknown => true,
        Fits::Accept => false,
        Fits::Digest => request.by_digest,
        Fits::Write => matches!(
            request.kind,
            Kind::Ask
                | Kind::Delete
                | Kind::Enrol
                | Kind::Extend
                | Kind::Leave
                | Kind::Move
                | Kind::ProbeWrite
                | Kind::Undo
                | Kind::WriteBack
        ),
        Fits::Typed => {
            matches!(request.kind, Kind::Ask | Kind::Delete | Kind::Extend | Kind::Move)
        }
        Fits::Handshake => number_of(request) == HANDSHAKE,
    }
}

/// The index of a replica's reply to writes, in the list of errors.
const READONLY: u8 = 6;

/// Repeats the arguments, as a server does for a command that it does not know, up to a length; an
/// unknown error may do the same.
fn repeat(words: &[&[u8]], out: &mut Vec<u8>) {
    if !out.ends_with(b"with args beginning with:") && !out.ends_with(b"something new") {
        return;
    }
    let end = out.len() + 128;
    for word in &words[1..] {
        out.extend_from_slice(b" '");
        out.extend(word.iter().map(|&byte| if byte < b' ' { b' ' } else { byte }));
        out.extend_from_slice(b"'");
    }
    out.truncate(end);
}

/// The errors in the wording of Redis 7.0.
const NO_CHANNEL: &[u8] =
    b"-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
const NO_TRACKING: &[u8] =
    b"-NOPERM this user has no permissions to run the 'client|tracking' command\r\n";

/// The largest number of arguments of a request.
const MAX_WORDS: usize = 32;

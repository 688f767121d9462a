//! The other end of a link: the requests that the core has sent on it, and which of them are
//! answered. A request is known once the core has its bytes. Replies are matched to requests by
//! order alone, as the core has to do.

use std::collections::{BTreeSet, VecDeque};

use redbolt::proto::HandshakeStep as Step;
use redbolt::proto::restart_guard::{BIG_MS, Standing, Value};
use redbolt::proto::script::{ACQUIRE_PERMIT_IN_QUEUE, Grant, Role, Script};
use redbolt::proto::{Cause, Core, LinkId, NodeState};
use redbolt::resp::{Decoder, Limits, Token};
use redbolt_testkit::{request, script_of_digest, script_of_text};

use super::fair_queue::Stand;
use super::ledger::{Ledger, PERMITS};
use super::peer::{self, Place};
use super::received::Received;
use super::request::{Kind, Request, State, integer};

pub(super) struct Wire {
    pub(super) link: Option<LinkId>,
    pub(super) state: State,
    pub(super) place: Place,
    /// The restart guard's key, if restart guards are on.
    restart_guard: Option<Vec<u8>>,
    /// The number of connections so far.
    pub(super) connection: u32,
    /// The bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// Requests and the lengths of their commands, in the order of the stream, without those that
    /// were sent and answered.
    requests: VecDeque<(Request, usize)>,
    sent: usize,
    answered: usize,
    /// The number of bytes of the first unsent request that were sent.
    cut: usize,
    /// The scripts whose text was sent on this connection.
    loaded: BTreeSet<&'static str>,
    /// The server's run ID, as read on this connection.
    run_id: Vec<u8>,
    /// The restart guard's value as last read; empty for none.
    value: Vec<u8>,
    /// The values of complete reads of the restart guard: the last one, and all to which the core
    /// has not reacted yet.
    looks: Vec<Vec<u8>>,
    /// True if the node votes by that value.
    is_ours: bool,
    /// The reply to the oldest lock request, whose check is not answered yet.
    half: Option<Received>,
    /// True if the history, as last reported, is of a master. The peers never name one.
    is_master: bool,
    /// The last request, answered or not.
    last: Option<Request>,
    /// True if `AUTH` or `SELECT` has to precede everything else; `proven`: true if it ever
    /// succeeded.
    must_be_proven: bool,
    proven: bool,
    refused: bool,
    handshake_done: bool,
    decoder: Decoder,
    /// The received bytes that do not form a complete token yet.
    pub(super) partial: Vec<u8>,
}

/// The relation of a reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The request was sent.
    Sent,
    /// The request was not sent yet.
    Early,
    /// It cannot be a reply: the connection has to end.
    Fatal,
}

impl Wire {
    pub(super) fn new(place: Place, restart_guard: Option<Vec<u8>>, must_be_proven: bool) -> Self {
        Self {
            link: None,
            state: State::Closed,
            place,
            restart_guard,
            connection: 0,
            unsent: Vec::new(),
            requests: VecDeque::new(),
            sent: 0,
            answered: 0,
            cut: 0,
            loaded: BTreeSet::new(),
            run_id: Vec::new(),
            value: Vec::new(),
            looks: Vec::new(),
            is_ours: false,
            half: None,
            is_master: false,
            last: None,
            must_be_proven,
            proven: false,
            refused: false,
            handshake_done: false,
            decoder: Decoder::new(limits()),
            partial: Vec::new(),
        }
    }

    /// Resets the connection with all its state.
    pub(super) fn reset(&mut self, state: State) {
        self.state = state;
        self.connection += 1;
        self.unsent.clear();
        self.requests.clear();
        (self.sent, self.answered, self.cut) = (0, 0, 0);
        self.loaded.clear();
        self.run_id.clear();
        self.value.clear();
        self.looks.clear();
        (self.is_ours, self.half) = (false, None);
        self.last = None;
        (self.refused, self.handshake_done) = (false, false);
        self.decoder = Decoder::new(limits());
        self.partial.clear();
    }

    /// Records that the core opens or closes the link. Returns true if it was open, or about to be.
    pub(super) fn is_notified(&mut self, link: LinkId, state: State) -> bool {
        self.link = Some(link);
        let is_open = self.state != State::Closed;
        self.reset(state);
        is_open
    }

    /// Returns the oldest request without a reply.
    pub(super) fn oldest(&self) -> Option<Request> {
        self.requests.get(self.answered).map(|&(request, _)| request)
    }

    /// Returns true if the oldest request is a lock request of which only the check is still
    /// unanswered.
    pub(super) fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// Returns the number of requests that were sent and not answered.
    pub(super) fn waiting(&self) -> usize {
        self.sent.saturating_sub(self.answered)
    }

    /// Returns an honest node's reply to one of these, or the rest of it.
    pub(super) fn honest(&self, at: usize, era: char) -> String {
        let request = self.requests[self.answered + at].0;
        let is_checked = matches!(request, Request::Ask { kind: Kind::Plain, .. });
        let check =
            if is_checked && self.restart_guard.is_some() { peer::check(false) } else { "" };
        match at {
            0 if self.half.is_some() => check.into(),
            _ => peer::honest(request, &self.place, false, era) + check,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.unsent.is_empty() && self.answered == self.requests.len()
    }

    pub(super) fn token(&mut self, at: usize) -> Result<Option<(Token<'_>, usize)>, Cause> {
        self.decoder.next(&self.partial[at..]).map_err(|_| Cause::Violation)
    }

    /// Returns true if the core considers the node a voter, which can be sent every request.
    pub(super) fn is_of_voter(&self, core: &Core) -> bool {
        let node = core.config().node_ids().nth(self.place.node);
        node.is_some_and(|node| core.node_state(node) == NodeState::Ready)
    }

    /// Returns true if this request has no reply yet.
    pub(super) fn is_due(&self, request: Request) -> bool {
        self.requests.iter().skip(self.answered).any(|&(due, _)| due == request)
    }

    /// Records that the socket accepted this many bytes.
    pub(super) fn took(&mut self, bytes: usize, ledger: &mut Ledger) {
        self.unsent.drain(..bytes);
        let mut left = self.cut + bytes;
        for &(request, len) in self.requests.range(self.sent..) {
            // The ticket may reach the node once some bytes of its request are sent.
            if let (Request::Ask { lock, kind: Kind::InQueue { ticket, .. }, .. }, 1..) =
                (request, left)
            {
                ledger.is_at(lock, ticket, self.place.node);
            }
            left = left.saturating_sub(len);
        }
        self.cut += bytes;
        while let Some(&(_, len)) = self.requests.get(self.sent)
            && self.cut >= len
        {
            self.cut -= len;
            self.sent += 1;
        }
        self.forget_done();
    }

    fn forget_done(&mut self) {
        while self.sent > 0 && self.answered > 0 {
            self.requests.pop_front();
            self.sent -= 1;
            self.answered -= 1;
        }
    }

    /// Reads the unsent bytes of the core. Only unsent lock requests, and unsent proofs that
    /// belong behind the next one, may be withdrawn; everything else is appended.
    pub(super) fn sync(&mut self, unsent: &[u8], ledger: &mut Ledger) {
        if self.unsent != unsent {
            self.learn(unsent, ledger);
        }
        self.looks.drain(..self.looks.len().saturating_sub(1));
    }

    fn learn(&mut self, unsent: &[u8], ledger: &mut Ledger) {
        let kept = self.keep(unsent);
        let mut at = kept;
        while at < unsent.len() {
            let (words, mut len) = parse(&unsent[at..]);
            let request = self.read(&words, ledger);
            if let (Request::Ask { kind: Kind::Plain, .. }, Some(restart_guard)) =
                (request, &self.restart_guard)
            {
                let (check, more) = parse(&unsent[at + len..]);
                assert_eq!(check, [b"PTTL", &restart_guard[..]], "the check behind an ask");
                len += more;
            }
            self.requests.push_back((request, len));
            self.last = Some(request);
            at += len;
        }
        self.unsent.clear();
        self.unsent.extend_from_slice(unsent);
    }

    /// Drops the withdrawn requests. Returns the number of bytes of the others.
    fn keep(&mut self, unsent: &[u8]) -> usize {
        let (mut old, mut new) = (0, 0);
        let mut at = self.sent;
        while let Some(&(request, len)) = self.requests.get(at) {
            let cut = if at == self.sent { self.cut } else { 0 };
            let bytes = &self.unsent[old..old + len - cut];
            old += bytes.len();
            if unsent[new..].starts_with(bytes) {
                new += bytes.len();
                at += 1;
            } else {
                let is_ask = matches!(request, Request::Ask { .. } | Request::Change { .. });
                let may_be = is_ask || request == Request::History;
                assert!(may_be, "{request:?} was withdrawn");
                // The core cannot take back bytes that the socket has accepted.
                let is_whole = cut == 0 && (at > self.answered || self.half.is_none());
                assert!(is_whole && at >= self.answered, "a partly sent request was withdrawn");
                self.requests.remove(at);
            }
        }
        new
    }

    fn read(&mut self, words: &[&[u8]], ledger: &mut Ledger) -> Request {
        assert_eq!(self.state, State::Open, "a command without a connection");
        let request = self.understand(words, ledger);
        match (request, self.last) {
            // The steps of a handshake have a fixed order.
            (Request::Handshake(step), None) => assert!(step <= Step::SetName),
            (Request::Handshake(step), Some(Request::Handshake(last))) => assert!(step > last),
            (Request::Look(Step::Set), Some(_)) => {
                assert!(self.handshake_done, "before the handshake")
            }
            (Request::Look(_) | Request::Enrol | Request::KillOthers, Some(_)) => {
                assert!(
                    self.handshake_done && self.restart_guard.is_some(),
                    "{request:?} before the handshake"
                );
            }
            (request, None) => panic!("{request:?} before the handshake"),
            (Request::Handshake(step), Some(last)) => panic!("{step:?} behind {last:?}"),
            _ => {
                let proven = self.proven || !self.must_be_proven || self.handshake_done;
                assert!(proven, "{request:?} before AUTH or SELECT has succeeded");
            }
        }
        request
    }

    fn understand(&mut self, words: &[&[u8]], ledger: &mut Ledger) -> Request {
        if let (&[command, key], Some(restart_guard)) = (words, &self.restart_guard)
            && key == restart_guard
        {
            return self.reads_restart_guard(command);
        }
        match words {
            [b"AUTH", ..] => Request::Handshake(Step::Auth),
            [b"SELECT", _] => Request::Handshake(Step::Select),
            [b"CLIENT", b"SETNAME", _] => Request::Handshake(Step::SetName),
            [b"CLIENT", b"ID"] => Request::Handshake(Step::ClientId),
            [b"INFO", b"server"] => Request::Handshake(Step::InfoServer),
            [b"INFO", b"replication"] => match self.last {
                Some(Request::Handshake(Step::InfoServer)) => {
                    Request::Handshake(Step::InfoReplication)
                }
                _ => Request::History,
            },
            [b"INFO", b"memory"] => Request::Handshake(Step::InfoMemory),
            [b"CLIENT", b"KILL", b"ID", _] => Request::Kill,
            [b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"] => Request::KillOthers,
            [b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", _, b"NOLOOP", b"OPTIN"]
            | [b"CLIENT", b"TRACKING", b"OFF"] => Request::Track,
            [b"CLIENT", b"CACHING", b"YES"] => Request::Caching,
            // CLIENT CACHING applies only to the next command.
            [b"GETRANGE", _, b"0", b"19"] if self.last == Some(Request::Caching) => {
                Request::Watched
            }
            [b"TYPE", _] => Request::ViewType,
            [b"GETRANGE", key, ..] if key.starts_with(b"redbolt:fence:") => Request::Counter,
            [b"GETRANGE", ..] => Request::ViewValue,
            [b"PTTL", _] if self.last == Some(Request::ViewValue) => Request::ViewTtl,
            [b"PTTL", _] => Request::Remaining,
            [b"EVAL", _, b"0"] => Request::Handshake(Step::Eval),
            [b"EVALSHA", _, b"0"] => Request::Handshake(Step::EvalSha),
            [b"DEL"] => Request::Handshake(Step::Del),
            [b"DELEX", _, b"IFEQ"] => Request::Handshake(Step::DelEx),
            [b"DELIFEQ", _, b"tried by redbolt"] => Request::Handshake(Step::DelIfEq),
            [b"DELEX", key, b"IFEQ", token] | [b"DELIFEQ", key, token] => {
                let (lock, attempt) = ledger.undoes(&[key], self.random_of(token), self.place.node);
                Request::Delete { lock, attempt }
            }
            [b"SET", _, b"", b"NX", b"XX"] => match self.last {
                Some(Request::Handshake(Step::DelIfEq)) => Request::Handshake(Step::Set),
                _ => Request::Look(Step::Set),
            },
            [b"SET", key, token, b"NX", b"PX", ttl] => {
                self.asks_alone(&[key], token, integer(ttl), Kind::Plain, ledger)
            }
            [b"EVAL", text, count, args @ ..] => {
                let script = script_of_text(text).expect(KNOWN);
                self.loaded.insert(script.name);
                self.script(script, integer(count), args, ledger)
            }
            [b"EVALSHA", digest, count, args @ ..] => {
                let script = script_of_digest(digest).expect(KNOWN);
                // One call can send a request in the queue by the text, and withdraw it, with
                // another lock's digest behind it. The node then asks for the text.
                let is_mended =
                    matches!(script.role, Role::Ask(Grant::InQueue | Grant::SlotInQueue));
                let is_known = self.loaded.contains(script.name) || is_mended;
                assert!(is_known, "{script:?} by its digest before its text");
                self.script(script, integer(count), args, ledger)
            }
            _ => panic!("an unknown command: {}", words.concat().escape_ascii()),
        }
    }

    /// Reads the guard, first in the handshake, and again whenever it has to be read.
    fn reads_restart_guard(&self, command: &[u8]) -> Request {
        let step = match command {
            b"GET" => Step::RestartGuardValue,
            b"PTTL" => Step::RestartGuardTtl,
            _ => panic!("{} of the restart guard", command.escape_ascii()),
        };
        match self.last {
            Some(Request::Handshake(Step::Set | Step::RestartGuardValue)) => {
                Request::Handshake(step)
            }
            _ => Request::Look(step),
        }
    }

    /// Returns the attempt's part of a token; the rest is the node's number, which must be right.
    fn random_of<'t>(&self, token: &'t [u8]) -> &'t [u8] {
        let token = token.strip_prefix(b"w:").unwrap_or(token);
        let (random, rest) = token.split_at(32);
        let number = format!("{:02x}", self.place.node);
        assert!(rest.starts_with(number.as_bytes()), "a token for another node");
        random
    }

    fn script(&self, script: &Script, keys: u64, args: &[&[u8]], ledger: &mut Ledger) -> Request {
        let keys = usize::try_from(keys).expect("a number of keys");
        match (script.name, &args[..keys], &args[keys..]) {
            ("acquire_many", keys, [token, ttl, count]) => {
                let keys = self.but_restart_guard(keys);
                assert_eq!(integer(count), keys.len() as u64, "the number of resources");
                self.asks_alone(keys, token, integer(ttl), Kind::Many, ledger)
            }
            ("acquire_shared", keys, [token, ttl, nodes]) => {
                let keys = self.but_restart_guard(keys);
                assert!(keys.len() == 1 && integer(nodes) > 0, "one resource on some nodes");
                self.asks_alone(keys, token, integer(ttl), Kind::Shared, ledger)
            }
            ("acquire_permit", keys, [token, ttl, nodes, permits, first, step]) => {
                let &[key, until] = self.but_restart_guard(keys) else { panic!("two keys") };
                assert_eq!(until, [b"redbolt:until:", key].concat(), "when holders end");
                assert_eq!(integer(permits), u64::from(PERMITS));
                assert!(integer(nodes) > 0, "on some nodes");
                let slot = u16::try_from(integer(first)).expect("a slot");
                if integer(step) > 0 {
                    return self.asks_alone(&[key], token, integer(ttl), Kind::Permit, ledger);
                }
                let (token, ttl) = (self.random_of(token), integer(ttl));
                let (lock, attempt, ends) = ledger.moves(key, token, ttl, self.place.node);
                Request::Move { lock, attempt, slot, ends }
            }
            ("acquire_in_queue" | "acquire_permit_in_queue", [key, ..], [..]) => {
                let (keys, args) = args.split_at(keys);
                self.asks_in_queue(script, (key, keys), args, ledger)
            }
            ("leave_queue", &[key, ref queue @ ..], [token]) => {
                let (mark, owner) = token.split_at(1);
                let digits = self.random_of(owner);
                let words = owner[35..].split(|&byte| byte == b':').next();
                let grace = integer(words.expect("a grace"));
                let name = [mark, digits].concat();
                assert_eq!(queue, queue_of(key, &name), "the keys of a queue");
                let (lock, ticket) = ledger.leaves(key, &name, grace);
                Request::Leave { lock, ticket }
            }
            ("extend_permit", [key, _], [token, ttl, slot]) => {
                ledger.has_slot(key, integer(slot));
                let (lock, round) = ledger.extends(&[key], self.random_of(token), integer(ttl));
                Request::Extend { lock, round }
            }
            ("undo_permit", [key, _], [token]) => {
                let (lock, attempt) = ledger.undoes(&[key], self.random_of(token), self.place.node);
                Request::Undo { lock, attempt }
            }
            ("acquire_fenced", keys, [token, ttl, count, proposed, life]) => {
                let keys = but_counters(self.but_restart_guard(keys), count);
                assert_eq!(integer(life), 7 * 24 * 60 * 60 * 1_000);
                let kind = Kind::Fenced { proposed: integer(proposed) };
                self.asks_alone(keys, token, integer(ttl), kind, ledger)
            }
            ("write_back", keys, [token, count, target, life]) => {
                let keys = but_counters(keys, count);
                assert_eq!(integer(life), 7 * 24 * 60 * 60 * 1_000);
                let target = integer(target);
                let (lock, attempt) =
                    ledger.writes_back(keys, self.random_of(token), self.place.node, target);
                Request::WriteBack { lock, attempt, target }
            }
            ("upgrade", keys, [token, ttl, other]) => {
                let &[key] = self.but_restart_guard(keys) else { panic!("one key") };
                assert!(token.starts_with(b"w:"), "the name of a writer's second claim");
                self.changes((key, token, other), integer(ttl), true, None, ledger)
            }
            ("upgrade_fenced", keys, [token, ttl, proposed, life, other]) => {
                let keys = but_counters(self.but_restart_guard(keys), b"1");
                assert!(token.starts_with(b"w:"), "the name of a writer's second claim");
                assert_eq!(integer(life), 7 * 24 * 60 * 60 * 1_000);
                let proposed = Some(integer(proposed));
                self.changes((keys[0], token, other), integer(ttl), true, proposed, ledger)
            }
            ("downgrade", keys, [token, ttl, nodes, other]) => {
                let &[key] = self.but_restart_guard(keys) else { panic!("one key") };
                assert!(integer(nodes) > 0, "on some nodes");
                self.changes((key, token, other), integer(ttl), false, None, ledger)
            }
            ("write_back_shared", keys, [token, target, life]) => {
                let keys = but_counters(keys, b"1");
                assert_eq!(integer(life), 7 * 24 * 60 * 60 * 1_000);
                let (target, node) = (integer(target), self.place.node);
                let (lock, attempt) = ledger.writes_back(keys, self.random_of(token), node, target);
                Request::WriteBack { lock, attempt, target }
            }
            ("enrol", [_], [seen, value, px]) => {
                self.enrols(seen, value, integer(px));
                Request::Enrol
            }
            ("extend" | "extend_shared" | "extend_downgraded", keys, [token, ttl]) => {
                let (lock, round) = ledger.extends(keys, self.random_of(token), integer(ttl));
                Request::Extend { lock, round }
            }
            ("undo" | "undo_shared" | "undo_downgraded", keys, [token]) => {
                let (lock, attempt) = ledger.undoes(keys, self.random_of(token), self.place.node);
                Request::Undo { lock, attempt }
            }
            ("view_shared", [_], [most]) | ("view_permits", [_, _], [most]) => {
                assert!(integer(most) > 0, "how many holders are told of");
                Request::ViewHolders
            }
            ("view_queue", [_, stamps, ends, call], [_]) => {
                let names = [stamps, ends, call];
                assert!(names.iter().all(|name| name.starts_with(b"redbolt:line")));
                Request::ViewQueue
            }
            (script, keys, rest) => panic!("{script} of {} and {}", keys.len(), rest.len()),
        }
    }

    /// Records a request for a second claim, which names the one that the lock has.
    fn changes(
        &self,
        (key, token, other): (&[u8], &[u8], &[u8]),
        ttl: u64,
        is_upgrade: bool,
        proposed: Option<u64>,
        ledger: &mut Ledger,
    ) -> Request {
        let token = self.random_of(token);
        let (lock, claim) = ledger.changes(key, (token, other), ttl, is_upgrade, proposed);
        Request::Change { lock, claim, proposed }
    }

    /// Records a request outside the queue.
    fn asks_alone(
        &self,
        keys: &[&[u8]],
        token: &[u8],
        ttl: u64,
        kind: Kind,
        ledger: &mut Ledger,
    ) -> Request {
        let proposed = if let Kind::Fenced { proposed } = kind { Some(proposed) } else { None };
        let (lock, attempt) = ledger.asks(keys, self.random_of(token), ttl, proposed);
        ledger.asks_alone((lock, attempt));
        Request::Ask { lock, attempt, kind }
    }

    /// Records a request in the queue: the ticket is in its own key, and at the end.
    fn asks_in_queue(
        &self,
        script: &Script,
        (key, keys): (&[u8], &[&[u8]]),
        args: &[&[u8]],
        ledger: &mut Ledger,
    ) -> Request {
        let &[token, ttl, nodes, stamp, proposal, grace, ref rest @ .., name] = args else {
            panic!("an ask in the queue of {} arguments", args.len());
        };
        let (queue, behind) = self.but_restart_guard(&keys[1..]).split_at(4);
        assert_eq!(queue, queue_of(key, name), "the keys of a queue");
        assert!(integer(nodes) > 0 && name.len() == 33, "{}", name.escape_ascii());
        let of_permit = *script == ACQUIRE_PERMIT_IN_QUEUE;
        let proposed = match (of_permit, behind, rest) {
            (true, [until], [permits, _, step]) => {
                assert_eq!(*until, [b"redbolt:until:", key].concat(), "when holders end");
                assert!(integer(permits) == u64::from(PERMITS) && integer(step) > 0, "the permits");
                None
            }
            (false, [], []) => None,
            (false, [counter], [proposed, life, _]) => {
                assert_eq!(*counter, [b"redbolt:fence:", key].concat(), "the counter");
                assert_eq!(integer(life), 7 * 24 * 60 * 60 * 1_000);
                Some(integer(proposed))
            }
            _ => panic!("an ask in the queue with {} and {}", behind.len(), rest.len()),
        };
        let node = self.place.node;
        let (lock, attempt) = ledger.asks(&[key], self.random_of(token), integer(ttl), proposed);
        let (stamp, grace) = (integer(stamp), integer(grace));
        let stand = Stand { name, stamp, grace, turn: ledger.turn };
        let ticket = ledger.stands((lock, attempt), node, stand);
        let stamp = if stand.stamp > 0 { stand.stamp } else { integer(proposal) + node as u64 % 2 };
        Request::Ask { lock, attempt, kind: Kind::InQueue { ticket, of_permit, stamp, proposed } }
    }

    /// Returns the resources of a script that checks the restart guard, which is its last key.
    fn but_restart_guard<'k, 'w>(&self, keys: &'k [&'w [u8]]) -> &'k [&'w [u8]] {
        let Some(restart_guard) = &self.restart_guard else { return keys };
        let (last, keys) = keys.split_last().expect("keys");
        assert_eq!(last, restart_guard, "the last key is the restart guard");
        keys
    }

    /// Checks an enrolment. Only a restart guard that was read, and by which the node does not
    /// vote, is overwritten; one of other limits only if the configuration allows it.
    ///
    /// Reads of the guard can overlap: one follows a kill of the other connections, even while
    /// another is in flight. If one read of the socket contains the replies to both, the core
    /// enrols over the value of the first before it learns that of the second. The script changes
    /// nothing then, because it compares.
    fn enrols(&self, seen: &[u8], value: &[u8], px: u64) {
        let is_read = self.looks.iter().any(|read| read == seen);
        assert!(is_read, "the enrolment names {seen:?}, and read were {:?}", self.looks);
        let expected = [&self.run_id, self.place.limits.as_bytes()].concat();
        assert_eq!(value, expected, "the enrolment writes this run's value");
        assert!(px >= BIG_MS, "the restart guard lives long enough");
        let limits = |value| Value::parse(value).map(|value| (value.max_ttl_ms, value.nodes));
        if !self.place.may_change {
            assert!(
                seen.is_empty() || limits(seen) == limits(value),
                "a guard of other limits is overwritten"
            );
        }
        if self.place.quarantines {
            let (max_ttl, _) = limits(value).expect("a restart guard of ours");
            assert!(px >= BIG_MS + max_ttl, "a quarantine of {px} ms");
        }
    }

    /// Matches a token to the oldest request without a reply; `None` if there is none.
    pub(super) fn answer(&mut self, answered: Answered, ledger: &mut Ledger) -> Option<Answer> {
        let request = self.oldest()?;
        let place = answered.place(request);
        let is_damaged = place.is_none() && answered.is_damaged(request);
        let token = match place {
            Some((_, replied)) => replied,
            None if is_damaged => Received::Simple,
            None => answered.token,
        };
        if place.is_none()
            && !is_damaged
            && !token.can_answer(request, self.half.is_some(), self.restart_guard.is_some())
        {
            return Some(Answer::Fatal);
        }
        let answer = if self.answered < self.sent { Answer::Sent } else { Answer::Early };
        let is_checked = self.restart_guard.is_some();
        if let (Request::Ask { kind: Kind::Plain, .. }, None) = (request, self.half)
            && is_checked
        {
            self.half = Some(token);
            return Some(answer);
        }
        self.answered += 1;
        let node = self.place.node;
        match request {
            Request::Handshake(step) => self.handshake_answered_by(step, token),
            Request::Look(step) => self.looked(step, token),
            Request::Ask { lock, attempt, kind } => {
                if let Kind::InQueue { ticket, .. } = kind {
                    let stamp = place.map(|(stamp, _)| stamp);
                    ledger.place_reported((lock, ticket), node, stamp, token);
                }
                // It may count only with the proof behind it, which is not judged here.
                if let Some(replied) = self.vote(kind, token) {
                    ledger.ask_answered(lock, attempt, node, replied);
                }
            }
            Request::Move { lock, attempt, slot, ends } => {
                // Another slot than the requested one is a denial.
                let replied = self.vote(Kind::Permit, token);
                if let Some(replied) =
                    replied.filter(|replied| replied.slot().is_none_or(|it| it == slot))
                {
                    ledger.move_answered((lock, attempt, ends), node, replied);
                }
            }
            Request::Change { lock, claim, .. } => {
                if let Some(replied) = self.vote(Kind::Many, token) {
                    ledger.change_answered(lock, claim, node, replied);
                }
            }
            // A busy server does not report its history: the next proof does.
            Request::History if token.is_error() && !answered.is_for_operator => {}
            Request::History => {
                let is_same = token == Received::Bulk && self.is_master;
                self.is_ours &= is_same;
            }
            Request::Extend { lock, round } => ledger.extend_answered(lock, round, node, token),
            Request::Delete { lock, attempt } if token == Received::Int(1) => {
                ledger.undo_answered(lock, attempt, node, token);
            }
            Request::Undo { lock, attempt } => ledger.undo_answered(lock, attempt, node, token),
            Request::WriteBack { lock, attempt, target } => {
                ledger.write_back_answered(lock, attempt, node, target, token);
            }
            Request::Leave { lock, ticket } => {
                ledger.leave_answered((lock, ticket), node, token, self.connection);
            }
            // The script follows.
            Request::Delete { .. } => {}
            Request::Caching
            | Request::Counter
            | Request::Enrol
            | Request::Kill
            | Request::KillOthers
            | Request::Remaining
            | Request::Track
            | Request::ViewHolders
            | Request::ViewQueue
            | Request::ViewTtl
            | Request::ViewType
            | Request::ViewValue
            | Request::Watched => {}
        }
        self.forget_done();
        Some(answer)
    }

    /// Returns the reply to a lock request, if the restart guard lets it count.
    fn vote(&mut self, kind: Kind, last: Received) -> Option<Received> {
        if self.restart_guard.is_none() {
            return Some(Self::given(kind, last));
        }
        let (replied, votes) = match (kind, self.half.take()) {
            (Kind::Plain, Some(replied)) => {
                let votes =
                    matches!(last, Received::Int(ms) if Standing::of(ms) == Standing::Votes);
                (replied, votes)
            }
            _ => (last, !matches!(last, Received::Guarded)),
        };
        let counts = votes && self.is_ours;
        (counts || replied.is_denial()).then(|| Self::given(kind, replied))
    }

    /// Returns the reply with the number behind `OK` as the slot, for a permit.
    fn given(kind: Kind, replied: Received) -> Received {
        match replied.slot() {
            Some(slot) if kind.of_permit() => Received::Given(slot),
            _ => replied,
        }
    }

    fn handshake_answered_by(&mut self, step: Step, token: Received) {
        if matches!(step, Step::Auth | Step::Select) && token.is_error() {
            self.refused = true;
        }
        let last = if self.restart_guard.is_some() { Step::RestartGuardTtl } else { Step::Set };
        if step == last {
            self.handshake_done = true;
            self.proven |= !self.refused;
        }
        self.looked(step, token);
    }

    /// Records the server and its restart guard as read. The reply's bytes are not in `partial` any
    /// more: [`remember`](Self::remember) has kept them.
    fn looked(&mut self, step: Step, token: Received) {
        if step == Step::RestartGuardValue {
            let expected = [&self.run_id, self.place.limits.as_bytes()].concat();
            let is_bulk = token == Received::Bulk;
            if !is_bulk {
                self.value.clear();
            }
            self.is_ours = is_bulk && self.value == expected;
        }
        if step == Step::RestartGuardTtl {
            self.looks.push(self.value.clone());
        }
    }

    /// Keeps the text of a bulk string, if the oldest request needs it.
    pub(super) fn remember(&mut self, at: usize, len: usize) {
        let step = match self.oldest() {
            Some(Request::Handshake(step) | Request::Look(step)) => step,
            Some(Request::History) => Step::InfoReplication,
            _ => return,
        };
        let text = &self.partial[at..at + len];
        let Some(start) = text.iter().position(|&byte| byte == b'\n') else { return };
        let Some(text) = text.get(start + 1..len.saturating_sub(2)) else { return };
        match step {
            Step::InfoServer => self.run_id = run_id(text),
            Step::InfoReplication => self.is_master = text.starts_with(b"role:master"),
            Step::RestartGuardValue => self.value = text.to_vec(),
            _ => {}
        }
    }
}

/// Returns the command at the front of the core's output, and its length. The core writes whole
/// commands.
fn parse(bytes: &[u8]) -> (Vec<&[u8]>, usize) {
    request::first(bytes).expect("the core writes whole commands")
}

const KNOWN: &str = "a script of the library";

/// Returns the keys of a resource's queue, which follow that of the resource.
fn queue_of(key: &[u8], name: &[u8]) -> [Vec<u8>; 4] {
    [
        [b"redbolt:line:", key].concat(),
        [b"redbolt:line-until:", key].concat(),
        [b"redbolt:line-wait:", name].concat(),
        [b"redbolt:line-call:", key].concat(),
    ]
}

/// Returns the resources of a script that raises counters: the counters follow, in the same order.
fn but_counters<'k, 'w>(keys: &'k [&'w [u8]], count: &[u8]) -> &'k [&'w [u8]] {
    let (resources, counters) = keys.split_at(keys.len() / 2);
    assert_eq!(integer(count), resources.len() as u64, "the number of resources");
    let names = resources.iter().map(|key| [b"redbolt:fence:", *key].concat());
    assert!(names.eq(counters.iter().map(|key| key.to_vec())), "the counters of the resources");
    resources
}

/// Returns the text after `run_id:` on its line.
fn run_id(info: &[u8]) -> Vec<u8> {
    let mut lines = info.split(|&byte| byte == b'\n');
    let queue = lines.find_map(|queue| queue.strip_prefix(b"run_id:"));
    queue.map_or_else(Vec::new, |queue| queue.trim_ascii_end().to_vec())
}

/// A token, and its meaning as the reply to a request in the queue: the stamp of the ticket, and a
/// grant or a denial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) token: Received,
    /// The meaning for a lock request, and for one for a permit.
    places: [Option<(u64, Received)>; 2],
    /// True if it begins like the replies of the queue's scripts.
    is_of_queue: bool,
    /// True for an error that only an operator can fix, after which the node is read again.
    is_for_operator: bool,
}

impl Answered {
    pub(super) fn new(token: Token<'_>) -> Self {
        let line = match token {
            Token::Simple(line) => std::str::from_utf8(line).ok(),
            _ => None,
        };
        let place = |of_permit| line.and_then(|line| place_in(line, of_permit));
        let is_of_queue = matches!(token, Token::Simple(line) if line.starts_with(b"OK ") || line.starts_with(b"WAIT "));
        let is_for_operator = matches!(token, Token::Error(text) if FOR_OPERATOR.iter().any(|of| text.starts_with(of)));
        let places = [place(false), place(true)];
        Self { token: Received::new(token), places, is_of_queue, is_for_operator }
    }

    /// Returns true if the queue of this request has data that no lock has written: the node does
    /// not vote, and the link stays open.
    fn is_damaged(self, to: Request) -> bool {
        self.is_of_queue && matches!(to, Request::Ask { kind: Kind::InQueue { .. }, .. })
    }

    /// Returns the place of the ticket, if this answers a request in the queue.
    fn place(self, to: Request) -> Option<(u64, Received)> {
        match to {
            Request::Ask { kind: Kind::InQueue { of_permit, .. }, .. } => {
                self.places[usize::from(of_permit)]
            }
            _ => None,
        }
    }
}

/// The beginnings of errors that only an operator can fix.
const FOR_OPERATOR: [&[u8]; 6] =
    [b"DENIED", b"ERR unknown command", b"NOAUTH", b"NOPERM", b"WRONGPASS", b"WRONGTYPE"];

/// Parses the reply to a request in the queue: `OK`, the stamp, and the rest of the grant; or
/// `WAIT`, the ms, the stamp, the number of tickets in front, and the last two of these.
fn place_in(line: &str, of_permit: bool) -> Option<(u64, Received)> {
    let (word, rest) = line.split_once(' ')?;
    let words: Vec<_> = rest.split(' ').collect();
    match (word, &words[..]) {
        ("OK", &[stamp, slot, ..]) if of_permit => {
            Some((stamp.parse().ok()?, Received::Given(slot.parse().ok()?)))
        }
        ("OK", &[stamp]) if !of_permit => Some((stamp.parse().ok()?, Received::Ok)),
        ("OK", &[stamp, counter]) if !of_permit => {
            Some((stamp.parse().ok()?, Received::OkWith(counter.parse().ok()?)))
        }
        ("WAIT", &[left, stamp, before, last, last_but_one]) => {
            let left = left.parse().ok().filter(|&left| left >= -1)?;
            before.parse::<u32>().ok()?;
            let are_names = [last, last_but_one].iter().all(|name| *name == "-" || name.len() > 33);
            let grace = last.split_once(':').map_or("0", |(_, grace)| grace);
            grace.parse::<u32>().ok().filter(|_| are_names)?;
            Some((stamp.parse().ok()?, Received::Int(left)))
        }
        _ => None,
    }
}

/// The core's own limits; no input is long enough to distinguish the larger ones.
fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.bulk, limits.line, limits.reply) = (64 << 10, 64 << 10, 1 << 20);
    (limits.depth, limits.elements) = (2, 16);
    limits
}

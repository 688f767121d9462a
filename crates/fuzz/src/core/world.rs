//! The core's driver, and the other ends of its links.

use std::time::Duration;

use redbolt::proto::{
    Cause, ClockReading, Core, DetachedLock, Event, LeaderVerdict, LinkOp, LockMode, LockRequest,
    NodeState, ObserverId, RequestError, RestartGuard, Settings, Setup, Timestamp, ViewId, Wait,
    WakeStrategy, fence,
};

use super::ledger::{Ledger, PERMITS, Phase, Sort};
use super::peer::{self, Place};
use super::push::PushWire;
use super::received::Received;
use super::request::{Request, State};
use super::wire::{Answer, Answered, Wire};

pub(super) struct World {
    core: Core,
    pub(super) wires: Vec<Wire>,
    /// The push links of the same nodes.
    pub(super) pushes: Vec<PushWire>,
    /// True if locks wait in the queue.
    pub(super) waits_in_queue: bool,
    ledger: Ledger,
    /// Inspections without a result.
    views: Vec<ViewId>,
    /// The number of inspections so far.
    inspected: usize,
    /// The observers, each with the verdict that was last reported to it.
    observers: Vec<(ObserverId, Option<LeaderVerdict>)>,
    boot: u64,
    wall: u64,
    /// The time by which the core's boot clock is set back.
    pub(super) back: u64,
}

/// Commands and time.
impl World {
    pub(super) fn new(core: Core) -> Self {
        let config = core.config();
        let ledger = Ledger::new(config.node_count(), config.quorum());
        let wires = (0..config.node_count()).map(|node| wire(config.settings(), node)).collect();
        let waits_in_queue = config.settings().wake == WakeStrategy::Queue;
        let nodes = config.settings().nodes.iter().enumerate();
        let pushes =
            nodes.map(|(at, node)| PushWire::new(at, node.credentials.is_some())).collect();
        Self {
            core,
            wires,
            pushes,
            waits_in_queue,
            ledger,
            views: Vec::new(),
            inspected: 0,
            observers: Vec::new(),
            boot: BOOT,
            wall: WALL,
            back: 0,
        }
    }

    /// Returns the time as passed to the core, and records it in the ledger.
    fn now(&mut self) -> ClockReading {
        let now =
            ClockReading { boot: Timestamp(self.boot - self.back), wall: Timestamp(self.wall) };
        self.ledger.now = ClockReading { boot: self.ledger.now.boot.max(now.boot), wall: now.wall };
        now
    }

    pub(super) fn can_fence(&self) -> bool {
        let settings = self.core.config().settings();
        settings.restart_guard == RestartGuard::On && settings.max_ttl >= fence::MIN_MAX_TTL
    }

    /// Requests a lock on `keys` resources, the first of which names it.
    pub(super) fn acquire(&mut self, keys: usize, sort: Sort, ttl: Duration, wait: Wait) {
        if self.ledger.locks.len() >= MOST_LOCKS {
            return;
        }
        let name = format!("k{}", self.ledger.locks.len());
        let more: Vec<_> = (1..keys).map(|at| format!("\r\n$-1\r\n\0{at}")).collect();
        let ask = LockRequest::new(name.as_bytes()).ttl(ttl).wait(wait);
        let ask = more.iter().fold(ask, |ask, key| ask.and(key.as_bytes()));
        let ask = match sort {
            Sort::Plain => ask,
            Sort::Fenced => ask.fenced(),
            Sort::Shared => ask.shared(),
            Sort::Permit => ask.permits(PERMITS),
        };
        let (before, now) = (self.ledger.now, self.now());
        match self.core.acquire(&ask, now) {
            Ok(id) => {
                let (due, waits) = self.end_of(wait, sort);
                self.ledger.acquired(id, (ttl, sort), due, waits);
            }
            // The request was refused before the core read the time.
            Err(_) => self.ledger.now = before,
        }
        self.settle();
    }

    /// Returns the time by which an acquisition must end, if there is one, and whether it makes
    /// more than one attempt.
    fn end_of(&self, wait: Wait, sort: Sort) -> (Option<Timestamp>, bool) {
        let settings = self.core.config().settings();
        let (span, waits) = match wait {
            Wait::UpTo(span) if !span.is_zero() => (span, true),
            Wait::Forever => return (None, true),
            _ => {
                let attempt = settings.response_timeout.max(settings.connect_timeout);
                // There may be a write-back or a move, and an attempt with a corrected clock.
                let longest = 2 * (attempt + settings.response_timeout);
                let is_longer = matches!(sort, Sort::Fenced | Sort::Permit);
                (if is_longer { longest } else { attempt }, false)
            }
        };
        (Some(self.ledger.now.boot + span), waits)
    }

    pub(super) fn extend(&mut self, lock: u8, ttl: Duration) {
        let Some(at) = self.lock(lock) else { return };
        let now = self.now();
        match self.core.extend(self.ledger.locks[at].id, ttl, now) {
            Ok(()) => {
                // A round takes a sixth of the TTL, so that there are several, if a quorum of nodes
                // is near. Only the core can determine that.
                let longest = self.core.config().settings().response_timeout;
                self.ledger.extending(at, ttl, longest);
            }
            Err(RequestError::ExtensionUnderWay) => {
                assert_eq!(self.ledger.locks[at].phase, Phase::Extending);
            }
            Err(_) => {}
        }
        self.settle();
    }

    pub(super) fn release(&mut self, lock: u8) {
        let Some(at) = self.lock(lock) else { return };
        self.release_at(at);
    }

    /// Detaches a lock as text, and attaches it as another core would.
    pub(super) fn hand_on(&mut self, lock: u8) {
        let Some(at) = self.lock(lock) else { return };
        let now = self.now();
        if let Some(detached) = self.core.detach(self.ledger.locks[at].id, now) {
            let detached: DetachedLock =
                detached.to_text().parse().expect("a detached lock parses from its own text");
            let id = self.core.attach(&detached, now).expect("the core attaches its own lock");
            self.ledger.handed_on(at, id, &self.core);
        }
        self.settle();
    }

    fn release_at(&mut self, at: usize) {
        let now = self.now();
        self.core.release(self.ledger.locks[at].id, now);
        let due = self.ledger.now.boot + self.core.config().settings().response_timeout;
        self.ledger.releasing(at, due);
        self.settle();
    }

    /// Returns a lock by its number: the newest is zero.
    fn lock(&self, number: u8) -> Option<usize> {
        let locks = self.ledger.locks.len();
        let back = usize::from(number).checked_rem(locks)?;
        Some(locks - 1 - back)
    }

    pub(super) fn inspect(&mut self, resource: &[u8]) {
        if self.inspected >= MOST_INSPECTIONS {
            return;
        }
        self.inspected += 1;
        let (before, now) = (self.ledger.now, self.now());
        match self.core.inspect(resource, now) {
            Ok(view) => self.views.push(view),
            Err(_) => self.ledger.now = before,
        }
        self.settle();
    }

    /// Makes a reader try to become a writer, or a writer become a reader.
    pub(super) fn change_mode(&mut self, lock: u8) {
        let Some(at) = self.lock(lock) else { return };
        let (id, now) = (self.ledger.locks[at].id, self.now());
        let is_writer = self.core.mode(id) == Some(LockMode::Exclusive);
        let asked = match is_writer {
            true => self.core.downgrade(id, now),
            false => self.core.try_upgrade(id, now),
        };
        if asked.is_ok() {
            self.ledger.changing(at, !is_writer);
            // A writer becomes a reader with the call, and a reader becomes a writer only with the
            // event.
            assert_eq!(self.core.mode(id), Some(LockMode::Shared), "its mode");
        }
        self.settle();
    }

    pub(super) fn observe(&mut self, resource: &[u8]) {
        if self.observers.len() >= MOST_OBSERVERS {
            return;
        }
        let (before, now) = (self.ledger.now, self.now());
        match self.core.observe(resource, now) {
            Ok(observer) => self.observers.push((observer, None)),
            Err(_) => self.ledger.now = before,
        }
        self.settle();
    }

    /// Ends the oldest observer.
    pub(super) fn unobserve(&mut self) {
        if !self.observers.is_empty() {
            let (observer, _) = self.observers.remove(0);
            self.core.unobserve(observer);
            assert!(self.core.observation(observer).is_none(), "it observes no longer");
        }
        self.settle();
    }

    pub(super) fn open_all(&mut self) {
        let now = self.now();
        self.core.open_all(now);
        self.settle();
    }

    pub(super) fn longest_ttl(&self) -> Duration {
        self.core.config().settings().max_ttl
    }

    pub(super) fn pass(&mut self, span: Duration) {
        let nanos = span.as_nanos() as u64;
        self.boot += nanos;
        self.wall = self.wall.saturating_add(nanos);
        self.back = 0;
    }

    pub(super) fn set_wall(&mut self, wall: u64) {
        self.ledger.wall_was_set = true;
        self.wall = wall;
    }

    pub(super) fn wall(&self) -> u64 {
        self.wall
    }

    /// Waits until the core's next timer is due.
    pub(super) fn pass_until_due(&mut self) {
        if let Some(due) = self.core.poll_timeout() {
            self.pass(Duration::from_nanos(due.0.saturating_sub(self.boot)));
        }
    }

    /// Fires timeouts until no timer is due.
    pub(super) fn tick(&mut self) {
        for _ in 0..MOST_TICKS {
            let now = self.now();
            self.core.timeout(now);
            self.settle();
            // An action that a late timeout begins past its deadline, such as a move, ends with the
            // next timeout.
            if self.core.poll_timeout().is_none_or(|due| due > self.ledger.now.boot) {
                return self.ledger.check_dues();
            }
        }
        panic!("a timeout is always due");
    }
}

/// Links.
impl World {
    pub(super) fn wire(&self, number: u8) -> usize {
        usize::from(number) % self.wires.len()
    }

    pub(super) fn connect(&mut self, at: usize) {
        let Some(link) = self.wires[at].link else { return };
        if self.wires[at].state == State::Opening {
            self.wires[at].reset(State::Open);
        }
        let now = self.now();
        self.core.connected(link, now);
        self.settle();
    }

    pub(super) fn disconnect(&mut self, at: usize, cause: Cause) {
        let Some(link) = self.wires[at].link else { return };
        self.wires[at].reset(State::Closed);
        let now = self.now();
        self.core.explain(link, cause, "words".into());
        self.core.disconnected(link, cause, now);
        self.settle();
    }

    /// Lets the socket accept up to this many bytes.
    pub(super) fn transmit(&mut self, at: usize, most: usize) {
        let Some(link) = self.wires[at].link else { return };
        let bytes = self.core.transmit(link).len().min(most);
        self.wires[at].took(bytes, &mut self.ledger);
        self.core.transmitted(link, bytes);
    }

    /// Delivers bytes: in one piece as far as they answer sent requests, otherwise reply by reply,
    /// because each may change the request to which the next one belongs.
    pub(super) fn deliver(&mut self, at: usize, bytes: &[u8]) {
        if self.wires[at].state != State::Open {
            return self.feed(at, bytes);
        }
        let connection = self.wires[at].connection;
        let (mut seen, mut fed) = (0, self.wires[at].partial.len());
        self.wires[at].partial.extend_from_slice(bytes);
        loop {
            let wire = &mut self.wires[at];
            let (token, len) = match wire.token(seen) {
                Ok(None) => return self.feed_up_to(at, fed, usize::MAX, seen),
                Ok(Some((token, len))) => (Answered::new(token), len),
                Err(_) => return self.feed_last(at, fed, connection),
            };
            if token.token == Received::Bulk {
                wire.remember(seen, len);
            }
            seen += len;
            if wire.waiting() == 0 {
                // The earlier replies may withdraw a request, or cause another one.
                self.feed_up_to(at, fed, seen - len, 0);
                fed = fed.max(seen - len);
                if self.wires[at].connection != connection {
                    return;
                }
            }
            match self.wires[at].answer(token, &mut self.ledger) {
                Some(Answer::Sent) => {}
                Some(Answer::Early) => {
                    self.feed_up_to(at, fed, seen, 0);
                    fed = fed.max(seen);
                    if self.wires[at].connection != connection {
                        return;
                    }
                }
                None | Some(Answer::Fatal) => return self.feed_last(at, fed, connection),
            }
        }
    }

    /// Passes the partial bytes of `from..to` to the core, and drops those before `done`.
    fn feed_up_to(&mut self, at: usize, from: usize, to: usize, done: usize) {
        let wire = &mut self.wires[at];
        let to = to.min(wire.partial.len());
        let connection = wire.connection;
        if from < to {
            let bytes = wire.partial[from..to].to_vec();
            self.feed(at, &bytes);
        }
        let wire = &mut self.wires[at];
        if wire.connection == connection {
            wire.partial.drain(..done);
        }
    }

    /// Passes bytes to the core that must end the connection.
    fn feed_last(&mut self, at: usize, from: usize, connection: u32) {
        self.feed_up_to(at, from, usize::MAX, 0);
        assert_ne!(self.wires[at].connection, connection, "the link stays open after garbage");
    }

    /// Passes bytes to the core in reads of as many as it has space for, and no more once it has
    /// left the connection.
    fn feed(&mut self, at: usize, mut bytes: &[u8]) {
        let connection = self.wires[at].connection;
        while !bytes.is_empty() && self.wires[at].connection == connection {
            let Some(link) = self.wires[at].link else { return };
            let space = self.core.space(link);
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            let now = self.now();
            self.core.received(link, len, now);
            self.settle();
        }
    }

    /// Answers the oldest request as an honest node would.
    pub(super) fn answer(&mut self, at: usize, refuse: bool) {
        if let Some(request) = self.wires[at].oldest() {
            let wire = &self.wires[at];
            let text = match wire.is_half() {
                true => peer::check(refuse).into(),
                false => peer::honest(request, &wire.place, refuse, peer::ERA),
            };
            self.deliver(at, text.as_bytes());
        }
    }

    /// Answers all requests as an honest node would, including those that follow.
    pub(super) fn serve(&mut self, at: usize, era: char) {
        for _ in 0..MOST_FLIGHTS {
            if self.wires[at].state == State::Opening {
                self.connect(at);
            }
            self.transmit(at, usize::MAX);
            let wire = &self.wires[at];
            if wire.is_quiet() || wire.state == State::Closed {
                return;
            }
            let flight: String = (0..wire.waiting()).map(|nth| wire.honest(nth, era)).collect();
            self.deliver(at, flight.as_bytes());
        }
    }

    pub(super) fn serve_all(&mut self, era: char) {
        for at in 0..self.wires.len() {
            self.serve(at, era);
        }
        for at in 0..self.pushes.len() {
            self.serve_push(at, era);
        }
    }
}

/// Push links.
impl World {
    pub(super) fn connect_push(&mut self, at: usize) {
        let Some(link) = self.pushes[at].link else { return };
        if self.pushes[at].state == State::Opening {
            self.pushes[at].reset(State::Open);
        }
        let now = self.now();
        self.core.connected(link, now);
        self.settle();
    }

    pub(super) fn disconnect_push(&mut self, at: usize, cause: Cause) {
        let Some(link) = self.pushes[at].link else { return };
        self.pushes[at].reset(State::Closed);
        let now = self.now();
        self.core.disconnected(link, cause, now);
        self.settle();
    }

    pub(super) fn transmit_push(&mut self, at: usize, most: usize) {
        let Some(link) = self.pushes[at].link else { return };
        let bytes = self.core.transmit(link).len().min(most);
        self.pushes[at].took(bytes);
        self.core.transmitted(link, bytes);
    }

    /// Delivers bytes, with any effect on the core: everything on a push link is a hint.
    pub(super) fn report(&mut self, at: usize, bytes: &[u8]) {
        let connection = self.pushes[at].connection;
        let Some(link) = self.pushes[at].link else { return };
        let mut left = bytes;
        while !left.is_empty() && self.pushes[at].connection == connection {
            let space = self.core.space(link);
            let len = space.len().min(left.len());
            space[..len].copy_from_slice(&left[..len]);
            left = &left[len..];
            let now = self.now();
            self.core.received(link, len, now);
            self.settle();
        }
    }

    /// Answers all commands of the core as an honest node would.
    pub(super) fn serve_push(&mut self, at: usize, era: char) {
        if self.pushes[at].state == State::Opening {
            self.connect_push(at);
        }
        self.transmit_push(at, usize::MAX);
        let answers = self.pushes[at].honest(era);
        self.report(at, answers.as_bytes());
    }
}

/// The core's outputs.
impl World {
    /// Takes every output of the core and checks it.
    pub(super) fn settle(&mut self) {
        self.ledger.turn += 1;
        self.link_ops();
        for wire in &mut self.wires {
            if let Some(link) = wire.link {
                wire.sync(self.core.transmit(link), &mut self.ledger);
            }
        }
        for push in &mut self.pushes {
            if let Some(link) = push.link {
                push.sync(self.core.transmit(link));
            }
        }
        self.events();
        self.ledger.check(&self.core);
        for wire in self.wires.iter().filter(|wire| wire.is_of_voter(&self.core)) {
            let is_due = |lock, ticket| wire.is_due(Request::Leave { lock, ticket });
            self.ledger.check_left(wire.place.node, wire.connection, is_due);
        }
    }

    fn link_ops(&mut self) {
        while let Some(op) = self.core.poll_link() {
            let (LinkOp::Close(link) | LinkOp::Open(link)) = op;
            let (before, after) = match op {
                LinkOp::Close(_) => ("closed", State::Closed),
                LinkOp::Open(_) => ("opened", State::Opening),
            };
            let nodes = self.wires.len();
            let is_open = match link.is_push() {
                true => self.pushes[link.index() - nodes].is_notified(link, after),
                false => self.wires[link.index()].is_notified(link, after),
            };
            assert_eq!(is_open, after == State::Closed, "a link is {before} twice");
        }
    }

    fn events(&mut self) {
        let parties = self.ledger.locks.len() + self.views.len() + self.observers.len();
        let most = 4 * (parties + self.wires.len());
        for _ in 0..=most {
            let Some(event) = self.core.poll_event() else { return };
            match event {
                Event::Extended(id) => self.ledger.extended(id, &self.core),
                Event::Granted(id) => self.ledger.granted(id, &self.core),
                Event::Lost(id, cause) => self.ledger.lost(id, cause),
                Event::NotExtended(id, _) => self.ledger.not_extended(id),
                Event::Refused(id, refusal) => self.ledger.refused(id, &refusal),
                Event::Released(id, confirmed) => self.ledger.released(id, confirmed),
                Event::Viewed(id) => self.viewed(id),
                Event::Upgraded(id) => self.ledger.changed(id, true, &self.core),
                Event::Downgraded(id) => self.ledger.changed(id, false, &self.core),
                Event::NotUpgraded(id, refusal) => self.ledger.not_changed(id, true, &refusal),
                Event::DowngradeDelayed(id, refusal) => {
                    self.ledger.not_changed(id, false, &refusal);
                }
                Event::Observed(id) => self.observed(id),
                Event::Node(node, NodeState::Ready) => {
                    assert_eq!(self.wires[node.index()].state, State::Open, "{node:?} is ready");
                }
                _ => {}
            }
        }
        panic!("more events than there can be");
    }

    /// Checks that a new verdict is reported, and only to an observer.
    fn observed(&mut self, id: ObserverId) {
        let observer = self.observers.iter_mut().find(|(observer, _)| *observer == id);
        let (_, reported) = observer.expect("the event is for an observer");
        let view = self.core.observation(id).expect("what was announced");
        assert_eq!(view.nodes.len(), self.wires.len());
        assert_ne!(reported.as_ref(), Some(&view.verdict), "it was told that before");
        *reported = Some(view.verdict);
    }

    fn viewed(&mut self, id: ViewId) {
        let at = self
            .views
            .iter()
            .position(|&view| view == id)
            .expect("the result is of an open inspection");
        self.views.swap_remove(at);
        let view = self.core.take_view(id).expect("a view that is complete");
        assert_eq!(view.nodes.len(), self.wires.len());
        assert!(self.core.take_view(id).is_none(), "a view is taken once");
    }
}

/// The end.
impl World {
    /// Releases every lock and ends every link, twice, and waits until every TTL has passed.
    pub(super) fn let_go(&mut self) {
        for _ in 0..2 {
            for at in 0..self.ledger.locks.len() {
                self.release_at(at);
            }
            while !self.observers.is_empty() {
                self.unobserve();
            }
            for at in 0..self.pushes.len() {
                self.disconnect_push(at, Cause::ConnectionClosed);
            }
            for at in 0..self.wires.len() {
                self.disconnect(at, Cause::ConnectionClosed);
            }
        }
        self.pass(self.longest_ttl() + LONG);
        self.tick();
        self.nothing_is_left();
    }

    /// Takes and releases a fresh lock, with honest nodes on all links. They have short restart
    /// guards: for a core that has received a longer one, a clock was set forward, so it waits
    /// until no earlier lock can be left.
    pub(super) fn start_afresh(&mut self) {
        self.serve_all(peer::LAST_ERA);
        self.pass(self.longest_ttl() + LONG);
        self.tick();
        self.serve_all(peer::LAST_ERA);
        self.acquire_last();
        let last = self.ledger.locks.len() - 1;
        self.serve_all(peer::LAST_ERA);
        assert_eq!(self.ledger.locks[last].phase, Phase::Held, "a free lock on honest nodes");
        self.release_at(last);
        self.serve_all(peer::LAST_ERA);
        self.nothing_is_left();
    }

    fn acquire_last(&mut self) {
        // All earlier locks have ended.
        self.ledger.locks.truncate(MOST_LOCKS - 1);
        self.acquire(1, Sort::Plain, Duration::from_millis(500), Wait::No);
    }

    fn nothing_is_left(&self) {
        assert!(self.views.is_empty(), "an inspection without an end");
        let ended = |lock: &super::ledger::Lock| lock.phase == Phase::Ended;
        assert!(self.ledger.locks.iter().all(ended), "a lock without an end");
        let left = format!("{:?}", self.core);
        assert!(left.contains("locks: 0, claims: 0"), "{left}");
    }
}

/// Creates a link to a node, and the node's restart guard.
fn wire(settings: &Settings, at: usize) -> Wire {
    let node = &settings.nodes[at];
    let max_ttl = settings.max_ttl.as_millis();
    let place = Place {
        node: at,
        limits: format!(":{max_ttl}:{}:{}", settings.nodes.len(), node.database),
        has_queue: settings.wake == WakeStrategy::Queue,
        may_change: settings.setup == Setup::Change,
        quarantines: matches!(settings.setup, Setup::Change | Setup::Enrol),
    };
    let restart_guard =
        (settings.restart_guard == RestartGuard::On).then(|| settings.restart_guard_key.clone());
    Wire::new(place, restart_guard, node.credentials.is_some() || node.database != 0)
}

/// The maximum number of locks: enough to conflict, while more would only take time.
const MOST_LOCKS: usize = 6;

const MOST_OBSERVERS: usize = 3;

/// The maximum number of inspections: few enough that less than 64 KiB wait to be sent to a node,
/// from which the core withdraws a request. Of more it sends both attempts of a call that makes
/// two, and `Wire::sync`, which reads node by node, would read the first one late.
const MOST_INSPECTIONS: usize = 8;

/// The maximum number of timeouts in a row at the same moment.
const MOST_TICKS: usize = 3;

/// The maximum number of flights to an honest node without time passing.
const MOST_FLIGHTS: usize = 8;

const LONG: Duration = Duration::from_secs(100);

/// The initial times: some seconds after boot, in 2023.
const BOOT: u64 = 1_000_000_000_000;
const WALL: u64 = 1_700_000_000_000_000_000;

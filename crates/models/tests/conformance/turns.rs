//! Conformance of turns: how a node calls the head, and when and why a waiter retries.

use std::time::Duration;

use redbolt::proto::script::{
    ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT, ACQUIRE_PERMIT_IN_QUEUE, LEAVE_QUEUE, UNDO, UNDO_PERMIT,
};
use redbolt::proto::{
    ClockReading, Config, Core, LinkId, LinkOp, LockId, LockRequest, NodeSettings, Settings,
    Timestamp, Wait, WakeStrategy,
};
use redbolt_models::turns::{Alone, Answer, Turns, WAITERS};
use redbolt_node::model;
use redbolt_testkit::request::Words;
use redbolt_testkit::{Command, Host, Kind, Peer, Random, Scripted, bulk};

use crate::bench::ready;

/// An event on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Ask(usize),
    /// The oldest holder releases.
    Release,
    /// A client outside the queue takes the lock.
    Stranger,
    Leave(usize),
    Tick,
}

/// A node that runs the scripts, with the model of it.
struct Run {
    model: Turns,
    alone: Alone,
    node: Peer,
    now: u64,
    holders: Vec<String>,
}

impl Run {
    /// Returns a node with a holder and all waiters in the queue, one after the other.
    fn new(model: Turns) -> Self {
        let node = Peer::new(0, model::ClockReading::from_micros(START_US));
        let mut run = Self { model, alone: model.alone(), node, now: START_US, holders: vec![] };
        for stranger in 0..model.permits {
            let own = format!("{:032x}00", 0xd0 + u64::from(stranger));
            let permits = model.permits.to_string();
            let reply = match run.is_lock() {
                true => run.run(&["SET", "job", &own, "NX", "PX", TTL]),
                false => {
                    let keys = ["EVAL", ACQUIRE_PERMIT.text, "2", "job", ENDS];
                    run.run(&[&keys[..], &[&own, TTL, "3", &permits, "0", "1"]].concat())
                }
            };
            assert!(reply.starts_with("+OK"), "{reply}");
            run.holders.push(own);
        }
        for by in 0..WAITERS {
            assert_eq!(run.asks(by), Answer::Held);
        }
        run
    }

    fn is_lock(&self) -> bool {
        self.model.permits == 1
    }

    fn run(&mut self, words: &[&str]) -> String {
        let reply = self.node.run(words, model::ClockReading::from_micros(self.now));
        assert!(!reply.starts_with("-ERR"), "{words:?}: {reply}");
        reply
    }

    /// Runs an event on both sides, which have to agree on the reply and on the state afterwards.
    fn step(&mut self, does: Does) {
        match does {
            Does::Ask(by) => {
                let real = self.asks(by);
                assert_eq!(real, self.model.ask(&mut self.alone, by), "{does:?}");
                if real == Answer::Granted {
                    self.holders.push(token(by));
                    self.leaves(by);
                }
            }
            Does::Release => {
                let first = self.holders.remove(0);
                let undone = match self.is_lock() {
                    true => self.run(&["EVAL", UNDO.text, "1", "job", &first]),
                    false => self.run(&["EVAL", UNDO_PERMIT.text, "2", "job", ENDS, &first]),
                };
                assert_eq!(undone, ":1\r\n", "{does:?}");
                self.alone.release();
            }
            Does::Stranger => {
                let own = format!("{:032x}00", 0xe0);
                assert_eq!(self.run(&["SET", "job", &own, "PX", TTL]), "+OK\r\n");
                self.holders.push(own);
                self.alone.is_taken();
            }
            Does::Leave(by) => {
                self.leaves(by);
                self.alone.leave(by);
            }
            Does::Tick => {
                self.now += TICK_MS * 1_000;
                self.alone.tick();
            }
        }
        self.compare(does);
    }

    fn leaves(&mut self, by: usize) {
        let (ticket, member) = (self.ticket(by), self.member(by));
        let keys = ["EVAL", LEAVE_QUEUE.text, "5", "job", STAMPS, TICKET_ENDS, &ticket, CALL];
        assert_eq!(self.run(&[&keys[..], &[&member]].concat()), ":1\r\n");
    }

    fn asks(&mut self, by: usize) -> Answer {
        let (own, name, ticket) = (token(by), self.name(by), self.ticket(by));
        let (stamp, grace) = ((by + 1).to_string(), self.grace(by));
        let queue = ["job", STAMPS, TICKET_ENDS, &ticket, CALL];
        let asks = [&own, TTL, "3", &stamp, "1", &grace];
        let reply = match self.is_lock() {
            true => self.run(
                &[&["EVAL", ACQUIRE_IN_QUEUE.text, "5"], &queue[..], &asks, &[&name]].concat(),
            ),
            false => {
                let permits = self.model.permits.to_string();
                let slots = [&permits, "0", "1", &name[..]];
                let script = ["EVAL", ACQUIRE_PERMIT_IN_QUEUE.text, "6"];
                self.run(&[&script, &queue[..], &[ENDS], &asks, &slots].concat())
            }
        };
        let words: Vec<_> = reply.split_whitespace().collect();
        match words[..] {
            ["+OK", ..] => Answer::Granted,
            ["+WAIT", "0", _, _, last, _] => {
                let rest = last.split_once(':').expect("the rest of a call").1;
                let rest: u64 = rest.parse().unwrap();
                Answer::Calls { rest: rest.div_ceil(TICK_MS) as u8 }
            }
            ["+WAIT", ..] => Answer::Held,
            _ => panic!("{reply}"),
        }
    }

    fn compare(&mut self, behind: Does) {
        for by in 0..WAITERS {
            let member = self.member(by);
            let stands = self.run(&["ZSCORE", STAMPS, &member]) != "$-1\r\n";
            assert_eq!(stands, self.alone.stands(by), "whether {by} stands behind {behind:?}");
        }
        let called = self.run(&["GET", CALL]);
        let first = (0..WAITERS).find(|&by| self.alone.stands(by));
        let real = called.lines().nth(1).and_then(|called| {
            let (since, whom) = called.split_once(' ')?;
            let first = first.filter(|&by| self.member(by) == whom)?;
            let since: u64 = since.parse().unwrap();
            Some((first, ((self.now / 1_000 - since) / TICK_MS) as u8))
        });
        assert_eq!(real, self.alone.called(), "who is called behind {behind:?}");
    }

    /// Returns a millisecond less than the grace in ticks, so that it has passed at the last of
    /// them.
    fn grace(&self, by: usize) -> String {
        (u64::from(self.model.graces[by]) * TICK_MS - 1).to_string()
    }

    fn name(&self, by: usize) -> String {
        format!("{}{}", if self.is_lock() { 'x' } else { 'p' }, &token(by)[..32])
    }

    fn ticket(&self, by: usize) -> String {
        format!("redbolt:line-wait:{}", self.name(by))
    }

    fn member(&self, by: usize) -> String {
        format!("{}00:{}", self.name(by), self.grace(by))
    }

    /// Returns the events that may come next.
    fn next(&self) -> Vec<Does> {
        let mut next = vec![Does::Tick];
        next.extend((!self.holders.is_empty()).then_some(Does::Release));
        next.extend((self.is_lock() && self.alone.free() > 0).then_some(Does::Stranger));
        for by in (0..WAITERS).filter(|&by| self.alone.stands(by)) {
            next.extend([Does::Ask(by), Does::Leave(by)]);
        }
        next
    }
}

/// Runs every sequence of this many events on a node behind a release.
#[test]
fn the_scripts_call_let_in_and_pass_the_waiters_of_the_model() {
    let mut runs = 0;
    for permits in [1, 3] {
        for graces in [[1, 2, 1], [2, 1, 3]] {
            let model = Turns { permits, graces, pause: 20, ..Turns::RULES };
            let mut steps = vec![Does::Release, Does::Ask(1)];
            runs += all_runs(model, &mut steps);
            let mut steps = vec![Does::Release, Does::Ask(2), Does::Tick];
            runs += all_runs(model, &mut steps);
        }
    }
    assert!(runs > 10_000, "{runs} runs only");
}

/// Runs these events, and then each continuation.
fn all_runs(model: Turns, steps: &mut Vec<Does>) -> usize {
    let mut run = Run::new(model);
    steps.iter().for_each(|&does| run.step(does));
    if steps.len() == DEPTH {
        return 1;
    }
    let mut runs = 1;
    for does in run.next() {
        steps.push(does);
        runs += all_runs(model, steps);
        steps.pop();
    }
    runs
}

/// A core with a lock in the queue of three nodes, of which the first sends notifications.
struct Waiter {
    core: Core,
    now: ClockReading,
    /// The links for commands, then those for notifications.
    links: [Vec<LinkId>; 2],
    nodes: [Vec<Scripted>; 2],
    id: LockId,
}

impl Waiter {
    /// Returns a waiter with `before` others in front of it. `reported` states that the resource is
    /// held, or that the head was called.
    fn new(before: usize, reported: &str) -> Self {
        let mut settings = Settings::new(vec![NodeSettings::default(); 3]);
        settings.wake = WakeStrategy::Queue;
        let now = Timestamp(1_000_000_000);
        let now = ClockReading { boot: now, wall: now };
        let mut core = Core::new(
            std::sync::Arc::new(Config::new(settings).unwrap()),
            Random::new(0).entropy(),
        );
        core.open_all(now);
        let request = LockRequest::new(b"job").wait(Wait::Forever);
        let id = core.acquire(&request, now).unwrap();
        let (links, nodes) = ([vec![], vec![]], [vec![], vec![]]);
        let mut waiter = Self { core, now, links, nodes, id };
        waiter.answer_all(Some(&place(before, HELD)));
        assert!(waiter.core.has_place(id), "all nodes have told the same");
        // A new subscriber has to check whether the change has already happened.
        waiter.is_inspected(&[]);
        waiter.asks_after();
        waiter.answer_all(Some(&place(before, reported)));
        waiter.is_inspected(&[]);
        waiter
    }

    fn listen(&mut self) {
        while let Some(op) = self.core.poll_link() {
            let LinkOp::Open(link) = op else { continue };
            self.links[usize::from(link.is_push())].push(link);
            self.nodes[usize::from(link.is_push())].push(Scripted::default());
            self.core.connected(link, self.now);
        }
        for (links, nodes) in self.links.iter().zip(&mut self.nodes) {
            for (&link, node) in links.iter().zip(nodes) {
                self.core.write(link, |bytes| node.receive(bytes));
            }
        }
    }

    /// Answers all requests except inspections; requests in the queue by `place`, if given.
    fn answer_all(&mut self, place: Option<&str>) {
        loop {
            self.listen();
            let waits = |words: &Words| match Command::new(words).kind {
                Kind::Getrange => true,
                Kind::Ask => place.is_none(),
                _ => false,
            };
            let Some((push, at, words)) = self.due(|words| !waits(words)) else { return };
            let answer = match Command::new(&words).kind {
                Kind::Ask if !words.contains(&STAMPS.into()) => ":9000\r\n".to_owned(),
                Kind::Ask => place.unwrap_or_default().to_owned(),
                Kind::Pttl => ":9000\r\n".to_owned(),
                Kind::Undo => ":0\r\n".to_owned(),
                _ => ready(at).answer(&words).unwrap_or_else(|| panic!("{words:?}")),
            };
            self.answer(push, at, &answer);
        }
    }

    /// Returns the oldest request of any link that matches.
    fn due(&self, is_wanted: impl Fn(&Words) -> bool) -> Option<(usize, usize, Words)> {
        let all = self.nodes.iter().enumerate();
        let mut all = all.flat_map(|(push, nodes)| {
            let oldest = nodes.iter().enumerate();
            oldest.filter_map(move |(at, node)| Some((push, at, node.oldest()?)))
        });
        let (push, at, words) = all.find(|(_, _, words)| is_wanted(words))?;
        Some((push, at, words.clone()))
    }

    fn answer(&mut self, push: usize, at: usize, answer: &str) {
        self.nodes[push][at].answered();
        self.core.receive(self.links[push][at], answer.as_bytes(), self.now);
    }

    /// Answers all inspections, with the keys in `gone` as missing, and returns the inspected keys.
    fn is_inspected(&mut self, gone: &[&str]) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            self.answer_all(None);
            let is_read = |words: &Words| Command::new(words).kind == Kind::Getrange;
            let Some((push, at, words)) = self.due(is_read) else { return seen };
            let key = String::from_utf8(words[1].clone()).unwrap();
            let answer = match (gone.contains(&&key[..]), &key[..]) {
                (true, "job") => bulk("\nredbolt"),
                (true, _) => bulk(""),
                (false, "job") => bulk("00112233445566778899"),
                (false, _) => bulk("1"),
            };
            self.answer(push, at, &answer);
            seen.push(key);
        }
    }

    /// Sends the first node's notification that a key has changed.
    fn is_notified(&mut self, key: &str) {
        let text =
            format!("*3\r\n{}{}*1\r\n{}", bulk("message"), bulk("__redis__:invalidate"), bulk(key));
        self.core.receive(self.links[1][0], text.as_bytes(), self.now);
        self.listen();
    }

    /// Returns true if the waiter has sent another request.
    fn asks(&self) -> bool {
        let node = &self.nodes[0][0];
        node.kinds().iter().any(|kind| kind.starts_with("ask"))
    }

    /// Returns the number of inspections of the resource within this span if nothing happens.
    fn looks_for(&mut self, span: Duration) -> usize {
        let until = self.now.boot + span;
        let mut looks = 0;
        while self.now.boot < until {
            self.now.boot = self.now.boot + Duration::from_millis(1);
            self.now.wall = self.now.wall + Duration::from_millis(1);
            self.core.timeout(self.now);
            looks += self.is_inspected(&[]).len();
        }
        looks
    }

    /// Returns the time until the waiter retries if nothing happens.
    fn asks_after(&mut self) -> Duration {
        let begun = self.now.boot;
        for _ in 0..10_000 {
            self.listen();
            if self.asks() {
                return self.now.boot.since(begun);
            }
            self.now.boot = self.now.boot + Duration::from_millis(1);
            self.now.wall = self.now.wall + Duration::from_millis(1);
            self.core.timeout(self.now);
            self.is_inspected(&[]);
        }
        panic!("{:?} never asks again", self.id);
    }
}

/// Returns a node's reply to a request with this many tickets in front.
fn place(before: usize, reported: &str) -> String {
    let name = |rank: usize| format!("x{}00", ["a", "b", "c", "d"][rank].repeat(32));
    let [last, last_but_one] = [1, 2].map(|back| before.checked_sub(back).map(name));
    let (left, rest) = reported.split_once(' ').unwrap();
    let last = last.map_or_else(|| "-".to_owned(), |last| format!("{last}:{rest}"));
    let last_but_one = last_but_one.map_or_else(|| "-".to_owned(), |name| format!("{name}:90"));
    format!("+WAIT {left} 5 {before} {last} {last_but_one}\r\n")
}

/// Returns the key of the ticket that this many others stand before.
fn ticket_of(rank: usize) -> String {
    format!("redbolt:line-wait:x{}", ["a", "b", "c", "d"][rank].repeat(32))
}

const HELD: &str = "9000 90";

/// The model's `receives_release` and `receives_leaving`: the core inspects those keys and no
/// other.
#[test]
fn the_core_subscribes_to_what_the_model_receives() {
    let model = Turns::RULES;
    for before in 0..4 {
        let mut waiter = Waiter::new(before, HELD);
        for node in 0..3 {
            assert!(!waiter.nodes[0][node].kinds().contains(&"ask"), "it pauses");
        }
        waiter.is_notified("job");
        // The head retries on any notification about the resource.
        if before == 0 {
            assert!(waiter.asks() && model.receives_release(0));
            continue;
        }
        let mut gone = vec!["job".to_owned()];
        gone.extend((0..before).map(ticket_of));
        for key in &gone {
            let mut waiter = Waiter::new(before, HELD);
            waiter.is_notified(key);
            let reads = waiter.is_inspected(&[]);
            let listens = reads.contains(key);
            let rank = gone.iter().position(|it| it == key).unwrap().checked_sub(1);
            let receives = match rank {
                None => model.receives_release(before),
                Some(rank) => model.receives_leaving(before - rank - 1),
            };
            assert_eq!(listens, receives, "{before} before it, and {key} changes: {reads:?}");
        }
    }
}

/// The core retries within a trip, plus the time in which the lock is left to the head.
#[test]
fn the_core_retries_when_it_is_its_turn() {
    let soon = Duration::from_millis(2);
    for before in 0..2 {
        let mut waiter = Waiter::new(before, HELD);
        waiter.is_notified("job");
        waiter.is_inspected(&["job"]);
        assert!(waiter.asks_after() <= soon, "a release, {before} before it");
    }
    let mut second = Waiter::new(1, HELD);
    second.is_notified(&ticket_of(0));
    second.is_inspected(&[&ticket_of(0), "job"]);
    assert!(second.asks_after() <= soon, "the first has left");
    let mut third = Waiter::new(2, HELD);
    third.is_notified(&ticket_of(0));
    third.is_inspected(&[&ticket_of(0), "job"]);
    assert!(third.asks_after() <= soon, "it is second, and the lock is free");
    let mut third = Waiter::new(2, HELD);
    third.is_notified(&ticket_of(1));
    third.is_inspected(&[&ticket_of(1)]);
    assert!(third.asks_after() <= soon, "it asks who stands before it now");
}

/// The model's timers: the longest pause while the lock is held; the rest of a call for the next
/// waiter, and a little more for those behind it.
#[test]
fn the_core_retries_when_the_model_does() {
    let model = Turns::RULES;
    let (least, most) = (Duration::from_millis(1_500), Duration::from_millis(2_001));
    for before in 0..4 {
        let held = Waiter::new(before, HELD).asks_after();
        assert!((least..=most).contains(&held), "{held:?} where it is held, {before} before it");
    }
    assert!(!model.next_alone);
    for before in 1..4 {
        for rest in [3, 90, 400] {
            let reported = format!("0 {rest}");
            let after = Waiter::new(before, &reported).asks_after();
            let rest = Duration::from_millis(rest + 5 * (before as u64 - 1));
            let most = rest + rest / 40 + Duration::from_millis(4);
            assert!((rest..most).contains(&after), "{after:?}, {before} before it");
        }
    }
}

/// The model's `looks`: a waiter that is not notified of releases finds an idle resource soon, and
/// retries.
#[test]
fn the_core_inspects_when_the_model_does() {
    let model = Turns::RULES;
    for before in 0..4 {
        let mut waiter = Waiter::new(before, HELD);
        let looks = waiter.looks_for(Duration::from_millis(1_000));
        let expected = if model.receives_release(before) { 0 } else { 1_000 / (50 * before) };
        assert_eq!(looks, expected, "{before} before it");
    }
}

fn token(by: usize) -> String {
    format!("{}00", ["a", "b", "c"][by].repeat(32))
}

const DEPTH: usize = 6;
/// Long enough that nothing ends in a run.
const TICK_MS: u64 = 10;
const TTL: &str = "3000";
const ENDS: &str = "redbolt:until:job";
const STAMPS: &str = "redbolt:line:job";
const TICKET_ENDS: &str = "redbolt:line-until:job";
const CALL: &str = "redbolt:line-call:job";
const START_US: u64 = 1_767_225_600_000_000;

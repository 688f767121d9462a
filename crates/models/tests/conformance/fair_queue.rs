//! Conformance of the queue: the waiters that a node lets in, the stamps of their tickets, and what
//! the node keeps for them.

use redbolt::proto::script::{ACQUIRE_IN_QUEUE, ACQUIRE_SHARED, LEAVE_QUEUE, UNDO, UNDO_SHARED};
use redbolt_models::fair_queue::{Alone, Closing, FairQueue, FirstAsk, Mode};
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

/// An event on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// A process sends a request without a ticket.
    First(usize),
    /// A process sends a request in the queue, with T or 0.
    Ask(usize, u8),
    Undo(usize),
    /// A holder's compare-and-delete.
    Delete(usize),
    Leave(usize),
    /// The keys of all holders expire.
    Expire,
    /// The closed key expires.
    Open,
    /// The grace of the called waiter passes.
    Rest,
}

/// A node that runs the scripts, with the model of it.
struct Run<const C: usize> {
    model: FairQueue<3, C>,
    alone: Alone<C>,
    node: Peer,
    now: u64,
}

impl<const C: usize> Run<C> {
    fn new(model: FairQueue<3, C>) -> Self {
        let mut node = Peer::new(0, ClockReading::from_micros(START_US));
        node.offer(&["delex"]);
        Self { model, alone: model.alone(), node, now: START_US }
    }

    fn run(&mut self, words: &[&str]) -> String {
        let reply = self.node.run(words, ClockReading::from_micros(self.now));
        assert!(!reply.starts_with("-ERR"), "{words:?}: {reply}");
        reply
    }

    /// Runs an event on both sides, which have to agree on the reply and on the state afterwards.
    fn step(&mut self, does: Does) {
        match does {
            Does::First(by) => {
                let real = self.asks_first(by);
                assert_eq!(real, self.model.first(&mut self.alone, by), "{does:?}");
            }
            Does::Ask(by, t) => {
                let called = self.called();
                let real = self.asks(by, t);
                assert_eq!(
                    real,
                    self.answer(by, t, called),
                    "{does:?}: granted, and at which stamp"
                );
            }
            Does::Undo(by) => {
                let undo = if self.shares(by) { UNDO_SHARED.text } else { UNDO.text };
                assert_eq!(self.run(&["EVAL", undo, "1", "job", &token(by)]), ":1\r\n");
                self.model.undo(&mut self.alone, by);
            }
            Does::Delete(by) => {
                let native = self.run(&["DELEX", "job", "IFEQ", &token(by)]);
                let finds = i32::from(self.model.delete(&mut self.alone, by));
                assert_eq!(native, format!(":{finds}\r\n"), "{does:?}");
            }
            Does::Leave(by) => {
                let (ticket, member) = (self.ticket(by), self.member(by));
                let keys = ["EVAL", LEAVE_QUEUE.text, "5", "job", STAMPS, ENDS, &ticket, CALL];
                assert_eq!(self.run(&[&keys[..], &[&member]].concat()), ":1\r\n");
                self.model.leave(&mut self.alone, by);
            }
            Does::Expire => {
                self.now += (TTL_MS + 1) * 1_000;
                self.model.expire(&mut self.alone);
            }
            Does::Open => {
                assert_eq!(self.run(&["DEL", "job"]), ":1\r\n");
                self.model.open(&mut self.alone);
            }
            Does::Rest => self.now += (GRACE_MS + 1) * 1_000,
        }
        self.compare(does);
    }

    /// Returns the model's reply. In the model a place may be lost at any moment; here it is lost
    /// if the node has called the head for longer than its grace.
    fn answer(&mut self, by: usize, t: u8, called: Option<usize>) -> (bool, u8) {
        let answer = self.model.ask(&mut self.alone, by, t);
        let is_held = (0..C).any(|it| self.alone.holds(it));
        let stamps = self.alone.stamps();
        let head = (0..C).filter(|&it| stamps[it] > 0).min_by_key(|&it| (stamps[it], it));
        if answer.0 || is_held || called.is_none() || called != head || called == Some(by) {
            return answer;
        }
        self.model.skip(&mut self.alone);
        self.model.ask(&mut self.alone, by, t)
    }

    /// Returns the process that was called for longer than its grace.
    fn called(&mut self) -> Option<usize> {
        let reply = self.run(&["GET", CALL]);
        let (since, whom) = reply.lines().nth(1)?.split_once(' ')?;
        let since: u64 = since.parse().unwrap();
        let is_over = self.now / 1_000 > since + GRACE_MS;
        (0..C).find(|&by| self.member(by) == whom).filter(|_| is_over)
    }

    fn asks_first(&mut self, by: usize) -> bool {
        let (own, ttl) = (token(by), TTL_MS.to_string());
        let reply = match self.shares(by) {
            true => self.run(&["EVAL", ACQUIRE_SHARED.text, "1", "job", &own, &ttl, "3"]),
            false => self.run(&["SET", "job", &own, "NX", "PX", &ttl]),
        };
        reply == "+OK\r\n"
    }

    fn asks(&mut self, by: usize, t: u8) -> (bool, u8) {
        let (own, name, ticket) = (token(by), self.name(by), self.ticket(by));
        let keys = ["EVAL", ACQUIRE_IN_QUEUE.text, "5", "job", STAMPS, ENDS, &ticket, CALL];
        let [ttl, grace] = [TTL_MS, GRACE_MS].map(|ms| ms.to_string());
        let [t, proposal] = [t, self.model.clocks[by]].map(|stamp| stamp.to_string());
        let reply =
            self.run(&[&keys[..], &[&own, &ttl, "3", &t, &proposal, &grace, &name]].concat());
        let words: Vec<_> = reply.split_whitespace().collect();
        match words[..] {
            ["+OK", stamp] => (true, stamp.parse().unwrap()),
            ["+WAIT", _, stamp, ..] => (false, stamp.parse().unwrap()),
            _ => panic!("{reply}"),
        }
    }

    fn compare(&mut self, behind: Does) {
        let (holders, is_closed, is_marked) = self.there();
        let model: Vec<_> = (0..C).filter(|&by| self.alone.holds(by)).collect();
        assert_eq!(holders, model, "who holds behind {behind:?}");
        assert_eq!(is_closed, self.alone.is_closed(), "a closed key behind {behind:?}");
        let stamps: [u8; C] = std::array::from_fn(|by| {
            let member = self.member(by);
            let score = self.run(&["ZSCORE", STAMPS, &member]);
            score.lines().nth(1).map_or(0, |stamp| stamp.parse().unwrap())
        });
        assert_eq!(stamps, self.alone.stamps(), "tickets behind {behind:?}");
        // A plain command of a newcomer has to see that there is a queue.
        let is_there = !holders.is_empty() || is_closed;
        let has_queue = stamps.iter().any(|&stamp| stamp > 0);
        assert_eq!(is_marked || is_closed, is_there && has_queue, "a mark behind {behind:?}");
        assert!(
            is_there || !has_queue || behind == Does::Open,
            "a newcomer would pass behind {behind:?}"
        );
    }

    /// Returns the holders, whether the key is closed, and whether a held key is marked.
    fn there(&mut self) -> (Vec<usize>, bool, bool) {
        let now = self.now / 1_000;
        let value = self.run(&["GET", "job"]);
        if value.starts_with("-WRONGTYPE") {
            let all = self.run(&["ZRANGE", "job", "0", "-1", "WITHSCORES"]);
            let words: Vec<_> = all.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            let lives = |of: &str| {
                let at = words.iter().position(|word| *word == of);
                at.is_some_and(|at| words[at + 1].parse().is_ok_and(|end: u64| end > now))
            };
            let holders: Vec<_> = (0..C).filter(|&by| lives(&token(by))).collect();
            let is_marked = words.contains(&"line");
            return (holders.clone(), is_marked && holders.is_empty(), is_marked);
        }
        let value = value.split_once("\r\n").map_or("", |(_, value)| value.trim_end());
        let (own, end) = value.split_once('\n').unwrap_or((value, ""));
        let is_over = end == "redbolt" || end.parse().is_ok_and(|end: u64| end <= now);
        let own = own.strip_prefix("r:").unwrap_or(own);
        let holders = (0..C).filter(|&by| token(by) == own && !is_over).collect();
        (holders, is_over, !end.is_empty() && !is_over)
    }

    fn shares(&self, by: usize) -> bool {
        self.model.modes[by] == Mode::Shared
    }

    fn name(&self, by: usize) -> String {
        let mode = if self.shares(by) { 's' } else { 'x' };
        format!("{mode}{}", &token(by)[..32])
    }

    fn ticket(&self, by: usize) -> String {
        format!("redbolt:line-wait:{}", self.name(by))
    }

    fn member(&self, by: usize) -> String {
        format!("{}00:{GRACE_MS}", self.name(by))
    }

    /// Returns the events that may come next.
    fn next(&self, before: &[Does]) -> Vec<Does> {
        let is_held = (0..C).any(|by| self.alone.holds(by));
        if before.last() == Some(&Does::Open) {
            return (0..C).map(|by| Does::Ask(by, 0)).collect();
        }
        let mut next = vec![if is_held { Does::Expire } else { Does::Rest }];
        next.extend(self.alone.is_closed().then_some(Does::Open));
        for by in 0..C {
            let is_new =
                !before.iter().any(|it| matches!(it, Does::First(b) | Does::Ask(b, _) if *b == by));
            if self.alone.holds(by) {
                next.push(Does::Undo(by));
                next.extend((!self.shares(by)).then_some(Does::Delete(by)));
            } else {
                next.extend(is_new.then_some(Does::First(by)));
                next.extend([Does::Ask(by, 0), Does::Ask(by, T)]);
            }
            next.extend((self.alone.stamps()[by] > 0).then_some(Does::Leave(by)));
        }
        next
    }
}

/// Runs every sequence of this many events on a node.
#[test]
fn the_scripts_of_the_queue_let_in_the_waiters_of_the_model() {
    const S: Mode = Mode::Shared;
    const X: Mode = Mode::Exclusive;
    // Readers come first, as they do on a node at the same stamp.
    let mut runs = 0;
    for modes in [[X, X], [S, X], [S, S]] {
        runs += all_runs(
            FairQueue { modes, clocks: [1, 3], first_ask: FIRST_ASK, ..FairQueue::RULES },
            5,
            &mut vec![],
        );
    }
    for modes in [[X, X, X], [S, X, X], [S, S, X]] {
        let model =
            FairQueue { modes, clocks: [1, 3, 2], first_ask: FIRST_ASK, ..FairQueue::RULES };
        runs += all_runs(model, 4, &mut vec![]);
    }
    assert!(runs > 60_000, "{runs} runs only");
}

/// Runs these events, and then each continuation.
fn all_runs<const C: usize>(model: FairQueue<3, C>, depth: usize, steps: &mut Vec<Does>) -> usize {
    let mut run = Run::new(model);
    steps.iter().for_each(|&does| run.step(does));
    if steps.len() == depth {
        return 1;
    }
    let mut runs = 1;
    for does in run.next(steps) {
        steps.push(does);
        runs += all_runs(model, depth, steps);
        steps.pop();
    }
    runs
}

fn token(by: usize) -> String {
    format!("{}00", ["a", "b", "c"][by].repeat(32))
}

/// The library's way to keep newcomers out.
const FIRST_ASK: FirstAsk = FirstAsk::Closed(Closing::ALWAYS);
const T: u8 = 4;
const STAMPS: &str = "redbolt:line:job";
const ENDS: &str = "redbolt:line-until:job";
const CALL: &str = "redbolt:line-call:job";
const START_US: u64 = 1_767_225_600_000_000;
/// Long enough that no ticket ends in a run.
const TTL_MS: u64 = 600;
const GRACE_MS: u64 = 20;

//! Conformance of the read/write lock: the claims that a node lets in together, and the mode of a
//! holder of two claims.

use redbolt::proto::script::{
    ACQUIRE_SHARED, DOWNGRADE, EXTEND, EXTEND_DOWNGRADED, EXTEND_SHARED, UNDO, UNDO_DOWNGRADED,
    UNDO_SHARED, UPGRADE,
};
use redbolt::proto::{Event, LockMode, LockRequest};
use redbolt_models::read_write::{Mode, Of, Plan, ReadWrite};
use redbolt_node::model::ClockReading;
use redbolt_testkit::{Handshake, Peer};

use crate::bench::{Bench, warm};

type Model = ReadWrite<3, 2>;

/// An event on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Ask(Of),
    Extend(Of),
    Undo(Of),
    Tick,
}

/// A node that runs the scripts, with the model of it.
struct Run {
    model: Model,
    node: Peer,
    now: u64,
    entries: [[u8; 2]; 2],
}

impl Run {
    fn new(model: Model) -> Self {
        let node = Peer::new(0, ClockReading::from_micros(START_US));
        Self { model, node, now: START_US, entries: [[0; 2]; 2] }
    }

    fn run(&mut self, words: &[&str]) -> String {
        self.node.run(words, ClockReading::from_micros(self.now))
    }

    fn eval(&mut self, script: &str, args: &[&str]) -> bool {
        let reply = self.run(&[&["EVAL", script, "1", "job"], args].concat());
        assert!(!reply.starts_with('-'), "{reply}");
        // A denial is the TTL of what blocks the request.
        reply == "+OK\r\n" || reply == ":1\r\n"
    }

    /// Sends the command of a claim, by the plan of the client.
    fn ask(&mut self, of: Of) -> bool {
        let (client, claim) = index(of);
        let [own, other] = [claim, 1 - claim].map(|claim| token(client, claim));
        let ttl = millis(self.model.ttls[client]);
        match (self.model.plans[client], claim) {
            (Plan::Upgrade, 1) => self.eval(UPGRADE.text, &[&marked(&own), &ttl, &other[..32]]),
            (Plan::Downgrade, 1) => self.eval(DOWNGRADE.text, &[&own, &ttl, "1", &other[..32]]),
            (plan, _) if writes(plan) => {
                self.run(&["SET", "job", &own, "NX", "PX", &ttl]) == "+OK\r\n"
            }
            _ => self.eval(ACQUIRE_SHARED.text, &[&own, &ttl, "1"]),
        }
    }

    fn extend(&mut self, of: Of) -> bool {
        let (client, claim) = index(of);
        let ttl = millis(self.model.extensions[client]);
        let (extend, _, name) = self.scripts(client, claim);
        self.eval(extend, &[&name, &ttl])
    }

    fn undo(&mut self, of: Of) -> bool {
        let (client, claim) = index(of);
        let (_, undo, name) = self.scripts(client, claim);
        self.eval(undo, &[&name])
    }

    fn scripts(&self, client: usize, claim: usize) -> (&'static str, &'static str, String) {
        let name = token(client, claim);
        match (self.model.plans[client], claim) {
            (Plan::Upgrade, 1) => (EXTEND_SHARED.text, UNDO_SHARED.text, marked(&name)),
            (Plan::Downgrade, 0) => (EXTEND_DOWNGRADED.text, UNDO_DOWNGRADED.text, name),
            (plan, 0) if writes(plan) => (EXTEND.text, UNDO.text, name),
            _ => (EXTEND_SHARED.text, UNDO_SHARED.text, name),
        }
    }

    /// Runs an event on both sides, which have to agree on the reply and on the state afterwards.
    fn step(&mut self, does: Does) {
        let (real, model) = match does {
            Does::Tick => {
                self.now += TICK_MS * 1_000;
                let entries = self.entries.map(|of| of.map(|entry: u8| entry.saturating_sub(1)));
                (true, Some(entries))
            }
            Does::Ask(of) => (self.ask(of), self.model.asked(&self.entries, of)),
            Does::Extend(of) => (self.extend(of), self.model.extended(&self.entries, of)),
            Does::Undo(of) => {
                let (client, claim) = index(of);
                let mut entries = self.entries;
                let was_there = std::mem::take(&mut entries[client][claim]) > 0;
                // An expired entry may still be there or not.
                (self.undo(of) && was_there, was_there.then_some(entries))
            }
        };
        assert_eq!(real, model.is_some(), "{does:?} on {:?}", self.entries);
        self.entries = model.unwrap_or(self.entries);
        assert_eq!(self.there(), self.entries, "behind {does:?}");
    }

    /// Returns the ticks left of each claim's entry on the node.
    fn there(&mut self) -> [[u8; 2]; 2] {
        let now = (self.now / 1_000) as i64;
        let value = self.run(&["GET", "job"]);
        let mut found: Vec<(String, i64)> = Vec::new();
        if value.starts_with("-WRONGTYPE") {
            let all = self.run(&["ZRANGE", "job", "0", "-1", "WITHSCORES"]);
            let words: Vec<_> = all.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            let members = words.chunks(2).map(|it| (it[0].to_owned(), it[1].parse().unwrap()));
            found.extend(members);
        } else if let Some(name) = value.lines().nth(1) {
            let left: i64 = self.run(&["PTTL", "job"])[1..].trim_end().parse().unwrap();
            found.push((name.to_owned(), now + left));
        }
        std::array::from_fn(|client| {
            std::array::from_fn(|claim| {
                let name = token(client, claim);
                let is_its = |(it, _): &&(String, i64)| {
                    it.trim_start_matches("r:").trim_start_matches("w:") == name
                };
                let left = found.iter().find(is_its).map_or(0, |(_, end)| end - now);
                u8::try_from(left.max(0).unsigned_abs().div_ceil(TICK_MS)).unwrap()
            })
        })
    }
}

/// Runs every sequence of five events on a node, with two clients of up to two claims each.
#[test]
fn the_scripts_let_in_the_claims_of_the_model() {
    const READ: Plan = Plan::Once(Mode::Shared);
    const WRITE: Plan = Plan::Once(Mode::Exclusive);
    let mut runs = 0;
    for plans in [
        [READ, WRITE],
        [READ, READ],
        [Plan::Upgrade, READ],
        [Plan::Upgrade, WRITE],
        [Plan::Upgrade, Plan::Upgrade],
        [Plan::Downgrade, READ],
        [Plan::Downgrade, WRITE],
        [Plan::Downgrade, Plan::Upgrade],
    ] {
        let model = Model { ttls: [2, 1], extensions: [1, 3], ..Model::rules(plans) };
        runs += all_runs(model, &mut Vec::new());
    }
    assert!(runs > 30_000, "{runs} runs only");
}

/// Runs these events, and then each continuation.
fn all_runs(model: Model, steps: &mut Vec<Does>) -> usize {
    let mut run = Run::new(model);
    steps.iter().for_each(|&does| run.step(does));
    if steps.len() == DEPTH {
        return 1;
    }
    let claims = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let is_one = |&(client, claim): &(usize, usize)| {
        claim == 0 || matches!(model.plans[client], Plan::Upgrade | Plan::Downgrade)
    };
    let mut next = vec![Does::Tick];
    for of in claims.into_iter().filter(is_one).map(|(client, claim)| Of::new(client, claim)) {
        // A claim is requested once.
        if steps.contains(&Does::Ask(of)) {
            next.extend([Does::Extend(of), Does::Undo(of)]);
        } else {
            next.push(Does::Ask(of));
        }
    }
    let mut runs = 1;
    for does in next {
        steps.push(does);
        runs += all_runs(model, steps);
        steps.pop();
    }
    runs
}

/// Tries every number of grants that three nodes can give to the second request.
#[test]
fn the_core_gives_a_holder_the_mode_of_the_model() {
    for granted in 0..=3 {
        let rules = Model::rules([Plan::Downgrade, Plan::Upgrade]);
        for (client, plan) in rules.plans.into_iter().enumerate() {
            let (mut bench, id) = held(plan);
            let now = bench.now;
            match plan {
                Plan::Downgrade => bench.core.downgrade(id, now).unwrap(),
                _ => bench.core.try_upgrade(id, now).unwrap(),
            }
            let mut count = 0;
            for node in 0..3 {
                let expected = rules.takes_itself_for(client, [true, count >= 2], true, || false);
                assert_eq!(bench.core.mode(id).map(of_model), expected, "{plan:?}, {count} grant");
                let has_gone = bench.waiting(node).contains(&"undo");
                let is_released = plan == Plan::Downgrade && count >= 2;
                assert_eq!(has_gone, is_released, "{plan:?}: let go of as a whole by {count}");
                let grants = node < granted;
                // The request was undone if two nodes have denied already.
                if bench.next(node).is_none() {
                    continue;
                }
                bench.answer(node, if grants { "+OK\r\n" } else { ":9\r\n" });
                count += usize::from(grants);
            }
            let reported = bench.reported();
            let is_done = matches!(reported[..], [Event::Downgraded(_) | Event::Upgraded(_)]);
            assert_eq!(is_done, granted >= 2, "{plan:?}: {reported:?}");
        }
    }
}

fn held(plan: Plan) -> (Bench, redbolt::proto::LockId) {
    let mut bench = warm();
    let request = LockRequest::new("job");
    let request = if writes(plan) { request } else { request.shared() };
    let id = bench.lock(&request);
    for node in 0..3 {
        bench.answer(node, "+OK\r\n");
        if writes(plan) {
            bench.answer(node, &format!(":{}\r\n", Handshake::VOTES));
        }
    }
    assert_eq!(bench.reported(), [Event::Granted(id)]);
    (bench, id)
}

fn of_model(mode: LockMode) -> Mode {
    if mode == LockMode::Shared { Mode::Shared } else { Mode::Exclusive }
}

/// Returns true if the plan's first claim is a writer's.
fn writes(plan: Plan) -> bool {
    matches!(plan, Plan::Once(Mode::Exclusive) | Plan::Downgrade)
}

fn index(of: Of) -> (usize, usize) {
    let claims = [(0, 0), (0, 1), (1, 0), (1, 1)];
    claims.into_iter().find(|&(client, claim)| Of::new(client, claim) == of).unwrap()
}

fn token(client: usize, claim: usize) -> String {
    let digit = ["a", "b", "c", "d"][2 * client + claim];
    format!("{}00", digit.repeat(32))
}

fn marked(token: &str) -> String {
    format!("w:{token}")
}

/// Returns a little less than this many ticks in milliseconds, so that nothing ends on a tick.
fn millis(ticks: u8) -> String {
    (u64::from(ticks) * (TICK_MS - 1)).to_string()
}

const TICK_MS: u64 = 1_001;
const START_US: u64 = 1_767_225_600_000_000;
const DEPTH: usize = 5;

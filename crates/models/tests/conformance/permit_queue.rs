//! Conformance of permits in the queue: the waiters that a node lets in to its slots, alongside
//! exclusive waiters, and what it keeps for them.

use redbolt::proto::script::{
    ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT, ACQUIRE_PERMIT_IN_QUEUE, LEAVE_QUEUE, UNDO, UNDO_PERMIT,
    VIEW_QUEUE,
};
use redbolt_models::permit_queue::{PermitQueue, Single};
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;

/// An event on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// A process sends a request without a ticket.
    First(usize),
    /// A process sends a request in the queue, with its stamp.
    Ask(usize),
    Undo(usize),
    Leave(usize),
}

/// A node that runs the scripts, with the model of it.
struct Run {
    model: PermitQueue<3, 3>,
    stamps: [u8; 3],
    single: Single<3>,
    node: Peer,
}

impl Run {
    fn new(model: PermitQueue<3, 3>, stamps: [u8; 3]) -> Self {
        let node = Peer::new(0, ClockReading::from_micros(START_US));
        Self { model, stamps, single: model.single(), node }
    }

    /// Runs a command. No time passes, so no waiter is called for longer than its grace.
    fn run(&mut self, words: &[&str]) -> String {
        let reply = self.node.run(words, ClockReading::from_micros(START_US));
        assert!(!reply.starts_with("-ERR"), "{words:?}: {reply}");
        reply
    }

    /// Runs an event on both sides, which have to agree on the reply and on the state afterwards.
    fn step(&mut self, does: Does) {
        match does {
            Does::First(by) => {
                let fits = self.model.first(&self.single, by);
                let slot = self.asks_first(by);
                self.gives(does, by, fits, slot);
            }
            Does::Ask(by) => {
                let fits = self.model.ask(&mut self.single, by, self.stamps[by]);
                let slot = self.asks(by);
                self.gives(does, by, fits, slot);
            }
            Does::Undo(by) => {
                let undone = match self.is_alone(by) {
                    true => self.run(&["EVAL", UNDO.text, "1", "job", &token(by)]),
                    false => self.run(&["EVAL", UNDO_PERMIT.text, "2", "job", ENDS, &token(by)]),
                };
                assert_eq!(undone, ":1\r\n", "{does:?}");
                self.model.undo(&mut self.single, by);
            }
            Does::Leave(by) => {
                let (ticket, member) = (self.ticket(by), self.member(by));
                let keys =
                    ["EVAL", LEAVE_QUEUE.text, "5", "job", STAMPS, TICKET_ENDS, &ticket, CALL];
                assert_eq!(self.run(&[&keys[..], &[&member]].concat()), ":1\r\n");
                self.model.leave(&mut self.single, by);
            }
        }
        self.compare(does);
    }

    /// Checks a grant. The model leaves the choice of the slot to the node.
    fn gives(&mut self, does: Does, by: usize, fits: bool, slot: Option<u8>) {
        assert_eq!(slot.is_some(), fits, "{does:?}: granted");
        if let Some(slot) = slot {
            assert!(self.model.give(&mut self.single, by, slot), "{does:?}: slot {slot} is free");
        }
    }

    fn asks_first(&mut self, by: usize) -> Option<u8> {
        let own = token(by);
        let reply = match self.is_alone(by) {
            true => self.run(&["SET", "job", &own, "NX", "PX", "600"]),
            false => {
                let (permits, first) = (self.model.permits.to_string(), by.to_string());
                let keys = ["EVAL", ACQUIRE_PERMIT.text, "2", "job", ENDS];
                self.run(&[&keys[..], &[&own, "600", "3", &permits, &first, "1"]].concat())
            }
        };
        slot(&reply, 1)
    }

    fn asks(&mut self, by: usize) -> Option<u8> {
        let (own, name, ticket) = (token(by), self.name(by), self.ticket(by));
        let stamp = self.stamps[by].to_string();
        let queue = ["job", STAMPS, TICKET_ENDS, &ticket, CALL];
        let asks = [&own, "600", "3", &stamp, "1", "20"];
        let reply = match self.is_alone(by) {
            true => self.run(
                &[&["EVAL", ACQUIRE_IN_QUEUE.text, "5"], &queue[..], &asks, &[&name]].concat(),
            ),
            false => {
                let (permits, first) = (self.model.permits.to_string(), by.to_string());
                let script = ["EVAL", ACQUIRE_PERMIT_IN_QUEUE.text, "6"];
                let slots = [&permits, &first, "1", &name[..]];
                self.run(&[&script, &queue[..], &[ENDS], &asks, &slots].concat())
            }
        };
        assert!(reply.starts_with("+OK ") || reply.starts_with("+WAIT "), "{reply}");
        slot(&reply, 2)
    }

    fn compare(&mut self, behind: Does) {
        for by in 0..3 {
            let own = token(by);
            let has = match self.is_alone(by) {
                true => self.run(&["GET", "job"]).contains(&own),
                false => self.run(&["ZSCORE", ENDS, &own]) != "$-1\r\n",
            };
            assert_eq!(has, self.single.holds(by), "whether {by} holds behind {behind:?}");
            let member = self.member(by);
            let stands = self.run(&["ZSCORE", STAMPS, &member]) != "$-1\r\n";
            assert_eq!(stands, self.single.stands(by), "whether {by} stands behind {behind:?}");
        }
        let view =
            self.run(&["EVAL", VIEW_QUEUE.text, "4", "job", STAMPS, TICKET_ENDS, CALL, "99"]);
        let keeps_out = view.contains(" marked ") || view.contains(" closed ");
        assert_eq!(
            keeps_out,
            self.single.keeps_out(),
            "what keeps newcomers out behind {behind:?}"
        );
    }

    fn is_alone(&self, by: usize) -> bool {
        self.model.alone[by]
    }

    fn name(&self, by: usize) -> String {
        format!("{}{}", if self.is_alone(by) { 'x' } else { 'p' }, &token(by)[..32])
    }

    fn ticket(&self, by: usize) -> String {
        format!("redbolt:line-wait:{}", self.name(by))
    }

    fn member(&self, by: usize) -> String {
        format!("{}00:20", self.name(by))
    }

    /// Returns the events that may come next.
    fn next(&self, before: &[Does]) -> Vec<Does> {
        let mut next = vec![];
        for by in 0..3 {
            if self.single.holds(by) {
                next.push(Does::Undo(by));
            } else {
                let is_new = !before
                    .iter()
                    .any(|it| matches!(it, Does::First(b) | Does::Ask(b) if *b == by));
                next.extend(is_new.then_some(Does::First(by)));
                next.push(Does::Ask(by));
            }
            next.extend(self.single.stands(by).then_some(Does::Leave(by)));
        }
        next
    }
}

/// Runs every sequence of this many events on a node.
#[test]
fn the_scripts_of_queued_permits_let_in_the_waiters_of_the_model() {
    let mut runs = 0;
    for permits in [1, 2] {
        for alone in [[false; 3], [true, false, false]] {
            for stamps in [[1, 2, 3], [2, 3, 1]] {
                let model = PermitQueue { permits, alone, ..PermitQueue::RULES };
                runs += all_runs(model, stamps, DEPTH, &mut vec![]);
            }
        }
    }
    assert!(runs > 30_000, "{runs} runs only");
}

/// Runs these events, and then each continuation.
fn all_runs(
    model: PermitQueue<3, 3>,
    stamps: [u8; 3],
    depth: usize,
    steps: &mut Vec<Does>,
) -> usize {
    let mut run = Run::new(model, stamps);
    steps.iter().for_each(|&does| run.step(does));
    if steps.len() == depth {
        return 1;
    }
    let mut runs = 1;
    for does in run.next(steps) {
        steps.push(does);
        runs += all_runs(model, stamps, depth, steps);
        steps.pop();
    }
    runs
}

/// Returns the slot at word `at` of a reply, or 0 if the reply grants the exclusive resource.
fn slot(reply: &str, at: usize) -> Option<u8> {
    let words: Vec<_> = reply.split_whitespace().collect();
    let is_granted = words[0] == "+OK";
    is_granted.then(|| words.get(at).map_or(0, |slot| slot.parse().unwrap()))
}

fn token(by: usize) -> String {
    format!("{}00", ["a", "b", "c"][by].repeat(32))
}

const DEPTH: usize = 5;
const ENDS: &str = "redbolt:until:job";
const STAMPS: &str = "redbolt:line:job";
const TICKET_ENDS: &str = "redbolt:line-until:job";
const CALL: &str = "redbolt:line-call:job";
const START_US: u64 = 1_767_225_600_000_000;

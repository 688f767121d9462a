//! Embedded nodes and clients that share one clock, which the test moves.
//!
//! The embedded node is compared with a real server command by command
//! (`crates/node/tests/differential.rs`). A test here waits for no lease, quarantine or grace, and
//! a stalled machine ends none, because each is far longer than any stall.

use std::thread;
use std::time::{Duration, Instant};

use redbolt::proto::{ClockReading, Timestamp};
use redbolt::{ConfigBuilder, Driver, LockId, LockRequest, Wait};
use redbolt_node::model::Clock;
use redbolt_node::{Memory, Node};
use redbolt_test_servers::{Connection, Reply};

use crate::support::{LIMIT, eventually, patient};

/// A set of embedded nodes, and the clock of the nodes and of all clients.
pub(crate) struct Timed {
    pub(crate) nodes: Vec<Node>,
    clock: Clock,
    max_ttl: Duration,
    began: Instant,
}

impl Timed {
    /// Starts nodes that vote.
    pub(crate) fn of(count: usize) -> Self {
        let (clock, max_ttl) = (Clock::default(), crate::support::LONG);
        let nodes = Node::set_by(count, &clock, max_ttl).unwrap();
        Self { nodes, clock, max_ttl, began: Instant::now() }
    }

    /// Returns a builder for clients of these nodes, with their clock. Its timeouts are long,
    /// because when the clock moves, all answers in flight seem late.
    pub(crate) fn builder(&self) -> ConfigBuilder {
        let addresses = self.nodes.iter().map(|node| node.address().to_string());
        self.bend(patient(addresses).max_ttl(self.max_ttl))
    }

    /// Lets clients go by the clock of the nodes.
    pub(crate) fn bend(&self, builder: ConfigBuilder) -> ConfigBuilder {
        let clock = self.clock.clone();
        builder.bend_clock(move |now: ClockReading| {
            let ahead = clock.ahead();
            let moved = |time: Timestamp| Timestamp(time.0 + ahead);
            ClockReading { boot: moved(now.boot), wall: moved(now.wall) }
        })
    }

    /// Lets this much time pass, in steps after which clients have a moment to act.
    pub(crate) fn pass(&self, span: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.clock.advance(step);
            left -= step;
            thread::sleep(MOMENT);
        }
    }

    /// Lets time pass until the condition holds, and returns how much has passed. It panics if the
    /// condition does not hold after `longest`.
    pub(crate) fn pass_until(
        &self,
        what: &str,
        longest: Duration,
        mut holds: impl FnMut() -> bool,
    ) -> Duration {
        let mut passed = Duration::ZERO;
        while !holds() {
            assert!(passed < longest, "not after {longest:?}: {what}");
            self.pass(STEP);
            passed += STEP;
        }
        passed
    }

    /// Drives a driver until the condition holds, and returns how much time has passed. Time passes
    /// only while no answer about these locks is due, so that none is late.
    pub(crate) fn drive_until(
        &self,
        driver: &mut Driver,
        locks: &[LockId],
        what: &str,
        mut holds: impl FnMut(&mut Driver) -> bool,
    ) -> Duration {
        let (began, until) = (self.now(), Instant::now() + LIMIT);
        while !holds(driver) {
            assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
            if locks.iter().any(|&lock| driver.awaits_answers(lock)) {
                thread::sleep(Duration::from_micros(200));
            } else {
                self.clock.advance(FINE_STEP);
            }
            driver.process();
        }
        self.now() - began
    }

    /// The time by the clock, since the start of this set.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed() + Duration::from_nanos(self.clock.ahead())
    }

    /// Restarts a node without its data.
    pub(crate) fn forget(&mut self, node: usize) {
        self.nodes[node].stop(Memory::Lost);
        self.nodes[node].start_again().unwrap();
    }

    /// Sends a command to each node.
    pub(crate) fn run(&self, line: &str) -> Vec<Reply> {
        (0..self.nodes.len()).map(|node| self.run_on(node, line)).collect()
    }

    /// Sends a command to one node.
    pub(crate) fn run_on(&self, node: usize, line: &str) -> Reply {
        Connection::open(&self.nodes[node].address().to_string()).cmd(line)
    }

    pub(crate) fn has(&self, node: usize, key: &str) -> bool {
        self.run_on(node, &format!("EXISTS {key}")) == Reply::Int(1)
    }

    /// The number of nodes that have the key.
    pub(crate) fn held_on(&self, key: &str) -> usize {
        self.run(&format!("EXISTS {key}")).iter().filter(|reply| **reply == Reply::Int(1)).count()
    }

    /// The key's value on each node, without the mark that a queue of waiters adds.
    pub(crate) fn owners(&self, key: &str) -> Vec<Option<Vec<u8>>> {
        let owner = |reply| match reply {
            Reply::Bulk(value) => value.split(|&byte| byte == b'\n').next().map(<[u8]>::to_vec),
            _ => None,
        };
        self.run(&format!("GET {key}")).into_iter().map(owner).collect()
    }

    /// Waits until no node has the key.
    pub(crate) fn until_free(&self, key: &str) {
        eventually("no key is left", || self.held_on(key) == 0);
    }

    /// The shortest remaining TTL of the key on the nodes that have it.
    pub(crate) fn shortest_ttl(&self, key: &str) -> Duration {
        let of = |reply: &Reply| match reply {
            Reply::Int(ms) => u64::try_from(*ms).ok(),
            other => panic!("no PTTL: {other:?}"),
        };
        let all = self.run(&format!("PTTL {key}"));
        Duration::from_millis(all.iter().filter_map(of).min().unwrap_or_default())
    }
}

/// Returns a request that waits for as long as the test lets it.
pub(crate) fn waits(resource: &[u8]) -> LockRequest<'_> {
    LockRequest::new(resource).wait(Wait::Forever)
}

/// A step of the clock, shorter than any timeout of an answer, so that it ends nothing in flight.
const STEP: Duration = Duration::from_millis(500);

/// A step of a driver that the test drives, shorter than any lease.
const FINE_STEP: Duration = Duration::from_millis(20);

/// The real time of a step: longer than a client sleeps by a clock that moves.
const MOMENT: Duration = Duration::from_millis(3);

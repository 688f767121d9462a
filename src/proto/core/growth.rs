//! Tests that work grows in proportion with the limits, counted in steps: four times as many locks,
//! waiters, nodes or resources may take four times as many steps; a loop inside a loop takes
//! sixteen times as many.
//!
//! Steps are counted only in the crate's own tests, so these are not in `tests/core`.

use std::sync::Arc;
use std::time::Duration;

use redbolt_testkit::{Peer, Random};

use super::{Core, MAX_PIPELINE};
use crate::proto::config::{Config, NodeSettings, Settings, WakeStrategy};
use crate::proto::event::{Event, LinkOp, LockState, NodeState};
use crate::proto::names::{LinkId, LockId, MAX_NODES, NodeId};
use crate::proto::request::{AutoExtend, LockRequest, MAX_KEYS, Wait};
use crate::proto::restart_guard::Setup;
use crate::proto::steps::grows_in_proportion;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

/// One core, the command links, and the nodes at their other ends, which answer at once.
struct World {
    core: Core,
    links: Vec<LinkId>,
    peers: Vec<Peer>,
    now: ClockReading,
    granted: usize,
    /// The node that neither reads nor replies.
    hangs: Option<NodeId>,
}

impl World {
    /// Creates a world in which all nodes are ready to vote.
    fn new(nodes: usize) -> Self {
        let settings = Settings {
            nodes: vec![NodeSettings::default(); nodes],
            setup: Setup::IfNew,
            wake: WakeStrategy::Timer,
            ..Settings::default()
        };
        let now = ClockReading {
            boot: Timestamp(1_000 * SECOND),
            wall: Timestamp(1_700_000_000 * SECOND),
        };
        let config = Arc::new(Config::new(settings).unwrap());
        let core = Core::new(config, Random::new(0).entropy());
        let peers = (0..nodes).map(|number| Peer::new(number, time_of_nodes(now))).collect();
        let mut world = Self { core, links: Vec::new(), peers, now, granted: 0, hangs: None };
        world.core.timeout(now);
        world.process();
        let is_ready = |world: &Self| {
            world.core.config.node_ids().all(|node| world.core.node_state(node) == NodeState::Ready)
        };
        for _ in 0..100 {
            if !is_ready(&world) {
                world.advance(ms(1));
            }
        }
        assert!(is_ready(&world));
        world
    }

    /// Opens links, writes what is pending, and reads the answers.
    fn process(&mut self) {
        while let Some(op) = self.core.poll_link() {
            if let LinkOp::Open(link) = op {
                self.links.retain(|known| known.index() != link.index());
                self.links.push(link);
                self.peers[link.node().index()].reconnect();
                self.core.connected(link, self.now);
            }
        }
        for link in self.links.clone() {
            self.speak(link);
        }
        while let Some(event) = self.core.poll_event() {
            self.granted += usize::from(matches!(event, Event::Granted(_)));
        }
    }

    fn speak(&mut self, link: LinkId) {
        let bytes = self.core.transmit(link);
        if bytes.is_empty() || self.hangs == Some(link.node()) {
            return;
        }
        let (written, peer) = (bytes.len(), &mut self.peers[link.node().index()]);
        peer.receive(bytes);
        self.core.transmitted(link, written);
        let replies = peer.answer(time_of_nodes(self.now)).to_vec();
        for part in replies.chunks(4 << 10) {
            self.core.space(link)[..part.len()].copy_from_slice(part);
            self.core.received(link, part.len(), self.now);
        }
    }

    /// Advances the time, with a turn whenever something is due.
    fn advance(&mut self, span: Duration) {
        let end = self.now.boot + span;
        loop {
            let due = self.core.poll_timeout().unwrap_or(end).max(self.now.boot).min(end);
            let passed = due.since(self.now.boot);
            self.now = ClockReading { boot: due, wall: self.now.wall + passed };
            self.core.timeout(self.now);
            self.process();
            if due == end {
                return;
            }
        }
    }

    fn request(&mut self, request: &LockRequest<'_>) -> LockId {
        self.core.acquire(request, self.now).unwrap()
    }

    fn hold(&mut self, count: usize) -> Vec<LockId> {
        let names: Vec<_> = (0..count).map(name).collect();
        let ids =
            names.iter().map(|name| self.request(&LockRequest::new(name).ttl(LONG))).collect();
        self.process();
        assert_eq!(std::mem::take(&mut self.granted), count);
        ids
    }

    /// Returns a lock that holds `job`, and `count` waiters in the queue.
    fn waiters(&mut self, count: usize, wait: Wait) -> (LockId, Vec<LockId>) {
        let holder = self.request(&LockRequest::new(b"job").ttl(LONG).wait(Wait::Forever));
        self.process();
        assert_eq!(std::mem::take(&mut self.granted), 1);
        let waiting =
            (0..count).map(|_| self.request(&LockRequest::new(b"job").wait(wait))).collect();
        (holder, waiting)
    }

    fn is_over(&self, id: LockId) -> bool {
        self.core.state(id) == LockState::Unknown
    }
}

#[test]
fn waiters_that_run_out_of_time_together() {
    grows_in_proportion(512, |count| {
        let mut world = World::new(1);
        let (_, waiting) = world.waiters(count, Wait::UpTo(ms(500)));
        move || {
            world.advance(ms(500));
            assert!(waiting.iter().all(|&id| world.is_over(id)));
        }
    });
}

#[test]
fn waiters_that_are_cancelled_from_either_end() {
    for backwards in [false, true] {
        grows_in_proportion(512, |count| {
            let mut world = World::new(1);
            let (_, mut waiting) = world.waiters(count, Wait::Forever);
            if backwards {
                waiting.reverse();
            }
            move || waiting.iter().for_each(|&id| world.core.release(id, world.now))
        });
    }
}

#[test]
fn waiters_that_have_their_turn() {
    grows_in_proportion(256, |count| {
        let mut world = World::new(1);
        let (holder, waiting) = world.waiters(count, Wait::Forever);
        move || {
            for id in std::iter::once(holder).chain(waiting) {
                // The turn may pass to another client for a moment.
                while world.core.state(id) != LockState::Held {
                    world.advance(ms(1));
                }
                world.core.release(id, world.now);
                world.process();
            }
        }
    });
}

#[test]
fn waiters_for_one_resource_each() {
    grows_in_proportion(512, |count| {
        let mut world = World::new(1);
        let names: Vec<_> = (0..count).map(name).collect();
        names
            .iter()
            .for_each(|name| world.peers[0].is_held_by_others(name, time_of_nodes(world.now)));
        for name in &names {
            world.request(&LockRequest::new(name).wait(Wait::Forever));
        }
        world.process();
        move || world.advance(ms(300))
    });
}

#[test]
fn locks_from_ask_to_release() {
    grows_in_proportion(512, |count| {
        let mut world = World::new(1);
        move || {
            let held = world.hold(count);
            held.iter().for_each(|&id| world.core.release(id, world.now));
            world.process();
            assert!(held.iter().all(|&id| world.is_over(id)) && !world.core.has_pending_releases());
        }
    });
}

/// Each lease ends at another moment, with little work at each.
#[test]
fn leases_that_end_one_after_the_other() {
    grows_in_proportion(1024, |count| {
        let mut world = World::new(1);
        for at in 0..count {
            world.request(&LockRequest::new(&name(at)).ttl(SHORT));
            world.process();
            world.now.boot.0 += 100_000;
            world.now.wall.0 += 100_000;
        }
        move || world.advance(SHORT)
    });
}

#[test]
fn locks_that_are_auto_extended() {
    grows_in_proportion(256, |count| {
        let mut world = World::new(1);
        for at in 0..count {
            let auto_extended = AutoExtend::until_released();
            world.request(&LockRequest::new(&name(at)).ttl(SHORT).auto_extend(auto_extended));
            world.process();
            world.advance(SHORT / 3 / u32::try_from(count).unwrap());
        }
        move || world.advance(2 * SHORT)
    });
}

/// It has something to catch up on each time.
#[test]
fn a_node_that_hangs_repeatedly_while_locks_are_held() {
    grows_in_proportion(256, |count| {
        let mut world = World::new(3);
        let held = world.hold(count);
        world.peers[1].is_held_by_others(b"job", time_of_nodes(world.now));
        move || {
            for id in held {
                world.hangs = Some(NodeId(2));
                world.core.release(id, world.now);
                let refused = world.request(&LockRequest::new(b"job"));
                world.process();
                world.advance(ms(5));
                assert!(world.is_over(refused) && world.core.common.suspected.contains(NodeId(2)));
                world.hangs = None;
                // The node's round trip stays as short as it was.
                world.core.resume(world.now.boot);
                world.process();
                assert!(!world.core.common.suspected.contains(NodeId(2)));
            }
        }
    });
}

/// Requests are in flight, up to a full pipeline, and locks are held.
#[test]
fn connections_that_are_lost_and_come_back() {
    grows_in_proportion(MAX_PIPELINE / 16, |count| {
        let mut world = World::new(3);
        let held = world.hold(count);
        let names: Vec<_> = (count..2 * count).map(name).collect();
        let waits =
            names.iter().map(|name| world.request(&LockRequest::new(name).wait(Wait::Forever)));
        let waits: Vec<_> = waits.collect();
        for link in world.links.clone() {
            let written = world.core.transmit(link).len();
            world.core.transmitted(link, written);
        }
        move || {
            for link in world.links.clone() {
                world.core.disconnected(link, Cause::ConnectionReset, world.now);
            }
            world.advance(ms(100));
            let held = held.iter().filter(|&&id| world.core.state(id) == LockState::Held);
            assert_eq!(held.count(), count);
            waits.iter().for_each(|&id| world.core.release(id, world.now));
            world.core.release_all(world.now);
            world.advance(ms(100));
        }
    });
}

#[test]
fn locks_that_are_inspected_and_detached() {
    grows_in_proportion(256, |count| {
        let mut world = World::new(1);
        let held = world.hold(count);
        move || {
            for at in 0..count {
                world.core.inspect(&name(at), world.now).unwrap();
                assert!(world.core.held_on(&name(at), world.now).is_some());
            }
            world.process();
            for id in held {
                assert!(!world.core.awaits_answers(id));
                assert!(world.core.detach(id, world.now).is_some());
            }
        }
    });
}

#[test]
fn releases_that_are_confirmed_one_by_one() {
    grows_in_proportion(256, |count| {
        let mut world = World::new(1);
        let held = world.hold(count);
        move || {
            for id in held {
                world.core.release(id, world.now);
            }
            let link = world.links[0];
            let bytes = world.core.transmit(link).to_vec();
            world.core.transmitted(link, bytes.len());
            world.peers[0].receive(&bytes);
            let replies = world.peers[0].answer(time_of_nodes(world.now)).to_vec();
            for part in replies.chunks(4) {
                assert!(world.core.has_pending_releases());
                world.core.space(link)[..part.len()].copy_from_slice(part);
                world.core.received(link, part.len(), world.now);
            }
            assert!(!world.core.has_pending_releases());
        }
    });
}

#[test]
fn nodes_of_a_set() {
    grows_in_proportion(MAX_NODES / 4, |nodes| {
        let mut world = World::new(nodes);
        move || {
            let held = world.hold(8);
            held.iter().for_each(|&id| world.core.extend(id, SHORT, world.now).unwrap());
            world.process();
            held.iter().for_each(|&id| world.core.release(id, world.now));
            world.process();
        }
    });
}

#[test]
fn resources_of_a_lock() {
    grows_in_proportion(MAX_KEYS / 4, |keys| {
        let mut world = World::new(1);
        let names: Vec<_> = (0..keys).map(name).collect();
        move || {
            let request = names[1..]
                .iter()
                .fold(LockRequest::new(&names[0]), |request, name| request.and(name));
            let request = request.wait(Wait::Forever);
            let waiting: Vec<_> = (0..8).map(|_| world.request(&request)).collect();
            world.process();
            for id in waiting {
                while world.core.state(id) != LockState::Held {
                    world.advance(ms(1));
                }
                world.core.release(id, world.now);
                world.process();
            }
        }
    });
}

fn name(at: usize) -> Vec<u8> {
    format!("resource {at}").into_bytes()
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

fn time_of_nodes(now: ClockReading) -> redbolt_node::model::ClockReading {
    redbolt_node::model::ClockReading::from_micros(now.wall.0 / 1_000)
}

const SECOND: u64 = 1_000_000_000;
const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);

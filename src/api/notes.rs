//! Notes for a log, made from events when an API returns them.
//!
//! Invariant: a state of a node is noted once, however often it is reported.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::Config;
use super::lock_lost::LockName;
use super::log::{Log, Note};
use super::report::{NodeStatus, RefusalReport, explain};
use crate::net::Address;
use crate::proto::{Cause, Core, Event, LockId, NodeId, NodeState, PushState};

pub(super) struct Notes {
    log: Arc<dyn Log>,
    nodes: Vec<NotedNode>,
    /// The names of the locks that have not ended.
    names: HashMap<LockId, LockName>,
}

/// The last notes of a node. A node that is down is retried again and again, which is not noted
/// again.
#[derive(Clone, Default)]
struct NotedNode {
    state: Option<NodeState>,
    reconnects: u64,
    push: Option<Cause>,
    skews: u64,
}

impl Notes {
    /// Returns `None` if the configuration has no log.
    pub(super) fn new(config: &Config) -> Option<Box<Self>> {
        let log = config.log().0.clone()?;
        let nodes = vec![NotedNode::default(); config.node_count()];
        Some(Box::new(Self { log, nodes, names: HashMap::new() }))
    }

    /// Stores the name of a lock that begins.
    pub(super) fn name<'r>(&mut self, lock: LockId, resources: impl Iterator<Item = &'r [u8]>) {
        self.names.insert(lock, LockName::new(resources));
    }

    /// Forgets a lock that leaves this process.
    pub(super) fn forget(&mut self, lock: LockId) {
        self.names.remove(&lock);
    }

    /// Notes an event that is about to be returned. The states of the nodes are noted first: they
    /// explain refusals, and the caller may not request another event. Marked cold to keep it out
    /// of the paths of drivers without a log.
    #[cold]
    pub(super) fn note(&mut self, addresses: &[Address], core: &Core, event: Option<&Event>) {
        for node in core.config().node_ids() {
            self.note_clock(addresses, core, node);
            self.note_node(addresses, core, node);
            self.note_push(addresses, core, node);
        }
        if let Some(event) = event {
            self.note_lock(addresses, core, *event);
        }
    }

    fn note_lock(&mut self, addresses: &[Address], core: &Core, event: Event) {
        let named = |lock: &LockId| self.names.get(lock).map_or("", LockName::as_str);
        match event {
            Event::NotExtended(lock, refusal) | Event::AutoExtendFailed(lock, refusal) => {
                let report = &RefusalReport::new(addresses, core, refusal);
                self.log.note(&Note::NotExtended { lock, name: named(&lock), report });
            }
            Event::Refused(lock, refusal) => {
                // The name is removed before the note because the log may panic.
                let name = self.names.remove(&lock).unwrap_or_default();
                let report = &RefusalReport::new(addresses, core, refusal);
                self.log.note(&Note::Refused { lock, name: name.as_str(), report });
            }
            Event::Extended(lock) | Event::AutoExtended(lock) => {
                self.log.note(&Note::Extended { lock, name: named(&lock) });
            }
            Event::Granted(lock) => self.log.note(&Note::Granted { lock, name: named(&lock) }),
            Event::Lost(lock, cause) => {
                let name = self.names.remove(&lock).unwrap_or_default();
                self.log.note(&Note::Lost { lock, name: name.as_str(), cause });
            }
            Event::Released(lock, confirmed) => {
                let name = self.names.remove(&lock).unwrap_or_default();
                self.log.note(&Note::Released { lock, name: name.as_str(), confirmed });
            }
            _ => {}
        }
    }

    fn note_node(&mut self, addresses: &[Address], core: &Core, id: NodeId) {
        let (state, noted) = (core.node_state(id), &mut self.nodes[id.index()]);
        let reconnects = core.metrics().node(id).reconnects();
        let is_news = state == NodeState::Ready && noted.reconnects != reconnects;
        if state == NodeState::Connecting || noted.state == Some(state) && !is_news {
            return;
        }
        // The state is recorded before the note because the log may panic.
        (noted.state, noted.reconnects) = (Some(state), reconnects);
        let node = &NodeStatus::new(addresses, core, id);
        self.log.note(&match state {
            NodeState::Down(Cause::Quarantined) => Note::NodeQuarantined { node },
            NodeState::Down(cause) => Note::NodeDown { node, cause },
            NodeState::Suspected => Note::NodeSuspected { node },
            NodeState::Connecting | NodeState::Ready => Note::NodeReady { node, reconnects },
        });
    }

    /// Notes a failed push link. Retries are not noted, and neither are links that no waiter needs.
    fn note_push(&mut self, addresses: &[Address], core: &Core, id: NodeId) {
        let noted = &mut self.nodes[id.index()].push;
        match core.push_state(id) {
            PushState::Active => *noted = None,
            PushState::Unavailable(cause) if *noted != Some(cause) => {
                *noted = Some(cause);
                let node = &NodeStatus::new(addresses, core, id);
                self.log.note(&Note::PushUnavailable { node, cause });
            }
            _ => {}
        }
    }

    /// Notes a clock skew. A request that failed only because of our clock is repeated and makes no
    /// event.
    fn note_clock(&mut self, addresses: &[Address], core: &Core, id: NodeId) {
        let skews = core.metrics().node(id).fails.of(Cause::ClockSkew);
        if std::mem::replace(&mut self.nodes[id.index()].skews, skews) != skews {
            let words = &explain(core, id, Cause::ClockSkew);
            let node = &NodeStatus::new(addresses, core, id);
            self.log.note(&Note::ClockSkew { node, words });
        }
    }
}

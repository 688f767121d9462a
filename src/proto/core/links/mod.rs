//! A node's command link: opening, the handshake, refusing the node as a voter, and losing the connection.
//!
//! Apart from whoever asks something of a node, so that they need not know how it is reached. What one node's
//! conversation consists of is in `node`, the steps of its link in `command_link`, and nodes that hang in `suspect`.
//! Not here: the restart guard, which lets a node vote, and push links, which have folders of their own.

mod capability;
mod command_link;
mod handshake;
mod inbox;
mod node;
mod pace;
mod pipeline;
mod suspect;

use self::node::Identity;
use super::Core;
use crate::proto::event::LinkOp;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LinkId, NodeId};
use crate::proto::restart_guard::{RestartGuard, RunId};
use crate::proto::time::{ClockReading, Timestamp, saturating_nanos};
use crate::proto::vote::{Cause, Vote};

pub(super) use self::capability::{Ability, Version};
pub(super) use self::command_link::Link;
pub(super) use self::handshake::{Handshake, Mistyped, Step};
pub(super) use self::inbox::Inbox;
pub(super) use self::node::{FEW, Node, Pending};
pub(super) use self::pipeline::{Due, Pipeline};
pub(super) use self::suspect::FIRST_CONTACT;

impl Core {
    /// Opens the links of all nodes that are down, ahead of their backoff.
    pub fn open_all(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        for node in self.config.node_ids() {
            if self.node(node).link.is_down() {
                self.open(node, now);
            }
        }
    }

    /// The link's socket is connected.
    pub fn connected(&mut self, link: LinkId, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            return self.push_connected(id, now);
        }
        let Link::Opening { until } = self.node(id).link.state() else { return };
        self.metrics.of(id).connections += 1;
        let opened = Timestamp(
            until.0.saturating_sub(saturating_nanos(self.config.settings.connect_timeout)),
        );
        self.node_mut(id).pace.connected(opened, now.boot);
        // Behind an ask, an undo that is still owed would come too late; before it, a kill must be
        // known to be right.
        let fused = self.node(id).proven && !self.claims.is_burdened(id) && !self.awaits_set_up();
        let settings = self.config.node(id);
        let node = &mut self.nodes[id.index()];
        node.heard = now.boot;
        node.restart_guard.is_asked_for(now.boot);
        node.link.connected(until, fused);
        for step in Step::needed(settings, &self.config.settings) {
            node.pipeline.push(Pending::Handshake(step), now.boot, |out| {
                step.encode(out, settings, &self.config.settings);
            });
        }
        if fused {
            self.send_queued(id, now);
        }
    }

    /// The link could not be opened, or its connection ended.
    pub fn disconnected(&mut self, link: LinkId, cause: Cause, now: ClockReading) {
        let now = self.clamp(now);
        match link.is_push() {
            true => self.push_severed(link.node(), cause, now),
            false => self.sever(link.node(), cause, now),
        }
        self.check();
    }

    /// Keeps words about a cause that the driver knows more of.
    pub fn explain(&mut self, link: LinkId, cause: Cause, words: String) {
        if link.is_push() {
            return;
        }
        self.node_mut(link.node()).detail = Some((cause, words));
    }

    /// Whether an answer is due on this link, so that a read may bring it without being told of it.
    #[must_use]
    #[inline]
    pub fn is_awaited(&self, link: LinkId) -> bool {
        !link.is_push() && self.node(link.node()).pipeline.oldest().is_some()
    }

    /// Whether this link takes requests soon: it is being opened, or is opened now, ahead of its
    /// backoff, because somebody has a use for it. What only an operator can mend is left to the
    /// backoff.
    pub(super) fn reopen(&mut self, id: NodeId, now: ClockReading) -> bool {
        let link = &self.node(id).link;
        if link.is_down() && link.may_open(now.boot) && !link.is_hopeless() {
            self.open(id, now);
        }
        self.node(id).will_take_asks()
    }

    pub(super) fn open(&mut self, id: NodeId, now: ClockReading) {
        if mutant!(ReconnectNever) && self.node(id).link.was_tried() {
            return;
        }
        let until = now.boot + self.config.settings.connect_timeout;
        self.node_mut(id).link.opening(now.boot, until);
        self.changed.insert(id);
        self.ops.push_back(LinkOp::Open(LinkId::command(id)));
        self.arm(until);
    }

    /// Closes a link from our side.
    pub(super) fn close(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.ops.push_back(LinkOp::Close(LinkId::command(id)));
        self.sever(id, cause, now);
    }

    /// The connection is over: everything under way on it is answered by that.
    fn sever(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let cap = self.node(id).link.backoff(self.config.settings.reconnect_backoff);
        let retry_at = now.boot + cap / 2 + self.entropy.below(cap / 2);
        let node = &mut self.nodes[id.index()];
        // A server that turns us away says why before it closes.
        if !node.link.lost(node.handshake.refused.unwrap_or(cause), retry_at) {
            return;
        }
        let cause = node.link.cause();
        self.metrics.of(id).link_failed(cause);
        let closed = matches!(cause, Cause::ConnectionClosed | Cause::ConnectionReset);
        let first = Step::needed(self.config.node(id), &self.config.settings).next();
        let oldest = node.pipeline.oldest().map(|due| due.pending);
        if closed && first.is_some_and(|first| oldest == Some(Pending::Handshake(first))) {
            node.detail = Some((cause, UNANSWERED.to_owned()));
        }
        let pipeline = std::mem::replace(&mut node.pipeline, Pipeline::new());
        let identity = node.identity;
        node.reset_connection();
        self.changed.insert(id);
        self.arm(retry_at);
        let ghosts = self.claims.ghosts(id);
        // What waits for the link waited in vain; what was under way may wait for the next.
        self.fail_queued(id, now);
        self.unanswered(id, pipeline, now);
        if ghosts == 0 {
            self.node_mut(id).ghost_connection = identity;
        } else if self.claims.ghosts(id) > ghosts {
            self.node_mut(id).ghost_connection = None;
        }
        self.settle_releases(now);
        self.set_up(now);
        self.reports_lost(id, now);
    }

    fn unanswered(&mut self, node: NodeId, pipeline: Pipeline<Pending>, now: ClockReading) {
        let cause = self.node(node).link.cause();
        for (pending, untouched) in pipeline.into_requests() {
            match pending {
                Pending::Ask { claim, .. } => self.ask_unanswered(node, claim, untouched, now),
                Pending::Extend { claim, round, .. } => {
                    self.extension_unanswered(node, claim, round, now);
                }
                Pending::Undo { claim, .. } => {
                    if let Some(claim) = self.claims.find_mut(claim) {
                        claim.undo_over(node);
                    }
                    self.undo_settled(node, claim, Vote::Fail(cause), now);
                }
                // Its ask has run.
                Pending::Check { claim, .. } => self.vote_failed(node, claim, now),
                Pending::WriteBack { claim, round, .. } => {
                    self.write_back_failed(node, claim, round, cause, now);
                }
                Pending::ForceUnlock(view)
                | Pending::ViewTtl(view)
                | Pending::ViewType(view)
                | Pending::ViewValue(view) => {
                    self.view_failed(view, node, cause);
                }
                Pending::DropOthers
                | Pending::Enrol
                | Pending::Handshake(_)
                | Pending::Kill
                | Pending::Remaining { .. }
                | Pending::Track { .. } => {}
            }
        }
    }

    fn ask_unanswered(&mut self, node: NodeId, id: ClaimId, untouched: bool, now: ClockReading) {
        if untouched {
            self.owes_no_more(node, id);
        }
        if let Some(claim) = self.claims.find_mut(id) {
            claim.connection_lost(node, untouched);
            if mutant!(AskSentAgain) && claim.lock().is_some() {
                return claim.queue(node);
            }
        }
        self.vote_failed(node, id, now);
    }

    fn vote_failed(&mut self, node: NodeId, claim: ClaimId, now: ClockReading) {
        let cause = self.node(node).link.cause();
        if let Some(lock) = self.cast(node, claim, Vote::Fail(cause)) {
            self.metrics.of(node).voted(Vote::Fail(cause));
            self.decide(lock, now);
        }
    }

    /// What waited for this link.
    fn fail_queued(&mut self, node: NodeId, now: ClockReading) {
        self.fail_queued_asks(node, now);
        self.fail_queued_extensions(node, now);
        self.fail_queued_views(node);
    }

    pub(super) fn fail_queued_asks(&mut self, node: NodeId, now: ClockReading) {
        for id in self.claim_ids() {
            if self.claims.find_mut(id).is_some_and(|claim| claim.unqueue(node)) {
                self.vote_failed(node, id, now);
            }
        }
    }

    pub(super) fn handshake_answered(&mut self, id: NodeId, step: Step, now: ClockReading) {
        if step != Step::last(&self.config.settings) {
            return;
        }
        let handshake = std::mem::take(&mut self.node_mut(id).handshake);
        match self.node(id).link.state() {
            Link::Handshake { .. } => self.handshake_done(id, handshake, now),
            Link::Quarantined { .. } => self.looked(id, handshake, now),
            // One whose time is over has been refused, and what it granted is being undone.
            _ => {}
        }
    }

    /// A node that did not vote has been looked at again.
    fn looked(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        match handshake.refused {
            Some(cause) => self.retire(id, cause, now),
            None => self.let_in(id, handshake, now),
        }
    }

    /// Nothing speaks against this node but what may change while the connection lasts.
    fn let_in(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let writes = handshake.capabilities.writes;
        if writes != Ability::Unknown {
            self.node_mut(id).capabilities.writes = writes;
        }
        match self.node(id).capabilities.writes {
            Ability::Refused(cause) => {
                self.suspend(id, cause, now);
                self.set_up(now);
            }
            _ if self.config.settings.restart_guard == RestartGuard::Off => self.ready(id, now),
            _ => self.restart_guard_read(id, handshake, now),
        }
    }

    fn handshake_done(&mut self, id: NodeId, handshake: Handshake, now: ClockReading) {
        let twin = self.twin(id, &handshake);
        self.node_mut(id).capabilities.learn(handshake.capabilities);
        self.node_mut(id).wrong_server = handshake.wrong_server || twin.is_some();
        if let Some(twin) = twin {
            // It may have moved to this address: if it is not there, this node is believed next time.
            let handshake_done =
                matches!(self.node(twin).link.state(), Link::Ready | Link::Quarantined { .. });
            if !handshake_done {
                self.node_mut(twin).run_id = None;
            }
            let words = format!("it is node {}", twin.index() + 1);
            self.node_mut(id).detail = Some((Cause::SameServer, words));
        } else if let Some(run_id) = handshake.run_id {
            self.lay_old_connection(id, run_id, now);
            let node = self.node_mut(id);
            if node.run_id.is_some_and(|before| before != run_id) {
                node.capabilities.push = Ability::Unknown;
                node.push.forget_failures(now.boot);
            }
            node.run_id = Some(run_id);
            node.identity = handshake.client_id.map(|client_id| Identity { run_id, client_id });
        }
        match handshake.refused.or_else(|| twin.map(|_| Cause::SameServer)) {
            Some(cause) => {
                if cause.is_configuration() {
                    let must_be_proven = self.config.node(id).must_be_proven();
                    self.node_mut(id).proven = !must_be_proven && cause != Cause::SameServer;
                }
                self.retire(id, cause, now);
            }
            None => self.let_in(id, handshake, now),
        }
    }

    pub(super) fn ready(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node_mut(id);
        node.link.ready();
        node.handshake_done();
        self.changed.insert(id);
        self.send_owed(id, now);
        self.send_queued(id, now);
        self.send_queued_extensions(id, now);
        self.send_queued_views(id, now);
        self.track(id, now);
    }

    /// Another node that turned out to be the same server process.
    fn twin(&self, id: NodeId, handshake: &Handshake) -> Option<NodeId> {
        let run_id = handshake.run_id?;
        self.config.node_ids().find(|&other| other != id && self.node(other).run_id == Some(run_id))
    }

    /// Bytes in a dead connection may run after an undo on this one. Where the server is certainly
    /// the same process, it is told to drop that connection first; ids of another process would be
    /// those of strangers.
    fn lay_old_connection(&mut self, id: NodeId, run_id: RunId, now: ClockReading) {
        let ghost_connection = self.claims.ghosts(id) > 0;
        let node = &mut self.nodes[id.index()];
        let same = |old: &Identity| old.run_id == run_id;
        if let Some(old) = node.ghost_connection.filter(|old| ghost_connection && same(old)) {
            node.pipeline.push(Pending::Kill, now.boot, |out| {
                let kill = crate::resp::command(out, 4).arg(b"CLIENT").arg(b"KILL").arg(b"ID");
                let _ = kill.int(old.client_id);
            });
        }
    }

    /// The node is no voter. What it may have granted on this connection is undone, what it owes is
    /// sent once more, and then the link is closed.
    pub(super) fn retire(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let until = now.boot + self.config.settings.response_timeout;
        let node = self.node_mut(id);
        node.link.leaving(cause, until);
        let due: Vec<_> = node.pipeline.pending().copied().collect();
        self.changed.insert(id);
        self.arm(until);
        if self.node(id).wrong_server {
            self.disbelieve_undos(id, &due, now);
        }
        for pending in due {
            match pending {
                Pending::Ask { claim, .. } | Pending::Check { claim, .. } => {
                    self.disown(id, claim, now);
                }
                Pending::WriteBack { claim, round, .. } => {
                    self.write_back_failed(id, claim, round, cause, now);
                }
                Pending::Extend { claim, round, .. } => {
                    self.extension_vote(id, claim, round, Vote::Fail(cause), now);
                }
                _ => {}
            }
        }
        self.fail_queued(id, now);
        self.send_owed(id, now);
        self.set_up(now);
        self.leave_if_idle(id, now);
    }

    /// An ask that is under way to a node which is no voter. It is undone on this connection even where
    /// that is in the wrong database, or leads to another node's server, for so was the ask.
    fn disown(&mut self, node: NodeId, id: ClaimId, now: ClockReading) {
        if !self.withdraw(node, id) {
            self.owe(node, id);
            self.push_undo(node, id, now);
        }
        self.vote_failed(node, id, now);
    }

    /// Closes a link that is being left once nothing is due on it.
    pub(super) fn leave_if_idle(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node(id);
        if node.link.is_leaving() && node.pipeline.len() == 0 {
            self.close(id, node.link.cause(), now);
        }
    }

    pub(super) fn node_due(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node(id);
        match node.link.state() {
            Link::Down { retry_at } if now.boot >= retry_at => return self.open(id, now),
            Link::Down { retry_at } => return self.arm(retry_at),
            Link::Opening { until } if now.boot >= until => {
                return self.close(id, Cause::ConnectTimeout, now);
            }
            // What was asked behind the handshake may run yet, so its undo follows it.
            Link::Handshake { until, .. } if now.boot >= until => {
                let span = self.config.settings.connect_timeout;
                let words = format!("connected, but no answer to the handshake in {span:?}");
                self.node_mut(id).detail = Some((Cause::NoAnswer, words));
                self.metrics.of(id).timeouts += 1;
                // Nobody knows where it leads.
                self.node_mut(id).wrong_server = true;
                return self.retire(id, Cause::NoAnswer, now);
            }
            Link::Leaving { until } if now.boot >= until => {
                return self.close(id, Cause::NoAnswer, now);
            }
            Link::Opening { until } | Link::Handshake { until, .. } | Link::Leaving { until } => {
                self.arm(until);
            }
            Link::Quarantined { until } => self.quarantine_due(id, until, now),
            Link::Ready => {}
        }
        self.suspect_if_silent(id, now);
        match self.node(id).dead_at(self.config.settings.dead_peer_timeout) {
            Some(dead_at) if now.boot >= dead_at => {
                return self.close(id, Cause::DeadPeer, now);
            }
            Some(dead_at) => self.arm(dead_at),
            None => {}
        }
        if self.node(id).debt.again_at() != Timestamp::NEVER {
            self.owed_due(id, now);
        }
    }
}

/// Why a server may end a connection, in words.
const UNANSWERED: &str = "before it answered anything; a port for TLS only does that";

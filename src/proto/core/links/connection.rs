//! The connection of one node, from opening its command link to losing it.
//!
//! A transition here changes this node only. Its consequences for claims, locks and other nodes are
//! effects.

use std::mem;

use super::HANGS;
use super::capability::Version;
use super::command_link::Link;
use super::handshake::{Handshake, Mistyped, Step};
use super::node::{Node, Pending};
use super::pipeline::{Due, Pipeline};
use crate::proto::core::{Env, effects::NodeEffect};
use crate::proto::names::{LinkId, NodeId};
use crate::proto::restart_guard::{RunId, Setup};
use crate::proto::time::Timestamp;
use crate::proto::{event::LinkOp, mutants::mutant, vote::Cause};
use crate::resp::{Token, Violation, command};

/// The opening of the link.
impl Node {
    pub(crate) fn open_if_down(&mut self, env: &mut Env<'_>) {
        if self.link.is_down() {
            self.open(env);
        }
    }

    /// Opens the command link ahead of its backoff if it is down. Returns whether the link will
    /// take requests soon.
    pub(in crate::proto::core) fn reopen(&mut self, env: &mut Env<'_>) -> bool {
        let link = &self.link;
        // A fault that only an operator can fix is left to the backoff.
        if link.is_down() && link.may_open(env.now.boot) && !link.is_hopeless() {
            self.open(env);
        }
        self.will_take_asks()
    }

    pub(in crate::proto::core) fn open(&mut self, env: &mut Env<'_>) {
        if mutant!(ReconnectNever) && self.link.was_tried() {
            return;
        }
        let now = env.now.boot;
        let until = now + env.settings().connect_timeout;
        self.link.start_opening(now, until);
        env.report_state(self.id());
        env.open_link(LinkId::command(self.id()));
        env.arm(until);
    }

    /// Starts the handshake on a connected socket. `is_burdened` if the node may have a key whose
    /// undo must come before new requests. Returns whether requests may follow before the handshake
    /// is answered.
    pub(in crate::proto::core) fn begin_connection(
        &mut self,
        is_burdened: bool,
        env: &mut Env<'_>,
    ) -> bool {
        let Link::Opening { since, until } = self.link.state() else { return false };
        let (now, settings) = (env.now, env.settings());
        env.metrics.of(self.id()).connections += 1;
        self.pace.record_connection(since, now.boot);
        // Behind a request, an undo that is still owed would come too late, and a kill before it
        // must be known to be right. A node of a new set has no restart guard until it is set up.
        let is_set_up = settings.setup != Setup::IfNew || env.has_set_up;
        let fused = self.server.is_proven() && !is_burdened && is_set_up;
        self.record_bytes(now.boot);
        self.start_handshake(now);
        self.link.start_handshake(until, fused, now);
        self.send_steps(Step::needed(env.config.node(self.id()), settings), env);
        fused
    }

    pub(in crate::proto::core) fn send_steps(
        &mut self,
        steps: impl Iterator<Item = Step>,
        env: &Env<'_>,
    ) {
        let (node, settings) = (env.config.node(self.id()), env.settings());
        for step in steps {
            self.pipeline.push(Pending::Handshake(step), env.now.boot, |out| {
                step.encode(out, node, settings);
            });
        }
    }
}

/// The handshake.
impl Node {
    /// Takes the answer to one step, and keeps the text of a refusal. Returns the results of all
    /// steps if this was the last one.
    pub(super) fn answer_step(
        &mut self,
        step: Step,
        token: Token<'_>,
        env: &Env<'_>,
    ) -> Result<Option<Handshake>, Mistyped> {
        let (node, settings) = (env.config.node(self.id()), env.settings());
        let told = self.handshake().answer(step, token, node, settings)?;
        let refused = self.handshake().refused();
        match token {
            // The text belongs to the first refusal, which stands.
            Token::Error(text) if told.is_some() && told == refused && step != Step::Auth => {
                self.note_of(refused, text);
            }
            _ if refused == Some(Cause::TooOld) => {
                if let Some(version) = self.handshake().capabilities().version() {
                    let words = format!("{version}, {} is needed", Version::OLDEST);
                    self.explain(Cause::TooOld, words);
                }
            }
            _ => {}
        }
        let is_last = step == Step::last(settings);
        Ok(is_last.then(|| mem::take(self.handshake())))
    }

    /// Applies a complete handshake. `twin` is another node with the same server process;
    /// `has_ghosts` if requests may still run out of a dead connection. Returns why the node must
    /// not vote, if so.
    pub(super) fn complete_handshake(
        &mut self,
        handshake: &Handshake,
        twin: Option<NodeId>,
        has_ghosts: bool,
        env: &Env<'_>,
    ) -> Option<Cause> {
        self.capabilities.learn(handshake.capabilities());
        self.server.set_wrong(handshake.is_wrong_server() || twin.is_some());
        self.server.set_replication_id(handshake.replication_id());
        self.server.set_replicas(handshake.replicas());
        if let Some(twin) = twin {
            self.explain(Cause::SameServer, format!("it is node {}", twin.index() + 1));
        } else if let Some(run_id) = handshake.run_id() {
            if has_ghosts {
                self.kill_old_connection(run_id, env.now.boot);
            }
            if self.server.identify(run_id, handshake.client_id()) {
                self.push.forget_failures(env.now.boot);
            }
        }
        let refused = handshake.refused().or_else(|| twin.map(|_| Cause::SameServer));
        if let Some(cause) = refused.filter(|cause| cause.is_configuration()) {
            let must_be_proven = env.config.node(self.id()).must_be_proven();
            self.server.set_proven(!must_be_proven && cause != Cause::SameServer);
        }
        refused
    }

    /// Applies a later read of a node that did not vote. Returns why it must not vote, if so.
    pub(super) fn complete_read(&mut self, handshake: &Handshake) -> Option<Cause> {
        if let Some(replication_id) = handshake.replication_id() {
            self.server.set_replication_id(Some(replication_id));
        }
        handshake.refused()
    }

    /// Records the round trip of an answer, and closes a link that is being left after its last
    /// answer.
    #[inline]
    pub(in crate::proto::core) fn record_answer(&mut self, due: &Due<Pending>, env: &mut Env<'_>) {
        // The steps of a handshake wait for one another, so they show no round trip.
        if !matches!(due.pending, Pending::Handshake(_)) {
            let now = env.now.boot;
            self.pace.answered(due.since, now);
            env.metrics.answered(self.id(), due.since, now);
        }
        self.leave_if_idle(env);
    }

    /// Makes the server drop the dead connection, out of which bytes may run after an undo on this
    /// one.
    fn kill_old_connection(&mut self, run_id: RunId, now: Timestamp) {
        // Only in the same process: in another one the id belongs to another client.
        if let Some(dead) = self.server.ghosts_in(run_id) {
            self.pipeline.push(Pending::Kill, now, |out| {
                let kill = command(out, 4).arg(b"CLIENT").arg(b"KILL").arg(b"ID");
                let _ = kill.int(dead);
            });
        }
    }

    pub(in crate::proto::core) fn mark_ready(&mut self, env: &mut Env<'_>) {
        self.link.mark_ready();
        self.finish_handshake();
        env.report_state(self.id());
    }
}

/// The end of the link.
impl Node {
    /// Refuses the node as a voter. Any grants on this connection are undone, the undos that it
    /// owes are sent again, and then the link is closed.
    pub(in crate::proto::core) fn retire(&mut self, cause: Cause, env: &mut Env<'_>) {
        let until = env.now.boot + env.settings().response_timeout;
        self.link.start_leaving(cause, until);
        env.report_state(self.id());
        env.arm(until);
        env.effects.of_node(self.id(), NodeEffect::Retired(cause));
        env.effects.of_node(self.id(), NodeEffect::LeaveIfIdle);
    }

    pub(in crate::proto::core) fn close(&self, cause: Cause, env: &mut Env<'_>) {
        env.ops.push_back(LinkOp::Close(LinkId::command(self.id())));
        env.effects.of_node(self.id(), NodeEffect::Sever(cause));
    }

    /// Closes the command link after bytes that violate the protocol.
    pub(in crate::proto::core) fn close_after(
        &mut self,
        violation: &Violation,
        unread: &[u8],
        env: &mut Env<'_>,
    ) {
        if self.is_tls_alert(unread) {
            return self.close(Cause::TlsPort, env);
        }
        self.explain(Cause::Violation, violation.to_string());
        self.close(Cause::Violation, env);
    }

    /// Closes a link that is being left once it has no pending answer.
    #[inline]
    pub(in crate::proto::core) fn leave_if_idle(&self, env: &mut Env<'_>) {
        if self.link.is_leaving() && self.pipeline.len() == 0 {
            self.close(self.link.cause(), env);
        }
    }

    /// Ends the connection and forgets what belonged to it. Everything in flight is answered by
    /// that. `ghosts` requests may run out of earlier connections.
    pub(in crate::proto::core) fn sever(&mut self, cause: Cause, ghosts: usize, env: &mut Env<'_>) {
        let cap = self.link.backoff(env.settings().reconnect_backoff);
        let retry_at = env.now.boot + cap / 2 + env.random_below(cap / 2);
        // A server that refuses a client reports why before it closes.
        let cause = self.handshake().refused().unwrap_or(cause);
        if !self.link.mark_lost(cause, retry_at) {
            return;
        }
        let (id, cause) = (self.id(), self.link.cause());
        env.metrics.of(id).link_failed(cause);
        self.explain_early_end(cause, env);
        let pipeline = mem::replace(&mut self.pipeline, Pipeline::new());
        let dead = self.reset_connection();
        env.report_state(id);
        env.arm(retry_at);
        // A later handshake may kill this connection only if no request can run out of another one.
        if ghosts == 0 {
            self.server.set_ghosts_in(dead);
        }
        // Queued commands fail. Commands in flight may be sent again on the next connection.
        env.effects.of_node(id, NodeEffect::FailQueued);
        for (pending, untouched) in pipeline.into_requests() {
            env.effects.of_node(id, NodeEffect::Unanswered(pending, untouched));
        }
        self.fail_unproven(env);
        env.effects.of_node(id, NodeEffect::Severed(ghosts));
    }

    /// Explains a connection that ended before its first answer.
    fn explain_early_end(&mut self, cause: Cause, env: &Env<'_>) {
        let closed = matches!(cause, Cause::ConnectionClosed | Cause::ConnectionReset);
        let first = Step::needed(env.config.node(self.id()), env.settings()).next();
        let oldest = self.pipeline.oldest().map(|due| due.pending);
        let is_first = first.is_some_and(|first| oldest == Some(Pending::Handshake(first)));
        // The owner of the sockets may have a better explanation.
        if closed && is_first && self.words(cause).is_none() {
            self.explain(cause, UNANSWERED.to_owned());
        }
    }

    /// Acts on the timer of the link. Returns whether the connection continues.
    pub(in crate::proto::core) fn check_timer(&mut self, env: &mut Env<'_>) -> bool {
        let now = env.now.boot;
        match self.link.state() {
            Link::Down { retry_at } if now >= retry_at => self.open(env),
            Link::Down { retry_at } => env.arm(retry_at),
            Link::Opening { until, .. } if now >= until => self.close(Cause::ConnectTimeout, env),
            Link::Handshake { until, .. } if now >= until => self.time_out_handshake(env),
            Link::Leaving { until } if now >= until => self.close(Cause::NoAnswer, env),
            Link::Opening { until, .. }
            | Link::Handshake { until, .. }
            | Link::Leaving { until } => {
                env.arm(until);
                return true;
            }
            Link::Quarantined { .. } | Link::Ready => return true,
        }
        false
    }

    fn time_out_handshake(&mut self, env: &mut Env<'_>) {
        let span = env.settings().connect_timeout;
        let words = format!("{HANGS}: connected, but no reply to the handshake in {span:?}");
        self.explain(Cause::NoAnswer, words);
        env.metrics.of(self.id()).timeouts += 1;
        // It is unknown which server this is.
        self.server.set_wrong(true);
        // Requests behind the handshake may still run, so their undo follows them.
        self.retire(Cause::NoAnswer, env);
    }

    /// Closes the link to a node that owes an answer and has been silent for the dead-peer timeout.
    /// Returns whether the connection continues.
    pub(in crate::proto::core) fn check_silence(&mut self, env: &mut Env<'_>) -> bool {
        let dead_at = self.dead_at(env.settings().dead_peer_timeout).unwrap_or(Timestamp::NEVER);
        let is_dead = env.now.boot >= dead_at;
        match is_dead {
            true => self.close(Cause::DeadPeer, env),
            false => env.arm(dead_at),
        }
        !is_dead
    }
}

/// The likely reason for a server to end a connection early.
const UNANSWERED: &str = "before it answered anything; a port for TLS only does that";

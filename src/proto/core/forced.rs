//! An operator breaks a lock: its key is deleted on every node, whoever holds it.
//!
//! For a holder that hangs, or left without letting go. Each node is told by one script, which answers
//! with what was there. It is sent once: where its connection is lost, nobody knows whether it ran.
//! What is behind the key at the moment when it runs is broken, so one that is delayed in a stopped
//! node breaks the lock of whoever has it by then.
//!
//! Nothing is done about the holder. If it is of this core, it learns of it as any other holder does:
//! by its next extension.

use std::time::Duration;

use super::Core;
use super::view::{KeyState, LONGEST_VALUE, holder};
use crate::proto::ask::{InputError, check_breakable};
use crate::proto::classify::{ServerError, classify};
use crate::proto::greeting::Mistyped;
use crate::proto::names::{NodeId, ViewId};
use crate::proto::node::Request;
use crate::proto::script;
use crate::proto::time::{Nanos, Now};
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

impl Core {
    /// Deletes the key of `resource` on all nodes, whoever holds it, and no other key: no guard's and
    /// no fencing counter's. The outcome is [`Event::Viewed`](super::super::Event::Viewed), and the
    /// view says what was there on each node before; it is gone, unless the node says why not. Data of
    /// another kind is no lock: it is left alone, with [`Cause::WrongType`].
    ///
    /// Whoever holds it is not asked, and goes on until it looks. To know whom it hits, inspect first.
    ///
    /// # Errors
    ///
    /// The name is empty, too long, that of the guard's key, or of a fencing counter. Nothing was sent.
    pub fn break_lock(&mut self, resource: &[u8], now: Now) -> Result<ViewId, InputError> {
        check_breakable(&self.config, resource)?;
        Ok(self.begin_view(resource, true, now))
    }

    /// Always by its text: it is not sent again if the node does not know a digest.
    pub(super) fn send_break(&mut self, node_id: NodeId, id: ViewId, now: Now) {
        let Some(viewing) = self.views.find(id.0) else { return };
        let pipeline = &mut self.nodes[node_id.index()].pipeline;
        pipeline.push(Request::BreakTtl(id), now.boot, |out| {
            let _ = command(out, 2).arg(b"PTTL").arg(&viewing.view.resource);
        });
        pipeline.push(Request::Break(id), now.boot, |out| {
            let eval = command(out, 5).arg(b"EVAL").arg(script::BREAK.as_bytes()).int(1);
            let _ = eval.arg(&viewing.view.resource).int(LONGEST_VALUE);
        });
        self.arm(now.boot + self.config.settings.dead_after);
    }

    /// The first answer: for how long the key would have lived.
    pub(super) fn break_ttl(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let ms = match token {
            Token::Int(ms) => ms,
            // The script is forbidden as well, or its answer says all that matters.
            Token::Error(_) => -1,
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            let mut unknown = holder(b"");
            unknown.remaining = u64::try_from(ms).ok().map(Duration::from_millis);
            viewing.view.nodes[node.index()].state = Ok(KeyState::Held(unknown));
        }
        Ok(())
    }

    /// The second answer: what was there.
    pub(super) fn break_answered(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
        since: Nanos,
        now: Now,
    ) -> Result<(), Mistyped> {
        let found = match token {
            Token::Bulk(value) => Ok(Some(holder(value))),
            Token::NilBulk => Ok(None),
            Token::Error(text) => Err(match classify(text) {
                ServerError::Cause(cause) => cause,
                ServerError::NoScript => Cause::ServerError,
            }),
            _ => return Err(Mistyped),
        };
        let Some(viewing) = self.open_view(id, node) else { return Ok(()) };
        let view = &mut viewing.view.nodes[node.index()];
        view.round_trip = Some(now.boot.since(since));
        let remaining = match &view.state {
            Ok(KeyState::Held(before)) => before.remaining,
            _ => None,
        };
        view.state = found.map(|found| match found {
            Some(mut holder) => {
                holder.remaining = remaining;
                KeyState::Held(holder)
            }
            None => KeyState::Free,
        });
        viewing.open.remove(node);
        self.view_settled(id);
        Ok(())
    }
}

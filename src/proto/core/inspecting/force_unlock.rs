//! An operator breaks a lock: what was seen under its key is deleted on every node. See docs/protocol.md.
//!
//! A node is inspected first, as by anybody else, and its answer decides: a lock of ours is deleted, other data only if
//! that was asked for. Nothing is done about the holder, even if it is of this core.

use super::{STRING, Seen};
use crate::proto::classify::classify;
use crate::proto::core::Core;
use crate::proto::core::links::{Link, Mistyped, Pending};
use crate::proto::key_state::{Foreign, KeyState};
use crate::proto::names::{NodeId, ViewId};
use crate::proto::permits;
use crate::proto::profile::Profile;
use crate::proto::request::{RequestError, check_lock_name};
use crate::proto::script::{FORCE_UNLOCK, Script};
use crate::proto::time::ClockReading;
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

/// What an operator wants gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Locks of redbolt.
    Locks,
    /// Locks of redbolt, and of the members of this profile.
    LocksOf(Profile),
    /// Whatever is there.
    Anything,
}

impl Force {
    /// Whether data is to go that is no lock of redbolt.
    fn breaks(self, data: &Foreign) -> bool {
        match self {
            Self::Locks => false,
            Self::LocksOf(profile) => data.is_of(profile),
            Self::Anything => true,
        }
    }
}

/// What became of what was under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It was deleted. Of a lock that several can hold, holders that were seen were removed.
    Deleted,
    /// It was not there any more when the node was told to delete it. Something else may be.
    Gone,
    /// It is no lock of redbolt, and was left alone.
    Kept,
}

impl Seen {
    /// The script that removes what was seen, by this method. A digest is compared by redbolt's own.
    fn script(&self, kind: &[u8]) -> &'static Script {
        let format = self.format.filter(|_| kind != DUMP);
        format.map_or(&FORCE_UNLOCK, |format| format.force_unlock)
    }

    /// The arguments by which the script compares: the method, and the values that were seen.
    fn to_compare(&self) -> Result<(&[u8], &[Vec<u8>]), Cause> {
        let kind = self.kind.as_deref().map_err(|&cause| cause)?;
        if !self.holders.is_empty() {
            Ok((kind, &self.holders))
        } else if kind == STRING && self.is_whole {
            Ok((kind, std::slice::from_ref(&self.value)))
        } else {
            let digest = self.digest.as_ref().map_err(|&cause| cause)?;
            Ok((DUMP, std::slice::from_ref(digest)))
        }
    }
}

impl Core {
    /// Breaks the lock on `resource`, whoever holds it: looks at its key on all nodes, and deletes what
    /// was seen where that is a lock of redbolt. If several hold it, up to 2,048 holders that were seen lose it, and a holder that came
    /// since keeps it. No other key is touched, no restart guard's and no fencing
    /// counter's; members of another library who wait are told, on a channel or a list. Data that is no lock of redbolt is
    /// left alone ([`Fate::Kept`]). The outcome is [`Event::Viewed`](crate::proto::Event::Viewed), and the view says what
    /// was seen on each node and what became of it.
    ///
    /// Whoever holds it is not asked, and goes on until it looks.
    ///
    /// # Errors
    ///
    /// The name is empty, too long, that of the restart guard's key, or of a fencing counter. Nothing was sent.
    pub fn force_unlock(
        &mut self,
        resource: &[u8],
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        self.begin_force_unlock(Force::Locks, resource, now)
    }

    /// As [`force_unlock`](Self::force_unlock), and deletes the lock of a member of `profile` as well, as far as that is
    /// known by [its form](crate::proto::Foreign::is_of). The format of `profile` need not be
    /// [configured](crate::ConfigBuilder::formats).
    ///
    /// # Errors
    ///
    /// As [`force_unlock`](Self::force_unlock).
    pub fn force_unlock_of(
        &mut self,
        profile: Profile,
        resource: &[u8],
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        self.begin_force_unlock(Force::LocksOf(profile), resource, now)
    }

    /// As [`force_unlock`](Self::force_unlock), and deletes other data as well: a lock of another library, or
    /// what an application keeps under this key. Data without holders is deleted only if all of it is as it was seen, by a digest
    /// that the node makes with `DUMP`.
    ///
    /// # Errors
    ///
    /// As [`force_unlock`](Self::force_unlock).
    pub fn force_unlock_foreign(
        &mut self,
        resource: &[u8],
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        self.begin_force_unlock(Force::Anything, resource, now)
    }

    pub(crate) fn begin_force_unlock(
        &mut self,
        force: Force,
        resource: &[u8],
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        check_lock_name(&self.config, resource)?;
        Ok(self.begin_view(resource, Some(force), now))
    }

    /// Goes on with what this node has answered. Whether it will answer once more.
    pub(super) fn force(&mut self, id: ViewId, node: NodeId, now: ClockReading) -> bool {
        let (link, cause) = (self.node(node).link.state(), self.node(node).link.cause());
        let Some(viewing) = self.open_view(id, node) else { return false };
        let view = &mut viewing.view.nodes[node.index()];
        let (Some(force), Ok(state)) = (viewing.force, &view.state) else { return false };
        match (state, force) {
            (KeyState::Free, _) => return false,
            (KeyState::Foreign(data), force) if !force.breaks(data) => {
                view.fate = Some(Fate::Kept);
                return false;
            }
            (
                KeyState::Held(_)
                | KeyState::Permits(_)
                | KeyState::Shared(_)
                | KeyState::Foreign(_),
                _,
            ) => {}
        }
        if let Err(cause) = viewing.seen[node.index()].to_compare() {
            // Without it the node could not tell what was seen from what came later.
            view.state = Err(cause);
            return false;
        }
        if !matches!(link, Link::Quarantined { .. } | Link::Ready) {
            view.state = Err(cause);
            return false;
        }
        self.send_force_unlock(node, id, now);
        true
    }

    /// Always by its text: it is not sent again if the node does not know a digest.
    fn send_force_unlock(&mut self, node_id: NodeId, id: ViewId, now: ClockReading) {
        let Some(viewing) = self.views.find(id.0) else { return };
        let seen_there = &viewing.seen[node_id.index()];
        let Ok((kind, seen)) = seen_there.to_compare() else { return };
        let script = seen_there.script(kind);
        let pipeline = &mut self.nodes[node_id.index()].pipeline;
        pipeline.push(Pending::ForceUnlock(id), now.boot, |out| {
            // The second key only if it is needed: the user may have no rule for it.
            let has_ends = kind == HASH && *script == FORCE_UNLOCK;
            let keys = 1 + usize::from(has_ends);
            let eval = command(out, 4 + keys + seen.len());
            let eval = eval.arg(b"EVAL").arg(script.text.as_bytes()).int(keys as u64);
            let resource = &viewing.view.resource;
            let eval = match has_ends {
                true => eval.arg(resource).prefixed(permits::ENDS_PREFIX, resource),
                false => eval.arg(resource),
            };
            let _ = seen.iter().fold(eval.arg(kind), |eval, name| eval.arg(name));
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    pub(in crate::proto::core) fn force_unlock_answered(
        &mut self,
        id: ViewId,
        node: NodeId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let fate = match token {
            Token::Int(0) => Ok(Fate::Gone),
            Token::Int(_) => Ok(Fate::Deleted),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        if let Some(viewing) = self.open_view(id, node) {
            let view = &mut viewing.view.nodes[node.index()];
            match fate {
                Ok(fate) => view.fate = Some(fate),
                Err(cause) => view.state = Err(cause),
            }
        }
        self.view_answered(id, node);
        Ok(())
    }
}

/// The answer of `TYPE` for a hash.
const HASH: &[u8] = b"hash";

/// How the script compares all that is there.
const DUMP: &[u8] = b"dump";

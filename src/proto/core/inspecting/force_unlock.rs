//! Force-unlock: an operator deletes what was seen at a key, on every node.
//!
//! Invariant: each node is read first, and only what it reported is deleted: a lock of redbolt, or
//! other data if the operator asked for that. The holder is not involved. See
//! docs/how-it-works/protocol.md#the-end-of-a-lock.

use super::viewing::{STRING, push};
use super::{Fate, Question, Seen, UnlockScope, Viewing};
use crate::proto::core::{Core, Env, links::Node};
use crate::proto::key_state::{Foreign, KeyState};
use crate::proto::request::{RequestError, check_lock_name};
use crate::proto::script::{FORCE_UNLOCK, Script};
use crate::proto::{names::ViewId, permits, time::ClockReading, vote::Cause};
use crate::resp::command;

impl UnlockScope {
    /// Returns whether this data of another program is to be deleted.
    fn breaks(self, data: &Foreign) -> bool {
        match self {
            Self::Locks => false,
            Self::LocksOf(profile) => data.is_of(profile),
            Self::Anything => true,
        }
    }
}

impl Seen {
    /// Returns the script that removes what was seen. A digest is compared by redbolt's own.
    fn script(&self, kind: &[u8]) -> &'static Script {
        let format = self.format.filter(|_| kind != DUMP);
        format.map_or(&FORCE_UNLOCK, |format| format.force_unlock)
    }

    /// Returns what the script compares: the method, and the values that were seen.
    fn to_compare(&self) -> Result<(&[u8], &[Vec<u8>]), Cause> {
        let kind = self.kind.as_deref().map_err(|&cause| cause)?;
        if !self.holders.is_empty() {
            Ok((kind, &self.holders))
        } else if kind == STRING && self.is_whole {
            Ok((kind, std::slice::from_ref(&self.value)))
        } else {
            // It may have changed since it was read, so the script has to compare all of it.
            let digest = self.digest.as_ref().map_err(|&cause| cause)?;
            Ok((DUMP, std::slice::from_ref(digest)))
        }
    }
}

impl Core {
    /// Breaks the lock on `resource`: reads its key on all nodes, and deletes what was seen if that
    /// is in the `scope`. If several clients hold it, up to 2,048 holders that were seen lose it,
    /// and a holder that came since keeps it. No other key is touched, neither the restart guard
    /// nor a fencing counter. Waiting members of another library are notified, on a channel or a
    /// list. Data outside the scope is left alone ([`Fate::Kept`]). The outcome is
    /// [`Event::Viewed`](crate::proto::Event::Viewed), and the view shows what was seen on each
    /// node and what became of it.
    ///
    /// The holder is not asked, and continues until it checks its lock.
    ///
    /// # Errors
    ///
    /// The name is empty, too long, that of the restart guard's key, or of a fencing counter.
    /// Nothing was sent.
    pub fn force_unlock(
        &mut self,
        resource: &[u8],
        scope: UnlockScope,
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        check_lock_name(&self.config, resource)?;
        Ok(self.begin_view(resource, Some(scope), now))
    }
}

impl Viewing {
    /// Deletes what this node has reported, if that is wanted. Returns whether another answer
    /// follows.
    pub(super) fn force_unlock(&mut self, id: ViewId, node: &mut Node, env: &mut Env<'_>) -> bool {
        let at = node.id().index();
        let view = &mut self.view.nodes[at];
        let (Some(scope), Ok(state)) = (self.force, &view.state) else { return false };
        match state {
            KeyState::Free => return false,
            // Data of other programs is deleted only on request.
            KeyState::Foreign(data) if !scope.breaks(data) => {
                view.fate = Some(Fate::Kept);
                return false;
            }
            KeyState::Held(_)
            | KeyState::Permits(_)
            | KeyState::Shared(_)
            | KeyState::Foreign(_) => {}
        }
        let cause = match self.seen[at].to_compare() {
            Ok((kind, seen)) if node.link.takes_reads() => {
                let script = self.seen[at].script(kind);
                push_force_unlock(id, (&self.view.resource, kind, seen), script, node, env);
                return true;
            }
            Ok(_) => node.link.cause(),
            // Without the digest the node could not distinguish what was seen from what came later.
            Err(cause) => cause,
        };
        view.state = Err(cause);
        false
    }

    pub(super) fn take_fate(&mut self, at: usize, deleted: Result<i64, Cause>) {
        let view = &mut self.view.nodes[at];
        match deleted {
            // The data was no longer as it was read.
            Ok(0) => view.fate = Some(Fate::Gone),
            Ok(_) => view.fate = Some(Fate::Deleted),
            Err(cause) => view.state = Err(cause),
        }
    }
}

/// Sends the script as text, because it is not sent again if the node does not know a digest.
fn push_force_unlock(
    id: ViewId,
    (resource, kind, seen): (&[u8], &[u8], &[Vec<u8>]),
    script: &Script,
    node: &mut Node,
    env: &mut Env<'_>,
) {
    push(Question::ForceUnlock, id, node, env, |out| {
        // Only if it is needed: the user may have no ACL rule for it.
        let has_ends = kind == HASH && *script == FORCE_UNLOCK;
        let keys = 1 + usize::from(has_ends);
        let eval = command(out, 4 + keys + seen.len());
        let eval = eval.arg(b"EVAL").arg(script.text.as_bytes()).int(keys as u64);
        let eval = match has_ends {
            true => eval.arg(resource).prefixed(permits::ENDS_PREFIX, resource),
            false => eval.arg(resource),
        };
        let _ = seen.iter().fold(eval.arg(kind), |eval, name| eval.arg(name));
    });
}

/// The reply of `TYPE` for a hash.
const HASH: &[u8] = b"hash";

/// The method that compares a digest of everything at the key.
const DUMP: &[u8] = b"dump";

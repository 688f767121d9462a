//! An operator breaks a lock: what was seen under its key is deleted on every node. See docs/how-it-works/protocol.md.
//!
//! A node is inspected first, as by anybody else, and its answer decides: a lock of ours is deleted, other data only if
//! that was asked for. Nothing is done about the holder, even if it is of this core.

use super::viewing::{STRING, push};
use super::{Fate, Question, Seen, UnlockScope, Viewing};
use crate::proto::core::{Core, Env, links::Node};
use crate::proto::key_state::{Foreign, KeyState};
use crate::proto::request::{RequestError, check_lock_name};
use crate::proto::script::{FORCE_UNLOCK, Script};
use crate::proto::{names::ViewId, permits, time::ClockReading, vote::Cause};
use crate::resp::command;

impl UnlockScope {
    /// Whether data is to go that is no lock of redbolt.
    fn breaks(self, data: &Foreign) -> bool {
        match self {
            Self::Locks => false,
            Self::LocksOf(profile) => data.is_of(profile),
            Self::Anything => true,
        }
    }
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
    /// was seen where that is in the `scope`. If several hold it, up to 2,048 holders that were seen lose it, and a holder that came
    /// since keeps it. No other key is touched, no restart guard's and no fencing
    /// counter's; members of another library who wait are told, on a channel or a list. Data that is not in the scope is
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
        scope: UnlockScope,
        now: ClockReading,
    ) -> Result<ViewId, RequestError> {
        check_lock_name(&self.config, resource)?;
        Ok(self.begin_view(resource, Some(scope), now))
    }
}

impl Viewing {
    /// Breaks what this node has answered, if an operator wants that. Returns whether the node will answer once more.
    pub(super) fn force_unlock(&mut self, id: ViewId, node: &mut Node, env: &mut Env<'_>) -> bool {
        let at = node.id().index();
        let view = &mut self.view.nodes[at];
        let (Some(scope), Ok(state)) = (self.force, &view.state) else { return false };
        match state {
            KeyState::Free => return false,
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
            // Without it the node could not tell what was seen from what came later.
            Err(cause) => cause,
        };
        view.state = Err(cause);
        false
    }

    pub(super) fn take_fate(&mut self, at: usize, deleted: Result<i64, Cause>) {
        let view = &mut self.view.nodes[at];
        match deleted {
            Ok(0) => view.fate = Some(Fate::Gone),
            Ok(_) => view.fate = Some(Fate::Deleted),
            Err(cause) => view.state = Err(cause),
        }
    }
}

/// Always by its text: it is not sent again if the node does not know a digest.
fn push_force_unlock(
    id: ViewId,
    (resource, kind, seen): (&[u8], &[u8], &[Vec<u8>]),
    script: &Script,
    node: &mut Node,
    env: &mut Env<'_>,
) {
    push(Question::ForceUnlock, id, node, env, |out| {
        // The second key only if it is needed: the user may have no rule for it.
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

/// The answer of `TYPE` for a hash.
const HASH: &[u8] = b"hash";

/// How the script compares all that is there.
const DUMP: &[u8] = b"dump";

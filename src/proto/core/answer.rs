//! From bytes to the requests that they answer.

use super::Core;
use crate::proto::classify::{ServerError, classify};
use crate::proto::core::claims::{Claim, TOKEN_DIGITS};
use crate::proto::core::links::{Ability, Due, Link, Mistyped, Pending, Step, Version};
use crate::proto::core::locks::Phase;
use crate::proto::lock_kind::{Answer, Command, Count, PLAIN, count};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LinkId, LockId, NodeId};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

impl Core {
    /// The socket filled the first `bytes` of [`space`](Self::space). Read the clock after the read.
    pub fn received(&mut self, link: LinkId, bytes: usize, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            return self.push_received(id, bytes, now);
        }
        if self.node(id).link.is_closed() {
            return;
        }
        // Out of the node, so that tokens can borrow it while the answers change everything else.
        let node = self.node_mut(id);
        node.heard = now.boot;
        let mut inbox = std::mem::take(&mut node.inbox);
        inbox.filled(bytes);
        loop {
            match self.nodes[id.index()].decoder.next(inbox.unread()) {
                Ok(None) => break,
                Ok(Some((token, len))) => {
                    if self.answered(id, token, now).is_err() {
                        self.close(id, Cause::UnexpectedReply, now);
                    }
                    inbox.consume(len);
                }
                Err(_) if self.is_tls(id, inbox.unread()) => self.close(id, Cause::TlsPort, now),
                Err(violation) => {
                    self.node_mut(id).detail = Some((Cause::Violation, violation.to_string()));
                    self.close(id, Cause::Violation, now);
                }
            }
            if self.node(id).link.is_closed() {
                inbox.clear();
                break;
            }
        }
        self.node_mut(id).inbox = inbox;
    }

    /// Whether the first thing that a server says is an alert of TLS.
    fn is_tls(&self, id: NodeId, unread: &[u8]) -> bool {
        matches!(self.node(id).link.state(), Link::Handshake { .. })
            && unread.first() == Some(&TLS_ALERT)
    }

    /// An answer belongs to the oldest request that has none. One that comes unasked, or is of a
    /// type that the request cannot have, means that order is lost: there is nothing to match by.
    fn answered(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let Some(next) = self.node(id).pipeline.oldest() else { return Err(Mistyped) };
        let pending = next.pending;
        if let (Token::Error(text), false) = (token, matches!(pending, Pending::Handshake(_))) {
            self.note(id, text);
        }
        if let Pending::Ask { claim, checked: true, .. } = pending {
            return self.half_answered(id, claim, token);
        }
        let Some(due) = self.node_mut(id).pipeline.answered() else { return Err(Mistyped) };
        let answered = self.understood(id, &due, token, now);
        match answered {
            Ok(()) => {
                self.count_answer(id, &due, now);
                if self.is_suspected(id) {
                    self.answers_again(id, now);
                }
                self.leave_if_idle(id, now);
            }
            // It is over with the link, like all that are behind it.
            Err(Mistyped) => self.node_mut(id).pipeline.unanswered(due),
        }
        answered
    }

    /// How long a node took to answer. The steps of a handshake wait for one another.
    fn count_answer(&mut self, id: NodeId, due: &Due<Pending>, now: ClockReading) {
        if !matches!(due.pending, Pending::Handshake(_)) {
            self.node_mut(id).pace.answered(due.since, now.boot);
            self.metrics.answered(id, due.since, now.boot);
        }
    }

    fn understood(
        &mut self,
        id: NodeId,
        due: &Due<Pending>,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        match due.pending {
            Pending::Ask { claim, ask, by_digest, .. } => {
                self.ask_answered(id, claim, (ask, by_digest), token, now)
            }
            Pending::Check { claim, vote } => {
                self.check_answered(id, claim, vote, token, due.since, now)
            }
            Pending::ForceUnlock(view) => self.force_unlock_answered(view, id, token),
            Pending::DropOthers => self.others_dropped(id, token, now),
            Pending::Enrol => self.enrolled(id, token, now),
            Pending::Extend { .. } | Pending::Undo { .. } | Pending::WriteBack { .. } => {
                self.counted(id, due.pending, token, now)
            }
            Pending::Handshake(step) => self.handshake(id, step, token, now),
            Pending::Kill => number(token, |_| self.lay_ghosts(id)),
            Pending::Remaining { lock, round } => {
                number(token, |ms| self.way_blocked(id, lock, round, ms, now))
            }
            Pending::Track { to } => self.track_answered(id, to, token, now),
            Pending::ViewTtl(view) => self.view_ttl(view, id, token, due.since, now),
            Pending::ViewType(view) => self.view_type(view, id, token),
            Pending::ViewValue(view) => self.view_value(view, id, token),
        }
    }

    /// The answer says on how many keys something was done.
    fn counted(
        &mut self,
        id: NodeId,
        pending: Pending,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let told = count(token).ok_or(Mistyped)?;
        match pending {
            Pending::Extend { claim, round, by_digest } => {
                self.extension_answered(id, claim, round, told.to_request(by_digest), now);
            }
            Pending::Undo { claim, by_digest } => {
                let answer = told.to_request(by_digest);
                self.forget_scripts_on(id, answer);
                self.undo_answered(id, claim, answer, now);
            }
            Pending::WriteBack { claim, round, by_digest } => {
                let answer = told.to_request(by_digest);
                self.forget_scripts_on(id, answer);
                self.write_back_answered(id, claim, round, answer, now);
            }
            _ => return Err(Mistyped),
        }
        Ok(())
    }

    fn handshake(
        &mut self,
        id: NodeId,
        step: Step,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let node = &mut self.nodes[id.index()];
        let settings = self.config.node(id);
        let told = node.handshake.answer(step, token, settings, &self.config.settings)?;
        let refused = node.handshake.refused;
        match token {
            // The words of the server belong to the cause that stands.
            Token::Error(text) if told.is_some() && told == refused && step != Step::Auth => {
                self.note_of(id, refused, text);
            }
            _ if refused == Some(Cause::TooOld) => {
                let version = node.handshake.capabilities.version;
                let words =
                    version.map(|version| format!("{version}, {} is needed", Version::OLDEST));
                node.detail = words.map(|words| (Cause::TooOld, words));
            }
            _ => {}
        }
        self.handshake_answered(id, step, now);
        Ok(())
    }

    /// An ask whose vote counts by what the restart guard says next.
    fn half_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let vote = match PLAIN.ask.vote(token).ok_or(Mistyped)? {
            Answer::Vote(vote) => vote,
            _ => Vote::Fail(Cause::ServerError),
        };
        self.note_refused(id, claim, vote);
        self.node_mut(id).pipeline.becomes(Pending::Check { claim, vote });
        Ok(())
    }

    fn ask_answered(
        &mut self,
        id: NodeId,
        claim_id: ClaimId,
        (ask, by_digest): (Command, bool),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let answer = ask.vote(token).ok_or(Mistyped)?;
        if self.claims.find(claim_id).is_none() {
            return Ok(());
        }
        match answer {
            Answer::NoScript => {
                self.node_mut(id).loaded.forget_all();
                if by_digest && self.is_asking(claim_id) && self.node(id).link.takes_asks() {
                    self.send_ask(id, claim_id, now);
                    return Ok(());
                }
            }
            // No script was given the restart guard's key.
            Answer::Guarded(_) if self.config.restart_guard_key().is_none() => {
                return Err(Mistyped);
            }
            _ => {}
        }
        let vote = self.vote_in(answer, id, claim_id, now);
        if vote == Vote::Grant && ask != Command::SetIfAbsent {
            // The script has rehearsed the undo before it wrote.
            self.node_mut(id).capabilities.undo = Ability::Given;
        }
        self.note_refused(id, claim_id, vote);
        let vote = match self.config.restart_guard_key() {
            // The script has read the TTL itself.
            Some(_) if vote == Vote::Grant => self.guarded_vote(id, claim_id, vote, 0, now),
            _ => vote,
        };
        self.count_vote(id, claim_id, vote, now);
        Ok(())
    }

    /// Whether answers to this claim's ask still decide something.
    fn is_asking(&self, claim: ClaimId) -> bool {
        let lock = self.claims.find(claim).and_then(|claim| self.locks.find(claim.lock()?));
        lock.is_some_and(|lock| matches!(lock.phase, Phase::Asking | Phase::Fencing))
    }

    /// The vote in an answer to an ask. What else is in it is passed on.
    fn vote_in(&mut self, answer: Answer, id: NodeId, claim: ClaimId, now: ClockReading) -> Vote {
        match answer {
            Answer::DenyFor(ms) => {
                if let Some(lock) = self.claims.find(claim).and_then(Claim::lock)
                    && let Some(round) = self.locks.find(lock).map(|lock| lock.round)
                {
                    self.way_blocked(id, lock, round, ms, now);
                }
                Vote::Deny
            }
            Answer::GrantWith(counter) => {
                self.counter_told(id, claim, counter);
                Vote::Grant
            }
            Answer::Guarded(pttl) => self.guarded_vote(id, claim, Vote::Deny, pttl, now),
            Answer::Skewed(server_us) => {
                let proposed = self.claims.find(claim).map(Claim::counter);
                self.clock_told(id, server_us, proposed.unwrap_or_default(), now);
                Vote::Fail(Cause::ClockSkew)
            }
            Answer::Vote(vote) => vote,
            Answer::NoScript => Vote::Fail(Cause::ServerError),
        }
    }

    /// Counts a vote that stands, unless the node or the claim has been given up.
    pub(super) fn count_vote(
        &mut self,
        id: NodeId,
        claim_id: ClaimId,
        vote: Vote,
        now: ClockReading,
    ) {
        self.metrics.of(id).voted(vote);
        // A node that is being left is no voter, whatever it says.
        if self.node(id).link.is_leaving() {
            return;
        }
        if let Some(claim) = self.claims.find_mut(claim_id) {
            match (vote, claim.lock()) {
                // What is being undone counts for nothing, and so does what has been refused.
                (Vote::Grant, _) if claim.is_owed(id) => {}
                (Vote::Deny, None) => self.denied_late(id, claim_id, now),
                (_, lock) => {
                    if vote == Vote::Grant {
                        claim.granted(id);
                    }
                    lock.into_iter().for_each(|lock| self.voted(id, lock, vote, now));
                }
            }
        }
        match vote {
            _ if !self.node(id).link.is_ready() => {}
            Vote::Fail(Cause::ReadOnly) => self.retire(id, Cause::ReadOnly, now),
            Vote::Fail(Cause::NoReplicas) => self.suspend(id, Cause::NoReplicas, now),
            _ => {}
        }
    }

    fn voted(&mut self, node: NodeId, id: LockId, vote: Vote, now: ClockReading) {
        match self.count(node, id, vote) {
            Some(Phase::Fencing) => self.voted_late(node, id, vote, now),
            Some(Phase::Asking) => self.decide(id, now),
            _ => {}
        }
    }

    /// Remembers that an ask did not run. A script may have run in part, unless it may not write or not
    /// run at all, and an error that we do not know may come from something between us and the server.
    fn note_refused(&mut self, id: NodeId, claim: ClaimId, vote: Vote) {
        let Vote::Fail(cause) = vote else { return };
        if cause.is_forbidden() {
            // It may be what the undo needs as well.
            self.node_mut(id).capabilities.undo = Ability::Refused(cause);
        }
        if cause != Cause::ServerError
            && let Some(claim) = self.claims.find_mut(claim)
            && (claim.kind().ask == Command::SetIfAbsent || cause.is_forbidden())
        {
            claim.refused(id);
        }
    }

    fn extension_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        round: u32,
        answer: Count,
        now: ClockReading,
    ) {
        self.forget_scripts_on(id, answer);
        // Those that were under way when the node was refused have failed already. What it has lost is news
        // all the same, also where it may be another node's server that says so.
        if self.node(id).link.is_leaving() {
            if answer == Count::Of(0) {
                self.key_gone(id, claim, now);
            }
            return;
        }
        let vote = match answer {
            Count::NoScript => return self.resend_extension(id, claim, round, now),
            Count::Of(0) => Vote::Deny,
            Count::Fail(cause) => Vote::Fail(cause),
            // The key is still there, but it was given up and its undo is on the way.
            Count::Of(_) if self.claims.is_owed(claim, id) => Vote::Fail(self.node(id).link.cause()),
            Count::Of(_) if !self.claims.is_counted(claim, id) => Vote::Fail(Cause::NotCounted),
            Count::Of(_) => Vote::Grant,
        };
        self.extension_vote(id, claim, round, vote, now);
    }

    fn forget_scripts_on(&mut self, id: NodeId, answer: Count) {
        if answer == Count::NoScript {
            self.node_mut(id).loaded.forget_all();
        }
    }

    /// Keeps an error's words for the refusal. What comes while a node is being left is no news.
    fn note(&mut self, id: NodeId, text: &[u8]) {
        if let ServerError::Cause(cause) = classify(text)
            && !self.node(id).link.is_leaving()
        {
            self.note_of(id, Some(cause), text);
        }
    }

    /// Keeps an error's words where they say more than its cause does.
    fn note_of(&mut self, id: NodeId, cause: Option<Cause>, text: &[u8]) {
        let notifies = |cause: &Cause| {
            let is_vague = matches!(cause, Cause::ServerError | Cause::Unavailable);
            is_vague || cause.is_forbidden() || *cause == Cause::ScriptsForbidden
        };
        if let Some(cause) = cause.filter(notifies) {
            self.node_mut(id).detail = Some((cause, presentable(text)));
        }
    }
}

/// Passes on a number; an error tells nothing.
fn number(token: Token<'_>, told: impl FnOnce(i64)) -> Result<(), Mistyped> {
    match token {
        Token::Int(number) => told(number),
        Token::Error(_) => {}
        _ => return Err(Mistyped),
    }
    Ok(())
}

/// An error's text without anything that we sent: servers repeat the arguments of commands that
/// they do not know, and one of ours is the token.
fn presentable(text: &[u8]) -> String {
    if mutant!(TokenInWords) {
        return String::from_utf8_lossy(text).into_owned();
    }
    let quoted = memchr::memmem::find(text, b", with args beginning with");
    let text = &text[..quoted.unwrap_or(text.len()).min(LONGEST_NOTE)];
    let mut words = String::with_capacity(text.len());
    for run in text.chunk_by(|a, b| a.is_ascii_hexdigit() == b.is_ascii_hexdigit()) {
        if run[0].is_ascii_hexdigit() && run.len() >= TOKEN_DIGITS / 2 {
            words.push_str("(hidden)");
        } else {
            words.extend(run.iter().map(|&b| match b {
                b' '..=b'~' => char::from(b),
                _ => '?',
            }));
        }
    }
    words
}

/// The type of an alert's record. No reply begins with it.
const TLS_ALERT: u8 = 0x15;

/// A token cut off here still has half of its digits, and is hidden.
const LONGEST_NOTE: usize = 160;

#[cfg(test)]
mod tests {
    use super::presentable;

    #[test]
    fn arguments_and_tokens_are_not_shown() {
        let text = b"ERR unknown command 'SET', with args beginning with: 'job' '00112233445566778899aabbccddeeff' ";
        assert_eq!(presentable(text), "ERR unknown command 'SET'");
        let text = b"ERR no 00112233445566778899aabbccddeeff:host here\r";
        assert_eq!(presentable(text), "ERR no (hidden):host here?");
        let mut long = vec![b' '; 140];
        long.extend_from_slice(b"00112233445566778899aabbccddeeff");
        assert_eq!(presentable(&long).trim(), "(hidden)");
    }
}

//! One lock of the library's [`Driver`], as the rest of `redbolt lock` sees it.
//!
//! It translates events of the driver into [`News`], and refusals into words. Not here: what to do about them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::proto::Verdict;
use redbolt::proto::restart_guard::Found;
use redbolt::{
    Config, DetachedLock, Driver, Event, FencingToken, LockId, LockMode, LockRequest, LossCause,
    Profile, RefusalReason, RefusalReport, RequestError, Wait,
    inspect::InspectionVerdict,
    report::{
        Cause, LockState, NodeReport, NodeState, NodeStatus, NodeVote, Refusal, RestartGuardState,
        Vote,
    },
};

use super::minority::Minority;
use super::poller::{Poller, now};
use crate::args::Nodes;
use crate::duration::show;
use crate::speak::say;
use crate::{name, nodes};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a OsStr,
    pub(super) ttl: Duration,
    pub(super) mode: LockMode,
    pub(super) fenced: bool,
    pub(super) profile: Profile,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    /// A command is to run under the lock.
    pub(super) runs_command: bool,
}

/// A lock, from the first ask to its end.
#[derive(Debug)]
pub(super) struct Lease {
    driver: Driver,
    key: Vec<u8>,
    ttl: Duration,
    mode: LockMode,
    fenced: bool,
    profile: Profile,
    /// The command that declares the nodes as new, until it has been shown.
    init_command: Option<String>,
    id: Option<LockId>,
    /// The last attempt that was decided, or the refusal.
    last: Option<Refusal>,
    quiet: bool,
    verbose: bool,
    runs_command: bool,
    minority: Minority,
}

/// What the nodes had to say.
#[derive(Debug)]
pub(super) enum News {
    /// The lock is held.
    Granted,
    /// It was not granted.
    Refused {
        /// Whether somebody holds it, as opposed to nodes that cannot vote.
        contended: bool,
    },
    /// It is held for another TTL.
    Extended,
    /// It is held for less time than it was: a node has lost its key.
    Shortened,
    /// It was not extended; why.
    NotExtended(String),
    /// It is no longer held; why.
    Lost(String),
    /// It was held to the end of its TTL.
    Expired,
    /// It was released. How many nodes have confirmed it.
    Released {
        /// Whether a quorum confirmed it.
        confirmed: bool,
    },
    /// Who holds it, or what else is there.
    Seen(InspectionVerdict),
}

impl Lease {
    /// Begins to connect to the nodes.
    pub(super) fn new(config: Config, wanted: &Wanted<'_>, nodes: &Nodes) -> io::Result<Self> {
        Ok(Self {
            driver: Driver::new(config)?,
            key: wanted.key.as_bytes().to_vec(),
            ttl: wanted.ttl,
            mode: wanted.mode,
            fenced: wanted.fenced,
            profile: wanted.profile,
            init_command: Some(nodes::init_command(nodes)),
            id: None,
            last: None,
            quiet: wanted.quiet,
            verbose: wanted.verbose,
            runs_command: wanted.runs_command,
            minority: Minority::new(wanted.quiet),
        })
    }

    /// Asks for the lock. The outcome is [`News::Granted`] or [`News::Refused`].
    pub(super) fn request(&mut self, wait: Wait) -> Result<(), RequestError> {
        let request = LockRequest::new(&self.key).ttl(self.ttl).wait(wait).format(self.profile);
        let request = match self.mode {
            LockMode::Shared => request.shared(),
            LockMode::Permit { of } => request.permits(of),
            _ => request,
        };
        let request = if self.fenced { request.fenced() } else { request };
        self.id = Some(self.driver.acquire(request)?);
        Ok(())
    }

    /// Asks for another TTL. The outcome is [`News::Extended`] or [`News::NotExtended`], or the
    /// lock is over.
    pub(super) fn extend(&mut self) -> Result<(), RequestError> {
        self.extend_by(self.ttl)
    }

    /// As [`extend`](Self::extend), for another TTL than that of the ask.
    pub(super) fn extend_by(&mut self, ttl: Duration) -> Result<(), RequestError> {
        let id = self.id.ok_or(RequestError::NotHeld)?;
        self.driver.extend(id, ttl)
    }

    /// Whether the outcome of an extension is still to come.
    pub(super) fn is_extending(&self) -> bool {
        self.id.is_some_and(|id| self.driver.state(id) == LockState::Extending)
    }

    /// The longest TTL of any lock.
    pub(super) fn max_ttl(&self) -> Duration {
        self.driver.config().settings().max_ttl
    }

    /// Waits a small part of the TTL for nodes that have not answered yet: for a lock that is detached, only those
    /// that have answered count.
    pub(super) fn hear_answers(&mut self, poller: &Poller) -> io::Result<()> {
        let Some(id) = self.id else { return Ok(()) };
        let patience = (self.ttl / 20).clamp(HEAR_WITHIN.0, HEAR_WITHIN.1);
        let until = now()? + patience.min(self.driver.config().settings().response_timeout);
        loop {
            let left = until.saturating_sub(now()?);
            if left.is_zero() || !self.driver.awaits_answers(id) {
                return Ok(());
            }
            let within = self.driver.timeout().map_or(left, |deadline| deadline.min(left));
            poller.wait_muted(&[self.as_fd()], Some(within))?;
            self.driver.process();
        }
    }

    /// Detaches the lock: nothing more is sent about it. `None` if it is not held.
    pub(super) fn detach(&mut self) -> Option<DetachedLock> {
        if self.remaining().is_zero() {
            return None;
        }
        let detached = self.driver.detach(self.id?)?;
        self.id = None;
        Some(detached)
    }

    /// Releases a lock that was detached a moment ago.
    pub(super) fn take_back(&mut self, detached: &DetachedLock) {
        self.id = self.driver.attach(detached).ok();
    }

    /// How long the nodes may take to say who holds a lock that they refused after `took`. A look takes as many round
    /// trips as a refusal, of which none is exactly as long as the one before: twice the time is enough for it. A node
    /// that hangs is not worth a longer wait.
    pub(super) fn patience_after(&self, took: Duration) -> Duration {
        took.saturating_mul(2)
            .max(LOOK_WITHIN)
            .min(self.driver.config().settings().response_timeout)
    }

    /// Asks who holds the lock. The outcome is [`News::Seen`].
    pub(super) fn look(&mut self) {
        // The same key was accepted for the request.
        let _ = self.driver.inspect(&self.key);
    }

    /// Does what can be done without waiting.
    pub(super) fn process(&mut self) {
        self.driver.process();
        let Some(id) = self.id else { return };
        // A turn may have begun another attempt.
        let present = Some(self.driver.votes(id)).filter(|of| of.verdict() != Verdict::Undecided);
        if let Some(votes) = present.or_else(|| self.driver.decided_votes(id)) {
            self.last = Some(Refusal::new(RefusalReason::OutOfTime, votes));
        }
    }

    /// The name of the lock, for messages.
    pub(super) fn name(&self) -> String {
        name::show(OsStr::from_bytes(&self.key))
    }

    /// A refusal, with what follows from it in its first line.
    pub(super) fn with_consequence(&self, refusal: &str) -> String {
        match refusal.split_once('\n') {
            Some((head, rest)) if self.runs_command => format!("{head}; {NOT_RUN}\n{rest}"),
            _ => refusal.to_owned(),
        }
    }

    /// Whether progress is not to be reported (`--quiet`).
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether each event is to be reported (`--verbose`).
    pub(super) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Warns once of missing nodes, if the lock is held without them.
    pub(super) fn tell_of_minority(&mut self) -> io::Result<()> {
        let Self { driver, minority, .. } = self;
        if let Some(words) = minority.look(|| driver.node_report(), now()?) {
            say(words);
        }
        Ok(())
    }

    /// As [`tell_of_minority`](Self::tell_of_minority), for a lock that is about to be detached: this is the last occasion.
    pub(super) fn tell_of_silent_minority(&mut self) {
        if let Some(words) = self.minority.last_look(|| self.driver.node_report()) {
            say(words);
        }
    }

    /// Whether enough nodes can vote, whatever they say about this lock.
    pub(super) fn has_quorum(&self) -> bool {
        self.driver.node_report().has_quorum()
    }

    /// The verdict of the last attempt that was decided.
    pub(super) fn verdict(&self) -> Verdict {
        self.last.map_or(Verdict::Undecided, |refusal| refusal.votes.verdict())
    }

    /// How long until enough quarantines are over for a quorum; `None` if quarantines are not what prevents one.
    pub(super) fn quarantine(&self) -> Option<Duration> {
        let refusal = self.last.filter(|last| last.votes.verdict() == Verdict::NoQuorum)?;
        let votes = self.driver.report(&refusal);
        let quarantined = Some(Vote::Fail(Cause::Quarantined));
        if !votes.node_votes().iter().any(|node| node.vote == quarantined) {
            return None;
        }
        let config = self.driver.config();
        let left =
            |(node, status): (&NodeVote, &NodeStatus)| match (node.vote, status.restart_guard) {
                (Some(Vote::Grant | Vote::Deny), _) => Some(Duration::ZERO),
                (Some(Vote::Fail(cause)), _) if cause != Cause::Quarantined => None,
                (_, RestartGuardState::Votes) => Some(Duration::ZERO),
                (_, RestartGuardState::Quarantined { left, .. }) => Some(left),
                // It is about to be enrolled.
                (Some(_), _) => Some(config.settings().max_ttl),
                (None, _) => None,
            };
        let nodes = self.driver.node_report().nodes;
        let mut left: Vec<_> = votes.node_votes().iter().zip(&nodes).filter_map(left).collect();
        left.sort_unstable();
        left.get(config.quorum() - 1).copied()
    }

    /// The number of its permit.
    pub(super) fn slot(&self) -> Option<u16> {
        self.id.and_then(|id| self.driver.slot(id))
    }

    /// The fencing token, if one was asked for and the lock is held.
    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        self.id.and_then(|id| self.driver.fencing_token(id))
    }

    /// Why there is no quorum: a sentence, and one line for each node.
    ///
    /// A verdict may come before every node has answered. A reader wants all of them, so nodes that are still
    /// connecting get a moment, unless it is granted meanwhile or a signal arrives. The moment ends with the `limit` that the user
    /// has set: then what is known is reported.
    pub(super) fn silence(
        &mut self,
        poller: &Poller,
        limit: Option<Duration>,
    ) -> io::Result<String> {
        let until = (now()? + MOMENT).min(limit.unwrap_or(Duration::MAX));
        while self.remaining().is_zero() && self.is_connecting() {
            let left = until.saturating_sub(now()?);
            if left.is_zero() || poller.has_request()? {
                break;
            }
            let within = self.driver.timeout().map_or(left, |deadline| deadline.min(left));
            poller.wait(&[self.as_fd()], Some(within))?;
            self.driver.process();
        }
        Ok(self.explain())
    }

    fn is_connecting(&self) -> bool {
        let nodes = self.driver.node_report().nodes;
        nodes.iter().any(is_connecting)
    }

    fn explain(&mut self) -> String {
        let states = self.driver.node_report();
        let report = self.last.map(|refusal| self.driver.report(&refusal));
        let head = match report.as_ref().map(RefusalReport::reason) {
            Some(RefusalReason::Expired) => {
                "the nodes took so long that nothing was left of the TTL".into()
            }
            _ if self.verdict() == Verdict::Undecided && may_have_quorum(&states) => {
                UNHEARD.to_owned()
            }
            _ => format!("too few nodes can vote, {} needed", self.driver.config().quorum()),
        };
        let line = |(at, state): (usize, &NodeStatus)| {
            let vote = report.as_ref().and_then(|report| report.node_votes().get(at));
            let vote = vote.filter(|vote| vote.vote.is_some());
            vote.map_or_else(|| state.to_string(), NodeVote::to_string)
        };
        let lines = states.nodes.iter().enumerate().map(line);
        let text =
            lines.fold(format!("{}: {head}", self.name()), |text, line| format!("{text}\n{line}"));
        if states.is_new() {
            let hint = self.init_command.take().map(|command| format!("\n{NEW}{command}"));
            text + &hint.unwrap_or_default()
        } else if states.nodes.iter().any(has_other_limits) {
            let command = self.init_command.as_deref().unwrap_or("redbolt init");
            format!("{text}\n{OTHER_LIMITS}{command} --change")
        } else {
            text
        }
    }

    /// The next news.
    pub(super) fn news(&mut self) -> Option<News> {
        loop {
            match self.driver.poll_event()? {
                Event::Granted(_) => return Some(News::Granted),
                Event::Refused(_, refusal) => {
                    self.last = Some(refusal);
                    return Some(News::Refused { contended: refusal.votes.is_contended() });
                }
                Event::Extended(_) => return Some(News::Extended),
                Event::Shortened(_) => return Some(News::Shortened),
                Event::NotExtended(_, refusal) => {
                    return Some(News::NotExtended(self.driver.report(&refusal).to_string()));
                }
                Event::Lost(_, LossCause::Expired) => return Some(News::Expired),
                Event::Lost(_, cause) => return Some(News::Lost(cause.to_string())),
                Event::Released(_, confirmed) => {
                    let quorum = self.driver.config().quorum();
                    let confirmed = usize::try_from(confirmed.nodes).is_ok_and(|n| n >= quorum);
                    return Some(News::Released { confirmed });
                }
                Event::Viewed(id) => {
                    if let Some(seen) = self.driver.take_inspection(id) {
                        return Some(News::Seen(seen.verdict));
                    }
                }
                _ => {}
            }
        }
    }

    /// The validity that is left.
    pub(super) fn remaining(&self) -> Duration {
        self.id.map_or(Duration::ZERO, |id| self.driver.remaining(id))
    }

    /// The latest time for the next turn.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.driver.timeout()
    }

    /// Releases the lock, or stops asking for it. Returns whether a quorum confirmed the release of a lock that was
    /// held.
    pub(super) fn let_go(mut self, poller: &Poller) -> io::Result<bool> {
        let (begun, left_at_first) = (now()?, self.remaining());
        let was_held = !left_at_first.is_zero();
        let answers = self.driver.config().settings().response_timeout;
        // A server that is paused drops the release if its connection ends before.
        let most = begun + left_at_first.min(LONGEST_RELEASE.max(answers));
        let mut until = begun + if was_held { answers } else { LINGER };
        if let Some(id) = self.id.take() {
            self.driver.release(id);
        }
        let mut confirmed = false;
        loop {
            while let Some(news) = self.news() {
                if matches!(news, News::Released { confirmed: true }) {
                    confirmed = true;
                    until = until.min(now()? + LINGER);
                }
            }
            let left = until.saturating_sub(now()?);
            if !self.driver.has_pending_releases() {
                // Every node has confirmed it, if late, unless the keys have expired.
                confirmed |= was_held && now()? < begun + left_at_first;
                break;
            }
            if left.is_zero() {
                if confirmed || until >= most || !self.may_confirm() || poller.has_request()? {
                    break;
                }
                if !self.quiet {
                    let most = show(most.saturating_sub(until));
                    say(format_args!("waiting up to {most} for the nodes to confirm the release"));
                }
                until = most;
                continue;
            }
            let within = self.driver.timeout().map_or(left, |deadline| deadline.min(left));
            if until == most {
                poller.wait(&[self.as_fd()], Some(within))?;
                if poller.has_request()? {
                    break;
                }
            } else {
                poller.wait_muted(&[self.as_fd()], Some(within))?;
            }
            self.process();
        }
        if was_held {
            self.tell_of_hanging_minority(poller)?;
        }
        Ok(confirmed)
    }

    /// Whether enough nodes are connected for the release to be confirmed.
    fn may_confirm(&self) -> bool {
        let report = self.driver.node_report();
        let is_there = |node: &&NodeStatus| !matches!(node.state, NodeState::Down(_));
        report.nodes.iter().filter(is_there).count() >= report.quorum()
    }

    /// Warns of nodes that hang, after a command that was too short to notice them. A node that has not answered gets the time
    /// that it would have had.
    fn tell_of_hanging_minority(&mut self, poller: &Poller) -> io::Result<()> {
        let until = now()? + LAST_LOOK;
        while !self.minority.is_told() && self.is_connecting() {
            let left = until.saturating_sub(now()?);
            if left.is_zero() || poller.has_request()? {
                break;
            }
            poller.wait(&[self.as_fd()], Some(left.min(LINGER)))?;
            self.driver.process();
        }
        if let Some(words) = self.minority.last_look(|| self.driver.node_report()) {
            say(words);
        }
        Ok(())
    }
}

/// It has not had the time to answer.
fn is_connecting(node: &NodeStatus) -> bool {
    node.state == NodeState::Connecting && !node.seems_to_hang()
}

/// Nodes that have not had the time to answer may be voters.
fn may_have_quorum(report: &NodeReport) -> bool {
    let may_vote = |node: &&NodeStatus| node.state == NodeState::Ready || is_connecting(node);
    report.nodes.iter().filter(may_vote).count() >= report.quorum()
}

fn has_other_limits(node: &NodeStatus) -> bool {
    matches!(node.restart_guard, RestartGuardState::Found(Found::OtherLimits { .. }))
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.as_fd()
    }
}

pub(super) const NOT_RUN: &str = "the command was not run";

/// The nodes that can vote, or may be able to.
const UNHEARD: &str = "the time was over before enough nodes had voted";

const OTHER_LIMITS: &str = "all who use these nodes must name all of them, and the same --max-ttl; \
    to change that: ";

/// How long a report waits for nodes that are still connecting: on a busy machine that takes a while.
const MOMENT: Duration = Duration::from_secs(2);

const NEW: &str = "if these nodes are new and never held a lock: ";

/// The least time for a look, even after an immediate refusal. The look itself does not wait so long for a node that
/// hangs, if a quorum has answered.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The bounds of the wait for late answers before a lock is detached. A node that hangs gives none.
const HEAR_WITHIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How long nodes that are connected may take to confirm a release, if the TTL lasts as long.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// Enough to tell a node that hangs from one that is far away.
const LAST_LOOK: Duration = Duration::from_millis(300);

/// How long the other nodes may take to confirm. The release has been sent, but an answer that meets a closed socket
/// resets the connection, and then what was sent may be lost.
const LINGER: Duration = Duration::from_millis(50);

//! One lock of the library's [`Driver`], for the rest of `redbolt lock`.
//!
//! Translates the driver's events into [`News`], and refusals into messages.

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

/// The parameters of the lock to request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a OsStr,
    pub(super) ttl: Duration,
    pub(super) mode: LockMode,
    pub(super) fenced: bool,
    pub(super) profile: Profile,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    /// Whether a command will run under the lock.
    pub(super) runs_command: bool,
}

/// A lock, from its request to its end.
#[derive(Debug)]
pub(super) struct Lease {
    driver: Driver,
    key: Vec<u8>,
    ttl: Duration,
    mode: LockMode,
    fenced: bool,
    profile: Profile,
    /// The command that declares the nodes as new; `None` once it has been shown.
    init_command: Option<String>,
    id: Option<LockId>,
    /// The last attempt that was decided, or the refusal.
    last: Option<Refusal>,
    quiet: bool,
    verbose: bool,
    runs_command: bool,
    minority: Minority,
}

/// An event of the lock.
#[derive(Debug)]
pub(super) enum News {
    /// The lock was granted.
    Granted,
    /// The request was refused.
    Refused {
        /// Whether another client holds the lock; if not, too few nodes can vote.
        contended: bool,
    },
    /// The lock was extended.
    Extended,
    /// The validity got shorter because a node lost its key.
    Shortened,
    /// The extension failed, for this reason.
    NotExtended(String),
    /// The lock was lost, for this reason.
    Lost(String),
    /// The lock expired at the end of its TTL.
    Expired,
    /// The lock was released.
    Released {
        /// Whether a quorum confirmed it.
        confirmed: bool,
    },
    /// The holder of the lock, or other data at its key.
    Seen(InspectionVerdict),
}

impl Lease {
    /// Starts connecting to the nodes.
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

    /// Requests the lock. The outcome is [`News::Granted`] or [`News::Refused`].
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

    /// Extends the lock by its TTL. The outcome is [`News::Extended`] or [`News::NotExtended`],
    /// unless the lock ends first.
    pub(super) fn extend(&mut self) -> Result<(), RequestError> {
        self.extend_by(self.ttl)
    }

    /// Extends the lock like [`extend`](Self::extend), but with this TTL.
    pub(super) fn extend_by(&mut self, ttl: Duration) -> Result<(), RequestError> {
        let id = self.id.ok_or(RequestError::NotHeld)?;
        self.driver.extend(id, ttl)
    }

    /// Returns whether an extension is in flight.
    pub(super) fn is_extending(&self) -> bool {
        self.id.is_some_and(|id| self.driver.state(id) == LockState::Extending)
    }

    /// Returns the longest TTL of any lock.
    pub(super) fn max_ttl(&self) -> Duration {
        self.driver.config().settings().max_ttl
    }

    /// Waits for late replies during a small part of the TTL. Only nodes that have replied count
    /// for a lock that is detached.
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

    /// Detaches the lock, so that nothing more is sent about it. Returns `None` if it is not held.
    pub(super) fn detach(&mut self) -> Option<DetachedLock> {
        if self.remaining().is_zero() {
            return None;
        }
        let detached = self.driver.detach(self.id?)?;
        self.id = None;
        Some(detached)
    }

    /// Attaches a lock again that was just detached, so that it can be released.
    pub(super) fn take_back(&mut self, detached: &DetachedLock) {
        self.id = self.driver.attach(detached).ok();
    }

    /// Returns how long to wait for the holder of a lock that was refused after `took`. A look
    /// takes as many round trips as a refusal. Round trips vary, so it gets twice the time. A node
    /// that hangs is not worth a longer wait.
    pub(super) fn patience_after(&self, took: Duration) -> Duration {
        took.saturating_mul(2)
            .max(LOOK_WITHIN)
            .min(self.driver.config().settings().response_timeout)
    }

    /// Asks the nodes who holds the lock. The outcome is [`News::Seen`].
    pub(super) fn look(&mut self) {
        // It cannot fail: the request has already accepted this key.
        let _ = self.driver.inspect(&self.key);
    }

    /// Processes everything that needs no waiting.
    pub(super) fn process(&mut self) {
        self.driver.process();
        let Some(id) = self.id else { return };
        // If this turn began another attempt, the last decided one counts.
        let present = Some(self.driver.votes(id)).filter(|of| of.verdict() != Verdict::Undecided);
        if let Some(votes) = present.or_else(|| self.driver.decided_votes(id)) {
            self.last = Some(Refusal::new(RefusalReason::OutOfTime, votes));
        }
    }

    /// Returns the name of the lock, for messages.
    pub(super) fn name(&self) -> String {
        name::show(OsStr::from_bytes(&self.key))
    }

    /// Returns the refusal with its consequence added to the first line.
    pub(super) fn with_consequence(&self, refusal: &str) -> String {
        match refusal.split_once('\n') {
            Some((head, rest)) if self.runs_command => format!("{head}; {NOT_RUN}\n{rest}"),
            _ => refusal.to_owned(),
        }
    }

    /// Returns whether progress is not reported (`--quiet`).
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns whether each event is reported (`--verbose`).
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

    /// Warns like [`tell_of_minority`](Self::tell_of_minority) on the last occasion, before the
    /// lock is detached.
    pub(super) fn tell_of_silent_minority(&mut self) {
        if let Some(words) = self.minority.last_look(|| self.driver.node_report()) {
            say(words);
        }
    }

    /// Returns whether enough nodes can vote, even if they refuse this lock.
    pub(super) fn has_quorum(&self) -> bool {
        self.driver.node_report().has_quorum()
    }

    /// Returns the verdict of the last attempt that was decided.
    pub(super) fn verdict(&self) -> Verdict {
        self.last.map_or(Verdict::Undecided, |refusal| refusal.votes.verdict())
    }

    /// Returns the time until enough quarantines end for a quorum, or `None` if quarantines are not
    /// what prevents one.
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

    /// Returns the number of the lock's permit.
    pub(super) fn slot(&self) -> Option<u16> {
        self.id.and_then(|id| self.driver.slot(id))
    }

    /// Returns the fencing token, if one was requested and the lock is held.
    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        self.id.and_then(|id| self.driver.fencing_token(id))
    }

    /// Returns why there is no quorum: a sentence, then one line for each node.
    ///
    /// A verdict can precede the replies of some nodes. The report should cover every node, so it
    /// waits a moment for nodes that are still connecting, unless the lock is granted or a signal
    /// arrives. If the user's `limit` passes first, it reports what is known by then.
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

    /// Returns the next event.
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

    /// Returns the remaining validity.
    pub(super) fn remaining(&self) -> Duration {
        self.id.map_or(Duration::ZERO, |id| self.driver.remaining(id))
    }

    /// Returns the longest time until the next turn.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.driver.timeout()
    }

    /// Releases the lock, or withdraws its request. Returns whether a quorum confirmed the release
    /// of a lock that was held.
    pub(super) fn let_go(mut self, poller: &Poller) -> io::Result<bool> {
        let (begun, left_at_first) = (now()?, self.remaining());
        let was_held = !left_at_first.is_zero();
        let answers = self.driver.config().settings().response_timeout;
        // A paused server drops the release if the connection closes before the server resumes.
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
                // Every node has confirmed, if late. That counts unless the keys have expired.
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

    /// Returns whether enough nodes for a quorum are not known to be down.
    fn may_confirm(&self) -> bool {
        let report = self.driver.node_report();
        let is_there = |node: &&NodeStatus| !matches!(node.state, NodeState::Down(_));
        report.nodes.iter().filter(is_there).count() >= report.quorum()
    }

    /// Warns of nodes that hang, after a command that was too short to notice them. A node that has
    /// not answered gets up to [`LAST_LOOK`].
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

/// Returns whether the node has not had time to answer.
fn is_connecting(node: &NodeStatus) -> bool {
    node.state == NodeState::Connecting && !node.seems_to_hang()
}

/// Returns whether there may be a quorum, if nodes without time to answer may vote.
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

/// The reason given if the time ended before enough nodes had voted.
const UNHEARD: &str = "the time was over before enough nodes had voted";

const OTHER_LIMITS: &str = "all who use these nodes must name all of them, and the same --max-ttl; \
    to change that: ";

/// The time that a report gives nodes that are still connecting. On a busy machine this takes a
/// while.
const MOMENT: Duration = Duration::from_secs(2);

const NEW: &str = "if these nodes are new and never held a lock: ";

/// The least time for a look, even after an immediate refusal. A node that hangs does not prolong a
/// look if a quorum has answered.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The bounds of the wait for late replies before a lock is detached. A node that hangs sends none.
const HEAR_WITHIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// The longest time that connected nodes get to confirm a release, within the validity.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// The time that distinguishes a node that hangs from one that is far away.
const LAST_LOOK: Duration = Duration::from_millis(300);

/// The time for other nodes to confirm. The release has been sent, but a reply that meets a closed
/// socket resets the connection, and then the release may be lost.
const LINGER: Duration = Duration::from_millis(50);

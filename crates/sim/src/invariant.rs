//! The invariants, and the report of each violation. Each invariant has its own variant, with the
//! data needed to understand a failure. Most are checked online, next to the event that can break
//! them.

use std::fmt;

/// A broken invariant. Clients, nodes and jobs are numbered from zero, as in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// I1: two locks on one resource are valid at the same instant.
    TwoHolders {
        /// The resource.
        key: usize,
        /// The job that held it.
        holder: usize,
        /// The job that was granted the lock as well.
        rival: usize,
    },
    /// I1: a lock is valid, and fewer than a quorum of nodes keep its key.
    NoQuorumBehind {
        /// The resource.
        key: usize,
        /// The job that holds the lock.
        job: usize,
        /// The number of nodes that keep its key.
        nodes: usize,
    },
    /// I1, checked offline: no order of the operations explains the history.
    NotLinearizable {
        /// The resource.
        key: usize,
        /// The operations of its history.
        operations: usize,
        /// True if the history includes fencing tokens.
        fenced: bool,
    },
    /// I2: a later holder's token is not larger.
    TokenOrder {
        /// The resource.
        key: usize,
        /// The token of the earlier holder.
        earlier: u64,
        /// The token of the later one.
        later: u64,
    },
    /// I2: a fencing counter shows the time of a clock that only a minority of the nodes has.
    WildCounter {
        /// The resource.
        key: usize,
        /// The node.
        node: usize,
        /// Its counter.
        counter: u64,
    },
    /// I3: a register that checks tokens took the write of an earlier holder behind that of a later
    /// one.
    StaleWrite {
        /// The resource.
        key: usize,
        /// The job whose write was taken.
        job: usize,
        /// The token of the write.
        token: u64,
    },
    /// I4: an outcome counts a node whose reply to this request did not support it.
    Miscredited {
        /// The job.
        job: usize,
        /// The outcome that counted it.
        what: &'static str,
        /// The node, by the client's number.
        node: usize,
    },
    /// I4: a client closed a link for garbage that the node had not sent.
    BlamedWrongly {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// A client sent a request before the node had accepted its password and database.
    AskedAtTheDoor {
        /// The client.
        client: usize,
        /// The node, by the client's number.
        node: usize,
    },
    /// I5: faults have ended, all jobs have released, and a key is left.
    KeySurvives {
        /// The resource.
        key: usize,
        /// The node.
        node: usize,
        /// The job whose key it is.
        job: usize,
    },
    /// I5: a node that could not undo received a lock request, and granted it.
    KeptForGood {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// I6: a call returned too late, or not at all.
    Late {
        /// The job.
        job: usize,
        /// The call.
        call: &'static str,
        /// The excess in microseconds.
        by_us: u64,
    },
    /// I7: memory use exceeds its limit.
    Unbounded {
        /// The client.
        client: usize,
        /// The quantity that exceeds it.
        what: &'static str,
        /// Its size.
        amount: usize,
    },
    /// I8: a lock was extended after its release began.
    ExtendedAfterRelease {
        /// The job.
        job: usize,
    },
    /// I9: faults have ended, and still the lock cannot be acquired.
    NotLive {
        /// The job that tried.
        job: usize,
        /// Its outcome.
        end: &'static str,
    },
    /// I10: a grant was reported later than the reply that decided it.
    Stalled {
        /// The job.
        job: usize,
        /// The delay in microseconds.
        by_us: u64,
    },
    /// I11: the same seed gave a different run.
    NotDeterministic,
    /// I12: a text for people contains a token or a password.
    Leaked {
        /// The text.
        place: &'static str,
    },
    /// A lock ended twice, or got an outcome that its state does not allow.
    Outcome {
        /// The job.
        job: usize,
        /// The outcome.
        what: &'static str,
    },
    /// `CLIENT KILL` hit a connection of another client.
    KilledStranger {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// A client wrote bytes that are not a request.
    Malformed {
        /// The client.
        client: usize,
    },
    /// The core panicked.
    Panicked {
        /// The panic message.
        message: String,
    },
    /// A timer fires again and again although no time passes.
    Spins {
        /// The client.
        client: usize,
    },
    /// A waiter retries again and again without a pause.
    Hasty {
        /// The job.
        job: usize,
    },
    /// A waiter sleeps for long although its resource is free.
    Slept {
        /// The job.
        job: usize,
        /// The excess in microseconds.
        by_us: u64,
    },
    /// A waiter sends a node request after request while another job holds the lock.
    Frenzy {
        /// The job.
        job: usize,
        /// The number of requests.
        times: u64,
        /// The period in microseconds.
        within_us: u64,
    },
    /// One client acquires the lock again and again, and another waits for it.
    Greedy {
        /// The job that waits.
        job: usize,
        /// The client that has it.
        client: usize,
    },
    /// A job was granted a lock before one that waited in the queue when it came.
    Passed {
        /// The job that was granted the lock.
        job: usize,
        /// The job that waits, and whose place a quorum knew when the other came.
        passed: usize,
    },
    /// All jobs have ended, and a node keeps data of a queue without waiters.
    QueueSurvives {
        /// The resource.
        key: usize,
        /// The node.
        node: usize,
    },
    /// A rule of the queue was broken on a node, or in what was sent to it.
    QueueRule {
        /// The job whose request showed it.
        job: usize,
        /// The node.
        node: usize,
        /// The action of the node or the client.
        what: &'static str,
    },
    /// A lock overtook another of the same client.
    OutOfTurn {
        /// The job that was granted.
        job: usize,
        /// The job that had come earlier.
        before: usize,
    },
    /// With a minority of hanging nodes, locks take far longer than with all nodes alive.
    Dragged {
        /// The number of nodes.
        nodes: usize,
        /// Percent of the time with all nodes alive: for the whole run, and for the slowest
        /// hundredth of hand-offs.
        percent: (u64, u64),
    },
    /// Waiters do not receive their library's messages of releases, on nodes that send no
    /// notifications.
    Deaf {
        /// The number of grants of one process.
        fewest: usize,
        /// The number of all grants.
        grants: usize,
    },
    /// A waiting lock sends request after request to hanging nodes.
    Piled {
        /// The number of nodes that hang.
        hung: usize,
        /// The number of requests sent to them.
        asks: u64,
    },
    /// The schedule has more events than any schedule needs.
    Endless,
}

impl Violation {
    /// Returns its name, with the number of the invariant if it has one.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TwoHolders { .. } => "I1 two-holders",
            Self::NoQuorumBehind { .. } => "I1 no-quorum-behind",
            Self::NotLinearizable { .. } => "I1 not-linearizable",
            Self::TokenOrder { .. } => "I2 token-order",
            Self::WildCounter { .. } => "I2 wild-counter",
            Self::StaleWrite { .. } => "I3 stale-write",
            Self::Miscredited { .. } => "I4 miscredited",
            Self::BlamedWrongly { .. } => "I4 blamed-wrongly",
            Self::AskedAtTheDoor { .. } => "asked-at-the-door",
            Self::KeySurvives { .. } => "I5 key-survives",
            Self::KeptForGood { .. } => "I5 kept-for-good",
            Self::Late { .. } => "I6 late",
            Self::Unbounded { .. } => "I7 unbounded",
            Self::ExtendedAfterRelease { .. } => "I8 extended-after-release",
            Self::NotLive { .. } => "I9 not-live",
            Self::Stalled { .. } => "I10 stalled",
            Self::NotDeterministic => "I11 not-deterministic",
            Self::Leaked { .. } => "I12 leaked",
            Self::Outcome { .. } => "outcome",
            Self::KilledStranger { .. } => "killed-stranger",
            Self::Malformed { .. } => "malformed",
            Self::Panicked { .. } => "panicked",
            Self::Spins { .. } => "spins",
            Self::Hasty { .. } => "hasty",
            Self::Slept { .. } => "slept",
            Self::Frenzy { .. } => "frenzy",
            Self::Greedy { .. } => "greedy",
            Self::Passed { .. } => "passed",
            Self::QueueSurvives { .. } => "queue-survives",
            Self::QueueRule { .. } => "queue-rule",
            Self::OutOfTurn { .. } => "out-of-turn",
            Self::Dragged { .. } => "dragged",
            Self::Deaf { .. } => "deaf",
            Self::Piled { .. } => "piled",
            Self::Endless => "endless",
        }
    }

    /// Returns true if mutual exclusion failed, which some classes expect.
    #[must_use]
    pub fn is_exclusion(&self) -> bool {
        matches!(
            self,
            Self::TwoHolders { .. }
                | Self::NoQuorumBehind { .. }
                | Self::NotLinearizable { fenced: false, .. }
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::TwoHolders { key, holder, rival } => {
                write!(f, "jobs {holder} and {rival} both hold resource {key} validly")
            }
            Self::NoQuorumBehind { key, job, nodes } => {
                write!(f, "job {job} holds resource {key} validly, and {nodes} nodes keep its key")
            }
            Self::NotLinearizable { key, operations, fenced } => write!(
                f,
                "no order explains the {operations} operations on resource {key}{}",
                if *fenced { " and their tokens" } else { "" }
            ),
            Self::TokenOrder { key, earlier, later } => {
                write!(f, "on resource {key} the token {later} followed {earlier}")
            }
            Self::WildCounter { key, node, counter } => {
                write!(f, "node {node} counts {counter} for resource {key}, from a wild clock")
            }
            Self::StaleWrite { key, job, token } => write!(
                f,
                "the register of resource {key} took the write of job {job} with the token {token} \
                 although a later holder had written"
            ),
            Self::Miscredited { job, what, node } => {
                write!(f, "{what} of job {job} counts node {node}, whose answer did not say so")
            }
            Self::BlamedWrongly { client, node } => {
                write!(
                    f,
                    "client {client} hung up on node {node} for garbage that the node had not sent"
                )
            }
            Self::AskedAtTheDoor { client, node } => {
                write!(
                    f,
                    "client {client} sent node {node} a request before the node had let it in"
                )
            }
            Self::KeySurvives { key, node, job } => {
                write!(f, "a key of job {job} for resource {key} is left on node {node}")
            }
            Self::KeptForGood { client, node } => write!(
                f,
                "node {node} granted client {client} a lock, and could not undo already before the handshake"
            ),
            Self::Late { job, call, by_us } => {
                write!(f, "{call} of job {job} returned {by_us} us too late")
            }
            Self::Unbounded { client, what, amount } => {
                write!(f, "client {client} keeps {amount} {what}")
            }
            Self::ExtendedAfterRelease { job } => {
                write!(f, "job {job} was extended after its release had begun")
            }
            Self::NotLive { job, end } => {
                write!(f, "all faults are healed, and job {job} {end}")
            }
            Self::Stalled { job, by_us } => {
                write!(
                    f,
                    "the grant of job {job} was reported {by_us} us after its quorum had answered"
                )
            }
            Self::NotDeterministic => f.write_str("the same seed gave a different run"),
            Self::Leaked { place } => write!(f, "{place} shows a token or a password"),
            Self::Outcome { job, what } => write!(f, "job {job} was told {what}"),
            Self::KilledStranger { client, node } => {
                write!(f, "client {client} killed another client's connection on node {node}")
            }
            Self::Malformed { client } => {
                write!(f, "client {client} wrote bytes that are no request")
            }
            Self::Panicked { message } => f.write_str(message),
            Self::Spins { client } => {
                write!(f, "a timer of client {client} fires again and again at one instant")
            }
            Self::Hasty { job } => write!(f, "job {job} retries again and again without a pause"),
            Self::Slept { job, by_us } => {
                write!(f, "job {job} slept {by_us} us too long beside a free resource")
            }
            Self::Frenzy { job, times, within_us } => {
                write!(
                    f,
                    "job {job} sent a node {times} requests within {within_us} us while another held the lock"
                )
            }
            Self::Greedy { job, client } => {
                write!(f, "client {client} acquires the lock again and again while job {job} waits")
            }
            Self::Passed { job, passed } => {
                write!(
                    f,
                    "job {job} came once a quorum knew the place of job {passed}, and was granted before it"
                )
            }
            Self::QueueSurvives { key, node } => {
                write!(
                    f,
                    "node {node} keeps something of a queue for resource {key} in which nobody stands"
                )
            }
            Self::QueueRule { job, node, what } => {
                write!(f, "an ask of job {job} in the queue at node {node} {what}")
            }
            Self::OutOfTurn { job, before } => {
                write!(f, "job {job} overtook job {before} of the same client")
            }
            Self::Dragged { nodes, percent: (all, hand_off) } => write!(
                f,
                "with a minority of {nodes} nodes hanging, the run takes {all} % of the time with all nodes \
                 alive, and the p99 of hand-offs is {hand_off} %"
            ),
            Self::Deaf { fewest, grants } => write!(
                f,
                "where only the library tells of releases, a process gets {fewest} of {grants} grants"
            ),
            Self::Piled { hung, asks } => {
                write!(f, "a waiting lock sent {asks} requests to {hung} hanging nodes")
            }
            Self::Endless => f.write_str("the schedule never ends"),
        }
    }
}

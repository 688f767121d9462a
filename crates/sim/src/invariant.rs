//! What must hold, and what is said when it does not.
//!
//! Each invariant has a variant of its own with what is needed to understand the failure. Most are
//! watched online, where the event happens that can break them; the checks are beside these events.

use std::fmt;

/// A rule that was broken. Numbers of clients, nodes and jobs begin with zero, as in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// I1: two locks on one resource are valid at the same instant.
    TwoHolders {
        /// The resource.
        key: usize,
        /// The job that held it.
        holder: usize,
        /// The job that was told that it holds it.
        rival: usize,
    },
    /// I1: a lock is valid, and fewer than a quorum of nodes keep its key.
    NoQuorumBehind {
        /// The resource.
        key: usize,
        /// The job that relies on it.
        job: usize,
        /// How many nodes keep it.
        nodes: usize,
    },
    /// I1, checked offline: no order of the operations explains the history.
    NotLinearizable {
        /// The resource.
        key: usize,
        /// The operations of its history.
        operations: usize,
        /// Whether the fencing tokens are part of the history.
        fenced: bool,
    },
    /// I2: a later holder has no larger token.
    TokenOrder {
        /// The resource.
        key: usize,
        /// The token of the earlier holder.
        earlier: u64,
        /// The token of the later one.
        later: u64,
    },
    /// I2: a fencing counter is of a clock that only a minority of the nodes has.
    WildCounter {
        /// The resource.
        key: usize,
        /// The node.
        node: usize,
        /// What it has counted.
        counter: u64,
    },
    /// I3: a resource that checks tokens took the write of an earlier holder behind that of a later.
    StaleWrite {
        /// The resource.
        key: usize,
        /// The job whose write was taken.
        job: usize,
        /// The token that it showed.
        token: u64,
    },
    /// I4: an outcome counts a node that had not said so to this request.
    Miscredited {
        /// The job.
        job: usize,
        /// What was counted.
        what: &'static str,
        /// The node as the client names it.
        node: usize,
    },
    /// I4: a link was closed for nonsense that the node had not said.
    BlamedWrongly {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// A node was asked before it had let the client in, in its database.
    AskedAtTheDoor {
        /// The client.
        client: usize,
        /// The node as the client names it.
        node: usize,
    },
    /// I5: faults are over, everybody let go, and a key is left.
    KeySurvives {
        /// The resource.
        key: usize,
        /// The node.
        node: usize,
        /// The job whose key it is.
        job: usize,
    },
    /// I5: a node that could not let go of it again was asked for a lock, and granted it.
    KeptForGood {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// I6: a call came back too late, or not at all.
    Late {
        /// The job.
        job: usize,
        /// The call.
        call: &'static str,
        /// By how many microseconds.
        by_us: u64,
    },
    /// I7: more than the cap is kept.
    Unbounded {
        /// The client.
        client: usize,
        /// What is kept.
        what: &'static str,
        /// How much.
        amount: usize,
    },
    /// I8: a lock was extended after its release began.
    ExtendedAfterRelease {
        /// The job.
        job: usize,
    },
    /// I9: faults are over, and still nobody gets the lock.
    NotLive {
        /// The job that asked.
        job: usize,
        /// What became of it.
        end: &'static str,
    },
    /// I10: a grant was told later than the answer that decided it.
    Stalled {
        /// The job.
        job: usize,
        /// By how many microseconds.
        by_us: u64,
    },
    /// I11: the same seed gave another run.
    NotDeterministic,
    /// I12: a text for people shows a token or a password.
    Leaked {
        /// Which text.
        place: &'static str,
    },
    /// A lock ended twice, or an outcome came that its state cannot have.
    Outcome {
        /// The job.
        job: usize,
        /// The outcome.
        what: &'static str,
    },
    /// `CLIENT KILL` met a connection that was not the client's own.
    KilledStranger {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// A client wrote what is no request.
    Malformed {
        /// The client.
        client: usize,
    },
    /// The core panicked.
    Panicked {
        /// What it said.
        message: String,
    },
    /// A timer is due again and again although no time passes.
    Spins {
        /// The client.
        client: usize,
    },
    /// A waiter asks again and again without a pause.
    Hasty {
        /// The job.
        job: usize,
    },
    /// Somebody waits for long although nobody has what it wants.
    Slept {
        /// The job.
        job: usize,
        /// How many microseconds too long.
        by_us: u64,
    },
    /// A waiter asks a node over and over while another holds the lock.
    Frenzy {
        /// The job.
        job: usize,
        /// How many times.
        times: u64,
        /// Within so many microseconds.
        within_us: u64,
    },
    /// One client has the lock again and again, and another waits for it.
    Greedy {
        /// The job that waits.
        job: usize,
        /// The client that has it.
        client: usize,
    },
    /// A lock overtook another of the same client.
    OutOfTurn {
        /// The job that was granted.
        job: usize,
        /// The job that had come earlier.
        before: usize,
    },
    /// With a minority of nodes that hang, those who want one lock get it far slower than with all alive.
    Dragged {
        /// How many nodes there are.
        nodes: usize,
        /// What it takes of what it takes with all alive, in percent: the whole, and the slowest hundredth
        /// of hand-offs.
        percent: (u64, u64),
    },
    /// A lock that waits asks nodes that hang again and again.
    Piled {
        /// How many nodes hang.
        hung: usize,
        /// How many times it asked them.
        asks: u64,
    },
    /// More happens than can be meant.
    Endless,
}

impl Violation {
    /// Its name: the invariant's, where it has one.
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
            Self::OutOfTurn { .. } => "out-of-turn",
            Self::Dragged { .. } => "dragged",
            Self::Piled { .. } => "piled",
            Self::Endless => "endless",
        }
    }

    /// Whether it says that exclusion failed, which some classes expect.
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
                write!(f, "on resource {key} the token {later} came after {earlier}")
            }
            Self::WildCounter { key, node, counter } => {
                write!(
                    f,
                    "node {node} has counted to {counter} for resource {key}, by a wild clock"
                )
            }
            Self::StaleWrite { key, job, token } => write!(
                f,
                "the register of resource {key} took the write of job {job} with the token {token} \
                 although a later holder had written"
            ),
            Self::Miscredited { job, what, node } => {
                write!(f, "{what} of job {job} counts node {node}, which had not said so")
            }
            Self::BlamedWrongly { client, node } => {
                write!(f, "client {client} hung up on node {node} for nonsense it had not said")
            }
            Self::AskedAtTheDoor { client, node } => {
                write!(f, "client {client} asked node {node}, which had not let it in before")
            }
            Self::KeySurvives { key, node, job } => {
                write!(f, "a key of job {job} for resource {key} is left on node {node}")
            }
            Self::KeptForGood { client, node } => write!(
                f,
                "node {node} granted client {client} what it could not undo since before it was handshake_done"
            ),
            Self::Late { job, call, by_us } => {
                write!(f, "{call} of job {job} came back {by_us} us too late")
            }
            Self::Unbounded { client, what, amount } => {
                write!(f, "client {client} keeps {amount} {what}")
            }
            Self::ExtendedAfterRelease { job } => {
                write!(f, "job {job} was extended after its release had begun")
            }
            Self::NotLive { job, end } => {
                write!(f, "all is well again, and job {job} {end}")
            }
            Self::Stalled { job, by_us } => {
                write!(f, "the grant of job {job} was told {by_us} us after its quorum answered")
            }
            Self::NotDeterministic => f.write_str("the same seed gave another run"),
            Self::Leaked { place } => write!(f, "{place} shows a token or a password"),
            Self::Outcome { job, what } => write!(f, "job {job} was told {what}"),
            Self::KilledStranger { client, node } => {
                write!(f, "client {client} killed a stranger's connection on node {node}")
            }
            Self::Malformed { client } => write!(f, "client {client} wrote what is no request"),
            Self::Panicked { message } => f.write_str(message),
            Self::Spins { client } => {
                write!(f, "a timer of client {client} is due again and again at one instant")
            }
            Self::Hasty { job } => write!(f, "job {job} asks again and again without a pause"),
            Self::Slept { job, by_us } => {
                write!(f, "job {job} waited {by_us} us too long for what nobody had")
            }
            Self::Frenzy { job, times, within_us } => {
                write!(
                    f,
                    "job {job} asked a node {times} times within {within_us} us of another's hold"
                )
            }
            Self::Greedy { job, client } => {
                write!(f, "client {client} has the lock again and again while job {job} waits")
            }
            Self::OutOfTurn { job, before } => {
                write!(f, "job {job} overtook job {before} of the same client")
            }
            Self::Dragged { nodes, percent: (all, hand_off) } => write!(
                f,
                "with a minority of {nodes} nodes that hangs it takes {all} % of what it takes with all \
                 alive, and the p99 of hand-offs {hand_off} %"
            ),
            Self::Piled { hung, asks } => {
                write!(f, "a lock that waited asked nodes that hang, {hung} of them, {asks} times")
            }
            Self::Endless => f.write_str("it never comes to rest"),
        }
    }
}

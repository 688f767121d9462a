//! The failure of a call: the status, the text, and each node's part. `error` has the functions
//! that read it.

use std::ffi::CString;

use redbolt::report::{NodeReport, NodeVote, Vote};
use redbolt::{
    AcquireError, ConfigError, DetachedLockError, EngineError, ExtendError, LockLost,
    RefusalReport, RequestError, SetupError, StartError,
};

use crate::status::Status;

/// The error of a call: a status, one line of text that names the nodes, and the part of each node.
/// `redbolt_error_free` ends it.
pub struct Failure {
    status: Status,
    pub(crate) message: CString,
    pub(crate) is_contended: bool,
    pub(crate) nodes: Vec<NodePart>,
}

/// The part of one node.
pub(crate) struct NodePart {
    pub(crate) number: u32,
    pub(crate) vote: NodeAnswer,
    pub(crate) address: CString,
    pub(crate) message: CString,
}

/// The answer of a node.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// The node was not asked, or not waited for.
    None = 0,
    /// The node has granted.
    Granted = 1,
    /// Another client holds the resource there.
    Denied = 2,
    /// The node does not vote: its message has the reason.
    Failed = 3,
}

impl Failure {
    pub(crate) fn new(status: Status, message: &str) -> Self {
        Self { status, message: words(message), is_contended: false, nodes: Vec::new() }
    }

    /// Returns a failure whose status needs no other text.
    pub(crate) fn plain(status: Status) -> Self {
        let message = status.message().to_owned();
        Self { status, message, is_contended: false, nodes: Vec::new() }
    }

    pub(crate) fn argument(message: &str) -> Self {
        Self::new(Status::InvalidArgument, message)
    }

    pub(crate) fn panicked() -> Self {
        Self::plain(Status::Panicked)
    }

    /// Returns an error if the handle belongs to the process that this one was forked from.
    pub(crate) fn unless_ours(is_ours: bool) -> Result<(), Self> {
        match is_ours {
            true => Ok(()),
            false => Err(RequestError::Forked.into()),
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    pub(crate) fn contended(message: &str) -> Self {
        Self { is_contended: true, ..Self::new(Status::Contended, message) }
    }

    /// Returns an error if too few nodes are ready.
    pub(crate) fn unless_quorum(report: &NodeReport) -> Result<(), Self> {
        if report.has_quorum() {
            return Ok(());
        }
        Err(Self::of_nodes(report))
    }

    /// Returns a failure with the state of all nodes.
    pub(crate) fn of_nodes(report: &NodeReport) -> Self {
        Self { nodes: of_report(report), ..Self::new(Status::NoQuorum, &report.to_string()) }
    }

    pub(crate) fn setup(error: &SetupError) -> Self {
        let nodes = match error {
            SetupError::Guarded(report)
            | SetupError::Incomplete(report)
            | SetupError::Unready(report) => of_report(report),
            _ => Vec::new(),
        };
        Self { nodes, ..Self::new(Status::Setup, &error.to_string()) }
    }
}

/// Returns each node with its state. None of them has voted.
fn of_report(report: &NodeReport) -> Vec<NodePart> {
    let part = |node: &redbolt::report::NodeStatus| NodePart {
        number: u32::try_from(node.number).unwrap_or(u32::MAX),
        vote: NodeAnswer::None,
        address: words(&node.address.to_string()),
        message: words(&node.to_string()),
    };
    report.nodes.iter().map(part).collect()
}

fn of_vote(node: &NodeVote) -> NodePart {
    NodePart {
        number: u32::try_from(node.number).unwrap_or(u32::MAX),
        vote: match node.vote {
            None => NodeAnswer::None,
            Some(Vote::Grant) => NodeAnswer::Granted,
            Some(Vote::Deny) => NodeAnswer::Denied,
            Some(_) => NodeAnswer::Failed,
        },
        address: words(&node.address.to_string()),
        message: words(&node.to_string()),
    }
}

impl From<RefusalReport> for Failure {
    fn from(report: RefusalReport) -> Self {
        Self {
            status: report.reason().into(),
            message: words(&report.to_string()),
            is_contended: report.is_contended(),
            nodes: report.node_votes().iter().map(of_vote).collect(),
        }
    }
}

impl From<LockLost> for Failure {
    fn from(lost: LockLost) -> Self {
        Self::new(Status::Lost, &lost.to_string())
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let status = match error {
            RequestError::Forked => Status::Forked,
            _ => Status::Request,
        };
        Self::new(status, &error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let status = match error {
            EngineError::Busy { .. } => Status::Busy,
            EngineError::Forked => Status::Forked,
            _ => Status::ShutDown,
        };
        Self::new(status, &error.to_string())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Engine(error) => error.into(),
            AcquireError::Lost(lost) => lost.into(),
            AcquireError::Request(error) => error.into(),
            AcquireError::Refused(report) => report.into(),
            other => Self::new(Status::Request, &other.to_string()),
        }
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        match error {
            ExtendError::Lost(lost) => lost.into(),
            ExtendError::Request(error) => error.into(),
            ExtendError::Refused(report) => report.into(),
            other => Self::new(Status::Request, &other.to_string()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Status::Config, &error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(Status::Start, &error.to_string())
    }
}

impl From<DetachedLockError> for Failure {
    fn from(error: DetachedLockError) -> Self {
        Self::argument(&error.to_string())
    }
}

/// Returns a text for the host, without zero bytes, which would end it too early.
pub(crate) fn words(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<_>>();
    CString::new(bytes).expect("the zero bytes are gone")
}

//! One connection, from a client's socket to a server's: bytes in flight in both directions.

use redbolt::proto::LinkId;
use redbolt_node::model::ConnId;
use redbolt_testkit::Flow;

/// A connection, which outlives the client's socket, because the server may still run what was
/// written.
pub(crate) struct Wire {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) link: LinkId,
    /// The time at which the client's socket is connected.
    pub(crate) open_at: u64,
    pub(crate) state: State,
    /// `true` if the client's socket exists.
    pub(crate) alive: bool,
    /// `true` if bytes to the server are held back until a test releases them.
    pub(crate) held: bool,
    pub(crate) flow: Flow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Open(ConnId),
    /// The server's end is closed, and the client has not noticed.
    Forgotten,
    /// The server's end is closed.
    Ended,
}

impl Wire {
    pub(crate) fn new(client: usize, link: LinkId, open_at: u64) -> Self {
        Self {
            client,
            node: link.node().index(),
            link,
            open_at,
            state: State::Connecting,
            alive: true,
            held: false,
            flow: Flow::default(),
        }
    }
}

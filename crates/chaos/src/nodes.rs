//! A set of servers, and direct queries of their keys, without redbolt.

use std::time::Duration;

use redbolt::Client;
use redbolt::proto::restart_guard::Standing;
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::part::Part;
use crate::stage::{Failure, RESOURCE};

/// Declares these nodes new, as an operator does with `redbolt init`.
pub(crate) fn init(part: &Part) -> Result<(), Failure> {
    if part.guarded {
        redbolt::init(&part.config()?, LIMIT)?;
    }
    Ok(())
}

/// Returns the arguments of a worker on these nodes.
pub(crate) fn part(nodes: Vec<String>, max_ttl: Duration, guarded: bool, label: &str) -> Part {
    let director = std::process::id();
    Part { director, nodes, max_ttl, guarded, label: label.to_owned() }
}

/// Returns true if the restart guard lets a node vote.
pub(crate) fn votes(server: &Server) -> bool {
    matches!(
        server.cmd("PTTL redbolt:guard"),
        Reply::Int(pttl) if Standing::of(pttl) == Standing::Votes
    )
}

/// Waits until all nodes vote, up to [`LIMIT`]. The workers may have ended before they reached a
/// node that lost its memory, so `client` enrols it.
pub(crate) fn all_vote(servers: &[Server], client: &Client) -> Result<(), Failure> {
    eventually("all nodes vote", || {
        client.warm_up(LOOK);
        servers.iter().all(votes)
    })
}

/// Returns true if a node has the resource's key with this label. A mark of waiters follows the
/// token on a separate line.
pub(crate) fn keeps_for(server: &Server, label: &str) -> bool {
    let Reply::Bulk(value) = server.cmd(&format!("GET {RESOURCE}")) else { return false };
    let value = String::from_utf8_lossy(&value);
    let (token, _mark) = value.split_once('\n').unwrap_or((&value, ""));
    token.ends_with(&format!(":{label}"))
}

/// Waits until the condition holds, up to [`LIMIT`].
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) -> Result<(), Failure> {
    Ok(redbolt_test_servers::until(what, LIMIT, holds)?)
}

/// One client's proxies to the nodes, each of which can be cut.
pub(crate) struct Ways(Vec<Proxy>);

impl Ways {
    pub(crate) fn to(servers: &[Server]) -> Self {
        Self(servers.iter().map(|server| Proxy::before(&server.address())).collect())
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.0.iter().map(Proxy::address).collect()
    }

    /// Sets the mode of these proxies; all others pass everything.
    pub(crate) fn set(&self, cut: &[usize], mode: Mode) {
        for (at, way) in self.0.iter().enumerate() {
            way.set(if cut.contains(&at) { mode } else { Mode::Pass });
        }
    }
}

/// The maximum duration of any wait of a run.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// The time for which a client inspects the nodes at a time.
const LOOK: Duration = Duration::from_millis(100);

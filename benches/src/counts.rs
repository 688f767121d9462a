//! How often the nodes ran a command, by their own count, which no client can hide.

use anyhow::{Context, Result, bail};
use redbolt_test_servers::{Connection, Reply, Server};

/// Reads the counters of a set of nodes, over connections of its own.
pub struct Counts {
    connections: Vec<Connection>,
}

impl Counts {
    /// Connects to all nodes.
    #[must_use]
    pub fn of(servers: &[Server]) -> Self {
        Self { connections: servers.iter().map(Server::connect).collect() }
    }

    /// How many `SET`s each node has run since its start, including those of scripts.
    ///
    /// # Errors
    ///
    /// A node gives another reply.
    pub fn sets(&mut self) -> Result<Vec<u64>> {
        self.connections.iter_mut().map(sets).collect()
    }
}

fn sets(connection: &mut Connection) -> Result<u64> {
    let info = match connection.try_run(&[b"INFO", b"commandstats"])? {
        Reply::Bulk(info) => info,
        other => bail!("INFO was answered with {other:?}"),
    };
    let info = String::from_utf8(info)?;
    let Some(line) = info.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")) else {
        return Ok(0);
    };
    line.split(',').next().and_then(|calls| calls.parse().ok()).context("no number of calls")
}

#[cfg(test)]
mod tests {
    use redbolt_test_servers::servers;

    use super::*;

    #[test]
    fn sets_are_counted_node_by_node() {
        let servers = servers(2);
        let mut counts = Counts::of(&servers);
        assert_eq!(counts.sets().unwrap(), [0, 0]);
        servers[1].cmd("SET a 1");
        servers[1].cmd("GET a");
        servers[1].cmd("SET a 1 NX");
        assert_eq!(counts.sets().unwrap(), [0, 2]);
    }
}

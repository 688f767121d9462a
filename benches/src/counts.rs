//! The work of the nodes, by their own count, which no client can hide.

use std::ops::{Add, Sub};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redbolt_test_servers::{Connection, Reply, Server};

/// A reader of the counters of a set of nodes, over separate connections.
pub struct Counts {
    connections: Vec<Connection>,
}

impl Counts {
    /// Connects to all nodes.
    #[must_use]
    pub fn of(servers: &[Server]) -> Self {
        Self { connections: servers.iter().map(Server::connect).collect() }
    }

    /// Returns the usage of all nodes together since their start.
    ///
    /// # Errors
    ///
    /// A node gives another reply.
    pub fn usage(&mut self) -> Result<NodeUsage> {
        let own = |connection: &mut Connection| {
            NodeUsage::read(&(info(connection, "stats")? + &info(connection, "cpu")?))
        };
        self.connections.iter_mut().try_fold(NodeUsage::default(), |sum, node| Ok(sum + own(node)?))
    }

    /// Returns how many `SET`s each node has run since its start, including those of scripts.
    ///
    /// # Errors
    ///
    /// A node gives another reply.
    pub fn sets(&mut self) -> Result<Vec<u64>> {
        self.connections.iter_mut().map(sets).collect()
    }
}

/// The usage of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// The CPU time of their processes.
    pub cpu: Duration,
    /// The number of reads from a connection: requests that came together are one.
    pub reads: u64,
    /// The number of writes to a connection: replies and notifications that left together are one.
    pub writes: u64,
}

impl NodeUsage {
    fn read(info: &str) -> Result<Self> {
        let seconds = |name| -> Result<f64> { Ok(value(info, name)?.parse()?) };
        let number = |name| -> Result<u64> { Ok(value(info, name)?.parse()?) };
        let cpu = seconds("used_cpu_sys")? + seconds("used_cpu_user")?;
        Ok(Self {
            cpu: Duration::from_secs_f64(cpu),
            reads: number("total_reads_processed")?,
            writes: number("total_writes_processed")?,
        })
    }
}

impl Add for NodeUsage {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            cpu: self.cpu + more.cpu,
            reads: self.reads + more.reads,
            writes: self.writes + more.writes,
        }
    }
}

impl Sub for NodeUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
        }
    }
}

fn sets(connection: &mut Connection) -> Result<u64> {
    let info = info(connection, "commandstats")?;
    let Ok(line) = value(&info, "cmdstat_set") else { return Ok(0) };
    let calls = line.strip_prefix("calls=").and_then(|line| line.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).context("no number of calls")
}

fn info(connection: &mut Connection, section: &str) -> Result<String> {
    match connection.try_run(&[b"INFO", section.as_bytes()])? {
        Reply::Bulk(info) => Ok(String::from_utf8(info)?),
        other => bail!("INFO was answered with {other:?}"),
    }
}

/// Returns the text after the name and a colon.
fn value<'a>(info: &'a str, name: &str) -> Result<&'a str> {
    let of = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(of).with_context(|| format!("INFO has no {name}"))
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
    #[test]
    fn nodes_count_what_they_read_and_write() {
        let servers = servers(2);
        let mut counts = Counts::of(&servers);
        let before = counts.usage().unwrap();
        servers.iter().for_each(|server| drop(server.cmd("PING")));
        let used = counts.usage().unwrap() - before;
        assert!(used.reads >= 2 && used.writes >= 2, "{used:?}");
        assert!(NodeUsage::read("used_cpu_sys:1.0\r\n").is_err());
    }
}

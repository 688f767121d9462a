//! The holder of the lock while another client waits, and how the hold ends.
//!
//! A contender releases its own lock, another program deletes the key, or the key expires.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redbolt_test_servers::{Connection, Reply, Server};

use super::contract::PATIENCE;
use crate::contender::Contender;

/// A client that holds the lock, and releases it.
pub trait Holder {
    /// Takes the lock, which is free.
    ///
    /// # Errors
    ///
    /// It was not free.
    fn take(&mut self) -> Result<()>;

    /// Releases it. Returns the time from which the hand-off counts.
    ///
    /// # Errors
    ///
    /// It was not held.
    fn let_go(&mut self) -> Result<Instant>;
}

/// The way in which a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasedBy {
    /// The holder is of the waiter's kind and releases. Counted from the start of its release.
    Own,
    /// Another program sends `DEL` to all nodes on its open connections. Counted from its first
    /// byte.
    Del,
    /// One `redis-cli` for each node, started before, gets `DEL` on its standard input. Counted
    /// from before the first write.
    RedisCli,
    /// The keys expire. Counted from the TTL after the begin of the first SET.
    Nobody,
}

impl ReleasedBy {
    /// All ways, with their names on the command line.
    pub const ALL: [(&'static str, Self); 4] = [
        ("own", Self::Own),
        ("del", Self::Del),
        ("redis-cli", Self::RedisCli),
        ("nobody", Self::Nobody),
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Del => "del",
            Self::RedisCli => "redis-cli",
            Self::Nobody => "nobody",
        }
    }
}

impl std::str::FromStr for ReleasedBy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|&(_, by)| by)
            .ok_or_else(|| format!("one of {}", Self::ALL.map(|(known, _)| known).join(", ")))
    }
}

/// A contender that releases what it holds.
pub(super) struct Own(pub(super) Box<dyn Contender>);

impl Holder for Own {
    fn take(&mut self) -> Result<()> {
        self.0.acquire()
    }

    fn let_go(&mut self) -> Result<Instant> {
        let start = Instant::now();
        self.0.release()?;
        Ok(start)
    }
}

/// Another kind of program, with a key on each node.
pub(super) struct Other {
    connections: Vec<Connection>,
    resource: String,
    how: How,
    /// The number of times that it has held the lock.
    times: u32,
    expires: Option<Instant>,
}

enum How {
    Del,
    RedisCli(Vec<Cli>),
    Expire,
}

impl Other {
    pub(super) fn new(servers: &[Server], resource: &str, by: ReleasedBy) -> Result<Self> {
        let how = match by {
            ReleasedBy::RedisCli => {
                How::RedisCli(servers.iter().map(Cli::start).collect::<Result<_>>()?)
            }
            ReleasedBy::Nobody => How::Expire,
            ReleasedBy::Del | ReleasedBy::Own => How::Del,
        };
        let connections = servers.iter().map(Server::connect).collect();
        Ok(Self { connections, resource: resource.to_owned(), how, times: 0, expires: None })
    }

    /// Waits until the lock is free: a `DEL`, or the undo of a waiter, may still be in flight to
    /// the slowest node. It does not use `SET`, which is counted.
    fn await_free(&mut self) -> Result<()> {
        let (until, exists) = (Instant::now() + PATIENCE, format!("EXISTS {}", self.resource));
        for connection in &mut self.connections {
            while connection.cmd(&exists) != Reply::Int(0) {
                ensure!(Instant::now() < until, "{exists} is never answered with 0");
                thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    fn run_on_all(&mut self, line: &str, expected: &Reply) -> Result<()> {
        for connection in &mut self.connections {
            connection.send(format!("{line}\r\n").as_bytes());
        }
        for connection in &mut self.connections {
            let reply = connection.try_reply()?;
            ensure!(reply == *expected, "{line} was answered with {reply:?}");
        }
        Ok(())
    }
}

impl Holder for Other {
    fn take(&mut self) -> Result<()> {
        self.times += 1;
        let ttl = match self.how {
            How::Expire => {
                spread(self.times, Duration::from_millis(120), Duration::from_millis(100))
            }
            How::Del | How::RedisCli(_) => PATIENCE,
        };
        self.await_free()?;
        let start = Instant::now();
        let set = format!("SET {} somebody-else NX PX {}", self.resource, ttl.as_millis());
        self.run_on_all(&set, &Reply::Status("OK".into()))?;
        self.expires = Some(start + Duration::from_millis(ttl.as_millis() as u64));
        Ok(())
    }

    fn let_go(&mut self) -> Result<Instant> {
        let start = Instant::now();
        let del = format!("DEL {}", self.resource);
        match &mut self.how {
            How::Del => self.run_on_all(&del, &Reply::Int(1))?,
            How::RedisCli(programs) => programs.iter_mut().try_for_each(|cli| cli.say(&del))?,
            How::Expire => return self.expires.take().context("no lock is held"),
        }
        Ok(start)
    }
}

/// A `redis-cli` that waits for commands.
struct Cli {
    program: Child,
    input: Option<ChildStdin>,
}

impl Cli {
    fn start(server: &Server) -> Result<Self> {
        let mut program = Command::new("redis-cli")
            .args(["-p", &server.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("redis-cli does not start here")?;
        let input = program.stdin.take();
        Ok(Self { program, input })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("redis-cli has a standard input")?;
        Ok(writeln!(input, "{line}")?)
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        self.input = None;
        // A failure here cannot be handled; the program may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Returns a span between `least` and `least + range`, evenly distributed over successive calls.
pub(super) fn spread(times: u32, least: Duration, range: Duration) -> Duration {
    // Multiples of the golden ratio are far apart from one another.
    least + range.mul_f64((f64::from(times) * 0.618_033_988_749_895).fract())
}

#[cfg(test)]
mod tests {
    use redbolt_test_servers::servers;

    use super::*;

    #[test]
    fn another_program_holds_once_the_slowest_node_is_free() {
        let servers = servers(3);
        let mut other = Other::new(&servers, "slow", ReleasedBy::Del).unwrap();
        servers[2].cmd("SET slow somebody PX 200");
        other.take().unwrap();
        for server in &servers {
            assert_eq!(server.cmd("GET slow"), Reply::Bulk(b"somebody-else".to_vec()));
        }
    }
}

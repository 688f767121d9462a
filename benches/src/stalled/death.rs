//! The ways in which a node can die, applied to real servers on loopback.
//!
//! A network that loses the packets of open connections is not among them. To a client, a stopped
//! process looks the same except for the kernel's acknowledgements, which no client sees.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use redbolt_test_servers::{Server, servers};

/// The way in which a node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is killed: connections end, and new ones are refused.
    Refused,
    /// The process is stopped and its accept queue is full, so that a SYN gets no answer.
    Blackholed,
    /// The process is stopped (SIGSTOP): the kernel accepts bytes and connections, but no answer
    /// comes.
    Stopped,
}

impl Death {
    /// All ways, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Refused, Self::Blackholed, Self::Stopped];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Blackholed => "blackholed",
            Self::Stopped => "stopped",
        }
    }

    /// Starts nodes, all alive, that can die in this way.
    #[must_use]
    pub fn servers(self, n: usize) -> Vec<Server> {
        match self {
            Self::Refused | Self::Stopped => servers(n),
            // A short queue fills up sooner.
            Self::Blackholed => (0..n).map(|_| Server::with(&["--tcp-backlog", BACKLOG])).collect(),
        }
    }
}

/// The nodes that will die. Dropping them kills them for good.
pub struct Victims {
    death: Death,
    servers: Vec<Server>,
    /// The connections that fill their queues.
    queued: Vec<TcpStream>,
}

impl Victims {
    /// Returns victims that stay alive until [`die`](Self::die).
    #[must_use]
    pub fn new(death: Death, servers: Vec<Server>) -> Self {
        Self { death, servers, queued: Vec::new() }
    }

    /// Lets all of them die, one after another, within milliseconds.
    ///
    /// # Errors
    ///
    /// A queue does not fill up, because this system does not behave like Linux.
    pub fn die(&mut self) -> Result<()> {
        match self.death {
            Death::Refused => self.servers.iter_mut().for_each(Server::kill),
            Death::Stopped | Death::Blackholed => self.servers.iter().for_each(Server::pause),
        }
        if self.death == Death::Blackholed {
            for server in &self.servers {
                self.queued.extend(fill(server.address().parse()?)?);
            }
        }
        Ok(())
    }
}

/// Connects until no connection is accepted any more.
fn fill(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, UNANSWERED) {
        queued.push(stream);
        ensure!(
            queued.len() < MOST,
            "{address} answers {MOST} connections that it does not accept"
        );
    }
    Ok(queued)
}

/// The length of the accept queue, enough for the clients that connect while the nodes are alive.
const BACKLOG: &str = "4";
const MOST: usize = 64;

/// The time after which a SYN on loopback, otherwise answered within microseconds, gets no answer.
const UNANSWERED: Duration = Duration::from_millis(30);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use redbolt_test_servers::Reply;

    use super::*;

    #[test]
    fn each_death_looks_to_a_client_as_documented() {
        for death in Death::ALL {
            let servers = death.servers(1);
            let address = servers[0].address();
            let mut open = servers[0].connect();
            assert_eq!(open.cmd("PING"), Reply::Status("PONG".into()));
            let mut victims = Victims::new(death, servers);
            victims.die().unwrap();
            let connect =
                TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_millis(300));
            match death {
                Death::Refused => {
                    assert_eq!(connect.unwrap_err().kind(), ErrorKind::ConnectionRefused);
                    assert!(open.try_run(&[b"PING"]).is_err());
                }
                Death::Blackholed => {
                    assert_eq!(connect.unwrap_err().kind(), ErrorKind::TimedOut);
                    open.send(b"PING\r\n");
                    assert!(open.is_silent_for(Duration::from_millis(100)));
                }
                Death::Stopped => {
                    connect.unwrap();
                    open.send(b"PING\r\n");
                    assert!(open.is_silent_for(Duration::from_millis(100)));
                }
            }
        }
    }
}

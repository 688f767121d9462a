//! Requests that run after their own undo, from connections that the client has lost.
//!
//! A lock request is in flight when the client loses the connection; the client reconnects and
//! undoes the request; then the request arrives. Stopping the server makes that order certain:
//! first the undo is in its sockets, then the request arrives, then the server continues. A client
//! that may kill its old connection leaves nothing behind. Otherwise the request runs, becomes
//! visible, and is undone at half of the TTL. After a restart the old connection's ID belongs to
//! another client, which must not be killed.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{Config, Driver, LockRequest, report::NodeState};
use redbolt_test_servers::{Connection, Mode, Proxy, Reply, Server};

use crate::nodes::{self, LIMIT};
use crate::stage::Failure;

/// Lets requests run late.
#[derive(Clone, Debug)]
pub struct Ghosts {
    /// The number of repetitions in which the client may kill its old connection.
    pub reps: usize,
    /// The number of repetitions in which it may not.
    pub controls: usize,
    /// The number of repetitions in which the server is restarted.
    pub restarts: usize,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct GhostsResult {
    /// The number of repetitions in which the client may kill its old connection, without a restart
    /// of the server.
    pub reps: usize,
    /// The number of these repetitions in which the old connection was killed.
    pub kills: usize,
    /// The number of these repetitions in which kill and undo ran before the server was stopped.
    pub early: usize,
    /// The number of keys that were left.
    pub residual: usize,
    /// The number of repetitions in which the client may not kill.
    pub controls: usize,
    /// The number of these repetitions in which the request ran after its undo.
    pub seen: usize,
    /// The number of these repetitions in which its key still existed after the undo at half of the
    /// TTL.
    pub kept: usize,
    /// The number of repetitions in which the server was restarted.
    pub restarts: usize,
    /// The number of connections of other clients with the ID of the lost one, which a kill would
    /// have hit.
    pub strangers: usize,
    /// The number of connections of other clients that were killed.
    pub strangers_killed: usize,
    /// The duration of the run.
    pub took: Duration,
    wanted: (usize, usize, usize),
}

impl GhostsResult {
    /// Returns true if no key was left, no other client was hit, and the controls had ghosts.
    #[must_use]
    pub fn holds(&self) -> bool {
        let (reps, controls, restarts) = self.wanted;
        let laid = self.residual == 0 && self.kills == self.reps && self.kept == 0;
        // The order of the bytes and the connection IDs are likely, not certain.
        let controlled = 2 * self.seen >= controls && 2 * self.strangers >= restarts;
        let all = (self.reps, self.controls, self.restarts) == (reps, controls, restarts);
        laid && controlled && self.strangers_killed == 0 && all
    }
}

impl fmt::Display for GhostsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ghosts: {} repetitions, {} old connections ended ", self.reps, self.kills)?;
        write!(f, "({} before the server was stopped), {} keys left; ", self.early, self.residual)?;
        write!(f, "without the right to kill them: {} repetitions, ", self.controls)?;
        write!(
            f,
            "{} requests ran after their undo, {} keys left at half time; ",
            self.seen, self.kept
        )?;
        write!(f, "{} restarts, {} other clients with the ", self.restarts, self.strangers)?;
        write!(f, "old id, {} of them killed; ", self.strangers_killed)?;
        write!(f, "{:.1} s", self.took.as_secs_f64())
    }
}

impl Ghosts {
    /// Runs all repetitions.
    ///
    /// # Errors
    ///
    /// Fails if a server failed, or an expected event did not happen in time.
    pub fn run(&self) -> Result<GhostsResult, Failure> {
        let start = Instant::now();
        let wanted = (self.reps, self.controls, self.restarts);
        let mut result = GhostsResult { wanted, ..GhostsResult::default() };
        self.lay(&mut result)?;
        self.let_run(&mut result)?;
        self.restart(&mut result)?;
        result.took = start.elapsed();
        Ok(result)
    }

    /// Runs the repetitions in which the client may kill its old connection.
    fn lay(&self, result: &mut GhostsResult) -> Result<(), Failure> {
        let server = new_server()?;
        let mut last = None;
        for at in 0..self.reps {
            let resource = format!("job-{at}");
            let killed = server.calls(KILL);
            let mut ghost_client = GhostClient::new(&server, &resource, LONG)?;
            ghost_client.connect_again(&server)?;
            let early = server.calls(KILL) > killed;
            ghost_client.run_behind_the_undo(&server)?;
            ghost_client.settle();
            result.reps += 1;
            result.kills += usize::from(server.calls(KILL) > killed);
            result.early += usize::from(early);
            // A key that appears later is counted in the next repetition.
            let left = exists(&server, &resource);
            result.residual += usize::from(left);
            let before: Option<String> = std::mem::replace(&mut last, (!left).then_some(resource));
            result.residual += usize::from(before.is_some_and(|key| exists(&server, &key)));
        }
        Ok(())
    }

    /// Runs the repetitions in which it may not.
    fn let_run(&self, result: &mut GhostsResult) -> Result<(), Failure> {
        let server = new_server()?;
        server.cmd("ACL SETUSER default -client|kill");
        for at in 0..2 * self.controls {
            if result.controls == self.controls {
                break;
            }
            let resource = format!("job-{at}");
            let asked = Instant::now();
            let mut ghost_client = GhostClient::new(&server, &resource, SHORT)?;
            ghost_client.connect_again(&server)?;
            ghost_client.run_behind_the_undo(&server)?;
            let until = Instant::now() + MOMENT * 10;
            while !exists(&server, &resource) && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            let seen = exists(&server, &resource);
            ghost_client
                .process_until("the undo at half time", |driver| !driver.has_pending_releases())?;
            let kept = exists(&server, &resource);
            // A machine that stalled for longer proves nothing: the key would have expired anyway.
            if asked.elapsed() < SHORT {
                result.controls += 1;
                result.seen += usize::from(seen);
                result.kept += usize::from(kept);
            }
        }
        Ok(())
    }

    /// Runs the repetitions in which the server restarts.
    fn restart(&self, result: &mut GhostsResult) -> Result<(), Failure> {
        let mut server = new_server()?;
        for _ in 0..self.restarts {
            server.cmd("DEL redbolt:guard");
            nodes::init(&nodes::part(vec![server.address()], MAX_TTL, true, "operator"))?;
            // Connection ids of the next run must not exceed the lost one.
            let crowd: Vec<Connection> = (0..CROWD).map(|_| server.connect()).collect();
            let mut ghost_client = GhostClient::new(&server, "job", LONG)?;
            drop(crowd);
            let old = ghost_client.connection;
            ghost_client.proxy.set(Mode::Refuse);
            server.restart();
            let mut strangers = strangers(&server, old);
            ghost_client.proxy.set(Mode::Pass);
            let scripts = |server: &Server| server.calls("eval") + server.calls("evalsha");
            // The first run of the script restores the node's restart guard.
            ghost_client.process_until("the undo", |_| scripts(&server) >= 2)?;
            ghost_client.process_for(MOMENT);
            result.restarts += 1;
            result.strangers_killed += strangers.iter_mut().filter_map(is_dead).count();
            result.strangers_killed += usize::from(server.calls(KILL) > 0);
            // The kill hits now, so it would have hit if the client had sent it.
            let hit = server.cmd(&format!("CLIENT KILL ID {old}")) == Reply::Int(1);
            let dead = strangers.iter_mut().filter_map(is_dead).count();
            result.strangers += usize::from(hit && dead == 1);
        }
        Ok(())
    }
}

/// Opens connections to a server that was just started, up to the one with this ID.
fn strangers(server: &Server, last: i64) -> Vec<Connection> {
    let mut strangers = Vec::new();
    loop {
        let mut stranger = server.connect();
        let Reply::Int(id) = stranger.cmd("CLIENT ID") else { return strangers };
        strangers.push(stranger);
        if id >= last {
            return strangers;
        }
    }
}

fn is_dead(stranger: &mut Connection) -> Option<()> {
    stranger.try_run(&[b"PING"]).err().map(drop)
}

/// A client that has lost the connection on which its request is in flight.
struct GhostClient {
    driver: Driver,
    proxy: Proxy,
    /// The ID of the lost connection.
    connection: i64,
}

impl GhostClient {
    /// Creates the client. It finds the connection refused; the proxy holds its request back and
    /// keeps the connection to the server open.
    fn new(server: &Server, resource: &str, ttl: Duration) -> Result<Self, Failure> {
        let proxy = Proxy::before(&server.address());
        let config = Config::builder()
            .max_ttl(MAX_TTL)
            .response_timeout(LIMIT)
            .connect_timeout(LIMIT)
            .dead_peer_timeout(LIMIT)
            .reconnect_backoff(Duration::from_millis(1), Duration::from_millis(4))
            .node(&proxy.address())
            .build()?;
        let mut ghost_client = Self { driver: Driver::new(config)?, proxy, connection: 0 };
        let is_ready =
            |driver: &mut Driver| driver.node_report().nodes[0].state == NodeState::Ready;
        ghost_client.process_until("the node is ready", is_ready)?;
        ghost_client.connection = newest_connection(server)?;
        ghost_client.proxy.set(Mode::Stall);
        ghost_client.driver.acquire(LockRequest::new(resource.as_bytes()).ttl(ttl))?;
        // Until the proxy has the request.
        ghost_client.process_for(MOMENT);
        ghost_client.proxy.set(Mode::Orphan);
        Ok(ghost_client)
    }

    /// Reconnects the client, up to the point at which it would kill its old connection: the reply
    /// to its handshake has arrived, but was not read yet.
    fn connect_again(&mut self, server: &Server) -> Result<(), Failure> {
        let handshake_done = server.calls("client|id");
        let driver = &mut self.driver;
        nodes::eventually("the client is back", || {
            if server.calls("client|id") > handshake_done {
                return true;
            }
            driver.process();
            thread::sleep(Duration::from_millis(1));
            false
        })
    }

    /// Makes the server read kill and undo first, and then the request.
    fn run_behind_the_undo(&mut self, server: &Server) -> Result<(), Failure> {
        server.pause();
        self.process_for(MOMENT);
        self.proxy.set(Mode::Pass);
        thread::sleep(MOMENT);
        server.resume();
        Ok(())
    }

    /// Waits until nothing is owed, for at most a second: a client that may not kill would wait for
    /// half of the TTL.
    fn settle(&mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        while self.driver.has_pending_releases() && Instant::now() < until {
            self.process_for(Duration::from_millis(1));
        }
        thread::sleep(MOMENT);
    }

    fn process_for(&mut self, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until {
            self.driver.process();
            thread::sleep(Duration::from_micros(500));
        }
    }

    fn process_until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Driver) -> bool,
    ) -> Result<(), Failure> {
        let driver = &mut self.driver;
        nodes::eventually(what, || {
            driver.process();
            while driver.poll_event().is_some() {}
            holds(driver)
        })
    }
}

fn new_server() -> Result<Server, Failure> {
    let server = Server::start();
    nodes::init(&nodes::part(vec![server.address()], MAX_TTL, true, "operator"))?;
    Ok(server)
}

/// Returns the largest ID among redbolt connections.
fn newest_connection(server: &Server) -> Result<i64, Failure> {
    let Reply::Bulk(list) = server.cmd("CLIENT LIST") else {
        return Err("CLIENT LIST gave no list".into());
    };
    let list = String::from_utf8(list)?;
    let ours = list.lines().filter(|line| line.contains(" name=redbolt "));
    let id = ours.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok());
    id.max().ok_or_else(|| "the server has no connection of redbolt".into())
}

fn exists(server: &Server, key: &str) -> bool {
    server.cmd(&format!("EXISTS {key}")) == Reply::Int(1)
}

const KILL: &str = "client|kill";
const MAX_TTL: Duration = Duration::from_secs(30);

/// A number of connections larger than a server accepts while it starts.
const CROWD: usize = 60;

/// A TTL longer than every check.
const LONG: Duration = Duration::from_secs(25);

/// A TTL that is short, because half of it is waited for.
const SHORT: Duration = Duration::from_millis(1500);

/// A time that is usually long enough for bytes to get from one process to another.
const MOMENT: Duration = Duration::from_millis(4);

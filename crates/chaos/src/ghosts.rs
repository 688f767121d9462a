//! Asks that run behind their own undo, out of connections that the client has lost.
//!
//! The ask is on its way when the client loses the connection; it comes back on a new one and undoes
//! what it asked for; then the ask arrives. A stopped server puts that into a sure order: the undo is in
//! its sockets first, the ask comes behind it, and then it goes on. With the right to end its old
//! connection the client leaves nothing behind. Without it the ask runs, is seen, and is undone at half
//! of the TTL. After a restart the old connection's number is a stranger's, who must be left alone.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{Config, Driver, LockRequest, report::NodeState};
use redbolt_test_servers::{Connection, Mode, Proxy, Reply, Server};

use crate::Failure;
use crate::nodes::{self, LIMIT, calls};

/// Lets asks run late.
#[derive(Clone, Debug)]
pub struct Ghosts {
    /// Repetitions with the right to end connections.
    pub reps: usize,
    /// Repetitions without it.
    pub controls: usize,
    /// Repetitions in which the server is restarted.
    pub restarts: usize,
}

/// What the repetitions came to.
#[derive(Clone, Debug, Default)]
pub struct GhostsResult {
    /// Repetitions with the right to end connections, on the same run of the server.
    pub reps: usize,
    /// Of these, those in which the old connection was ended.
    pub kills: usize,
    /// Of these, those in which the end and the undo ran before the server was stopped.
    pub early: usize,
    /// Keys that were left.
    pub residual: usize,
    /// Repetitions without that right.
    pub controls: usize,
    /// Of these, those in which the ask ran behind its undo.
    pub seen: usize,
    /// Of these, those in which its key was still there after the undo at half of the TTL.
    pub kept: usize,
    /// Repetitions in which the server was restarted.
    pub restarts: usize,
    /// Connections of strangers with the number of the lost one, which a kill would have hit.
    pub strangers: usize,
    /// Strangers' connections that were ended.
    pub strangers_killed: usize,
    /// How long it took.
    pub took: Duration,
    wanted: (usize, usize, usize),
}

impl GhostsResult {
    /// Whether nothing was left and no stranger was hit, and the controls saw the ghosts.
    #[must_use]
    pub fn holds(&self) -> bool {
        let (reps, controls, restarts) = self.wanted;
        let laid = self.residual == 0 && self.kills == self.reps && self.kept == 0;
        // The order of the bytes and the numbers of connections are likely, not certain.
        let controlled = 2 * self.seen >= controls && 2 * self.strangers >= restarts;
        let all = (self.reps, self.controls, self.restarts) == (reps, controls, restarts);
        laid && controlled && self.strangers_killed == 0 && all
    }
}

impl fmt::Display for GhostsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ghosts: {} repetitions, {} old connections ended ", self.reps, self.kills)?;
        write!(f, "({} before the server was stopped), {} keys left; ", self.early, self.residual)?;
        write!(f, "without the right to end them: {} repetitions, ", self.controls)?;
        write!(
            f,
            "{} asks ran behind their undo, {} keys left at half time; ",
            self.seen, self.kept
        )?;
        write!(f, "{} restarts, {} strangers with the ", self.restarts, self.strangers)?;
        write!(f, "old number, {} of them ended; ", self.strangers_killed)?;
        write!(f, "{:.1} s", self.took.as_secs_f64())
    }
}

impl Ghosts {
    /// Runs all repetitions.
    ///
    /// # Errors
    ///
    /// A server failed, or something did not happen in time.
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

    /// With the right to end connections.
    fn lay(&self, result: &mut GhostsResult) -> Result<(), Failure> {
        let server = new_server()?;
        let mut last = None;
        for at in 0..self.reps {
            let resource = format!("job-{at}");
            let killed = calls(&server, KILL);
            let mut ghost_client = GhostClient::new(&server, &resource, LONG)?;
            ghost_client.connect_again(&server)?;
            let early = calls(&server, KILL) > killed;
            ghost_client.run_behind_the_undo(&server)?;
            ghost_client.settle();
            result.reps += 1;
            result.kills += usize::from(calls(&server, KILL) > killed);
            result.early += usize::from(early);
            // What comes later than that is seen the next time.
            let left = exists(&server, &resource);
            result.residual += usize::from(left);
            let before: Option<String> = std::mem::replace(&mut last, (!left).then_some(resource));
            result.residual += usize::from(before.is_some_and(|key| exists(&server, &key)));
        }
        Ok(())
    }

    /// Without it.
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
            // A machine that stood still for so long proves nothing: the key would be gone anyway.
            if asked.elapsed() < SHORT {
                result.controls += 1;
                result.seen += usize::from(seen);
                result.kept += usize::from(kept);
            }
        }
        Ok(())
    }

    /// On another run of the server.
    fn restart(&self, result: &mut GhostsResult) -> Result<(), Failure> {
        let mut server = new_server()?;
        for _ in 0..self.restarts {
            server.cmd("DEL redbolt:guard");
            nodes::init(&nodes::part(vec![server.address()], MAX_TTL, true, "operator"))?;
            // The numbers of the next run must not be past the one that is lost.
            let crowd: Vec<Connection> = (0..CROWD).map(|_| server.connect()).collect();
            let mut ghost_client = GhostClient::new(&server, "job", LONG)?;
            drop(crowd);
            let old = ghost_client.connection;
            ghost_client.proxy.set(Mode::Refuse);
            server.restart();
            let mut strangers = strangers(&server, old);
            ghost_client.proxy.set(Mode::Pass);
            let scripts = |server: &Server| calls(server, "eval") + calls(server, "evalsha");
            // The first gives the node a restart guard again.
            ghost_client.process_until("the undo", |_| scripts(&server) >= 2)?;
            ghost_client.process_for(MOMENT);
            result.restarts += 1;
            result.strangers_killed += strangers.iter_mut().filter_map(is_dead).count();
            result.strangers_killed += usize::from(calls(&server, KILL) > 0);
            // Had it been said, it would have hit: it hits now.
            let hit = server.cmd(&format!("CLIENT KILL ID {old}")) == Reply::Int(1);
            let dead = strangers.iter_mut().filter_map(is_dead).count();
            result.strangers += usize::from(hit && dead == 1);
        }
        Ok(())
    }
}

/// Connections to a server that was just started, the last of which has this number.
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

/// A client that has lost the connection in which its ask is on its way.
struct GhostClient {
    driver: Driver,
    proxy: Proxy,
    /// The number of the lost connection.
    connection: i64,
}

impl GhostClient {
    /// The client is refused; its ask is held in the proxy, its connection to the server is open.
    fn new(server: &Server, resource: &str, ttl: Duration) -> Result<Self, Failure> {
        let proxy = Proxy::before(&server.address());
        let config = Config::builder()
            .max_ttl(MAX_TTL)
            .response_timeout(LIMIT)
            .connect_timeout(LIMIT)
            .dead_peer_timeout(LIMIT)
            .reconnect_backoff(Duration::from_millis(1), Duration::from_millis(4))
            .node(&proxy.address())?
            .build()?;
        let mut ghost_client = Self { driver: Driver::new(config)?, proxy, connection: 0 };
        let is_ready =
            |driver: &mut Driver| driver.node_report().nodes[0].state == NodeState::Ready;
        ghost_client.process_until("the node is ready", is_ready)?;
        ghost_client.connection = newest_connection(server)?;
        ghost_client.proxy.set(Mode::Stall);
        ghost_client.driver.acquire(LockRequest::new(resource.as_bytes()).ttl(ttl))?;
        // Until the proxy has taken it.
        ghost_client.process_for(MOMENT);
        ghost_client.proxy.set(Mode::Orphan);
        Ok(ghost_client)
    }

    /// The client connects again, up to where it would end its old connection: the answer to its
    /// handshake is there, and was not read yet.
    fn connect_again(&mut self, server: &Server) -> Result<(), Failure> {
        let handshake_done = calls(server, "client|id");
        let driver = &mut self.driver;
        nodes::eventually("the client is back", || {
            if calls(server, "client|id") > handshake_done {
                return true;
            }
            driver.process();
            thread::sleep(Duration::from_millis(1));
            false
        })
    }

    /// The server reads end and undo first, and behind them the ask.
    fn run_behind_the_undo(&mut self, server: &Server) -> Result<(), Failure> {
        server.pause();
        self.process_for(MOMENT);
        self.proxy.set(Mode::Pass);
        thread::sleep(MOMENT);
        server.resume();
        Ok(())
    }

    /// Until nothing is owed. A client that cannot end its connection would wait for half of the TTL.
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

/// The largest number among redbolt's connections.
fn newest_connection(server: &Server) -> Result<i64, Failure> {
    let Reply::Bulk(list) = server.cmd("CLIENT LIST") else {
        return Err("no list of clients".into());
    };
    let list = String::from_utf8(list)?;
    let ours = list.lines().filter(|line| line.contains(" name=redbolt "));
    let id = ours.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok());
    id.max().ok_or_else(|| "the client has no connection".into())
}

fn exists(server: &Server, key: &str) -> bool {
    server.cmd(&format!("EXISTS {key}")) == Reply::Int(1)
}

const KILL: &str = "client|kill";
const MAX_TTL: Duration = Duration::from_secs(30);

/// More connections than a server sees while it starts.
const CROWD: usize = 60;

/// Outlasts every check.
const LONG: Duration = Duration::from_secs(25);

/// Is waited out, by half.
const SHORT: Duration = Duration::from_millis(1500);

/// In which bytes get from one process to another, mostly.
const MOMENT: Duration = Duration::from_millis(4);

//! A server as the only node of a set, redbolt on it, and waits that end.

use std::ffi::OsStr;
use std::time::Duration;

use redbolt::report::{LockState, NodeStatus};
use redbolt::{Client, Config, Driver, LockId, LockRequest, Wait};
use redbolt_test_servers::{Reply, Server};

use crate::cell::Failure;

/// A new server.
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) max_ttl: Duration,
    user: &'static str,
}

impl Node {
    pub(crate) fn start(program: &OsStr, args: &[&str]) -> Result<Self, Failure> {
        Ok(Self { server: Server::try_of(program, args)?, max_ttl: MAX_TTL, user: "" })
    }

    /// Starts a server that an operator has initialised.
    pub(crate) fn set_up(program: &OsStr, args: &[&str]) -> Result<Self, Failure> {
        let node = Self::start(program, args)?;
        redbolt::init(&node.config()?, LIMIT)?;
        Ok(node)
    }

    /// Lets clients connect as this user from now on, who has these rights on `jobs:*`.
    pub(crate) fn come_as(&mut self, user: &'static str, rules: &[String]) -> Result<(), Failure> {
        let rules = rules.join(" ");
        let set = format!("ACL SETUSER {user} on >secret -@all ~jobs:* {rules}");
        match self.server.cmd(&set) {
            Reply::Status(_) => self.user = user,
            other => return Err(format!("{other:?} to the rules of {user}").into()),
        }
        Ok(())
    }

    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let address = self.server.address();
        let address = match self.user {
            "" => address,
            user => format!("redis://{user}:secret@{address}"),
        };
        let builder = Config::builder().node(&address).max_ttl(self.max_ttl);
        Ok(builder.response_timeout(LATE).build()?)
    }

    /// Returns a client with its own connections, like a separate process.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.config()?)?)
    }

    /// Returns `true` if the server has such a command.
    pub(crate) fn knows(&self, command: &str) -> bool {
        match self.server.cmd(&format!("COMMAND INFO {command}")) {
            Reply::Array(found) => found.iter().any(|it| *it != Reply::Nil),
            _ => false,
        }
    }
}

/// A lock that waits in a separate driver, which this process runs.
pub(crate) struct Waiter {
    driver: Driver,
    id: LockId,
}

impl Waiter {
    pub(crate) fn come(node: &Node, name: &str) -> Result<Self, Failure> {
        let mut driver = Driver::new(node.config()?)?;
        let id = driver.acquire(request(name).wait(Wait::UpTo(LIMIT)))?;
        Ok(Self { driver, id })
    }

    pub(crate) fn process(&mut self) {
        self.driver.process();
        while self.driver.poll_event().is_some() {}
    }

    /// Returns the status of its node.
    pub(crate) fn status(&self) -> Option<NodeStatus> {
        self.driver.node_report().nodes.into_iter().next()
    }

    /// Returns the time after which it retries without a notification, once it waits.
    pub(crate) fn timer(&self) -> Option<Duration> {
        (self.driver.state(self.id) == LockState::Pausing).then(|| self.driver.timeout())?
    }

    pub(crate) fn is_held(&self) -> bool {
        self.driver.state(self.id) == LockState::Held
    }

    /// Releases the lock, and waits until that is confirmed.
    pub(crate) fn release(mut self) -> Result<(), Failure> {
        self.driver.release(self.id);
        until("a release is confirmed", || {
            self.process();
            !self.driver.has_pending_releases()
        })
    }
}

/// Returns a request with the longest TTL that the set permits.
pub(crate) fn request(name: &str) -> LockRequest<'_> {
    LockRequest::new(name).ttl(MAX_TTL)
}

/// Waits for a condition, with a bound.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) -> Result<(), Failure> {
    Ok(redbolt_test_servers::until(what, LIMIT, holds)?)
}

/// A TTL that no check outlasts.
const MAX_TTL: Duration = Duration::from_secs(30);

/// A long response timeout: timers of requests are due later than those of pauses.
const LATE: Duration = Duration::from_secs(5);

pub(crate) const LIMIT: Duration = Duration::from_secs(15);

//! Nodes, and redbolt on them in the profile of a library. `peer` has the processes of that
//! library.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{AcquireError, Client, Config, LockRequest, Profile, Wait};
use redbolt_test_servers::{Reply, Server, servers};

use crate::failure::Failure;
use crate::library::Library;
use crate::peer::{LIMIT, Peer};

/// New nodes, on which a library and redbolt lock.
pub(crate) struct Fleet<'l> {
    pub(crate) library: &'l Library,
    pub(crate) servers: Vec<Server>,
}

impl<'l> Fleet<'l> {
    pub(crate) fn start(library: &'l Library, nodes: usize) -> Result<Self, Failure> {
        let fleet = Self { library, servers: servers(nodes) };
        for server in &fleet.servers {
            for user in [User::Deaf, User::Mute, User::Untracked] {
                let rules =
                    format!("ACL SETUSER {user:?} on >{PASSWORD} ~* +@all {}", user.rules());
                if server.cmd(&rules) != Reply::Status("OK".to_owned()) {
                    return Err(format!("{rules}: refused").into());
                }
            }
        }
        fs::write(library.complaints(), "")?;
        redbolt::init(&fleet.config()?, Duration::from_secs(10))?;
        Ok(fleet)
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }

    pub(crate) fn config(&self) -> Result<Config, Failure> {
        self.config_as(User::Default)
    }

    fn config_as(&self, user: User) -> Result<Config, Failure> {
        let node = |server: &Server| match user {
            User::Default => server.address(),
            _ => format!("redis://{user:?}:{PASSWORD}@{}", server.address()),
        };
        let nodes: Vec<_> = self.servers.iter().map(node).collect();
        Ok(Config::builder().nodes(nodes).build()?)
    }

    /// Returns a client of redbolt with its own connections, like a separate process.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_as(User::Default)
    }

    /// Returns a client with the rights of this user.
    pub(crate) fn client_as(&self, user: User) -> Result<Client, Failure> {
        let client = Client::new(self.config_as(user)?)?;
        client.warm_up(Duration::from_secs(10));
        Ok(client)
    }

    /// Starts a process of the library, which connects.
    pub(crate) fn peer(&self) -> Result<Peer, Failure> {
        let mut peer = self.library.start(&self.addresses())?;
        peer.expect("acquire warm-up 0 1000", "held")?;
        peer.expect("release warm-up", "released")?;
        Ok(peer)
    }

    /// Returns redbolt's request for the library's lock of this name.
    pub(crate) fn request(&self, name: &str) -> LockRequest<'static> {
        let request = LockRequest::new(&self.key(name)).into_owned();
        let request = request.format(self.library.profile);
        if self.library.is_fenced { request.fenced() } else { request }
    }

    /// Makes a held lock last forever.
    pub(crate) fn make_endless(&self, name: &str) {
        let key = self.key(name);
        for server in &self.servers {
            server.cmd(&format!("PERSIST {key}"));
            match self.library.profile {
                it if [Profile::REDIS_OBJECTS, Profile::SETNX].contains(&it) => {
                    server.cmd(&format!("SET {key} {A_LATE_SECOND}"));
                }
                it if it == Profile::SYMFONY => {
                    for member in names(server.cmd(&format!("ZRANGE {key} 0 -1"))) {
                        server.cmd(&format!("ZADD {key} +inf {member}"));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the key of the lock.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.library.prefix)
    }

    pub(crate) fn patiently<'n>(&self, name: &'n str) -> LockRequest<'n> {
        self.request(name).wait(Wait::UpTo(LIMIT))
    }

    /// Returns a counter, on the node that has the counters.
    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.servers[0].cmd(&format!("GET {key}")) {
            Reply::Bulk(digits) => String::from_utf8_lossy(&digits).parse().unwrap_or_default(),
            _ => 0,
        }
    }

    /// Deletes the lock without a notification.
    pub(crate) fn delete(&self, name: &str) {
        for server in &self.servers {
            server.cmd(&format!("DEL {}", self.key(name)));
        }
    }

    /// Returns each node's data at the key of the lock.
    pub(crate) fn contents(&self, name: &str) -> Vec<Reply> {
        self.servers.iter().map(|server| server.cmd(&format!("DUMP {}", self.key(name)))).collect()
    }

    /// Returns the unexpected leftovers on the nodes: keys, channels with subscribers, and the
    /// number of patterns.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let is_known = |what: &String| {
            OUR_OWN.iter().any(|own| what == own)
                || self.library.keeps.iter().any(|kept| what.starts_with(kept.what))
        };
        self.servers.iter().flat_map(all_on).filter(|what| !is_known(what)).collect()
    }
}

/// Returns everything on a node, as text.
fn all_on(server: &Server) -> Vec<String> {
    let keys = names(server.cmd("KEYS *")).into_iter().map(|key| format!("key {key}"));
    let channels = names(server.cmd("PUBSUB CHANNELS")).into_iter();
    let mut all: Vec<_> = keys.chain(channels.map(|name| format!("channel {name}"))).collect();
    match server.cmd("PUBSUB NUMPAT") {
        Reply::Int(0) => {}
        Reply::Int(1) => all.push("1 pattern".to_owned()),
        Reply::Int(patterns) => all.push(format!("{patterns} patterns")),
        other => all.push(format!("patterns: {other:?}")),
    }
    all
}

/// Returns the names in a reply. Anything else in it counts as a name, so that it is seen.
pub(crate) fn names(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(names) => names.into_iter().map(text).collect(),
        other => vec![text(other)],
    }
}

pub(crate) fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(name) => String::from_utf8_lossy(&name).into_owned(),
        other => format!("{other:?}"),
    }
}

/// The user as whom redbolt connects to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The user may do everything.
    Default,
    /// The user is neither notified of changes nor may subscribe to channels.
    Deaf,
    /// The user may not publish.
    Mute,
    /// The user is not notified of changes of keys.
    Untracked,
}

impl User {
    /// Returns the rules that follow the permission for all commands and keys.
    fn rules(self) -> &'static str {
        match self {
            Self::Default => "&*",
            Self::Deaf => "resetchannels -client|tracking",
            Self::Mute => "&* -publish",
            Self::Untracked => "&* -client|tracking",
        }
    }
}

const PASSWORD: &str = "interop";

/// The restart guard, the register of the checks, and the push link, which redbolt keeps for 5 s
/// after the last wait.
const OUR_OWN: [&str; 3] = ["key redbolt:guard", "key counter", "channel __redis__:invalidate"];

/// A second of the next century, for formats whose value is a time.
const A_LATE_SECOND: u64 = 4_100_000_000;

/// Returns `true` if redbolt gets a lock without waiting for it.
pub(crate) fn tries(client: &Client, request: LockRequest<'_>) -> Result<bool, Failure> {
    match client.acquire(request) {
        Ok(lock) => {
            lock.release()?;
            Ok(true)
        }
        Err(AcquireError::Refused(report)) if report.is_contended() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a condition, and returns `true` if it came to hold.
pub(crate) fn comes(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + within;
    while !condition() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

//! Three sentinels that watch masters with their replicas, and promote a replica when its master
//! fails.
//!
//! They poll and exchange messages more often than by default if the program supports that
//! (`SENTINEL DEBUG`, since Redis 7.0), because finding each other takes them two seconds
//! otherwise. Their decisions are the same.

use std::time::Duration;

use crate::{client::Reply, server::Server, wait};

/// Three sentinels that have found each other, their masters and the replicas of these.
#[derive(Debug)]
pub struct Sentinels {
    all: Vec<Server>,
}

impl Sentinels {
    /// Starts three sentinels that watch these masters under these names. A master that is silent
    /// for `silence` is replaced by one of its present replicas.
    ///
    /// # Panics If they do not find each other, the masters and the replicas in time.
    pub fn watching(masters: &[(&str, &Server)], silence: Duration) -> Self {
        let this = Self { all: (0..3).map(|_| Server::sentinel(&[])).collect() };
        for sentinel in &this.all {
            // Older servers do not have this command.
            sentinel.cmd(HASTE);
            for (name, master) in masters {
                watch(sentinel, name, master.port(), silence);
            }
        }
        for (name, master) in masters {
            let replicas = replicas_of(master);
            let knows_all = |sentinel: &Server| {
                let known = |what: &str| property(sentinel, name, what);
                known("num-slaves") == replicas && known("num-other-sentinels") == "2"
            };
            until("the sentinels have found each other", || this.all.iter().all(knows_all));
        }
        this
    }

    /// Returns all three sentinels.
    pub fn all(&self) -> &[Server] {
        &self.all
    }

    /// Returns all three sentinels, to kill or replace one of them.
    pub fn all_mut(&mut self) -> &mut [Server] {
        &mut self.all
    }

    /// Returns the port of the master that all of them name, if they agree.
    pub fn master(&self, name: &str) -> Option<u16> {
        let mut named = self.all.iter().map(|sentinel| named_by(sentinel, name));
        let first = named.next()??;
        named.all(|port| port == Some(first)).then_some(first)
    }

    /// Waits until all of them name another master than this one.
    ///
    /// # Panics If that does not happen in time.
    pub fn wait_for_another(&self, name: &str, old: &Server) {
        until("a replica is promoted", || self.master(name).is_some_and(|port| port != old.port()));
    }

    /// Makes one of them promote a replica, as an operator would. The failover has only begun when
    /// this returns.
    ///
    /// # Panics If no replica is fit for it in time.
    pub fn fail_over(&self, name: &str) {
        let order = format!("SENTINEL FAILOVER {name}");
        until("a replica is fit for promotion", || {
            self.all[0].cmd(&order) == Reply::Status("OK".into())
        });
    }
}

/// Makes a sentinel watch a master; two sentinels must agree that it failed.
fn watch(sentinel: &Server, name: &str, port: u16, silence: Duration) {
    let ok = Reply::Status("OK".into());
    assert_eq!(sentinel.cmd(&format!("SENTINEL MONITOR {name} 127.0.0.1 {port} 2")), ok);
    let silence = silence.as_millis();
    let limits = format!("down-after-milliseconds {silence} failover-timeout 2000");
    assert_eq!(sentinel.cmd(&format!("SENTINEL SET {name} {limits}")), ok);
}

fn replicas_of(master: &Server) -> String {
    let Reply::Bulk(info) = master.cmd("INFO replication") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
    count.unwrap().to_owned()
}

/// Returns a sentinel's property of a master, empty if it does not have it.
fn property(sentinel: &Server, name: &str, what: &str) -> String {
    let Reply::Array(pairs) = sentinel.cmd(&format!("SENTINEL MASTER {name}")) else {
        return String::new();
    };
    let value = pairs.chunks(2).find_map(|pair| (text(&pair[0])? == what).then(|| text(&pair[1])));
    value.flatten().unwrap_or_default()
}

fn named_by(sentinel: &Server, name: &str) -> Option<u16> {
    match sentinel.cmd(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}")) {
        Reply::Array(place) => text(place.get(1)?)?.parse().ok(),
        _ => None,
    }
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

fn until(what: &str, holds: impl FnMut() -> bool) {
    wait::until(what, LIMIT, holds).unwrap_or_else(|why| panic!("{why}"));
}

const HASTE: &str =
    "SENTINEL DEBUG info-period 300 publish-period 200 ask-period 200 tilt-period 1000";

/// A limit that allows for several elections on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_promote_the_replica_of_a_failed_master() {
        let [mut master, replica] = [Server::start(), Server::start()];
        replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        until("the replica is attached", || replicas_of(&master) == "1");
        let sentinels = Sentinels::watching(&[("jobs", &master)], Duration::from_secs(4));
        assert_eq!(sentinels.master("jobs"), Some(master.port()));
        assert_eq!(sentinels.master("other"), None);
        master.kill();
        sentinels.wait_for_another("jobs", &master);
        assert_eq!(sentinels.master("jobs"), Some(replica.port()));
    }
}

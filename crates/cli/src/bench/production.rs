//! Checks whether nodes seem to be in use.
//!
//! A node in use has keys or at least clients, and may have replicas. A restart guard is not a
//! sign, since every node of redbolt has one. A node that does not answer counts as a sign too,
//! because harm is worse than a question.

use std::fmt;
use std::io;
use std::time::Duration;

use redbolt::net::Address;
use redbolt::resp::Frame;
use redbolt::{
    Config,
    report::{NodeReport, NodeState},
};

use crate::args::Nodes;
use crate::link::{self, Link, Patience, Place, ask_every_node};

/// The answer of one node.
#[derive(Debug)]
pub(super) struct Told {
    number: usize,
    address: Address,
    answer: Answer,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Seen(Seen),
    /// The node could be reached but gave no usable answer, for this reason.
    Untold(String),
}

/// Possible signs of use.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The number of keys in the database of the locks, without the restart guard.
    keys: u64,
    /// The number of keys in other databases.
    elsewhere: u64,
    replicas: u64,
    /// The number of clients, without the one that asks.
    clients: u64,
}

/// A node that seems to be in use, and why.
#[derive(Debug)]
pub(super) struct Sign {
    number: usize,
    address: Address,
    words: String,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}

/// Asks all nodes at once.
pub(super) fn look(nodes: &Nodes, config: &Config) -> Vec<Told> {
    let restart_guard_key = config.settings().restart_guard_key.clone();
    let within = patience(config);
    let limits = Patience { connect: within, answer: within, total: within };
    let answers =
        ask_every_node(config, Place::all(nodes, config), within, move |config, place| {
            ask(config, place, limits, &restart_guard_key)
                .unwrap_or_else(|error| Answer::Untold(error.to_string()))
        });
    let untold = || Answer::Untold(format!("no answer in {within:?}"));
    let told = config.addresses().iter().zip(answers).enumerate();
    told.map(|(at, (address, answer))| Told {
        number: at + 1,
        address: address.clone(),
        answer: answer.unwrap_or_else(untold),
    })
    .collect()
}

fn ask(
    config: &Config,
    place: &Place,
    limits: Patience,
    restart_guard_key: &[u8],
) -> io::Result<Answer> {
    let commands = [vec![b"PTTL", restart_guard_key], vec![b"INFO"]];
    let replies = Link::open(config, place, limits)?.ask_all(&commands)?;
    let is_guarded = matches!(replies[0], Frame::Int(left) if left != NO_KEY);
    Ok(match link::text(&replies[1]) {
        Ok(info) => Answer::Seen(seen(&info, place.database(), is_guarded)),
        Err(words) => Answer::Untold(words),
    })
}

/// Parses the answer to `INFO`. A missing section is not a sign of use: Redis and Valkey have all
/// sections that are read here.
fn seen(info: &str, database: u32, is_guarded: bool) -> Seen {
    let mut seen = Seen::default();
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        match name {
            "connected_clients" => seen.clients = number(value).saturating_sub(1),
            "connected_slaves" => seen.replicas = number(value),
            _ => {
                let keys = value.strip_prefix("keys=").and_then(|rest| rest.split(',').next());
                let of = name.strip_prefix("db").and_then(|digits| digits.parse::<u32>().ok());
                match (of, keys) {
                    (Some(of), Some(keys)) if of == database => seen.keys = number(keys),
                    (Some(_), Some(keys)) => seen.elsewhere += number(keys),
                    _ => {}
                }
            }
        }
    }
    seen.keys = seen.keys.saturating_sub(is_guarded.into());
    seen
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// Returns the nodes with signs of use.
pub(super) fn signs(told: &[Told]) -> Vec<Sign> {
    let sign = |node: &Told| match &node.answer {
        Answer::Seen(seen) => words(seen).map(|words| node.sign(words)),
        Answer::Untold(_) => None,
    };
    told.iter().filter_map(sign).collect()
}

/// Returns the nodes that grant locks but did not answer this question.
pub(super) fn silent(told: &[Told], ready: &NodeReport) -> Vec<Sign> {
    let sign = |node: &Told| match &node.answer {
        Answer::Untold(reason) => {
            Some(node.sign(format!("it does not tell whether it is: {reason}")))
        }
        Answer::Seen(_) => None,
    };
    let is_ready = |node: &&Told| ready.nodes[node.number - 1].state == NodeState::Ready;
    told.iter().filter(is_ready).filter_map(sign).collect()
}

impl Told {
    fn sign(&self, words: String) -> Sign {
        Sign { number: self.number, address: self.address.clone(), words }
    }
}

/// Describes the signs, or returns `None` if there are none. A single other client may be a
/// developer's.
fn words(seen: &Seen) -> Option<String> {
    let count = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let parts = [
        count(seen.keys, "key", "keys"),
        count(seen.elsewhere, "key in another database", "keys in other databases"),
        count(seen.replicas, "replica", "replicas"),
        count(seen.clients, "other client", "other clients"),
    ];
    let is_used = seen.keys + seen.elsewhere + seen.replicas > 0 || seen.clients > 1;
    is_used.then(|| parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Returns how long a node may take.
fn patience(config: &Config) -> Duration {
    PATIENCE.max(config.settings().response_timeout)
}

/// The least time that a node may take. No lock waits for this, and a slower node is not measured
/// unless `--response-timeout` allows it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reply to `PTTL` for a missing key.
const NO_KEY: i64 = -2;

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Clients\r\nconnected_clients:4\r\n# Replication\r\nrole:master\r\n\
        connected_slaves:1\r\nslave0:ip=1.2.3.4,port=1,state=online\r\n\
        # Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=7\r\ndb2:keys=5,expires=0,avg_ttl=0\r\n";

    #[test]
    fn info_is_read_for_the_database_of_the_locks() {
        let expected = Seen { keys: 2, elsewhere: 5, replicas: 1, clients: 3 };
        assert_eq!(seen(INFO, 0, true), expected);
        let expected = Seen { keys: 5, elsewhere: 3, replicas: 1, clients: 3 };
        assert_eq!(seen(INFO, 2, false), expected);
        assert_eq!(seen("", 0, true), Seen::default());
    }

    #[test]
    fn a_restart_guard_and_one_other_client_are_no_signs() {
        assert_eq!(words(&Seen { clients: 1, ..Seen::default() }), None);
        let told = |seen: &Seen| words(seen).unwrap();
        assert_eq!(told(&Seen { clients: 2, ..Seen::default() }), "2 other clients");
        assert_eq!(told(&Seen { keys: 1, clients: 1, ..Seen::default() }), "1 key, 1 other client");
        assert_eq!(
            told(&Seen { elsewhere: 7, replicas: 1, ..Seen::default() }),
            "7 keys in other databases, 1 replica"
        );
    }
}

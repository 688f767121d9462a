//! The control of the value that a profile writes at the key: redbolt's lock with a changed value
//! does not exclude the peer.
//!
//! The control of `exclusion` is another key. This one differs from profile to profile.

use std::time::Duration;

use redbolt::Profile;
use redbolt_test_servers::Server;

use crate::failure::Failure;
use crate::fleet::{Fleet, names, text};

use super::common::{LONG, held};

/// Returns the value that was wrong when the peer was granted a lock that redbolt holds.
pub(super) fn control(fleet: &Fleet<'_>) -> Result<String, Failure> {
    let (wrong, order) = match fleet.library.profile {
        it if it == Profile::SPRING || HASHES.contains(&it) => ("its own owner", "acquire"),
        it if TIMES.contains(&it) => ("a time that is over", "acquire"),
        it if it == Profile::SYMFONY => ("no mark of a writer", "read"),
        // For the other profiles, any value at the key excludes.
        _ => return Ok(String::new()),
    };
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    peer.expect("acquire field 0 20000", "held")?;
    let owners: Vec<_> = fleet.servers.iter().map(|server| owner(fleet, server)).collect();
    peer.expect("release field", "released")?;
    let _lock = client.acquire(fleet.request("field").ttl(LONG))?;
    if peer.tries("field", Duration::from_secs(20))? {
        return Err("it was granted what redbolt holds".into());
    }
    for (server, owner) in fleet.servers.iter().zip(owners) {
        spoil(fleet, server, &owner);
    }
    peer.order(&format!("{order} field 0 20000"))?;
    let (reply, _) = peer.reply()?;
    held(&reply).map_err(|error| format!("control: {error} in spite of {wrong}"))?;
    fleet.delete("field");
    Ok(format!(", granted over {wrong}"))
}

/// Returns the name of the holder on a node: a value, or the field of a hash.
fn owner(fleet: &Fleet<'_>, server: &Server) -> String {
    let key = fleet.key("field");
    match fleet.library.profile {
        it if HASHES.contains(&it) => {
            let fields = names(server.cmd(&format!("HKEYS {key}")));
            fields.into_iter().find(|field| field != "mode").unwrap_or_default()
        }
        _ => text(server.cmd(&format!("GET {key}"))),
    }
}

/// Changes redbolt's lock so that the peer does not take it for another holder's.
fn spoil(fleet: &Fleet<'_>, server: &Server, owner: &str) {
    let key = fleet.key("field");
    match fleet.library.profile {
        it if HASHES.contains(&it) => {
            let ours = self::owner(fleet, server);
            server.cmd(&format!("HSET {key} {owner} 1"));
            server.cmd(&format!("HDEL {key} {ours}"));
        }
        it if it == Profile::SYMFONY => drop(server.cmd(&format!("ZREM {key} __write__"))),
        it if it == Profile::SPRING => drop(server.cmd(&format!("SET {key} {owner} KEEPTTL"))),
        _ => drop(server.cmd(&format!("SET {key} 1"))),
    }
}

const HASHES: [Profile; 2] = [Profile::REDISSON, Profile::REDISSON_RW];
const TIMES: [Profile; 2] = [Profile::REDIS_OBJECTS, Profile::SETNX];

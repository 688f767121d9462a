//! Both sides have their fencing tokens from one counter, so that a store can compare them.

use redbolt::Client;

use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::peer::Peer;

use super::common::{Extent, Found, release};

/// Checks that each later holder has a larger token, unless the counter is lost.
pub(super) fn check(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    if !fleet.library.is_fenced {
        return Ok(Found::none());
    }
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    let mut tokens = Vec::new();
    for _ in 0..TURNS {
        tokens.push(its_token(&mut peer)?);
        tokens.push(token_of_redbolt(fleet, &client)?);
    }
    if !tokens.is_sorted_by(|one, next| one < next) {
        return Err(format!("tokens in turn, its own first: {tokens:?}").into());
    }
    for forgets in ["it", "redbolt"] {
        for server in &fleet.servers {
            server.cmd(&format!("DEL redisson_lock_token:{{{}}}", fleet.key(NAME)));
        }
        let next = match forgets {
            "it" => its_token(&mut peer)?,
            _ => token_of_redbolt(fleet, &client)?,
        };
        if tokens.last() < Some(&next) {
            return Err(format!("control: {forgets} has {next} without the counter").into());
        }
    }
    let words = format!(
        "{} tokens in turn, each larger than that before (control: not without the counter)",
        tokens.len()
    );
    Ok(Found::new("fencing", words))
}

fn its_token(peer: &mut Peer) -> Result<u64, Failure> {
    peer.order(&format!("token {NAME}"))?;
    let (reply, _) = peer.reply()?;
    let token = reply.strip_prefix("token ").ok_or_else(|| reply.clone())?.parse()?;
    peer.expect(&format!("release {NAME}"), "released")?;
    Ok(token)
}

fn token_of_redbolt(fleet: &Fleet<'_>, client: &Client) -> Result<u64, Failure> {
    let lock = client.acquire(fleet.patiently(NAME))?;
    let token = lock.fencing_token().ok_or("redbolt has no token")?.get();
    release(lock.release())?;
    Ok(token)
}

const NAME: &str = "fenced";

/// The number of turns of each side.
const TURNS: u32 = 20;

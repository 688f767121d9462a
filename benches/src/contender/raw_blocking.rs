//! The floor of blocking sockets: waits for each node in turn, and so for the slowest.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::contract::{Contender, Task};
use super::raw::{self, Links, Wait};
use crate::wire::Expected;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    raw::start_guarded(task, |links| {
        let bound =
            |timeout, link: &raw::Link| set_socket_timeout(&link.socket, timeout, Some(PATIENCE));
        for link in &links.all {
            bound(Timeout::Recv, link)?;
            bound(Timeout::Send, link)?;
        }
        Ok(Blocking)
    })
}

struct Blocking;

impl Wait for Blocking {
    #[inline]
    fn majority(&mut self, links: &mut Links, reply: Expected) -> Result<()> {
        for at in 0..links.all.len() {
            let mut reads = 0;
            while !links.receive(at, reply)? {
                reads += 1;
                // A read that ended by the timeout counts too.
                ensure!(reads < READS, "a node does not answer");
            }
        }
        Ok(())
    }
}

/// The timeout of a read.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reply of a few bytes arrives in one read, or in a few.
const READS: usize = 4;

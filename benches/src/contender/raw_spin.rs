//! The floor with a core to spare: never sleeps, and reads until a majority has answered.
//!
//! Nodes that share its core answer only when the system preempts it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::io::ioctl_fionbio;

use super::contract::{Contender, Task};
use super::raw::{self, Links, Wait};
use crate::wire::Expected;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    raw::start_guarded(task, |links| {
        links.all.iter().try_for_each(|link| ioctl_fionbio(&link.socket, true))?;
        Ok(Spin)
    })
}

struct Spin;

impl Wait for Spin {
    #[inline]
    fn majority(&mut self, links: &mut Links, reply: Expected) -> Result<()> {
        let answered = spin(PATIENCE, links, reply)?;
        ensure!(answered >= links.quorum, "a majority does not answer");
        Ok(())
    }
}

/// Reads until a majority has answered, or the time is over. Returns how many have answered.
#[inline]
pub(super) fn spin(bound: Duration, links: &mut Links, reply: Expected) -> Result<usize> {
    let (start, mut answered) = (Instant::now(), 0);
    loop {
        answered += links.hear_all(reply)?;
        if answered >= links.quorum || start.elapsed() >= bound {
            return Ok(answered);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

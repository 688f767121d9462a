//! The floor with bounded busy-polling: reads for as long as redbolt's own busy-poll does, and then
//! sleeps in epoll.

use anyhow::Result;

use super::contract::{BUSY, Contender, Task};
use super::raw::{self, Links, Wait};
use super::raw_epoll::Epoll;
use super::raw_spin::spin;
use crate::wire::Expected;

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    raw::start_guarded(task, |links| Ok(EpollAndSpin(Epoll::new(links)?)))
}

struct EpollAndSpin(Epoll);

impl Wait for EpollAndSpin {
    #[inline]
    fn majority(&mut self, links: &mut Links, reply: Expected) -> Result<()> {
        let answered = spin(BUSY, links, reply)?;
        self.0.receive(links.quorum.saturating_sub(answered), links, reply)
    }
}

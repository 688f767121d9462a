//! The floor: sleeps in epoll until a majority has answered.

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::ioctl_fionbio;

use super::contract::{Contender, Task};
use super::raw::{self, Links, Wait};
use crate::wire::Expected;

pub(super) fn start_guarded(task: &Task) -> Result<Box<dyn Contender>> {
    raw::start_guarded(task, Epoll::new)
}

pub(super) fn start_unguarded(task: &Task) -> Result<Box<dyn Contender>> {
    raw::start_unguarded(task, Epoll::new)
}

pub(super) struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Epoll {
    /// Makes the sockets non-blocking.
    pub(super) fn new(links: &Links) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, link) in links.all.iter().enumerate() {
            ioctl_fionbio(&link.socket, true)?;
            let place = epoll::EventData::new_u64(at as u64);
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &link.socket, place, wanted)?;
        }
        Ok(Self { epoll, events: Vec::with_capacity(links.all.len()) })
    }

    /// Waits until this many nodes have answered.
    #[inline]
    pub(super) fn receive(
        &mut self,
        nodes: usize,
        links: &mut Links,
        reply: Expected,
    ) -> Result<()> {
        let mut answered = 0;
        while answered < nodes {
            self.events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut self.events), None)?;
            for event in &self.events {
                answered += usize::from(links.receive(event.data.u64() as usize, reply)?);
            }
        }
        Ok(())
    }
}

impl Wait for Epoll {
    #[inline]
    fn majority(&mut self, links: &mut Links, reply: Expected) -> Result<()> {
        self.receive(links.quorum, links, reply)
    }
}

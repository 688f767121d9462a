//! Drives a core: carries out its outputs and delivers its inputs, as a driver does.
//!
//! This is the common part of all drivers. When it happens, where bytes go and how late they arrive
//! differs between worlds. The hot loop of the simulator and the drivers with random behaviour
//! (`tests/core/random`, `fuzz`) call the core directly.

use std::iter::from_fn;
use std::sync::Arc;

use redbolt::proto::{
    ClockReading, Config, Core, Event, LinkId, LinkOp, NodeSettings, Settings, Timestamp,
};

/// A driver for a core in memory.
pub trait Host {
    /// Returns the core's operations on links, oldest first.
    fn link_ops(&mut self) -> impl Iterator<Item = LinkOp>;

    /// Returns the core's events.
    fn events(&mut self) -> impl Iterator<Item = Event>;

    /// Passes the bytes to write, if any, to the socket, which returns the number that it accepts.
    /// Returns that number.
    fn write(&mut self, link: LinkId, socket: impl FnOnce(&[u8]) -> usize) -> usize;

    /// Takes at most this many of the bytes to write.
    fn take(&mut self, link: LinkId, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(link, |unsent| {
            bytes.extend_from_slice(&unsent[..unsent.len().min(most)]);
            bytes.len()
        });
        bytes
    }

    /// Lets the socket fill the buffer with what has arrived; it returns the number of bytes.
    /// Returns that number.
    fn read(
        &mut self,
        link: LinkId,
        now: ClockReading,
        socket: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize;

    /// Delivers all of these bytes, in as many reads as the buffer's room requires.
    fn receive(&mut self, link: LinkId, bytes: &[u8], now: ClockReading);

    /// Handles the timers.
    ///
    /// # Panics
    ///
    /// Panics if a timer is then due in the past: a real driver would spin.
    fn fire(&mut self, now: ClockReading);
}

impl Host for Core {
    #[inline]
    fn link_ops(&mut self) -> impl Iterator<Item = LinkOp> {
        from_fn(|| self.poll_link())
    }

    #[inline]
    fn events(&mut self) -> impl Iterator<Item = Event> {
        from_fn(|| self.poll_event())
    }

    #[inline]
    fn write(&mut self, link: LinkId, socket: impl FnOnce(&[u8]) -> usize) -> usize {
        let unsent = self.transmit(link);
        if unsent.is_empty() {
            return 0;
        }
        let taken = socket(unsent);
        self.transmitted(link, taken);
        taken
    }

    #[inline]
    fn read(
        &mut self,
        link: LinkId,
        now: ClockReading,
        socket: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        let read = socket(self.space(link));
        if read > 0 {
            self.received(link, read, now);
        }
        read
    }

    fn receive(&mut self, link: LinkId, mut bytes: &[u8], now: ClockReading) {
        while !bytes.is_empty() {
            let read = self.read(link, now, |space| fill(space, bytes));
            assert!(read > 0, "the read buffer always has room");
            bytes = &bytes[read..];
        }
    }

    fn fire(&mut self, now: ClockReading) {
        self.timeout(now);
        let next = self.poll_timeout();
        assert!(next.is_none_or(|at| at >= now.boot), "a timer in the past: {next:?}");
    }
}

/// Copies as many of these bytes as there is room for, and returns their number.
pub fn fill(space: &mut [u8], bytes: &[u8]) -> usize {
    let taken = bytes.len().min(space.len());
    space[..taken].copy_from_slice(&bytes[..taken]);
    taken
}

/// Returns the command links of this many nodes. A core assigns link IDs itself, so this creates
/// one.
#[must_use]
pub fn command_links(nodes: usize) -> Vec<LinkId> {
    let settings = Settings::new(vec![NodeSettings::default(); nodes]);
    let config = Config::new(settings).expect("the default settings are valid");
    let mut core = Core::new(Arc::new(config), |bytes| bytes.fill(0));
    // The first call opens the links.
    core.timeout(ClockReading { boot: Timestamp(0), wall: Timestamp(0) });
    let mut links: Vec<_> =
        core.link_ops().map(|(LinkOp::Open(link) | LinkOp::Close(link))| link).collect();
    links.sort_by_key(|link| link.index());
    links
}

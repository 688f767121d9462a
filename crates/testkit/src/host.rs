//! How a core is driven: what a driver does with each of its outputs and inputs, in one place.
//!
//! Only the parts that everybody does alike. When they are done, where bytes go and how late they come is
//! what worlds differ in. The hot loop of the simulator and drivers that do as they like (`tests/core/random`,
//! `fuzz`) call the core themselves.

use std::iter::from_fn;
use std::sync::Arc;

use redbolt::proto::{
    ClockReading, Config, Core, Event, LinkId, LinkOp, NodeSettings, Settings, Timestamp,
};

/// A driver's part, for a core in memory.
pub trait Host {
    /// What is to be done with links, oldest first.
    fn link_ops(&mut self) -> impl Iterator<Item = LinkOp>;

    /// What the caller is told.
    fn events(&mut self) -> impl Iterator<Item = Event>;

    /// Gives the socket what there is to write, if anything; it says how much it takes. Returns how much.
    fn write(&mut self, link: LinkId, socket: impl FnOnce(&[u8]) -> usize) -> usize;

    /// The socket takes so many bytes at the most of what there is to write.
    fn take(&mut self, link: LinkId, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(link, |unsent| {
            bytes.extend_from_slice(&unsent[..unsent.len().min(most)]);
            bytes.len()
        });
        bytes
    }

    /// Lets the socket put what has arrived into the buffer; it says how much that is. Returns how much.
    fn read(
        &mut self,
        link: LinkId,
        now: ClockReading,
        socket: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize;

    /// All of these have arrived, and are read in as many pieces as there is room for.
    fn hear(&mut self, link: LinkId, bytes: &[u8], now: ClockReading);

    /// Handles the timers.
    ///
    /// # Panics
    ///
    /// If one is then due in the past, for a machine would be kept busy by it.
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

    fn hear(&mut self, link: LinkId, mut bytes: &[u8], now: ClockReading) {
        while !bytes.is_empty() {
            let read = self.read(link, now, |space| fill(space, bytes));
            assert!(read > 0, "there is always room to read into");
            bytes = &bytes[read..];
        }
    }

    fn fire(&mut self, now: ClockReading) {
        self.timeout(now);
        let next = self.poll_timeout();
        assert!(next.is_none_or(|at| at >= now.boot), "a timer in the past: {next:?}");
    }
}

/// Puts as many of these bytes into a buffer as there is room for; returns how many.
pub fn fill(space: &mut [u8], bytes: &[u8]) -> usize {
    let taken = bytes.len().min(space.len());
    space[..taken].copy_from_slice(&bytes[..taken]);
    taken
}

/// The command links of so many nodes. A core names links itself, so one is asked how.
#[must_use]
pub fn command_links(nodes: usize) -> Vec<LinkId> {
    let settings = Settings::new(vec![NodeSettings::default(); nodes]);
    let config = Config::new(settings).expect("as by default");
    let mut core = Core::new(Arc::new(config), |bytes| bytes.fill(0));
    core.timeout(ClockReading { boot: Timestamp(0), wall: Timestamp(0) });
    let mut links: Vec<_> =
        core.link_ops().map(|(LinkOp::Open(link) | LinkOp::Close(link))| link).collect();
    links.sort_by_key(|link| link.index());
    links
}

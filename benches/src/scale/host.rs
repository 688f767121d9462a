//! A driver in a host's mio loop that has no other work.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use redbolt::{ConfigBuilder, Driver, Event, LockId, LockRequest, Wait};

/// The loop, and the driver in it.
pub(crate) struct Host {
    poll: mio::Poll,
    events: mio::Events,
    pub(crate) driver: Driver,
}

impl Host {
    /// Connects to new nodes. Returns when all of them vote.
    pub(crate) fn connect(builder: ConfigBuilder, nodes: &[String]) -> Result<Self> {
        let config = builder.new_nodes().nodes(nodes).build()?;
        let poll = mio::Poll::new()?;
        let tokens = 0..Driver::tokens_needed(&config);
        let events = mio::Events::with_capacity(tokens.len());
        let driver = Driver::in_registry(config, poll.registry(), tokens)?;
        let mut host = Self { poll, events, driver };
        let until = Instant::now() + PATIENCE;
        while host.driver.node_report().ready() < nodes.len() {
            ensure!(Instant::now() < until, "{:?}", host.driver.node_report());
            host.process(PATIENCE)?;
        }
        Ok(host)
    }

    /// Returns the next event of a lock.
    pub(crate) fn event(&mut self) -> Result<Event> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.driver.poll_event() {
                Some(Event::Node(..)) => {}
                Some(event) => return Ok(event),
                None => {
                    ensure!(
                        Instant::now() < until,
                        "nothing happens: {:?}",
                        self.driver.node_report()
                    );
                    self.process(PATIENCE)?;
                }
            }
        }
    }

    /// Runs one iteration of the loop, which sleeps for up to `longest`.
    pub(crate) fn process(&mut self, longest: Duration) -> Result<()> {
        let wait = self.driver.timeout().map_or(longest, |due| due.min(longest));
        self.poll.poll(&mut self.events, Some(wait))?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }

    /// Acquires and releases a lock.
    pub(super) fn pair(&mut self, resource: &[u8], ttl: Duration) -> Result<()> {
        let id = self.driver.acquire(LockRequest::new(resource).ttl(ttl))?;
        loop {
            match self.event()? {
                Event::Granted(of) if of == id => self.driver.release(id),
                Event::Released(of, _) if of == id => return Ok(()),
                event => self.void(event)?,
            }
        }
    }

    /// Requests locks with these numbers, all in one write to each node.
    pub(super) fn request(&mut self, numbers: std::ops::Range<usize>, request: Like) -> Result<()> {
        self.driver.batch(|driver| {
            numbers.into_iter().try_for_each(|number| {
                let key = key(number);
                driver.acquire(LockRequest::new(&key).ttl(request.ttl).wait(request.wait))?;
                Ok(())
            })
        })
    }

    /// Releases these locks, all in one write to each node, and returns when a quorum has confirmed
    /// each.
    pub(crate) fn release(&mut self, locks: &[LockId]) -> Result<()> {
        self.driver.batch(|driver| locks.iter().for_each(|&id| driver.release(id)));
        let mut open = locks.len();
        while open > 0 {
            match self.event()? {
                Event::Released(..) => open -= 1,
                event => self.void(event)?,
            }
        }
        Ok(())
    }

    /// Returns the error for an unexpected event.
    pub(crate) fn void(&self, event: Event) -> Result<()> {
        match event {
            Event::Refused(_, refusal) => Err(anyhow!("{}", self.driver.report(&refusal))),
            other => bail!("{other:?}"),
        }
    }
}

/// The common settings of all locks of a call.
#[derive(Clone, Copy)]
pub(super) struct Like {
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
}

/// Returns the resource with this number: 16 bytes.
pub(crate) fn key(number: usize) -> [u8; 16] {
    let mut key = *b"redbolt-00000000";
    let mut rest = number;
    for digit in key[8..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A limit that only a broken node exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn names_are_of_one_length_and_all_different() {
        assert_eq!(&key(0), b"redbolt-00000000");
        assert_eq!(&key(100_203), b"redbolt-00100203");
    }
}

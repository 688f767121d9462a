//! The event loop under the lanes, with a separately registered [`Driver`].
//!
//! It uses the driver for one lock and for many, so that all figures of this program are
//! comparable. Client and engine are built on the driver. For one lock it makes the same system
//! calls as the client, and for many it makes one write. Only the driver reports which nodes
//! granted a lock.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use nix::time::{ClockId, clock_gettime};
use redbolt::{
    Config, Driver,
    report::{NodeReport, NodeState},
};

use super::figures::Figures;
use super::lanes::Lanes;
use super::progress::Progress;
use crate::args::BenchArgs;
use crate::exit::Failure;
use crate::signals::{Signal, Signals, is_ignored, undergo};

/// A driver, and the signals that stop it.
pub(super) struct Load {
    driver: Driver,
    poll: Poll,
    events: Events,
    signals: Signals,
    /// The time of the next check for signals.
    listens_at: Instant,
    /// The time to poll all sockets again, while reads succeed without polling.
    looks_at: Instant,
}

impl Load {
    /// Starts connecting to the nodes.
    pub(super) fn new(config: Config, signals: Signals) -> io::Result<Self> {
        let poll = Poll::new()?;
        let tokens = Driver::tokens_needed(&config);
        Ok(Self {
            driver: Driver::in_registry(config, poll.registry(), 0..tokens)?,
            events: Events::with_capacity(tokens),
            poll,
            signals,
            listens_at: Instant::now(),
            looks_at: Instant::now(),
        })
    }

    /// Returns the configuration of the driver.
    pub(super) fn config(&self) -> &Config {
        self.driver.config()
    }

    /// Returns which nodes can vote now.
    pub(super) fn node_report(&self) -> NodeReport {
        self.driver.node_report()
    }

    /// Waits until all nodes vote or are known to be down, for as long as a connection may take.
    pub(super) fn connect(&mut self) -> io::Result<Result<NodeReport, Signal>> {
        let until = Instant::now() + self.config().settings().connect_timeout;
        self.driver.connect();
        loop {
            while self.driver.poll_event().is_some() {}
            let report = self.driver.node_report();
            let now = Instant::now();
            let settled = report.nodes.iter().all(|node| node.state != NodeState::Connecting);
            if settled || now >= until {
                return Ok(Ok(report));
            }
            if let Some(signal) = self.interruption(now) {
                return Ok(Err(signal));
            }
            self.process(until - now)?;
        }
    }

    /// Takes and releases locks for as long as `args` says, or until a signal.
    pub(super) fn run(
        &mut self,
        args: &BenchArgs,
        progress: &Progress,
    ) -> Result<Figures, Failure> {
        let mut lanes = Lanes::new(args, Instant::now());
        let mut interrupted = self.go_on(&mut lanes, None, args.warm_up, progress)?;
        let mut figures = Figures::new(self.driver.metrics());
        let (since, cpu) = (Instant::now(), cpu_time()?);
        if interrupted.is_none() {
            interrupted = self.go_on(&mut lanes, Some(&mut figures), args.duration, progress)?;
        }
        // Those in flight count too, or the slowest would be missing.
        lanes.close();
        self.finish(&mut lanes, &mut figures)?;
        figures.elapsed = since.elapsed();
        figures.cpu = cpu_time()?.saturating_sub(cpu);
        figures.counted.1 = self.driver.metrics();
        figures.interrupted = interrupted;
        Ok(figures)
    }

    fn go_on(
        &mut self,
        lanes: &mut Lanes,
        mut figures: Option<&mut Figures>,
        span: Duration,
        progress: &Progress,
    ) -> Result<Option<Signal>, Failure> {
        let until = Instant::now() + span;
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            if let Some(signal) = self.interruption(now) {
                return Ok(Some(signal));
            }
            lanes.ask(&mut self.driver, figures.is_some()).map_err(Failure::usage)?;
            let next = lanes.next_ask().unwrap_or(until).min(until);
            self.process(next.saturating_duration_since(now))?;
            lanes.hear(&mut self.driver, figures.as_deref_mut());
            progress.tell(lanes.pairs);
        }
    }

    /// Waits for the outcomes of everything in flight. Each comes within its own timeout.
    fn finish(&mut self, lanes: &mut Lanes, figures: &mut Figures) -> io::Result<()> {
        let until = Instant::now() + self.at_least(FINISH_WITHIN);
        while lanes.are_under_way() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                lanes.give_up(&mut self.driver);
                break;
            }
            self.process(left)?;
            lanes.hear(&mut self.driver, Some(figures));
        }
        Ok(())
    }

    /// Gives the nodes time to confirm releases. Returns whether all that can be reached have
    /// confirmed.
    pub(super) fn let_go(&mut self) -> io::Result<bool> {
        let until = Instant::now() + self.at_least(CONFIRM_WITHIN);
        while self.driver.has_pending_releases() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.process(left)?;
            while self.driver.poll_event().is_some() {}
        }
        Ok(true)
    }

    /// Returns `span`, or the response timeout if that is longer.
    fn at_least(&self, span: Duration) -> Duration {
        span.max(self.config().settings().response_timeout)
    }

    /// Runs one turn of the loop, which waits for at most `limit`.
    fn process(&mut self, limit: Duration) -> io::Result<()> {
        if self.tries_reads() && self.driver.process_busy() {
            let now = Instant::now();
            if now < self.looks_at {
                return Ok(());
            }
            self.looks_at = now + LOOK_EVERY;
            return self.look(Duration::ZERO);
        }
        let limit = limit.min(LISTEN_EVERY);
        self.look(self.driver.timeout().map_or(limit, |deadline| deadline.min(limit)))
    }

    fn tries_reads(&self) -> bool {
        !self.config().busy_poll().is_zero()
    }

    /// Waits for readiness, and handles what is ready.
    fn look(&mut self, within: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(within)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.process();
        Ok(())
    }

    /// Returns a signal that ends the run. A signal that the caller ignores does not, as with
    /// `nohup`. Signals are polled for only now and then, so that they cost the locks nothing.
    fn interruption(&mut self, now: Instant) -> Option<Signal> {
        if now < self.listens_at {
            return None;
        }
        self.listens_at = now + LISTEN_EVERY;
        let requests = std::iter::from_fn(|| self.signals.next());
        for request in requests {
            if request.is_stop() {
                // A process can always send itself a signal.
                let _ = undergo(request.signal);
            } else if request.is_interruption() && !is_ignored(request.signal) {
                return Some(request.signal);
            }
        }
        None
    }
}

/// Returns the processor time that this thread has used.
fn cpu_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// The interval between polls for events that only the poller reports, such as a completed connect.
/// They are not urgent.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The interval between checks for signals. A user does not notice this delay of Ctrl-C.
const LISTEN_EVERY: Duration = Duration::from_millis(50);

/// The limit for locks in flight, which take an answer and a confirmation, or a connection.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

/// The time that nodes get to confirm releases.
const CONFIRM_WITHIN: Duration = Duration::from_secs(1);

//! A process that uses the core: its clocks, its sockets, and its pauses.

use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    ClockReading, Config, Core, Credentials, NodeSettings, RestartGuard, RestartTrust, Secret,
    Settings, Setup as Orders, Timestamp,
};
use redbolt_testkit::Random;

use super::node::{DATABASE, EPOCH_US, PASSWORD};
use super::queue::Time;
use crate::plan::{ClientPlan, MAX_LINKS, MAX_NODES, Setup, Start};

pub(crate) struct Client {
    pub(crate) core: Core,
    plan: ClientPlan,
    /// Boot time lost while the whole machine was stopped.
    frozen: Time,
    /// Microseconds by which the wall clock was set ahead.
    wall_steps: i64,
    pub(crate) paused_until: Time,
    /// The total time for which it was stopped.
    pub(crate) stalled: Time,
    /// The time at which its timer event is due, in true time.
    pub(crate) armed: Time,
    /// The wire of each link.
    pub(crate) wires: [Option<u32>; MAX_LINKS],
    /// The server behind each address.
    pub(crate) routes: [usize; MAX_NODES],
    /// The times before which nothing arrives: at each server, and from it.
    pub(crate) holes: [(Time, Time); MAX_NODES],
    /// The time until which the sockets accept no bytes.
    pub(crate) choked_until: Time,
    /// The time until which the sockets accept only a few bytes at a time.
    pub(crate) short_until: Time,
    /// The time until which opening a connection fails.
    pub(crate) opens_fail_until: Time,
    /// The time at which its timer was last handled, and how many times at that instant.
    fires: (Time, u32),
    pub(crate) is_started: bool,
    was_set_back: bool,
    /// The nodes that have accepted its handshake and selected its database, as far as it has read.
    pub(crate) let_in: [bool; MAX_NODES],
    /// The nodes that notified it at the last check.
    pub(crate) reported_by: u8,
    /// The addresses that led to another server for a while.
    pub(crate) strayed: [bool; MAX_NODES],
}

impl Client {
    /// Creates a client. Its entropy has a counter in the lower half, so that tokens show the order
    /// in which they were drawn.
    pub(crate) fn new(
        config: &Arc<Config>,
        name: usize,
        plan: ClientPlan,
        mut entropy: Random,
    ) -> Self {
        let mut drawn = 0;
        let core = Core::new(Arc::clone(config), move |bytes: &mut [u8]| {
            for chunk in bytes.chunks_mut(8) {
                drawn += 1;
                let word = entropy.next() << 32 | drawn << NAME_BITS | name as u64;
                chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            }
        });
        Self {
            core,
            plan,
            frozen: 0,
            wall_steps: 0,
            paused_until: 0,
            stalled: 0,
            armed: Time::MAX,
            wires: [None; MAX_LINKS],
            routes: std::array::from_fn(|at| at),
            holes: [(0, 0); MAX_NODES],
            choked_until: 0,
            short_until: 0,
            opens_fail_until: 0,
            fires: (0, 0),
            is_started: false,
            was_set_back: false,
            let_in: [false; MAX_NODES],
            reported_by: 0,
            strayed: [false; MAX_NODES],
        }
    }

    /// Returns its two clocks at a true time.
    #[inline]
    pub(crate) fn clocks(&self, now: Time) -> ClockReading {
        let drifted =
            |time: Time| time.cast_signed() + time.cast_signed() / 1_000 * self.plan.ppm / 1_000;
        let boot = BOOT.cast_signed() + drifted(now.saturating_sub(self.frozen));
        let ahead = (self.plan.wall_ahead + self.wall_steps) * 1_000;
        let wall = (EPOCH_US * 1_000).cast_signed() + drifted(now) + ahead;
        ClockReading {
            boot: Timestamp(boot.cast_unsigned()),
            wall: Timestamp(wall.cast_unsigned()),
        }
    }

    /// Returns the true time of a boot-clock reading, at most a rounding error early.
    #[inline]
    pub(crate) fn when(&self, boot: Timestamp) -> Time {
        let elapsed = boot.0.saturating_sub(BOOT);
        if self.plan.ppm == 0 || elapsed > u64::MAX / 4 {
            return elapsed.saturating_add(self.frozen);
        }
        let rate = (1_000_000 + self.plan.ppm).cast_unsigned();
        let awake = u128::from(elapsed) * 1_000_000 / u128::from(rate);
        u64::try_from(awake).unwrap_or(u64::MAX) + self.frozen + 2_000
    }

    /// Counts how many times its timer is handled at one instant.
    pub(crate) fn fired(&mut self, now: Time) -> u32 {
        let (at, times) = self.fires;
        self.fires = (now, if at == now { times + 1 } else { 1 });
        self.fires.1
    }

    pub(crate) fn late(&self) -> Time {
        self.plan.late
    }

    /// Sets its wall clock, unless setting it back would hide a stop of the machine.
    pub(crate) fn set_wall(&mut self, micros: i64) {
        if micros >= 0 || self.frozen == 0 {
            self.wall_steps += micros;
            self.was_set_back |= micros < 0;
        }
    }

    /// Stops it; with `with_boot_clock`, the whole machine. That is safe because the wall clock is
    /// corrected afterwards, so it is not done to a client whose wall clock was set back.
    pub(crate) fn pause(&mut self, now: Time, span: Time, with_boot_clock: bool) {
        let until = (now + span).max(self.paused_until);
        let longer = until - self.paused_until.max(now);
        self.stalled += longer;
        self.paused_until = until;
        if with_boot_clock && !self.was_set_back {
            self.frozen += longer;
        }
    }
}

/// Returns the order in which a client drew a token, from the token's first half in hexadecimal.
pub(crate) fn serial(tag: u128) -> u64 {
    let digits = tag.to_le_bytes();
    let word = std::str::from_utf8(&digits).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    word.map_or(0, |word| u64::from(word.swap_bytes() as u32) >> NAME_BITS)
}

/// The width of the first byte: a token begins with a letter, which leaves the lower half of that
/// byte unchanged.
const NAME_BITS: u32 = 8;

/// The origin of the boot clock.
const BOOT: Time = 1_000_000_000_000;

/// Returns the configuration for a setup. Its timeouts are short, so that faults outlast them.
pub(crate) fn config(nodes: usize, setup: &Setup) -> Config {
    let mut settings = settings(nodes, setup);
    settings.response_timeout = Duration::from_millis(setup.answer_ms);
    settings.connect_timeout = Duration::from_millis(10 * setup.answer_ms);
    settings.dead_peer_timeout = Duration::from_millis(40 * setup.answer_ms);
    Config::new(settings).expect("plans draw what is possible")
}

pub(crate) fn settings(nodes: usize, setup: &Setup) -> Settings {
    let mut node = NodeSettings::default();
    if setup.proven {
        let password = Secret::new(PASSWORD.as_bytes().to_vec());
        node.credentials = Some(Credentials::new(None, password));
        node.database = DATABASE;
    }
    if setup.durable {
        node.restart_trust = RestartTrust::Durable;
    }
    let mut settings = Settings::new(vec![node; nodes]);
    if !setup.restart_guard {
        settings.restart_guard = RestartGuard::Off;
    }
    settings.setup = match setup.start {
        Start::New => Orders::IfNew,
        Start::Changed => Orders::Change,
        Start::Ready | Start::Bare => Orders::Enrol,
    };
    settings.max_ttl = Duration::from_millis(setup.max_ttl_ms);
    settings.max_hold = Some(Duration::from_millis(setup.max_ttl_ms * 3 / 2));
    if setup.labelled {
        settings.label = b"host:17".to_vec();
    }
    settings.wake = setup.wake;
    settings
}

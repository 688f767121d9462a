//! The part of a worker process: its nodes, and how it handles its locks.

use std::str::FromStr;
use std::time::Duration;

use redbolt::{
    Config, ConfigBuilder,
    config::{RestartGuard, WakeStrategy},
};

use crate::stage::Failure;

/// The arguments of a worker process.
#[derive(Clone, Debug)]
pub struct Part {
    /// The process ID of the director, which gives the orders.
    pub director: u32,
    /// The addresses of the nodes.
    pub nodes: Vec<String>,
    /// The `max_ttl`.
    pub max_ttl: Duration,
    /// True if the restart guard is on.
    pub guarded: bool,
    /// The label of its tokens, by which nodes show the owner of a lock.
    pub label: String,
}

/// The way in which a worker handles its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Extends them when ordered.
    Takes,
    /// Auto-extends them.
    AutoExtends,
    /// Auto-extends them, together with a careless extender.
    AutoExtendsCarelessly,
    /// Campaigns to lead.
    Leads,
    /// Takes them like [`Takes`](Self::Takes), and waits for them in the queue.
    Queues,
    /// Takes them like [`Takes`](Self::Takes), and waits for them only by a timer.
    WaitsByTimer,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] = [
        Self::Takes,
        Self::AutoExtends,
        Self::AutoExtendsCarelessly,
        Self::Leads,
        Self::Queues,
        Self::WaitsByTimer,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Takes => "takes",
            Self::AutoExtends => "auto-extends",
            Self::AutoExtendsCarelessly => "auto-extends-carelessly",
            Self::Leads => "leads",
            Self::Queues => "queues",
            Self::WaitsByTimer => "waits-by-timer",
        }
    }

    /// Returns the configuration of a worker in this role.
    pub(crate) fn config(self, part: &Part) -> Result<Config, Failure> {
        let builder = part.builder()?;
        let builder = match self {
            Self::Queues => builder.wake(WakeStrategy::Queue),
            Self::WaitsByTimer => builder.wake(WakeStrategy::Timer),
            Self::Takes | Self::AutoExtends | Self::AutoExtendsCarelessly | Self::Leads => builder,
        };
        Ok(builder.build()?)
    }
}

impl FromStr for Role {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        let named = Self::ALL.into_iter().find(|role| role.word() == word);
        named.ok_or_else(|| format!("no role: {word:?}").into())
    }
}

impl Part {
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        Ok(self.builder()?.build()?)
    }

    fn builder(&self) -> Result<ConfigBuilder, Failure> {
        let restart_guard = if self.guarded { RestartGuard::On } else { RestartGuard::Off };
        let mut builder = Config::builder()
            .max_ttl(self.max_ttl)
            .restart_guard(restart_guard)
            .label(self.label.as_bytes())
            .retry_backoff(Duration::from_millis(1), Duration::from_millis(8))
            .reconnect_backoff(Duration::from_millis(5), Duration::from_millis(20));
        for node in &self.nodes {
            builder = builder.node(node);
        }
        Ok(builder)
    }
}

/// The time from one check of a lock to the next.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_micros(400);

//! One lock after another, with a growing name or on a growing number of nodes.

use std::time::{Duration, Instant};

use anyhow::Result;
use redbolt::Config;

use super::host::{Host, PATIENCE};
use crate::stats::{cpu_time, histogram, record};

/// A driver that runs pairs.
pub struct Pairs {
    host: Host,
    resource: Vec<u8>,
}

/// The cost of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The CPU time of this process in nanoseconds.
    pub cpu: u64,
    /// The median time of a pair, in nanoseconds.
    pub p50: u64,
}

impl Pairs {
    /// Connects to new nodes. The resource's name has this many bytes.
    ///
    /// # Errors
    ///
    /// They are not ready.
    pub fn connect(nodes: &[String], bytes: usize) -> Result<Self> {
        let patient = Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE);
        Ok(Self { host: Host::connect(patient, nodes)?, resource: vec![b'k'; bytes] })
    }

    /// Acquires and releases the lock this many times.
    ///
    /// # Errors
    ///
    /// The lock was not granted. No other client competes for it, so the measurement is void.
    pub fn take(&mut self, times: usize) -> Result<Cost> {
        let (mut spans, cpu) = (histogram()?, cpu_time());
        for _ in 0..times {
            let start = Instant::now();
            self.host.pair(&self.resource, TTL)?;
            record(&mut spans, start.elapsed());
        }
        let cpu = (cpu_time() - cpu).as_nanos() as u64 / times as u64;
        Ok(Cost { cpu, p50: spans.value_at_quantile(0.5) })
    }
}

const TTL: Duration = Duration::from_secs(10);

//! The metrics of a client, and its log: locks granted and refused, and a node that is stopped.
//!
//! ```text
//! cargo run --example metrics
//! cargo run --example metrics -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes, and stops one of them on the way. The log goes
//! to standard error, the text for Prometheus to standard output. Exit status: 0 on success; 1 on
//! failure, with the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redbolt::{
    AcquireError, Client, Config, ConfigError, LockRequest,
    log::{Level, Log, Note},
    metrics::MetricsReport,
};
use redbolt_node::Memory;

use crate::nodes::{addresses, embedded_nodes};

/// A log that prints. A program with a logging crate calls that crate here.
struct Stderr;

impl Log for Stderr {
    fn note(&self, note: &Note<'_>) {
        if note.level() >= Level::Info || matches!(note, Note::Refused { .. }) {
            eprintln!("{:?}: {note}", note.level());
        }
    }
}

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: metrics [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("metrics: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let mut embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let client = Client::new(configure(&addresses)?)?;
    client.warm_up(Duration::from_secs(2));

    for _ in 0..100 {
        // The protected work would be done here.
        let _ = client.acquire(LockRequest::new(RESOURCE))?.release();
    }
    let held = client.acquire(LockRequest::new(RESOURCE))?;
    if !matches!(client.acquire(LockRequest::new(RESOURCE)), Err(AcquireError::Refused(_))) {
        return Err("two hold the same lock".into());
    }
    drop(held);

    // Two of three nodes are enough. The log names the missing one and the cause.
    if let Some(node) = embedded.first_mut() {
        node.stop(Memory::Lost);
    }
    let _ = client.acquire(LockRequest::new(RESOURCE))?.release();

    let report = client.metrics();
    sum_up(&report);
    // This text is a program's answer to `GET /metrics`, as `text/plain; version=0.0.4`.
    print!("{}", report.to_prometheus());
    Ok(())
}

/// Prints the counters, read as a struct.
fn sum_up(report: &MetricsReport) {
    let counted = &report.metrics;
    let (granted, refused) = (counted.grants, counted.refusals.total());
    let wait = counted.wait_granted.quantile(0.99).unwrap_or_default();
    eprintln!("{granted} granted, {refused} refused; 99 of 100 waited for {wait:.1?} at most");
    for (number, address, node) in report.node_metrics() {
        let trip = node.round_trip.quantile(0.5).unwrap_or_default();
        let (lost, fails) = (node.link_failures.total(), node.fails.total());
        eprintln!("node {number} {address}: {trip:.1?}, {fails} votes and {lost} links failed");
    }
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // In production an operator does this once, with `redbolt init`.
    builder.new_nodes().log(Arc::new(Stderr)).build()
}

const RESOURCE: &[u8] = b"redbolt-example-metrics";

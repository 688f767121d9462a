//! The counts of a client with the addresses of the nodes, also as text for Prometheus.
//!
//! A report is a snapshot: taking one copies numbers, and writing the text uses nothing of the
//! client.

use std::fmt::{self, Display, Write};

use super::config::Config;
use crate::net::Address;
use crate::proto::metrics::{By, Kind};
use crate::proto::{Core, Histogram, Metrics, NodeMetrics, NodeState};

/// The counts of a client, a driver or an engine so far.
///
/// Its text (`Display`, [`to_prometheus`](Self::to_prometheus)) is in the exposition format of
/// Prometheus, version 0.0.4. Serve it as `text/plain; version=0.0.4`.
///
/// ```
/// # use redbolt::{Client, Config};
/// # let client = Client::new(Config::builder().node("127.0.0.1:1").build()?)?;
/// let report = client.metrics();
/// println!("{} of {} granted", report.metrics.grants, report.metrics.acquisitions);
/// for (number, address, node) in report.node_metrics() {
///     println!("node {number} {address}: p99 {:?}", node.round_trip.quantile(0.99));
/// }
/// assert!(report.to_prometheus().contains("\nredbolt_attempts_total 0\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetricsReport {
    /// The counts.
    pub metrics: Metrics,
    addresses: Vec<Address>,
    ready: Vec<bool>,
}

impl MetricsReport {
    pub(super) fn new(config: &Config, core: &Core) -> Self {
        let ready = |node| core.node_state(node) == NodeState::Ready;
        Self {
            metrics: core.metrics().clone(),
            addresses: config.addresses().to_vec(),
            ready: config.node_ids().map(ready).collect(),
        }
    }

    /// Returns the number of each node (from one), its address, and its counts.
    pub fn node_metrics(&self) -> impl Iterator<Item = (usize, &Address, &NodeMetrics)> {
        let nodes = self.addresses.iter().zip(&self.metrics.nodes).enumerate();
        nodes.map(|(at, (address, node))| (at + 1, address, node))
    }

    /// Returns the text for Prometheus.
    ///
    /// Counters begin at zero with each client. Causes that a node has never had are left out.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        self.to_string()
    }

    fn totals(&self, text: &mut Exposition<'_, '_>) -> fmt::Result {
        for (name, help, count) in COUNTERS {
            text.family(name, "counter", help)?;
            text.sample(name, &[], count(&self.metrics))?;
        }
        let of = &self.metrics;
        text.kinds(
            "refusals_total",
            "Acquisitions that ended without the lock.",
            "reason",
            of.refusals,
        )?;
        text.kinds("losses_total", "Locks that were lost, by cause.", "cause", of.losses)?;
        let name = "extensions_total";
        text.family(name, "counter", "Extensions that were made, or found no quorum.")?;
        for (by, outcome, count) in [
            ("caller", "extended", of.extended - of.auto_extended),
            ("caller", "not_extended", of.not_extended - of.auto_extend_failed),
            ("auto_extend", "extended", of.auto_extended),
            ("auto_extend", "not_extended", of.auto_extend_failed),
        ] {
            text.sample(name, &[("by", &by), ("outcome", &outcome)], count)?;
        }
        let name = "mode_changes_total";
        text.family(name, "counter", "Locks that were upgraded or downgraded, or tried to be.")?;
        for (change, outcome, count) in [
            ("upgrade", "done", of.upgrades),
            ("upgrade", "refused", of.upgrades_refused),
            ("downgrade", "done", of.downgrades),
            ("downgrade", "delayed", of.downgrades_delayed),
        ] {
            text.sample(name, &[("change", &change), ("outcome", &outcome)], count)?;
        }
        Self::waits(of, text)
    }

    fn waits(of: &Metrics, text: &mut Exposition<'_, '_>) -> fmt::Result {
        let name = "wait_seconds";
        text.family(name, "histogram", "From acquire to grant or refusal.")?;
        text.histogram(name, &[("outcome", &"granted")], &of.wait_granted)?;
        text.histogram(name, &[("outcome", &"refused")], &of.wait_refused)?;
        let name = "wait_in_queue_seconds";
        text.family(name, "histogram", "From the first ask in the queue to grant or refusal.")?;
        text.histogram(name, &[], &of.wait_in_queue)?;
        text.family("in_queue", "gauge", "Acquisitions that wait in the queue on the nodes now.")?;
        text.sample("in_queue", &[], of.in_queue())?;
        text.family("hold_seconds", "histogram", "From grant to release or loss.")?;
        text.histogram("hold_seconds", &[], &of.hold)
    }

    fn by_node(&self, text: &mut Exposition<'_, '_>) -> fmt::Result {
        text.family("node_ready", "gauge", "Whether the node can vote now.")?;
        for ((number, address, _), ready) in self.node_metrics().zip(&self.ready) {
            text.sample("node_ready", &of_node(&number, address), u64::from(*ready))?;
        }
        for (name, help, count) in NODE_COUNTERS {
            text.family(name, "counter", help)?;
            for (number, address, node) in self.node_metrics() {
                text.sample(name, &of_node(&number, address), count(node))?;
            }
        }
        self.votes(text)?;
        for (name, help, causes) in NODE_CAUSES {
            text.family(name, "counter", help)?;
            for (number, address, node) in self.node_metrics() {
                let [number, address] = of_node(&number, address);
                for (cause, count) in causes(node).iter().filter(|(_, count)| *count > 0) {
                    let cause = in_snake_case(cause);
                    text.sample(name, &[number, address, ("cause", &cause)], count)?;
                }
            }
        }
        let name = "node_round_trip_seconds";
        text.family(name, "histogram", "From a request to its answer, handshakes left out.")?;
        for (number, address, node) in self.node_metrics() {
            text.histogram(name, &of_node(&number, address), &node.round_trip)?;
        }
        Ok(())
    }

    fn votes(&self, text: &mut Exposition<'_, '_>) -> fmt::Result {
        let name = "node_votes_total";
        text.family(name, "counter", "Votes on attempts.")?;
        for (number, address, node) in self.node_metrics() {
            let [number, address] = of_node(&number, address);
            let votes =
                [("grant", node.grants), ("deny", node.denies), ("fail", node.fails.total())];
            for (vote, count) in votes {
                text.sample(name, &[number, address, ("vote", &vote)], count)?;
            }
        }
        Ok(())
    }
}

impl Display for MetricsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Exposition { f };
        self.totals(&mut text)?;
        self.by_node(&mut text)
    }
}

type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS: [Counter<Metrics>; 14] = [
    ("acquisitions_total", "Requests that were accepted.", |of| of.acquisitions),
    ("attempts_total", "Rounds of asks to the nodes.", |of| of.attempts),
    ("lead_asks_total", "Attempts that asked the lead of the wait first.", |of| of.lead_asks),
    ("lead_grants_total", "Attempts whose lead granted.", |of| of.lead_grants),
    ("wakes_total", "Pauses that ended by what a node had told.", |of| of.wakes),
    ("joined_queue_total", "Acquisitions that began to wait in the queue.", |of| of.joined_queue),
    ("settled_total", "Attempts for a permit that moved it to one slot.", |of| of.settled),
    ("healed_total", "Asks to nodes that did not keep a permit.", |of| of.healed),
    ("grants_total", "Acquisitions that ended with the lock.", |of| of.grants),
    ("auto_extend_losses_total", "Locks that were auto-extended, and lost.", |of| {
        of.auto_extend_losses
    }),
    ("attached_total", "Locks that came from another process.", |of| of.attached),
    ("detached_total", "Locks that left for another process.", |of| of.detached),
    ("releases_total", "Locks whose holder let go in time.", |of| of.releases),
    ("unconfirmed_releases_total", "Releases that a quorum did not confirm in time.", |of| {
        of.unconfirmed
    }),
];

const NODE_COUNTERS: [Counter<NodeMetrics>; 11] = [
    ("node_asks_total", "Asks that were given to the link.", |of| of.asks),
    ("node_late_replies_total", "Answers that came after their time.", |of| of.late_replies),
    (
        "node_late_proofs_total",
        "Grants that came so late that the node was asked behind them whether it was a replica meanwhile.",
        |of| of.late_proofs,
    ),
    ("node_pushes_total", "Keys that it told of because they had changed.", |of| of.pushes),
    ("node_suspicions_total", "How often the node was suspected of hanging.", |of| of.suspicions),
    ("node_timeouts_total", "How often the node was waited for in vain.", |of| of.timeouts),
    ("node_undos_total", "Undos that were sent.", |of| of.undos),
    ("node_undos_again_total", "Undos that were sent once more.", |of| of.undos_again),
    ("node_undos_confirmed_total", "Undos that the node confirmed.", |of| of.undos_confirmed),
    ("node_connections_total", "Connections that were made.", |of| of.connections),
    (
        "node_reconnects_total",
        "Connections that were made in the place of a lost one.",
        NodeMetrics::reconnects,
    ),
];

type Causes = (&'static str, &'static str, fn(&NodeMetrics) -> &By<crate::proto::Cause>);

const NODE_CAUSES: [Causes; 2] = [
    ("node_fails_total", "Votes that said nothing useful, by cause.", |of| &of.fails),
    ("node_link_failures_total", "Connections that ended or could not be made, by cause.", |of| {
        &of.link_failures
    }),
];

type Label<'a> = (&'a str, &'a dyn Display);

fn of_node<'a>(number: &'a usize, address: &'a Address) -> [Label<'a>; 2] {
    [("node", number), ("address", address)]
}

/// The exposition format: each family is followed by its samples.
struct Exposition<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
}

impl Exposition<'_, '_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) -> fmt::Result {
        writeln!(self.f, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}")
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) -> fmt::Result {
        write!(self.f, "{PREFIX}{name}")?;
        for (at, (label, of)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            write!(self.f, "{open}{label}=\"")?;
            write!(Escaped(self.f), "{of}")?;
            self.f.write_char('"')?;
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.f, "{close} {value}")
    }

    fn kinds<K: Kind + fmt::Debug>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: By<K>,
    ) -> fmt::Result {
        self.family(name, "counter", help)?;
        for (kind, count) in counts.iter() {
            self.sample(name, &[(label, &in_snake_case(kind))], count)?;
        }
        Ok(())
    }

    /// Writes a histogram. Buckets are cumulative: each includes all shorter ones.
    fn histogram(&mut self, name: &str, labels: &[Label<'_>], of: &Histogram) -> fmt::Result {
        let bounds = Histogram::BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, inside) in bounds.zip(of.buckets()) {
            count += inside;
            let labels = [labels, &[("le", &bound as &dyn Display)]].concat();
            self.sample(&format!("{name}_bucket"), &labels, count)?;
        }
        self.sample(&format!("{name}_sum"), labels, of.sum().as_secs_f64())?;
        self.sample(&format!("{name}_count"), labels, count)
    }
}

/// The value of a label between its quotes.
struct Escaped<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| match letter {
            '\\' => self.0.write_str("\\\\"),
            '"' => self.0.write_str("\\\""),
            '\n' => self.0.write_str("\\n"),
            letter => self.0.write_char(letter),
        })
    }
}

/// Returns the name of a variant in the form that labels use.
fn in_snake_case(kind: impl fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

const PREFIX: &str = "redbolt_";

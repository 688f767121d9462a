//! Formats the report, as text of eighty columns or as one JSON object.

use std::fmt::Debug;
use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::proto::NodeSet;
use redbolt::{
    RefusalReason,
    metrics::NodeMetrics,
    report::{Cause, NodeStatus},
};
use serde_json::{Map, Value, json};

use super::draw::{self, Pen};
use super::figures::Figures;
use super::load::Load;
use crate::args::{BenchArgs, RestartGuardWord};
use crate::duration::{exact, show};
use crate::signals::name_of;

/// The figures and their subject.
pub(super) struct Report<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) figures: &'a Figures,
    pub(super) load: &'a Load,
}

/// The figures of one node during the measurement.
struct NodeFigures {
    number: usize,
    address: String,
    status: NodeStatus,
    answers: u64,
    /// The mean time to an answer.
    mean: Option<Duration>,
    /// The bounds within which half of the answers, and 99 % of them, arrived.
    half_within: Option<Duration>,
    most_within: Option<Duration>,
    late: u64,
    reconnects: u64,
    /// The number of grants that came in time to count.
    grants: u64,
    fails: Vec<(Cause, u64)>,
    link_failures: Vec<(Cause, u64)>,
}

impl Report<'_> {
    /// Formats the report as text.
    pub(super) fn as_text(&self) -> String {
        let figures = self.figures;
        let nodes = self.nodes();
        let mut text = format!("{}\n", self.head());
        if figures.pair.is_empty() {
            text += "\nnothing was measured\n";
        } else {
            text += &format!("\n{}\n{}", self.table(), self.totals());
            text += &format!(
                "\npairs that took up to\n{}",
                draw::lines(&figures.pair, Pen::of_stdout())
            );
        }
        text += &format!("\n{}{}", node_table(&nodes, figures.acquire.len()), self.quorums());
        text + &self.troubles(&nodes)
    }

    fn head(&self) -> String {
        let (args, config) = (self.args, self.load.config());
        let nodes = plural(config.node_count() as u64, "node");
        let locks = plural(args.concurrency.into(), "lock");
        let restart_guard = match args.restart_guard {
            RestartGuardWord::On => "",
            RestartGuardWord::Off => ", without the restart guard",
        };
        let (ttl, quorum) = (exact(args.ttl), config.quorum());
        let busy = match args.busy_poll {
            Duration::ZERO => String::new(),
            span => format!(", busy poll {}", show(span)),
        };
        let took = show(self.figures.elapsed);
        let early = if self.figures.interrupted.is_some() { ", ended early" } else { "" };
        format!(
            "{nodes}, quorum {quorum}{restart_guard}; {locks} at a time, TTL {ttl}{busy}; {took}{early}"
        )
    }

    fn table(&self) -> String {
        let heads = ["min", "p50", "p90", "p99", "p99.9", "max"];
        let mut text = format!("{:<8}{}\n", "", heads.map(|head| format!("{head:>11}")).concat());
        for (name, histogram) in self.histograms() {
            let spans = spans(histogram).map(|span| format!("{:>11}", fine(span)));
            text += &format!("{name:<8}{}\n", spans.concat());
        }
        text
    }

    fn totals(&self) -> String {
        let figures = self.figures;
        format!(
            "{:.0} pairs per second ({}), {:.1} us of client CPU for each\n",
            figures.rate(),
            plural(figures.pair.len(), "pair"),
            figures.cpu_us()
        )
    }

    fn histograms(&self) -> [(&'static str, &Histogram<u64>); 3] {
        let figures = self.figures;
        [("acquire", &figures.acquire), ("release", &figures.release), ("pair", &figures.pair)]
    }

    /// Describes the quorums, the most frequent first.
    fn quorums(&self) -> String {
        let all = self.figures.acquire.len();
        let sets = self.sets();
        if self.load.config().node_count() == 1 || sets.is_empty() {
            return String::new();
        }
        let shown = &sets[..sets.len().min(SETS_SHOWN)];
        let in_words = |(nodes, count): &(Vec<usize>, u64)| {
            let nodes: Vec<_> = nodes.iter().map(usize::to_string).collect();
            format!("{} {}", nodes.join("+"), percent(*count, all))
        };
        let mut words: Vec<_> = shown.iter().map(in_words).collect();
        let rest = all - shown.iter().map(|(_, count)| count).sum::<u64>();
        if rest > 0 {
            words.push(format!("others {}", percent(rest, all)));
        }
        format!("had granted when the lock was: {}\n", words.join(", "))
    }

    /// Returns sets of node numbers with the number of locks that they granted.
    fn sets(&self) -> Vec<(Vec<usize>, u64)> {
        let numbers = |(set, &count): (&NodeSet, &u64)| {
            (set.iter().map(|node| node.index() + 1).collect(), count)
        };
        let mut sets: Vec<(Vec<usize>, u64)> = self.figures.quorums.iter().map(numbers).collect();
        sets.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        sets
    }

    fn troubles(&self, nodes: &[NodeFigures]) -> String {
        let figures = self.figures;
        let mut lines: Vec<String> = Vec::new();
        for (reason, count) in &figures.refusals {
            lines.push(format!("{}: {}", plural(*count, "refusal"), self.words_of(*reason)));
        }
        for (cause, count) in &figures.losses {
            lines.push(format!("{} lost: {cause}", plural(*count, "lock")));
        }
        if figures.unconfirmed > 0 {
            let count = plural(figures.unconfirmed, "release");
            lines.push(format!("{count} not confirmed in time by a quorum"));
        }
        lines.extend(nodes.iter().flat_map(NodeFigures::troubles));
        if lines.is_empty() {
            return "no refusals, no errors\n".to_owned();
        }
        format!("\n{}\n", lines.join("\n"))
    }

    fn words_of(&self, reason: RefusalReason) -> String {
        match reason {
            RefusalReason::Expired => format!(
                "nothing was left of the TTL ({}) when a quorum had granted: try a longer --ttl",
                exact(self.args.ttl)
            ),
            RefusalReason::NoQuorum => "too few nodes could vote".to_owned(),
            RefusalReason::Contended => "the key of an earlier lock was not undone yet".to_owned(),
            other => snake(other).replace('_', " "),
        }
    }

    fn nodes(&self) -> Vec<NodeFigures> {
        let (before, after) = &self.figures.counted;
        let statuses = self.load.node_report().nodes.into_iter();
        let counted =
            before.metrics.nodes.iter().zip(after.node_metrics()).zip(&self.figures.grants);
        let node = |(((before, (number, address, after)), &grants), status)| {
            NodeFigures::new(number, format!("{address}"), status, before, after, grants)
        };
        counted.zip(statuses).map(node).collect()
    }

    /// Formats the report as JSON.
    pub(super) fn as_json(&self) -> Value {
        let (args, figures, config) = (self.args, self.figures, self.load.config());
        let sets = self.sets();
        let spans =
            self.histograms().map(|(name, histogram)| (name.to_owned(), as_json(histogram)));
        let mut object = json!({
            "redbolt": env!("CARGO_PKG_VERSION"),
            "quorum": config.quorum(),
            "concurrency": args.concurrency,
            "ttl_ms": millis(args.ttl),
            "key_bytes": args.key_size,
            "restart_guard": args.restart_guard == RestartGuardWord::On,
            "busy_poll_us": args.busy_poll.as_secs_f64() * 1e6,
            "warm_up_ms": millis(args.warm_up),
            "duration_ms": millis(args.duration),
            "measured_ms": millis(figures.elapsed),
            "interrupted_by": figures.interrupted.map(name_of),
            "pairs": figures.pair.len(),
            "pairs_per_second": figures.rate(),
            "client_cpu_us_per_pair": figures.cpu_us(),
            "refusals": by_kind(&figures.refusals),
            "losses": by_kind(&figures.losses),
            "unconfirmed_releases": figures.unconfirmed,
            "nodes": self.nodes().iter().map(NodeFigures::as_json).collect::<Vec<_>>(),
            "quorums": sets.iter()
                .map(|(nodes, grants)| json!({ "nodes": nodes, "grants": grants }))
                .collect::<Vec<_>>(),
        });
        if let Some(object) = object.as_object_mut() {
            object.extend(spans);
        }
        object
    }
}

impl NodeFigures {
    fn new(
        number: usize,
        address: String,
        status: NodeStatus,
        before: &NodeMetrics,
        after: &NodeMetrics,
        grants: u64,
    ) -> Self {
        let (first, last) = (&before.round_trip, &after.round_trip);
        let inside: Vec<u64> =
            last.buckets().iter().zip(first.buckets()).map(|(last, first)| last - first).collect();
        let answers = inside.iter().sum();
        let spent = last.sum().saturating_sub(first.sum());
        Self {
            number,
            address,
            status,
            answers,
            mean: (answers > 0).then(|| spent.div_f64(answers as f64)),
            half_within: bound(&inside, 0.5),
            most_within: bound(&inside, 0.99),
            late: after.late_replies - before.late_replies,
            reconnects: after.connections - before.connections,
            grants,
            fails: difference(after.fails.iter(), before.fails.iter()),
            link_failures: difference(after.link_failures.iter(), before.link_failures.iter()),
        }
    }

    fn troubles(&self) -> Vec<String> {
        let node = format!("node {} {}", self.number, self.address);
        let mut lines = Vec::new();
        for (cause, count) in &self.fails {
            lines.push(format!("{node}: {} without a vote: {cause}", plural(*count, "ask")));
        }
        for (cause, count) in &self.link_failures {
            lines.push(format!("{node}: {}: {cause}", plural(*count, "failed connection")));
        }
        if self.reconnects > 0 {
            lines.push(format!(
                "{node}: {} in place of lost ones",
                plural(self.reconnects, "connection")
            ));
        }
        if self.late > 0 {
            lines.push(format!("{node}: {} late", plural(self.late, "answer")));
        }
        lines
    }

    fn as_json(&self) -> Value {
        let status = self.status.to_string();
        let named = format!("node {} {}: ", self.number, self.address);
        json!({
            "number": self.number,
            "address": self.address,
            "state": status.strip_prefix(&named).unwrap_or(&status),
            "answers": self.answers,
            "mean_us": self.mean.map(|mean| mean.as_secs_f64() * 1e6),
            "half_within_us": self.half_within.map(|span| span.as_secs_f64() * 1e6),
            "p99_within_us": self.most_within.map(|span| span.as_secs_f64() * 1e6),
            "late_answers": self.late,
            "reconnects": self.reconnects,
            "grants_in_time": self.grants,
            "fails": by_kind(&self.fails),
            "link_failures": by_kind(&self.link_failures),
        })
    }
}

fn node_table(nodes: &[NodeFigures], grants: u64) -> String {
    let width =
        nodes.iter().map(|node| node.address.chars().count()).max().unwrap_or(0).min(WIDEST);
    let width = width.max("node".len());
    let mut text = format!(
        "   {:<width$}{:>10}{:>10}{:>10}{:>10}{:>8}\n",
        "node", "answers", "mean", "50 % in", "99 % in", "counted"
    );
    for node in nodes {
        let NodeFigures { number, answers, .. } = node;
        let address: String = node.address.chars().take(width).collect();
        let span = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), fine);
        let bound = |bound: Option<Duration>| bound.map_or_else(|| "-".to_owned(), coarse);
        let (half, most) = (bound(node.half_within), bound(node.most_within));
        text += &format!(
            "{number:>2} {address:<width$}{answers:>10}{:>10}{half:>10}{most:>10}{:>8}\n",
            span(node.mean),
            percent(node.grants, grants)
        );
    }
    text
}

fn spans(histogram: &Histogram<u64>) -> [Duration; 6] {
    let at = |share: f64| Duration::from_nanos(histogram.value_at_quantile(share));
    let (min, max) = (histogram.min(), histogram.max());
    [Duration::from_nanos(min), at(0.5), at(0.9), at(0.99), at(0.999), Duration::from_nanos(max)]
}

fn as_json(histogram: &Histogram<u64>) -> Value {
    let [min, p50, p90, p99, p99_9, max] =
        spans(histogram).map(|span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let raw = histogram.iter_recorded();
    let raw = raw.map(|step| json!([step.value_iterated_to(), step.count_since_last_iteration()]));
    json!({
        "count": histogram.len(),
        "mean_ns": histogram.mean(),
        "min_ns": min,
        "p50_ns": p50,
        "p90_ns": p90,
        "p99_ns": p99,
        "p99_9_ns": p99_9,
        "max_ns": max,
        "histogram_ns": raw.collect::<Vec<_>>(),
    })
}

/// Returns the bound of the bucket with this quantile, or `None` if nothing was counted or the
/// quantile is beyond the last bound.
fn bound(buckets: &[u64], share: f64) -> Option<Duration> {
    let all: u64 = buckets.iter().sum();
    let rank = (share * all as f64).ceil().max(1.0) as u64;
    let mut below = 0;
    let at = buckets.iter().position(|&inside| {
        below += inside;
        below >= rank
    })?;
    redbolt::metrics::Histogram::BOUNDS.get(at).copied()
}

/// Returns the differences of the counts, without zeros.
fn difference<K>(
    after: impl Iterator<Item = (K, u64)>,
    before: impl Iterator<Item = (K, u64)>,
) -> Vec<(K, u64)> {
    let each = after.zip(before).map(|((kind, after), (_, before))| (kind, after - before));
    each.filter(|&(_, count)| count > 0).collect()
}

fn by_kind(counts: &[(impl Debug, u64)]) -> Value {
    let each = counts.iter().map(|(kind, count)| (snake(kind), Value::from(*count)));
    Value::Object(each.collect::<Map<_, _>>())
}

/// Returns a variant's name as in the labels of the library's metrics.
fn snake(kind: impl Debug) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Formats like [`show`], with one more digit if there is room.
fn fine(span: Duration) -> String {
    match span.as_nanos() {
        0..100_000 => format!("{:.1} us", span.as_secs_f64() * 1e6),
        _ => show(span),
    }
}

/// Formats a bound, which is a round number.
fn coarse(bound: Duration) -> String {
    match bound.as_micros() {
        micros @ 0..1_000 => format!("{micros} us"),
        micros @ 1_000..1_000_000 => format!("{} ms", micros / 1_000),
        micros => format!("{} s", micros / 1_000_000),
    }
}

fn percent(part: u64, of: u64) -> String {
    match 100.0 * part as f64 / of.max(1) as f64 {
        share if part > 0 && share < 1.0 => "<1 %".to_owned(),
        share => format!("{share:.0} %"),
    }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The number of sets of nodes that are shown.
const SETS_SHOWN: usize = 4;

/// The longest part of an address that is shown, for lines of eighty columns. The number identifies
/// the node.
const WIDEST: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_that_of_the_bucket() {
        let bounds = redbolt::metrics::Histogram::BOUNDS;
        let mut buckets = vec![0; bounds.len() + 1];
        assert_eq!(bound(&buckets, 0.5), None);
        (buckets[1], buckets[4]) = (98, 2);
        assert_eq!(
            (bound(&buckets, 0.5), bound(&buckets, 0.99)),
            (Some(bounds[1]), Some(bounds[4]))
        );
        buckets[bounds.len()] = 10_000;
        assert_eq!(bound(&buckets, 0.99), None, "longer than every bound");
    }

    #[test]
    fn only_what_happened_meanwhile_is_told() {
        let (before, after) = ([("a", 1), ("b", 2)], [("a", 4), ("b", 2)]);
        assert_eq!(difference(after.into_iter(), before.into_iter()), [("a", 3)]);
    }

    #[test]
    fn names_are_those_of_the_metrics() {
        assert_eq!(snake(Cause::ConnectionRefused), "connection_refused");
        assert_eq!(by_kind(&[(RefusalReason::NoQuorum, 3)]), json!({ "no_quorum": 3 }));
    }

    #[test]
    fn spans_have_a_precision_that_suits_them() {
        assert_eq!(fine(Duration::from_nanos(41_260)), "41.3 us");
        assert_eq!(fine(Duration::from_micros(412)), "412 us");
        assert_eq!(coarse(Duration::from_millis(20)), "20 ms");
        assert_eq!(plural(1, "pair"), "1 pair");
        assert_eq!([0, 1, 500].map(|part| percent(part, 1000)), ["0 %", "<1 %", "50 %"]);
    }
}

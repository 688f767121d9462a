//! Figures in words: a table for people, and the same as JSON. Not here: how they came about.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::rounds::Figures;
use crate::stats::{Ratio, median, micros};

/// The figures of one run: the same nodes, placement and sockets for all.
pub struct Report {
    /// How many nodes there were.
    pub nodes: usize,
    /// `TCP` or `Unix sockets`.
    pub sockets: &'static str,
    /// Names and figures, the floor first.
    pub figures: Vec<(&'static str, Figures)>,
}

impl Report {
    /// The pair's ratio to the floor, by median, for each contender.
    #[must_use]
    pub fn ratios(&self) -> Vec<Ratio> {
        self.ratios_by(|figures| &figures.medians)
    }

    fn ratios_by(&self, of: impl Fn(&Figures) -> &[u64]) -> Vec<Ratio> {
        let Some((_, floor)) = self.figures.first() else { return Vec::new() };
        self.figures.iter().map(|(_, figures)| Ratio::of(of(figures), of(floor))).collect()
    }

    /// A table in Markdown, which is readable as it is.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!("N = {}, {}; times in µs\n\n", self.nodes, self.sockets);
        let mut row = |cells: [&str; 10]| {
            let [name, numbers @ ..] = cells;
            let _ = write!(out, "| {name:<15} |");
            for (number, width) in numbers.into_iter().zip(WIDTHS) {
                let _ = write!(out, " {number:>width$} |");
            }
            out.push('\n');
        };
        row(HEADINGS);
        row(["---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:"]);
        for (at, (name, figures)) in self.figures.iter().enumerate() {
            let cells = self.cells(at, figures);
            let [a, b, c, d, e, f, g, h, i] = cells.each_ref().map(String::as_str);
            row([*name, a, b, c, d, e, f, g, h, i]);
        }
        out
    }

    fn cells(&self, at: usize, figures: &Figures) -> [String; 9] {
        let (pair, cpu) = (self.ratios()[at], self.ratios_by(|figures| &figures.cpu)[at]);
        let pair_at = |quantile| micros(figures.pair.value_at_quantile(quantile));
        [
            pair_at(0.5),
            pair_at(0.9),
            pair_at(0.99),
            micros(figures.pair.max()),
            pair.cell(),
            micros(figures.acquire.value_at_quantile(0.5)),
            micros(figures.release.value_at_quantile(0.5)),
            micros(median(&figures.cpu)),
            format!("{:.3}", cpu.median),
        ]
    }

    /// The same figures, and more of them, in nanoseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let ratios = self.ratios();
        let contenders = self.figures.iter().zip(ratios).map(|((name, figures), ratio)| {
            json!({
                "name": name,
                "pair": quantiles(&figures.pair),
                "acquire": quantiles(&figures.acquire),
                "release": quantiles(&figures.release),
                "cpu_per_pair": median(&figures.cpu),
                "ratio": { "median": ratio.median, "p10": ratio.low, "p90": ratio.high },
                "rounds": { "medians": figures.medians, "cpu": figures.cpu },
            })
        });
        json!({
            "nodes": self.nodes,
            "sockets": self.sockets,
            "contenders": contenders.collect::<Vec<_>>(),
        })
    }
}

fn quantiles(histogram: &Histogram<u64>) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile);
    json!({
        "count": histogram.len(),
        "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999),
        "max": histogram.max(),
    })
}

const HEADINGS: [&str; 10] = [
    "contender",
    "p50",
    "p90",
    "p99",
    "max",
    "p50 / floor, by round",
    "acquire",
    "release",
    "CPU",
    "/ floor",
];
const WIDTHS: [usize; 9] = [7, 7, 7, 9, 22, 7, 7, 6, 7];

//! The charts of the pair: the distribution of times, the cost of each further node, and the
//! distance from the floor.

use anyhow::Result;

use super::cell::{MIDDLE, Run, Sockets, p50s};
use crate::chart::{self, Bars, Lines, Percentiles};
use crate::contender::floor;
use crate::rounds::Figures;
use crate::section::Chart;

/// Returns the charts of each placement, as far as there are figures.
pub(super) fn charts(runs: &[Run]) -> Result<Vec<Chart>> {
    let mut charts = Vec::new();
    let tcp: Vec<&Run> = runs.iter().filter(|run| run.cell.sockets == Sockets::Tcp).collect();
    for here in tcp.chunk_by(|one, next| one.cell.placement == next.cell.placement) {
        let middle = here.iter().find(|run| run.cell.nodes == MIDDLE);
        if let Some(run) = middle.or_else(|| here.first()) {
            charts.push(ratios(run)?);
            charts.push(latency(run)?);
        }
        if here.len() > 1 {
            charts.push(nodes(here)?);
        }
    }
    Ok(charts)
}

fn ratios(run: &Run) -> Result<Chart> {
    let row = |(name, figures): (&str, &Figures)| {
        let ratio = run.ratio(figures, p50s);
        (name.to_owned(), ratio.median, (ratio.low, ratio.high))
    };
    let title = format!("Acquire + release beside the floor, {}", run.cell);
    let x = format!("p50 of the pair / {} (median of the rounds, and p10 to p90)", floor());
    let mut rows: Vec<_> = run.measured().map(row).collect();
    rows.sort_by(|one, other| one.1.total_cmp(&other.1));
    let svg = chart::bars(&Bars { title: title.clone(), x, log_x: true, rows })?;
    Ok(Chart { name: format!("pair-ratio-{}", run.cell.placement), caption: title, svg })
}

fn latency(run: &Run) -> Result<Chart> {
    let points = |figures: &Figures| {
        let point = |&at: &f64| (at, figures.pair.value_at_percentile(at) as f64 / 1e3);
        PERCENTILES.iter().map(point).collect()
    };
    let title = format!("Acquire + release, {}", run.cell);
    let series = run.measured().map(|(name, figures)| (name.to_owned(), points(figures))).collect();
    let y = "pair, µs".to_owned();
    let svg = chart::percentiles(&Percentiles { title: title.clone(), y, series })?;
    let caption = format!("{title}: how the times are spread");
    Ok(Chart { name: format!("pair-latency-{}", run.cell.placement), caption, svg })
}

fn nodes(runs: &[&Run]) -> Result<Chart> {
    let point = |run: &&Run, name: &str| {
        let nodes = run.cell.nodes as f64;
        run.figures(name).map(|own| (nodes, own.pair.value_at_quantile(0.5) as f64 / 1e3))
    };
    let line = |name: &'static str| {
        (name.to_owned(), runs.iter().filter_map(|run| point(run, name)).collect())
    };
    let title = format!("What a node costs, {}, TCP", runs[0].cell.placement);
    let svg = chart::lines(&Lines {
        title: title.clone(),
        x: "nodes".to_owned(),
        y: "p50 of the pair, µs".to_owned(),
        log_x: false,
        log_y: true,
        series: runs[0].outcomes.iter().map(|outcome| line(outcome.name)).collect(),
    })?;
    Ok(Chart { name: format!("pair-nodes-{}", runs[0].cell.placement), caption: title, svg })
}

const PERCENTILES: [f64; 19] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.0, 98.0, 99.0, 99.5, 99.7,
    99.8, 99.85, 99.9,
];

//! One size that grows, and the cost of the work at each size.

use anyhow::Result;
use serde_json::{Value, json};

use crate::chart::{self, Lines};
use crate::placement::Placement;
use crate::scale::growth::{Expected, Growth};
use crate::section::Chart;
use crate::table::Table;

/// A table with a chart.
pub(super) struct Sweep {
    /// The name of the chart's file.
    pub(super) name: &'static str,
    /// The growing size, as a heading: `waiters`.
    pub(super) size: &'static str,
    /// The unit of the costs: `hand-over`.
    pub(super) per: &'static str,
    /// `true` if the size is the number of these units.
    pub(super) is_many: bool,
    /// Notes for the reader.
    pub(super) about: String,
    pub(super) rows: Vec<Row>,
}

/// The whole cost of the work of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) size: usize,
    /// The CPU time in nanoseconds.
    pub(super) cpu: f64,
    /// The elapsed time in nanoseconds.
    pub(super) wall: f64,
}

impl Sweep {
    pub(super) fn growths(&self) -> [Growth; 1] {
        let points = self.rows.iter().map(|row| (row.size as f64, row.cpu)).collect();
        [Growth { what: self.title(), expected: Expected::Linear, points }]
    }

    pub(super) fn text(&self) -> String {
        let (cpu, wall) = (format!("CPU µs/{}", self.per), format!("µs/{}", self.per));
        let mut table = Table::new(&[self.size, &cpu, &wall]);
        for row in &self.rows {
            let micros = |nanos| format!("{:.2}", self.each(row, nanos) / 1e3);
            table.row(vec![row.size.to_string(), micros(row.cpu), micros(row.wall)]);
        }
        let [growth] = self.growths();
        format!(
            "{table}\n{growth}.{}{}\n\n",
            if self.about.is_empty() { "" } else { " " },
            self.about
        )
    }

    pub(super) fn chart(&self, placement: Placement) -> Result<Chart> {
        let line = |of: fn(&Row) -> f64| {
            let point = |row: &Row| (row.size as f64, self.each(row, of(row)) / 1e3);
            self.rows.iter().map(point).collect()
        };
        let title = format!("{}, {placement}", self.title());
        let widest = self.rows.last().map_or(0, |row| row.size);
        let svg = chart::lines(&Lines {
            title: title.clone(),
            x: self.size.to_owned(),
            y: format!("µs/{}", self.per),
            log_x: widest >= 100,
            log_y: true,
            series: vec![
                ("CPU".to_owned(), line(|row| row.cpu)),
                ("time".to_owned(), line(|row| row.wall)),
            ],
        })?;
        Ok(Chart { name: format!("scale-{}-{placement}", self.name), caption: title, svg })
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Row| json!({ "size": row.size, "cpu": row.cpu, "wall": row.wall });
        let [growth] = self.growths();
        json!({
            "what": self.title(),
            "whole_costs": self.rows.iter().map(row).collect::<Vec<_>>(),
            "slope": growth.slope(),
            "last_slope": growth.last_slope(),
            "cliffs": growth.cliffs(),
        })
    }

    fn title(&self) -> String {
        format!("CPU per {} against {}", self.per, self.size)
    }

    fn each(&self, row: &Row, nanos: f64) -> f64 {
        if self.is_many { nanos / row.size as f64 } else { nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_shown_for_each_and_judged_as_a_whole() {
        let rows = [10, 100, 1_000].map(|size| Row {
            size,
            cpu: (size * size) as f64 * 10.0,
            wall: size as f64 * 5e3,
        });
        let sweep = Sweep {
            name: "waiters",
            size: "waiters",
            per: "hand-over",
            is_many: true,
            about: String::new(),
            rows: rows.to_vec(),
        };
        let text = sweep.text();
        assert!(text.contains("| 10      |             0.10 |         5.00 |"), "{text}");
        assert!(
            text.contains("slope 2.00, 2.00 at the end (linear would be 1), **worse"),
            "{text}"
        );
    }
}

//! A histogram as lines of text, in which two humps or a tail are easy to see.
//!
//! Each bucket is wider than the one before by about the same factor, and bars are drawn to scale.
//! On a terminal that can show it, a bar ends in a part of a block. Elsewhere bars are number
//! signs, so that a log stays readable.

use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::colour;

/// How a bar is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pen {
    pub(super) blocks: bool,
    pub(super) colour: bool,
}

impl Pen {
    /// The one for standard output.
    pub(super) fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let named = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(named);
        let locale = locale.unwrap_or_default().to_uppercase().replace('-', "");
        Self { blocks: is_terminal && locale.contains("UTF8"), colour: colour::is_wanted() }
    }

    fn bar(self, share: f64) -> String {
        let parts = (share * (BAR * PARTS) as f64).round() as usize;
        let (whole, rest) = (parts / PARTS, parts % PARTS);
        let bar = match (self.blocks, whole, rest) {
            // A bucket that is not empty shows something.
            (true, 0, 0) => "\u{258f}".to_owned(),
            (true, _, 0) => "\u{2588}".repeat(whole),
            (true, ..) => format!("{}{}", "\u{2588}".repeat(whole), EIGHTHS[rest]),
            (false, 0, _) => ".".to_owned(),
            (false, ..) => "#".repeat(whole),
        };
        let bar = format!("{bar:BAR$}");
        if self.colour { format!("{CYAN}{bar}{PLAIN}") } else { bar }
    }
}

/// The lines: the upper bound, a bar, the count and its share.
pub(super) fn lines(histogram: &Histogram<u64>, pen: Pen) -> String {
    let rows = rows(histogram);
    let most = rows.iter().map(|&(_, count)| count).max().unwrap_or(0).max(1);
    let all = histogram.len().max(1);
    let line = |&(up_to, count): &(u64, u64)| {
        let bar = match count {
            0 => " ".repeat(BAR),
            _ => pen.bar(count as f64 / most as f64),
        };
        let share = 100.0 * count as f64 / all as f64;
        let line = format!("{:>8} {bar} {count:>10} {share:>6.2} %", edge(up_to));
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// The buckets from the first to the last that is not empty, each with its upper bound in nanoseconds, as fine as
/// fits.
fn rows(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let coarsest = STEPS[STEPS.len() - 1];
    STEPS
        .iter()
        .map(|steps| rows_in(histogram, steps))
        .find(|rows| rows.len() <= MOST_ROWS)
        .unwrap_or_else(|| rows_in(histogram, coarsest))
}

fn rows_in(histogram: &Histogram<u64>, steps: &[u64]) -> Vec<(u64, u64)> {
    let mut edges = edges(steps);
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut up_to = edges.next();
    for step in histogram.iter_recorded() {
        let value = step.value_iterated_to();
        while let Some(edge) = up_to.filter(|&edge| edge < value) {
            up_to = edges.next();
            if !rows.is_empty() {
                rows.extend(up_to.map(|next| (next, 0)));
            } else if up_to.is_none() {
                rows.push((edge, 0));
            }
        }
        let count = step.count_since_last_iteration();
        match (rows.last_mut(), up_to) {
            (None, Some(edge)) => rows.push((edge, count)),
            (Some((_, inside)), _) => *inside += count,
            (None, None) => {}
        }
    }
    rows
}

/// Bounds from a microsecond to the longest recorded time, all steps in each power of ten.
fn edges(steps: &[u64]) -> impl Iterator<Item = u64> {
    let powers = (0..DECADES).map(|power| 100 * 10u64.pow(power));
    powers.flat_map(move |power| steps.iter().map(move |step| step * power))
}

/// `150 us`, `1.5 ms`, `20 s`.
fn edge(nanos: u64) -> String {
    let span = Duration::from_nanos(nanos);
    let micros = span.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{} ms", span.as_secs_f64() * 1000.0),
        _ => format!("{} s", span.as_secs_f64()),
    }
}

/// Steps within a power of ten, in tenths. The finest that gives few enough lines is used.
const STEPS: [&[u64]; 3] =
    [&[10, 12, 15, 20, 25, 30, 40, 50, 60, 80], &[10, 15, 20, 30, 50, 70], &[10, 20, 50]];

/// From 1 us to more than 1000 s, longer than a lock can take.
const DECADES: u32 = 11;

/// The most lines: figures and drawing fit on one screen.
const MOST_ROWS: usize = 18;

/// The longest bar. A whole line has less than 80 columns.
const BAR: usize = 44;

/// Parts of one column.
const PARTS: usize = 8;

const EIGHTHS: [&str; PARTS] =
    ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];

const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN_PEN: Pen = Pen { blocks: false, colour: false };

    fn of(spans: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_max(3_600_000_000_000, 3).unwrap();
        spans.into_iter().for_each(|nanos| histogram.record(nanos).unwrap());
        histogram
    }

    #[test]
    fn every_value_is_in_one_row_whose_edge_is_not_below_it() {
        let mut span = 300;
        let mut spans = Vec::new();
        while span < 3_000_000_000_000 {
            spans.push(span);
            span = span * 5 / 4;
        }
        for width in [1, 5, 20, spans.len()] {
            for window in spans.windows(width) {
                let histogram = of(window.iter().copied());
                let rows = rows(&histogram);
                assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), width as u64);
                let (first, last) = (rows[0], rows[rows.len() - 1]);
                assert!(first.1 > 0 && last.1 > 0, "{rows:?}");
                assert!(last.0 >= window[width - 1], "{rows:?} {window:?}");
                assert!(rows.is_sorted_by(|one, next| one.0 < next.0), "{rows:?}");
            }
        }
    }

    #[test]
    fn rows_are_as_fine_as_fits_and_no_line_is_wider_than_a_terminal() {
        assert_eq!(rows(&of([52_000, 70_000])), [(60_000, 1), (80_000, 1)]);
        let wide = of((0..30).map(|power| 1_000 << power));
        assert!(rows(&wide).len() <= 3 * 10, "{:?}", rows(&wide));
        let many = of([1_500, 1_490_000_000, 999_000_000_000]);
        for pen in [PLAIN_PEN, Pen { blocks: true, colour: false }] {
            for line in lines(&many, pen).lines() {
                assert!(line.chars().count() < 80, "{line}");
            }
        }
    }

    #[test]
    fn bars_are_to_scale_and_the_smallest_is_seen() {
        let histogram = of([vec![11_000; 1000], vec![21_000; 500], vec![31_000]].concat());
        let text = lines(&histogram, PLAIN_PEN);
        let bars: Vec<_> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(
            (bars[0], bars.iter().filter(|&&bar| bar == BAR / 2).count()),
            (BAR, 1),
            "{text}"
        );
        assert!(text.lines().last().unwrap().contains(" . "), "{text}");
        let blocks = Pen { blocks: true, colour: false };
        assert!(blocks.bar(0.5).trim_end().chars().all(|c| c == '\u{2588}'));
        assert!(!lines(&histogram, blocks).contains('\x1b'));
        assert!(Pen { blocks: true, colour: true }.bar(0.5).starts_with(CYAN));
    }

    #[test]
    fn nothing_draws_nothing() {
        assert_eq!(lines(&of([]), PLAIN_PEN), "");
    }

    #[test]
    fn edges_read_like_times() {
        assert_eq!(edge(1_000), "1 us");
        assert_eq!(edge(150_000), "150 us");
        assert_eq!(edge(1_500_000), "1.5 ms");
        assert_eq!(edge(20_000_000_000), "20 s");
    }
}

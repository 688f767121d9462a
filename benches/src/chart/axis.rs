//! A linear or logarithmic axis with ticks at round numbers, or with named ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// The range of the axis, and its ticks.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns an axis that is long enough for all values, with ticks at round numbers. A linear
    /// axis begins at zero.
    pub(super) fn of(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let fits = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let (least, most) =
            values.filter(fits).fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        // An empty range must still be drawable.
        let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 1.0) };
        if log { Self::log(least, most) } else { Self::even(most) }
    }

    /// Returns an axis with these ticks. The first is its begin, the last its end.
    pub(super) fn named(ticks: Vec<(f64, String)>) -> Self {
        let low = ticks.first().map_or(1.0, |tick| tick.0);
        let high = ticks.last().map_or(10.0, |tick| tick.0);
        Self { log: true, low, high, ticks }
    }

    /// Returns the begin of the axis.
    pub(super) fn start(&self) -> f64 {
        self.low
    }

    fn even(most: f64) -> Self {
        let step = round_step(most / EVEN_TICKS);
        let high = most * HEADROOM;
        let ticks = (0..).map(|at| f64::from(at) * step).take_while(|&tick| tick <= high);
        Self { log: false, low: 0.0, high, ticks: ticks.map(|tick| (tick, label(tick))).collect() }
    }

    fn log(least: f64, most: f64) -> Self {
        let (low, high) = (least / HEADROOM, most * HEADROOM);
        let decades = (high / low).log10();
        let within: &[f64] = match decades {
            _ if decades < 1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            _ if decades < 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks =
            powers.flat_map(|power| within.iter().map(move |tick| tick * 10_f64.powi(power)));
        let ticks = ticks.filter(|tick| (low..=high).contains(tick));
        Self { log: true, low, high, ticks: ticks.map(|tick| (tick, label(tick))).collect() }
    }

    /// Returns the position on the axis, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        start + (self.part(*value) * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // There are no minor grid lines.
        let wanted = if hint.weight().allow_light_points() { 0 } else { self.ticks.len() };
        self.ticks.iter().take(wanted).map(|tick| tick.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let named = self.ticks.iter().find(|tick| tick.0 == *value);
        named.map_or_else(|| label(*value), |tick| tick.1.clone())
    }
}

/// Returns the next larger of 1, 2 and 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= least);
    step.unwrap_or(10.0) * power
}

/// Returns a readable number: `0.5`, `20`, `3 000`, `2 M`.
fn label(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{} M", short(value / 1e6)),
        _ if value >= 1e3 => format!("{} k", short(value / 1e3)),
        _ => short(value),
    }
}

fn short(value: f64) -> String {
    // These are enough digits for a tick, without rounding errors.
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const HEADROOM: f64 = 1.08;
const EVEN_TICKS: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> String {
        axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::of([3.0, 11.0].into_iter(), false)), "0 2 4 6 8 10");
        assert_eq!(labels(&Axis::of([30.0, 1_100.0].into_iter(), true)), "50 100 200 500 1 k");
        assert_eq!(labels(&Axis::of([0.3, 0.9].into_iter(), false)), "0 0.2 0.4 0.6 0.8");
    }

    #[test]
    fn values_that_cannot_be_drawn_take_no_room() {
        let axis = Axis::of([f64::NAN, f64::INFINITY, 0.0, 10.0, 20.0].into_iter(), true);
        assert!(axis.low > 9.0 && axis.high < 22.0, "{axis:?}");
        assert_eq!(labels(&Axis::of(std::iter::empty(), true)), "1");
    }

    #[test]
    fn a_value_is_drawn_where_it_belongs() {
        let axis = Axis::named(vec![(1.0, "a".to_owned()), (100.0, "b".to_owned())]);
        assert_eq!(axis.map(&10.0, (0, 200)), 100);
        assert_eq!(Axis::of([100.0 / HEADROOM].into_iter(), false).map(&25.0, (400, 0)), 300);
    }
}

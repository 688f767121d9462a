//! Judges how a cost grows: its slope, and its cliffs.
//!
//! The slope is that of a line through the logarithms of size and cost, by least squares: 0 is a
//! constant cost, 1 a linear one, 2 a quadratic one. A cliff is a step at which the unit cost more
//! than doubles compared with the trend of the step before.

use std::fmt;

/// The way in which a cost may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The cost stays the same: that of one thing in the presence of many others.
    Constant,
    /// The cost grows with the size, which is that of the work.
    Linear,
}

/// A cost at growing sizes.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The cost, and the size to which it is related.
    pub what: String,
    /// The way in which it may grow.
    pub expected: Expected,
    /// The sizes, none of them zero, and the whole cost of each.
    pub points: Vec<(f64, f64)>,
}

impl Growth {
    /// Returns the slope over all sizes.
    #[must_use]
    pub fn slope(&self) -> f64 {
        slope(&self.points)
    }

    /// Returns the slope over the larger half of the sizes, in which fixed costs no longer hide the
    /// growth.
    #[must_use]
    pub fn last_slope(&self) -> f64 {
        let half = self.points.len() / 2;
        slope(&self.points[half.min(self.points.len().saturating_sub(MIN_POINTS))..])
    }

    /// Returns the steeper of both.
    #[must_use]
    pub fn steepest(&self) -> f64 {
        self.slope().max(self.last_slope())
    }

    /// Returns the steepest slope that is still as expected.
    #[must_use]
    pub fn bound(&self) -> f64 {
        match self.expected {
            Expected::Constant => 0.1,
            Expected::Linear => 1.1,
        }
    }

    /// Returns the sizes right after a cliff.
    #[must_use]
    pub fn cliffs(&self) -> Vec<f64> {
        let units: Vec<_> = self.points.iter().map(|&point| (point.0, self.unit(point))).collect();
        let steps: Vec<_> = units.windows(2).map(slope).collect();
        let is_cliff = |at: &usize| {
            let ((size, unit), (next_size, next)) = (units[*at], units[at + 1]);
            let neighbour = at.checked_sub(1).unwrap_or(at + 1);
            // Fixed costs make the first units expensive, so units that get cheaper predict
            // nothing.
            let trend = steps.get(neighbour).map_or(0.0, |trend| trend.clamp(0.0, 1.0));
            next > 2.0 * unit * (next_size / size).powf(trend)
        };
        (0..steps.len()).filter(is_cliff).map(|at| units[at + 1].0).collect()
    }

    /// Returns `true` if it grows as expected.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.steepest() <= self.bound() && self.cliffs().is_empty()
    }

    fn unit(&self, (size, cost): (f64, f64)) -> f64 {
        match self.expected {
            Expected::Constant => cost,
            Expected::Linear => cost / size,
        }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slope, last) = (self.slope(), self.last_slope());
        let goal = match self.expected {
            Expected::Constant => "constant would be 0",
            Expected::Linear => "linear would be 1",
        };
        write!(f, "{}: slope {slope:.2}, {last:.2} at the end ({goal})", self.what)?;
        if self.steepest() > self.bound() {
            let verdict = match self.expected {
                Expected::Constant => "not constant",
                Expected::Linear => "worse than linear",
            };
            write!(f, ", **{verdict}**")?;
        }
        self.cliffs().iter().try_for_each(|size| write!(f, ", **cliff at {size}**"))
    }
}

/// Returns the slope by least squares of the logarithms; NaN for fewer than two points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let logs = || points.iter().map(|&(size, cost)| (size.ln(), cost.max(f64::MIN_POSITIVE).ln()));
    let (x_mean, y_mean) =
        logs().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (over, under) = logs().fold((0.0, 0.0), |(over, under), (x, y)| {
        (over + (x - x_mean) * (y - y_mean), under + (x - x_mean).powi(2))
    });
    over / under
}

/// The smallest number of points at the end; with fewer, noise would dominate.
const MIN_POINTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 6] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5];

    fn growth(expected: Expected, cost: impl Fn(f64) -> f64) -> Growth {
        let points = SIZES.iter().map(|&size| (size, cost(size))).collect();
        Growth { what: "made up".to_owned(), expected, points }
    }

    #[test]
    fn a_linear_cost_has_the_slope_one_and_is_sound() {
        let linear = growth(Expected::Linear, |size| 7.0 * size);
        assert!((linear.slope() - 1.0).abs() < 1e-9 && linear.is_sound(), "{linear}");
        let with_a_start = growth(Expected::Linear, |size| 500.0 + 7.0 * size);
        assert!(with_a_start.slope() < 0.9 && with_a_start.is_sound(), "{with_a_start}");
    }

    #[test]
    fn a_quadratic_cost_is_found_by_its_slope_and_has_no_cliff() {
        let quadratic = growth(Expected::Linear, |size| 3.0 * size * size);
        assert!((quadratic.slope() - 2.0).abs() < 1e-9 && !quadratic.is_sound());
        assert!(quadratic.cliffs().is_empty(), "{quadratic}");
        assert!(quadratic.to_string().ends_with("**worse than linear**"), "{quadratic}");
    }

    #[test]
    fn fixed_costs_do_not_hide_growth_at_the_end() {
        let hidden = growth(Expected::Linear, |size| 1e5 + size + 1e-2 * size * size);
        assert!(hidden.slope() < 1.1 && hidden.last_slope() > 1.1, "{hidden}");
        assert!(!hidden.is_sound());
    }

    #[test]
    fn a_step_is_a_cliff_and_the_sizes_after_it_are_not() {
        let from = |size: f64| if size < 1e4 { 7.0 * size } else { 30.0 * size };
        assert_eq!(growth(Expected::Linear, from).cliffs(), [1e4]);
        let double = |size: f64| if size < 1e4 { 7.0 * size } else { 13.9 * size };
        assert!(growth(Expected::Linear, double).cliffs().is_empty());
        let first = |size: f64| if size < 10.0 { 7.0 } else { 30.0 * size };
        assert_eq!(growth(Expected::Linear, first).cliffs(), [10.0]);
    }

    #[test]
    fn the_cost_of_one_of_many_must_be_constant() {
        assert!(growth(Expected::Constant, |_| 40.0).is_sound());
        let walk = growth(Expected::Constant, |size| 40.0 + 1e-3 * size);
        assert!(walk.slope() < 1.0 && !walk.is_sound(), "{walk}");
        assert!(walk.to_string().contains("**not constant**"), "{walk}");
    }
}

//! The progress of a run and its remaining time, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error if that is a terminal, and nothing otherwise.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Returns a visible bar.
    #[must_use]
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr_with_hz(REDRAWN_PER_SECOND))
    }

    /// Returns a hidden bar.
    #[must_use]
    pub fn hidden() -> Self {
        Self::on(ProgressDrawTarget::hidden())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template(STYLE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar }
    }

    /// Shows which part of how many comes next.
    pub fn part(&self, at: usize, of: usize) {
        self.bar.set_prefix(format!("part {at} of {of}"));
    }

    /// Begins a task of this many steps.
    pub fn begin(&self, steps: u64, what: &str) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.say(what);
    }

    /// Marks a step as done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Shows what runs now.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Prints to standard output without leaving fragments of the bar in it.
    pub fn print(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// The rate at which the bar is redrawn without a separate thread, which would take part in the
/// measurement.
const REDRAWN_PER_SECOND: u8 = 5;
const STYLE: &str = "{prefix} [{bar:30}] {eta:>4} left  {wide_msg}";

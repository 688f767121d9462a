//! What runs and how long it will still take, for people who wait. Only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error while that is a terminal, and nothing otherwise.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that shows itself where somebody looks.
    #[must_use]
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr_with_hz(REDRAWN_PER_SECOND))
    }

    /// One that shows nothing.
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

    /// Which part of how many comes next.
    pub fn part(&self, at: usize, of: usize) {
        self.bar.set_prefix(format!("part {at} of {of}"));
    }

    /// Something of so many steps begins.
    pub fn begin(&self, steps: u64, what: &str) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.say(what);
    }

    /// One of the steps is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// What runs now.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Says something on standard output, without leaving a piece of the bar in it.
    pub fn print(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    /// Nothing more comes: the line is free for others.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// Not by a thread of its own, which would take part in the measurement.
const REDRAWN_PER_SECOND: u8 = 5;
const STYLE: &str = "{prefix} [{bar:30}] {eta:>4} left  {wide_msg}";

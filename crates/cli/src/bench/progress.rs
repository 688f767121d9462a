//! Shows a line of progress at the terminal.
//!
//! A separate thread writes it a few times a second. The measuring thread only stores a number,
//! because writing to a terminal would take longer than most of what it measures. Without a
//! terminal there is neither a line nor a thread.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::BenchArgs;

/// The line. Dropping it erases the line.
pub(super) struct Progress {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    pairs: AtomicU64,
    is_over: AtomicBool,
}

impl Progress {
    /// Starts to show the line, if standard error is a terminal.
    pub(super) fn begin(args: &BenchArgs) -> Self {
        let shared = Arc::<Shared>::default();
        let writer = io::stderr().is_terminal().then(|| {
            let (shared, span) = (Arc::clone(&shared), args.warm_up + args.duration);
            thread::spawn(move || show(&shared, span))
        });
        Self { shared, writer }
    }

    /// Sets the number of pairs so far.
    pub(super) fn tell(&self, pairs: u64) {
        self.shared.pairs.store(pairs, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
            // An error of the line must not lose the figures.
            let _ = writer.join();
        }
    }
}

fn show(shared: &Shared, span: Duration) {
    let since = Instant::now();
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::new(millis(span));
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {msg}");
    bar.set_style(style.expect("a template that holds").progress_chars("=> "));
    while !shared.is_over.load(Ordering::Relaxed) {
        let pairs = shared.pairs.load(Ordering::Relaxed);
        let rate = pairs as f64 / since.elapsed().as_secs_f64().max(0.001);
        bar.set_message(format!("{pairs} pairs, {rate:.0} per second"));
        bar.set_position(millis(since.elapsed().min(span)));
        thread::park_timeout(EVERY);
    }
    bar.finish_and_clear();
}

/// The interval between updates, short enough for a reader.
const EVERY: Duration = Duration::from_millis(250);

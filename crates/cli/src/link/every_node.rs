//! Asks all nodes the same questions at once, with one thread for each.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::Config;

use super::place::Place;

/// Runs `ask` for every node at once. Returns the results that arrived in time, in the order of the
/// nodes, with `None` for a node that takes longer.
pub(crate) fn ask_every_node<T: Send + 'static>(
    config: &Config,
    places: Vec<Place>,
    within: Duration,
    ask: impl Fn(&Config, &Place) -> T + Clone + Send + 'static,
) -> Vec<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    let mut answers: Vec<Option<T>> = places.iter().map(|_| None).collect();
    for (at, place) in places.into_iter().enumerate() {
        let (config, ask, sender) = (config.clone(), ask.clone(), sender.clone());
        // Resolving a host name can take very long. Its thread is then abandoned.
        thread::spawn(move || {
            let answer = ask(&config, &place);
            // An answer that is late has no receiver.
            let _ = sender.send((at, answer));
        });
    }
    drop(sender);
    let until = Instant::now() + within;
    let left = || until.saturating_duration_since(Instant::now());
    while let Ok((at, answer)) = receiver.recv_timeout(left()) {
        answers[at] = Some(answer);
    }
    answers
}

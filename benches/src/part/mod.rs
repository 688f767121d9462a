//! The parts of the suite: each measures one thing and returns a section.
//!
//! To add one: a file in this folder with a `run`, and a line in [`PARTS`]. A part starts and ends
//! its own nodes.

mod build;
mod crowd;
mod dead;
mod handoff;
mod hung;
mod inflight;
mod kinds;
mod pair;
mod queue;
mod scale;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use anyhow::Result;

use crate::choice::Choice;
use crate::progress::Progress;
use crate::section::Section;

/// A part of the suite.
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// The measurement, described in a line.
    pub about: &'static str,
    /// The function that measures. An error voids this part alone.
    pub run: fn(&Choice, &Progress) -> Result<Section>,
}

/// All parts, in the order in which they run and are reported.
pub const PARTS: &[Part] = &[
    Part { name: "pair", about: "acquire + release by one client", run: pair::run },
    #[cfg(feature = "tls")]
    Part { name: "tls", about: "the same over TLS", run: tls::run },
    Part { name: "handoff", about: "from a release to the next holder", run: handoff::run },
    Part { name: "waiting", about: "processes that take turns, by strategy", run: waiting::run },
    Part { name: "crowd", about: "many processes that want one lock", run: crowd::run },
    Part { name: "queue", about: "behind dead waiters, and far from the nodes", run: queue::run },
    Part { name: "dead", about: "acquire + release while f nodes are dead", run: dead::run },
    Part { name: "hung", about: "many processes while f nodes hang", run: hung::run },
    Part { name: "inflight", about: "many locks at a time by one client", run: inflight::run },
    Part { name: "kinds", about: "readers of one key, and permits", run: kinds::run },
    Part { name: "scale", about: "cost as work grows", run: scale::run },
    Part { name: "build", about: "what a client weighs in the build", run: build::run },
];

//! The floor for many processes that take turns: each releases to the next one alone.
//!
//! No process asks before its turn, so no request is useless. The messages are those of `pub_sub`,
//! over a separate channel for each seat.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::contract::{PATIENCE, Seat};
use super::pub_sub::{Channels, PubSub};
use crate::contender::{Asked, Contender, Task};

pub(super) fn start(seat: Seat, task: &Task) -> Result<Box<dyn Contender>> {
    let channel = |at: usize| format!("{}:{:03}", task.resource, at % seat.of);
    let channels = Channels { own: channel(seat.at), next: channel(seat.at + 1) };
    let side = PubSub::connect(task, &channels, task.nodes.len() / 2 + 1)?;
    // The first one needs no message for its first turn.
    let turns = u64::from(seat.at != 0);
    Ok(Box::new(Ring { side, turns }))
}

struct Ring {
    side: PubSub,
    /// The number of messages of a node after which it is our turn.
    turns: u64,
}

impl Contender for Ring {
    fn acquire(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        self.side.await_turn(self.turns, until)?;
        self.turns += 1;
        while !self.side.try_acquire()? {
            ensure!(Instant::now() < until, "it was not its turn");
            // A node may still have the release of the one before last to run.
            self.side.pause()?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.side.release()
    }

    fn asked(&self) -> Option<Asked> {
        self.side.asked()
    }
}

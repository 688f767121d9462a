//! Commands that the thread has taken from the queue and not carried out yet.
//!
//! Invariant: a command is here or in the queue until it is carried out, and the lock of the one that is being carried
//! out is known, so that a panic leaves no caller without an outcome.

use std::sync::Arc;

use super::queue::{Command, Queue};
use super::slot::LockSlot;

#[derive(Default)]
pub(super) struct Mailbox {
    /// The next one last.
    commands: Vec<Command>,
    /// The lock of the command that is being carried out.
    current: Option<Arc<LockSlot>>,
    /// The thread has slept since commands were taken.
    has_slept: bool,
    /// Several commands came together the last time.
    is_bursty: bool,
}

impl Mailbox {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Notes that the thread goes to sleep.
    pub(super) fn note_sleep(&mut self) {
        self.has_slept = true;
    }

    /// Takes the commands that have come, if none is left of those before.
    pub(super) fn fill(&mut self, queue: &Queue) {
        if !self.commands.is_empty() {
            return;
        }
        // The wake-up has interrupted the client that pushed the first command, if it shares a core with us. In a
        // burst it may go on first: each command by itself would cost it and the nodes as much as all together.
        if std::mem::take(&mut self.has_slept) && self.is_bursty && queue.is_filled() {
            std::thread::yield_now();
        }
        queue.take(&mut self.commands);
        self.commands.reverse();
        if !self.commands.is_empty() {
            self.is_bursty = self.commands.len() > 1;
        }
    }

    /// Takes the next command, which is being carried out until the next call.
    pub(super) fn next(&mut self) -> Option<Command> {
        let command = self.commands.pop();
        self.current = command.as_ref().and_then(Command::slot).cloned();
        command
    }

    /// Notes that no command is being carried out.
    pub(super) fn finish(&mut self) {
        self.current = None;
    }

    /// Ends the queue. Returns the commands that were not carried out, and the lock of one that was being carried out.
    pub(super) fn close(mut self, queue: &Queue) -> (Vec<Command>, Option<Arc<LockSlot>>) {
        self.commands.extend(queue.end());
        (self.commands, self.current)
    }
}

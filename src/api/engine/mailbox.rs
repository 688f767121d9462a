//! Messages that the loop has taken from the queue and not carried out yet.
//!
//! Invariant: a message is here or in the queue until it is carried out, and the lock of the one that is being carried
//! out is known, so that a panic leaves no caller without an outcome.

use std::sync::Arc;

use super::queue::{Message, Queue};
use super::slot::LockSlot;

#[derive(Default)]
pub(super) struct Mailbox {
    /// The next one last.
    messages: Vec<Message>,
    /// The lock of the message that is being carried out.
    current: Option<Arc<LockSlot>>,
    /// The thread has slept since messages were taken.
    has_slept: bool,
    /// Several messages came together the last time.
    is_bursty: bool,
}

impl Mailbox {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Notes that the thread goes to sleep.
    pub(super) fn note_sleep(&mut self) {
        self.has_slept = true;
    }

    /// Takes the messages that have come, if none is left of those before.
    pub(super) fn fill(&mut self, queue: &Queue) {
        if !self.messages.is_empty() {
            return;
        }
        // The wake-up has interrupted the client that pushed the first message, if it shares a core with us. In a
        // burst it may go on first: each message by itself would cost it and the nodes as much as all together.
        if std::mem::take(&mut self.has_slept) && self.is_bursty && queue.is_filled() {
            std::thread::yield_now();
        }
        queue.take(&mut self.messages);
        self.messages.reverse();
        if !self.messages.is_empty() {
            self.is_bursty = self.messages.len() > 1;
        }
    }

    /// Takes the next message if it is wanted. It is being carried out until the next call.
    pub(super) fn next_if(&mut self, is_wanted: fn(&Message) -> bool) -> Option<Message> {
        let message = self.messages.pop_if(|message| is_wanted(message));
        self.current = message.as_ref().and_then(Message::slot).cloned();
        message
    }

    /// Notes that no message is being carried out.
    pub(super) fn finish(&mut self) {
        self.current = None;
    }

    /// Ends the queue. Returns the messages that were not carried out, and the lock of one that was being carried out.
    pub(super) fn close(mut self, queue: &Queue) -> (Vec<Message>, Option<Arc<LockSlot>>) {
        self.messages.extend(queue.end());
        (self.messages, self.current)
    }
}

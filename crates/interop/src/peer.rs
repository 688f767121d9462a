//! A peer: a process of another library, which reads commands, one per line, and answers each with
//! a line. `library` installs and starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// A running process, which is killed when this value is dropped.
pub(crate) struct Peer {
    process: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<(String, Instant)>,
}

impl Peer {
    pub(crate) fn start(command: &mut Command) -> Result<Self, Failure> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let (sender, replies) = channel();
        if let Some(output) = process.stdout.take() {
            thread::spawn(move || listen(output, &sender));
        }
        Ok(Self { orders: process.stdin.take(), process, replies })
    }

    /// Sends a command. The reply is awaited elsewhere.
    pub(crate) fn order(&mut self, order: &str) -> Result<(), Failure> {
        let orders = self.orders.as_mut().ok_or("the peer was told to end")?;
        Ok(writeln!(orders, "{order}").and_then(|()| orders.flush())?)
    }

    /// Returns the next reply, and when it came.
    pub(crate) fn reply(&mut self) -> Result<(String, Instant), Failure> {
        Ok(self.replies.recv_timeout(LIMIT).map_err(|error| format!("no reply: {error}"))?)
    }

    /// Returns the next reply, if it has arrived.
    pub(crate) fn has_replied(&mut self) -> Result<Option<String>, Failure> {
        match self.replies.try_recv() {
            Ok((reply, _)) => Ok(Some(reply)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a command, and expects this reply.
    pub(crate) fn expect(&mut self, order: &str, expected: &str) -> Result<Instant, Failure> {
        self.order(order)?;
        let (reply, at) = self.reply()?;
        match reply.starts_with(expected) {
            true => Ok(at),
            false => Err(format!("{order}: {reply}, and not {expected}").into()),
        }
    }

    /// Returns `true` if it gets a lock without waiting for it.
    pub(crate) fn tries(&mut self, name: &str, ttl: Duration) -> Result<bool, Failure> {
        self.order(&format!("acquire {name} 0 {}", ttl.as_millis()))?;
        match self.reply()?.0.as_str() {
            "held" => Ok(true),
            "busy" => Ok(false),
            other => Err(other.into()),
        }
    }

    /// Kills the process, without a chance to clean up.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Lets the process end by itself.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.orders = None;
        let until = Instant::now() + LIMIT;
        while self.process.try_wait()?.is_none() {
            if Instant::now() > until {
                return Err("the peer does not end".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process has ended if this fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Passes lines on until one of both ends is closed.
fn listen(output: ChildStdout, to: &Sender<(String, Instant)>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if to.send((line, Instant::now())).is_err() {
            return;
        }
    }
}

/// The longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

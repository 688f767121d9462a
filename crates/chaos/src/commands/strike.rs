//! The faults that hit the processes of one `redbolt lock`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;

use super::processes::{inner_of, lives, send};

/// The faults that are planned, and the stops that have to end.
pub(super) struct Strikes {
    outer: i32,
    ready: PathBuf,
    /// The faults to inject this long after the command holds the lock.
    inside: Vec<(Duration, Target, Blow)>,
    /// The faults to inject at this time.
    planned: Vec<(Instant, Target, Blow)>,
    stopped: Vec<(Instant, i32)>,
    began: Instant,
    /// The faults so far, with their times.
    story: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Outer,
    Inner,
    Both,
    Command,
    Started,
}

#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Stop(Duration),
    Terminate,
}

impl Strikes {
    /// Plans some faults at random, or none. One of the two redbolt processes is spared, unless
    /// `both` are to be killed at once.
    pub(super) fn plan(rng: &mut Rng, outer: i32, ready: PathBuf, both: bool) -> Self {
        let victim = if rng.bool() { Target::Outer } else { Target::Inner };
        let moment = |rng: &mut Rng| Duration::from_millis(rng.u64(0..600));
        let mut blows = |upto| {
            let blows = (0..rng.usize(0..upto)).map(|_| (moment(rng), blow(rng, victim)));
            blows.map(|(after, (target, blow))| (after, target, blow)).collect::<Vec<_>>()
        };
        let (early, mut inside) = (blows(2), blows(4));
        if both {
            inside = vec![(moment(rng), Target::Both, Blow::Kill)];
        }
        let start = Instant::now();
        let early = early.into_iter().filter(|_| !both);
        let planned = early.map(|(after, target, blow)| (start + after, target, blow)).collect();
        let (began, story) = (start, String::new());
        Self { outer, ready, inside, planned, stopped: Vec::new(), began, story }
    }

    /// Injects the faults that are due, and counts them.
    pub(super) fn strike(&mut self, counts: &mut BTreeMap<&'static str, usize>) {
        let now = Instant::now();
        self.stopped.retain(|&(until, pid)| {
            let is_over = until <= now;
            if is_over {
                send(pid, Signal::CONT);
            }
            !is_over
        });
        if !self.inside.is_empty() && self.ready.exists() {
            let inside = self.inside.drain(..);
            self.planned.extend(inside.map(|(after, target, blow)| (now + after, target, blow)));
        }
        let due: Vec<_> = self.planned.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, target, blow) in due {
            if let Some(what) = self.deal(target, blow) {
                *counts.entry(what).or_default() += 1;
                let at = self.began.elapsed().as_millis();
                self.story.push_str(&format!("{what} after {at} ms, "));
            }
        }
    }

    /// Continues all stopped processes and returns the faults so far.
    pub(super) fn end(self) -> String {
        self.stopped.iter().for_each(|&(_, pid)| send(pid, Signal::CONT));
        format!("{}ended after {} ms", self.story, self.began.elapsed().as_millis())
    }

    /// Injects a fault and returns its name, if its target existed.
    fn deal(&mut self, target: Target, blow: Blow) -> Option<&'static str> {
        if target == Target::Both {
            return self.kill_both();
        }
        let (command, started) = self.inside();
        let pid = match target {
            Target::Outer => self.outer,
            Target::Inner | Target::Both => inner_of(self.outer)?,
            Target::Command => command?,
            Target::Started => *started.first()?,
        };
        if target == Target::Command && matches!(blow, Blow::Kill) {
            // `redbolt` ends by itself when the command ends, and may leave the command's children
            // running. So they are killed first.
            started.iter().for_each(|&pid| send(pid, Signal::KILL));
            let until = Instant::now() + Duration::from_secs(5);
            while started.iter().any(|&pid| lives(pid)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        }
        match blow {
            Blow::Kill => send(pid, Signal::KILL),
            Blow::Terminate => send(pid, Signal::TERM),
            Blow::Stop(span) => {
                send(pid, Signal::STOP);
                self.stopped.push((Instant::now() + span, pid));
            }
        }
        Some(name(target, blow))
    }

    /// Stops both before it kills the first, so that neither notices the other's end. Only while
    /// the command holds the lock can a process outlive them.
    fn kill_both(&self) -> Option<&'static str> {
        self.inside().0?;
        let both = [self.outer, inner_of(self.outer)?];
        for signal in [Signal::STOP, Signal::KILL] {
            both.iter().for_each(|&pid| send(pid, signal));
        }
        Some(name(Target::Both, Blow::Kill))
    }

    /// Returns the command, and its children, once they exist.
    fn inside(&self) -> (Option<i32>, Vec<i32>) {
        let pids = fs::read_to_string(&self.ready).unwrap_or_default();
        let mut pids = pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        (pids.next(), pids.collect())
    }
}

fn blow(rng: &mut Rng, victim: Target) -> (Target, Blow) {
    let blow = match rng.u8(0..3) {
        0 => Blow::Kill,
        1 => Blow::Stop(Duration::from_millis(rng.u64(1..5000))),
        _ => Blow::Terminate,
    };
    let target = match (rng.u8(0..6), blow) {
        (0..4, Blow::Terminate) if rng.bool() => Target::Outer,
        (0..4, Blow::Terminate) => Target::Inner,
        (0..4, _) => victim,
        (4, _) => Target::Command,
        _ => Target::Started,
    };
    (target, blow)
}

fn name(target: Target, blow: Blow) -> &'static str {
    match (target, blow) {
        (Target::Outer, Blow::Kill) => "outer killed",
        (Target::Outer, Blow::Stop(_)) => "outer stopped",
        (Target::Outer, Blow::Terminate) => "outer terminated",
        (Target::Inner, Blow::Kill) => "inner killed",
        (Target::Inner, Blow::Stop(_)) => "inner stopped",
        (Target::Inner, Blow::Terminate) => "inner terminated",
        (Target::Both, _) => "both killed",
        (Target::Command, Blow::Kill) => "command killed",
        (Target::Command, Blow::Stop(_)) => "command stopped",
        (Target::Command, Blow::Terminate) => "command terminated",
        (Target::Started, Blow::Kill) => "started killed",
        (Target::Started, Blow::Stop(_)) => "started stopped",
        (Target::Started, Blow::Terminate) => "started terminated",
    }
}

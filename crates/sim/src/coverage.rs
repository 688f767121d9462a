//! Coverage: the phases in which faults met a client, the error replies given, and the edges of a
//! lock's life taken. A fault that never met a phase is an untested promise, so a long run with an
//! empty cell fails.

use std::fmt::{self, Write as _};

use crate::fault::errors::PREFIXES;

/// The phase of a client when a fault meets it. A client has several links and locks, and so can be
/// in several phases at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Connecting,
    Handshaking,
    Asked,
    Partly,
    Granted,
    Extending,
    Releasing,
    Waiting,
    /// A push link is being opened, or does not notify yet.
    Subscribing,
    /// A node sends notifications.
    Told,
}

impl Phase {
    pub(crate) const ALL: [Self; 10] = [
        Self::Connecting,
        Self::Handshaking,
        Self::Asked,
        Self::Partly,
        Self::Granted,
        Self::Extending,
        Self::Releasing,
        Self::Waiting,
        Self::Subscribing,
        Self::Told,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Handshaking => "handshaking",
            Self::Asked => "asked",
            Self::Partly => "partly",
            Self::Granted => "granted",
            Self::Extending => "extending",
            Self::Releasing => "releasing",
            Self::Waiting => "waiting",
            Self::Subscribing => "subscribing",
            Self::Told => "told",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases(u16);

impl Phases {
    pub(crate) fn insert(&mut self, phase: Phase) {
        self.0 |= 1 << phase as u8;
    }
}

/// A step of a lock's life, as in the diagram in ARCHITECTURE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Edge {
    AskingHeld,
    AskingFencing,
    FencingHeld,
    FencingPausing,
    FencingRefused,
    AskingPausing,
    PausingAsking,
    AskingRefused,
    AskingCancelled,
    PausingOutOfTime,
    PausingCancelled,
    HeldExtending,
    ExtendingExtended,
    ExtendingRefused,
    HeldReleasing,
    ExtendingReleasing,
    ReleasingReleased,
    HeldLost,
    ExtendingLost,
    LostGone,
    LostLetGo,
    QueuedAsking,
    QueuedOutOfTime,
    QueuedCancelled,
    HeldDetached,
    DetachedHeld,
    DetachedLost,
}

impl Edge {
    const ALL: [(Self, &'static str); EDGES] = [
        (Self::AskingHeld, "asking > held"),
        (Self::AskingFencing, "asking > fencing"),
        (Self::FencingHeld, "fencing > held"),
        (Self::FencingPausing, "fencing > pausing"),
        (Self::FencingRefused, "fencing > refused"),
        (Self::AskingPausing, "asking > pausing"),
        (Self::PausingAsking, "pausing > asking"),
        (Self::AskingRefused, "asking > refused"),
        (Self::AskingCancelled, "asking > cancelled"),
        (Self::PausingOutOfTime, "pausing > out of time"),
        (Self::PausingCancelled, "pausing > cancelled"),
        (Self::HeldExtending, "held > extending"),
        (Self::ExtendingExtended, "extending > held, longer"),
        (Self::ExtendingRefused, "extending > held, as before"),
        (Self::HeldReleasing, "held > releasing"),
        (Self::ExtendingReleasing, "extending > releasing"),
        (Self::ReleasingReleased, "releasing > released"),
        (Self::HeldLost, "held > lost"),
        (Self::ExtendingLost, "extending > lost"),
        (Self::LostGone, "extending > lost, keys gone"),
        (Self::LostLetGo, "lost > let go"),
        (Self::QueuedAsking, "queued > asking"),
        (Self::QueuedOutOfTime, "queued > out of time"),
        (Self::QueuedCancelled, "queued > cancelled"),
        (Self::HeldDetached, "held > detached"),
        (Self::DetachedHeld, "detached > held"),
        (Self::DetachedLost, "detached > lost"),
    ];
}

const EDGES: usize = 27;
const FAULTS: usize = 21;

/// Counts of everything that was covered.
#[derive(Clone)]
pub struct Coverage {
    faults: [[u64; Phase::ALL.len()]; FAULTS],
    prefixes: [u64; PREFIXES.len()],
    edges: [u64; EDGES],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            faults: [[0; Phase::ALL.len()]; FAULTS],
            prefixes: [0; PREFIXES.len()],
            edges: [0; EDGES],
        }
    }
}

impl Coverage {
    /// Counts a fault, numbered from 1, that met a client in these phases.
    pub(crate) fn fault(&mut self, number: usize, phases: Phases) {
        for phase in Phase::ALL {
            let bit = phases.0 >> phase as u8 & 1;
            self.faults[number - 1][phase as usize] += u64::from(bit);
        }
    }

    pub(crate) fn prefix(&mut self, at: usize) {
        self.prefixes[at] += 1;
    }

    pub(crate) fn edge(&mut self, edge: Edge) {
        self.edges[edge as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let cells = self.faults.iter_mut().flatten().zip(other.faults.iter().flatten());
        cells.for_each(|(cell, more)| *cell += more);
        self.prefixes.iter_mut().zip(other.prefixes).for_each(|(cell, more)| *cell += more);
        self.edges.iter_mut().zip(other.edges).for_each(|(cell, more)| *cell += more);
    }

    /// Returns every cell with its name.
    fn cells(&self) -> Vec<(u64, String)> {
        let mut cells = Vec::new();
        for (fault, row) in self.faults.iter().enumerate() {
            for phase in Phase::ALL {
                let name = format!("F{} in {}", fault + 1, phase.name());
                cells.push((row[phase as usize], name));
            }
        }
        for (at, prefix) in PREFIXES.iter().enumerate() {
            cells.push((self.prefixes[at], format!("error {}", prefix.name())));
        }
        for (edge, name) in Edge::ALL {
            cells.push((self.edges[edge as usize], format!("edge {name}")));
        }
        cells
    }

    /// Returns the names of the empty cells.
    #[must_use]
    pub fn empty(&self) -> Vec<String> {
        self.cells().into_iter().filter(|(count, _)| *count == 0).map(|(_, name)| name).collect()
    }

    /// Returns the cells with the smallest counts.
    #[must_use]
    pub fn least(&self, how_many: usize) -> Vec<(u64, String)> {
        let mut cells = self.cells();
        cells.sort();
        cells.truncate(how_many);
        cells
    }

    /// Returns one line with the number of cells, of empty cells, and the smallest counts.
    #[must_use]
    pub fn summary(&self) -> String {
        let (cells, empty) = (self.cells().len(), self.empty().len());
        let mut line = format!("{cells} cells, {empty} of them empty; least hit:");
        for (count, name) in self.least(3) {
            let _ = write!(line, " {name} ({count}),");
        }
        line.truncate(line.len() - 1);
        line
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}", "fault")?;
        for phase in Phase::ALL {
            write!(f, " {:>12}", phase.name())?;
        }
        for (fault, row) in self.faults.iter().enumerate() {
            write!(f, "\n{:<6}", format!("F{}", fault + 1))?;
            for count in row {
                write!(f, " {count:>12}")?;
            }
        }
        f.write_str("\n\nerror replies")?;
        for (at, prefix) in PREFIXES.iter().enumerate() {
            write!(f, "\n  {:<28} {:>12}", prefix.name(), self.prefixes[at])?;
        }
        f.write_str("\n\nedges of a lock's life")?;
        for (edge, name) in Edge::ALL {
            write!(f, "\n  {name:<28} {:>12}", self.edges[edge as usize])?;
        }
        Ok(())
    }
}

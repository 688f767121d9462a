//! The mutation gate: bugs that others shipped are planted in the core one at a time, and the gate
//! counts the schedules that it takes to find each. This count is the evidence that the other
//! figures mean something.
//!
//! Bugs are compiled only into a separate build, `cargo xtask sim --mutants`. The list of bugs is
//! in `redbolt::proto::mutants`.

#[cfg(not(redbolt_mutants))]
pub use self::none::{Gate, plant};
#[cfg(redbolt_mutants)]
pub use self::planted::{Gate, plant};

/// The limits of a run of the gate.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of schedules that a bug may survive.
    pub limit: u64,
    /// The seed of the first schedule.
    pub first: u64,
    /// The number of threads.
    pub jobs: usize,
}

/// The result of a run of the gate.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// True if every bug was found, and nothing without a bug.
    pub is_well: bool,
    /// The number of planted bugs; 0 if something was found without a bug.
    pub planted: usize,
    /// The number of them that were found.
    pub found: usize,
}

#[cfg(not(redbolt_mutants))]
mod none {
    use super::{Extent, Report};

    /// A gate without bugs, because this build has none to plant: of these two names only the first
    /// exists.
    ///
    /// ```
    /// use redbolt::proto::Core;
    /// ```
    ///
    /// ```compile_fail
    /// use redbolt::proto::plant;
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct Gate;

    impl Gate {
        /// Prints how to get a build with bugs.
        #[must_use]
        pub fn run(_: Extent) -> Report {
            println!("no bug is compiled into this program: cargo xtask sim --mutants");
            Report::default()
        }
    }

    /// Plants nothing.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn plant(_: &str) -> Result<(), String> {
        Err("no bug is compiled into this program: cargo xtask sim --mutant NAME".to_owned())
    }
}

#[cfg(redbolt_mutants)]
mod planted {
    use std::fmt;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use redbolt::proto::Mutant;

    use super::{Extent, Report};
    use crate::{Class, Lab, Violation, cut_off, hung, library_channel};

    /// Plants the bug of this name on this thread, for good.
    ///
    /// # Errors
    ///
    /// Fails if no bug has this name.
    pub fn plant(name: &str) -> Result<(), String> {
        let known = Mutant::ALL.iter().find(|mutant| format!("{mutant:?}") == name);
        let known =
            known.ok_or_else(|| format!("no such bug: {name}; one of {:?}", Mutant::ALL))?;
        redbolt::proto::plant(Some(*known));
        Ok(())
    }

    /// The search for each bug.
    #[derive(Clone, Copy, Debug)]
    pub struct Gate;

    struct Fate {
        mutant: Mutant,
        took: Duration,
        killed: Option<Kill>,
    }

    /// One run that a bug may survive.
    #[derive(Clone, Copy)]
    enum Trial {
        Schedule(Class, u64),
        /// A crowd with hanging nodes, and one that its library notifies of releases, drawn from
        /// this seed: slowness is not a violation in a single schedule.
        Crowd(u64),
        /// The failovers of this seed, with a client that is cut off.
        CutOff(u64),
    }

    struct Kill {
        schedules: u64,
        trial: Trial,
        by: Violation,
        /// The run fails without the bug as well, which proves nothing.
        is_hollow: bool,
    }

    impl Gate {
        /// Runs the gate: first without any bug, then with each.
        #[must_use]
        pub fn run(extent: Extent) -> Report {
            let Some(clean) = clean(extent) else { return Report::default() };
            println!("{clean}\n\n{}", Fate::HEAD);
            let start = Instant::now();
            let fates = hunt_all(extent);
            let well = fates.iter().filter(|fate| fate.is_well()).count();
            let (all, took, jobs) = (fates.len(), start.elapsed().as_secs_f64(), extent.jobs);
            println!("\n{well} of {all} found in {took:.1} s on {jobs} threads");
            for fate in fates.iter().filter(|fate| !fate.is_well()) {
                println!("FAILED: {:?} survives: {}", fate.mutant, fate.mutant.what());
            }
            Report { is_well: well == all, planted: all, found: well }
        }
    }

    /// Runs the same schedules on the unchanged core. A violation there would not be caused by a
    /// bug.
    fn clean(extent: Extent) -> Option<String> {
        let schedules = extent.limit.min(CLEAN);
        let (next, found) = (AtomicU64::new(0), Mutex::new(None));
        let failed = AtomicBool::new(false);
        on_threads(extent.jobs, || {
            let mut lab = Lab::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= schedules || failed.load(Ordering::Relaxed) {
                    return;
                }
                let (class, seed) = schedule(None, extent.first, at);
                if let Some(violation) = lab.run(class, seed).violation {
                    failed.store(true, Ordering::Relaxed);
                    let mut found = found.lock().expect("no thread panics while it holds the lock");
                    found.get_or_insert((class, seed, violation));
                }
            }
        });
        let Some((class, seed, violation)) =
            found.into_inner().expect("no thread panics while it holds the lock")
        else {
            return Some(format!("{schedules} schedules without a bug: 0 violations"));
        };
        println!(
            "FAILED without any bug planted: {violation}\n\
             replay: cargo xtask sim --class {class} --replay {seed}"
        );
        None
    }

    /// Runs each bug on one thread, so that its count is the same on any machine.
    fn hunt_all(extent: Extent) -> Vec<Fate> {
        let next = AtomicUsize::new(0);
        let fates = Mutex::new(Vec::new());
        on_threads(extent.jobs, || {
            while let Some(&mutant) = Mutant::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                let fate = hunt(mutant, extent);
                println!("{}", fate.row());
                fates.lock().expect("no thread panics while it holds the lock").push(fate);
            }
        });
        let mut fates = fates.into_inner().expect("no thread panics while it holds the lock");
        fates.sort_by_key(|fate: &Fate| fate.mutant as usize);
        fates
    }

    fn hunt(mutant: Mutant, extent: Extent) -> Fate {
        let start = Instant::now();
        redbolt::proto::plant(Some(mutant));
        let mut lab = Lab::new();
        let found = (0..extent.limit).find_map(|at| {
            let (class, seed) = schedule(Some(mutant), extent.first, at);
            let crowd = (at == SURVIVED).then_some(Trial::Crowd(extent.first));
            let trial = match mutant {
                Mutant::PromotedCountsAtOnce => Trial::CutOff(seed),
                _ => Trial::Schedule(class, seed),
            };
            crowd.into_iter().chain([trial]).find_map(|trial| {
                let by = trial.run(&mut lab)?;
                Some(Kill { schedules: at + 1, trial, by, is_hollow: false })
            })
        });
        redbolt::proto::plant(None);
        let took = start.elapsed();
        let killed = found.map(|mut kill| {
            kill.is_hollow = kill.trial.run(&mut lab).is_some();
            kill
        });
        Fate { mutant, took, killed }
    }

    /// Returns the class and seed of the schedule with number `at` that a bug has to survive.
    fn schedule(mutant: Option<Mutant>, first: u64, at: u64) -> (Class, u64) {
        if mutant.is_some_and(is_of_permits) {
            return (Class::Permits, first.wrapping_add(at));
        }
        if mutant.is_some_and(is_of_profiles) {
            return (Class::Profiles, first.wrapping_add(at));
        }
        if mutant.is_some_and(is_of_queue) {
            return (Class::Waiting, first.wrapping_add(at));
        }
        if mutant.is_some_and(is_of_sharers) {
            return (Class::Shared, first.wrapping_add(at));
        }
        let class = match at % 4 {
            // This class finds bugs that make waiters sleep or spin,
            3 => Class::Waiting,
            // and this one those of readers, and of holders that change their mode.
            1 => Class::Shared,
            _ => Class::Safe,
        };
        (class, first.wrapping_add(at))
    }

    /// Returns true if only jobs that lock as other libraries do can show it.
    fn is_of_profiles(mutant: Mutant) -> bool {
        use Mutant::{
            AloneUnmarked, ChannelIgnored, CounterBeginsAnew, ForeignUndoneAsPlain,
            HashOfAnyHolder, LeaseNotLookedAt, LoserOverwrites, NeverTakenOver,
            ResetInsteadOfRelease, SecondNotExtended, SecondOfAnyHolder, SecondWithoutMargin,
            TokenOfRegistry, WriterReads,
        };
        matches!(
            mutant,
            AloneUnmarked
                | ChannelIgnored
                | CounterBeginsAnew
                | ForeignUndoneAsPlain
                | HashOfAnyHolder
                | LeaseNotLookedAt
                | LoserOverwrites
                | NeverTakenOver
                | ResetInsteadOfRelease
                | SecondNotExtended
                | SecondOfAnyHolder
                | SecondWithoutMargin
                | TokenOfRegistry
                | WriterReads
        )
    }

    /// Returns true if only waiters for a lock can show it.
    fn is_of_queue(mutant: Mutant) -> bool {
        use Mutant::{
            AskLeavesFree, CallFromFuture, CallsStay, ClosedIsAnybodys, ExpiryLeavesFree,
            GraceHasCap, GraceIsFixed, GraceOfAsker, GrantDropsTicket, HolderEndsUnnoticed,
            HoldersUnmarked, LeavesWhenRefused, NeverLeavesQueue, NobodyLooksFromBehind,
            NobodyPings, ReleaseLeavesFree, StampOfClientsClock, StampOfEachNode,
            StampRaisedWithPlace,
        };
        matches!(
            mutant,
            AskLeavesFree
                | CallFromFuture
                | CallsStay
                | ClosedIsAnybodys
                | ExpiryLeavesFree
                | GraceHasCap
                | GraceIsFixed
                | GraceOfAsker
                | GrantDropsTicket
                | HolderEndsUnnoticed
                | HoldersUnmarked
                | LeavesWhenRefused
                | NeverLeavesQueue
                | NobodyLooksFromBehind
                | NobodyPings
                | ReleaseLeavesFree
                | StampOfClientsClock
                | StampOfEachNode
                | StampRaisedWithPlace
        )
    }

    /// Returns true if only jobs that share a lock can show it, or their schedules show it soonest.
    fn is_of_sharers(mutant: Mutant) -> bool {
        use Mutant::{
            DowngradeBelievedLate, ExtensionOfOtherClaim, ExtensionRevives, FirstReaderRaises,
            KeyEndsWithLatest, ReaderLooksBefore, ReadersNeverRaise, ReleaseOfAllReaders,
            StampSentEarly, UpgradeIgnoresReaders, UpgradeSharesToken, WriteBackUnowned,
        };
        matches!(
            mutant,
            DowngradeBelievedLate
                | ExtensionOfOtherClaim
                | ExtensionRevives
                | FirstReaderRaises
                | KeyEndsWithLatest
                | ReaderLooksBefore
                | ReadersNeverRaise
                | ReleaseOfAllReaders
                | StampSentEarly
                | UpgradeIgnoresReaders
                | UpgradeSharesToken
                | WriteBackUnowned
        )
    }

    /// Returns true if only jobs that want permits can show it.
    fn is_of_permits(mutant: Mutant) -> bool {
        use Mutant::{
            CalledOnlyAlone, EndedPermitCounts, ExtensionOfAnySlot, HealUnguarded, MarkIgnored,
            MarkOutlives, MarkStays, MarkedNotClosed, MovedAnswerCounts, PermitOfAnySlots,
            PermitPassesOthers, PermitPassesPermits, PermitsArePassed, PermitsUnmarked,
            SlotsNotCounted, UndoBySlot,
        };
        matches!(
            mutant,
            CalledOnlyAlone
                | EndedPermitCounts
                | ExtensionOfAnySlot
                | HealUnguarded
                | UndoBySlot
                | MarkIgnored
                | MarkOutlives
                | MarkStays
                | MarkedNotClosed
                | MovedAnswerCounts
                | PermitOfAnySlots
                | PermitPassesOthers
                | PermitPassesPermits
                | PermitsArePassed
                | PermitsUnmarked
                | SlotsNotCounted
        )
    }

    impl Trial {
        fn run(self, lab: &mut Lab) -> Option<Violation> {
            match self {
                Self::Schedule(class, seed) => lab.run(class, seed).violation,
                Self::CutOff(seed) => cut_off::violation(seed),
                Self::Crowd(seed) => {
                    let hung = hung::Pair::QUICK.measure(seed).violation();
                    hung.or_else(|| library_channel::violation(&library_channel::measure(seed)))
                }
            }
        }
    }

    impl fmt::Display for Trial {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Schedule(class, seed) => write!(f, "{class} {seed}"),
                Self::Crowd(seed) => write!(f, "--crowd {seed}"),
                Self::CutOff(seed) => write!(f, "--cut-off 1 --seed {seed}"),
            }
        }
    }

    fn on_threads(jobs: usize, work: impl Fn() + Sync) {
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(&work);
            }
        });
    }

    impl Fate {
        const HEAD: &str = "| bug | what it does, and who shipped it | schedules | found by | replay | s |\n\
                            |---|---|---:|---|---|---:|";

        fn is_well(&self) -> bool {
            self.killed.as_ref().is_some_and(|kill| !kill.is_hollow)
        }

        fn row(&self) -> String {
            let Self { mutant, took, killed } = self;
            let (what, took) = (mutant.what(), took.as_secs_f64());
            match killed {
                None => format!("| {mutant:?} | {what} | | SURVIVES | | {took:.2} |"),
                Some(Kill { trial, is_hollow: true, .. }) => {
                    format!("| {mutant:?} | {what} | | fails without it | {trial} | {took:.2} |")
                }
                Some(Kill { schedules, trial, by, .. }) => format!(
                    "| {mutant:?} | {what} | {schedules} | {} | {trial} | {took:.2} |",
                    in_short(by)
                ),
            }
        }
    }

    /// Returns the name of the invariant, with the details that the name leaves out.
    fn in_short(violation: &Violation) -> String {
        match violation {
            Violation::Panicked { message } => format!("assertion: {message}"),
            Violation::Miscredited { what, .. } => format!("{}: {what}", violation.name()),
            Violation::Outcome { what, .. } => format!("told {what}"),
            Violation::QueueRule { what, .. } => format!("{}: {what}", violation.name()),
            _ => violation.name().to_owned(),
        }
    }

    /// The number of schedules after which a bug may be one that only costs time with hanging
    /// nodes.
    const SURVIVED: u64 = 2_000;

    /// The number of schedules without a bug, before any with one.
    const CLEAN: u64 = 20_000;
}

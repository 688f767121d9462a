//! The mutation gate: bugs that others shipped, planted in the core one at a time, and how many
//! schedules it takes to find each. This is the number that makes the others believable.
//!
//! A build with bugs in it is a build of its own, `cargo xtask sim --mutants`; an ordinary one has none
//! and says so. Not here: what the bugs are, which is in `redbolt::proto::mutants`, and where they are
//! planted.

#[cfg(not(redbolt_mutants))]
pub use self::none::{Gate, plant};
#[cfg(redbolt_mutants)]
pub use self::planted::{Gate, plant};

/// What the gate is to do.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How many schedules a bug may survive.
    pub limit: u64,
    /// The seed of the first one.
    pub first: u64,
    /// On how many threads.
    pub jobs: usize,
    /// One bug of so many; which of them changes from day to day.
    pub share: u64,
}

#[cfg(not(redbolt_mutants))]
mod none {
    use super::Extent;

    /// Nothing can be planted in this build.
    ///
    /// ```compile_fail
    /// redbolt::proto::plant(None);
    /// ```
    #[derive(Clone, Copy, Debug)]
    pub struct Gate;

    impl Gate {
        /// Says how to get a build with bugs.
        #[must_use]
        pub fn run(_: Extent) -> bool {
            println!("no bug is compiled into this program: cargo xtask sim --mutants");
            false
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant, SystemTime};

    use redbolt::proto::Mutant;

    use super::Extent;
    use crate::{Class, Lab, Violation};

    /// Plants the bug of this name on this thread, for good.
    ///
    /// # Errors
    ///
    /// There is none of this name.
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

    /// What became of a bug.
    struct Fate {
        mutant: Mutant,
        took: Duration,
        killed: Option<Kill>,
    }

    /// The schedule that found it.
    struct Kill {
        schedules: u64,
        class: Class,
        seed: u64,
        by: Violation,
        /// It fails without the bug as well, which proves nothing.
        is_hollow: bool,
    }

    impl Gate {
        /// Whether every bug is found, and nothing without one.
        #[must_use]
        pub fn run(extent: Extent) -> bool {
            let mutants = chosen(extent.share);
            if !is_clean(extent) {
                return false;
            }
            println!("\n{}", Fate::HEAD);
            let start = Instant::now();
            let fates = hunt_all(&mutants, extent);
            let well = fates.iter().filter(|fate| fate.is_well()).count();
            println!(
                "\n{well} of {} killed in {:.1} s on {} threads",
                fates.len(),
                start.elapsed().as_secs_f64(),
                extent.jobs
            );
            for fate in fates.iter().filter(|fate| !fate.is_well()) {
                println!("FAILED: {:?} survives: {}", fate.mutant, fate.mutant.what());
            }
            well == fates.len()
        }
    }

    /// The bugs whose turn it is.
    fn chosen(share: u64) -> Vec<Mutant> {
        let share = share.max(1);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let turn = since.map_or(0, |since| since.as_secs() / 86_400) % share;
        let is_due =
            |(at, mutant): (usize, &Mutant)| (at as u64 % share == turn).then_some(*mutant);
        let chosen: Vec<_> = Mutant::ALL.iter().enumerate().filter_map(is_due).collect();
        if share > 1 {
            println!(
                "{} of {} bugs: today those at {turn}, {}, {} .. of the list",
                chosen.len(),
                Mutant::ALL.len(),
                turn + share,
                turn + 2 * share
            );
        }
        chosen
    }

    /// The same schedules find nothing in the core as it is, or else what they find is no bug of ours.
    fn is_clean(extent: Extent) -> bool {
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
                let (class, seed) = schedule(extent.first, at);
                if let Some(violation) = lab.run(class, seed).violation {
                    failed.store(true, Ordering::Relaxed);
                    let mut found = found.lock().expect("no thread panics while it tells");
                    found.get_or_insert((class, seed, violation));
                }
            }
        });
        match found.into_inner().expect("no thread panics while it tells") {
            None => println!("no bug planted: {schedules} schedules, 0 violations"),
            Some((class, seed, violation)) => println!(
                "FAILED without any bug planted: {violation}\n\
                 replay: cargo xtask sim --class {class} --replay {seed}"
            ),
        }
        !failed.into_inner()
    }

    /// Each bug on one thread, so that its count is the same on any machine.
    fn hunt_all(mutants: &[Mutant], extent: Extent) -> Vec<Fate> {
        let next = AtomicUsize::new(0);
        let fates = Mutex::new(Vec::new());
        on_threads(extent.jobs, || {
            while let Some(&mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                let fate = hunt(mutant, extent);
                println!("{}", fate.row());
                fates.lock().expect("no thread panics while it adds").push(fate);
            }
        });
        fates.into_inner().expect("no thread panics while it adds")
    }

    fn hunt(mutant: Mutant, extent: Extent) -> Fate {
        let start = Instant::now();
        redbolt::proto::plant(Some(mutant));
        let mut lab = Lab::new();
        let found = (0..extent.limit).find_map(|at| {
            let (class, seed) = schedule(extent.first, at);
            let by = lab.run(class, seed).violation?;
            Some(Kill { schedules: at + 1, class, seed, by, is_hollow: false })
        });
        redbolt::proto::plant(None);
        let took = start.elapsed();
        let killed = found.map(|mut kill| {
            kill.is_hollow = lab.run(kill.class, kill.seed).violation.is_some();
            kill
        });
        Fate { mutant, took, killed }
    }

    /// The schedules that every bug has to survive, in turn.
    fn schedule(first: u64, at: u64) -> (Class, u64) {
        (Class::Safe, first.wrapping_add(at))
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
                Some(Kill { seed, is_hollow: true, .. }) => {
                    format!("| {mutant:?} | {what} | | fails without it | {seed} | {took:.2} |")
                }
                Some(Kill { schedules, seed, by, .. }) => format!(
                    "| {mutant:?} | {what} | {schedules} | {} | {seed} | {took:.2} |",
                    by.name()
                ),
            }
        }
    }

    /// Schedules without a bug, before any with one.
    const CLEAN: u64 = 20_000;
}

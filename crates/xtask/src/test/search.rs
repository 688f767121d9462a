//! Runs of the simulator alongside the tests, at the lowest priority: tests mostly wait, and the
//! simulator uses the processor time that they leave.

use std::{
    path::PathBuf,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::process::Signal;

use super::{finished::Finished, freeze::signal};
use crate::{
    package::target,
    step::{self, cargo},
    tasks::plant,
};

/// A run of the simulator.
pub(crate) struct Search {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// `true` if it uses the build in which bugs can be planted.
    pub(crate) planted: bool,
}

/// The runs, one after the other, in a thread.
pub(crate) struct Searches {
    thread: JoinHandle<Vec<Finished>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Default)]
struct Stage {
    is_built: bool,
    is_stopped: bool,
    running: Option<u32>,
}

impl Searches {
    /// Builds the simulator, once for each kind of run, and then runs it.
    pub(crate) fn start(searches: &'static [Search]) -> Self {
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || shared.run(searches));
        Self { thread, state }
    }

    /// Stops the simulator until [`resume`](Self::resume), once it is built: the compiler is not
    /// stopped.
    pub(crate) fn stop(&self) {
        let mut stage = self.state.stage();
        while !stage.is_built {
            stage = self.state.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
        stage.is_stopped = true;
        signal(stage.running.as_slice(), Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        let mut stage = self.state.stage();
        stage.is_stopped = false;
        signal(stage.running.as_slice(), Signal::CONT);
    }

    /// Waits for the end of all runs.
    pub(crate) fn join(self) -> Vec<Finished> {
        self.thread.join().expect("a search returns its failures")
    }
}

impl State {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, searches: &[Search]) -> Vec<Finished> {
        let mut finished = Vec::new();
        for planted in [false, true] {
            if searches.iter().any(|search| search.planted == planted) {
                let name = if planted { "plantable sim" } else { "simulator built" };
                finished.push(self.timed(name, &build(planted)));
            }
        }
        self.stage().is_built = true;
        self.changed.notify_all();
        if finished.iter().all(|built| built.outcome.is_ok()) {
            for Search { name, arguments, planted } in searches {
                let mut run = Command::new(program(*planted));
                run.args(*arguments);
                finished.push(self.timed(name, &run));
            }
        }
        finished
    }

    fn timed(&self, name: &'static str, command: &Command) -> Finished {
        let mut command = step::in_the_background(command);
        Finished::of(name, &mut command, |process| {
            let mut stage = self.stage();
            stage.running = process;
            if stage.is_stopped {
                signal(process.as_slice(), Signal::STOP);
            }
        })
    }
}

fn build(planted: bool) -> Command {
    let mut build = cargo("build");
    build.args(["--quiet", "--package", "redbolt-sim", "--profile", "sim", "--bin", "sim"]);
    if planted {
        plant(&mut build);
    }
    build
}

fn program(planted: bool) -> PathBuf {
    let target = target();
    if planted { target.join("mutants/sim/sim") } else { target.join("sim/sim") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_fails_is_reported_with_its_output() {
        let mut shell = Command::new("sh");
        let search = State::default().timed("sim", shell.args(["-c", "echo VIOLATION; exit 3"]));
        assert_eq!(search.output, "VIOLATION\n");
        let failure = search.outcome.unwrap_err().to_string();
        assert!(failure.contains("exit status: 3"), "{failure}");
    }

    #[test]
    fn a_stopped_search_continues_when_it_is_resumed() {
        let state = Arc::<State>::default();
        state.stage().is_built = true;
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let mut shell = Command::new("sh");
            vec![shared.timed("sim", shell.args(["-c", "echo done"]))]
        });
        let searches = Searches { thread, state };
        searches.stop();
        searches.resume();
        let finished = searches.join();
        assert!(finished[0].outcome.is_ok());
        assert_eq!(finished[0].output, "done\n");
    }
}

//! Runs of the simulator alongside the tests, at the lowest priority: tests mostly wait, and the
//! simulator uses the processor time that they leave.

use std::{
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use rustix::process::Signal;

use super::{Finished, stress::signal};
use crate::{
    package::target,
    plant,
    step::{self, Failure, cargo},
};

/// One run of the simulator.
pub(crate) struct Search {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
    /// Whether it needs the build with planted bugs.
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
                let name = if planted { "mutants built" } else { "simulator built" };
                finished.push(self.timed(name, &mut build(planted)));
            }
        }
        self.stage().is_built = true;
        self.changed.notify_all();
        if finished.iter().all(|built| built.outcome.is_ok()) {
            for Search { name, arguments, planted } in searches {
                let mut run = Command::new(program(*planted));
                run.args(*arguments);
                finished.push(self.timed(name, &mut run));
            }
        }
        finished
    }

    fn timed(&self, name: &'static str, command: &mut Command) -> Finished {
        let start = Instant::now();
        let (output, outcome) = match self.output_of(command) {
            Ok(output) => (output, Ok(())),
            Err((output, failure)) => (output, Err(failure)),
        };
        Finished { name, output, outcome, took: start.elapsed() }
    }

    /// Runs a command to its end.
    fn output_of(&self, command: &mut Command) -> Result<String, (String, Failure)> {
        let mut command = step::in_the_background(command);
        let shown = step::shown(&command);
        let failed = |error| (String::new(), Failure::not_run(&shown, &error));
        let (mut pipe, writer) = std::io::pipe().map_err(failed)?;
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let mut child = {
            let mut stage = self.stage();
            let child = command.spawn().map_err(failed)?;
            stage.running = Some(child.id());
            if stage.is_stopped {
                signal(&[child.id()], Signal::STOP);
            }
            child
        };
        // The command holds the pipe's other end, which would keep the output open.
        drop(command);
        let mut output = Vec::new();
        let read = pipe.read_to_end(&mut output);
        // It is not signalled any more once it may have been reaped.
        self.stage().running = None;
        let status = child.wait().and_then(|status| read.map(|_| status)).map_err(failed)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if status.success() {
            Ok(output)
        } else {
            Err((output, Failure::of("sim", &shown, status)))
        }
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_search_that_fails_is_reported_with_its_output() {
        let state = State::default();
        let mut shell = Command::new("sh");
        let Err((output, failure)) = state.output_of(shell.args(["-c", "echo VIOLATION; exit 3"]))
        else {
            panic!("it failed")
        };
        assert_eq!(output, "VIOLATION\n");
        assert!(failure.to_string().contains("exit status: 3"), "{failure}");
    }

    #[test]
    fn a_stopped_search_goes_on_when_it_is_resumed() {
        let state = Arc::<State>::default();
        state.stage().is_built = true;
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let (output, outcome) = match shared.output_of(&mut Command::new("true")) {
                Ok(output) => (output, Ok(())),
                Err((output, failure)) => (output, Err(failure)),
            };
            vec![Finished { name: "true", output, outcome, took: Duration::ZERO }]
        });
        let searches = Searches { thread, state };
        searches.stop();
        thread::sleep(Duration::from_millis(20));
        let is_stopped = searches.state.stage().is_stopped;
        searches.resume();
        assert!(is_stopped && searches.join().iter().all(|search| search.outcome.is_ok()));
    }
}

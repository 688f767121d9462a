//! On a terminal: the command controls it, as it would without redbolt.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use redbolt_test_servers::on_a_real_clock;

use crate::harness::{World, eventually, lives, shell_until, status};

/// A program in a separate session, on a terminal that the test controls.
struct Session {
    program: Child,
    /// The test's side of the terminal.
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    watcher: Option<thread::JoinHandle<()>>,
}

impl Session {
    /// `setsid --ctty` sets the controlling terminal, which would take unsafe code here.
    fn start(world: &World, words: &[&str]) -> Self {
        let mut session = Self::start_unwatched(world, words);
        let terminal = session.keyboard.as_ref().unwrap().try_clone().unwrap();
        session.watcher = Some(watch(terminal, Arc::clone(&session.screen)));
        session
    }

    /// A session whose screen is not read.
    fn start_unwatched(world: &World, words: &[&str]) -> Self {
        // No program may inherit this side, or the terminal would outlive it.
        let keyboard = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
        let screen = options.open(ptsname_r(&keyboard).unwrap()).unwrap();
        let side = || Stdio::from(screen.try_clone().unwrap());
        let mut command = redbolt_test_servers::program("setsid");
        command.args(["--ctty", "--wait"]).args(words);
        command.env("REDBOLT_NODES", world.addresses()).env("PS1", "$ ");
        command.current_dir(world.path("")).stdin(side()).stdout(side()).stderr(side());
        let program = command.spawn().unwrap();
        // The command has copies of the terminal's descriptor; the screen ends when all are closed.
        drop((command, screen));
        let keyboard = Some(File::from(OwnedFd::from(keyboard)));
        Self { program, keyboard, screen: Arc::default(), watcher: None }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Closes the terminal of a session whose screen is not read.
    fn close(&mut self) {
        self.keyboard = None;
    }

    fn shows(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    #[track_caller]
    fn until_shown(&self, words: &str) {
        eventually(&format!("{words:?} is shown"), || {
            let shown = self.shows();
            shown.contains(words)
        });
    }

    #[track_caller]
    fn end(mut self) -> (Option<i32>, String) {
        eventually("the program ends", || self.program.try_wait().unwrap().is_some());
        eventually("all was read from the terminal", || {
            self.watcher.as_ref().is_none_or(|watcher| watcher.is_finished())
        });
        (status(self.program.wait().unwrap()), self.shows())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the terminal shows:\n{}", self.shows());
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A read fails when the other side is closed.
fn watch(mut terminal: File, screen: Arc<Mutex<String>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = terminal.read(&mut bytes) {
            screen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    })
}

const REDBOLT: &str = env!("CARGO_BIN_EXE_redbolt");
const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

#[test]
fn the_command_reads_from_the_terminal() {
    let world = World::of(1);
    let line = "stty -echo; echo ready; read x; echo got $x";
    let mut session = Session::start(&world, &[REDBOLT, "lock", "job", "-c", line]);
    session.until_shown("ready");
    session.types("hello\n");
    let (status, shown) = session.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("got hello"), "{shown}");
}

#[test]
fn ctrl_c_reaches_the_command_once_and_it_decides() {
    let line = format!(
        "trap 'echo int >> got' INT; echo ready; {}; sleep 0.3; cat got; exit 3",
        shell_until("got")
    );
    let world = World::of(1);
    // Both processes receive the signal, however late one of them runs.
    let words = ["env", "TEST_TWIN_WITHIN_MS=30000", REDBOLT, "lock", "job", "-c", &line];
    let mut session = Session::start(&world, &words);
    session.until_shown("ready");
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(3), "{shown}");
    assert_eq!(world.held_on("job"), 0);
    assert_eq!(shown.matches("int").count(), 1, "{shown}");
}

#[test]
fn a_command_that_dies_of_ctrl_c_is_130_and_the_lock_is_released() {
    let world = World::of(1);
    let line = "echo ready; exec sleep 600";
    let mut session = Session::start(&world, &[REDBOLT, "lock", "job", "-c", line]);
    session.until_shown("ready");
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(130), "{shown}");
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_shell_stops_and_continues_the_job() {
    let world = World::of(1);
    let mut shell = Session::start(&world, &["bash", "--norc", "--noprofile", "-i"]);
    // Text that is typed before the job has the terminal again might go to the shell.
    let line =
        format!("echo rea\"\"dy; {}; echo ag\"\"ain; read x; echo got $x", shell_until("go"));
    shell.types(&format!("'{REDBOLT}' lock job -c '{line}'\n"));
    shell.until_shown("ready");
    shell.types(CTRL_Z);
    shell.until_shown("Stopped");
    fs::write(world.path("go"), "").unwrap();
    shell.types("fg\n");
    shell.until_shown("again");
    shell.types("hello\n");
    shell.until_shown("got hello");
    shell.types("echo status=$?\nexit\n");
    shell.until_shown("status=0");
    shell.end();
}

#[test]
fn a_job_stopped_past_its_lease_is_killed_when_it_continues() {
    stops_past_its_lease("sleep 600");
}

/// The shell of this job spends most of its time in `vfork`, in which it cannot stop.
#[test]
fn a_job_stopped_while_it_starts_programs_is_killed_when_it_continues() {
    stops_past_its_lease("while :; do /bin/true; done");
}

fn stops_past_its_lease(job: &str) {
    let world = World::of(1);
    let mut shell = Session::start(&world, &["bash", "--norc", "--noprofile", "-i"]);
    shell.types(&format!("'{REDBOLT}' lock --ttl 6s job -c 'echo rea\"\"dy; {job}'\n"));
    shell.until_shown("ready");
    shell.types(CTRL_Z);
    shell.until_shown("Stopped");
    eventually("the lease is over", || world.held_on("job") == 0);
    shell.types("fg\n");
    shell.until_shown("ran out");
    shell.types("echo status=$?\nexit\n");
    shell.until_shown("status=70");
    shell.end();
}

#[test]
fn a_waiter_at_a_terminal_sees_who_holds_the_lock() {
    let world = World::of(3);
    let holder = world.start(&["lock", "job", "-c", "echo $$ > pid; exec sleep 600"]);
    world.process("pid");
    let mut session = Session::start(&world, &[REDBOLT, "lock", "job", "--", "true"]);
    session.until_shown("waiting");
    session.until_shown(&format!(":{} for ", holder.pid()));
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(130), "{shown}");
    assert!(shown.ends_with("\r\u{1b}[K"), "the line is removed: {shown:?}");
}

#[test]
fn a_waiter_at_a_terminal_sees_how_long_a_quarantine_lasts_and_can_leave() {
    let world = World::fresh(3);
    let mut session = Session::start(&world, &[REDBOLT, "lock", "job", "--", "true"]);
    session.until_shown(" s for the quarantine to end");
    session.until_shown("the nodes are quarantined for");
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(130), "{shown}");
    assert!(shown.ends_with("\r\u{1b}[K"), "the line is removed: {shown:?}");
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn bench_shows_its_progress_and_removes_it() {
    let world = World::of(1);
    let words = ["env", "TERM=xterm", REDBOLT, "bench", "--duration", "1h", "-c", "2"];
    let mut session = Session::start(&world, &words);
    // A busy machine may skip a second. The first one includes the start, so nothing may be
    // measured in it.
    eventually("the progress is shown", || {
        let shown = session.shows();
        (2..=9).any(|second| shown.contains(&format!(" {second}s [")))
    });
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(130), "{shown}");
    let (progress, told) = shown.split_once("1 node, quorum 1").unwrap();
    assert!(progress.contains(" per second") && progress.ends_with("\u{1b}[2K"), "{shown:?}");
    assert!(told.contains("ended early") && told.contains("\u{1b}[36m"), "{shown:?}");
}

/// When the window of `ssh -t host redbolt lock …` is closed, the kernel sends SIGHUP to the
/// session's leader only.
#[test]
fn a_terminal_that_is_closed_ends_the_command() {
    for words in [&["lock"][..], &["lead"]] {
        let world = World::of(1);
        let line = "echo $$ > pid; exec sleep 600";
        let words = [&[REDBOLT], words, &["--ttl", "6s", "job", "-c", line]].concat();
        let mut session = Session::start_unwatched(&world, &words);
        let pid = world.process("pid");
        session.close();
        eventually("the command has ended", || !lives(pid));
        eventually("the key is gone", || world.held_on("job") == 0);
    }
}

/// No user is left who could end it.
#[test]
fn a_leader_whose_terminal_was_closed_does_not_campaign_again() {
    let world = World::of(1);
    let line = format!("trap '' HUP; echo $$ > pid; echo x >> terms; {}", shell_until("never"));
    let words = [REDBOLT, "lead", "--ttl", "6s", "boss", "-c", &line];
    let mut session = Session::start_unwatched(&world, &words);
    let pid = world.process("pid");
    session.close();
    world.delete("boss");
    eventually("redbolt has ended", || session.program.try_wait().unwrap().is_some());
    assert!(!lives(pid));
    assert_eq!(fs::read_to_string(world.path("terms")).unwrap(), "x\n");
}

#[test]
fn ctrl_c_reaches_a_command_in_another_session() {
    let world = World::of(1);
    let line = format!("trap 'echo int; exit 3' INT; echo ready; {}", shell_until("never"));
    let mut session =
        Session::start(&world, &[REDBOLT, "lock", "job", "--", "setsid", "sh", "-c", &line]);
    session.until_shown("ready");
    session.types(CTRL_C);
    let (status, shown) = session.end();
    assert_eq!(status, Some(3), "{shown}");
}

/// A shell continues with the next iteration if the program has exited, whatever the status, and
/// ends if SIGINT has killed the program.
#[test]
fn ctrl_c_ends_a_loop_of_a_shell() {
    for words in ["lock job -c 'echo rea\"\"dy; exec sleep 600'", "lock held -- true"] {
        let world = World::of(1);
        world.take("held");
        let script =
            format!("for i in 1 2; do echo turn $i; '{REDBOLT}' {words}; done; echo after");
        let mut session = Session::start(&world, &["bash", "-c", &script]);
        session.until_shown(if words.contains("held") { "waiting" } else { "ready" });
        session.types(CTRL_C);
        let (_, shown) = session.end();
        assert!(!shown.contains("turn 2") && !shown.contains("after"), "{shown}");
    }
}

/// The program stops as some do with their own terminal. redbolt is stopped, and the lock is kept
/// for as long as the command runs.
#[test]
fn a_command_that_ctrl_z_does_not_stop_keeps_its_lock() {
    // Its processes run in a separate session, whose stalls this process does not measure: the TTL
    // leaves them 2.5 s between the first extension and SIGTERM.
    on_a_real_clock(Duration::from_secs(6), || {
        let world = World::of(1);
        let mut shell = Session::start(&world, &["bash", "--norc", "--noprofile", "-i"]);
        let line = format!("trap \"\" TSTP; echo $$ > pid; {}; exit 4", shell_until("go"));
        shell.types(&format!("'{REDBOLT}' lock --ttl 6s job -c '{line}'\n"));
        let pid = world.process("pid");
        shell.types(CTRL_Z);
        shell.until_shown("Stopped");
        world.until_extended(0, "job");
        assert!(lives(pid));
        fs::write(world.path("go"), "").unwrap();
        shell.types("fg\n");
        shell.types("echo status=$?\nexit\n");
        shell.until_shown("status=4");
        shell.end();
    });
}

#[test]
fn the_doctor_has_colours_on_a_terminal() {
    let world = World::of(1);
    let shown = |words: &[&str]| Session::start(&world, &[&["env"], words].concat()).end().1;
    let colours = shown(&["-u", "NO_COLOR", "TERM=xterm", REDBOLT, "doctor"]);
    assert!(colours.contains("\x1b[32mpass\x1b[0m  votes"), "{colours}");
    let plain = shown(&["NO_COLOR=1", "TERM=xterm", REDBOLT, "doctor"]);
    assert!(plain.contains("pass  votes") && !plain.contains('\x1b'), "{plain}");
}

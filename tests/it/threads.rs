//! The threads of the library block signals, which belong to the program.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use redbolt_test_servers::{Act, Impostor};

use crate::engine::engine_of;
use crate::support::{eventually, patient};

/// A thread that does not block a signal may receive it, and the default action of most signals
/// ends the process, with its locks held.
#[test]
fn a_signal_for_the_program_is_not_delivered_to_a_thread_of_the_library() {
    let silent = Impostor::start(Act::Silent);
    let sentinels = format!("redis+sentinel://{}/jobs", silent.address());
    let (_never, hangs) = channel::<()>();
    let hangs = Mutex::new(hangs);
    let builder = patient(["hangs.example", &sentinels]).resolve_hosts_by(move |_, _| {
        let _ = hangs.lock().unwrap().recv();
        Err(ErrorKind::TimedOut.into())
    });
    let engine = engine_of(builder);
    // The kernel keeps 15 bytes of a name. Threads of other tests belong to the library as well.
    let expected = ["redbolt-engine", "redbolt-resolve", "redbolt-sentine"];
    let mut seen = BTreeSet::new();
    eventually("each kind of thread is there", || {
        for (name, mask) in ours() {
            let open: Vec<_> =
                SIGNALS.into_iter().filter(|signal| mask & 1 << (signal - 1) == 0).collect();
            assert_eq!(open, [0; 0], "{name} takes these signals");
            seen.insert(name);
        }
        expected.iter().all(|name| seen.contains(*name))
    });
    drop(engine);
}

/// Returns the threads of the library, with the signals that each blocks.
fn ours() -> Vec<(String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let statuses = tasks.flatten().filter_map(|task| {
        // The thread may have ended meanwhile.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let mask = u64::from_str_radix(field("SigBlk:")?, 16).ok()?;
        Some((field("Name:")?.to_owned(), mask))
    });
    statuses.filter(|(name, _)| name.starts_with("redbolt-")).collect()
}

/// The signals HUP, INT, QUIT, USR1, USR2, PIPE, ALRM, TERM, CHLD, CONT, TSTP, PROF, WINCH and two
/// real-time ones.
const SIGNALS: [u32; 15] = [1, 2, 3, 10, 12, 13, 14, 15, 17, 18, 20, 27, 28, 34, 64];

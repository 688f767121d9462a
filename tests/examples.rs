//! Runs the examples as a newcomer does: as processes that end by themselves and print what they
//! did. `resp_dump` is tested in `resp-tests`, on its vectors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use memchr::memmem;
use redbolt::{Profile, proto::script};
use redbolt_test_servers::{Reply, Server, servers};

#[test]
fn blocking_runs_on_embedded_nodes() {
    checks_blocking(&run("blocking", &[]));
}

#[test]
fn blocking_runs_on_real_nodes() {
    checks_blocking(&run("blocking", &arguments(&servers(3))));
}

#[test]
fn blocking_prints_why_there_is_no_lock() {
    // The example waits five seconds for the lock.
    let end = run("blocking", &["--node".to_owned(), NOBODY.to_owned()]);
    assert_eq!(end.status, Some(1), "{end:?}");
    assert!(end.errors.contains("no quorum: 0 of 1 granted"), "{end:?}");
    assert!(end.errors.contains("connection refused"), "{end:?}");
}

#[test]
fn a_host_s_own_loop_serves_on_embedded_nodes() {
    checks_the_loop(&run("own_mio_loop", &[]));
}

#[test]
fn a_host_s_own_loop_serves_on_real_nodes() {
    let servers = servers(3);
    checks_the_loop(&run("own_mio_loop", &arguments(&servers)));
    // The locks held at the end are released.
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example"), Reply::Int(0));
    }
}

#[test]
fn a_foreign_epoll_loop_runs_jobs_on_embedded_nodes() {
    checks_the_jobs(&run("own_epoll_fd", &[]));
}

#[test]
fn a_foreign_epoll_loop_runs_jobs_on_real_nodes() {
    let servers = servers(3);
    checks_the_jobs(&run("own_epoll_fd", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-job"), Reply::Int(0));
    }
}

#[test]
fn tasks_of_tokio_share_an_engine_without_a_thread_on_embedded_nodes() {
    checks_the_tasks(&run("tokio_unthreaded", &[]));
}

#[test]
fn tasks_of_tokio_share_an_engine_without_a_thread_on_real_nodes() {
    let servers = servers(3);
    checks_the_tasks(&run("tokio_unthreaded", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-tokio"), Reply::Int(0));
    }
}

#[test]
fn a_leader_is_followed_by_another_on_embedded_nodes() {
    checks_the_leaders(&run("leader", &[]));
}

#[test]
fn a_leader_is_followed_by_another_on_real_nodes() {
    let servers = servers(3);
    checks_the_leaders(&run("leader", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-leader"), Reply::Int(0));
    }
}

#[test]
fn at_most_ten_hosts_work_at_once_on_embedded_nodes() {
    checks_the_workers(&run("workers", &[]));
}

#[test]
fn at_most_ten_hosts_work_at_once_on_real_nodes() {
    let servers = servers(3);
    checks_the_workers(&run("workers", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-workers"), Reply::Int(0));
    }
}

#[test]
fn a_cache_is_rebuilt_by_one_and_read_by_all_on_embedded_nodes() {
    checks_the_cache(&run("cache", &[]));
}

#[test]
fn a_cache_is_rebuilt_by_one_and_read_by_all_on_real_nodes() {
    let servers = servers(3);
    checks_the_cache(&run("cache", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-cache"), Reply::Int(0));
    }
}

#[test]
fn a_late_write_is_fenced_on_embedded_nodes() {
    checks_the_late_write(&run("fenced_write", &[]));
}

#[test]
fn a_late_write_is_fenced_on_real_nodes() {
    let servers = servers(3);
    checks_the_late_write(&run("fenced_write", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-fenced"), Reply::Int(0));
    }
}

#[test]
fn threads_share_an_engine_on_embedded_nodes() {
    checks_the_engine(&run("engine", &[]));
}

#[test]
fn threads_share_an_engine_on_real_nodes() {
    let servers = servers(3);
    checks_the_engine(&run("engine", &arguments(&servers)));
    for server in &servers {
        assert_eq!(server.cmd("EXISTS redbolt-example-engine"), Reply::Int(0));
    }
}

#[test]
fn tasks_await_locks_on_embedded_nodes() {
    checks_tokio(&run("tokio", &[]));
}

#[test]
fn tasks_await_locks_on_real_nodes() {
    let servers = servers(3);
    checks_tokio(&run("tokio", &arguments(&servers)));
    for server in &servers {
        // Only the restart guard of the node is left.
        assert_eq!(server.cmd("DBSIZE"), Reply::Int(1));
    }
}

#[test]
fn metrics_are_served_on_embedded_nodes() {
    let end = run("metrics", &[]);
    checks_metrics(&end);
    let stopped = "Warning: node 1 127.0.0.1:";
    assert!(end.errors.lines().any(|line| line.starts_with(stopped)), "{end:?}");
}

#[test]
fn metrics_are_served_on_real_nodes() {
    checks_metrics(&run("metrics", &arguments(&servers(3))));
}

#[test]
fn a_wrong_command_line_shows_the_right_one() {
    for example in [
        "blocking",
        "cache",
        "engine",
        "fenced_write",
        "leader",
        "metrics",
        "own_epoll_fd",
        "own_mio_loop",
        "tokio",
        "tokio_unthreaded",
        "workers",
    ] {
        let end = run(example, &["--node".to_owned()]);
        assert_eq!(end.status, Some(2), "{end:?}");
        assert!(end.errors.starts_with(&format!("usage: {example} ")), "{end:?}");
    }
}

fn checks_blocking(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let lines = [
        "2 of 3 nodes make a lock",
        "held for ",
        "refused to another: lock redbolt-example: held by another: ",
    ];
    says_in_order(
        end,
        &[&lines[..], &["step 3 done, ", "released, ", "the next one has "]].concat(),
    );
}

/// Checks a story that is told twice; only the store differs.
fn checks_the_late_write(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let hand_over = [
        "  slow holds the lock, with token ",
        "  slow sees that its lease is valid, and is paused",
        "  quick holds the lock, with token ",
        "  quick writes",
    ];
    let lost = ["  slow wakes up and writes", "  slow: ", "  at the end it says \"by slow\""];
    let kept = ["  slow wakes up, and is refused: token ", "  at the end it says \"by quick\""];
    says_in_order(end, &[&hand_over[..], &lost, &hand_over, &kept].concat());
    assert_eq!(end.output.matches(" is lost: its validity ended\n").count(), 2, "{end:?}");
    let tokens: Vec<u64> = end
        .output
        .lines()
        .filter_map(|line| line.split_once("with token ")?.1.parse().ok())
        .collect();
    assert!(tokens.len() == 4 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

fn checks_the_engine(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    for thread in 1..=4 {
        says_in_order(end, &[&format!("thread {thread} holds it for ")]);
    }
    let lost = "lost, as expected: its validity ended; is it valid? false";
    let report = "0 acquisitions cancelled, 1 locks released";
    says_in_order(end, &["still held after 7 s: true", "released, "]);
    says_in_order(
        end,
        &[
            lost,
            report,
            "the last holder: lock redbolt-example-engine is lost: its engine has ended",
        ],
    );
}

/// Checks for three jobs, one after the other, and the log of their grants.
fn checks_tokio(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let lines: Vec<&str> = end.output.lines().collect();
    for pair in lines[..6].chunks(2) {
        let task = pair[0].strip_suffix(" begins");
        let ends = pair[1].strip_suffix(" ends, and the lock is valid: true");
        assert!(task.is_some() && task == ends, "{end:?}");
    }
    let lost = ["the work was dropped where it awaited", "cancelled: lock redbolt-example-tokio"];
    let begin = ["gave up after 200 ms", "released, "];
    says_in_order(end, &[&begin[..], &lost, &["another client does it"]].concat());
    assert!(end.errors.contains("ERROR") && end.errors.contains("lock lost: "), "{end:?}");
}

fn checks_the_loop(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let lines = ["ann < GRANTED", "ann < STATUS ", "ben < GRANTED", "ann < REFUSED"];
    let reported = ["a client elsewhere has it", "ann < STATUS told of changes", "ann < GRANTED"];
    says_in_order(end, &[&lines[..], &["ben leaves", "ann < GRANTED"], &reported].concat());
}

/// Checks that each job outlasts the TTL of its lock, and that the second job of a name follows the
/// first.
fn checks_the_jobs(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let (first, second) =
        ("ann < RUNNING redbolt-example-job", "ben < RUNNING redbolt-example-job");
    let done = ["ann < DONE redbolt-example-job", second, "ben < DONE redbolt-example-job"];
    says_in_order(end, &[&[first][..], &done].concat());
}

/// Checks that each task ends before another begins.
fn checks_the_tasks(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let lines: Vec<&str> = end.output.lines().collect();
    assert_eq!(lines.len(), 10, "{end:?}");
    for pair in lines.chunks(2) {
        let task = pair[0].strip_suffix(" begins");
        assert!(task.is_some() && task == pair[1].strip_suffix(" ends"), "{end:?}");
    }
}

fn checks_the_leaders(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    // The threads are independent: the second can be done before the first has printed its last
    // line.
    says_in_order(
        end,
        &[
            "first leads",
            "first stops: ",
            "first is deposed: lock redbolt-example-leader is lost: ",
        ],
    );
    says_in_order(end, &["first leads", "second leads", "second steps down"]);
    says_in_order(end, &["second leads", "first writes late, and is refused"]);
    says_in_order(end, &["seen: first leads in", "seen: second leads in", "seen: nobody leads"]);
    let second = end.output.find("second leads");
    assert!(second > end.output.find("first stops"), "two leaders at once: {end:?}");
}

fn checks_the_workers(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let places = end.output.lines().filter(|line| line.contains(" works in place ")).count();
    assert_eq!(places, 25, "{end:?}");
    says_in_order(end, &["25 jobs done, "]);
}

/// Checks that each version is rebuilt once, by a host that may.
fn checks_the_cache(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let alone = ["first rebuilds", "first is Shared now", "second has read 1"];
    let refused = ["first is not alone, and goes on to read: Shared", "first rebuilds"];
    says_in_order(
        end,
        &[&alone[..], &refused, &["8 hosts came at once; rebuilt 3 times"]].concat(),
    );
    let read = end.output.lines().filter(|line| line.ends_with(" has read 3")).count();
    assert_eq!(read, 8, "{end:?}");
}

fn checks_metrics(end: &End) {
    assert_eq!(end.status, Some(0), "{end:?}");
    let lines = ["redbolt_grants_total 102", "redbolt_refusals_total{reason=\"contended\"} 1"];
    says_in_order(end, &[&lines[..], &["redbolt_node_asks_total{node=\"3\",address="]].concat());
    assert!(
        end.errors.contains(": held by another: ") && end.errors.contains("Debug: lock refused: "),
        "{end:?}"
    );
}

/// Checks for lines with these beginnings, in order, with others between them.
fn says_in_order(end: &End, beginnings: &[&str]) {
    let mut lines = end.output.lines();
    for beginning in beginnings {
        assert!(lines.any(|line| line.starts_with(beginning)), "no {beginning}: {end:?}");
    }
}

fn arguments(servers: &[Server]) -> Vec<String> {
    servers.iter().flat_map(|server| ["--node".to_owned(), server.address()]).collect()
}

/// The end of a run.
#[derive(Debug)]
struct End {
    status: Option<i32>,
    output: String,
    errors: String,
}

fn run(example: &str, arguments: &[String]) -> End {
    let program = examples_once().join(example);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = wait(&mut child);
    // The examples print less than a pipe holds, so none of them blocked on writing.
    let output = read(child.stdout.take().unwrap());
    let errors = read(child.stderr.take().unwrap());
    assert!(ended, "{example} did not end in {PATIENCE:?}:\n{output}\n{errors}");
    End { status: child.wait().unwrap().code(), output, errors }
}

/// Returns `true` if the process ended by itself; otherwise kills it.
fn wait(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

fn read(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn one_lock_is_taken_and_released_on_real_nodes() {
    let servers = servers(3);
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let end = run("one_lock", &addresses);
    assert!(end.output.starts_with("held, and then released: "), "{end:?}");
}

/// Each format's texts are in a separate section, which the linker leaves out unless the program
/// names the format.
#[test]
fn a_program_that_takes_one_lock_contains_no_format_of_another_library() {
    let one_lock = stripped("one_lock");
    let contains = |program: &[u8], text: &str| memmem::find(program, text.as_bytes()).is_some();
    let formats = Profile::ALL.map(Profile::name).into_iter().filter(|&name| name != "plain");
    let others = ["Redisson", "Spring", "Symfony", "lock-signal:", "redbolt:lease:", "-channel:"];
    let words = formats.chain(others).filter(|word| contains(&one_lock, word));
    assert_eq!(words.collect::<Vec<_>>(), [""; 0]);
    let foreign = || script::all().filter(|script| script::own().all(|own| own != *script));
    let of_foreign = foreign().filter(|script| contains(&one_lock, script.text));
    assert_eq!(of_foreign.map(|script| script.name).collect::<Vec<_>>(), [""; 0]);
    assert!(contains(&one_lock, script::UNDO.text));
    // This program has embedded nodes, which know all formats.
    let blocking = stripped("blocking");
    assert!(foreign().all(|script| contains(&blocking, script.text)) && foreign().count() > 20);
}

/// Returns the program of an example without debug information, because that contains names of
/// files and items that are not linked.
fn stripped(example: &str) -> Vec<u8> {
    let program = examples_once().join(example);
    let stripped = env::temp_dir().join(format!("redbolt-{example}-{}", std::process::id()));
    let done = Command::new("strip").arg("-o").args([&stripped, &program]).status().unwrap();
    assert!(done.success(), "{example} cannot be stripped");
    let bytes = fs::read(&stripped).unwrap();
    fs::remove_file(&stripped).unwrap();
    bytes
}

fn examples_once() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(examples)
}

/// Returns the directory of the examples, which `cargo xtask test` has built and names.
fn examples() -> PathBuf {
    env::var_os("REDBOLT_EXAMPLES").map_or_else(build, PathBuf::from)
}

/// Builds the examples in this test's profile and target directory, and returns their directory.
/// `cargo test` has built them already, unless it ran this test alone. It runs tests in their
/// package's directory.
fn build() -> PathBuf {
    let test = env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let folder = target.file_name().and_then(|name| name.to_str()).unwrap();
    let profile = if folder == "debug" { "dev" } else { folder };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "redbolt", "--examples", "--profile", profile])
        .arg("--target-dir")
        .arg(target.parent().unwrap())
        .status()
        .unwrap();
    assert!(built.success(), "the examples do not build");
    target.join("examples")
}

/// A limit far longer than any example takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address whose port is below 1024 and has not been used by any service for decades.
const NOBODY: &str = "127.0.0.1:1";

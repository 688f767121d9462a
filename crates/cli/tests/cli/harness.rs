//! Runs servers and the program, with every wait bounded.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redbolt_test_servers::{Mode, Proxy, Reply, Server, servers, servers_over_tls};
use tempfile::TempDir;

/// Nodes, and a directory for the files that commands create.
pub(crate) struct World {
    pub(crate) nodes: Vec<Server>,
    max_ttl: Option<&'static str>,
    home: TempDir,
}

impl World {
    /// Returns nodes that vote.
    pub(crate) fn of(nodes: usize) -> Self {
        let world = Self::fresh(nodes);
        world.init();
        world
    }

    /// Returns nodes like [`of`](Self::of), with another `max_ttl`.
    pub(crate) fn with_max_ttl(nodes: usize, max_ttl: &'static str) -> Self {
        let world = Self::with_limits(nodes, max_ttl);
        world.init();
        world
    }

    /// Returns new nodes, with another `max_ttl`.
    pub(crate) fn with_limits(nodes: usize, max_ttl: &'static str) -> Self {
        Self { max_ttl: Some(max_ttl), ..Self::fresh(nodes) }
    }

    /// Returns new nodes.
    pub(crate) fn fresh(nodes: usize) -> Self {
        Self::on(servers(nodes))
    }

    /// Returns nodes that vote, and are connected to over TLS.
    pub(crate) fn over_tls(nodes: usize) -> Self {
        let world = Self::on(servers_over_tls(nodes));
        world.init();
        world
    }

    pub(crate) fn on(nodes: Vec<Server>) -> Self {
        Self { nodes, max_ttl: None, home: TempDir::new().unwrap() }
    }

    pub(crate) fn init(&self) {
        self.run(&["init"]).expect(0);
    }

    /// Returns `redbolt` with these nodes in its environment, in the directory.
    pub(crate) fn redbolt(&self, words: &[&str]) -> Command {
        self.at_home(redbolt(words))
    }

    /// Returns another program that may call `redbolt`, in the same environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = redbolt_test_servers::program(program);
        command.stdin(Stdio::null());
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        command.env(RESPONSE_TIMEOUT.0, RESPONSE_TIMEOUT.1);
        command.env("REDBOLT_NODES", self.addresses()).current_dir(self.home.path());
        command.envs(self.max_ttl.map(|max_ttl| ("REDBOLT_MAX_TTL", max_ttl)));
        let ca = self.nodes.first().filter(|node| node.has_tls()).map(|node| node.authority().ca());
        command.envs(ca.map(|ca| ("REDBOLT_TLS_CA", ca)));
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        run(self.redbolt(words))
    }

    /// Runs a command that changes nothing, like [`told_by_all`].
    #[track_caller]
    pub(crate) fn told_by_all(&self, words: &[&str], status: i32) -> Ran {
        told_by_all(|| self.run(words).expect(status))
    }

    /// Runs `redbolt acquire` until all nodes have granted in time: it hardly waits for the last
    /// one, and then warns of it.
    #[track_caller]
    pub(crate) fn acquire_on_all(&self, file: &str, options: &[&str], key: &str) -> Ran {
        let words = [&["acquire", "--token-file", file], options, &[key]].concat();
        let mut last = None;
        eventually("all nodes grant in time", || {
            let taken = self.run(&words).expect(0);
            let is_on_all = taken.stderr.is_empty() && self.held_on(key) == self.nodes.len();
            if !is_on_all {
                self.run(&["release", "--token-file", file]).expect(0);
            }
            last = Some(taken);
            is_on_all
        });
        last.unwrap()
    }

    /// Waits until all nodes have the key, including those that were late for the grant.
    #[track_caller]
    pub(crate) fn until_on_all(&self, key: &str) {
        eventually("all nodes have the key", || self.held_on(key) == self.nodes.len());
    }

    /// Starts proxies in front of the nodes, which add this to each round trip.
    pub(crate) fn far(&self, round_trip: Duration) -> Vec<Proxy> {
        let before = |node: &Server| {
            let proxy = Proxy::before(&node.address());
            proxy.set(Mode::Coalesce(round_trip / 2));
            proxy
        };
        self.nodes.iter().map(before).collect()
    }

    /// Runs `redbolt` through these proxies.
    pub(crate) fn run_through(&self, proxies: &[Proxy], words: &[&str]) -> Ran {
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let mut command = self.redbolt(words);
        command.env("REDBOLT_NODES", addresses.join(","));
        run(command)
    }

    /// Starts `redbolt` with a pipe for each of its streams.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::start(self.redbolt(words))
    }

    pub(crate) fn addresses(&self) -> String {
        let address = |node: &Server| match node.has_tls() {
            true => node.tls_address(),
            false => node.address(),
        };
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    /// Returns the file that a command writes, once it exists.
    pub(crate) fn written(&self, file: &str) -> String {
        let path = self.path(file);
        eventually(&format!("{file} is written"), || {
            fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))
        });
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Returns the process whose id a command writes to a file.
    pub(crate) fn process(&self, file: &str) -> i32 {
        self.written(file).parse().unwrap()
    }

    /// Returns the number of nodes on which the key exists.
    pub(crate) fn held_on(&self, key: &str) -> usize {
        self.nodes.iter().filter(|node| node.run(&[b"GET", key.as_bytes()]) != Reply::Nil).count()
    }

    /// Waits until the key's time to live grows on this node, twice.
    #[track_caller]
    pub(crate) fn until_extended(&self, node: usize, key: &str) {
        let left = || match self.nodes[node].cmd(&format!("PTTL {key}")) {
            Reply::Int(left) => left,
            other => panic!("no time to live: {other:?}"),
        };
        let (mut before, mut extensions) = (left(), 0);
        eventually("the lock is extended", || {
            let now = left();
            extensions += usize::from(now > before);
            before = now;
            extensions == 2
        });
    }

    /// Gives the key to another owner, on every node and without a TTL.
    pub(crate) fn take(&self, key: &str) {
        (0..self.nodes.len()).for_each(|node| self.take_on(node, key));
    }

    pub(crate) fn take_on(&self, node: usize, key: &str) {
        self.nodes[node].run(&[b"SET", key.as_bytes(), b"somebody else"]);
    }

    pub(crate) fn delete(&self, key: &str) {
        for node in &self.nodes {
            node.run(&[b"DEL", key.as_bytes()]);
        }
    }
}

/// Returns a section of the first node's INFO.
pub(crate) fn info(world: &World, section: &str) -> String {
    match world.nodes[0].cmd(&format!("INFO {section}")) {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("no INFO: {other:?}"),
    }
}

/// Returns `redbolt` without the environment of the test's caller.
pub(crate) fn redbolt(words: &[&str]) -> Command {
    let mut command = redbolt_test_servers::program(env!("CARGO_BIN_EXE_redbolt"));
    command.args(words);
    let settings = ["NODES", "NODES_FILE", "MAX_TTL", "RESTART_GUARD_KEY", "TRUST"];
    let timeouts = ["RESPONSE_TIMEOUT", "CONNECT_TIMEOUT"];
    for name in settings.into_iter().chain(timeouts).chain(["FENCING_TOKEN", "TERM", "LABEL"]) {
        command.env_remove(format!("REDBOLT_{name}"));
    }
    command.env(RESPONSE_TIMEOUT.0, RESPONSE_TIMEOUT.1).stdin(Stdio::null());
    command
}

/// Signals that the outer and the inner process receive within this time were sent to the group. A
/// longer stall makes them two signals, and the command receives both.
pub(crate) const GROUP_WINDOW: Duration = Duration::from_millis(100);

/// The timeout for a busy machine, which answers late. Tests of the default remove it.
const RESPONSE_TIMEOUT: (&str, &str) = ("REDBOLT_RESPONSE_TIMEOUT", "10s");

/// Returns the output once all nodes have answered in time: a look waits only briefly after a
/// quorum has answered.
#[track_caller]
pub(crate) fn told_by_all(mut tell: impl FnMut() -> Ran) -> Ran {
    let mut last = None;
    eventually("all nodes answer in time", || {
        let told = tell();
        let is_missing = |words: &&str| told.stdout.contains(words);
        let is_whole = !["no answer", "no_answer", "connecting"].iter().any(is_missing);
        last = Some(told);
        is_whole
    });
    last.unwrap()
}

/// Runs a program to its end.
pub(crate) fn run(command: Command) -> Ran {
    Running::start(command).end()
}

#[derive(Debug)]
pub(crate) struct Ran {
    /// Returns the status as shown by a shell: 128 + n for a program killed by signal n.
    pub(crate) status: Option<i32>,
    /// Returns the signal that killed the program.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "{words:?} is missing: {self:?}");
        self
    }
}

/// A running program. Dropping this kills it.
pub(crate) struct Running {
    child: Child,
    since: Instant,
    stderr: Arc<Mutex<Vec<u8>>>,
    told: Option<thread::JoinHandle<()>>,
    /// A pipe that is never read.
    unread: Option<PipeReader>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stream, stderr) = (child.stderr.take().unwrap(), Arc::default());
        let heard: Arc<Mutex<Vec<u8>>> = Arc::clone(&stderr);
        let told = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                heard.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self { child, since: Instant::now(), stderr, told: Some(told), unread: None }
    }

    /// Starts a program whose standard error blocks: a full pipe without a reader.
    pub(crate) fn start_unheard(mut command: Command) -> Self {
        let (unread, full) = full_pipe();
        let child = command.stdout(Stdio::piped()).stderr(full).spawn().unwrap();
        let (since, stderr) = (Instant::now(), Arc::default());
        Self { child, since, stderr, told: None, unread: Some(unread) }
    }

    /// Returns its standard error so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Returns the inner process of `redbolt lock`, once it exists.
    #[track_caller]
    pub(crate) fn inner(&self) -> i32 {
        let find = || children(self.pid()).into_iter().find(|&pid| is_inner(pid));
        eventually("the inner process is there", || find().is_some());
        find().unwrap()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Ran {
        self.end_within(PATIENCE)
    }

    #[track_caller]
    pub(crate) fn end_within(mut self, limit: Duration) -> Ran {
        let stdout = drain(self.child.stdout.take().unwrap());
        within(limit, "the program ends", || self.child.try_wait().unwrap().is_some());
        let took = self.since.elapsed();
        let end = self.child.wait().unwrap();
        let stdout = stdout.join().unwrap();
        drop(self.unread.take());
        self.told.take().into_iter().for_each(|told| told.join().unwrap());
        Ran { status: status(end), signal: end.signal(), stdout, stderr: self.said(), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the status that a shell shows.
pub(crate) fn status(end: ExitStatus) -> Option<i32> {
    end.code().or_else(|| end.signal().map(|signal| 128 + signal))
}

/// Returns both ends of a full pipe, on which a blocking write waits.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let full = loop {
        if let Err(error) = writer.write(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

fn drain(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a condition, for as long as a busy machine may need.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    within(PATIENCE, what, condition);
}

#[track_caller]
fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < until, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a shell loop that ends when the file exists, or when the directory of the test, which
/// may have failed, does not.
pub(crate) fn shell_until(file: &str) -> String {
    format!("until [ -e {file} ] || [ ! -d \"$PWD\" ]; do sleep 0.02; done")
}

/// Returns whether a process exists and is not a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// Returns how often a process has gone to sleep by itself, and so has woken up again.
pub(crate) fn wakes(pid: i32) -> u64 {
    status_of(pid, "voluntary_ctxt_switches:").parse().unwrap_or_default()
}

/// Returns `true` if the process ignores SIGHUP.
pub(crate) fn ignores_hangup(pid: i32) -> bool {
    u64::from_str_radix(&status_of(pid, "SigIgn:"), 16).is_ok_and(|ignored| ignored & 1 == 1)
}

/// Returns `true` if the process blocks the signal.
pub(crate) fn blocks(pid: i32, signal: Signal) -> bool {
    let blocked = u64::from_str_radix(&status_of(pid, "SigBlk:"), 16).unwrap_or_default();
    blocked >> (signal as i32 - 1) & 1 == 1
}

/// Returns a field of the kernel's status of a process.
fn status_of(pid: i32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    value.unwrap_or_default().trim().to_owned()
}

/// Returns the processes with this parent.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn is_inner(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).nth(1) == Some(b"__inner")
}

/// Sends a signal to a process, which may have ended.
pub(crate) fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

const PATIENCE: Duration = Duration::from_secs(60);

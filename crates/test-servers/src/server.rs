//! A `redis-server` process: started on a free port, stopped, frozen, killed and restarted.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::{
    authority::{Authority, Identity},
    client::{Connection, Reply},
};

/// A running `redis-server` on a loopback port, with its files in a temporary directory.
///
/// Dropping it kills the process and removes the directory. On Linux the process also dies with the
/// test process, however that ends.
#[derive(Debug)]
pub struct Server {
    program: OsString,
    kind: Kind,
    child: Option<Child>,
    port: Port,
    tls: Option<Tls>,
    extra: Vec<String>,
    home: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Keys,
    /// A sentinel, which keeps its state in a file, also over a restart.
    Sentinel,
}

/// A second port, for TLS.
#[derive(Debug)]
struct Tls {
    port: Port,
    identity: Identity,
    authority: Arc<Authority>,
}

/// A reserved port.
#[derive(Debug)]
struct Port {
    number: u16,
    /// A socket that is bound and not listening. It keeps the kernel from giving the port to
    /// others, also while the server is dead: an outgoing connection could take it, or even connect
    /// to itself.
    _reserved: Option<Socket>,
}

/// Starts `n` servers in parallel, each as [`Server::start`] does.
pub fn servers(n: usize) -> Vec<Server> {
    let mut all: Vec<Server> =
        (0..n).map(|_| Server::launch(program(), Kind::Keys, &[], None)).collect();
    all.iter_mut().for_each(Server::settle);
    all
}

/// Starts `n` servers, each with a certificate of one [`Authority`] and a second port for TLS.
pub fn servers_over_tls(n: usize) -> Vec<Server> {
    let authority = Arc::new(Authority::new());
    let launch = |_| {
        let tls = Tls::new(&authority, authority.server());
        Server::launch(program(), Kind::Keys, &[], Some(tls))
    };
    let mut all: Vec<Server> = (0..n).map(launch).collect();
    all.iter_mut().for_each(Server::settle);
    all
}

/// Returns the installed server programs: those that the environment variable `REDIS_SERVERS`
/// names, separated as in `PATH`; otherwise the usual one, and `valkey-server` if it runs here as
/// well.
pub fn programs() -> Vec<OsString> {
    let Some(named) = std::env::var_os("REDIS_SERVERS") else {
        let valkey = OsString::from("valkey-server");
        let more = (program() != valkey && runs(&valkey)).then_some(valkey);
        return [program()].into_iter().chain(more).collect();
    };
    std::env::split_paths(&named).map(PathBuf::into_os_string).collect()
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// The program is `redis-server`, or the one named by the environment variable `REDIS_SERVER`.
    ///
    /// # Panics
    /// If the program is missing, or does not answer within ten seconds.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more arguments for the program, such as `["--requirepass", "x"]`.
    ///
    /// # Panics
    /// As [`start`](Self::start), and if the program refuses the arguments.
    pub fn with(args: &[&str]) -> Self {
        Self::of(&program(), args)
    }

    /// Does the same as [`with`](Self::with), for another [program](programs).
    ///
    /// # Panics As [`with`](Self::with).
    pub fn of(program: &OsStr, args: &[&str]) -> Self {
        let mut server = Self::launch(program.to_owned(), Kind::Keys, args, None);
        server.settle();
        server
    }

    /// Does the same as [`of`](Self::of), for a program that may not run here.
    ///
    /// # Errors The reason why it does not.
    pub fn try_of(program: &OsStr, args: &[&str]) -> Result<Self, String> {
        if !runs(program) {
            return Err(format!("{} does not run here", program.display()));
        }
        let mut server = Self::launch(program.to_owned(), Kind::Keys, args, None);
        server.come_up().map(|()| server)
    }

    /// Does the same as [`with`](Self::with), with a second port for TLS on which it is `identity`.
    /// Clients need no certificate, unless the arguments require one.
    ///
    /// # Panics As [`with`](Self::with), and if the program was built without TLS.
    pub fn over_tls(authority: &Arc<Authority>, identity: Identity, args: &[&str]) -> Self {
        let tls = Tls::new(authority, identity);
        let mut server = Self::launch(program(), Kind::Keys, args, Some(tls));
        server.settle();
        server
    }

    /// Starts a sentinel that watches no master yet.
    ///
    /// # Panics As [`with`](Self::with).
    pub fn sentinel(args: &[&str]) -> Self {
        let mut server = Self::launch(program(), Kind::Sentinel, args, None);
        server.settle();
        server
    }

    /// Starts a sentinel with a second port, as [`over_tls`](Self::over_tls) has it.
    ///
    /// # Panics As [`over_tls`](Self::over_tls).
    pub fn sentinel_over_tls(
        authority: &Arc<Authority>,
        identity: Identity,
        args: &[&str],
    ) -> Self {
        let tls = Tls::new(authority, identity);
        let mut server = Self::launch(program(), Kind::Sentinel, args, Some(tls));
        server.settle();
        server
    }

    /// Returns the TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Returns the TCP address, as `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number)
    }

    /// Returns the TCP port on 127.0.0.1 for TLS.
    ///
    /// # Panics If it has none.
    pub fn tls_port(&self) -> u16 {
        self.tls().port.number
    }

    /// Returns the address for TLS, as `rediss://127.0.0.1:PORT`.
    ///
    /// # Panics If it has none.
    pub fn tls_address(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port())
    }

    /// Returns the authority that has signed its certificate.
    ///
    /// # Panics If it has none.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.tls().authority
    }

    /// Returns `true` if it has a port for TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("the server was started without TLS")
    }

    /// Returns the path of the Unix socket on which the server listens too.
    pub fn socket(&self) -> PathBuf {
        self.home.path().join("redis.sock")
    }

    /// Returns the process id.
    ///
    /// # Panics If the server was killed and not restarted.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server was killed: restart it first").id()
    }

    /// Freezes the process (SIGSTOP): the kernel still accepts connections for it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a frozen process (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process (SIGKILL) and reaps it. Its data is lost; its port stays reserved for a
    /// restart.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            // Without reaping, the process would stay as a zombie that still has its id.
            child.wait().unwrap();
        }
    }

    /// Restarts the server on the same port and with the same arguments. Kills it first if it still
    /// runs.
    ///
    /// # Panics
    /// If it does not answer within ten seconds, or another process took the port meanwhile.
    pub fn restart(&mut self) {
        self.kill();
        self.child = Some(self.spawn());
        if let Err(log) = self.wait_until_up() {
            panic!("redis-server did not come back on port {}:\n{log}", self.port.number);
        }
    }

    /// Sends one command on a new connection and returns the reply.
    ///
    /// # Panics If no well-formed reply arrives within five seconds.
    pub fn run(&self, args: &[&[u8]]) -> Reply {
        self.connect().run(args)
    }

    /// Does the same as [`run`](Self::run), with the arguments in `line`, split at spaces.
    pub fn cmd(&self, line: &str) -> Reply {
        self.connect().cmd(line)
    }

    /// Returns how often it has run a command since its statistics were reset.
    pub fn calls(&self, command: &str) -> u64 {
        let Reply::Bulk(stats) = self.cmd("INFO commandstats") else { return 0 };
        let stats = String::from_utf8_lossy(&stats);
        let start = format!("cmdstat_{command}:calls=");
        let count = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    /// Opens a connection, for a test that needs several commands on the same one.
    pub fn connect(&self) -> Connection {
        Connection::open(&self.address())
    }

    fn launch(program: OsString, kind: Kind, args: &[&str], tls: Option<Tls>) -> Self {
        require(&program);
        let extra = args.iter().map(ToString::to_string).collect();
        let home = tempfile::Builder::new().prefix("redbolt-").tempdir().unwrap();
        let mut server = Self { program, kind, child: None, port: Port::free(), tls, extra, home };
        if kind == Kind::Sentinel {
            File::create(server.known()).unwrap();
        }
        server.child = Some(server.spawn());
        server
    }

    fn settle(&mut self) {
        if let Err(why) = self.come_up() {
            panic!("{why}");
        }
    }

    /// Waits until the server answers. If a port cannot be reserved, a start that lost the race for
    /// it is repeated on another port.
    fn come_up(&mut self) -> Result<(), String> {
        for _ in 0..BIND_TRIES {
            match self.wait_until_up() {
                Ok(()) => return Ok(()),
                Err(log) if log.contains("Address already in use") => {
                    self.kill();
                    self.port = Port::free();
                    if let Some(tls) = &mut self.tls {
                        tls.port = Port::free();
                    }
                    self.child = Some(self.spawn());
                }
                Err(log) => {
                    return Err(format!(
                        "{} {:?} did not start:\n{log}",
                        self.program.display(),
                        self.extra
                    ));
                }
            }
        }
        Err(format!("found no port for {} in {BIND_TRIES} tries", self.program.display()))
    }

    fn spawn(&self) -> Child {
        let mut command = dying_with_us(self.program.clone());
        if self.kind == Kind::Sentinel {
            command.arg(self.known()).arg("--sentinel");
        }
        command
            .args(["--port", &self.port.number.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(self.home.path())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(self.tls.iter().flat_map(Tls::args))
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(File::create(self.log()).unwrap())
            .stderr(Stdio::null());
        spawn_on_lasting_thread(command).expect("the program ran a moment ago")
    }

    /// Waits until the server answers on its Unix socket. That socket is in our own directory,
    /// while another process may have the port. The server binds the port before it creates the
    /// socket.
    fn wait_until_up(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            let child = self.child.as_mut().expect("the server was started");
            if child.try_wait().unwrap().is_some() {
                return Err(self.read_log());
            }
            if answers(&self.socket()) {
                return Ok(());
            }
            thread::sleep(POLL_PAUSE);
        }
        Err(format!("no answer within {START_LIMIT:?}\n{}", self.read_log()))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("the server was killed"));
        kill_process(pid, signal).unwrap();
    }

    /// Returns the file with a sentinel's state.
    fn known(&self) -> PathBuf {
        self.home.path().join("sentinel.conf")
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn read_log(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut() {
            // A failure here cannot be handled, and a panic would hide the test's own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Tls {
    fn new(authority: &Arc<Authority>, identity: Identity) -> Self {
        Self { port: Port::free(), identity, authority: Arc::clone(authority) }
    }

    fn args(&self) -> [OsString; 10] {
        [
            "--tls-port".into(),
            self.port.number.to_string().into(),
            "--tls-cert-file".into(),
            self.identity.certificate.clone().into(),
            "--tls-key-file".into(),
            self.identity.key.clone().into(),
            "--tls-ca-cert-file".into(),
            self.authority.ca().into(),
            "--tls-auth-clients".into(),
            "no".into(),
        ]
    }
}

impl Port {
    fn free() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // With this option, and without a listener, the server can bind the same port on Linux.
        // Elsewhere the port is released once its number is known.
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let number =
            socket.local_addr().unwrap().as_socket().expect("the socket is bound to IPv4").port();
        Self { number, _reserved: cfg!(target_os = "linux").then_some(socket) }
    }
}

/// Returns `true` on any reply: NOAUTH and LOADING come from a running server, too.
fn answers(socket: &Path) -> bool {
    Connection::open_unix(socket).and_then(|mut connection| connection.try_run(&[b"PING"])).is_ok()
}

fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn require(program: &OsStr) {
    static FOUND: Mutex<Vec<OsString>> = Mutex::new(Vec::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if found.iter().all(|known| known != program) {
        assert!(
            runs(program),
            "{} does not run here: `apt-get install redis-server`, \
             or name another binary, such as valkey-server, in REDIS_SERVER",
            program.display()
        );
        found.push(program.to_owned());
    }
}

fn runs(program: &OsStr) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes the kernel end the program when this process ends. Setting the parent-death signal between
/// fork and exec would take unsafe code here, so `setpriv` of util-linux does it. Without that
/// program a killed test leaves its servers behind.
fn dying_with_us(program: OsString) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    if !*SETPRIV.get_or_init(|| runs(OsStr::new("setpriv"))) {
        return Command::new(program);
    }
    dying_with(std::process::id(), program)
}

/// Starts the program through a shell, which checks that its parent is still the process that
/// started it, because a process whose parent dies before it has requested the signal never gets
/// it.
fn dying_with(parent: u32, program: OsString) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#]);
    command.arg(parent.to_string()).arg(program);
    command
}

/// Forks from one thread that never ends, because the kernel sends the parent-death signal when the
/// *thread* that forked ends, and a server may outlive the test thread that started it.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, outcome) in inbox {
                let _ = outcome.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (outcome, child) = mpsc::channel();
    spawner.lock().unwrap().send((command, outcome)).unwrap();
    child.recv().unwrap()
}

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_PAUSE: Duration = Duration::from_millis(5);
const BIND_TRIES: usize = 5;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn is_pong(server: &Server) -> bool {
        server.cmd("PING") == Reply::Status("PONG".into())
    }

    #[test]
    fn answers_on_both_its_addresses() {
        let server = Server::start();
        assert!(is_pong(&server));
        assert!(answers(&server.socket()));
        assert_eq!(server.address(), format!("127.0.0.1:{}", server.port()));
    }

    #[test]
    fn extra_arguments_reach_the_program() {
        let server = Server::with(&["--requirepass", "x"]);
        assert_eq!(server.cmd("GET a"), Reply::Error("NOAUTH Authentication required.".into()));
        let mut connection = server.connect();
        assert_eq!(connection.cmd("AUTH x"), Reply::Status("OK".into()));
        assert_eq!(connection.cmd("GET a"), Reply::Nil);
    }

    #[test]
    fn a_program_that_is_not_a_server_reports_why_it_does_not_start() {
        let why = |program: &str| Server::try_of(OsStr::new(program), &[]).unwrap_err();
        assert!(why("/no/such/program").ends_with("does not run here"));
        assert!(why("ls").starts_with("ls [] did not start"));
    }

    #[test]
    fn a_server_does_not_start_whose_starter_was_gone_before_it() {
        let starts = |parent| dying_with(parent, "true".into()).status().unwrap().success();
        assert!(starts(std::process::id()));
        assert!(
            !starts(std::process::id() + 1),
            "a server whose parent is gone would never be killed"
        );
    }

    #[test]
    fn many_start_side_by_side_on_their_own_ports() {
        let five = servers(5);
        assert!(five.iter().all(is_pong));
        let mut ports: Vec<u16> = five.iter().map(Server::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 5);
    }

    #[test]
    fn a_paused_server_is_silent_until_it_is_resumed() {
        let server = Server::start();
        server.pause();
        let mut connection = server.connect();
        connection.send(b"PING\r\n");
        assert!(connection.is_silent_for(Duration::from_millis(100)));
        server.resume();
        assert_eq!(connection.reply(), Reply::Status("PONG".into()));
    }

    #[test]
    fn a_restart_keeps_the_port_and_loses_the_data() {
        let mut server = Server::start();
        let (port, first) = (server.port(), server.pid());
        server.cmd("SET a 1");
        server.kill();
        assert!(TcpStream::connect(server.address()).is_err());
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), first);
        assert_eq!(server.cmd("GET a"), Reply::Nil);
    }

    #[test]
    fn a_lost_race_for_the_port_is_tried_on_another() {
        let mut server = Server::start();
        server.kill();
        let thief = TcpListener::bind(server.address()).unwrap();
        server.child = Some(server.spawn());
        server.settle();
        assert_ne!(server.port(), thief.local_addr().unwrap().port());
        assert!(is_pong(&server));
    }

    #[test]
    fn a_server_outlives_the_thread_that_started_it_but_not_its_value() {
        let server = thread::spawn(Server::start).join().unwrap();
        assert!(is_pong(&server));
        let (address, home) = (server.address(), server.home.path().to_owned());
        drop(server);
        assert!(TcpStream::connect(address).is_err());
        assert!(!home.exists());
    }
}

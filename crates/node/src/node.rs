//! A [`Store`] on a TCP socket, in a separate thread: started, stopped, started again.

use std::{
    fmt::Write,
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::Duration,
};

use mio::Waker;
use redbolt::proto::{Settings, restart_guard::BIG_MS};
use socket2::{Domain, Socket, Type};

use crate::{
    clock::Clock,
    keys::Keys,
    serve::Server,
    store::{Memory, Store},
};

/// A node. It runs in a thread named `redbolt-node` until it is stopped or dropped.
///
/// It is for development and tests: memory only, not a database.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    /// Locked by the thread while it runs.
    store: Arc<Mutex<Store>>,
    running: Option<Running>,
    clock: Clock,
    /// The effect of the next start on the keys.
    memory: Memory,
    /// Reserves the port for the life of the node. Reserved only while stopped, the port would be
    /// free for a moment at each stop and start, and another program on a busy machine could take
    /// it.
    _reserved: Socket,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    stop: Waker,
}

impl Node {
    /// Starts a new node on a free loopback port. It is quarantined for `max_ttl`, unless a client
    /// declares it as new with `ConfigBuilder::new_nodes` or `redbolt::init`.
    ///
    /// # Errors
    ///
    /// Errors of the operating system: no socket, no thread or no random bytes.
    pub fn start() -> io::Result<Self> {
        Self::on((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts `count` nodes, from 1 to 32, as a set that votes at once, as if an operator had run
    /// `redbolt init`. For clients with the default `max_ttl`; for another one call
    /// [`start`](Self::start) for each, and give the client `ConfigBuilder::new_nodes`.
    ///
    /// ```
    /// use redbolt::{Client, Config, LockRequest};
    ///
    /// let nodes = redbolt_node::Node::set(3)?;
    /// let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    /// let client = Client::new(Config::builder().nodes(&addresses).build()?)?;
    /// assert!(client.acquire(LockRequest::new(b"job"))?.is_valid());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start).
    pub fn set(count: usize) -> io::Result<Vec<Self>> {
        Self::set_by(count, &Clock::default(), Settings::default().max_ttl)
    }

    /// Like [`set`](Self::set), with a clock that the test moves, for clients with this `max_ttl`.
    #[doc(hidden)]
    pub fn set_by(count: usize, clock: &Clock, max_ttl: Duration) -> io::Result<Vec<Self>> {
        let restart_guard_key = Settings::default().restart_guard_key;
        let max_ttl = max_ttl.as_millis();
        let of_set = |_| {
            let (run_id, now) = (random_run_id()?, clock.now());
            let mut store = Store::new(&run_id, now);
            // In the format that the library writes.
            let restart_guard = format!("{run_id}:{max_ttl}:{count}:0");
            let mut keys = Keys::new(&mut store.databases[0], now);
            keys.set_for(&restart_guard_key, restart_guard.as_bytes(), BIG_MS.cast_signed());
            Self::serving_by(clock.clone(), store, (Ipv4Addr::LOCALHOST, 0).into())
        };
        (0..count).map(of_set).collect()
    }

    /// Starts a new node on `address`; port 0 stands for any free one. Otherwise like
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start), and if the address is in use.
    pub fn on(address: SocketAddr) -> io::Result<Self> {
        Self::serving(Store::new(&random_run_id()?, Clock::default().now()), address)
    }

    /// Serves a store that the caller has prepared, with users or a password.
    #[doc(hidden)]
    pub fn serving(store: Store, address: SocketAddr) -> io::Result<Self> {
        Self::serving_by(Clock::default(), store, address)
    }

    fn serving_by(clock: Clock, store: Store, address: SocketAddr) -> io::Result<Self> {
        let reserved = reserve(address)?;
        let address = reserved.local_addr()?.as_socket().unwrap_or(address);
        let server = Server::bind(address, clock.clone())?;
        let mut node = Self {
            address: server.address()?,
            store: Arc::new(Mutex::new(store)),
            running: None,
            clock,
            memory: Memory::Kept,
            _reserved: reserved,
        };
        node.running = Some(Running::start(server, Arc::clone(&node.store))?);
        Ok(node)
    }

    /// Returns the address on which it listens. It stays the same while the node is stopped.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the listener and all connections, as the death of a process does. `memory` determines
    /// the keys of the next start. On a stopped node it does nothing.
    pub fn stop(&mut self, memory: Memory) {
        if let Some(running) = self.running.take() {
            running.end();
            self.memory = memory;
        }
    }

    /// Starts a stopped node again, on its port and with a new run ID. On a running node it does
    /// nothing.
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start); the node then stays stopped.
    pub fn start_again(&mut self) -> io::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let run_id = random_run_id()?;
        let server = Server::bind(self.address, self.clock.clone())?;
        let memory = mem::replace(&mut self.memory, Memory::Kept);
        lock(&self.store).restart(memory, &run_id, self.clock.now());
        self.running = Some(Running::start(server, Arc::clone(&self.store))?);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop(Memory::Lost);
    }
}

impl Running {
    fn start(mut server: Server, store: Arc<Mutex<Store>>) -> io::Result<Self> {
        let stop = server.stopper()?;
        let thread = thread::Builder::new()
            .name("redbolt-node".into())
            .spawn(move || server.run(&mut lock(&store)))?;
        Ok(Self { thread, stop })
    }

    fn end(self) {
        // After a panic of the loop there is no thread to wake, and the panic was reported.
        let _ = self.stop.wake();
        let _ = self.thread.join();
    }
}

/// Locks the store. After a panic of the loop it may be inconsistent, but the test fails anyway.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns a socket that is bound but does not listen. The kernel gives its port to no other
/// socket, in particular not to an outgoing connection, except for a listener that asks for this
/// port. While no listener exists, connections are refused.
fn reserve(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns 40 hexadecimal digits, like those of a real server.
fn random_run_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut id, byte| {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
        id
    }))
}

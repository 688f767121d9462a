//! Accepts connections in a thread and serves each in another thread, until dropped.
//!
//! Proxy and impostors share this code. It is the one place that ends blocking threads: it shuts
//! down their sockets.

use socket2::{Domain, Socket, Type};
use std::{
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, Weak},
    thread::{self, JoinHandle},
};

/// A listener on a free loopback port. Dropping it ends all connections and joins all threads.
#[derive(Debug)]
pub(crate) struct Acceptor {
    address: SocketAddr,
    open: Arc<Open>,
    thread: Option<JoinHandle<()>>,
}

/// The open sockets, so that other threads can shut them down.
#[derive(Debug, Default)]
pub(crate) struct Open {
    sockets: Mutex<Sockets>,
}

#[derive(Debug, Default)]
struct Sockets {
    alive: Vec<Weak<TcpStream>>,
    /// The sockets that were accepted here.
    accepted: Vec<Weak<TcpStream>>,
    stopped: bool,
}

impl Acceptor {
    /// Listens, and calls `serve` with each connection in a new thread.
    pub(crate) fn start<F>(serve: F) -> Self
    where
        F: Fn(&TcpStream, &Open) + Send + Sync + 'static,
    {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    /// Does the same as [`start`](Self::start), with the smallest receive buffers that the system
    /// has.
    pub(crate) fn narrow<F>(serve: F) -> Self
    where
        F: Fn(&TcpStream, &Open) + Send + Sync + 'static,
    {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Accepted sockets inherit the size.
        socket.set_recv_buffer_size(1).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(128).unwrap();
        Self::on(socket.into(), serve)
    }

    fn on<F>(listener: TcpListener, serve: F) -> Self
    where
        F: Fn(&TcpStream, &Open) + Send + Sync + 'static,
    {
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Open::default());
        let ours = Arc::clone(&open);
        let thread = thread::spawn(move || accept_all(&listener, &ours, &serve));
        Self { address, open, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all present connections; new ones are accepted.
    pub(crate) fn cut_all(&self) {
        self.open.cut_all();
    }

    /// Ends the accepted sockets, but not the connections opened for them.
    pub(crate) fn cut_accepted(&self) {
        let sockets = self.open.sockets.lock().unwrap();
        sockets.accepted.iter().filter_map(Weak::upgrade).for_each(|socket| cut(&socket));
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.open.stop();
        // A connection from here wakes the thread from `accept`.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Open {
    /// Registers a socket; returns `false` if the acceptor has been dropped.
    pub(crate) fn note(&self, socket: &Arc<TcpStream>) -> bool {
        let mut sockets = self.sockets.lock().unwrap();
        sockets.alive.retain(|socket| socket.strong_count() > 0);
        sockets.alive.push(Arc::downgrade(socket));
        !sockets.stopped
    }

    fn note_accepted(&self, socket: &Arc<TcpStream>) -> bool {
        let mut sockets = self.sockets.lock().unwrap();
        sockets.accepted.retain(|socket| socket.strong_count() > 0);
        sockets.accepted.push(Arc::downgrade(socket));
        drop(sockets);
        self.note(socket)
    }

    fn cut_all(&self) {
        let sockets = self.sockets.lock().unwrap();
        sockets.alive.iter().filter_map(Weak::upgrade).for_each(|socket| cut(&socket));
    }

    fn stop(&self) {
        self.sockets.lock().unwrap().stopped = true;
        self.cut_all();
    }
}

/// Shuts a socket down in both directions. An error means that it was closed already.
pub(crate) fn cut(socket: &TcpStream) {
    let _ = socket.shutdown(Shutdown::Both);
}

fn accept_all<F>(listener: &TcpListener, open: &Open, serve: &F)
where
    F: Fn(&TcpStream, &Open) + Sync,
{
    thread::scope(|scope| {
        loop {
            let socket = Arc::new(listener.accept().unwrap().0);
            if !open.note_accepted(&socket) {
                return;
            }
            scope.spawn(move || {
                serve(&socket, open);
                cut(&socket);
            });
        }
    });
}

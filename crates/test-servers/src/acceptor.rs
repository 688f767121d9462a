//! Accepts connections in a thread and serves each in a thread of its own, until dropped.
//!
//! The common ground of proxy and impostors, and the one place that knows how to end blocking
//! threads: their sockets are shut down under them.

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

/// The sockets that are open, so that others can end them.
#[derive(Debug, Default)]
pub(crate) struct Open {
    sockets: Mutex<Sockets>,
}

#[derive(Debug, Default)]
struct Sockets {
    alive: Vec<Weak<TcpStream>>,
    /// Those of them that were accepted here.
    accepted: Vec<Weak<TcpStream>>,
    stopped: bool,
}

impl Acceptor {
    /// Listens, and calls `serve` with each connection in a new thread.
    pub(crate) fn start<F>(serve: F) -> Self
    where
        F: Fn(&TcpStream, &Open) + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Open::default());
        let ours = Arc::clone(&open);
        let thread = thread::spawn(move || accept_all(&listener, &ours, &serve));
        Self { address, open, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections of the moment; new ones are accepted.
    pub(crate) fn cut_all(&self) {
        self.open.cut_all();
    }

    /// Ends the sockets that were accepted, and leaves alone what was opened for them.
    pub(crate) fn cut_accepted(&self) {
        let sockets = self.open.sockets.lock().unwrap();
        sockets.accepted.iter().filter_map(Weak::upgrade).for_each(|socket| cut(&socket));
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.open.stop();
        // A connection of our own wakes the thread from `accept`.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Open {
    /// Takes note of a socket, or says that it is too late.
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

/// Ends a connection in both directions. One that has ended already is as good.
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

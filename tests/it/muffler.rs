//! A proxy that can drop what a server sends on push links, including their end, without either
//! side noticing, like a middlebox that has removed a connection from its table.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A proxy whose threads end with the connections and with the process.
pub(crate) struct Muffler {
    address: String,
    muffled: Arc<AtomicBool>,
}

impl Muffler {
    pub(crate) fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let muffled = Arc::new(AtomicBool::new(false));
        let (switch, server) = (Arc::clone(&muffled), server.to_owned());
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                relay(client, server, &switch);
            }
        });
        Self { address, muffled }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Drops the server's messages and end of stream on push links from now on.
    pub(crate) fn muffle(&self) {
        self.muffled.store(true, Ordering::SeqCst);
    }
}

fn relay(client: TcpStream, server: TcpStream, muffled: &Arc<AtomicBool>) {
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap();
    }
    let is_push = Arc::new(AtomicBool::new(false));
    let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let noted = Arc::clone(&is_push);
    thread::spawn(move || {
        pump(&from, &to, |bytes| {
            if bytes.windows(9).any(|word| word == b"SUBSCRIBE") {
                noted.store(true, Ordering::SeqCst);
            }
            true
        });
        let _ = to.shutdown(Shutdown::Both);
    });
    let muffled = Arc::clone(muffled);
    thread::spawn(move || {
        let is_received = || !(is_push.load(Ordering::SeqCst) && muffled.load(Ordering::SeqCst));
        pump(&server, &client, |_| is_received());
        if is_received() {
            let _ = client.shutdown(Shutdown::Both);
        }
    });
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if passes(&buffer[..length]) && to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

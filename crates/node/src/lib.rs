//! An embedded Redis node for development and tests: memory only, and not a database.
//!
//! [`Store`] is a model of the commands that locks use. It is deterministic: the clock is an
//! argument of each call, and there is no thread, no socket and no entropy in it, so that a
//! simulator can own many; what a restart leaves of the keys is for the caller to say ([`Memory`]).
//! [`Node`] is a server around one store, on a loopback socket, for demonstrations and for tests of
//! programs that use locks.
//!
//! Apart from the library because a lock client needs no server. Replies are worded as those of
//! Redis 7.0, byte for byte, and so are the messages to those who track keys; tests compare both with
//! the real one. Not here: types other than strings, persistence, replication, eviction, Lua (the
//! lock scripts are modelled in Rust), RESP3, channels that anybody publishes to, inline commands, and
//! every command that no lock needs.
//!
//! ```
//! use std::{io::{Read, Write}, net::TcpStream};
//!
//! let node = redbolt_node::Node::start()?;
//! let mut stream = TcpStream::connect(node.address())?;
//! stream.write_all(b"*5\r\n$3\r\nSET\r\n$3\r\njob\r\n$5\r\ntoken\r\n$2\r\nPX\r\n$4\r\n9000\r\n")?;
//! let mut reply = [0; 5];
//! stream.read_exact(&mut reply)?;
//! assert_eq!(&reply, b"+OK\r\n");
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_code)]

mod commands;
mod denial;
mod keys;
mod node;
mod reply;
mod request;
mod scripts;
mod serve;
mod store;
mod tracking;

pub use denial::Denial;
pub use keys::Keys;
pub use node::Node;
pub use reply::Reply;
pub use store::{ConnId, Memory, Now, Script, Snapshot, Store};

//! Sockets, clock and loop under the core: everything that touches the operating system.
//!
//! Apart from `proto`, which it drives and which knows none of it; apart from the APIs, which
//! differ only in who waits and where. Not here: what a quorum is, or a TTL.

mod address;
mod cause;
mod clock;
mod resolve;
mod socket;
mod sockets;

pub use address::{Address, AddressError};
pub use clock::now;
pub(crate) use clock::{Clock, Origin};
pub(crate) use sockets::Sockets;

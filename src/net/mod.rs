//! Sockets, clocks and the body of the event loop: everything that touches the operating system.
//!
//! Apart from `proto`, which it drives and which knows nothing of it. Apart from the APIs, which differ only in
//! who waits, and where. Not here: quorums and TTLs.

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

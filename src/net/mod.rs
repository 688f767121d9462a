//! Sockets, clocks and the body of the event loop: everything that touches the operating system.
//!
//! Apart from `proto`, which it drives and which knows nothing of it. Apart from the APIs, which differ only in
//! who waits, and where.

mod address;
mod cause;
mod clock;
mod host_port;
mod hosts;
mod locator;
mod resolve;
mod sentinel;
mod socket;
mod sockets;
mod threads;
#[cfg(feature = "tls")]
mod tls;

pub use address::{Address, AddressError, Sentinels};
#[cfg(target_os = "linux")]
pub(crate) use clock::Alarm;
pub use clock::now;
pub(crate) use clock::{Clock, Origin};
pub(crate) use hosts::HostResolver;
pub(crate) use locator::NetAccess;
pub(crate) use sentinel::locate;
pub(crate) use sockets::Sockets;
pub(crate) use threads::{lock, start as start_thread};
#[cfg(feature = "tls")]
pub(crate) use tls::{Connector, SentinelTls, TlsSettings};
#[cfg(feature = "tls")]
pub use tls::{TlsError, TlsStream};

//! Sockets, clocks and the body of the event loop: everything that touches the operating system.
//!
//! It drives `proto`, which does not depend on it. The APIs share this module and differ only in
//! how their callers wait.

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

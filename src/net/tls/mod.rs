//! TLS connections (feature `tls`).

mod fault;
mod session;
mod stream;
mod trust;

pub(super) use fault::TlsFault;
pub(super) use session::Session;
pub use stream::TlsStream;
pub(super) use trust::Certificates;
pub use trust::TlsError;
pub(crate) use trust::{Connector, SentinelTls, TlsSettings};

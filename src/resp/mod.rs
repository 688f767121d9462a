//! RESP2, the wire protocol of Redis and Valkey: a complete codec without sockets.
//!
//! | to | use |
//! |---|---|
//! | write commands | [`command`], into any [`BufMut`] |
//! | read replies as they arrive, without an allocation | [`Decoder`]: tokens that borrow the caller's buffer |
//! | keep replies, or read commands | [`FrameDecoder`]: trees of [`Frame`]s that own their bytes |
//! | write replies | [`Frame::encode`] |
//!
//! ```
//! use redbolt::resp::{Decoder, Limits, Token};
//!
//! let mut decoder = Decoder::new(Limits::default());
//! let stream = b"*2\r\n$3\r\nfoo\r\n:7\r\n";
//! let mut at = 0;
//! let mut tokens = Vec::new();
//! while let Some((token, len)) = decoder.next(&stream[at..])? {
//!     tokens.push(token);
//!     at += len;
//! }
//! assert_eq!(tokens, [Token::Array(2), Token::Bulk(b"foo"), Token::Int(7)]);
//! # Ok::<(), redbolt::resp::Violation>(())
//! ```
//!
//! The grammar is that of the [protocol page]. If the page leaves a choice, this codec is strict: a
//! client matches replies only by their order, so it must notice the first byte that does not fit.
//! [`Rule`] lists the rules. Invariant: a peer cannot make a program hold more than [`Limits`]
//! allow.
//!
//! RESP3 and inline commands are not supported.
//!
//! [protocol page]: https://redis.io/docs/latest/develop/reference/protocol-spec/

#![forbid(unsafe_code)]

mod declare;
mod decode;
mod encode;
mod frame;
mod limits;
mod violation;

// Types of the public interface, re-exported so that users need no other dependency.
pub use bytes::{BufMut, Bytes, BytesMut};
pub(crate) use declare::{builder_methods, debug_by_name, messages, sources};
pub use decode::{Decoder, Token};
pub use encode::{CommandEncoder, command};
pub use frame::{Frame, FrameDecoder};
pub use limits::{Limits, MAX_DEPTH};
pub use violation::{Rule, Violation};

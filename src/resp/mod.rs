//! RESP2, the wire protocol of Redis and Valkey: an incremental decoder and an encoder.
//!
//! The grammar is the one of the [protocol page]; where that page leaves room, this codec is
//! strict, because a client that matches replies by order alone must notice the first byte that
//! does not fit. The rules are listed at [`Rule`], the bounds at [`Limits`].
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
//! Apart from everything else because it is useful, and provable, without locks: it knows bytes
//! and nothing more. Not here: a tree of frames (tokens are pulled and borrow the caller's
//! buffer, so nothing is copied), sockets, RESP3, and inline commands.
//!
//! [protocol page]: https://redis.io/docs/latest/develop/reference/protocol-spec/

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod limits;
mod violation;

pub use decode::{Decoder, Token};
pub use encode::{CommandEncoder, command};
pub use limits::{Limits, MAX_DEPTH};
pub use violation::{Rule, Violation};

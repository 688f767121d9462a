//! Whole replies that own their bytes.
//!
//! A [`Frame`] can be kept, sent to another thread and compared. Its payloads are [`Bytes`], split
//! without a copy from the buffer that they were received in. Each array of a frame costs an
//! allocation, while the [tokens](super::Decoder) cost none. Grammar and limits are the same.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::decode::{Decoder, Token};
use super::encode::header;
use super::limits::Limits;
use super::violation::Violation;

/// A RESP2 reply with everything nested in it, or a command, which is an array of bulk strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "RESP2 has no others")]
pub enum Frame {
    /// `*`: the elements of an array.
    Array(Vec<Self>),
    /// `$`: a string of any bytes.
    Bulk(Bytes),
    /// `-`: the text of an error.
    Error(Bytes),
    /// `:`: an integer.
    Int(i64),
    /// `*-1`: a null array.
    NilArray,
    /// `$-1`: a null string.
    NilBulk,
    /// `+`: a line of text.
    Simple(Bytes),
}

impl Frame {
    /// Appends the frame to `out`, as a server sends it.
    ///
    /// A CR or LF in a [`Simple`](Self::Simple) or an [`Error`](Self::Error) becomes a space,
    /// because it would end the line. A received frame has none there.
    ///
    /// ```
    /// use redbolt::resp::Frame;
    ///
    /// let mut out = Vec::new();
    /// Frame::Array(vec![Frame::Bulk("a\r\nb".into()), Frame::Int(-7)]).encode(&mut out);
    /// Frame::Error("ERR no\r\n+OK".into()).encode(&mut out);
    /// assert_eq!(out, b"*2\r\n$4\r\na\r\nb\r\n:-7\r\n-ERR no  +OK\r\n");
    /// ```
    ///
    /// # Panics
    ///
    /// If `out` is full and cannot grow.
    pub fn encode(&self, out: &mut (impl BufMut + ?Sized)) {
        match self {
            Self::Array(elements) => {
                header(out, b'*', elements.len() as u64);
                elements.iter().for_each(|element| element.encode(out));
            }
            Self::Bulk(payload) => {
                header(out, b'$', payload.len() as u64);
                out.put_slice(payload);
                out.put_slice(b"\r\n");
            }
            Self::Error(text) => line(out, b'-', text),
            Self::Int(value @ 0..) => header(out, b':', value.unsigned_abs()),
            // For both signs a type byte is followed by a number without a sign.
            Self::Int(value) => {
                out.put_u8(b':');
                header(out, b'-', value.unsigned_abs());
            }
            Self::NilArray => out.put_slice(b"*-1\r\n"),
            Self::NilBulk => out.put_slice(b"$-1\r\n"),
            Self::Simple(text) => line(out, b'+', text),
        }
    }
}

fn line(out: &mut (impl BufMut + ?Sized), kind: u8, text: &[u8]) {
    // A CR LF would end the line, and what follows would be read as another reply.
    out.put_u8(kind);
    let mut parts = text.split(|byte| matches!(byte, b'\r' | b'\n'));
    out.put_slice(parts.next().unwrap_or_default());
    for part in parts {
        out.put_u8(b' ');
        out.put_slice(part);
    }
    out.put_slice(b"\r\n");
}

/// A decoder that takes whole frames off a buffer, however their bytes arrive.
///
/// The caller appends the received bytes. [`next`](Self::next) takes off each element as soon as it
/// is complete, so that the buffer needs at most [`Limits::buffered`] bytes, and input in small
/// pieces costs no more than in one piece. [`Limits`] and violations are those of [`Decoder`].
///
/// ```
/// use redbolt::resp::{BytesMut, Frame, FrameDecoder, Limits, command};
///
/// let mut out = BytesMut::new();
/// command(&mut out, 3).arg(b"HMGET").arg(b"job").arg(b"owner");
/// // Write `out` to a socket, and append what you read from it to a buffer, as tokio's
/// // `read_buf` does.
/// let received = [&b"*2\r\n$5\r\nali"[..], b"ce\r\n:7", b"\r\n+OK\r\n"];
///
/// let mut decoder = FrameDecoder::new(Limits::default());
/// let mut buffer = BytesMut::new();
/// let mut frames = Vec::new();
/// for piece in received {
///     buffer.extend_from_slice(piece);
///     while let Some(frame) = decoder.next(&mut buffer)? {
///         frames.push(frame);
///     }
/// }
/// let array = Frame::Array(vec![Frame::Bulk("alice".into()), Frame::Int(7)]);
/// assert_eq!(frames, [array, Frame::Simple("OK".into())]);
/// assert!(buffer.is_empty() && decoder.depth() == 0, "the stream may end here");
/// # Ok::<(), redbolt::resp::Violation>(())
/// ```
///
/// # Memory
///
/// A payload is a part of the buffer's memory and keeps all of it alive, which may be much more
/// than the payload: copy what you keep for long (`Bytes::copy_from_slice`). While a payload is
/// alive, a buffer without room gets new memory when it grows; once all are dropped, it reuses the
/// old memory. An array takes the size of a [`Frame`] for each element that has arrived, and at
/// most twice that while it grows. For elements that are only announced it has room for at most 16.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    tokens: Decoder,
    /// The elements that are complete of each open array, the outermost array first.
    open: Vec<Vec<Frame>>,
}

impl FrameDecoder {
    /// Returns a decoder at the start of a stream, with the limits as in [`Decoder::new`].
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { tokens: Decoder::new(limits), open: Vec::new() }
    }

    /// Returns the next frame of the stream, or `None` if more bytes are needed.
    ///
    /// Between calls `buffer` may only be appended to.
    ///
    /// # Errors
    ///
    /// The first broken rule ends the stream: every later call returns the same violation.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        while let Some((token, len)) = self.tokens.next(buffer)? {
            let element = match token {
                Token::Array(elements @ 1..) => {
                    buffer.advance(len);
                    // A peer can announce elements that never arrive.
                    self.open.push(Vec::with_capacity(MOST_AT_ONCE.min(elements as usize)));
                    continue;
                }
                Token::Bulk(payload) => Frame::Bulk(split(buffer, len, payload.len())),
                Token::Error(text) => Frame::Error(split(buffer, len, text.len())),
                // Nearly all lines are this one, which should not keep a buffer alive.
                Token::Simple(b"OK") => skip(buffer, len, Frame::Simple(Bytes::from_static(b"OK"))),
                Token::Simple(text) => Frame::Simple(split(buffer, len, text.len())),
                Token::Array(_) => skip(buffer, len, Frame::Array(Vec::new())),
                Token::Int(value) => skip(buffer, len, Frame::Int(value)),
                Token::NilArray => skip(buffer, len, Frame::NilArray),
                Token::NilBulk => skip(buffer, len, Frame::NilBulk),
            };
            if let Some(frame) = self.complete(element) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Returns the number of consumed bytes of the stream.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.tokens.offset()
    }

    /// Returns the number of open arrays, which is zero between frames.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.tokens.depth()
    }

    /// Adds an element to the innermost array. Returns the whole frame if the element completes it.
    fn complete(&mut self, mut element: Frame) -> Option<Frame> {
        while let Some(mut around) = self.open.pop() {
            // The decoder has already closed every array that this element completes.
            around.push(element);
            if self.open.len() < self.tokens.depth() {
                self.open.push(around);
                return None;
            }
            element = Frame::Array(around);
        }
        Some(element)
    }
}

/// Takes a token of `len` bytes off the buffer, and returns its `payload` bytes before the CR LF.
fn split(buffer: &mut BytesMut, len: usize, payload: usize) -> Bytes {
    if payload == 0 {
        // An empty payload must not keep the buffer's memory alive.
        buffer.advance(len);
        return Bytes::new();
    }
    buffer.advance(len - payload - CR_LF);
    // Shares the buffer's memory, so nothing is copied.
    let payload = buffer.split_to(payload).freeze();
    buffer.advance(CR_LF);
    payload
}

fn skip(buffer: &mut BytesMut, len: usize, frame: Frame) -> Frame {
    buffer.advance(len);
    frame
}

/// The maximum number of elements for which an array reserves room before they arrive.
const MOST_AT_ONCE: usize = 16;

const CR_LF: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> FrameDecoder {
        FrameDecoder::new(Limits::default())
    }

    fn frames(stream: &[u8]) -> Vec<Frame> {
        let (mut decoder, mut buffer) = (decoder(), BytesMut::from(stream));
        std::iter::from_fn(|| decoder.next(&mut buffer).unwrap()).collect()
    }

    #[test]
    fn frames_nest_as_their_arrays_do() {
        let inner = Frame::Array(vec![Frame::NilBulk, Frame::Array(vec![])]);
        let outer = Frame::Array(vec![Frame::Array(vec![inner]), Frame::Int(1)]);
        assert_eq!(frames(b"*2\r\n*1\r\n*2\r\n$-1\r\n*0\r\n:1\r\n:2\r\n"), [outer, Frame::Int(2)]);
    }

    #[test]
    fn nulls_differ_from_each_other_and_from_empty_values() {
        let empty = [Frame::Bulk(Bytes::new()), Frame::Array(vec![])];
        assert_eq!(frames(b"$-1\r\n*-1\r\n"), [Frame::NilBulk, Frame::NilArray]);
        assert_eq!(frames(b"$0\r\n\r\n*0\r\n"), empty);
    }

    #[test]
    fn a_payload_is_not_copied_from_the_buffer() {
        for (stream, piece) in
            [(&b"*3\r\n$4\r\na\r\nb\r\n-ERR no\r\n+QUEUED\r\n"[..], 3), (b"$3\r\nfoo\r\n", 1)]
        {
            let mut buffer = BytesMut::with_capacity(64);
            let memory = buffer.as_ptr().addr()..buffer.as_ptr().addr() + 64;
            let mut decoder = decoder();
            let found = stream.chunks(piece).find_map(|piece| {
                buffer.extend_from_slice(piece);
                decoder.next(&mut buffer).unwrap()
            });
            let payloads = match found {
                Some(Frame::Array(elements)) => elements,
                Some(frame) => vec![frame],
                None => vec![],
            };
            assert!(!payloads.is_empty());
            for payload in payloads {
                let (Frame::Bulk(bytes) | Frame::Error(bytes) | Frame::Simple(bytes)) = payload
                else {
                    panic!("{payload:?} has no payload");
                };
                assert!(memory.contains(&bytes.as_ptr().addr()), "{bytes:?} was copied");
            }
        }
    }

    #[test]
    fn a_frame_outlives_the_buffer_and_later_input() {
        let (mut decoder, mut buffer) = (decoder(), BytesMut::with_capacity(16));
        let kept: Vec<_> = (0..100)
            .map(|number| {
                buffer.extend_from_slice(format!("$6\r\njob-{number:02}\r\n").as_bytes());
                decoder.next(&mut buffer).unwrap().unwrap()
            })
            .collect();
        drop(buffer);
        for (number, frame) in kept.into_iter().enumerate() {
            assert_eq!(frame, Frame::Bulk(format!("job-{number:02}").into()));
        }
    }

    #[test]
    fn a_violation_is_final_and_leaves_the_broken_token_in_the_buffer() {
        let (mut decoder, mut buffer) = (decoder(), BytesMut::from(&b"*2\r\n:1\r\n:x\r\n"[..]));
        let violation = decoder.next(&mut buffer).unwrap_err();
        assert_eq!((violation.offset, decoder.offset()), (9, 8));
        assert_eq!(buffer, ":x\r\n");
        buffer.clear();
        buffer.extend_from_slice(b"+OK\r\n");
        assert_eq!(decoder.next(&mut buffer), Err(violation));
    }

    #[test]
    fn encoded_frames_can_be_decoded() {
        let edges = [0, 9, 10, 99, 100, i64::MAX, -1, -10, i64::MIN];
        let elements = edges.map(Frame::Int).into_iter();
        let elements = elements.chain([Frame::NilBulk, Frame::NilArray, Frame::Array(vec![])]);
        let frame = Frame::Array(elements.collect());
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        assert_eq!(frames(&out), [frame]);
    }

    #[test]
    fn a_line_is_never_encoded_as_two() {
        let mut out = Vec::new();
        for text in ["", "\n", "a\r\n", "\rb", "ERR\r\n+OK"] {
            Frame::Error(text.into()).encode(&mut out);
        }
        assert_eq!(out, b"-\r\n- \r\n-a  \r\n- b\r\n-ERR  +OK\r\n");
    }
}

//! Parses requests from a stream of bytes: arrays of bulk strings, in bounded memory.

use redbolt::resp::{BytesMut, Frame, FrameDecoder, Limits};

/// Collects the bytes of one connection and finds the requests in them. It has no `Debug`, because
/// the bytes may be passwords.
pub(crate) struct Requests {
    buffer: BytesMut,
    decoder: FrameDecoder,
}

/// The error for bytes that are not a request, after which the connection cannot continue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Requests {
    pub(crate) fn new() -> Self {
        Self { buffer: BytesMut::new(), decoder: FrameDecoder::new(limits()) }
    }

    /// Adds bytes from the peer. Call [`next`](Self::next) until it finds nothing before adding
    /// more, so that the buffer holds no more than one word and a piece of this size.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Passes the words of the next complete request to `run`. Returns false if there is none yet.
    /// An empty array is a request without words, which has no effect.
    pub(crate) fn next(&mut self, run: impl FnOnce(&[&[u8]])) -> Result<bool, Malformed> {
        let frame =
            self.decoder.next(&mut self.buffer).map_err(|broken| Malformed(broken.to_string()))?;
        let words = match frame {
            None => return Ok(false),
            Some(Frame::Array(words)) => words,
            Some(Frame::NilArray) => Vec::new(),
            Some(_) => return Err(no_request()),
        };
        let words: Option<Vec<&[u8]>> = words.iter().map(word).collect();
        run(&words.ok_or_else(no_request)?);
        Ok(true)
    }
}

fn word(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Bulk(word) => Some(word),
        _ => None,
    }
}

fn no_request() -> Malformed {
    Malformed("expected an array of bulk strings".into())
}

/// Returns the limits of one request.
fn limits() -> Limits {
    let mut limits = Limits::default();
    // Words are bulk strings, so the decoder itself refuses an array inside the array.
    limits.depth = 1;
    limits.elements = MAX_WORDS;
    limits.bulk = MAX_WORD;
    limits.reply = MAX_REQUEST;
    limits
}

const MAX_WORDS: u32 = 4096;
const MAX_WORD: usize = 1 << 20;
const MAX_REQUEST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(requests: &mut Requests) -> Result<Vec<Vec<Vec<u8>>>, Malformed> {
        let mut found = Vec::new();
        while requests.next(|words| found.push(words.iter().map(|w| w.to_vec()).collect()))? {}
        Ok(found)
    }

    #[test]
    fn requests_are_the_same_in_one_piece_and_in_any_two_and_byte_by_byte() {
        let stream = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
        let expected: Vec<Vec<Vec<u8>>> =
            vec![vec![b"GET".to_vec(), b"a\r\nb".to_vec()], vec![], vec![], vec![vec![]]];
        for cut in 0..=stream.len() {
            let mut requests = Requests::new();
            requests.take(&stream[..cut]);
            let mut found = all(&mut requests).unwrap();
            requests.take(&stream[cut..]);
            found.extend(all(&mut requests).unwrap());
            assert_eq!(found, expected, "cut at {cut}");
        }
        let mut requests = Requests::new();
        let mut found = Vec::new();
        for byte in stream {
            requests.take(&[*byte]);
            found.extend(all(&mut requests).unwrap());
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn bytes_that_are_not_a_request_are_refused() {
        for stream in [
            &b"PING\r\n"[..],
            b"$4\r\nPING\r\n",
            b"+PING\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n*1\r\n$1\r\na\r\n",
            b"*4097\r\n",
            b"*1\r\n$1048577\r\n",
        ] {
            let mut requests = Requests::new();
            requests.take(stream);
            assert!(all(&mut requests).is_err(), "{:?}", stream.escape_ascii().to_string());
        }
    }

    #[test]
    fn the_buffer_drops_answered_requests() {
        let mut requests = Requests::new();
        for _ in 0..1_000 {
            requests.take(b"*1\r\n$4\r\nPING\r\n*1\r\n");
            assert_eq!(all(&mut requests).unwrap().len(), 1);
            requests.take(b"$4\r\nPING\r\n");
            assert_eq!(all(&mut requests).unwrap().len(), 1);
        }
        assert!(requests.buffer.capacity() < 100);
    }
}

//! Finds requests in a byte stream, as a server does, without the library's decoder: one part of
//! the library must not check another.
//!
//! The parser is strict: an array of bulk strings in its one canonical form, because the core
//! writes nothing else. The embedded node has to accept any client's bytes, and so has a separate
//! parser (`crates/node`).

/// The arguments of a request, owned.
pub type Words = Vec<Vec<u8>>;

/// The result of parsing the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The request is complete.
    Complete {
        /// The number of its arguments.
        words: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// More bytes are needed.
    Incomplete,
    /// The bytes are not a request, or one with more arguments than there is room for.
    Malformed,
}

/// Parses the request at the front of `bytes` into `words`.
#[inline]
pub fn request<'b>(bytes: &'b [u8], words: &mut [&'b [u8]]) -> Request {
    read(bytes, words.len(), |at, word| words[at] = word)
}

#[inline]
fn read<'b>(bytes: &'b [u8], most: usize, mut found: impl FnMut(usize, &'b [u8])) -> Request {
    let mut at = 0;
    let Some(count) = header(bytes, &mut at, b'*') else { return unfinished(bytes, b'*') };
    if count == 0 || count > most {
        return Request::Malformed;
    }
    for word in 0..count {
        let rest = &bytes[at..];
        let mut head = 0;
        let Some(length) = header(rest, &mut head, b'$') else { return unfinished(rest, b'$') };
        let Some(body) = rest.get(head..head + length + 2) else { return Request::Incomplete };
        if &body[length..] != b"\r\n" {
            return Request::Malformed;
        }
        found(word, &body[..length]);
        at += head + length + 2;
    }
    Request::Complete { words: count, length: at }
}

fn unfinished(bytes: &[u8], kind: u8) -> Request {
    let line = bytes.iter().position(|&byte| byte == b'\n');
    match bytes.first() {
        Some(&first) if first != kind => Request::Malformed,
        _ if line.is_some() => Request::Malformed,
        _ => Request::Incomplete,
    }
}

/// Returns the number of a header, without leading zeros. Advances `at` behind the header.
#[inline]
fn header(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    if *bytes.first()? != kind {
        return None;
    }
    let (mut number, mut place) = (0, 1);
    while let Some(digit) = bytes.get(place).map(|byte| byte.wrapping_sub(b'0')) {
        if digit > 9 || place > 8 || (number == 0 && place > 1) {
            break;
        }
        number = number * 10 + usize::from(digit);
        place += 1;
    }
    *at = place + 2;
    (place > 1 && bytes.get(place..place + 2)? == b"\r\n").then_some(number)
}

/// Returns the request at the front of some bytes, and its length; `None` if it is incomplete.
///
/// # Panics
///
/// Panics if the bytes are not a request.
#[must_use]
pub fn first(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut words = Vec::new();
    match read(bytes, MAX_WORDS, |_, word| words.push(word)) {
        Request::Complete { length, .. } => Some((words, length)),
        Request::Incomplete => None,
        Request::Malformed => panic!("not a request: {}", bytes.escape_ascii()),
    }
}

/// A server's end of a connection: collects bytes and finds the requests in them.
#[derive(Clone, Debug, Default)]
pub struct Requests(Vec<u8>);

impl Requests {
    /// Receives bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Takes all complete requests, in order.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are not a request.
    pub fn each(&mut self, mut run: impl FnMut(&[&[u8]])) {
        let mut at = 0;
        while let Some((words, length)) = first(&self.0[at..]) {
            run(&words);
            at += length;
        }
        self.0.drain(..at);
    }

    /// Takes them like [`each`](Self::each), as owned requests.
    pub fn complete(&mut self) -> Vec<Words> {
        let mut found = Vec::new();
        self.each(|words| found.push(words.iter().map(|word| word.to_vec()).collect()));
        found
    }

    /// Drops an incomplete request, for a new connection.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// More than the arguments of any request of a core: the keys of a fenced lock, their counters, and
/// a few.
const MAX_WORDS: usize = 2 * redbolt::proto::MAX_KEYS + 16;

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed<'b> = Result<Option<(Vec<&'b [u8]>, usize)>, ()>;

    fn parsed(bytes: &[u8]) -> Parsed<'_> {
        let mut words = [&[][..]; 32];
        match request(bytes, &mut words) {
            Request::Complete { words: count, length } => {
                Ok(Some((words[..count].to_vec(), length)))
            }
            Request::Incomplete => Ok(None),
            Request::Malformed => Err(()),
        }
    }

    #[test]
    fn a_request_is_complete_with_its_last_byte() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n";
        for cut in 0..bytes.len() - 4 {
            assert_eq!(parsed(&bytes[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(parsed(bytes), Ok(Some((vec![&b"GET"[..], b"a\r\nb"], bytes.len() - 4))));
        assert_eq!(parsed(b"*1\r\n$0\r\n\r\n"), Ok(Some((vec![&b""[..]], 10))));
    }

    #[test]
    fn invalid_requests_are_detected() {
        for bytes in [
            &b"PING\r\n"[..],
            b"*0\r\n",
            b"*99\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$1\r\nabc",
            b"*01\r\n$1\r\na\r\n",
            b"*1\r\n$01\r\na\r\n",
            b"*1\r\n$00\r\n\r\n",
        ] {
            assert_eq!(parsed(bytes), Err(()), "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn requests_are_found_for_any_split_of_their_bytes() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 0..bytes.len() {
            let mut requests = Requests::default();
            requests.receive(&bytes[..cut]);
            let mut found = requests.complete();
            requests.receive(&bytes[cut..]);
            found.extend(requests.complete());
            assert_eq!(found, [vec![b"GET".to_vec(), b"a".to_vec()], vec![b"PING".to_vec()]]);
        }
    }
}

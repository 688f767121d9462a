//! A command while it runs: its words, its session and store, and its failures.

use crate::{
    clock::ClockReading,
    integer::integer_of,
    keys::{Keys, WrongType},
    reply::Reply,
    session::{ConnId, Session},
    store::Store,
};

/// One command in progress.
pub(super) struct Call<'a> {
    pub(super) store: &'a mut Store,
    pub(super) conn: ConnId,
    pub(super) args: &'a [&'a [u8]],
    pub(super) now: ClockReading,
    pub(super) reply: Reply<'a>,
    /// The keys that it reads if it reads any, in the view of a tracking server.
    pub(super) named: &'a [&'a [u8]],
}

/// The text of an error reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) Vec<u8>);

pub(super) type Outcome = Result<(), Failure>;

impl<'a> Call<'a> {
    pub(super) fn session(&mut self) -> &mut Session {
        let session = self.store.session(self.conn);
        session.expect("a command runs on a live connection only")
    }

    /// Returns the index of the database with this number.
    pub(super) fn database(&self, index: i32) -> Result<usize, Failure> {
        let place = usize::try_from(index).ok().filter(|&at| at < self.store.databases.len());
        place.ok_or_else(|| "ERR DB index is out of range".into())
    }

    /// Returns the keys of the selected database.
    pub(super) fn keys(&mut self) -> Keys<'_> {
        self.keys_and_reply().0
    }

    pub(super) fn keys_and_reply(&mut self) -> (Keys<'_>, &mut Reply<'a>) {
        let database = self.session().database;
        let is_watched = self.store.is_watched(self.conn);
        let keys = Keys::new(&mut self.store.databases[database], self.now);
        let keys = if is_watched { keys.written_down(&mut self.store.journal) } else { keys };
        (keys, &mut self.reply)
    }

    pub(super) fn ok(&mut self) -> Outcome {
        self.reply.status("OK");
        Ok(())
    }

    pub(super) fn int(&mut self, value: i64) -> Outcome {
        self.reply.int(value);
        Ok(())
    }
}

impl From<WrongType> for Failure {
    fn from(_: WrongType) -> Self {
        WrongType::TEXT.into()
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Reads an integer like the server: no blanks, no plus, no leading zero.
pub(super) fn integer(arg: &[u8]) -> Result<i64, Failure> {
    integer_of(arg).ok_or_else(|| NOT_AN_INTEGER.into())
}

#[inline]
pub(super) fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

pub(super) fn wrong_arity(name: &str) -> Failure {
    Failure::from(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Returns at most `room` bytes up to the first NUL, because the server prints arguments as C
/// strings.
pub(super) fn c_string(bytes: &[u8], room: usize) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end.min(room)]
}

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const SYNTAX_ERROR: &str = "ERR syntax error";

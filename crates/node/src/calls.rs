//! The commands as a script calls them.
//!
//! Each is checked before it runs and may fail: a script may call a command that its user may not,
//! or find data of another type. A `redis.call` of the Lua text is a call with a question mark in
//! the model, a `redis.pcall` one with [`caught`]. The effects of commands on keys are in `keys`.

use crate::{
    clock::ClockReading,
    denial::{Denial, Denials},
    integer::integer_of,
    keys::{Expiry, Keys, WrongType},
    sharers::Sharers,
};

/// The keys, for a script that may lack permission for some commands.
pub(crate) struct Calls<'s> {
    keys: Keys<'s>,
    denials: &'s Denials,
    replied: Vec<Message>,
}

/// A published message: the channel, and the text.
pub(crate) type Message = (Vec<u8>, Vec<u8>);

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Bulk(Vec<u8>),
    Error(&'static str),
    Int(i64),
    Status(&'static str),
    /// A word and a number.
    StatusAnd(&'static str, i64),
    StatusLine(Vec<u8>),
}

/// The end of a script before its last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Answered(Answer),
    /// A command failed. The server adds the position to its error.
    Raised(CallError),
}

/// The failure of a command in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    Denied(Denial),
    NotAnInteger,
    WrongType,
}

impl CallError {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Denied(denial) => denial.in_script(),
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::WrongType => WrongType::TEXT,
        }
    }

    /// Returns the end of a script that replies with an error it has caught.
    pub(crate) fn answer(self) -> Stop {
        Stop::Answered(Answer::Error(self.text()))
    }
}

impl From<WrongType> for CallError {
    fn from(_: WrongType) -> Self {
        Self::WrongType
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Raised(error)
    }
}

/// Returns the result of a command whose errors a script catches: `None` for data of another type.
/// Any other error ends the script with that error as its reply.
pub(crate) fn caught<T>(outcome: Result<T, CallError>) -> Result<Option<T>, Stop> {
    match outcome {
        Ok(got) => Ok(Some(got)),
        Err(CallError::WrongType) => Ok(None),
        Err(error) => Err(error.answer()),
    }
}

impl<'s> Calls<'s> {
    pub(crate) fn new(keys: Keys<'s>, denials: &'s Denials) -> Self {
        Self { keys, denials, replied: Vec::new() }
    }

    /// Returns the published messages, in order.
    pub(crate) fn into_replies(self) -> Vec<Message> {
        self.replied
    }

    #[inline]
    fn may(&self, command: &str) -> Result<(), CallError> {
        self.denials.of(command).map_or(Ok(()), |denial| Err(CallError::Denied(denial)))
    }

    /// PUBLISH in a script that continues if it may not publish.
    pub(crate) fn publish_if_allowed(&mut self, channel: Vec<u8>, message: &[u8]) {
        if self.may("publish").is_ok() {
            self.replied.push((channel, message.to_vec()));
        }
    }

    pub(crate) fn del(&mut self, key: &[u8]) -> Result<bool, CallError> {
        self.may("del")?;
        Ok(self.keys.delete(key))
    }

    /// DEL of several keys.
    pub(crate) fn del_all(&mut self, keys: &[&[u8]]) -> Result<(), CallError> {
        self.may("del")?;
        for key in keys {
            self.keys.delete(key);
        }
        Ok(())
    }

    /// DUMP: all data of a key except its TTL. The bytes are not those of a server.
    pub(crate) fn dump(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
        self.may("dump")?;
        Ok(self.keys.dump(key))
    }

    pub(crate) fn hdel(&mut self, key: &[u8], fields: &[&[u8]]) -> Result<i64, CallError> {
        self.may("hdel")?;
        Ok(self.keys.remove_fields(key, fields)? as i64)
    }

    pub(crate) fn hexists(&mut self, key: &[u8], field: &[u8]) -> Result<bool, CallError> {
        self.may("hexists")?;
        Ok(self.keys.fields(key)?.is_some_and(|fields| fields.value_of(field).is_some()))
    }

    pub(crate) fn hget(&mut self, key: &[u8], field: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
        self.may("hget")?;
        let fields = self.keys.fields(key)?;
        Ok(fields.and_then(|fields| fields.value_of(field)).map(<[u8]>::to_vec))
    }

    /// HMGET: returns which of the fields exist.
    pub(crate) fn hmget(&mut self, key: &[u8], names: &[Vec<u8>]) -> Result<Vec<bool>, CallError> {
        self.may("hmget")?;
        let fields = self.keys.fields(key)?;
        let is_there = |name| fields.is_some_and(|fields| fields.value_of(name).is_some());
        Ok(names.iter().map(|name| is_there(name)).collect())
    }

    /// HGETALL, in the order of the fields' bytes.
    pub(crate) fn hgetall(&mut self, key: &[u8]) -> Result<Vec<[Vec<u8>; 2]>, CallError> {
        self.may("hgetall")?;
        let fields = self.keys.fields(key)?.into_iter().flat_map(|fields| fields.iter());
        Ok(fields.map(|(name, value)| [name.to_vec(), value.to_vec()]).collect())
    }

    pub(crate) fn hlen(&mut self, key: &[u8]) -> Result<usize, CallError> {
        self.may("hlen")?;
        Ok(self.keys.fields(key)?.map_or(0, |fields| fields.len()))
    }

    /// Increments a counter of decimal digits by one.
    pub(crate) fn incr(&mut self, key: &[u8]) -> Result<i64, CallError> {
        self.may("incr")?;
        let before = self.keys.bytes(key)?.map_or(Some(0), integer_of);
        let count = before.and_then(|before| before.checked_add(1));
        let count = count.ok_or(CallError::NotAnInteger)?;
        self.keys.set(key, count.to_string().as_bytes(), Expiry::Kept);
        Ok(count)
    }

    pub(crate) fn hset(&mut self, key: &[u8], fields: &[(&[u8], &[u8])]) -> Result<(), CallError> {
        self.may("hset")?;
        Ok(self.keys.set_fields(key, fields)?)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, CallError> {
        self.may("get")?;
        Ok(self.keys.bytes(key)?)
    }

    /// LPUSH of one entry.
    pub(crate) fn lpush(&mut self, key: &[u8], entry: &[u8]) -> Result<(), CallError> {
        self.may("lpush")?;
        self.keys.push(key, entry)?;
        Ok(())
    }

    /// Returns the bytes from 0 to `last`, inclusive.
    pub(crate) fn getrange(&mut self, key: &[u8], last: usize) -> Result<&[u8], CallError> {
        self.may("getrange")?;
        let bytes = self.keys.bytes(key)?.unwrap_or_default();
        Ok(&bytes[..bytes.len().min(last.saturating_add(1))])
    }

    pub(crate) fn pexpire(&mut self, key: &[u8], ttl: i64) -> Result<bool, CallError> {
        self.may("pexpire")?;
        Ok(self.keys.expire_in(key, ttl))
    }

    pub(crate) fn pexpireat(&mut self, key: &[u8], at: i64) -> Result<bool, CallError> {
        self.may("pexpireat")?;
        Ok(self.keys.expire_at(key, at))
    }

    pub(crate) fn pttl(&mut self, key: &[u8]) -> Result<i64, CallError> {
        self.may("pttl")?;
        Ok(self.keys.pttl(key))
    }

    pub(crate) fn set_for(&mut self, key: &[u8], bytes: &[u8], ttl: i64) -> Result<(), CallError> {
        self.may("set")?;
        self.keys.set_for(key, bytes, ttl);
        Ok(())
    }

    /// SET without a TTL.
    pub(crate) fn set(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), CallError> {
        self.may("set")?;
        self.keys.set(key, bytes, Expiry::Never);
        Ok(())
    }

    /// SET with XX.
    pub(crate) fn set_if_there(
        &mut self,
        key: &[u8],
        bytes: &[u8],
        ttl: i64,
    ) -> Result<(), CallError> {
        self.may("set")?;
        if self.keys.contains(key) {
            self.keys.set_for(key, bytes, ttl);
        }
        Ok(())
    }

    pub(crate) fn time(&self) -> Result<ClockReading, CallError> {
        self.may("time")?;
        Ok(self.keys.now())
    }

    pub(crate) fn kind(&mut self, key: &[u8]) -> Result<&'static str, CallError> {
        self.may("type")?;
        Ok(self.keys.kind(key))
    }

    /// ZADD of one member with the option `CH`. Returns true if it changed anything.
    pub(crate) fn zadd(&mut self, key: &[u8], end: i64, name: &[u8]) -> Result<bool, CallError> {
        self.may("zadd")?;
        Ok(self.keys.share(key, name, end)?)
    }

    pub(crate) fn zcard(&mut self, key: &[u8]) -> Result<usize, CallError> {
        self.may("zcard")?;
        Ok(self.keys.sharers(key)?.map_or(0, Sharers::len))
    }

    /// ZCOUNT of the members that end after `time`, without a mark, which never ends.
    pub(crate) fn zcount(&mut self, key: &[u8], time: i64) -> Result<usize, CallError> {
        self.may("zcount")?;
        Ok(self.keys.sharers(key)?.map_or(0, |sharers| sharers.ending_after(time).count()))
    }

    /// Returns the members that ZRANGE reads.
    pub(crate) fn zrange(&mut self, key: &[u8]) -> Result<Option<&Sharers>, CallError> {
        self.may("zrange")?;
        Ok(self.keys.sharers(key)?)
    }

    /// ZRANGEBYSCORE of the members that end after `time`, without a mark.
    pub(crate) fn zrangebyscore(
        &mut self,
        key: &[u8],
        time: i64,
    ) -> Result<Vec<(Vec<u8>, i64)>, CallError> {
        self.may("zrangebyscore")?;
        let after =
            self.keys.sharers(key)?.into_iter().flat_map(|sharers| sharers.ending_after(time));
        Ok(after.map(|(name, end)| (name.to_vec(), end)).collect())
    }

    /// ZRANGEBYSCORE of the members that end at `last` or earlier.
    pub(crate) fn zrangebyscore_until(
        &mut self,
        key: &[u8],
        last: i64,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        self.may("zrangebyscore")?;
        let all = self.keys.sharers(key)?.into_iter().flat_map(Sharers::iter);
        Ok(all.take_while(|&(_, end)| end <= last).map(|(name, _)| name.to_vec()).collect())
    }

    /// ZRANK: returns the number of members before it.
    pub(crate) fn zrank(&mut self, key: &[u8], name: &[u8]) -> Result<Option<usize>, CallError> {
        self.may("zrank")?;
        let sharers = self.keys.sharers(key)?;
        Ok(sharers.and_then(|sharers| sharers.iter().position(|(member, _)| member == name)))
    }

    pub(crate) fn zrem(&mut self, key: &[u8], name: &[u8]) -> Result<bool, CallError> {
        self.may("zrem")?;
        Ok(self.keys.unshare(key, name)?)
    }

    /// ZREMRANGEBYSCORE up to `last`, inclusive.
    pub(crate) fn zremrangebyscore(&mut self, key: &[u8], last: i64) -> Result<(), CallError> {
        self.may("zremrangebyscore")?;
        Ok(self.keys.unshare_until(key, last)?)
    }

    pub(crate) fn zscore(&mut self, key: &[u8], name: &[u8]) -> Result<Option<i64>, CallError> {
        self.may("zscore")?;
        Ok(self.keys.sharers(key)?.and_then(|sharers| sharers.end_of(name)))
    }
}

//! Commands on strings, and on keys of any type: deletion and expiry.

use super::call::{Call, Failure, Outcome, SYNTAX_ERROR, c_string, integer, is_word};
use crate::keys::{Expiry, Keys};

pub(super) fn set(call: &mut Call<'_>) -> Outcome {
    let (key, value) = (call.args[1], call.args[2]);
    let options = SetOptions::parse(&call.args[3..])?;
    let mut keys = call.keys();
    let expiry = options.expiry(keys.now().millis())?;
    if options.only_if.is_some_and(|wanted| keys.contains(key) != (wanted == Only::IfPresent)) {
        call.reply.nil();
        return Ok(());
    }
    keys.set(key, value, expiry);
    call.ok()
}

pub(super) fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let (mut keys, reply) = call.keys_and_reply();
    match keys.bytes(key)? {
        Some(value) => reply.bulk(value),
        None => reply.nil(),
    }
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (integer(call.args[2])?, integer(call.args[3])?);
    let key = call.args[1];
    let (mut keys, reply) = call.keys_and_reply();
    reply.bulk(keys.bytes(key)?.map_or(b"", |value| range(value, start, end)));
    Ok(())
}

pub(super) fn del(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[1..];
    let mut keys = call.keys();
    let deleted = names.iter().filter(|name| keys.delete(name)).count();
    call.int(deleted as i64)
}

pub(super) fn delifeq(call: &mut Call<'_>) -> Outcome {
    let (key, value) = (call.args[1], call.args[2]);
    delete_if_equal(call, key, value)
}

/// DELEX with the one condition that locks use, or none.
pub(super) fn delex(call: &mut Call<'_>) -> Outcome {
    match *call.args {
        [_, _] => del(call),
        [_, key, condition, value] if is_word(condition, "IFEQ") => {
            delete_if_equal(call, key, value)
        }
        [_, _, _, _] => Err("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE".into()),
        _ => Err("ERR wrong number of arguments for 'delex' command".into()),
    }
}

fn delete_if_equal(call: &mut Call<'_>, key: &[u8], value: &[u8]) -> Outcome {
    let mut keys = call.keys();
    let is_equal = keys.bytes(key)? == Some(value);
    let deleted = is_equal && keys.delete(key);
    call.int(deleted.into())
}

pub(super) fn exists(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[1..];
    let mut keys = call.keys();
    let found = names.iter().filter(|name| keys.contains(name)).count();
    call.int(found as i64)
}

pub(super) fn type_of(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let kind = call.keys().kind(key);
    call.reply.status(kind);
    Ok(())
}

pub(super) fn pttl(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let left = call.keys().pttl(key);
    call.int(left)
}

pub(super) fn ttl(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let left = call.keys().pttl(key);
    call.int(if left < 0 { left } else { (left + 500) / 1_000 })
}

pub(super) fn pexpire(call: &mut Call<'_>) -> Outcome {
    expire_in(call, "pexpire", 1)
}

pub(super) fn expire(call: &mut Call<'_>) -> Outcome {
    expire_in(call, "expire", 1_000)
}

fn expire_in(call: &mut Call<'_>, name: &str, unit: i64) -> Outcome {
    let conditions = Conditions::parse(&call.args[3..])?;
    let span = integer(call.args[2])?;
    let key = call.args[1];
    let mut keys = call.keys();
    let at = span.checked_mul(unit).and_then(|span| span.checked_add(keys.now().millis()));
    let at = at.ok_or_else(|| invalid_expiry(name))?;
    let changed = conditions.allow(&mut keys, key, at) && keys.expire_at(key, at);
    call.int(changed.into())
}

/// The options behind the value in SET.
#[derive(Default)]
struct SetOptions<'a> {
    only_if: Option<Only>,
    keep_ttl: bool,
    /// The digits, and the length of their unit in milliseconds.
    ttl: Option<(&'a [u8], i64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    IfAbsent,
    IfPresent,
}

impl<'a> SetOptions<'a> {
    /// Parses the whole syntax before any number is read, as the server does.
    fn parse(args: &[&'a [u8]]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if is_word(arg, "NX") {
                options.only(Only::IfAbsent)?;
            } else if is_word(arg, "XX") {
                options.only(Only::IfPresent)?;
            } else if is_word(arg, "KEEPTTL") && options.ttl.is_none() {
                options.keep_ttl = true;
            } else if is_word(arg, "EX") {
                options.live_for(args.next(), 1_000)?;
            } else if is_word(arg, "PX") {
                options.live_for(args.next(), 1)?;
            } else {
                return Err(SYNTAX_ERROR.into());
            }
        }
        Ok(options)
    }

    fn only(&mut self, only: Only) -> Outcome {
        match self.only_if.replace(only) {
            Some(before) if before != only => Err(SYNTAX_ERROR.into()),
            _ => Ok(()),
        }
    }

    /// Sets the TTL. The same unit twice is not an error for the server: the last one counts.
    fn live_for(&mut self, digits: Option<&&'a [u8]>, unit: i64) -> Outcome {
        let conflict = self.keep_ttl || self.ttl.is_some_and(|(_, before)| before != unit);
        match digits {
            Some(digits) if !conflict => self.ttl = Some((digits, unit)),
            _ => return Err(SYNTAX_ERROR.into()),
        }
        Ok(())
    }

    fn expiry(&self, now: i64) -> Result<Expiry, Failure> {
        let Some((digits, unit)) = self.ttl else {
            return Ok(if self.keep_ttl { Expiry::Kept } else { Expiry::Never });
        };
        let span = Some(integer(digits)?).filter(|&span| span > 0);
        let at = span.and_then(|span| span.checked_mul(unit)).and_then(|ms| ms.checked_add(now));
        at.map(Expiry::At).ok_or_else(|| invalid_expiry("set"))
    }
}

/// The conditions behind the time in EXPIRE and PEXPIRE.
#[derive(Default)]
struct Conditions {
    without_ttl: bool,
    with_ttl: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: &[&[u8]]) -> Result<Self, Failure> {
        let mut conditions = Self::default();
        for arg in args {
            *conditions.named(arg)? = true;
        }
        let Self { without_ttl, with_ttl, later, earlier } = conditions;
        if without_ttl && (with_ttl || later || earlier) {
            return Err(NX_AND_OTHERS.into());
        }
        if later && earlier {
            return Err(GT_AND_LT.into());
        }
        Ok(conditions)
    }

    fn named(&mut self, arg: &[u8]) -> Result<&mut bool, Failure> {
        match arg.to_ascii_uppercase().as_slice() {
            b"NX" => Ok(&mut self.without_ttl),
            b"XX" => Ok(&mut self.with_ttl),
            b"GT" => Ok(&mut self.later),
            b"LT" => Ok(&mut self.earlier),
            _ => Err(Failure([b"ERR Unsupported option ", c_string(arg, arg.len())].concat())),
        }
    }

    /// Returns true if the conditions allow this end. A key without a TTL counts as one that ends
    /// later than any other.
    fn allow(&self, keys: &mut Keys<'_>, key: &[u8], at: i64) -> bool {
        let present = keys.expiry(key);
        !(self.without_ttl && present.is_some()
            || self.with_ttl && present.is_none()
            || self.later && present.is_none_or(|present| at <= present)
            || self.earlier && present.is_some_and(|present| at >= present))
    }
}

/// Returns the bytes from `start` to `end`, both inclusive and counted from the end if negative.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let length = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let from_front = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(length - 1));
    if start > end {
        return &[];
    }
    &value[start as usize..=end as usize]
}

fn invalid_expiry(command: &str) -> Failure {
    Failure::from(format!("ERR invalid expire time in '{command}' command"))
}

const NX_AND_OTHERS: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
const GT_AND_LT: &str = "ERR GT and LT options at the same time are not compatible";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_both_ends() {
        for (start, end, part) in [
            (0, -1, "hello"),
            (1, -2, "ell"),
            (-3, -1, "llo"),
            (-100, -99, "h"),
            (0, i64::MIN, "h"),
            (3, 1, ""),
            (-100, i64::MIN, ""),
            (-1, -5, ""),
            (5, -100, ""),
            (i64::MAX, i64::MAX, ""),
            (i64::MIN, i64::MAX, "hello"),
        ] {
            assert_eq!(range(b"hello", start, end), part.as_bytes(), "{start} {end}");
        }
        assert_eq!(range(b"", 0, -1), b"");
    }
}

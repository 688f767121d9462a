//! The scripts of shared locks: a resource is a sorted set of its readers, by their ends. A single
//! reader is a string.
//!
//! Times are the node's, in ms. A holder has expired at its end; the key itself exists through its
//! last millisecond.

use super::common::{
    BAD_ARGUMENTS, begin, check_clock, check_restart_guard, counter_to_raise, number, raise, span,
    token_and_ttl,
};
use super::exclusive::extend_value;
use super::mark::{NEVER, OUTLIVES_MS, QUEUE_MARK, close, marked};
use crate::{
    calls::{Answer, CallError, Calls, Stop, caught},
    mutants::mutant,
    reply::decimal,
};

/// Adds a reader, if the restart guard lets the node vote and there are only readers.
pub(super) fn acquire_shared(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let found = look(calls, resource)?;
    if found == Found::Nothing {
        // Finds out whether an undo is allowed, while there is nothing to delete.
        calls.del(resource)?;
        share_alone(calls, resource, token, ttl)?;
        return Ok(Answer::Status("OK"));
    }
    let now = calls.time()?.millis();
    deny_unless_shared(calls, resource, &found, now)?;
    rehearse_share(calls, (resource, token), now, argv.get(2))?;
    share(calls, resource, token, now, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Acquires like `acquire_shared`, with an odd fencing token: the counter, or the next odd number
/// from the proposal on.
pub(super) fn acquire_shared_fenced(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let (proposal, life) = (number(argv.get(2))?, span(argv.get(3))?);
    let least = number::<u64>(argv.get(4))?;
    let &[resource, counter, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    let time = calls.time()?;
    let found = look(calls, resource)?;
    let is_free = found == Found::Nothing;
    if !is_free {
        deny_unless_shared(calls, resource, &found, time.millis())?;
    }
    check_clock(proposal, time.micros())?;
    let shown = odd_from(counter_to_raise(calls, counter)?.floor(), proposal, least);
    let mut text = Vec::new();
    decimal(&mut text, shown);
    if mutant!(ReadersNeverRaise) {
        text = calls.get(counter)?.unwrap_or(b"0").to_vec();
    }
    if mutant!(FirstReaderRaises) && !is_free {
        text = calls.get(counter)?.unwrap_or(b"0").to_vec();
    }
    match is_free {
        true => drop(calls.del(resource)?),
        false => rehearse_share(calls, (resource, token), time.millis(), argv.get(5))?,
    }
    calls.set_for(counter, &text, life)?;
    match is_free {
        true => share_alone(calls, resource, token, ttl)?,
        false => share(calls, resource, token, time.millis(), ttl)?,
    }
    Ok(Answer::StatusAnd("OK", shown.cast_signed()))
}

/// Extends a reader to at least this TTL. Never shortens it.
pub(super) fn extend_shared(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let resource = *names.first().ok_or(BAD_ARGUMENTS)?;
    if look(calls, resource)?.is_lone(token) {
        extend_value(calls, resource, token, ttl, None)?;
        return Ok(Answer::Int(1));
    }
    extend_member(calls, resource, token, ttl)
}

pub(super) fn extend_member(
    calls: &mut Calls<'_>,
    resource: &[u8],
    token: &[u8],
    ttl: i64,
) -> Result<Answer, Stop> {
    if mutant!(ExtensionRevives) && matches!(calls.kind(resource)?, "none" | "zset") {
        let now = calls.time()?.millis();
        share(calls, resource, token, now, ttl)?;
    }
    let Some((end, now)) = read_mine(calls, resource, token)? else { return Ok(Answer::Int(0)) };
    let later = now.saturating_add(ttl);
    if later > end {
        calls.zadd(resource, later, token)?;
        live_as_long_as_the_last(calls, resource)?;
    }
    Ok(Answer::Int(1))
}

/// Removes a reader.
pub(super) fn undo_shared(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, ..], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if look(calls, resource)?.is_lone(token) {
        return Ok(Answer::Int(calls.del(resource)?.into()));
    }
    undo_member(calls, resource, token)
}

pub(super) fn undo_member(
    calls: &mut Calls<'_>,
    resource: &[u8],
    token: &[u8],
) -> Result<Answer, Stop> {
    let was_there = caught(calls.zrem(resource, token))?.unwrap_or(false);
    if mutant!(ReleaseOfAllReaders) && was_there {
        return Ok(Answer::Int(calls.del(resource)?.into()));
    }
    if was_there {
        live_as_long_as_the_last(calls, resource)?;
    }
    Ok(Answer::Int(i64::from(was_there)))
}

/// Raises the counter to at least the given value, if the holder shares the resource.
pub(super) fn write_back_shared(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, counter], &[token, _, _]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    let (least, life) = (argv.get(1), span(argv.get(2))?);
    number::<u64>(least)?;
    if mutant!(WriteBackUnowned) {
        raise(calls, counter, least, life)?;
        return Ok(Answer::Int(1));
    }
    let is_lone = look(calls, resource)?.is_lone(token);
    if !is_lone && read_mine(calls, resource, token)?.is_none() {
        return Ok(Answer::Int(0));
    }
    raise(calls, counter, least, life)?;
    Ok(Answer::Int(1))
}

/// Reports the readers, in lines: their number, and the time left of those that end first.
pub(super) fn view_shared(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource, ..] = names else { return Err(BAD_ARGUMENTS) };
    let most = number(argv.first())?;
    let now = calls.time()?.millis();
    let shown = calls.zrangebyscore(resource, now).map_err(CallError::answer)?;
    let mut lines = calls.zcount(resource, now)?.to_string().into_bytes();
    for (name, end) in shown.iter().take(most) {
        // No token is this long, so another program wrote the set.
        if name.len() > LONGEST_NAME {
            return Ok(Answer::Bulk(Vec::new()));
        }
        lines.extend_from_slice(format!("\n{} ", end - now).as_bytes());
        lines.extend_from_slice(name);
    }
    Ok(Answer::Bulk(lines))
}

/// The data of a resource, as far as `GET` shows it.
#[derive(PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    String(Vec<u8>),
    AnotherType,
}

impl Found {
    /// Returns true if it is the holder with this token, which is the only reader.
    fn is_lone(&self, token: &[u8]) -> bool {
        if mutant!(LoneReaderIsAnybody) {
            return matches!(self, Self::String(value) if value.starts_with(READER));
        }
        matches!(self, Self::String(value) if value.strip_prefix(READER) == Some(token))
    }
}

pub(super) fn look(calls: &mut Calls<'_>, resource: &[u8]) -> Result<Found, Stop> {
    let value = calls.get(resource).map(|value| value.map(<[u8]>::to_vec));
    Ok(match caught(value)? {
        None => Found::AnotherType,
        Some(None) => Found::Nothing,
        Some(Some(value)) => Found::String(value),
    })
}

/// Checks that the resource has only readers. A key with other data, or that no script wrote,
/// blocks it for as long as it lives.
fn deny_unless_shared(
    calls: &mut Calls<'_>,
    resource: &[u8],
    found: &Found,
    now: i64,
) -> Result<(), Stop> {
    make_members(calls, resource, found, |mode, _| mode == Mode::Reader)?;
    let Some(left) = deny_unless_members(calls, resource)? else { return Ok(()) };
    // A mark stands for a queue, which newcomers must not pass.
    if calls.zscore(resource, QUEUE_MARK)?.is_some() {
        return Err(Stop::Answered(Answer::Int(left)));
    }
    if mutant!(ReaderLooksBefore) {
        return Ok(());
    }
    deny_beside_writer(calls, resource, None, now, left)
}

/// The mode of a holder that is a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Reader,
    Writer,
}

/// Makes a string a member of a sorted set, if its mode and the digits of its token allow it; any
/// other string denies. The commands that an undo and another request will need are called before
/// anything is written. On a string each of them fails.
pub(super) fn make_members(
    calls: &mut Calls<'_>,
    resource: &[u8],
    found: &Found,
    may: impl FnOnce(Mode, &[u8]) -> bool,
) -> Result<(), Stop> {
    let Found::String(value) = found else { return Ok(()) };
    let (value, end) = match marked(value) {
        Some((value, end)) => (value, Some(end)),
        None => (value.strip_suffix(b"\n").unwrap_or(value), None),
    };
    let (mode, token) = match value.strip_prefix(READER) {
        Some(token) => (Mode::Reader, token),
        None => (Mode::Writer, value),
    };
    let left = calls.pttl(resource)?;
    let is_token = begins_with_digits(token) && !token.iter().any(u8::is_ascii_control);
    let is_ours = is_token && may(mode, &token[..TOKEN_DIGITS]);
    if !is_ours || left == -1 {
        return Err(Stop::Answered(Answer::Int(left)));
    }
    let now = calls.time()?.millis();
    // If a marked holder has expired, the key is closed for the queue.
    if end.is_some_and(|end| end <= now) {
        return Err(Stop::Answered(Answer::Int(left)));
    }
    let left = end.map_or(left, |end| end - now);
    let name = match mode {
        Mode::Reader => token.to_vec(),
        Mode::Writer => [WRITER, token].concat(),
    };
    fails_on_a_string(calls.zrem(resource, b""))?;
    fails_on_a_string(calls.zadd(resource, 0, b""))?;
    fails_on_a_string(calls.zremrangebyscore(resource, 0))?;
    fails_on_a_string(calls.zrange(resource).map(drop))?;
    fails_on_a_string(calls.zscore(resource, b""))?;
    let end_of_all = now.saturating_add(left);
    calls.pexpireat(resource, end_of_all)?;
    calls.del(resource)?;
    if mutant!(LoneReaderIsReplaced) && mode == Mode::Reader {
        return Ok(());
    }
    calls.zadd(resource, end_of_all, &name)?;
    calls.pexpireat(resource, end_of_all)?;
    // A set has the mark as a member, not in its text.
    if end.is_some() {
        calls.zadd(resource, NEVER, QUEUE_MARK)?;
        calls.pexpireat(resource, end_of_all.saturating_add(OUTLIVES_MS))?;
    }
    Ok(())
}

/// Ignores the failure of a rehearsal on a string: only a missing permission ends the script.
fn fails_on_a_string<T>(outcome: Result<T, CallError>) -> Result<(), Stop> {
    match outcome {
        Ok(_) | Err(CallError::WrongType) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Checks that an undo is allowed, and that no member is the same client as another node.
pub(super) fn rehearse_share(
    calls: &mut Calls<'_>,
    (resource, token): (&[u8], &[u8]),
    now: i64,
    nodes: Option<&&[u8]>,
) -> Result<(), Stop> {
    rehearse_undo(calls, resource, now)?;
    deny_twin(calls, resource, token, nodes)
}

fn share_alone(calls: &mut Calls<'_>, resource: &[u8], token: &[u8], ttl: i64) -> Result<(), Stop> {
    Ok(calls.set_for(resource, &[READER, token].concat(), ttl)?)
}

/// Checks that the resource is free or a sorted set, and returns the set's TTL if it has one.
pub(super) fn deny_unless_members(
    calls: &mut Calls<'_>,
    resource: &[u8],
) -> Result<Option<i64>, Stop> {
    let kind = calls.kind(resource)?;
    if kind == "none" {
        return Ok(None);
    }
    let left = calls.pttl(resource)?;
    if kind == "zset" && left != -1 {
        let first = calls.zrange(resource)?.and_then(|sharers| sharers.iter().next());
        if first.is_some_and(|(name, _)| begins_as_a_token(name)) {
            return Ok(Some(left));
        }
    }
    Err(Stop::Answered(Answer::Int(left)))
}

/// Checks that no writer holds the resource except one whose token begins with `own`. The script
/// has read the members already.
pub(super) fn deny_beside_writer(
    calls: &mut Calls<'_>,
    resource: &[u8],
    own: Option<&[u8]>,
    now: i64,
    left: i64,
) -> Result<(), Stop> {
    let is_others = |(name, end): (&[u8], i64)| {
        let writer = name.strip_prefix(WRITER).filter(|_| end > now);
        writer.is_some_and(|token| Some(&token[..token.len().min(TOKEN_DIGITS)]) != own)
    };
    // At most its own two claims can be next to a writer, so it is among the first members.
    let members = calls.zrange(resource)?;
    match members.is_some_and(|members| members.iter().take(MOST_BESIDE_WRITER).any(is_others)) {
        true => Err(Stop::Answered(Answer::Int(left))),
        false => Ok(()),
    }
}

pub(super) fn begins_as_a_token(name: &[u8]) -> bool {
    begins_with_digits(name.strip_prefix(WRITER).unwrap_or(name))
}

pub(super) fn begins_with_digits(value: &[u8]) -> bool {
    value.get(..TOKEN_DIGITS).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes expired members. Otherwise this only finds out whether an undo is allowed: no member has
/// the empty name, and the key lives as long as its last holder already.
pub(super) fn rehearse_undo(calls: &mut Calls<'_>, resource: &[u8], now: i64) -> Result<(), Stop> {
    calls.zremrangebyscore(resource, now)?;
    calls.zrem(resource, b"")?;
    let last = match read_last_end(calls, resource)? {
        LastEnd::At(last) => last,
        LastEnd::OfNobody | LastEnd::OfMark => now + OUTLIVES_MS,
    };
    calls.pexpireat(resource, last)?;
    Ok(())
}

/// Denies a request that has come before, as another of the client's `nodes` nodes.
pub(super) fn deny_twin(
    calls: &mut Calls<'_>,
    resource: &[u8],
    token: &[u8],
    nodes: Option<&&[u8]>,
) -> Result<(), Stop> {
    // Two of the client's nodes may be the same server, which must have only one vote.
    for twin in twins(token, number(nodes)?) {
        if calls.zscore(resource, &twin)?.is_some() {
            return Err(Stop::Answered(Answer::Int(calls.pttl(resource)?)));
        }
    }
    Ok(())
}

/// Returns the tokens of one request to `nodes` nodes, which differ in the two digits of the node.
pub(super) fn twins(token: &[u8], nodes: u64) -> impl Iterator<Item = Vec<u8>> {
    let (random, rest) = token.split_at(token.len().min(TOKEN_DIGITS - 2));
    let label = rest.get(2..).unwrap_or_default();
    (0..nodes).map(move |node| [random, format!("{node:02x}").as_bytes(), label].concat())
}

/// Adds the holder, or extends it if it shares the resource already.
pub(super) fn share(
    calls: &mut Calls<'_>,
    resource: &[u8],
    token: &[u8],
    now: i64,
    ttl: i64,
) -> Result<(), Stop> {
    calls.zadd(resource, now.saturating_add(ttl), token)?;
    if mutant!(KeyEndsWithLatest) {
        return calls.pexpireat(resource, now.saturating_add(ttl)).map(drop).map_err(Stop::from);
    }
    live_as_long_as_the_last(calls, resource)
}

/// Lets the key live as long as its last holder. If only a mark is left, the key is closed.
pub(super) fn live_as_long_as_the_last(calls: &mut Calls<'_>, resource: &[u8]) -> Result<(), Stop> {
    match read_last_end(calls, resource)? {
        LastEnd::OfNobody => {}
        LastEnd::OfMark => {
            calls.del(resource)?;
            close(calls, resource)?;
        }
        LastEnd::At(last) => drop(calls.pexpireat(resource, last)?),
    }
    Ok(())
}

/// The time until which the key has to live. A marked key outlives its holders.
enum LastEnd {
    OfNobody,
    OfMark,
    At(i64),
}

fn read_last_end(calls: &mut Calls<'_>, resource: &[u8]) -> Result<LastEnd, Stop> {
    let mut members = calls.zrange(resource)?.into_iter().flat_map(|members| members.iter().rev());
    Ok(match members.next() {
        None => LastEnd::OfNobody,
        Some((QUEUE_MARK, _)) => match members.next() {
            None => LastEnd::OfMark,
            Some((_, last)) => LastEnd::At(last.saturating_add(OUTLIVES_MS)),
        },
        Some((_, last)) => LastEnd::At(last),
    })
}

/// Returns the holder's end and the time, or `None` if it does not share the resource.
pub(super) fn read_mine(
    calls: &mut Calls<'_>,
    resource: &[u8],
    token: &[u8],
) -> Result<Option<(i64, i64)>, Stop> {
    let Some(end) = caught(calls.zscore(resource, token))? else { return Ok(None) };
    let now = calls.time()?.millis();
    Ok(end.filter(|&end| end > now).map(|end| (end, now)))
}

/// Returns the counter if it is odd and at least `least`, otherwise the next odd number after it
/// that is at least the proposal.
pub(super) fn odd_from(counter: f64, proposal: u64, least: u64) -> u64 {
    if counter >= least as f64 && counter % 2.0 == 1.0 {
        return counter as u64;
    }
    let next = if counter >= proposal as f64 { counter as u64 + 1 } else { proposal };
    next | 1
}

pub(super) const MAX_VIEWED: usize = 16;
/// The length of a token behind a writer's mark, a colon, and the longest label.
const LONGEST_NAME: usize = 165;
/// The number of hexadecimal digits with which a token begins. A label may follow them.
pub(super) const TOKEN_DIGITS: usize = 34;
/// The prefix of the token of a reader that is a string.
pub(super) const READER: &[u8] = b"r:";
/// The prefix of a writer's token.
pub(super) const WRITER: &[u8] = b"w:";
/// The maximum number of members alongside a writer.
const MOST_BESIDE_WRITER: usize = 4;

#[cfg(test)]
mod tests {
    use redbolt::proto::fence::MAX_TOKEN;

    use super::*;
    use crate::{
        clock::ClockReading,
        denial::Denials,
        keys::{Entries, Keys},
        script::Model,
    };

    /// A resource, its counter and the guard, at a time that only the test moves.
    #[derive(Default)]
    struct Bench {
        entries: Entries,
        micros: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { micros: START * 1_000, ..Self::default() }
        }

        fn keys(&mut self) -> Keys<'_> {
            Keys::new(&mut self.entries, ClockReading::from_micros(self.micros))
        }

        fn at(&mut self, after_ms: u64) -> &mut Self {
            self.micros = (START + after_ms) * 1_000;
            self
        }

        fn run(&mut self, script: Model, names: &[&[u8]], argv: &[&str]) -> Answer {
            let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
            match script(&mut Calls::new(self.keys(), &Denials::default()), names, &argv) {
                Ok(answer) | Err(Stop::Answered(answer)) => answer,
                Err(raised) => panic!("{raised:?}"),
            }
        }

        fn ask(&mut self, name: char, ttl: &str) -> Answer {
            self.run(acquire_shared, &[b"r"], &[&token(name), ttl, "3"])
        }

        fn extend(&mut self, name: char, ttl: &str) -> Answer {
            self.run(extend_shared, &[b"r"], &[&token(name), ttl])
        }

        /// Sends a request with a proposal, on a counter with this text.
        fn ask_fenced(&mut self, counter: Option<&str>, proposal: u64) -> Answer {
            for key in [b"r", b"c"] {
                self.keys().delete(key);
            }
            counter.iter().for_each(|text| self.keys().set_for(b"c", text.as_bytes(), 9));
            let argv = [&token('a'), "1000", &proposal.to_string(), "50", "1", "3"];
            self.run(acquire_shared_fenced, &[b"r", b"c"], &argv)
        }

        fn pttl(&mut self) -> i64 {
            self.keys().pttl(b"r")
        }

        fn holders(&mut self) -> Vec<(char, i64)> {
            let mut keys = self.keys();
            let sharers =
                keys.sharers(b"r").unwrap().into_iter().flat_map(|sharers| sharers.iter());
            sharers.map(|(name, end)| (char::from(name[0]), end - START as i64)).collect()
        }
    }

    fn token(name: char) -> String {
        std::iter::repeat_n(name, TOKEN_DIGITS - 2).chain("00".chars()).collect()
    }

    /// Checks the ends to the millisecond, which no test of a real server can do.
    #[test]
    fn a_holder_expires_at_its_end_and_the_key_a_millisecond_later() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask('a', "10"), OK);
        assert_eq!(bench.ask('z', "10"), OK);
        assert_eq!(bench.at(9).extend('a', "1"), Answer::Int(1), "it has a millisecond");
        assert_eq!(bench.pttl(), 1, "and keeps it");
        assert_eq!(bench.at(10).pttl(), 0);
        assert_eq!(bench.extend('a', "50"), Answer::Int(0));
        let write_back = [&token('a'), "7", "50"];
        assert_eq!(bench.run(write_back_shared, &[b"r", b"c"], &write_back), Answer::Int(0));
        assert_eq!(bench.holders(), [('a', 10), ('z', 10)], "but they were not removed");
        assert_eq!(bench.ask('b', "10"), OK);
        assert_eq!(bench.holders(), [('b', 20)]);
        assert_eq!(bench.at(21).pttl(), -2);
    }

    /// Its string ends with its key, like a writer's.
    #[test]
    fn a_single_reader_is_a_string_until_a_second_one_comes() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask('b', "10"), OK);
        let text = format!("r:{}", token('b'));
        assert_eq!(bench.keys().bytes(b"r"), Ok(Some(text.as_bytes())));
        assert_eq!(bench.at(10).extend('b', "5"), Answer::Int(1), "the key is there");
        assert_eq!(bench.extend('b', "1"), Answer::Int(1));
        assert_eq!(bench.pttl(), 5, "and never gets shorter");
        let write_back = |bench: &mut Bench, name| {
            let argv = [&token(name), "7", "50"];
            bench.run(write_back_shared, &[b"r", b"c"], &argv)
        };
        assert_eq!(write_back(&mut bench, 'b'), Answer::Int(1));
        assert_eq!(write_back(&mut bench, 'c'), Answer::Int(0));
        assert_eq!(bench.extend('c', "50"), Answer::Int(0));
        assert_eq!(bench.at(12).ask('c', "30"), OK);
        assert_eq!(bench.holders(), [('b', 15), ('c', 42)], "with the end that it had");
        assert_eq!(bench.run(undo_shared, &[b"r"], &[&token('b')]), Answer::Int(1));
        assert_eq!(bench.run(undo_shared, &[b"r"], &[&token('c')]), Answer::Int(1));
        assert_eq!(bench.ask('d', "10"), OK);
        assert_eq!(bench.run(undo_shared, &[b"r"], &[&token('c')]), Answer::Int(0));
        assert_eq!(bench.at(22).ask('e', "10"), OK, "in the last millisecond of the other");
        assert_eq!(bench.holders(), [('e', 32)]);
        assert_eq!(bench.run(undo_shared, &[b"r"], &[&token('e')]), Answer::Int(1));
        assert_eq!(bench.pttl(), -2);
        for (value, is_let_in) in [
            (format!("r:{}:web", token('a')), true),
            (format!("r:{}", &token('a')[1..]), false),
            (format!("r:g{}", &token('a')[1..]), false),
            (format!("r:{}\t", token('a')), false),
            (format!("r{}", token('a')), false),
            (token('a'), false),
        ] {
            bench.keys().set_for(b"r", value.as_bytes(), 10);
            let expected = if is_let_in { OK } else { Answer::Int(10) };
            assert_eq!(bench.ask('f', "20"), expected, "{value:?}");
            assert_eq!(bench.keys().bytes(b"r").is_err(), is_let_in, "{value:?}");
        }
    }

    #[test]
    fn the_key_lives_as_long_as_its_last_reader_and_no_end_gets_earlier() {
        let mut bench = Bench::new();
        bench.ask('a', "10");
        bench.ask('b', "30");
        bench.ask('c', "20");
        assert_eq!(bench.pttl(), 30);
        assert_eq!(bench.ask('b', "5"), Answer::Int(30), "an ask that comes twice");
        assert_eq!(bench.extend('c', "5"), Answer::Int(1));
        assert_eq!(bench.holders(), [('a', 10), ('c', 20), ('b', 30)]);
        assert_eq!(bench.extend('a', "40"), Answer::Int(1));
        assert_eq!(bench.pttl(), 40);
        let undo = |bench: &mut Bench, name| bench.run(undo_shared, &[b"r"], &[&token(name)]);
        assert_eq!(undo(&mut bench, 'a'), Answer::Int(1));
        assert_eq!(bench.pttl(), 30);
        assert_eq!(undo(&mut bench, 'a'), Answer::Int(0));
        assert_eq!(undo(&mut bench, 'b'), Answer::Int(1));
        assert_eq!(undo(bench.at(20), 'c'), Answer::Int(1));
        assert_eq!(bench.pttl(), -2);
    }

    /// Otherwise the key would be left to a holder that has expired.
    #[test]
    fn a_key_whose_last_holder_has_expired_ends_with_the_undo_of_another() {
        let mut bench = Bench::new();
        bench.ask('a', "10");
        bench.ask('b', "30");
        assert_eq!(bench.at(10).run(undo_shared, &[b"r"], &[&token('b')]), Answer::Int(1));
        assert_eq!(bench.pttl(), -2);
    }

    #[test]
    fn foreign_data_blocks_the_resource_and_stays() {
        let mut bench = Bench::new();
        bench.keys().share(b"r", token('a').as_bytes(), START as i64 + 10).unwrap();
        assert_eq!(bench.ask('b', "10"), Answer::Int(-1), "it has no end");
        assert_eq!(bench.holders(), [('a', 10)]);
        let digits = "0123456789abcdefABCDEF0123456789ab";
        for (first, is_let_in) in
            [(&digits[1..], false), (digits, true), ("0123456789abcdefg123456789abcdef01", false)]
        {
            bench.keys().delete(b"r");
            bench.keys().share(b"r", first.as_bytes(), START as i64 + 5).unwrap();
            bench.keys().expire_in(b"r", 10);
            let expected = if is_let_in { OK } else { Answer::Int(10) };
            assert_eq!(bench.ask('b', "20"), expected, "{first}");
        }
    }

    #[test]
    fn readers_get_the_odd_counter_or_the_next_odd_number_from_the_proposal_on() {
        let now = START * 1_000;
        let mut bench = Bench::new();
        let last = (MAX_TOKEN - 2).to_string();
        let before = (MAX_TOKEN - 3).to_string();
        for (counter, proposal, shown) in [
            (None, now, now + 1),
            (None, now + 1, now + 1),
            (None, now - 5_000_000, now - 4_999_999),
            (Some("7".to_owned()), now, 7),
            (Some("8".to_owned()), now, now + 1),
            (Some("-7".to_owned()), now, now + 1),
            (Some("0".to_owned()), now, now + 1),
            (Some((now + 8).to_string()), now, now + 9),
            (Some((now + 9).to_string()), now, now + 9),
            (Some(format!("{}.5", now + 8)), now, now + 9),
            (Some("-inf".to_owned()), now, now + 1),
            (Some(last), now, MAX_TOKEN - 2),
            (Some(before), now, MAX_TOKEN - 2),
        ] {
            let answer = bench.ask_fenced(counter.as_deref(), proposal);
            assert_eq!(answer, Answer::StatusAnd("OK", shown.cast_signed()), "{counter:?}");
            assert_eq!(bench.keys().bytes(b"c"), Ok(Some(shown.to_string().as_bytes())));
            assert_eq!(bench.keys().pttl(b"c"), 50, "it lives on, also as it was");
        }
        for counter in [(MAX_TOKEN - 1).to_string(), MAX_TOKEN.to_string(), "nan".into()] {
            let answer = bench.ask_fenced(Some(&counter), now);
            assert!(matches!(answer, Answer::Error(_)), "{counter}: {answer:?}");
            assert_eq!(bench.pttl(), -2);
        }
        for far in [now - 5_000_001, now + 5_000_001] {
            let clock = Answer::StatusAnd("CLOCK", now.cast_signed());
            assert_eq!(bench.ask_fenced(None, far), clock);
        }
    }

    #[test]
    fn wrong_arguments_are_an_error_and_touch_nothing() {
        let (one, two): (&[&[u8]], &[&[u8]]) = (&[b"r"], &[b"r", b"c"]);
        for (script, names, argv) in [
            (acquire_shared as Model, one, &["token"][..]),
            (acquire_shared, one, &["token", "0"]),
            (acquire_shared, &[], &["token", "1000"]),
            (acquire_shared_fenced, one, &["token", "1000", "1", "1000", "x"]),
            (acquire_shared_fenced, two, &["token", "1000", "-1", "1000"]),
            (acquire_shared_fenced, two, &["token", "1000", "1"]),
            (extend_shared, one, &["token", "x"]),
            (undo_shared, one, &[]),
            (write_back_shared, one, &["token", "1", "1000"]),
            (write_back_shared, two, &["token", "x", "1000"]),
        ] {
            let mut bench = Bench::new();
            let answer = bench.run(script, names, argv);
            assert_eq!(Stop::Answered(answer), BAD_ARGUMENTS, "{argv:?}");
            assert_eq!(bench.pttl(), -2);
        }
    }

    const OK: Answer = Answer::Status("OK");
    /// The start of each test, in Unix ms.
    const START: u64 = 1_767_225_600_000;
}

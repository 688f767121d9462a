//! Commands on sorted sets that show the readers of a lock. Only the lock scripts write sorted
//! sets, and ranges by anything except the rank are not supported.

use std::ops::Range;

use super::call::{Call, Outcome, SYNTAX_ERROR, integer, is_word};

pub(super) fn zcard(call: &mut Call<'_>) -> Outcome {
    let key = call.args[1];
    let count = call.keys().sharers(key)?.map_or(0, |sharers| sharers.len());
    call.int(count as i64)
}

pub(super) fn zrank(call: &mut Call<'_>) -> Outcome {
    let (key, name) = (call.args[1], call.args[2]);
    let (mut keys, reply) = call.keys_and_reply();
    let rank = keys.sharers(key)?;
    match rank.and_then(|sharers| sharers.iter().position(|(member, _)| member == name)) {
        Some(rank) => reply.int(rank as i64),
        None => reply.nil(),
    }
    Ok(())
}

pub(super) fn zscore(call: &mut Call<'_>) -> Outcome {
    let (key, name) = (call.args[1], call.args[2]);
    let (mut keys, reply) = call.keys_and_reply();
    match keys.sharers(key)?.and_then(|sharers| sharers.end_of(name)) {
        Some(end) => reply.bulk(&score(end)),
        None => reply.nil(),
    }
    Ok(())
}

pub(super) fn zrange(call: &mut Call<'_>) -> Outcome {
    let [_, key, start, stop, options @ ..] = call.args else { return Err(SYNTAX_ERROR.into()) };
    if !options.iter().all(|option| is_word(option, "WITHSCORES")) {
        return Err(SYNTAX_ERROR.into());
    }
    let (start, stop) = (integer(start)?, integer(stop)?);
    let (mut keys, reply) = call.keys_and_reply();
    let Some(sharers) = keys.sharers(key)? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = ranks(start, stop, sharers.len());
    let words_each = if options.is_empty() { 1 } else { 2 };
    reply.array(ranks.len() * words_each);
    for (name, end) in sharers.iter().skip(ranks.start).take(ranks.len()) {
        reply.bulk(name);
        if words_each == 2 {
            reply.bulk(&score(end));
        }
    }
    Ok(())
}

/// Returns the text of a score. A member that never ends has the score `inf`.
fn score(end: i64) -> Vec<u8> {
    match end {
        i64::MAX => b"inf".to_vec(),
        end => end.to_string().into_bytes(),
    }
}

/// Returns the range from `start` to `stop`, both inclusive and counted from the end if negative.
fn ranks(start: i64, stop: i64, count: usize) -> Range<usize> {
    let count = count as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
    let start = from_front(start).clamp(0, count);
    let end = from_front(stop).min(count - 1) + 1;
    start as usize..end.max(start) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_from_both_ends() {
        for (start, stop, expected) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-2, -1, 1..3),
            (-9, 0, 0..1),
            (2, 1, 2..2),
            (3, 9, 3..3),
            (0, i64::MIN, 0..0),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MAX, 3..3),
        ] {
            assert_eq!(ranks(start, stop, 3), expected, "{start} {stop}");
        }
    }
}

//! The scripts of exclusive locks: a resource is a string, the token of its holder.

use super::common::{
    BAD_ARGUMENTS, check_clock, check_restart_guard, counter_to_raise, number, raise, span,
    token_and_ttl,
};
use super::mark::{OUTLIVES_MS, close, marked, token_before_mark, with_mark};
use crate::{
    calls::{Answer, Calls, Stop, caught},
    mutants::mutant,
    reply::decimal,
};

/// Sets all resources if the restart guard lets the node vote and none of them exists.
pub(super) fn acquire_many(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let (resources, rest) = split(names, argv.get(2))?;
    check_restart_guard(calls, rest.first())?;
    check_free(calls, resources)?;
    rehearse_undo(calls, names)?;
    resources.iter().try_for_each(|name| calls.set_for(name, token, ttl))?;
    Ok(Answer::Status("OK"))
}

/// Sets all resources like `acquire_many`, and raises their counters to the proposal or past the
/// largest of them, to an even number.
pub(super) fn acquire_fenced(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let (resources, rest) = split(names, argv.get(2))?;
    let (proposal, life) = (number(argv.get(3))?, span(argv.get(4))?);
    let Some((counters, restart_guard)) = rest.split_at_checked(resources.len()) else {
        return Err(BAD_ARGUMENTS);
    };
    check_restart_guard(calls, restart_guard.first())?;
    check_free(calls, resources)?;
    check_clock(proposal, calls.time()?.micros())?;
    let mut raised = proposal as f64;
    for name in counters {
        let count = counter_to_raise(calls, name)?;
        if count >= raised {
            // A counter that another program wrote may be a fraction.
            raised = count.floor() + 1.0;
        }
    }
    // Odd numbers are the readers'.
    let raised = (raised as u64).next_multiple_of(2);
    let mut text = Vec::new();
    decimal(&mut text, raised);
    rehearse_undo(calls, names)?;
    for (counter, resource) in counters.iter().zip(resources) {
        calls.set_for(counter, &text, life)?;
        calls.set_for(resource, token, ttl)?;
    }
    Ok(Answer::StatusAnd("OK", raised.cast_signed()))
}

/// Raises the counters to at least the given value, if the holder has all resources.
pub(super) fn write_back(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[token, _, _, _] = argv else { return Err(BAD_ARGUMENTS) };
    let (resources, rest) = split(names, argv.get(1))?;
    let (least, life) = (argv.get(2), span(argv.get(3))?);
    number::<u64>(least)?;
    let counters = rest.get(..resources.len()).ok_or(BAD_ARGUMENTS)?;
    if mutant!(WriteBackUnowned) {
        counters.iter().try_for_each(|name| raise(calls, name, least, life))?;
        return Ok(Answer::Int(1));
    }
    for name in resources {
        if !matches!(whose(calls, name, token)?, Whose::Ours | Whose::Marked(_)) {
            return Ok(Answer::Int(0));
        }
    }
    counters.iter().try_for_each(|name| raise(calls, name, least, life))?;
    Ok(Answer::Int(1))
}

/// Extends all keys to at least the TTL, if the holder has all of them. Never shortens one.
pub(super) fn extend(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let mut ends = Vec::with_capacity(names.len());
    for name in names {
        match whose(calls, name, token)? {
            Whose::Nobodys | Whose::Others => return Ok(Answer::Int(0)),
            Whose::Ours => ends.push(None),
            Whose::Marked(mark) => ends.push(Some(mark)),
        }
    }
    for (name, end) in names.iter().zip(ends) {
        extend_value(calls, name, token, ttl, end)?;
    }
    Ok(Answer::Int(1))
}

/// Extends one key. A marked token contains its holder's end; the TTL of the key is longer.
pub(super) fn extend_value(
    calls: &mut Calls<'_>,
    name: &[u8],
    token: &[u8],
    ttl: i64,
    mark: Option<Mark>,
) -> Result<(), Stop> {
    let Some(Mark { ends, left }) = mark else {
        if calls.pttl(name)? < ttl {
            calls.pexpire(name, ttl)?;
        }
        return Ok(());
    };
    if ttl > left {
        let (later, life) = (ends.saturating_add(ttl - left), ttl.saturating_add(OUTLIVES_MS));
        calls.pexpire(name, left.saturating_add(OUTLIVES_MS))?;
        calls.set_for(name, &with_mark(token, later), life)?;
    }
    Ok(())
}

/// Deletes the holder's keys, or closes marked ones, and counts them.
pub(super) fn undo(calls: &mut Calls<'_>, names: &[&[u8]], argv: &[&[u8]]) -> Result<Answer, Stop> {
    let mut deleted = 0;
    for name in names {
        if let Some(token) = argv.first() {
            deleted += i64::from(undo_value(calls, name, token)?);
        }
    }
    Ok(Answer::Int(deleted))
}

/// Removes the holder's value and returns true if it was the holder's, even if it had expired.
pub(super) fn undo_value(calls: &mut Calls<'_>, name: &[u8], token: &[u8]) -> Result<bool, Stop> {
    let Some(value) = caught(calls.get(name))?.flatten() else { return Ok(false) };
    if value == token {
        return Ok(calls.del(name)?);
    }
    let is_marked = token_before_mark(value) == Some(token);
    if mutant!(ReleaseLeavesFree) && is_marked {
        return Ok(calls.del(name)?);
    }
    if is_marked {
        // The queue goes first, so the resource does not become free for newcomers.
        calls.del(name)?;
        close(calls, name)?;
    }
    Ok(is_marked)
}

/// The owner of a key.
pub(super) enum Whose {
    /// There is no string.
    Nobodys,
    Ours,
    /// The key is the holder's, which has not expired by its mark.
    Marked(Mark),
    Others,
}

/// The content of a mark: the holder's end, and the ms left until then.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    ends: i64,
    left: i64,
}

pub(super) fn whose(calls: &mut Calls<'_>, name: &[u8], token: &[u8]) -> Result<Whose, Stop> {
    let Some(value) = caught(calls.get(name))?.flatten() else { return Ok(Whose::Nobodys) };
    if value == token {
        return Ok(Whose::Ours);
    }
    let Some((_, ends)) = marked(value).filter(|(marked, _)| *marked == token) else {
        return Ok(Whose::Others);
    };
    let left = calls.pttl(name)?.saturating_sub(OUTLIVES_MS);
    Ok(if left <= 0 { Whose::Others } else { Whose::Marked(Mark { ends, left }) })
}

/// Checks that no resource is taken. Otherwise it denies with the longest TTL of those taken, −1
/// for a resource without one.
fn check_free(calls: &mut Calls<'_>, resources: &[&[u8]]) -> Result<(), Stop> {
    let mut longest = -2;
    for name in resources {
        longest = match calls.pttl(name)? {
            -1 => return Err(Stop::Answered(Answer::Int(-1))),
            left => left.max(longest),
        };
    }
    if longest >= 0 {
        return Err(Stop::Answered(Answer::Int(longest)));
    }
    Ok(())
}

/// Calls what an undo needs, while there is nothing to read or delete, to find out whether it is
/// allowed. Without any key this cannot be found out.
fn rehearse_undo(calls: &mut Calls<'_>, names: &[&[u8]]) -> Result<(), Stop> {
    let name = names.first().ok_or(BAD_ARGUMENTS)?;
    calls.get(name)?;
    calls.del(name)?;
    Ok(())
}

type Names<'a, 'n> = &'a [&'n [u8]];

/// Splits the keys into the resources, of which there are `count`, and those behind them.
fn split<'a, 'n>(
    names: &'a [&'n [u8]],
    count: Option<&&[u8]>,
) -> Result<(Names<'a, 'n>, Names<'a, 'n>), Stop> {
    names.split_at_checked(number(count)?).ok_or(BAD_ARGUMENTS)
}

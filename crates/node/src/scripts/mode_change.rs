//! The scripts of holders that change their mode: a reader's second claim as a writer, and a
//! writer's as a reader. They write the sets of `shared`, but the holder's other claim does not
//! block them.

use super::common::{
    Argument, BAD_ARGUMENTS, begin, check_clock, check_restart_guard, counter_to_raise, number,
    span, token_and_ttl,
};
use super::exclusive::{Whose, extend_value, undo_value, whose};
use super::mark::QUEUE_MARK;
use super::shared::{
    Mode, TOKEN_DIGITS, WRITER, deny_beside_writer, deny_unless_members, extend_member, look,
    make_members, rehearse_share, rehearse_undo, share, undo_member,
};
use crate::{
    calls::{Answer, Calls, Stop},
    mutants::mutant,
    reply::decimal,
};

/// Makes a reader also a writer, if the restart guard lets the node vote and there is no other
/// holder.
pub(super) fn upgrade(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let now = calls.time()?.millis();
    deny_unless_alone(calls, resource, &own(argv.get(2), token, WRITER.len())?, now)?;
    rehearse_undo(calls, resource, now)?;
    share(calls, resource, token, now, ttl)?;
    if mutant!(UpgradeSharesToken) {
        give_up_own(calls, resource, &own(argv.get(2), token, WRITER.len())?)?;
    }
    Ok(Answer::Status("OK"))
}

/// Upgrades like `upgrade`, with an even fencing token.
pub(super) fn upgrade_fenced(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let (proposal, life) = (number(argv.get(2))?, span(argv.get(3))?);
    let &[resource, counter, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    let time = calls.time()?;
    deny_unless_alone(calls, resource, &own(argv.get(4), token, WRITER.len())?, time.millis())?;
    check_clock(proposal, time.micros())?;
    let count = counter_to_raise(calls, counter)?;
    let raised = if count >= proposal as f64 { count.floor() as u64 + 1 } else { proposal };
    // Odd numbers are the readers'.
    let raised = raised.next_multiple_of(2);
    let mut text = Vec::new();
    decimal(&mut text, raised);
    rehearse_undo(calls, resource, time.millis())?;
    calls.set_for(counter, &text, life)?;
    share(calls, resource, token, time.millis(), ttl)?;
    if mutant!(UpgradeSharesToken) {
        give_up_own(calls, resource, &own(argv.get(4), token, WRITER.len())?)?;
    }
    Ok(Answer::StatusAnd("OK", raised.cast_signed()))
}

/// Ends the reader's claim, for a planted bug: one token for both claims, so that the undo of one
/// ends the other.
fn give_up_own(calls: &mut Calls<'_>, resource: &[u8], own: &[u8]) -> Result<(), Stop> {
    let members = calls.zrange(resource)?.into_iter().flat_map(|members| members.iter());
    let mine: Vec<_> = members.map(|(name, _)| name.to_vec()).collect();
    for name in mine.iter().filter(|name| name.starts_with(own)) {
        calls.zrem(resource, name)?;
    }
    Ok(())
}

/// Makes a writer also a reader. A writer's string becomes a member of a sorted set.
pub(super) fn downgrade(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let now = calls.time()?.millis();
    let own = own(argv.get(3), token, 0)?;
    let found = look(calls, resource)?;
    // Only its own holder may make a writer's string a member.
    let may = |mode, digits: &[u8]| mode == Mode::Reader || digits == own;
    make_members(calls, resource, &found, may)?;
    if let Some(left) = deny_unless_members(calls, resource)? {
        deny_beside_writer(calls, resource, Some(&own), now, left)?;
    }
    rehearse_share(calls, (resource, token), now, argv.get(2))?;
    share(calls, resource, token, now, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Extends a writer's claim that is a string, or a member of a sorted set.
pub(super) fn extend_downgraded(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let resource = *names.first().ok_or(BAD_ARGUMENTS)?;
    let mark = match whose(calls, resource, token)? {
        Whose::Others => return Ok(Answer::Int(0)),
        Whose::Nobodys => {
            return extend_member(calls, resource, &[WRITER, token].concat(), ttl);
        }
        Whose::Ours => None,
        Whose::Marked(mark) => Some(mark),
    };
    extend_value(calls, resource, token, ttl, mark)?;
    Ok(Answer::Int(1))
}

/// Removes a writer's claim that is a string, or a member of a sorted set.
pub(super) fn undo_downgraded(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, ..], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if undo_value(calls, resource, token)? {
        return Ok(Answer::Int(1));
    }
    undo_member(calls, resource, &[WRITER, token].concat())
}

/// Returns the prefix of the token of the holder's other claim: its random digits, and the node's,
/// which follow `mark` bytes and as many random digits in this claim's token.
fn own(random: Argument<'_>, token: &[u8], mark: usize) -> Result<Vec<u8>, Stop> {
    let random = random.ok_or(BAD_ARGUMENTS)?;
    let digits = mark + TOKEN_DIGITS - 2..mark + TOKEN_DIGITS;
    let node = token.get(digits.start..).unwrap_or_default();
    Ok([random, &node[..node.len().min(2)]].concat())
}

/// Checks that there is no holder except this one as a reader.
fn deny_unless_alone(
    calls: &mut Calls<'_>,
    resource: &[u8],
    own: &[u8],
    now: i64,
) -> Result<(), Stop> {
    let found = look(calls, resource)?;
    let may = |mode, digits: &[u8]| mode == Mode::Reader && digits == own;
    make_members(calls, resource, &found, may)?;
    let Some(left) = deny_unless_members(calls, resource)? else { return Ok(()) };
    if mutant!(UpgradeIgnoresReaders) {
        return deny_beside_writer(calls, resource, None, now, left);
    }
    let is_other =
        |(name, end): (&[u8], i64)| end > now && name != QUEUE_MARK && !name.starts_with(own);
    // Another live holder would be among the last members to expire.
    let members = calls.zrange(resource)?;
    match members.is_some_and(|members| members.iter().rev().take(4).any(is_other)) {
        true => Err(Stop::Answered(Answer::Int(left))),
        false => Ok(()),
    }
}

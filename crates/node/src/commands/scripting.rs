//! EVAL, EVALSHA and SCRIPT, for scripts that have a model in the store. As on the server, EVALSHA
//! finds only scripts that a client has sent since the start, and SCRIPT FLUSH forgets them.

use std::mem;

use super::call::{Call, Failure, Outcome, integer, is_word};
use crate::{
    calls::{Answer, CallError, Calls, Stop},
    script::SHA_DIGITS,
};

pub(super) fn eval(call: &mut Call<'_>) -> Outcome {
    let keys = key_count(call.args)?;
    let index = load(call, call.args[1])?;
    run(call, index, keys)
}

pub(super) fn evalsha(call: &mut Call<'_>) -> Outcome {
    let sha = call.args[1];
    if sha.len() != SHA_DIGITS {
        return Err(NO_SCRIPT.into());
    }
    let keys = key_count(call.args)?;
    let found = call.store.scripts.iter().position(|script| script.is_called(sha));
    run(call, found.ok_or(NO_SCRIPT)?, keys)
}

pub(super) fn script_load(call: &mut Call<'_>) -> Outcome {
    let index = load(call, call.args[2])?;
    call.reply.bulk(&call.store.scripts[index].sha);
    Ok(())
}

pub(super) fn script_exists(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 2);
    for sha in &call.args[2..] {
        let mut scripts = call.store.scripts.iter();
        call.reply.int(scripts.any(|script| script.is_called(sha)).into());
    }
    Ok(())
}

pub(super) fn script_flush(call: &mut Call<'_>) -> Outcome {
    match call.args[2..] {
        [] => {}
        [how] if is_word(how, "SYNC") || is_word(how, "ASYNC") => {}
        _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    call.store.scripts.iter_mut().for_each(|script| script.loaded = false);
    call.ok()
}

/// Makes a script known to EVALSHA, and returns its index.
fn load(call: &mut Call<'_>, text: &[u8]) -> Result<usize, Failure> {
    let mut scripts = call.store.scripts.iter();
    let index = scripts.position(|script| script.text.as_bytes() == text).ok_or(UNKNOWN)?;
    call.store.scripts[index].loaded = true;
    Ok(index)
}

/// Returns the number of keys among the words behind the count.
fn key_count(args: &[&[u8]]) -> Result<usize, Failure> {
    let count = integer(args[2])?;
    if count > (args.len() - 3) as i64 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

/// Runs the script at `index`. A command that fails ends the script with an error; earlier writes
/// stay.
fn run(call: &mut Call<'_>, index: usize, key_count: usize) -> Outcome {
    let (names, argv) = call.args[3..].split_at(key_count);
    call.named = names;
    let (script, sha) = (call.store.scripts[index].run, call.store.scripts[index].sha);
    let denials = mem::take(&mut call.store.denials);
    let mut calls = Calls::new(call.keys(), &denials);
    let outcome = script(&mut calls, names, argv);
    let replied = calls.into_replies();
    call.store.denials = denials;
    for (channel, message) in replied {
        call.store.publish(&channel, &message);
    }
    let answer = match outcome {
        Ok(answer) | Err(Stop::Answered(answer)) => answer,
        Err(Stop::Raised(error)) => return Err(raised(error, &sha)),
    };
    match answer {
        Answer::Bulk(bytes) => call.reply.bulk(&bytes),
        Answer::Error(text) => return Err(text.into()),
        Answer::Int(number) => call.reply.int(number),
        Answer::Status(word) => call.reply.status(word),
        Answer::StatusAnd(word, number) => call.reply.status_and(word, number),
        Answer::StatusLine(line) => call.reply.status_line(&line),
    }
    Ok(())
}

/// Returns the error with its position in the script, as the server reports it.
fn raised(error: CallError, sha: &[u8]) -> Failure {
    let text = error.text().as_bytes();
    Failure([text, b" script: ", sha, b", on @user_script:1."].concat())
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const UNKNOWN: &str = "ERR this embedded node runs no Lua: it knows only redbolt's scripts";

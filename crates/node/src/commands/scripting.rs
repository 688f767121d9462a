//! EVAL, EVALSHA and SCRIPT, for scripts whose model the store was taught.
//!
//! As on the server, EVALSHA finds only what a client has sent since the start, and SCRIPT FLUSH
//! forgets it.

use super::{Call, Failure, Outcome, integer, is_word};
use crate::store::{SHA_DIGITS, Script};

pub(super) fn eval(call: &mut Call<'_>) -> Outcome {
    let keys = key_count(call.args)?;
    let index = load(call, call.args[1])?;
    run(call, call.store.scripts[index].run, keys)
}

pub(super) fn evalsha(call: &mut Call<'_>) -> Outcome {
    let sha = call.args[1];
    if sha.len() != SHA_DIGITS {
        return Err(NO_SCRIPT.into());
    }
    let keys = key_count(call.args)?;
    let found = call.store.scripts.iter().find(|script| script.is_called(sha));
    let script = found.ok_or(NO_SCRIPT)?.run;
    run(call, script, keys)
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

/// Makes a script known to EVALSHA, and says where it stands.
fn load(call: &mut Call<'_>, text: &[u8]) -> Result<usize, Failure> {
    let mut scripts = call.store.scripts.iter();
    let index = scripts.position(|script| script.text.as_bytes() == text).ok_or(UNKNOWN)?;
    call.store.scripts[index].loaded = true;
    Ok(index)
}

/// How many of the words behind the number are keys.
fn key_count(args: &[&[u8]]) -> Result<usize, Failure> {
    let count = integer(args[2])?;
    if count > (args.len() - 3) as i64 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

fn run(call: &mut Call<'_>, script: Script, key_count: usize) -> Outcome {
    let (names, argv) = call.args[3..].split_at(key_count);
    call.named = names;
    let (mut keys, reply) = call.keys_and_reply();
    script(&mut keys, names, argv, reply);
    Ok(())
}

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const UNKNOWN: &str = "ERR this embedded node runs no Lua: it knows only redbolt's scripts";

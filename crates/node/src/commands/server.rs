//! Commands about the node as a whole: INFO, CONFIG, TIME, and emptying or swapping its databases.

use std::mem;

use super::call::{Call, Failure, Outcome, SYNTAX_ERROR, integer, is_word};
use crate::{reply::decimal, store::Settings};

/// Replies with the sections in a fixed order, each once; unknown ones are ignored.
pub(super) fn info(call: &mut Call<'_>) -> Outcome {
    let wanted = &call.args[1..];
    let is_wanted = |section: &str| {
        let mut names = [section, "default", "all", "everything"].into_iter();
        wanted.is_empty() || names.any(|name| wanted.iter().any(|arg| is_word(arg, name)))
    };
    let mut text = mem::take(&mut call.store.scratch);
    text.clear();
    for (name, write) in SECTIONS {
        if is_wanted(name) {
            if !text.is_empty() {
                text.extend_from_slice(b"\r\n");
            }
            write(call, &mut text);
        }
    }
    call.reply.bulk(&text);
    call.store.scratch = text;
    Ok(())
}

/// The name of a section of INFO, and the function that appends its text.
type Section = (&'static str, fn(&Call<'_>, &mut Vec<u8>));

const SECTIONS: [Section; 3] =
    [("server", info_server), ("memory", info_memory), ("replication", info_replication)];

fn info_server(call: &Call<'_>, text: &mut Vec<u8>) {
    let up = call.now.micros().saturating_sub(call.store.started.micros()) / 1_000_000;
    text.extend_from_slice(b"# Server\r\nredis_version:");
    text.extend_from_slice(VERSION);
    text.extend_from_slice(b"\r\nredis_mode:standalone\r\nrun_id:");
    text.extend_from_slice(call.store.run_id.as_bytes());
    text.extend_from_slice(b"\r\nserver_time_usec:");
    decimal(text, call.now.micros());
    text.extend_from_slice(b"\r\nuptime_in_seconds:");
    decimal(text, up);
    text.extend_from_slice(b"\r\nuptime_in_days:");
    decimal(text, up / 86_400);
    text.extend_from_slice(b"\r\n");
}

fn info_memory(call: &Call<'_>, text: &mut Vec<u8>) {
    let Settings { maxmemory, policy, .. } = &call.store.settings;
    text.extend_from_slice(b"# Memory\r\nmaxmemory:");
    decimal(text, *maxmemory);
    text.extend_from_slice(b"\r\nmaxmemory_policy:");
    text.extend_from_slice(policy.as_bytes());
    text.extend_from_slice(b"\r\n");
}

fn info_replication(call: &Call<'_>, text: &mut Vec<u8>) {
    text.extend_from_slice(b"# Replication\r\nrole:");
    text.extend_from_slice(if call.store.is_replica { b"slave" } else { b"master" });
    text.extend_from_slice(b"\r\nconnected_slaves:0\r\n");
    if let Some(replication_id) = &call.store.replication_id {
        text.extend_from_slice(b"master_replid:");
        text.extend_from_slice(replication_id.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
}

pub(super) fn time(call: &mut Call<'_>) -> Outcome {
    let micros = call.now.micros();
    call.reply.array(2);
    call.reply.bulk((micros / 1_000_000).to_string().as_bytes());
    call.reply.bulk((micros % 1_000_000).to_string().as_bytes());
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_>) -> Outcome {
    check_flush_option(&call.args[1..])?;
    call.store.databases.iter_mut().for_each(|database| database.clear());
    call.store.journal.flushed();
    call.ok()
}

pub(super) fn flushdb(call: &mut Call<'_>) -> Outcome {
    check_flush_option(&call.args[1..])?;
    let database = call.session().database;
    call.store.databases[database].clear();
    call.store.journal.flushed();
    call.ok()
}

/// Swaps two databases. Connections keep their database number, and find the other's keys.
pub(super) fn swapdb(call: &mut Call<'_>) -> Outcome {
    let index = |arg, which| {
        let index = integer(arg).ok().and_then(|index| i32::try_from(index).ok());
        index.ok_or_else(|| Failure::from(format!("ERR invalid {which} DB index")))
    };
    let (first, second) = (index(call.args[1], "first")?, index(call.args[2], "second")?);
    let (first, second) = (call.database(first)?, call.database(second)?);
    call.store.databases.swap(first, second);
    call.ok()
}

fn check_flush_option(args: &[&[u8]]) -> Outcome {
    match args {
        [] => Ok(()),
        [how] if is_word(how, "SYNC") || is_word(how, "ASYNC") => Ok(()),
        _ => Err(SYNTAX_ERROR.into()),
    }
}

/// Finds exact names only; the server takes patterns too.
pub(super) fn config_get(call: &mut Call<'_>) -> Outcome {
    let found: Vec<(&[u8], Vec<u8>)> = call.args[2..]
        .iter()
        .filter_map(|name| Some((*name, setting(&call.store.settings, name)?)))
        .collect();
    call.reply.array(found.len() * 2);
    for (name, value) in found {
        call.reply.bulk(name);
        call.reply.bulk(&value);
    }
    Ok(())
}

fn setting(settings: &Settings, name: &[u8]) -> Option<Vec<u8>> {
    match name.to_ascii_lowercase().as_slice() {
        b"maxmemory" => Some(settings.maxmemory.to_string().into()),
        b"maxmemory-policy" => Some(settings.policy.into()),
        b"requirepass" => Some(settings.password.clone()),
        _ => None,
    }
}

/// Sets all pairs or none.
pub(super) fn config_set(call: &mut Call<'_>) -> Outcome {
    let pairs = call.args[2..].chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(SYNTAX_ERROR.into());
    }
    check_names(&call.args[2..])?;
    let mut settings = call.store.settings.clone();
    for pair in pairs {
        apply(&mut settings, pair[0], pair[1])?;
    }
    call.store.settings = settings;
    call.ok()
}

fn check_names(pairs: &[&[u8]]) -> Outcome {
    let names: Vec<Vec<u8>> =
        pairs.iter().step_by(2).map(|name| name.to_ascii_lowercase()).collect();
    for (at, name) in names.iter().enumerate() {
        if setting(&Settings::default(), name).is_none() {
            let unknown = b"ERR Unknown option or number of arguments for CONFIG SET - '";
            return Err(Failure([unknown, pairs[at * 2], b"'"].concat()));
        }
        if names[..at].contains(name) {
            return Err(config_failure(name, "duplicate parameter"));
        }
    }
    Ok(())
}

fn apply(settings: &mut Settings, name: &[u8], value: &[u8]) -> Outcome {
    match name.to_ascii_lowercase().as_slice() {
        b"maxmemory" => {
            let bytes = memory(value);
            settings.maxmemory = bytes
                .ok_or_else(|| config_failure(b"maxmemory", "argument must be a memory value"))?;
        }
        b"maxmemory-policy" => {
            let known = POLICIES.iter().find(|policy| is_word(value, policy));
            settings.policy =
                known.ok_or_else(|| config_failure(b"maxmemory-policy", &policies()))?;
        }
        _ => settings.password = value.to_vec(),
    }
    Ok(())
}

fn config_failure(name: &[u8], reason: &str) -> Failure {
    let name = String::from_utf8_lossy(name);
    Failure::from(format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
    ))
}

fn policies() -> String {
    format!("argument(s) must be one of the following: {}", POLICIES.join(", "))
}

/// Reads a number with an optional unit: `k` counts in thousands, `kb` in 1024.
fn memory(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|end: char| end.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

const VERSION: &[u8] = b"7.0.15";
const POLICIES: [&str; 8] = [
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

//! `redbolt observe`: who leads an election, and each change.
//!
//! It takes no part: nothing is written to the nodes, and nothing has to be undone when it is killed. Not here: what the
//! nodes add up to, which is the library's part.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::config::RestartGuard;
use redbolt::leader::{LeaderVerdict, NodeObservation, Observation};
use redbolt::{Client, Config};
use serde_json::{Value, json};

use crate::args::ObserveArgs;
use crate::exit::{self, Failure};
use crate::say::{end_with_reader, json_line, printable};
use crate::{name, nodes};

/// Prints who leads, until nobody reads it or only an operator can help; with `--once` once.
pub(crate) fn run(args: &ObserveArgs) -> Result<u8, Failure> {
    // Whether a node may vote is of no concern to whoever looks.
    let builder = nodes::builder(&args.nodes)?.read_only().restart_guard(RestartGuard::Off);
    let client = Client::new(nodes::build(builder, &args.nodes)?)?;
    let observer = client.observe(args.key.as_bytes());
    let mut observer = observer.map_err(|error| Failure::request(name::show(&args.key), error))?;
    if !args.once {
        // A lead may not change for days, so the next line would notice too late.
        end_with_reader()?;
    }
    loop {
        let within = if args.once { settled_within(client.config()) } else { LONG };
        let Some(seen) = observer.changed(within) else {
            if args.once {
                return Err(Failure::no_quorum("the nodes did not answer in time"));
            }
            continue;
        };
        let is_read = tell(args, &seen)?;
        let is_unknown = seen.verdict == LeaderVerdict::Unknown;
        if is_unknown && (args.once || seen.needs_operator()) {
            return Ok(exit::NO_QUORUM);
        }
        if args.once || !is_read {
            return Ok(exit::SUCCESS);
        }
    }
}

/// Prints a line; whether anybody reads on.
fn tell(args: &ObserveArgs, seen: &Observation) -> io::Result<bool> {
    let line = match args.json {
        true => json_line(&as_json(&args.key, seen)),
        false => printable(&format!("{}: {seen}", name::show(&args.key))) + "\n",
    };
    match io::stdout().write_all(line.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

fn as_json(key: &OsStr, seen: &Observation) -> Value {
    let verdict = match &seen.verdict {
        LeaderVerdict::Leader(_) => "leader",
        LeaderVerdict::Nobody => "nobody",
        _ => "unknown",
    };
    let leader = seen.leader();
    let silent = seen.nodes.iter().filter(|node| !matches!(node.sight, Some(Ok(_))));
    json!({
        "key": name::text(key),
        "key_hex": name::hex(key),
        "verdict": verdict,
        "leader": leader.map(|leader| &leader.label),
        "hash": leader.map(|leader| format!("{:08x}", leader.fingerprint)),
        "term": leader.and_then(|leader| leader.term).map(redbolt::FencingToken::get),
        "silent": silent.map(node_as_json).collect::<Vec<_>>(),
    })
}

/// The library's words for a node that does not tell, without its address.
fn node_as_json(node: &NodeObservation) -> Value {
    let words = node.to_string();
    let address = format!("node {} {}: ", node.number, node.address);
    let reason = words.strip_prefix(&address).unwrap_or(&words);
    json!({ "address": node.address.to_string(), "reason": reason })
}

/// By then each node has answered, or is known not to.
fn settled_within(config: &Config) -> Duration {
    let settings = config.settings();
    settings.connect_timeout.saturating_add(settings.response_timeout) + MOMENT
}

const MOMENT: Duration = Duration::from_millis(500);

/// A wait without an end, in parts.
const LONG: Duration = Duration::from_secs(3600);

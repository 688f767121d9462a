//! `redbolt observe`: shows who leads an election, and each change.
//!
//! An observer writes nothing to the nodes, and nothing has to be undone when it is killed. The
//! library combines the replies of the nodes.

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

/// Prints who leads, until its output has no reader or only an operator can help. With `--once` it
/// prints once.
pub(crate) fn run(args: &ObserveArgs) -> Result<u8, Failure> {
    // An observer does not depend on whether a node may vote.
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

/// Prints a line. Returns whether the output still has a reader.
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

/// Returns the library's reason for a node that does not report, without its address.
fn node_as_json(node: &NodeObservation) -> Value {
    let words = node.to_string();
    let address = format!("node {} {}: ", node.number, node.address);
    let reason = words.strip_prefix(&address).unwrap_or(&words);
    json!({ "address": node.address.to_string(), "reason": reason })
}

/// Returns the time after which each node has answered, or is known not to.
fn settled_within(config: &Config) -> Duration {
    let settings = config.settings();
    settings.connect_timeout.saturating_add(settings.response_timeout) + MOMENT
}

const MOMENT: Duration = Duration::from_millis(500);

/// One part of an endless wait.
const LONG: Duration = Duration::from_secs(3600);

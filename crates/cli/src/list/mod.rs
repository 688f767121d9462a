//! `redbolt list`: the locks that are held now.
//!
//! No node has a list of locks. So the names of keys are found by a walk through each database ([`find`]), and the library
//! says of each name whether it is a lock, and whose ([`held`]). Nothing is written.

mod find;
mod held;
mod show;

use redbolt::config::RestartGuard;
use redbolt::{AcquireError, Engine};

use self::held::Lock;
use self::show::Listed;
use crate::args::ListArgs;
use crate::exit::{self, Failure};
use crate::nodes;
use crate::say::{json_line, print, report, say};

/// Prints the locks. The exit status says whether a quorum of the nodes was looked at.
pub(crate) fn run(args: &ListArgs) -> Result<u8, Failure> {
    // Whether a node may vote does not change who holds its locks.
    let builder = nodes::builder(&args.nodes)?.read_only().restart_guard(RestartGuard::Off);
    let config = nodes::build(builder, &args.nodes)?;
    let found = find::on_nodes(args, &config);
    let engine = Engine::new(config.clone())?;
    let (locks, is_cut) = locks(&engine, &found.names.iter().collect::<Vec<_>>(), args.limit)?;
    let listed = Listed { config: &config, found: &found, locks: &locks, is_cut };
    match args.json {
        true => print(&json_line(&listed.as_json()))?,
        false => report(&listed.as_text(args))?,
    }
    for (at, address) in config.addresses().iter().enumerate() {
        if let Err(reason) = &found.nodes[at] {
            say(format_args!("node {} {address}: not looked at: {reason}", at + 1));
        }
    }
    Ok(if found.answered() >= config.quorum() { exit::SUCCESS } else { exit::NO_QUORUM })
}

/// The first locks of these names, and whether names were left out after them.
fn locks(engine: &Engine, names: &[&Vec<u8>], limit: usize) -> Result<(Vec<Lock>, bool), Failure> {
    let mut locks = Vec::new();
    for batch in names.chunks(BATCH) {
        let asked: Vec<_> = batch.iter().map(|name| (*name, engine.inspect(*name))).collect();
        for (name, answer) in asked {
            let seen = match answer.wait() {
                Ok(seen) => seen,
                // Too long for a lock.
                Err(AcquireError::Request(_)) => continue,
                Err(error) => return Err(Failure::system(error)),
            };
            let Some(lock) = Lock::of(name, &seen, engine.config().quorum()) else { continue };
            if locks.len() == limit {
                return Ok((locks, true));
            }
            locks.push(lock);
        }
    }
    Ok((locks, false))
}

/// How many names are asked for at a time.
const BATCH: usize = 64;

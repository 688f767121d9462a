//! `redbolt list`: shows the locks that are held now.
//!
//! No node has a list of locks. So [`find`] scans each database for names of keys, and the library
//! reports for each name whether it is a lock, and who holds it ([`held`]). Nothing is written.

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

/// Prints the locks. The exit status reports whether a quorum of the nodes was scanned.
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

/// Returns the first locks of these names, and whether names were left out after them.
fn locks(engine: &Engine, names: &[&Vec<u8>], limit: usize) -> Result<(Vec<Lock>, bool), Failure> {
    let mut locks = Vec::new();
    for batch in names.chunks(BATCH) {
        let asked: Vec<_> = batch.iter().map(|name| (*name, engine.inspect(*name))).collect();
        for (name, answer) in asked {
            let seen = match answer.wait() {
                Ok(seen) => seen,
                // The name is too long for a lock.
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

/// The number of names in one query.
const BATCH: usize = 64;

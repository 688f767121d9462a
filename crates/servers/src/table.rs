//! The results as a page of the manual.

use std::ffi::OsStr;

use redbolt_test_servers::Server;

use crate::cell::Cell;
use crate::checks::{features, run};
use crate::programs::{WANTED, kind_of};

/// The results of one server program.
#[derive(Clone, Debug)]
pub struct Row {
    /// The kind of the server, and its version; the program if it did not start.
    pub server: String,
    /// A cell for each feature, or the reason why it did not start.
    pub outcome: Result<Vec<Cell>, String>,
}

impl Row {
    /// Runs all checks on a program.
    pub fn of(program: &OsStr) -> Self {
        let server = match Server::try_of(program, &[]) {
            Ok(server) => server,
            Err(why) => {
                println!("servers: {} was not run: {why}", program.display());
                let why = why.lines().next().unwrap_or_default().to_owned();
                return Self { server: program.display().to_string(), outcome: Err(why) };
            }
        };
        let name = kind_of(program, &server);
        println!("servers: {name} ({})", program.display());
        Self { server: name, outcome: Ok(run(program, &[])) }
    }

    /// Returns `true` if something does not do what redbolt promises.
    pub fn has_failed(&self) -> bool {
        let is_failed = |cell: &Cell| matches!(cell, Cell::Failed(_));
        self.outcome.as_ref().is_ok_and(|cells| cells.iter().any(is_failed))
    }
}

/// Returns the page: a table, and a list of the servers that were missing.
pub fn page(mut rows: Vec<Row>) -> String {
    rows.sort_by(|one, other| one.server.cmp(&other.server));
    let heads: Vec<_> = features().collect();
    let mut page = format!("{HEAD}\n| server | {} |\n|---|", heads.join(" | "));
    page.push_str(&"---|".repeat(heads.len()));
    page.push('\n');
    for Row { server, outcome } in &rows {
        let words = match outcome {
            Ok(cells) => cells.iter().map(words).collect::<Vec<_>>().join(" | "),
            Err(why) => format!("did not start: {why}"),
        };
        page.push_str(&format!("| {server} | {words} |\n"));
    }
    let is_there = |starts: &[&str]| {
        rows.iter().any(|row| starts.iter().any(|start| row.server.starts_with(start)))
    };
    let missing = WANTED.iter().filter(|(_, starts)| !is_there(starts)).map(|(name, _)| *name);
    let missing: Vec<_> = missing.collect();
    let missing = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
    page.push_str(&format!("\nNot there: {missing}.\n"));
    page
}

fn words(cell: &Cell) -> String {
    match cell {
        Cell::Yes => "yes".to_owned(),
        Cell::By(way) => format!("yes: {way}"),
        Cell::Named(words) => format!("no: {words}"),
        Cell::Failed(words) => format!("**FAILED**: {words}"),
    }
}

const HEAD: &str = "\
# Servers

redbolt on real servers, made by `cargo xtask servers --write docs/evidence/servers.md`: on the system's, and on those in the folder that
`REDBOLT_SERVERS` names. Where a server lacks something, the cell has redbolt's own words for what it refuses or does without.

*Lock*: taken, refused to another, released. *Guard*: a new node does not vote, and does after `init`. *Quarantine*: a node that
has lost its memory does not vote for `max_ttl`. *Fencing*: tokens grow from holder to holder. *Push*: a waiter is told of a
release before its timer. *Queue*: waiters come in turn. *Shared*: readers hold a lock together, and a
writer alone. *Permits*: two hold one of two permits each, and a third what one gives back. *ACL*: a user with the rules of
[the manual][operations#acls] can do all this, and one without scripts is refused by that name. *Release*: the command that
releases a lock, by the server's own statistics; where there is a native one it is forbidden and renamed as well, and the script
takes its place.

[operations#acls]: ../use/operations.md#acls
";

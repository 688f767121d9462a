//! `redbolt doctor`: checks whether these nodes can carry locks, and advises what to do.
//!
//! It changes nothing on the nodes. [`facts`] asks, [`checks`] judges without asking, and [`draw`]
//! and [`json`] format the result.

mod checks;
mod clock;
mod diagnosis;
mod draw;
mod facts;
mod finding;
mod info;
mod json;
mod leftovers;
mod rights;
mod stalls;

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::Client;
use redbolt::report::NodeReport;

use self::checks::Subject;
use self::diagnosis::{Diagnosis, Sheet};
use self::facts::Facts;
use self::finding::Outcome;
use crate::args::DoctorArgs;
use crate::exit::{self, Failure};
use crate::link::{Place, ask_every_node};
use crate::say::{json_line, print};
use crate::{nodes, status};

/// Examines the nodes and prints the findings. The exit status is the worst of them.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    let builder = nodes::builder(&args.nodes)?.client_name(b"redbolt-doctor").read_only();
    let builder = builder.restart_guard(args.restart_guard.into());
    let client = Client::new(nodes::build(builder, &args.nodes)?)?;
    let report = status::look(&client)?;
    let facts = examine(args, &client);
    let diagnosis = diagnose(args, &client, &report, &facts)?;
    let text = match args.json {
        true => json_line(&json::as_json(&diagnosis, &report, &facts)),
        false => draw::as_text(&diagnosis, draw::Look::of_stdout()),
    };
    print(&text)?;
    Ok(match diagnosis.worst() {
        Outcome::Pass | Outcome::Skip => exit::SUCCESS,
        Outcome::Warn => exit::WARNINGS,
        Outcome::Fail => exit::FAILURES,
    })
}

/// Asks all nodes at once.
fn examine(args: &DoctorArgs, client: &Client) -> Vec<Facts> {
    let config = client.config();
    let within = facts::longest(config) + MARGIN;
    let prefix = args.prefix.as_bytes().to_vec();
    let answers =
        ask_every_node(config, Place::all(&args.nodes, config), within, move |config, place| {
            facts::ask(config, place, &prefix)
        });
    let late = || Facts { failure: Some("no answer in time".to_owned()), ..Facts::default() };
    answers.into_iter().map(|facts| facts.unwrap_or_else(late)).collect()
}

fn diagnose(
    args: &DoctorArgs,
    client: &Client,
    report: &NodeReport,
    facts: &[Facts],
) -> Result<Diagnosis, Failure> {
    let leftovers = leftovers::of_nodes(client, args.prefix.as_bytes(), facts)?;
    let places = Place::all(&args.nodes, client.config());
    let init = nodes::init_command(&args.nodes);
    let unlock = nodes::command("unlock --force", &args.nodes);
    let subjects: Vec<Subject<'_>> = report
        .nodes
        .iter()
        .enumerate()
        .map(|(at, status)| Subject {
            status,
            facts: &facts[at],
            settings: client.config().settings(),
            has_login: places[at].has_login(),
            leftovers: &leftovers[at],
            init: &init,
            unlock: &unlock,
        })
        .collect();
    let sheet = |subject: &Subject<'_>| Sheet {
        title: format!("node {} {}", subject.status.number, subject.status.address),
        findings: checks::of_node(subject),
    };
    let set = checks::of_set(report, &subjects);
    Ok(Diagnosis {
        sheets: subjects.iter().map(sheet).collect(),
        set: Sheet { title: "all nodes".to_owned(), findings: set },
    })
}

/// The time that the system may add, beyond the bound for a node.
const MARGIN: Duration = Duration::from_millis(500);

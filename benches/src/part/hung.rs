//! Many processes that want one lock while the largest possible minority of nodes hangs, compared
//! with the same crowd with all nodes alive, a moment before and after.

use std::time::Duration;

use anyhow::{Result, ensure};
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::crowd::{self, Outcome, Plan};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::{Section, Target};
use crate::stalled::death::{Death, Victims};
use crate::stats::Ratio;
use crate::table::Table;
use crate::waiting::{ALL, Entry, default_settings};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let own: &[usize] = if choice.quick { &[3] } else { &[3, 5] };
    let (mut nodes, placements) =
        (choice.nodes_or(own), choice.placements_or(&[Placement::Unpinned]));
    nodes.retain(|&n| n > 2);
    ensure!(!nodes.is_empty(), "with fewer than 3 nodes, none may hang");
    let (entries, hangs, rounds) = (chosen(choice), Hang::chosen(choice.quick), rounds(choice));
    let crowds =
        placements.len() * nodes.len() * hangs.len() * entries.len() * rounds * TURNS.len();
    progress.begin(crowds as u64, "crowds with nodes that hang");
    let (mut text, mut pairs) = (INTRO.to_owned(), Vec::new());
    for placement in placements {
        let (mut table, mut failures, mut placed) =
            (Table::new(&HEADINGS), String::new(), String::new());
        for (&n, &hang) in nodes.iter().flat_map(|n| hangs.iter().map(move |hang| (n, hang))) {
            for entry in &entries {
                progress.say(&format!(
                    "{} of {n} nodes {}: {}",
                    (n - 1) / 2,
                    hang.name(),
                    entry.name
                ));
                let mut pair = Pair::new(*entry, n, hang, placement);
                for _ in 0..rounds {
                    placed = pair.round(choice, progress)?;
                }
                table.row(pair.cells());
                failures += &pair.failure();
                pairs.push(pair);
            }
        }
        text +=
            &format!("### {}\n\n{placed}; times in ms\n\n{table}\n{failures}", placement.name());
    }
    let targets = hangs.iter().filter(|&&hang| hang != Hang::Killed);
    Ok(Section {
        title: "Nodes that hang under contention".to_owned(),
        text: text + NOTE,
        targets: targets.flat_map(|&hang| targets_of(hang, &pairs)).collect(),
        json: json!({ "runs": pairs.iter().map(Pair::json).collect::<Vec<_>>() }),
        ..Section::default()
    })
}

/// The way in which nodes stop answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hang {
    /// The nodes are killed, for comparison: connections to them fail at once.
    Killed,
    Stopped,
    Blackholed,
    /// The nodes are paused by `CLIENT PAUSE`.
    Paused,
}

impl Hang {
    fn chosen(quick: bool) -> Vec<Self> {
        match quick {
            true => vec![Self::Stopped, Self::Paused],
            false => vec![Self::Stopped, Self::Blackholed, Self::Paused, Self::Killed],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Blackholed => "blackholed",
            Self::Paused => "paused",
        }
    }

    fn death(self) -> Option<Death> {
        match self {
            Self::Killed => Some(Death::Refused),
            Self::Stopped => Some(Death::Stopped),
            Self::Blackholed => Some(Death::Blackholed),
            Self::Paused => None,
        }
    }

    fn servers(self, n: usize) -> Vec<Server> {
        self.death().map_or_else(|| servers(n), |death| death.servers(n))
    }
}

/// A crowd with all nodes alive and with hanging nodes, in turns.
struct Pair {
    entry: Entry,
    n: usize,
    hang: Hang,
    placement: Placement,
    alive: Vec<Outcome>,
    hung: Vec<Outcome>,
}

impl Pair {
    fn new(entry: Entry, n: usize, hang: Hang, placement: Placement) -> Self {
        Self { entry, n, hang, placement, alive: Vec::new(), hung: Vec::new() }
    }

    fn round(&mut self, choice: &Choice, progress: &Progress) -> Result<String> {
        let mut placed = String::new();
        for hangs in TURNS {
            let outcomes = if hangs { &mut self.hung } else { &mut self.alive };
            if outcomes.iter().all(|outcome| outcome.failures.is_empty()) {
                let (outcome, where_to) =
                    crowd(self.entry, self.n, self.hang, hangs, self.placement, choice)?;
                outcomes.push(outcome);
                placed = where_to;
            }
            progress.step();
        }
        Ok(placed)
    }

    fn has_failed(&self) -> bool {
        self.alive.iter().chain(&self.hung).any(|outcome| !outcome.failures.is_empty())
    }

    /// Returns the ratio of the crowds' times, in pairs as they ran.
    fn whole(&self) -> Ratio {
        let totals = |of: &[Outcome]| of.iter().map(|outcome| outcome.total).collect::<Vec<_>>();
        Ratio::of(&totals(&self.hung), &totals(&self.alive))
    }

    /// Returns the ratio of the slowest hundredth of hand-offs, over all crowds.
    fn p99(&self) -> f64 {
        part_of(&self.hung, 0.99) as f64 / part_of(&self.alive, 0.99).max(1) as f64
    }

    fn cells(&self) -> Vec<String> {
        let cell = |text: String| if self.has_failed() { "-".to_owned() } else { text };
        let at = |of: &[Outcome], part| cell(format!("{:.2}", part_of(of, part) as f64 / 1e6));
        let all = || self.alive.iter().chain(&self.hung);
        let intruders: u64 = all().map(Outcome::intruders).sum();
        vec![
            self.entry.name.to_owned(),
            self.n.to_string(),
            format!("{} {}", (self.n - 1) / 2, self.hang.name()),
            at(&self.alive, 0.5),
            at(&self.alive, 0.99),
            at(&self.hung, 0.5),
            at(&self.hung, 0.99),
            cell(format!("{:.2}", self.p99())),
            cell(self.whole().cell()),
            intruders.to_string(),
        ]
    }

    fn failure(&self) -> String {
        let first =
            self.alive.iter().chain(&self.hung).flat_map(|outcome| &outcome.failures).next();
        let told = |failure| {
            format!("*{}*, N = {}, {}: {failure}\n\n", self.entry.name, self.n, self.hang.name())
        };
        first.map_or_else(String::new, told)
    }

    fn json(&self) -> Value {
        let of = |outcomes: &[Outcome]| {
            let crowd = |outcome: &Outcome| {
                json!({
                    "total": outcome.total,
                    "hand_offs": outcome.hand_offs,
                    "waits": outcome.waits,
                    "trespasses": outcome.trespasses,
                    "overwritten": outcome.overwritten,
                    "failures": outcome.failures,
                })
            };
            outcomes.iter().map(crowd).collect::<Vec<_>>()
        };
        json!({
            "name": self.entry.name,
            "nodes": self.n,
            "hang": self.hang.name(),
            "placement": self.placement.name(),
            "alive": of(&self.alive),
            "hung": of(&self.hung),
        })
    }
}

/// Runs a crowd on new nodes. The first nodes, which waiters would choose as leads, hang once all
/// processes have connected.
fn crowd(
    entry: Entry,
    n: usize,
    hang: Hang,
    hangs: bool,
    placement: Placement,
    choice: &Choice,
) -> Result<(Outcome, String)> {
    let mut victims = hang.servers((n - 1) / 2);
    let others = servers(n - victims.len());
    let nodes: Vec<_> = victims.iter().chain(&others).map(Server::address).collect();
    placement.apply(&choice.cores, &victims)?;
    let placed = placement.apply(&choice.cores, &others)?;
    crowd::set_up(&nodes)?;
    let home = tempfile::tempdir()?;
    let mut dying = None;
    let mut begin = || {
        if !hangs {
            return Ok(());
        }
        let Some(death) = hang.death() else {
            victims.iter().for_each(|server| drop(server.cmd(PAUSE)));
            return Ok(());
        };
        dying.insert(Victims::new(death, std::mem::take(&mut victims))).die()
    };
    let outcome =
        crowd::run(&nodes, &entry, plan(choice.quick), &home.path().join("shared"), &mut begin);
    Ok((outcome.unwrap_or_else(|error| Outcome::failed(&error)), placed))
}

/// Returns redbolt, and the selected contenders.
fn chosen(choice: &Choice) -> Vec<Entry> {
    let wanted = |entry: &Entry| match choice.contenders.is_empty() {
        true => entry.name == default_settings().name,
        false => choice.wants(entry.name),
    };
    let waits = |entry: &Entry| entry.competes() && wanted(entry);
    ALL.iter().copied().filter(waits).collect()
}

fn rounds(choice: &Choice) -> usize {
    if choice.quick { 1 } else { 3 }
}

fn plan(quick: bool) -> Plan {
    let (processes, times, section) = if quick { (4, 12, 2) } else { (8, 40, 5) };
    let limit = Duration::from_secs(if quick { 10 } else { 30 });
    Plan { processes, times, section: Duration::from_millis(section), limit }
}

/// Returns the worst figure of redbolt, over all numbers of nodes and placements.
fn targets_of(hang: Hang, pairs: &[Pair]) -> [Target; 2] {
    let own =
        pairs.iter().filter(|pair| pair.hang == hang && pair.entry.name.starts_with("redbolt"));
    let worst = |of: &dyn Fn(&Pair) -> f64| {
        let ratio = |pair: &Pair| if pair.has_failed() { f64::INFINITY } else { of(pair) };
        own.clone().map(|pair| (ratio(pair), pair)).max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let target = |what: &str, worst: Option<(f64, &Pair)>| Target {
        what: format!("{what} of a crowd with f nodes {}, of that with all alive", hang.name()),
        bound: BOUND,
        measured: worst.map(|(ratio, _)| ratio),
        text: worst.map_or_else(
            || "redbolt was not chosen".to_owned(),
            |(ratio, pair)| {
                let Pair { entry, n, placement, .. } = pair;
                format!("{ratio:.2}: {}, N = {n}, {}", entry.name, placement.name())
            },
        ),
    };
    [
        target("the whole time", worst(&|pair: &Pair| pair.whole().median)),
        target("the p99 of hand-offs", worst(&Pair::p99)),
    ]
}

/// Returns the quantile of all hand-offs.
fn part_of(outcomes: &[Outcome], part: f64) -> u64 {
    let mut all: Vec<u64> =
        outcomes.iter().flat_map(|outcome| &outcome.hand_offs).copied().collect();
    all.sort_unstable();
    let last = all.len().saturating_sub(1);
    all.get((last as f64 * part).ceil() as usize).copied().unwrap_or(0)
}

/// `true` if nodes hang in this turn: the order spreads slow changes of the machine over both.
const TURNS: [bool; 4] = [false, true, true, false];

/// A pause longer than any crowd.
const PAUSE: &str = "CLIENT PAUSE 600000";

const BOUND: f64 = 1.2;

const HEADINGS: [&str; 10] = [
    "waiter",
    "N",
    "nodes",
    "hand-off p50, alive",
    "p99, alive",
    "p50, f hang",
    "p99, f hang",
    "p99, ratio",
    "whole time, ratio by round",
    "intruders",
];

const INTRO: &str = "\
Eight processes want one lock again and again and hold it for 5 ms each time, as in the crowd. \
When all have connected, the largest minority of the nodes hangs: the first nodes, which waiters \
would choose as leads. *stopped* is a process stopped with SIGSTOP, *blackholed* one whose accept \
queue is full as well, *paused* one that got `CLIENT PAUSE`; *killed* is for comparison, because \
connections to such a node fail at once. Crowds with all nodes alive and with hanging nodes take \
turns, alive, hung, hung, alive, each on new nodes.

";

const NOTE: &str = "\
- *hand-off*: from the begin of a release to the next grant, by whichever process, in all crowds \
of a kind together.
- *intruders*: as in the crowd; one is too many.
- All remaining nodes have to grant, so the slowest of them counts, and not the median. The \
ratios include that, also the ratio with killed nodes.
";

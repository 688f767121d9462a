//! Cost as work grows: nothing may be worse than linear, and there may be no cliff.
//!
//! Each table has one size that grows. The work is in `crate::scale`, slopes and cliffs are in
//! `crate::scale::growth`.

mod resting;
mod sweep;
mod sweeps;

use anyhow::Result;
use serde_json::{Value, json};

use self::resting::Resting;
use self::sweep::Sweep;
use crate::choice::Choice;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::scale::growth::Growth;
use crate::section::{Chart, Section, Target, failures};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let placements = choice.placements_or(&[Placement::OneCore]);
    progress.begin((placements.len() * (sweeps::ALL.len() + 1)) as u64, "scale");
    let mut section = Section {
        title: "Cost as work grows".to_owned(),
        text: format!("{NOTE}\n"),
        summary: format!("{NOTE}\n"),
        ..Section::default()
    };
    let mut runs = Vec::new();
    for placement in placements {
        let run = Run::measure(placement, choice, progress);
        section.text += &run.text();
        section.summary += &run.summary();
        section.charts.extend(run.charts()?);
        section.targets.extend(run.targets());
        runs.push(run.json());
    }
    section.json = json!({ "runs": runs });
    Ok(section)
}

/// All tables in one placement. A failure voids only its own table.
struct Run {
    placement: Placement,
    resting: Result<Resting, String>,
    sweeps: Vec<(&'static str, Result<Sweep, String>)>,
}

impl Run {
    fn measure(placement: Placement, choice: &Choice, progress: &Progress) -> Self {
        let words = |error: anyhow::Error| format!("{error:#}");
        progress.say(&format!("scale: held locks, {placement}"));
        let resting = Resting::measure(placement, choice).map_err(words);
        progress.step();
        let sweep = |(name, run): &(&'static str, sweeps::Run)| {
            progress.say(&format!("scale: {name}, {placement}"));
            let outcome = run(placement, choice).map_err(words);
            progress.step();
            (*name, outcome)
        };
        Self { placement, resting, sweeps: sweeps::ALL.iter().map(sweep).collect() }
    }

    fn measured(&self) -> impl Iterator<Item = &Sweep> {
        self.sweeps.iter().filter_map(|(_, sweep)| sweep.as_ref().ok())
    }

    fn growths(&self) -> Vec<Growth> {
        let resting = self.resting.iter().flat_map(Resting::growths);
        resting.chain(self.measured().flat_map(Sweep::growths)).collect()
    }

    /// Returns the table of held locks. The growth of all tables is among the targets.
    fn summary(&self) -> String {
        let held = self.resting.as_ref().map_or_else(String::clone, Resting::text);
        format!("### {}\n\n{held}", self.placement)
    }

    fn text(&self) -> String {
        let mut text = format!("### {}\n\n", self.placement);
        self.resting.iter().for_each(|resting| text += &resting.text());
        self.measured().for_each(|sweep| text += &sweep.text());
        let sweeps = self.sweeps.iter().map(|(name, outcome)| (*name, outcome.as_ref().err()));
        let held = ("held locks", self.resting.as_ref().err());
        let failed = std::iter::once(held).chain(sweeps);
        text += &failures(failed.filter_map(|(name, error)| Some((name, error?.as_str()))));
        text
    }

    fn charts(&self) -> Result<Vec<Chart>> {
        let mut charts = Vec::new();
        if let Ok(resting) = &self.resting {
            charts.extend(resting.charts(self.placement)?);
        }
        for sweep in self.measured() {
            charts.push(sweep.chart(self.placement)?);
        }
        Ok(charts)
    }

    fn targets(&self) -> Vec<Target> {
        let growths = self.growths();
        let slope = |growth: &Growth| Target {
            what: format!("slope, {}: {}", self.placement, growth.what),
            bound: growth.bound(),
            measured: Some(growth.steepest()).filter(|slope| slope.is_finite()),
            text: format!("{:.2}", growth.steepest()),
        };
        let cliffs: Vec<_> = growths.iter().filter(|growth| !growth.cliffs().is_empty()).collect();
        let cliff = Target {
            what: format!("cliffs, {}: in all tables", self.placement),
            bound: 0.0,
            measured: (!growths.is_empty()).then_some(cliffs.len() as f64),
            text: match cliffs.is_empty() {
                true => "none".to_owned(),
                false => cliffs.iter().map(|growth| &*growth.what).collect::<Vec<_>>().join("; "),
            },
        };
        let memory = match &self.resting {
            Ok(resting) => resting.target(),
            Err(error) => resting::target(None, error.clone()),
        };
        std::iter::once(memory).chain(growths.iter().map(slope)).chain([cliff]).collect()
    }

    fn json(&self) -> Value {
        let sweep = |(name, outcome): &(&str, Result<Sweep, String>)| match outcome {
            Ok(sweep) => sweep.json(),
            Err(error) => json!({ "what": name, "error": error }),
        };
        json!({
            "placement": self.placement.to_string(),
            "held": match &self.resting {
                Ok(resting) => resting.json(),
                Err(error) => json!({ "error": error }),
            },
            "sweeps": self.sweeps.iter().map(sweep).collect::<Vec<_>>(),
        })
    }
}

const NOTE: &str = "\
redbolt alone, over TCP, N = 3 unless N is what grows. The slope is that of the whole cost over \
the size, both logarithmic: 1 is linear, 0 is constant. It is given over all sizes, and over the \
larger half of them, where fixed costs no longer hide the growth. A cliff is a step at which the \
unit cost more than doubles compared with the trend of the step before. CPU is that of the \
client's process; the nodes are other processes.\n";

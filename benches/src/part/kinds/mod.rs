//! The other kinds of locks: how many readers share one key, and the cost of a permit. Their pairs
//! without competition are contenders of `pair`.

mod permits;
mod readers;

use anyhow::Result;
use serde_json::json;

use crate::choice::Choice;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::Section;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let own: &[usize] = if choice.quick { &[3] } else { &[1, 3, 5] };
    let (nodes, placements) = (choice.nodes_or(own), choice.placements_or(&[Placement::OneCore]));
    let (rounds, rows) = (readers::rounds(choice.quick), permits::rows(choice.quick));
    let steps = placements.len() * nodes.len() * (rounds + rows.len());
    progress.begin(steps as u64, "kinds of locks");
    let mut section = Section { title: "Readers and permits".to_owned(), ..Section::default() };
    let (mut readers, mut permits) = (Vec::new(), Vec::new());
    for placement in placements {
        for &n in &nodes {
            progress.say(&format!("readers of one key, N = {n}"));
            readers.push(readers::Run::measure(n, placement, choice, progress)?);
            progress.say(&format!("permits, N = {n}"));
            permits.push(permits::Run::measure(n, placement, choice, &rows, progress)?);
        }
    }
    section.text = format!("### Many readers of one key\n\n{}\n", readers::INTRO);
    section.text += &readers.iter().map(readers::Run::text).collect::<String>();
    section.text += &format!("{}\n### Permits\n\n{}\n", readers::NOTE, permits::INTRO);
    section.text += &permits.iter().map(permits::Run::text).collect::<String>();
    section.text += permits::NOTE;
    section.summary.clone_from(&section.text);
    section.targets = permits.iter().flat_map(permits::Run::targets).collect();
    let readers: Vec<_> = readers.iter().map(readers::Run::json).collect();
    let permits: Vec<_> = permits.iter().map(permits::Run::json).collect();
    section.json = json!({ "readers": readers, "permits": permits });
    Ok(section)
}

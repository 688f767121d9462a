//! The one command: runs the parts that were chosen, prints their tables, and writes them down.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use redbolt_benches::choice::Choice;
use redbolt_benches::crowd::worker::Order;
use redbolt_benches::machine::machine;
use redbolt_benches::part::{PARTS, Part};
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::progress::Progress;
use redbolt_benches::section::Section;
use serde_json::{Map, Value, json};

/// Measures redbolt beside other clients, on real nodes that it starts itself.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// What to measure; everything if it is left out.
    #[arg(value_parser = part)]
    part: Vec<&'static Part>,
    /// Fewer and shorter rounds: less than two minutes in all.
    #[arg(long)]
    quick: bool,
    /// How many nodes; may be repeated.
    #[arg(long)]
    nodes: Vec<usize>,
    /// Where client and nodes run: one-core, split or unpinned; may be repeated.
    #[arg(long)]
    placement: Vec<Placement>,
    /// Only contenders whose name contains this, and the floors; may be repeated.
    #[arg(long)]
    contender: Vec<String>,
    /// The folder that RESULTS.md, results.json and charts are written to.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum Role {
    /// One process of a crowd; the program starts these itself.
    #[command(hide = true)]
    Worker(Order),
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(Role::Worker(order)) = options.role {
        return order.carry_out();
    }
    let choice = Choice {
        quick: options.quick,
        nodes: options.nodes,
        placements: options.placement,
        contenders: options.contender,
        cores: usable_cores()?,
    };
    let parts = if options.part.is_empty() { PARTS.iter().collect() } else { options.part };
    let progress = Progress::new();
    let mut sections = Vec::new();
    for part in parts {
        let section = (part.run)(&choice, &progress).with_context(|| part.name)?;
        println!("## {}\n\n{}", section.title, section.text);
        sections.push((part.name, section));
    }
    progress.end();
    write(&options.out, &sections)
}

fn write(folder: &Path, sections: &[(&str, Section)]) -> Result<()> {
    let (mut text, mut parts) = (format!("# Results\n\n{}\n", machine()), Map::new());
    std::fs::create_dir_all(folder.join("charts"))?;
    for (name, section) in sections {
        text += &format!("\n## {}\n\n{}", section.title, section.text);
        for chart in &section.charts {
            std::fs::write(folder.join(format!("charts/{}.svg", chart.name)), &chart.svg)?;
            text += &format!("\n![{}](charts/{}.svg)\n", chart.caption, chart.name);
        }
        parts.insert((*name).to_owned(), section.json.clone());
    }
    std::fs::write(folder.join("RESULTS.md"), text)?;
    let json: Value = json!({ "machine": machine(), "parts": parts });
    Ok(std::fs::write(folder.join("results.json"), format!("{json:#}\n"))?)
}

fn part(name: &str) -> Result<&'static Part, String> {
    PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        format!("one of {}", known.join(", "))
    })
}

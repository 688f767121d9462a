//! The environment of the figures: machine, software, and other load.

use std::env;
use std::fs;
use std::process::Command;

use rustix::system::uname;
use serde_json::{Value, json};

/// The environment, which affects a figure as much as the code.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The name and the text of each line.
    lines: Vec<(&'static str, String)>,
}

impl Machine {
    /// Queries the system. Call this before measuring, because it includes the load so far.
    #[must_use]
    pub fn now(cores: usize) -> Self {
        let system = uname();
        let kernel = format!(
            "{} {}, {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy(),
            system.machine().to_string_lossy()
        );
        let lines = vec![
            ("processor", format!("{}, {cores} cores used", processor())),
            ("kernel", kernel),
            ("nodes", nodes()),
            ("compiler", env!("BENCHES_RUSTC").to_owned()),
            ("profile", profile()),
            ("load at the start", load()),
            ("date", date()),
        ];
        Self { lines }
    }

    /// Returns a list in Markdown.
    #[must_use]
    pub fn list(&self) -> String {
        self.lines.iter().map(|(name, line)| format!("- {name}: {line}\n")).collect()
    }

    /// Returns the environment for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        self.lines.iter().map(|(name, line)| ((*name).to_owned(), json!(line))).collect()
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| "unknown".to_owned())
}

fn nodes() -> String {
    let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let text = said(Command::new(program).arg("--version"));
    // `Redis server v=7.0.15 sha=00000000:0 malloc=…`
    let version = text.split(' ').find_map(|word| word.strip_prefix("v="));
    version.map_or_else(|| text.clone(), |version| format!("redis {version}"))
}

/// Returns the build profile, as passed on by the build script.
fn profile() -> String {
    let slow =
        if cfg!(debug_assertions) { "; NOT OPTIMISED: the figures mean nothing" } else { "" };
    format!("{}, opt-level {}{slow}", env!("BENCHES_PROFILE"), env!("BENCHES_OPT_LEVEL"))
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn date() -> String {
    said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
}

/// Returns the first line of a program's output; empty if the program does not run.
fn said(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_says_something() {
        let machine = Machine::now(2);
        assert!(machine.lines.iter().all(|(_, line)| !line.trim().is_empty()), "{machine:?}");
        assert!(machine.list().contains("redis ") || env::var_os("REDIS_SERVER").is_some());
        assert!(machine.json()["profile"].as_str().is_some_and(|line| line.contains("opt-level")));
    }
}

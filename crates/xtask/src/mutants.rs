//! `cargo xtask mutants`: changes one token of the source at a time, in the files that hold safety
//! rules, and checks whether the unit tests and `tests/core` notice.
//!
//! cargo-mutants creates the mutants and runs the tests, as `.cargo/mutants.toml` configures. This
//! module adds two checks: a mutant may survive only for a written reason, and mutants that are
//! bugs which others shipped must still be created after the code has moved. A run takes hours;
//! `--shard k/n` runs a part. Bugs of more than one token are planted, see `cargo xtask sim
//! --mutants`.

use std::{collections::BTreeMap, fs};

use crate::{
    package::target,
    programs,
    step::{self, Failure, cargo, root},
};

/// Creates mutants and tests them: all, or those that cargo-mutants' own options choose.
pub(crate) fn run(options: &[String]) -> Result<(), Failure> {
    programs::provide_mutants()?;
    let survivors = Notes::read(SURVIVORS)?;
    let made = made()?;
    let gone: Vec<_> = [&survivors, &Notes::read(SHIPPED)?]
        .into_iter()
        .flat_map(|notes| notes.beyond(&made))
        .collect();
    if !gone.is_empty() {
        let list = gone.join("\n  ");
        return Err(Failure(format!(
            "mutants: listed, but not made any more; update the list:\n  {list}"
        )));
    }
    let folder = target().join("mutants.out");
    let _ = fs::remove_dir_all(&folder);
    let mut mutants = cargo("mutants");
    mutants.args(["--no-shuffle", "--colors=never", "--output"]).arg(target()).args(options);
    let shown = step::shown(&mutants);
    let status = mutants.status().map_err(|error| Failure::not_run(&shown, &error))?;
    if !status.success() && !status.code().is_some_and(|code| MEASURED.contains(&code)) {
        return Err(Failure::of("mutants", &shown, status));
    }
    match fs::read_to_string(folder.join("missed.txt")) {
        Ok(missed) => survivors.judge(&missed),
        // The options asked for a list, or for help.
        Err(_) => Ok(()),
    }
}

/// Returns the names of all mutants, without their positions in the files.
fn made() -> Result<Vec<String>, Failure> {
    let mut list = cargo("mutants");
    list.args(["--list", "--colors=never"]);
    let shown = step::shown(&list);
    let output = list.output().map_err(|error| Failure::not_run(&shown, &error))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::of("mutants", &shown, output.status));
    }
    Ok(names(&String::from_utf8_lossy(&output.stdout)).collect())
}

/// Returns the mutants of cargo-mutants' output, one in a line, without line and column.
fn names(told: &str) -> impl Iterator<Item = String> {
    told.lines().filter_map(|line| {
        let (place, change) = line.split_once(": ")?;
        let file = place.split(':').next()?;
        Some(format!("{file}: {change}"))
    })
}

/// Mutants with a note each, from a committed file: the name, followed by indented lines of text.
#[derive(Debug)]
struct Notes {
    file: &'static str,
    /// The number of times that each is listed. Two positions in one function can have mutants of
    /// the same name.
    mutants: BTreeMap<String, usize>,
}

impl Notes {
    fn read(file: &'static str) -> Result<Self, Failure> {
        let text = fs::read_to_string(root().join(file))
            .map_err(|error| Failure(format!("{file}: {error}")))?;
        Self::parse(file, &text)
    }

    fn parse(file: &'static str, text: &str) -> Result<Self, Failure> {
        let mut mutants = BTreeMap::new();
        let mut lines =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
        while let Some(name) = lines.next() {
            if name.starts_with(' ') {
                continue;
            }
            if !lines.peek().is_some_and(|next| next.starts_with(' ')) {
                return Err(Failure(format!("{file}: no note for: {name}")));
            }
            *mutants.entry(name.to_owned()).or_default() += 1;
        }
        Ok(Self { file, mutants })
    }

    /// Returns listed mutants that are no longer created.
    fn beyond(&self, made: &[String]) -> Vec<String> {
        let is_made = |name: &String, count| made.iter().filter(|it| *it == name).count() >= count;
        let beyond = self.mutants.iter().filter(|&(name, &count)| !is_made(name, count));
        beyond.map(|(name, _)| format!("{name} ({})", self.file)).collect()
    }

    /// Fails if a mutant survives that is not listed.
    fn judge(&self, missed: &str) -> Result<(), Failure> {
        let mut allowed = self.mutants.clone();
        let mut unlisted = Vec::new();
        for (told, name) in missed.lines().zip(names(missed)) {
            match allowed.get_mut(&name) {
                Some(left @ 1..) => *left -= 1,
                _ => unlisted.push(told),
            }
        }
        if unlisted.is_empty() {
            println!("xtask: all surviving mutants are listed in {}", self.file);
            return Ok(());
        }
        let list = unlisted.join("\n  ");
        Err(Failure(format!(
            "mutants: surviving, and without a reason in {}:\n  {list}",
            self.file
        )))
    }
}

/// The mutants that the tests do not notice, with the reason why that is right.
const SURVIVORS: &str = ".cargo/mutants-survivors.txt";

/// The mutants that are shipped bugs of other clients, bugs of this library's drafts, or omitted
/// rules.
const SHIPPED: &str = ".cargo/mutants-shipped.txt";

/// The exit statuses of cargo-mutants for surviving mutants, and for mutants that ran into their
/// time limit.
const MEASURED: [i32; 2] = [2, 3];

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: &str = "# Words.\n\nsrc/a.rs: replace f -> bool with true\n    It is.\n    So.\n\
                         src/a.rs: replace < with > in g\n    One of two.\n";

    #[test]
    fn a_mutant_survives_as_often_as_there_are_reasons() {
        let notes = Notes::parse(SURVIVORS, NOTED).unwrap();
        let both =
            "src/a.rs:1:2: replace f -> bool with true\nsrc/a.rs:9:1: replace < with > in g\n";
        notes.judge(both).unwrap();
        notes.judge("").unwrap();
        let failure = notes
            .judge("src/a.rs:9:1: replace < with > in g\nsrc/a.rs:9:7: replace < with > in g\n");
        assert!(
            failure.unwrap_err().to_string().ends_with("\n  src/a.rs:9:7: replace < with > in g")
        );
        assert!(notes.judge("src/b.rs:1:2: replace f -> bool with true\n").is_err());
    }

    #[test]
    fn a_survivor_without_a_reason_is_refused() {
        let failure = Notes::parse(SURVIVORS, "src/a.rs: x\nsrc/b.rs: y\n    Why.\n").unwrap_err();
        assert_eq!(failure.to_string(), format!("{SURVIVORS}: no note for: src/a.rs: x"));
    }

    #[test]
    fn listed_mutants_that_are_not_made_are_reported() {
        let notes = Notes::parse(SHIPPED, NOTED).unwrap();
        let made: Vec<_> = names("src/a.rs:3:4: replace < with > in g\n").collect();
        let gone = notes.beyond(&made);
        assert_eq!(gone, [format!("src/a.rs: replace f -> bool with true ({SHIPPED})")]);
    }

    #[test]
    fn the_committed_files_name_sources_that_exist() {
        let config = fs::read_to_string(root().join(".cargo/mutants.toml")).unwrap();
        let mutated: Vec<_> = config.split('"').filter(|word| word.starts_with("src/")).collect();
        assert!(mutated.len() > 5);
        for file in &mutated {
            assert!(root().join(file).is_file(), "no {file}");
        }
        for notes in [SURVIVORS, SHIPPED] {
            for name in Notes::read(notes).unwrap().mutants.keys() {
                let file = name.split(": ").next().unwrap();
                assert!(mutated.contains(&file), "{notes}: {file} is not mutated");
            }
        }
    }
}

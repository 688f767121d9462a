//! Compares the code map of ARCHITECTURE.md with the files that exist.
//!
//! A map may be a tree, a list or a table. A name belongs to the folder of its heading or of the
//! tree above it; a name alone counts if only one file has it. A folder stands for its `mod.rs`.

use std::collections::BTreeSet;

/// The content of a map.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Files that it shows.
    pub(crate) shown: BTreeSet<String>,
    /// Names without a file.
    pub(crate) unknown: Vec<String>,
}

/// Reads the section called code map, or the whole text if there is none.
pub(crate) fn read(text: &str, files: &BTreeSet<String>) -> Reading {
    let mut reading = Reading::default();
    let mut folders: Vec<(usize, &str)> = Vec::new();
    for line in section(text) {
        let Some(depth) = depth(line) else { continue };
        while folders.last().is_some_and(|(above, _)| *above >= depth) {
            folders.pop();
        }
        let names: Vec<&str> = names(line).collect();
        let heads = if depth == HEADING { names.len() } else { 1 };
        if let Some(folder) = names.iter().take(heads).find(|name| name.ends_with('/')) {
            folders.push((depth, folder));
        }
        let above: Vec<&str> = folders.iter().map(|(_, folder)| *folder).collect();
        names.iter().for_each(|name| reading.take(name, &above, files));
    }
    reading
}

impl Reading {
    fn take(&mut self, name: &str, above: &[&str], files: &BTreeSet<String>) {
        let folder = name.ends_with('/');
        let file = if folder { format!("{name}mod.rs") } else { name.to_owned() };
        // The folder's own line is part of its path.
        let above = if folder { &above[..above.len().saturating_sub(1)] } else { above };
        let ends = format!("/{file}");
        let mut same: Vec<&String> = files.iter().filter(|known| known.ends_with(&ends)).collect();
        let ways = (0..=above.len()).map(|from| format!("{}{file}", above[from..].concat()));
        if let Some(known) = ways.into_iter().find_map(|way| files.get(&way)) {
            same = vec![known];
        }
        match same[..] {
            [one] => drop(self.shown.insert(one.clone())),
            [] if !folder => self.unknown.push(file),
            _ => {}
        }
    }
}

/// From the heading with "code map" to the next one on its level.
fn section(text: &str) -> Vec<&str> {
    let level = |line: &str| line.chars().take_while(|c| *c == '#').count();
    let lines: Vec<&str> = text.lines().collect();
    let is_map = |line: &&str| level(line) > 0 && line.to_lowercase().contains("code map");
    let Some(start) = lines.iter().position(is_map) else { return lines };
    let over = |line: &&str| (1..=level(lines[start])).contains(&level(line));
    let rest = &lines[start + 1..];
    rest[..rest.iter().position(over).unwrap_or(rest.len())].to_vec()
}

/// The indentation of a line, including the strokes of a tree; `None` for a line without names.
fn depth(line: &str) -> Option<usize> {
    let column = line.chars().position(|c| c.is_ascii_alphanumeric() || c == '_')?;
    Some(if line.starts_with('#') { HEADING } else { column + 1 })
}

/// The `.rs` files and the folders that a line names.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)));
    let words = words.map(|word| word.trim_start_matches("./").trim_end_matches('.'));
    words.filter(|word| match word.strip_suffix(".rs") {
        Some(stem) => !stem.is_empty() && !stem.ends_with('/'),
        None => word.ends_with('/') && word.len() > 1,
    })
}

const HEADING: usize = 0;

mod tests {
    use super::*;

    fn check(map: &str, shown: &[&str], unknown: &[&str]) {
        let files = ["src/lib.rs", "src/a/mod.rs", "src/a/x.rs", "src/a/b/x.rs", "src/a/b/y.rs"];
        let reading = read(map, &files.map(str::to_owned).into());
        let expected = Reading {
            shown: shown.iter().map(|name| (*name).to_owned()).collect(),
            unknown: unknown.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(reading, expected, "{map}");
    }

    #[test]
    fn a_tree_gives_names_their_folders() {
        let plain = "src/\n  lib.rs  the door\n  a/\n    b/  inner\n      x.rs\n    x.rs\n";
        let drawn = "src/\n├── lib.rs\n└── a/\n    ├── b/\n    │   └── x.rs\n    └── x.rs\n";
        let shown = ["src/lib.rs", "src/a/mod.rs", "src/a/b/x.rs", "src/a/x.rs"];
        check(plain, &shown, &[]);
        check(drawn, &shown, &[]);
    }

    #[test]
    fn a_heading_gives_a_table_its_folder() {
        check("### Inner (`src/a/b/`)\n\n| `x.rs` | one |\n", &["src/a/b/x.rs"], &[]);
        check("See `src/a/x.rs`, and y.rs.", &["src/a/x.rs", "src/a/b/y.rs"], &[]);
    }

    #[test]
    fn a_name_that_two_files_have_shows_neither() {
        check("- `x.rs`: which?", &[], &[]);
    }

    #[test]
    fn names_without_a_file_are_found() {
        check("src/\n  a/\n    gone.rs\n  *.rs", &["src/a/mod.rs"], &["gone.rs"]);
    }

    #[test]
    fn only_the_section_of_the_map_counts() {
        let text = "# A\nother/lock.rs\n## Code map\n### src\nsrc/lib.rs\n## B\nanother.rs\n";
        check(text, &["src/lib.rs"], &[]);
    }
}

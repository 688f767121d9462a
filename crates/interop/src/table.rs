//! The results as a page of the manual.

use std::fmt::Display;

use crate::checks::{Found, NONE};
use crate::libraries::ALL;
use crate::library::Library;

/// A part of the page: the results of one library on this many nodes, or those of a measurement.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) body: String,
    /// The row in the table of all libraries, if it has one.
    pub(crate) row: Option<String>,
    pub(crate) has_failed: bool,
}

impl Section {
    /// Builds a section from the result of each check.
    pub(crate) fn new(
        library: &Library,
        nodes: usize,
        outcomes: &[(&str, Result<Found, String>)],
    ) -> Self {
        let mut body = "\n| check | outcome |\n|---|---|\n".to_owned();
        for (name, outcome) in outcomes {
            let outcome = match outcome {
                Ok(found) => as_text(&found.words),
                Err(error) => format!("**FAILED**: {}", as_text(error)),
            };
            body.push_str(&format!("| {name} | {outcome} |\n"));
        }
        let subject = format!("{} {}", library.name, library.version);
        Self {
            title: format!("{subject}, N = {nodes}"),
            body,
            row: Some(row(&subject, nodes, outcomes)),
            has_failed: outcomes.iter().any(|(_, outcome)| outcome.is_err()),
        }
    }

    pub(crate) fn not_run(library: &Library, reason: &str) -> Self {
        let title = format!("{} {}: not run, {reason}", library.name, library.version);
        Self { title, body: String::new(), row: None, has_failed: false }
    }

    /// Returns the subject: the title without the version.
    fn subject(&self) -> (&str, &str) {
        let (name, rest) = self.title.split_once(' ').unwrap_or((&self.title, ""));
        (name, rest.split_once(' ').map_or("", |(_, rest)| rest))
    }

    /// Returns the key by which sections are sorted: the measurement first, then as in the list of
    /// libraries, with few nodes first.
    fn place(&self) -> (bool, usize, &str) {
        let (name, subject) = self.subject();
        let place = ALL.iter().position(|library| library.name == name);
        (subject != "pair and hand-off", place.unwrap_or(ALL.len()), subject)
    }
}

/// Escapes a cell, so that Markdown shows it as it is: a library's messages may have brackets.
fn as_text(words: &str) -> String {
    words.replace('[', r"\[").replace(']', r"\]").replace('|', r"\|").replace('\n', " ")
}

/// Returns the row with the result of each check, in brief.
fn row(subject: &str, nodes: usize, outcomes: &[(&str, Result<Found, String>)]) -> String {
    let brief = |name: &str| {
        let (_, outcome) = outcomes.iter().find(|(of, _)| *of == name)?;
        Some(outcome.as_ref().map_or("**FAILED**", |found| &found.brief))
    };
    let also: Vec<_> =
        ALSO.iter().filter_map(|name| brief(name)).filter(|&it| it != NONE).collect();
    let mut row = row_of(subject, nodes);
    for name in COLUMNS {
        row.push_str(&format!(" {} |", brief(name).unwrap_or_default()));
    }
    format!("{row} {} |\n", also.join(", "))
}

/// Returns the beginning of the row for this many nodes.
fn row_of(subject: &str, nodes: impl Display) -> String {
    format!("| {subject} | {nodes} |")
}

/// The columns, one for each check.
const COLUMNS: [&str; 7] =
    ["exclusion", "wake-up", "extension", "re-entry", "foreign release", "crash", "nothing left"];

/// The checks that share the last column, because only some libraries have these features.
const ALSO: [&str; 4] = ["readers", "fencing", "at least", "start"];

/// Returns the page with the new sections, and those of the page before that were not replaced.
pub(crate) fn page(made: Vec<Section>, before: &str) -> String {
    let kept = before.split("\n## ").skip(1).map(|text| {
        let (title, body) = text.split_once('\n').unwrap_or((text, ""));
        let row = title.split_once(", N = ").and_then(|(subject, nodes)| {
            let begins = row_of(subject, nodes);
            before.lines().find(|line| line.starts_with(&begins)).map(|row| format!("{row}\n"))
        });
        Section { title: title.to_owned(), body: format!("{body}\n"), row, has_failed: false }
    });
    let mut sections: Vec<_> = kept
        .filter(|kept| kept.place().1 < ALL.len())
        .filter(|kept| made.iter().all(|made| made.subject() != kept.subject()))
        .collect();
    let was_run = |library: &str| sections.iter().any(|kept| kept.subject().0 == library);
    // A library that was not run this time must not replace its earlier results.
    let news: Vec<_> =
        made.into_iter().filter(|it| !it.body.is_empty() || !was_run(it.subject().0)).collect();
    sections.extend(news);
    sections.sort_by(|one, other| one.place().cmp(&other.place()));
    let rows: String = sections.iter().filter_map(|section| section.row.as_deref()).collect();
    let mut page = format!("{HEAD}{TABLE}{rows}");
    for section in sections {
        page.push_str(&format!("\n## {}\n{}", section.title, section.body.trim_end()));
        page.push('\n');
    }
    page
}

const HEAD: &str = "\
# With other libraries

Real processes of other lock libraries and redbolt on the same Redis nodes, made by `cargo xtask interop --write
docs/evidence/interop.md`. Each check has a control: the same with something left out, which has to fail.

*Exclusion*: both count in a register that nothing but the lock protects, until each has met the other's lock often enough (200 times);
the controls are two keys, and a lock of redbolt with a wrong field. *Wake-up*: from a release to the grant of a waiter, the median and
the 99th percentile. Where a library tells its waiters, the control is a release that does not; where its waiters poll there is none. By
its message alone redbolt is woken where the nodes must not tell it of changes. *Extension*: for longer than three TTLs. *Readers*: of a
read/write lock, on both sides. *Fencing*: the tokens of both sides. *Foreign release*: a lock is deleted from outside, and who had it
releases when the other side has it. Some libraries delete that without a look. *At least*: a lock that is kept after its work. *Crash*:
the process of a holder is killed, on either side; from its request to the grant of the other one. *Nothing left*: on the nodes right
after a release, with both sides alive, and what the processes of a library have complained of. Times are those of a shared machine with
two cores.

*Pair and hand-off* (`--beside`): redbolt with the profile `redisson`, and Redisson's RLock or, on several nodes, RedissonRedLock. A
*pair* is an uncontended lock and its unlock; both ask for a TTL of 20 s. A *hand-off* is from the call of the unlock in one
process to the lock in another one that waits, among those of one library. The processes take the times themselves, after a warm-up, on
the same nodes in turn. The control is that neither gets what the other one holds. Redisson's watchdog extends a lock that was asked for
without a TTL; redbolt's pair is the same with it.
";

const TABLE: &str = "
In the table of all: how many attempts met the other's lock, of it and of redbolt, and the updates lost, in brackets those of the control;
wake-ups to it, to redbolt, and among its own; for how long a lock was extended, by it and by redbolt; for how long a killed holder
kept the other side out, its own and redbolt's, with a TTL of 2 s. A dash is what a library does not have. The details are below.

| library | N | exclusion | wake-up | extension | re-entry | foreign release | crash | left | also |
|---|--:|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, body: &str) -> Section {
        Section { title: title.to_owned(), body: body.to_owned(), row: None, has_failed: false }
    }

    fn checked(title: &str, row: &str) -> Section {
        Section { row: Some(format!("{row}\n")), ..section(title, "\nchecked\n") }
    }

    #[test]
    fn sections_that_are_not_replaced_stay() {
        let one = page(
            vec![section("redsync 1, N = 1", "\nold\n"), section("pottery 1, N = 1", "\nthis\n")],
            "",
        );
        let two = page(
            vec![
                section("redsync 2, N = 1", "\nnew\n"),
                section("pottery 1: not run, no python3", ""),
            ],
            &one,
        );
        let of = |page: &str| page.strip_prefix(&format!("{HEAD}{TABLE}")).map(str::to_owned);
        let expected = "\n## pottery 1, N = 1\n\nthis\n\n## redsync 2, N = 1\n\nnew\n";
        assert_eq!(of(&two).as_deref(), Some(expected));
        let measured = page(vec![section("redisson 1: pair and hand-off", "\ntable\n")], &two);
        assert!(of(&measured).is_some_and(|it| {
            it.starts_with("\n## redisson 1: pair and hand-off\n\ntable\n\n## pottery")
        }));
    }

    #[test]
    fn rows_stay_with_their_sections() {
        let rows = ["| redsync 1 | 1 | a |", "| redsync 1 | 3 | b |", "| pottery 1 | 1 | c |"];
        let titles = ["redsync 1, N = 1", "redsync 1, N = 3", "pottery 1, N = 1"];
        let one = page(titles.iter().zip(rows).map(|(it, row)| checked(it, row)).collect(), "");
        let two = page(vec![checked("redsync 2, N = 1", "| redsync 2 | 1 | new |")], &one);
        let found: Vec<_> = two.lines().filter(|line| line.starts_with("| redsync")).collect();
        assert_eq!(found, ["| redsync 2 | 1 | new |", "| redsync 1 | 3 | b |"]);
        assert!(two.contains("\n| pottery 1 | 1 | c |\n"));
    }

    #[test]
    fn messages_of_a_library_are_escaped() {
        assert_eq!(
            as_text("locked nodes: [0] | of 1\nin vain"),
            r"locked nodes: \[0\] \| of 1 in vain"
        );
    }

    #[test]
    fn a_row_has_a_cell_for_each_check() {
        let found = |brief: &str| Ok(Found { brief: brief.to_owned(), words: String::new() });
        let outcomes = [
            ("exclusion", found("2, 3; 0 lost (1)")),
            ("crash", Err("refused".to_owned())),
            ("readers", found("readers")),
            ("fencing", found(NONE)),
        ];
        let row = row("redsync 1", 3, &outcomes);
        let expected =
            "| redsync 1 | 3 | 2, 3; 0 lost (1) |  |  |  |  | **FAILED** |  | readers |\n";
        assert_eq!(row, expected);
    }
}

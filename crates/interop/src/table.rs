//! The results as a page of the manual.

use crate::libraries::ALL;
use crate::library::Library;

/// A part of the page: the results of one library on so many nodes, or those of a measurement.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) has_failed: bool,
}

impl Section {
    /// What each check has found out.
    pub(crate) fn new(
        library: &Library,
        nodes: usize,
        outcomes: &[(&str, Result<String, String>)],
    ) -> Self {
        let mut body = "\n| check | outcome |\n|---|---|\n".to_owned();
        for (name, outcome) in outcomes {
            let outcome = match outcome {
                Ok(found) => found.clone(),
                Err(error) => format!("**FAILED**: {error}"),
            };
            body.push_str(&format!("| {name} | {outcome} |\n"));
        }
        Self {
            title: format!("{} {}, N = {nodes}", library.name, library.version),
            body,
            has_failed: outcomes.iter().any(|(_, outcome)| outcome.is_err()),
        }
    }

    pub(crate) fn not_run(library: &Library, reason: &str) -> Self {
        let title = format!("{} {}: not run, {reason}", library.name, library.version);
        Self { title, body: String::new(), has_failed: false }
    }

    /// What it is about: the title without the version.
    fn subject(&self) -> (&str, &str) {
        let (name, rest) = self.title.split_once(' ').unwrap_or((&self.title, ""));
        (name, rest.split_once(' ').map_or("", |(_, rest)| rest))
    }

    /// Where it stands: the measurement first, then as in the list of libraries.
    fn place(&self) -> (bool, usize) {
        let (name, subject) = self.subject();
        let place = ALL.iter().position(|library| library.name == name);
        (subject != "pair and hand-off", place.unwrap_or(ALL.len()))
    }
}

/// The sections, and those of the page before that are not made anew.
pub(crate) fn page(made: Vec<Section>, before: &str) -> String {
    let kept = before.split("\n## ").skip(1).map(|text| {
        let (title, body) = text.split_once('\n').unwrap_or((text, ""));
        Section { title: title.to_owned(), body: format!("{body}\n"), has_failed: false }
    });
    let mut sections: Vec<_> = kept
        .filter(|kept| kept.place().1 < ALL.len())
        .filter(|kept| made.iter().all(|made| made.subject() != kept.subject()))
        .collect();
    let was_run = |library: &str| sections.iter().any(|kept| kept.subject().0 == library);
    // That a library was not run this time says less than what it has shown before.
    let news: Vec<_> =
        made.into_iter().filter(|it| !it.body.is_empty() || !was_run(it.subject().0)).collect();
    sections.extend(news);
    sections.sort_by_key(Section::place);
    let mut page = HEAD.to_owned();
    for section in sections {
        page.push_str(&format!("\n## {}\n{}", section.title, section.body.trim_end()));
        page.push('\n');
    }
    page
}

const HEAD: &str = "\
# Beside other libraries

Real processes of other lock libraries and redbolt on the same Redis nodes, made by `cargo xtask interop --write
docs/interop.md`. Each check has a control: the same with something left out, which has to fail.

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
*pair* is a lock that nobody else wants and its unlock; both ask for a TTL of 20 s. A *hand-off* is from the call of the unlock in one
process to the lock in another one that waits, among those of one library. The processes take the times themselves, after a warm-up, on
the same nodes in turn. The control is that neither gets what the other one holds. Redisson's watchdog extends a lock that was asked for
without a TTL; redbolt's pair is the same beside it.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, body: &str) -> Section {
        Section { title: title.to_owned(), body: body.to_owned(), has_failed: false }
    }

    #[test]
    fn sections_that_are_not_made_anew_stay() {
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
        let of = |page: &str| page.strip_prefix(HEAD).map(str::to_owned);
        let expected = "\n## pottery 1, N = 1\n\nthis\n\n## redsync 2, N = 1\n\nnew\n";
        assert_eq!(of(&two).as_deref(), Some(expected));
        let measured = page(vec![section("redisson 1: pair and hand-off", "\ntable\n")], &two);
        assert!(of(&measured).is_some_and(|it| {
            it.starts_with("\n## redisson 1: pair and hand-off\n\ntable\n\n## pottery")
        }));
    }
}

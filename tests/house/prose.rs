//! Plain English: a count of the phrases that readers stumble over, in comments, Markdown,
//! string literals and the names of tests.
//!
//! A hit is a sentence to rewrite, not a word to replace. The rules come from years of prose that
//! only its authors could read; the limits per folder only fall.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// The words of a folder, and the phrases to rewrite.
#[derive(Default)]
pub(crate) struct Prose {
    words: usize,
    hits: Vec<String>,
}

impl Prose {
    /// Reads a file. `path` is shown with each hit.
    pub(crate) fn read(&mut self, path: &str, text: &str) {
        let mut units = paragraphs(path, text);
        if path.ends_with(".rs") {
            units.extend(literals(text));
        }
        for (line, unit) in units {
            self.words += unit.split_whitespace().count();
            let found = hits(&unit).into_iter();
            self.hits.extend(found.map(|(rule, at)| format!("{path}:{line}: {rule}: {at:?}")));
        }
    }

    /// Returns the number of phrases to rewrite.
    pub(crate) fn hits(&self) -> usize {
        self.hits.len()
    }
}

impl fmt::Display for Prose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.hits.len().min(SHOWN);
        writeln!(f, "{} words, {} hits, of which {shown}:", self.words, self.hits.len())?;
        self.hits[..shown].iter().try_for_each(|hit| writeln!(f, "{hit}"))
    }
}

/// Returns the lines with prose that are longer than `most` columns.
pub(crate) fn long_lines(text: &str, most: usize) -> Vec<usize> {
    let is_long = |line: &str| COMMENT.is_match(line) && line.chars().count() > most;
    // A table and a link cannot be broken.
    let is_whole = |line: &str| line.contains("| ") || line.contains("](") || line.contains("]: ");
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| is_long(line) && !is_whole(line)).map(|(at, _)| at + 1).collect()
}

/// Splits the comments of a source, or a page, into paragraphs, each with its first line.
fn paragraphs(path: &str, text: &str) -> Vec<(usize, String)> {
    let is_page = path.ends_with(".md");
    let (mut all, mut paragraph, mut start, mut is_fenced) = (Vec::new(), Vec::new(), 0, false);
    for (at, line) in text.lines().chain([""]).enumerate() {
        let found = COMMENT.captures(line).and_then(|comment| comment.get(1));
        let prose = if is_page { Some(line) } else { found.map(|comment| comment.as_str()) };
        let prose = match prose.map(str::trim) {
            Some(fence) if fence.starts_with("```") => {
                is_fenced = !is_fenced;
                ""
            }
            Some(prose) => prose,
            None => {
                is_fenced = false;
                ""
            }
        };
        if is_fenced || prose.is_empty() || prose.starts_with('|') {
            let paragraph = std::mem::take(&mut paragraph);
            all.extend((!paragraph.is_empty()).then(|| (start, paragraph.join(" "))));
        } else {
            start = if paragraph.is_empty() { at + 1 } else { start };
            paragraph.push(prose);
        }
    }
    all
}

/// Returns the string literals of at least four words, and the names of test functions.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let found = LITERAL.captures_iter(line).map(|literal| literal[1].to_owned());
        let texts = found.map(|literal| PLACE.replace_all(&literal, "x").into_owned());
        let texts = texts.filter(|literal| literal.split_whitespace().count() >= 4);
        let name = TEST_NAME.captures(line).map(|name| name[1].replace('_', " "));
        all.extend(texts.chain(name).map(|unit| (at + 1, unit)));
    }
    all
}

/// Returns the phrases to rewrite, each with its rule.
fn hits(text: &str) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for rule in RULES.iter() {
        let found = rule.phrase.find_iter(text).filter(|found| {
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            let is_excused =
                |what: &Option<Regex>, part| what.as_ref().is_some_and(|it| it.is_match(part));
            !is_excused(&rule.unless_before, before) && !is_excused(&rule.unless_after, after)
        });
        all.extend(found.map(|found| (rule.name, found.as_str().trim().to_owned())));
    }
    all
}

struct Rule {
    name: &'static str,
    phrase: Regex,
    unless_before: Option<Regex>,
    unless_after: Option<Regex>,
}

impl Rule {
    fn new(name: &'static str, phrase: &str) -> Self {
        let phrase = Regex::new(phrase).unwrap();
        Self { name, phrase, unless_before: None, unless_after: None }
    }

    fn unless_before(self, text: &str) -> Self {
        Self { unless_before: Some(Regex::new(&format!("(?:{text})$")).unwrap()), ..self }
    }

    fn unless_after(self, text: &str) -> Self {
        Self { unless_after: Some(Regex::new(&format!("^(?:{text})")).unwrap()), ..self }
    }
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        Rule::new("a clause as the subject", r"(?:^|[.;:] )(?:What|Whoever|Who|Whatever)\b")
            .unless_after(r" [^.]*\?"),
        Rule::new("whoever, whatever", r"\b[Ww](?:hoever|hatever)\b"),
        Rule::new(
            "a relative clause behind the verb",
            r"\b(?:is|are|was|were|has|have|be) (?:over|gone|there|made|sent|left|lost|taken|held|read|known|dropped|closed|found|begun|come|opened|open|due|meant|wanted|given|needed|refused|granted|asked|said|written|kept) (?:that|which|who|whose|for which|in which)\b",
        ),
        Rule::new(
            "a machine tells, hears, says",
            r"\b(?:node|server|sentinel|script|lock|key|TTL|command|core|it|they|library|error|refusal|answer|verdict|clock)s? (?:tell|tells|told|hear|hears|heard|say|says|said|speaks?|knows?|believes?|wants?)\b",
        ),
        Rule::new("under way: pending", r"\bunder way\b"),
        Rule::new("is over: expired, ended", r"\b(?:is|are|was|were|be) over\b"),
        Rule::new("at the most, at the latest", r"\bat the (?:most|least|latest|earliest)\b"),
        Rule::new("let go: release", r"\blets? go\b|\bletting go\b"),
        Rule::new("so many: the number", r"\b[Ss]o (?:many|much|often|long)\b").unless_after(" as"),
        Rule::new(
            "where: if, when",
            r"(?:^|[.;,:] )[Ww]here (?:it|there|that|they|a|an|the|no|one|nobody|none|all|some|others|neither|this|its|we)\b",
        ),
        Rule::new("for: because", r", for (?:it|they|that|there|no|all|what|only|some|then|so)\b"),
        Rule::new("beside: with, alongside", r"\b[Bb]eside\b"),
        Rule::new(
            "anew: again; in vain: unsuccessfully",
            r"\banew\b|\bonce more\b|\bin vain\b|\b[Bb]esides\b|\bat the door\b",
        ),
        Rule::new(
            "of its own",
            r"\bof (?:ours|theirs|yours|redbolt's|its own|their own|our own)\b",
        ),
        Rule::new("mend: fix", r"\bmend"),
        Rule::new("somebody: a client", r"\b(?:[Ss]omebody|[Nn]obody|[Aa]nybody|[Ee]verybody)\b"),
        Rule::new("Not here, Apart from", r"\bNot here:|\bApart from\b"),
        Rule::new("begins with Of or The same", r"^(?:Of |The same\b)"),
        Rule::new("is no: is not a", r"\b(?:is|are|was|were) (?:no|none)\b")
            .unless_before("[Tt]here ")
            .unless_after(r" (?:longer|more|less|later|earlier|better)"),
    ]
});

static COMMENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:///|//!|//|--|\*|/\*\*?)\s?(.*)$").unwrap());
static LITERAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""((?:[^"\\]|\\.)*)""#).unwrap());
static PLACE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{[^}]*\}").unwrap());
static TEST_NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:async )?fn ([a-z0-9]+(?:_[a-z0-9]+){3,})\(\)").unwrap());

/// The most hits that a failure lists.
const SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_its_phrase_and_excuses_what_is_common_english() {
        let rules = |text: &str| hits(text).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
        assert_eq!(
            rules("The wait is over: nobody holds it."),
            ["is over: expired, ended", "somebody: a client"]
        );
        assert_eq!(rules("What it returns"), ["a clause as the subject"]);
        assert_eq!(rules("What does it return?"), [""; 0]);
        assert_eq!(
            rules("It is no lock. There is no lock. It is no longer held."),
            ["is no: is not a"]
        );
        assert_eq!(rules("So many as there are, so many"), ["so many: the number"]);
    }

    #[test]
    fn comments_literals_and_names_of_tests_are_read() {
        let text = "/// Of a lock.\n/// ```\n/// nobody(\"is read\");\n/// ```\nfn a_lock_is_over_soon() {\n    let text = \"nobody has {x} here\"; // held\n}\n";
        let mut prose = Prose::default();
        prose.read("src/a.rs", text);
        let lines: Vec<_> = prose.hits.iter().map(|hit| hit.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "5", "6"], "{prose}");
    }

    #[test]
    fn long_lines_of_prose_are_found_and_tables_are_not() {
        let long = "x ".repeat(60);
        assert_eq!(
            long_lines(&format!("/// short\n// {long}\nlet {long}\n/// | {long}\n"), 100),
            [2]
        );
    }
}

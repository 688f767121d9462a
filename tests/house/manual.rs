//! Checks the manual and the other pages for people: links, and names of files and items. The
//! doctests compile the snippets, and the tests of `redbolt-cli` run the commands.

use std::collections::{BTreeMap, BTreeSet};

/// A Markdown page, without its code blocks.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    /// The path from the root.
    pub(crate) file: &'a str,
    prose: String,
    /// The text without its code spans.
    words: String,
}

impl<'a> Page<'a> {
    pub(crate) fn new(file: &'a str, text: &str) -> Self {
        let mut in_code = false;
        let is_prose = |line: &&str| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        };
        let prose = text.lines().filter(is_prose).collect::<Vec<_>>().join("\n");
        let words = prose.split('`').step_by(2).collect();
        Self { file, prose, words }
    }

    /// Returns the anchors of its headings, as forges and rustdoc form them.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let headings = self.prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| slug(line.trim_start_matches('#'))).collect()
    }

    /// Returns the links to files and headings of the repository: `[text](target)`, and `[label]:
    /// target`.
    pub(crate) fn targets(&self) -> Vec<&str> {
        let inline = self.words.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let all = inline.map(|(target, _)| target).chain(self.definitions().into_values());
        all.filter(|target| !target.contains("://")).collect()
    }

    /// Returns the targets of link labels.
    pub(crate) fn definitions(&self) -> BTreeMap<&str, &str> {
        let lines = self.prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
        lines.collect()
    }

    /// Returns the labels that are used, `[text][label]`, but not defined.
    pub(crate) fn undefined(&self) -> Vec<&str> {
        let known = self.definitions();
        let used = self.words.split("][").skip(1).filter_map(|rest| rest.split_once(']'));
        used.map(|(label, _)| label).filter(|label| !known.contains_key(label)).collect()
    }

    /// Returns the code spans that name an item of Rust: `Type::item`, `item()` or `LongType`.
    pub(crate) fn items(&self) -> Vec<&str> {
        let code = self.prose.split('`').skip(1).step_by(2);
        let is_path = |span: &&str| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let name = span.split('(').next().unwrap_or_default();
            let humps = name.chars().filter(|c| c.is_uppercase()).count();
            let is_type = name.starts_with(|c: char| c.is_uppercase())
                && (2..name.len()).contains(&humps)
                && !name.contains('_');
            let is_item = span.ends_with("()") || name.contains("::") || is_type;
            name.chars().all(is_word) && is_item
        };
        code.filter(is_path).collect()
    }

    /// Returns the broken links. `pages` are all pages, and `is_there` checks for the other files.
    pub(crate) fn broken(
        &self,
        pages: &[Page<'_>],
        is_there: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut broken: Vec<String> = self.undefined().into_iter().map(str::to_owned).collect();
        for target in self.targets() {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path =
                if path.is_empty() { self.file.to_owned() } else { resolved(self.file, path) };
            let page = pages.iter().find(|page| page.file == path);
            let is_heading = || page.is_some_and(|page| page.anchors().contains(anchor));
            if !is_there(&path) || !(anchor.is_empty() || is_heading()) {
                broken.push(target.to_owned());
            }
        }
        broken.into_iter().map(|target| format!("{}: {target}", self.file)).collect()
    }
}

/// Returns `true` if the last part of such a name is a function, a field or a type or variant of
/// these sources.
pub(crate) fn is_item(span: &str, source: &str) -> bool {
    let path = span.split('(').next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    let is_function = || ["(", "<"].iter().any(|end| source.contains(&format!("fn {name}{end}")));
    let is_field = || source.contains(&format!("pub {name}: "));
    let is_module = || source.contains(&format!("mod {name};"));
    let is_type =
        || source.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name);
    match name.starts_with(|c: char| c.is_uppercase()) {
        true => is_type(),
        false => is_function() || (!span.ends_with("()") && (is_field() || is_module())),
    }
}

/// Converts a path relative to a file to one from the root.
fn resolved(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn slug(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let letters = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the code blocks of a page, each with its info string.
pub(crate) fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks
        .map(|block| {
            let mut lines = block.lines();
            (lines.next().unwrap_or_default(), lines.collect())
        })
        .collect()
}

/// Returns the files with this ending that a text names, with or without folders.
pub(crate) fn files_named<'t>(text: &'t str, ending: &str) -> BTreeSet<&'t str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)));
    let words = words.map(|word| word.trim_matches('.'));
    words.filter(|word| word.len() > ending.len() && word.ends_with(ending)).collect()
}

/// Returns `true` if a name such as `models/extend.rs` means this file, possibly with folders left
/// out.
pub(crate) fn is_way_to(name: &str, file: &str) -> bool {
    let mut folders: Vec<&str> = file.split('/').collect();
    let is_same = folders.pop() == name.rsplit('/').next();
    let mut folders = folders.into_iter();
    let mut wanted = name.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev();
    is_same && wanted.all(|wanted| folders.any(|folder| folder == wanted))
}

/// Returns the link definition for rustdoc that has the same target as a label of the manual. All
/// evidence is one empty module there.
pub(crate) fn for_rustdoc(label: &str, target: &str) -> String {
    if target.contains("evidence/") {
        return format!("[{label}]: crate::manual::evidence");
    }
    let (page, anchor) = label.split_once('#').map_or((label, None), |(page, at)| (page, Some(at)));
    let page = page.replace('-', "_").to_lowercase();
    let anchor = anchor.map_or(String::new(), |anchor| format!("#{anchor}"));
    format!("[{label}]: crate::manual::{page}{anchor}")
}

/// Returns the faults of a figure in SVG: it needs a title and a description, for readers who
/// cannot see it, and its tags must match.
pub(crate) fn faults_of_figure(svg: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for needed in ["<title", "<desc"] {
        if !(svg.starts_with("<svg ") && svg.contains(needed)) {
            faults.push(format!("no <svg> with {needed}>"));
        }
    }
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or((tag, ""));
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
        if tag.starts_with('/') && open.pop() != Some(name) {
            faults.push(format!("</{name}> ends another tag"));
        } else if !tag.starts_with('/') && !tag.ends_with('/') {
            open.push(name);
        }
    }
    faults.extend(open.into_iter().map(|name| format!("<{name}> does not end")));
    faults
}

mod tests {
    use super::*;

    const TEXT: &str = "# A page\n[one](b.md#two), [three][c]\n```sh\n# no [x](y)\n```\n## Two: `it`\n[c]: ../c.md\n";

    #[test]
    fn links_and_headings_of_a_page_are_found() {
        let page = Page::new("docs/a.md", TEXT);
        assert_eq!(page.anchors(), ["a-page", "two-it"].map(str::to_owned).into());
        assert_eq!(page.targets(), ["b.md#two", "../c.md"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let pages =
            [Page::new("docs/a.md", TEXT), Page::new("docs/b.md", "# Two\n[x](gone.md) [y][z]")];
        let there = |path: &str| ["docs/a.md", "docs/b.md"].contains(&path);
        assert_eq!(pages[0].broken(&pages, there), ["docs/a.md: ../c.md"]);
        assert_eq!(pages[1].broken(&pages, there), ["docs/b.md: z", "docs/b.md: gone.md"]);
        let wrong = [Page::new("a.md", "[a](b.md#three) [b](#gone)"), Page::new("b.md", "# Two")];
        assert_eq!(wrong[0].broken(&wrong, |_| true), ["a.md: b.md#three", "a.md: #gone"]);
    }

    #[test]
    fn items_are_found() {
        let page = Page::new(
            "a.md",
            "`A::b` and `c()`, `D::e(f)`, `AbCd`, not `g`, `h i::j`, `DEL` or\n```rust\n`k()`\n```\n",
        );
        assert_eq!(page.items(), ["A::b", "c()", "D::e(f)", "AbCd"]);
        let source = "struct A { pub f: u8 } impl A { fn b(self) {} }";
        let known = |item: &&&str| is_item(item, source);
        assert_eq!(["A::b", "b()", "A::f", "f()", "A::c", "x::A"].iter().filter(known).count(), 4);
    }

    #[test]
    fn blocks_are_found_with_their_kind() {
        assert_eq!(blocks(TEXT), [("sh", vec!["# no [x](y)"])]);
        assert_eq!(
            blocks("a\n```\nb\nc\n```\n\n```text\n```\n"),
            [("", vec!["b", "c"]), ("text", vec![])]
        );
    }

    #[test]
    fn faults_of_figures_are_found() {
        let figure = "<svg a=\"b\"><title>t</title><desc>d</desc><g><path/></g></svg>";
        assert_eq!(faults_of_figure(figure), [""; 0]);
        assert_eq!(
            faults_of_figure(&figure.replace("<desc>d</desc>", "")),
            ["no <svg> with <desc>"]
        );
        assert_eq!(faults_of_figure(&figure.replace("</g>", "")).len(), 2);
        assert_eq!(faults_of_figure(&figure.replace("</svg>", "")), ["<svg> does not end"]);
    }

    #[test]
    fn named_files_are_found() {
        let named = files_named("see DESIGN.md. Or (docs/a.md), not .md", ".md");
        assert_eq!(named, ["DESIGN.md", "docs/a.md"].into());
        assert!(is_way_to("models/extend.rs", "crates/models/tests/extend.rs"));
        assert!(is_way_to("extend.rs", "crates/models/tests/extend.rs"));
        assert!(!is_way_to("core/extend.rs", "crates/models/tests/extend.rs"));
        assert!(!is_way_to("models/extended.rs", "crates/models/tests/extend.rs"));
    }
}

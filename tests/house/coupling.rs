//! Measures how coupled the protocol's parts are: calls between them, fields open to other modules,
//! and the lengths of functions.
//!
//! `cargo xtask coupling` prints the counts, of this tree or of another one. They are computed from
//! tokens, so that formatting changes little, and without test code. The limits are in
//! `tests/house.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::{Range, RangeInclusive},
};

use proc_macro2::{TokenStream, TokenTree};

use super::call_graph::CallGraph;

/// The counts of the files of `src`.
#[derive(Debug, Default)]
pub(crate) struct Coupling {
    /// The functions that do not fit a screen, as `file: name, lines`.
    pub(crate) long: Vec<String>,
    /// The calls of the core's methods from one of its files to another, by pair of files. The hub
    /// is left out: it routes calls, and has the helpers that all of them use.
    pub(crate) calls: BTreeMap<(String, String), usize>,
    /// The functions that a subject of the core shows to the others, by subject.
    pub(crate) shown: BTreeMap<String, usize>,
    /// The number of `x.active.`: accesses to a lock's active state from outside the lock.
    pub(crate) reaches: usize,
    /// The number of `let Some(..) = .. else`.
    pub(crate) look_ups: usize,
    /// The fields that are visible in a module above, by type.
    pub(crate) open_fields: BTreeMap<String, usize>,
    pub(crate) lines: BTreeMap<String, usize>,
    /// The methods of `Core` and their calls, with the hub.
    pub(crate) graph: CallGraph,
    /// The number of lines with code that ships.
    pub(crate) code_lines: usize,
}

impl Coupling {
    /// Counts in files, given with their texts.
    pub(crate) fn of<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut coupling = Self::default();
        let (mut core, mut of_core) = (Vec::new(), Vec::new());
        for (file, text) in files {
            if file.ends_with(".lua") {
                coupling.code_lines += text.lines().filter(|line| is_code(line, "--")).count();
                continue;
            }
            let code = Code::of(file, text);
            let shipped = text.lines().enumerate().filter(|(at, _)| !code.is_of_tests(at + 1));
            // `growth` is a module for tests in a separate file.
            if file != GROWTH {
                coupling.code_lines += shipped.filter(|(_, line)| is_code(line, "//")).count();
            }
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            *coupling.lines.entry(folder.to_owned()).or_default() += text.lines().count();
            coupling.long.extend(code.long_functions(file));
            if file.starts_with("src/proto/") {
                coupling.reaches +=
                    code.count(|it| matches!(it, [of, ".", "active", ".", ..] if *of != "self"));
                coupling.look_ups += code.look_ups();
                for (name, fields) in code.open_fields() {
                    *coupling.open_fields.entry(name).or_default() += fields;
                }
            }
            let name = file.strip_prefix(CORE);
            of_core.extend(name.filter(|_| file != GROWTH).map(|name| (name, code.clone())));
            if let Some(name) = name.filter(|name| !HUB.contains(name)) {
                if let Some((subject, rest)) = name.split_once('/') {
                    let shown = code.shown(rest == "mod.rs");
                    *coupling.shown.entry(subject.to_owned()).or_default() += shown;
                }
                core.push((name.trim_end_matches(".rs").to_owned(), code));
            }
        }
        coupling.calls = calls(&core);
        coupling.graph = CallGraph::of(of_core.iter().map(|(name, code)| (*name, code)));
        coupling
    }

    pub(crate) fn call_count(&self) -> usize {
        self.calls.values().sum()
    }

    /// Returns the calls between subjects, by pair. A subject is a folder of the core, or a file
    /// next to the folders.
    pub(crate) fn subject_calls(&self) -> BTreeMap<(&str, &str), usize> {
        let mut calls = BTreeMap::new();
        for ((from, to), count) in &self.calls {
            let [from, to] = [from, to].map(|file| file.split('/').next().unwrap_or(file));
            if from != to {
                *calls.entry((from, to)).or_default() += count;
            }
        }
        calls
    }

    /// Returns the pairs of subjects that call each other, with the calls in each direction.
    pub(crate) fn mutual(&self) -> Vec<(&str, &str, [usize; 2])> {
        let calls = self.subject_calls();
        let pairs = calls.iter().filter(|((from, to), _)| from < to);
        let both = pairs.filter_map(|(&(from, to), there)| {
            let back = calls.get(&(to, from))?;
            Some((from, to, [*there, *back]))
        });
        both.collect()
    }

    /// Returns the subjects from which calls lead back to themselves.
    pub(crate) fn in_circles(&self) -> BTreeSet<&str> {
        let calls = self.subject_calls();
        let mut left: BTreeSet<(&str, &str)> = calls.into_keys().collect();
        loop {
            let before = left.len();
            let called: BTreeSet<&str> = left.iter().map(|&(_, to)| to).collect();
            let calling: BTreeSet<&str> = left.iter().map(|&(from, _)| from).collect();
            left.retain(|(from, to)| called.contains(from) && calling.contains(to));
            if left.len() == before {
                return left.into_iter().map(|(from, _)| from).collect();
            }
        }
    }

    pub(crate) fn shown_count(&self) -> usize {
        self.shown.values().sum()
    }

    pub(crate) fn open_field_count(&self) -> usize {
        self.open_fields.values().sum()
    }
}

impl fmt::Display for Coupling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |count: usize, what: &str| writeln!(f, "{count:>6}  {what}");
        row(self.long.len(), "functions of more than 40 lines in src")?;
        row(self.call_count(), "calls between files of the core")?;
        row(self.calls.len(), "ordered pairs of its files with such calls")?;
        let subjects = self.subject_calls();
        row(subjects.values().sum(), "calls between subjects of the core, which are its folders")?;
        row(subjects.len(), "ordered pairs of subjects with such calls")?;
        let mutual = self.mutual();
        row(mutual.len(), "of them mutual, counted as pairs")?;
        for (one, other, [there, back]) in mutual {
            row(there + back, &format!("  {one} and {other}: {there} calls there, {back} back"))?;
        }
        row(self.in_circles().len(), "subjects in circles of calls")?;
        row(self.graph.method_count(), "methods of `Core`, with the hub")?;
        row(self.graph.in_cycles(), "subjects in cycles of calls, with the hub")?;
        for cycle in self.graph.cycles() {
            row(cycle.len(), &format!("  {}", Vec::from_iter(cycle).join(", ")))?;
        }
        row(self.graph.largest_recursion(), "methods in the largest recursion, with the hub")?;
        for recursion in self.graph.recursions() {
            row(recursion.len(), &format!("  {}", Vec::from_iter(recursion).join(", ")))?;
        }
        row(self.graph.silent_returns(), "silent returns in methods of `Core`")?;
        row(self.code_lines, "lines of code in src, without tests, comments and blank lines")?;
        row(self.shown_count(), "functions that subjects show to one another")?;
        for (subject, shown) in &self.shown {
            row(*shown, &format!("  {subject}"))?;
        }
        row(self.reaches, "accesses to `.active.` in src/proto, by others than `self`")?;
        row(self.look_ups, "`let Some(..) = .. else` in src/proto")?;
        row(self.open_field_count(), "fields in src/proto that are open to a module above")?;
        for (name, fields) in &self.open_fields {
            row(*fields, &format!("  {name}"))?;
        }
        for (folder, lines) in &self.lines {
            row(*lines, &format!("lines in {folder}"))?;
        }
        self.long.iter().try_for_each(|long| writeln!(f, "long: {long}"))
    }
}

/// Returns the calls between these files, found by the names of the methods of `Core` that each
/// defines.
fn calls(files: &[(String, Code)]) -> BTreeMap<(String, String), usize> {
    let mut homes = BTreeMap::new();
    for (file, code) in files {
        homes.extend(code.core_methods().into_iter().map(|method| (method, file)));
    }
    let mut calls = BTreeMap::new();
    for (file, code) in files {
        for called in code.core_calls() {
            if let Some(home) = homes.get(&called).filter(|home| **home != file) {
                *calls.entry((file.clone(), (*home).clone())).or_default() += 1;
            }
        }
    }
    calls
}

/// Returns `true` if the line has more than a comment that begins like this.
fn is_code(line: &str, comment: &str) -> bool {
    !line.trim().is_empty() && !line.trim().starts_with(comment)
}

/// The tokens of a file with their lines, without test code.
#[derive(Clone, Default)]
pub(crate) struct Code {
    pub(crate) words: Vec<String>,
    lines: Vec<usize>,
    /// The lines of test code.
    tests: Vec<RangeInclusive<usize>>,
}

impl Code {
    pub(crate) fn of(file: &str, text: &str) -> Self {
        let tokens: TokenStream =
            text.parse().unwrap_or_else(|error| panic!("{file} is not Rust: {error}"));
        let mut code = Self::default();
        code.take(tokens);
        code.without_tests()
    }

    fn take(&mut self, tokens: TokenStream) {
        for token in tokens {
            let TokenTree::Group(group) = token else {
                self.push(token.to_string(), token.span().start().line);
                continue;
            };
            let whole = group.to_string();
            let ends = (whole.chars().next(), whole.chars().last());
            self.push(ends.0.map(String::from).unwrap_or_default(), group.span_open().start().line);
            self.take(group.stream());
            self.push(ends.1.map(String::from).unwrap_or_default(), group.span_close().end().line);
        }
    }

    fn push(&mut self, word: String, line: usize) {
        self.words.push(word);
        self.lines.push(line);
    }

    /// Removes each item under `#[cfg(test)]`, up to the end of its block, or to its semicolon.
    fn without_tests(self) -> Self {
        let mut shipped = Self::default();
        let mut at = 0;
        while at < self.words.len() {
            if self.from(at).starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                let item = at + 7;
                let end = (item..self.words.len()).find(|&at| matches!(self.word(at), ";" | "{"));
                let next = end.map_or(self.words.len(), |end| self.closed(end) + 1);
                shipped.tests.push(self.lines[at]..=self.lines[next - 1]);
                at = next;
            } else {
                shipped.push(self.words[at].clone(), self.lines[at]);
                at += 1;
            }
        }
        shipped
    }

    fn is_of_tests(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }

    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Returns the next few tokens.
    pub(crate) fn from(&self, at: usize) -> [&str; 7] {
        std::array::from_fn(|next| self.word(at + next))
    }

    fn count(&self, is: impl Fn(&[&str]) -> bool) -> usize {
        (0..self.words.len()).filter(|&at| is(&self.from(at))).count()
    }

    /// Returns the closing bracket of the one at `open`, or `open` if no bracket is there.
    pub(crate) fn closed(&self, open: usize) -> usize {
        let mut depth = 0;
        for at in open..self.words.len() {
            match self.word(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        self.words.len() - 1
    }

    /// Returns the first of these tokens from `at` on that is outside brackets.
    pub(crate) fn next(&self, mut at: usize, wanted: &[&str]) -> Option<usize> {
        while at < self.words.len() && !wanted.contains(&self.word(at)) {
            at = self.closed(at) + 1;
        }
        (at < self.words.len()).then_some(at)
    }

    /// Returns the names of functions in these tokens, and where they begin.
    pub(crate) fn functions(&self, within: Range<usize>) -> impl Iterator<Item = (usize, &str)> {
        let is_name = |name: &str| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let all = within.filter(|&at| self.word(at) == "fn").map(|at| (at, self.word(at + 1)));
        all.filter(move |(_, name)| is_name(name))
    }

    fn long_functions(&self, file: &str) -> Vec<String> {
        let mut long = Vec::new();
        for (at, name) in self.functions(0..self.words.len()) {
            let Some(body) = self.next(at, &["{", ";"]).filter(|&at| self.word(at) == "{") else {
                continue;
            };
            let lines = self.lines[self.closed(body)] - self.lines[at] + 1;
            if lines > SCREEN {
                long.push(format!("{file}: {name}, {lines}"));
            }
        }
        long
    }

    fn blocks_of_core(&self) -> impl Iterator<Item = Range<usize>> {
        let heads =
            (0..self.words.len()).filter(|&at| self.from(at).starts_with(&["impl", "Core", "{"]));
        heads.map(|at| at + 2..self.closed(at + 2))
    }

    fn core_methods(&self) -> BTreeSet<String> {
        let all = self.blocks_of_core().flat_map(|block| self.functions(block));
        all.map(|(_, name)| name.to_owned()).collect()
    }

    /// Returns the names of the methods called on a core.
    fn core_calls(&self) -> Vec<String> {
        let mut calls = Vec::new();
        for at in self.blocks_of_core().flatten() {
            match self.from(at) {
                ["self" | "core", ".", name, "(", ..] | ["Self", ":", ":", name, "(", ..] => {
                    calls.push(name.to_owned());
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns how many functions others can call: in the `mod.rs` of a folder those that `super`
    /// sees, in its other files those that are visible outside the folder.
    fn shown(&self, in_mod: bool) -> usize {
        let view = |at: usize| match self.from(at) {
            ["pub", "(", view, ..] => Some(view),
            _ => None,
        };
        let is_fn = |at: usize| matches!(self.word(self.closed(at + 1) + 1), "fn" | "const");
        let is_shown = |view| if in_mod { view == "super" } else { matches!(view, "crate" | "in") };
        let all = 0..self.words.len();
        all.filter(|&at| view(at).is_some_and(is_shown) && is_fn(at)).count()
    }

    fn look_ups(&self) -> usize {
        let begins = |at: &usize| {
            let is_condition = *at > 0 && matches!(self.word(at - 1), "if" | "while" | "&");
            self.from(*at).starts_with(&["let", "Some", "("]) && !is_condition
        };
        let ends = |at: usize| self.next(at, &[";", "else"]);
        let all = (0..self.words.len()).filter(begins);
        all.filter(|&at| ends(at).is_some_and(|end| self.word(end) == "else")).count()
    }

    /// Returns the types with fields that a module above may access, and how many.
    fn open_fields(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for at in (0..self.words.len()).filter(|&at| self.word(at) == "struct") {
            let Some(body) = self.next(at, &["{", "(", ";"]) else { continue };
            let mut at_field = body + 1;
            let (end, mut open) = (self.closed(body), 0);
            while at_field < end {
                open += usize::from(self.from(at_field).starts_with(&["pub", "("]));
                at_field = self.closed(at_field) + 1;
            }
            if open > 0 {
                found.push((self.word(at + 1).to_owned(), open));
            }
        }
        found
    }
}

/// The most lines of a function that fit a screen.
const SCREEN: usize = 40;

const CORE: &str = "src/proto/core/";
const GROWTH: &str = "src/proto/core/growth.rs";

/// The files that route between subjects, and from callers to them.
const HUB: [&str; 6] =
    ["mod.rs", "answer.rs", "commands.rs", "routes.rs", "timeouts.rs", "transition.rs"];

mod tests {
    use super::*;

    fn of(text: &str) -> Coupling {
        Coupling::of([("src/proto/core/one.rs", text)])
    }

    #[test]
    fn calls_from_file_to_file_are_counted_and_those_to_the_hub_are_not() {
        let one =
            "impl Core { fn a(&self) { self.b(); self.hub(); self.a2(); x.b(); } fn a2() {} }";
        let two = "impl Core { fn b(&self) { Self::a2(); iter(|core: &Self| core.a()); } }
            impl Other { fn c(&self) { self.a() } }";
        let hub = "impl Core { fn hub(&self) { self.a() } }";
        let files = ["one", "two", "mod"].map(|name| format!("{CORE}{name}.rs"));
        let coupling = Coupling::of(files.iter().map(String::as_str).zip([one, two, hub]));
        assert_eq!(coupling.call_count(), 3, "{:?}", coupling.calls);
        assert_eq!((coupling.calls.len(), coupling.mutual().len()), (2, 1));
        assert_eq!(coupling.in_circles(), ["one", "two"].into());
    }

    #[test]
    fn a_circle_of_calls_may_have_more_than_two_in_it() {
        let calls =
            |of: &str, called: &str| format!("impl Core {{ fn {of}() {{ self.{called}() }} }}");
        let files = ["a", "b", "c", "before", "behind"].map(|name| format!("{CORE}{name}.rs"));
        let texts = [("a", "b"), ("b", "c"), ("c", "a"), ("before", "a"), ("behind", "none")];
        let texts = texts.map(|(of, called)| calls(of, called));
        let coupling =
            Coupling::of(files.iter().zip(&texts).map(|(f, t)| (f.as_str(), t.as_str())));
        assert_eq!((coupling.mutual().len(), coupling.in_circles()), (0, ["a", "b", "c"].into()));
    }

    #[test]
    fn a_folder_is_one_subject() {
        let one = "impl Core { fn a(&self) { self.b() } pub(super) fn c() { self.d() } }";
        let rest =
            "impl Core { pub(super) fn b(&self) { self.d() } pub(in crate::proto) fn e() {} }";
        let other = "impl Core { pub fn d(&self) {} }";
        let files = ["one/mod", "one/rest", "two/mod"].map(|name| format!("{CORE}{name}.rs"));
        let coupling = Coupling::of(files.iter().map(String::as_str).zip([one, rest, other]));
        assert_eq!((coupling.call_count(), coupling.calls.len()), (3, 3));
        assert_eq!(coupling.subject_calls(), [(("one", "two"), 2)].into());
        assert!(coupling.in_circles().is_empty());
        assert_eq!((coupling.shown["one"], coupling.shown["two"]), (2, 0));
    }

    #[test]
    fn the_length_of_a_function_includes_its_head_and_brace() {
        let function = |lines: usize| {
            format!("#[inline]\nfn f()\n{}}}", "{\n".replace('\n', &"\n".repeat(lines - 2)))
        };
        assert_eq!(of(&function(SCREEN)).long, [""; 0]);
        assert_eq!(of(&function(SCREEN + 1)).long, ["src/proto/core/one.rs: f, 41"]);
        let in_tests = format!("#[cfg(test)]\nmod tests {{ {} }}", function(SCREEN + 1));
        assert_eq!(of(&in_tests).long, [""; 0]);
        let next =
            format!("trait T {{ fn f(); }}\nfn g() {{}} type F = fn();{}", "\n".repeat(SCREEN));
        assert_eq!(of(&next).long, [""; 0]);
    }

    #[test]
    fn lines_of_code_are_neither_blank_nor_comments_nor_tests() {
        let text = "//! a\n\nfn f() {\n    // b\n    c(\"\n\n//d\n\"); // e\n}\n#[cfg(test)]\nmod tests {\n}\n";
        let files = [("src/a.rs", text), ("src/b.lua", "-- a\nb()\n\n"), (GROWTH, "fn f() {}")];
        assert_eq!(Coupling::of(files).code_lines, 5);
    }

    #[test]
    fn look_ups_end_in_else() {
        let text =
            "fn f() { let Some(a) = b.c(|| { 1 }) else { return }; let Some(a) = b else { c };
            if let Some(a) = b { c } else { d } if x && let Some(a) = b { c } else { d }
            let Ok(a) = b else { return }; }";
        assert_eq!(of(text).look_ups, 2);
    }

    #[test]
    fn open_fields_are_those_with_a_wider_visibility() {
        let text = "struct A { a: u8, pub(super) b: (u8, u8), #[x] pub(in crate::proto) c: u8 }
            struct B(pub(super) u8, u8); struct C; pub struct D { pub e: u8 }
            fn f() { a.active.b = c.active + self.active.d; }";
        let coupling = of(text);
        let expected = [("A".to_owned(), 2), ("B".to_owned(), 1)];
        assert_eq!(coupling.open_fields, expected.into());
        assert_eq!((coupling.open_field_count(), coupling.reaches), (3, 1));
    }
}

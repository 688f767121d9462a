//! A source file as the rules see it: the identifiers it uses and the paths it names, also inside
//! macros. Comments and literals are not code and contain neither. An alias for a module hides
//! nothing, because the path that defines the alias is found.

use std::{collections::BTreeSet, fs, path::Path};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A source file.
pub(crate) struct Source {
    /// The path from the root of the repository.
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) paths: Vec<Named>,
    pub(crate) words: Vec<Word>,
}

/// A path. Paths into our own crate begin with `crate`, however they were written; those into
/// `core` and `alloc` begin with `std`, which has the same items.
pub(crate) struct Named {
    pub(crate) path: String,
    pub(crate) place: Place,
    pub(crate) imported: bool,
    /// `true` if it is the module of a `pub(in ..)`, and so not an item.
    pub(crate) is_visibility: bool,
}

/// An identifier.
pub(crate) struct Word {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// `true` if it is the name of a called macro.
    pub(crate) called: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) line: usize,
    /// `true` if it is compiled for tests only.
    pub(crate) in_tests: bool,
}

impl Source {
    pub(crate) fn read(root: &Path, file: &str) -> Self {
        Self::parse(file, fs::read_to_string(root.join(file)).unwrap())
    }

    pub(crate) fn parse(file: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        let tokens: TokenStream =
            text.parse().unwrap_or_else(|error| panic!("{file} is not Rust: {error}"));
        let mut reader = Reader {
            module: module_of(file),
            in_tests: file.split(['/', '.']).any(|part| part == "tests"),
            in_visibility: false,
            paths: Vec::new(),
            words: Vec::new(),
        };
        reader.read(tokens);
        Self { file: file.to_owned(), text, paths: reader.paths, words: reader.words }
    }
}

/// Returns all `.rs` files below these folders, which must exist.
pub(crate) fn files_below(root: &Path, folders: &[&str]) -> BTreeSet<String> {
    files_below_ending(root, folders, &[".rs"])
}

pub(crate) fn files_below_ending(
    root: &Path,
    folders: &[&str],
    endings: &[&str],
) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}")) {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                files.extend(files_below_ending(root, &[&name], endings));
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                files.insert(name);
            }
        }
    }
    files
}

/// Returns the module of a file: `src/proto/lease.rs` is `crate::proto::lease`.
pub(crate) fn module_of(file: &str) -> Vec<String> {
    let inner = file.split_once("src/").map_or("", |(_, inner)| inner);
    let parts = inner.trim_end_matches(".rs").split('/');
    let parts = parts.filter(|part| !matches!(*part, "" | "lib" | "main" | "mod"));
    ["crate"].into_iter().chain(parts).map(str::to_owned).collect()
}

struct Reader {
    module: Vec<String>,
    in_tests: bool,
    in_visibility: bool,
    paths: Vec<Named>,
    words: Vec<Word>,
}

impl Reader {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let [first, after @ ..] = rest {
            rest = match first {
                TokenTree::Punct(_) if is_for_tests(rest) => self.tests(&rest[2..]),
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    after
                }
                TokenTree::Ident(_) => self.ident(rest),
                _ => after,
            };
        }
    }

    /// Skips an item under `#[cfg(test)]`, up to the end of its block, or to its semicolon.
    fn tests<'t>(&mut self, item: &'t [TokenTree]) -> &'t [TokenTree] {
        let last = item.iter().position(|token| is_block(token) || is_punct(Some(token), ';'));
        let (item, rest) = item.split_at(last.map_or(item.len(), |last| last + 1));
        let outside = std::mem::replace(&mut self.in_tests, true);
        self.read(item.iter().cloned().collect());
        self.in_tests = outside;
        rest
    }

    /// Reads what begins with an identifier: an import, a module, a path, or a word.
    fn ident<'t>(&mut self, tokens: &'t [TokenTree]) -> &'t [TokenTree] {
        let name = tokens[0].to_string();
        match (name.as_str(), tokens) {
            ("pub", [_, TokenTree::Group(module), rest @ ..])
                if module.delimiter() == Delimiter::Parenthesis =>
            {
                self.in_visibility = true;
                self.read(module.stream());
                self.in_visibility = false;
                rest
            }
            // `use<'a>` in a signature does not import.
            ("use", [_, after @ ..]) if !is_punct(after.first(), '<') => {
                let end = after.iter().position(|token| is_punct(Some(token), ';'));
                let (tree, rest) = after.split_at(end.unwrap_or(after.len()));
                self.imports(tree, &[]);
                rest
            }
            ("mod", [_, TokenTree::Ident(name), TokenTree::Group(body), rest @ ..]) => {
                self.module.push(name.to_string());
                self.read(body.stream());
                self.module.pop();
                rest
            }
            _ => self.path(tokens),
        }
    }

    fn path<'t>(&mut self, tokens: &'t [TokenTree]) -> &'t [TokenTree] {
        let mut path = Vec::new();
        let mut rest = tokens;
        while let [TokenTree::Ident(name), after @ ..] = rest {
            path.push(name.to_string());
            rest = after;
            match after {
                [colon, _, next @ TokenTree::Ident(_), ..] if is_joint_colon(colon) => {
                    self.word(next, is_punct(after.get(3), '!'));
                    rest = &after[2..];
                }
                _ => break,
            }
        }
        self.word(&tokens[0], is_punct(tokens.get(1), '!'));
        if path.len() > 1 {
            self.named(&path, &tokens[0], false);
        }
        rest
    }

    /// Reads one tree of a `use`: `a::{b, c::*}` names `a::b` and `a::c::*`.
    fn imports(&mut self, tree: &[TokenTree], prefix: &[String]) {
        let mut path = prefix.to_vec();
        for token in tree {
            match token {
                TokenTree::Ident(name) if name == "as" => break,
                TokenTree::Ident(name) if name == "self" && !path.is_empty() => {}
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
                TokenTree::Group(group) => {
                    let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                    for branch in branches.split(|token| is_punct(Some(token), ',')) {
                        self.imports(branch, &path);
                    }
                    return;
                }
                _ => {}
            }
        }
        if let [first, ..] = tree {
            self.named(&path, first, true);
        }
    }

    fn named(&mut self, path: &[String], first: &TokenTree, imported: bool) {
        let place = self.place(first);
        let (path, is_visibility) = (self.resolved(path), self.in_visibility);
        self.paths.push(Named { path, place, imported, is_visibility });
    }

    fn word(&mut self, name: &TokenTree, called: bool) {
        let place = self.place(name);
        self.words.push(Word { name: name.to_string(), place, called });
    }

    fn place(&self, token: &TokenTree) -> Place {
        Place { line: token.span().start().line, in_tests: self.in_tests }
    }

    fn resolved(&self, path: &[String]) -> String {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let relative = path.first().is_some_and(|head| head == "self");
        let tail = &path[ups + usize::from(relative)..];
        let head = match path.first().map(String::as_str) {
            Some("self" | "super") => &self.module[..self.module.len().saturating_sub(ups)],
            Some("core" | "alloc") => return format!("std::{}", path[1..].join("::")),
            _ => &[],
        };
        head.iter().chain(tail).map(String::as_str).collect::<Vec<_>>().join("::")
    }
}

fn is_for_tests(tokens: &[TokenTree]) -> bool {
    match tokens {
        [hash, TokenTree::Group(attribute), ..] => {
            is_punct(Some(hash), '#')
                && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
        }
        _ => false,
    }
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_joint_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint)
}

mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::parse("src/proto/core/hold.rs", text);
        source.paths.into_iter().map(|named| named.path).collect()
    }

    #[test]
    fn a_tree_of_imports_names_each_of_its_leaves() {
        let text = "use std::{fmt::{self, Write as _}, io::*}; use crate::net;";
        assert_eq!(paths(text), ["std::fmt", "std::fmt::Write", "std::io::*", "crate::net"]);
    }

    #[test]
    fn relative_paths_are_resolved() {
        let text = "use super::super::net::now; fn f() { self::a::b(); }
            mod inner { use super::Held; }";
        let expected = ["crate::proto::net::now", "crate::proto::core::hold::a::b"];
        let inner = "crate::proto::core::hold::Held";
        assert_eq!(paths(text), [&expected[..], &[inner]].concat());
        let above = Source::parse("src/proto/mod.rs", "use super::net;");
        assert_eq!(above.paths[0].path, "crate::net");
    }

    #[test]
    fn paths_are_seen_in_expressions_types_and_macros() {
        let text = "fn f(at: ::std::time::Instant) { assert!(core::mem::take(&mut x), libc::a()); }
            pub(in crate::proto) struct S(Vec<mio::Token>);";
        let first = ["std::time::Instant", "std::mem::take", "libc::a"];
        assert_eq!(paths(text), [&first[..], &["crate::proto", "mio::Token"]].concat());
    }

    #[test]
    fn a_use_in_a_signature_hides_nothing() {
        assert_eq!(
            paths("fn f() -> impl Sized + use<> { a::b() } fn g() { c::d() }"),
            ["a::b", "c::d"]
        );
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "//! use std::net;\n/// std::fs::read\nconst A: &str = \"std::thread\"; /* a::b */";
        assert_eq!(paths(text), [""; 0]);
    }

    #[test]
    fn words_have_lines_and_calls_of_macros_are_marked() {
        let source = Source::parse("src/lib.rs", "fn f() {\n    unsafe { std::println!() }\n}");
        let word = |name| source.words.iter().find(|word| word.name == name).unwrap();
        assert!(word("unsafe").place.line == 2 && !word("unsafe").called);
        assert!(word("println").called && !word("std").called);
    }

    #[test]
    fn test_code_is_distinguished_from_shipping_code() {
        let text = "#[cfg(test)]\nuse a::b;\n#[cfg(test)]\nmod tests { use c::d; }\nuse e::f;";
        let source = Source::parse("src/lib.rs", text);
        let in_tests: Vec<bool> = source.paths.iter().map(|named| named.place.in_tests).collect();
        assert_eq!(in_tests, [true, true, false]);
        assert!(Source::parse("src/proto/tests.rs", "use a::b;").paths[0].place.in_tests);
    }
}

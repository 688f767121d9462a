//! The call graph of the methods of `Core`, including the hub: cycles of subjects, recursion, and
//! transitions that end silently.
//!
//! A method of `Core` is every function of an `impl` of a type that holds more than two of the
//! core's collections, and every function that takes `&mut Core`. A struct of references to the
//! collections is such a type as well, so that nothing is gained by passing them under another
//! name. The limits are in `tests/house.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::coupling::Code;

#[derive(Debug, Default)]
pub(crate) struct CallGraph {
    methods: BTreeMap<String, Method>,
}

#[derive(Debug)]
struct Method {
    subject: String,
    calls: BTreeSet<String>,
    /// The number of `else { return }`: a look-up has failed, and the transition ends without a
    /// trace.
    silent_returns: usize,
}

impl CallGraph {
    /// Reads the core's files, given by their names below its folder.
    pub(crate) fn of<'c>(files: impl Iterator<Item = (&'c str, &'c Code)> + Clone) -> Self {
        let wide = files.clone().flat_map(|(_, code)| code.wide_types()).collect();
        let mut methods = BTreeMap::new();
        for (file, code) in files {
            for (name, body) in code.methods_of(&wide) {
                let first = file.split('/').next().unwrap_or(file);
                let method = Method {
                    subject: first.trim_end_matches(".rs").to_owned(),
                    calls: code.called_in(body.clone()),
                    silent_returns: code.silent_returns(body),
                };
                methods.insert(name, method);
            }
        }
        let names: BTreeSet<String> = methods.keys().cloned().collect();
        methods.values_mut().for_each(|method| method.calls.retain(|name| names.contains(name)));
        Self { methods }
    }

    pub(crate) fn method_count(&self) -> usize {
        self.methods.len()
    }

    pub(crate) fn silent_returns(&self) -> usize {
        self.methods.values().map(|method| method.silent_returns).sum()
    }

    /// Returns the subjects of each cycle, the largest first.
    pub(crate) fn cycles(&self) -> Vec<BTreeSet<&str>> {
        let mut calls = BTreeMap::<&str, BTreeSet<&str>>::new();
        for method in self.methods.values() {
            let called = calls.entry(&method.subject).or_default();
            called.extend(method.calls.iter().map(|name| &self.methods[name].subject[..]));
            called.remove(&method.subject[..]);
        }
        components(&calls)
    }

    /// Returns the methods of each recursion over more than one, the largest first.
    pub(crate) fn recursions(&self) -> Vec<BTreeSet<&str>> {
        let calls = self.methods.iter().map(|(name, method)| {
            (&name[..], method.calls.iter().map(String::as_str).collect::<BTreeSet<_>>())
        });
        components(&calls.collect())
    }

    pub(crate) fn in_cycles(&self) -> usize {
        self.cycles().iter().map(BTreeSet::len).sum()
    }

    pub(crate) fn largest_recursion(&self) -> usize {
        self.recursions().first().map_or(0, BTreeSet::len)
    }
}

impl Code {
    /// Returns the types that hold more than two of the core's collections, by value or by
    /// reference.
    fn wide_types(&self) -> Vec<String> {
        let mut wide = Vec::new();
        for at in (0..self.words.len()).filter(|&at| self.word(at) == "struct") {
            let Some(body) = self.next(at, &["{", "(", ";"]) else { continue };
            let within = &self.words[body..=self.closed(body)];
            let held = COLLECTIONS.iter().filter(|name| within.iter().any(|word| word == *name));
            if held.count() > 2 {
                wide.push(self.word(at + 1).to_owned());
            }
        }
        wide
    }

    /// Returns the functions in the blocks of these types, and those that take `&mut` of one, each
    /// with its body.
    fn methods_of(&self, wide: &BTreeSet<String>) -> Vec<(String, Range<usize>)> {
        let heads = (0..self.words.len()).filter(|&at| self.word(at) == "impl");
        let blocks = heads.filter_map(|at| {
            let body = self.next(at, &["{"])?;
            let head = &self.words[at..body];
            let is_of = head.iter().any(|word| wide.contains(word));
            (is_of && !head.iter().any(|word| word == "for")).then(|| body..self.closed(body))
        });
        let blocks: Vec<_> = blocks.collect();
        let mut found = Vec::new();
        for (at, name) in self.functions(0..self.words.len()) {
            let Some(body) = self.next(at, &["{", ";"]).filter(|&at| self.word(at) == "{") else {
                continue;
            };
            let is_inside = blocks.iter().any(|block| block.contains(&at));
            let takes = |at: usize| {
                self.from(at).starts_with(&["&", "mut"]) && wide.contains(self.word(at + 2))
            };
            // Only functions that are not methods are called by their name alone.
            match is_inside {
                true => found.push((name.to_owned(), body..self.closed(body))),
                false if (at..body).any(takes) => {
                    found.push((format!("fn {name}"), body..self.closed(body)));
                }
                false => {}
            }
        }
        found
    }

    /// Returns the names of functions called on the core, or by their name alone.
    fn called_in(&self, body: Range<usize>) -> BTreeSet<String> {
        let calls = body.filter_map(|at| match self.from(at) {
            ["self" | "core", ".", name, "(", ..] | ["Self", ":", ":", name, "(", ..] => {
                Some(name.to_owned())
            }
            [before, name, "(", ..] if before != "." && before != ":" => Some(format!("fn {name}")),
            _ => None,
        });
        calls.collect()
    }

    fn silent_returns(&self, body: Range<usize>) -> usize {
        let is_silent = |at: &usize| match self.from(*at) {
            ["else", "{", "return", ";" | "}", ..] => true,
            // A decision to do nothing is silent as well.
            ["else", "{", "return", "Decision", ":", ":", "Continue"] => true,
            _ => false,
        };
        body.filter(is_silent).count()
    }
}

/// Returns the strongly connected components of more than one node, the largest first.
pub(crate) fn components<'n>(
    calls: &BTreeMap<&'n str, BTreeSet<&'n str>>,
) -> Vec<BTreeSet<&'n str>> {
    let reached: BTreeMap<_, _> = calls.keys().map(|&from| (from, reach(calls, from))).collect();
    let mut left: BTreeSet<&str> = calls.keys().copied().collect();
    let mut found = Vec::new();
    while let Some(first) = left.pop_first() {
        let is_back = |name: &&str| reached[first].contains(name) && reached[name].contains(first);
        let mut component: BTreeSet<_> = left.iter().copied().filter(is_back).collect();
        left.retain(|name| !component.contains(name));
        component.insert(first);
        found.extend((component.len() > 1).then_some(component));
    }
    found.sort_by_key(|component| std::cmp::Reverse(component.len()));
    found
}

fn reach<'n>(calls: &BTreeMap<&'n str, BTreeSet<&'n str>>, from: &'n str) -> BTreeSet<&'n str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(name) = left.pop() {
        let called = calls.get(name).into_iter().flatten();
        left.extend(called.filter(|called| reached.insert(**called)));
    }
    reached
}

const COLLECTIONS: [&str; 6] = ["Nodes", "Locks", "Claims", "WaitQueues", "Views", "Observers"];

mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> CallGraph {
        let core = [("mod.rs", "struct Core { nodes: Nodes, locks: Locks, claims: Claims }")];
        let files = files.iter().chain(&core);
        let files: Vec<_> = files.map(|(file, text)| (*file, Code::of(file, text))).collect();
        CallGraph::of(files.iter().map(|(file, code)| (*file, code)))
    }

    #[test]
    fn a_cycle_through_the_hub_is_seen() {
        let graph = of(&[
            ("one/mod.rs", "impl Core { fn a(&mut self) { self.route() } }"),
            ("routes.rs", "impl Core { fn route(&mut self) { self.b(); self.c() } }"),
            ("two.rs", "impl Core { fn b(&mut self) { self.a() } fn c(&self) {} }"),
        ]);
        assert_eq!(graph.cycles(), [["one", "routes", "two"].into()]);
        assert_eq!(graph.recursions(), [["a", "b", "route"].into()]);
        assert_eq!((graph.method_count(), graph.in_cycles(), graph.largest_recursion()), (4, 3, 3));
    }

    #[test]
    fn references_to_more_than_two_collections_count_as_the_core() {
        let pass = "struct Pass<'c> { nodes: &'c mut Nodes, locks: &'c mut Locks, claims: &'c mut Claims }
            impl<'c> Pass<'c> { fn a(&mut self) { b(self) } } fn b(pass: &mut Pass<'_>) { pass.a() }
            struct Two<'c> { nodes: &'c mut Nodes, locks: &'c mut Locks } impl Two<'_> { fn c(&self) {} }
            fn d(core: &mut Core) { core.a() } fn e(core: &Core) {} impl Debug for Core { fn f() {} }";
        let graph = of(&[("one.rs", pass)]);
        assert_eq!(graph.methods.keys().collect::<Vec<_>>(), ["a", "fn b", "fn d"]);
        assert_eq!(graph.largest_recursion(), 0, "a call on another name is not seen");
    }

    #[test]
    fn an_empty_return_is_silent() {
        let text = "impl Core { fn a() { let Some(b) = c else { return }; let Some(b) = c else { return; };
            let Some(b) = c else { return d }; if e { return } else { f }
            let Some(b) = c else { return Decision::Continue }; } }
            impl Node { fn g() { let Some(b) = c else { return }; } }";
        assert_eq!(of(&[("one.rs", text)]).silent_returns(), 3);
    }
}

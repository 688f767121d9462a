//! Cycles of files: files of one crate that import each other, directly or through others.
//!
//! A file imports another one if code that ships names an item of its module, in a `use` or
//! elsewhere. The line `mod child;` imports nothing, nor does the module of a `pub(in ..)`, and an
//! item that a file re-exports is an item of that file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    call_graph::components,
    source::{Named, Source, module_of},
};

/// The imports between the files of one crate.
#[derive(Debug)]
pub(crate) struct Imports<'s>(BTreeMap<&'s str, BTreeSet<&'s str>>);

impl<'s> Imports<'s> {
    pub(crate) fn of(sources: &'s [Source]) -> Self {
        let modules = sources.iter().map(|source| (module(source), source.file.as_str()));
        // The order is reversed, so that `crate` means `lib.rs` even if there is a `main.rs`.
        let modules = modules.rev().collect();
        let imports = |source: &'s Source| (&source.file[..], imported(source, &modules));
        Self(sources.iter().map(imports).collect())
    }

    /// Returns the files of each cycle, the largest first.
    pub(crate) fn cycles(&self) -> Vec<BTreeSet<&str>> {
        components(&self.0)
    }

    pub(crate) fn in_cycles(&self) -> usize {
        self.cycles().iter().map(BTreeSet::len).sum()
    }
}

/// Prints each cycle, file by file, with the files of the cycle that it imports.
impl fmt::Display for Imports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cycle in self.cycles() {
            writeln!(f, "        {} files import each other", cycle.len())?;
            for file in &cycle {
                let imported = self.0[file].intersection(&cycle).map(|file| below_src(file));
                let imported = Vec::from_iter(imported);
                writeln!(f, "          {} -> {}", below_src(file), imported.join(", "))?;
            }
        }
        Ok(())
    }
}

fn below_src(file: &str) -> &str {
    file.split_once("src/").map_or(file, |(_, name)| name)
}

fn module(source: &Source) -> String {
    module_of(&source.file).join("::")
}

fn imported<'s>(source: &Source, modules: &BTreeMap<String, &'s str>) -> BTreeSet<&'s str> {
    let module = module(source);
    let names_item = |named: &&Named| !named.place.in_tests && !named.is_visibility;
    let shipped = source.paths.iter().filter(names_item);
    let homes = shipped.filter_map(|named| match named.path.starts_with("crate") {
        true => home(&named.path, modules),
        // The path may begin with the name of a child.
        false => home(&format!("{module}::{}", named.path), modules),
    });
    homes.filter(|home| **home != *source.file).collect()
}

/// Returns the file of the longest beginning of this path that is a module.
fn home<'s>(mut path: &str, modules: &BTreeMap<String, &'s str>) -> Option<&'s str> {
    loop {
        if let Some(file) = modules.get(path) {
            return Some(file);
        }
        (path, _) = path.rsplit_once("::")?;
    }
}

mod tests {
    use super::*;

    fn shown(files: &[(&str, &str)]) -> String {
        let sources =
            files.iter().map(|(file, text)| Source::parse(&format!("a/src/{file}"), *text));
        Imports::of(&sources.collect::<Vec<_>>()).to_string()
    }

    #[test]
    fn a_parent_and_a_child_that_name_each_other_are_a_cycle() {
        let child = ("one/child.rs", "use super::Shared; fn f(_: Shared) {}");
        for parent in [
            "mod child; struct Shared; pub use self::child::f;",
            "mod child; struct Shared; use child::{f, g};",
            "mod child; struct Shared; fn g() { child::f(Shared) }",
            "mod child; struct Shared; fn g() { crate::one::child::f(Shared) }",
        ] {
            let cycle = "one/child.rs -> one/mod.rs\n          one/mod.rs -> one/child.rs\n";
            assert!(shown(&[child, ("one/mod.rs", parent)]).ends_with(cycle), "{parent}");
        }
        assert_eq!(shown(&[child, ("one/mod.rs", "mod child; struct Shared;")]), "");
    }

    #[test]
    fn a_cycle_leads_over_several_files_and_ends_at_others() {
        let imports = [
            ("lib.rs", "mod a; mod b; mod c; use a::A; use std::a;"),
            ("a.rs", "use crate::{b::{B, Other}, d};"),
            ("b.rs", "fn f() -> super::c::C {}"),
            ("c.rs", "fn f() { a!(crate::a::A) }"),
            ("d.rs", "use redbolt::a;"),
            ("main.rs", "use a::A;"),
        ];
        let cycle = "3 files import each other\n          a.rs -> b.rs\n          b.rs -> c.rs\n          c.rs -> a.rs\n";
        assert_eq!(shown(&imports).trim_start(), cycle);
    }

    #[test]
    fn a_visibility_imports_nothing_and_a_field_of_a_tuple_does() {
        let lib = ("lib.rs", "mod a; mod b; use a::A;");
        let hidden = "pub(in crate::a) struct A; struct B(u8);";
        assert_eq!(shown(&[lib, ("a.rs", hidden)]), "");
        let cycle = "a.rs -> b.rs\n          b.rs -> a.rs\n";
        let a = ("a.rs", "use crate::b::B; pub(in crate::a) struct A(pub(in crate::a) B);");
        let b = ("b.rs", "pub(in crate::b) struct B(pub(in crate::b) Box<crate::a::A>);");
        assert!(shown(&[lib, a, b]).ends_with(cycle));
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let one = "use super::two::B; struct A;";
        let two = "// use super::one::A;\nstruct B; #[cfg(test)] use super::one::A;
            #[cfg(test)] mod tests { use crate::one::A; }";
        assert_eq!(shown(&[("lib.rs", ""), ("one.rs", one), ("two.rs", two)]), "");
    }
}

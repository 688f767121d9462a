//! The rules: functions from a source to its faults. `tests/house.rs` lists the files to which each
//! applies.

use std::collections::BTreeSet;

use crate::source::{Place, Source};

/// A place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    line: usize,
    text: String,
}

impl Fault {
    fn at(place: Place, text: String) -> Self {
        Self { line: place.line, text }
    }

    pub(crate) fn shown(&self, file: &str) -> String {
        format!("{file}:{}: {}", self.line, self.text)
    }
}

/// Reports paths into a layer above, and crates that are not for this layer.
///
/// `crates` are the dependencies of the library. The compiler checks those that only tests use.
pub(crate) fn arrows(source: &Source, crates: &BTreeSet<String>) -> Vec<Fault> {
    if source.file == "src/lib.rs" {
        return Vec::new();
    }
    let Some(layer) = LAYERS.iter().find(|layer| layer.has(&source.file)) else {
        return vec![Fault { line: 1, text: "the file belongs to no layer".to_owned() }];
    };
    let mut faults = Vec::new();
    for named in &source.paths {
        let mut parts = named.path.split("::");
        let allowed = match parts.next().unwrap_or_default() {
            "crate" => layer.may_use(parts.next().unwrap_or_default()),
            name => !crates.contains(name) || layer.crates.contains(&name),
        };
        if !allowed {
            let text = format!("{} is not for `{}`", named.path, layer.name);
            faults.push(Fault::at(named.place, text));
        }
    }
    faults
}

/// Reports clocks, sockets, threads, locks and the like in the layers that decide.
pub(crate) fn machine(source: &Source) -> Vec<Fault> {
    if !LAYERS.iter().any(|layer| layer.decides && layer.has(&source.file)) {
        return Vec::new();
    }
    let excepted = |path: &str| EXCEPTIONS.iter().any(|e| e.file == source.file && e.path == path);
    let paths = source.paths.iter().filter(|named| !named.place.in_tests);
    let paths = paths.filter(|named| reaches_out(&named.path) && !excepted(&named.path));
    let words = source.words.iter().filter(|word| !word.place.in_tests);
    let prints = words.filter(|word| word.called && PRINTS.contains(&word.name.as_str()));
    let paths = paths.map(|named| Fault::at(named.place, format!("{} in the core", named.path)));
    paths
        .chain(prints.map(|word| Fault::at(word.place, format!("{}! in the core", word.name))))
        .collect()
}

fn reaches_out(path: &str) -> bool {
    let within = |module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    MACHINE.iter().any(|module| within(module)) && !INERT.iter().any(|item| within(item))
}

/// Reports threads of the library that are not started by its helper, and so would receive the
/// signals of the host.
pub(crate) fn threads(source: &Source) -> Vec<Fault> {
    if source.file == THREADS {
        return Vec::new();
    }
    let words = source.words.iter().filter(|word| word.name == "spawn" && !word.place.in_tests);
    words
        .map(|word| Fault::at(word.place, format!("a thread that {THREADS} does not start")))
        .collect()
}

const THREADS: &str = "src/net/threads.rs";

/// Reports unsafe code outside a few files: two of the library, one of the command line, and the
/// benchmark that submits buffers to the kernel. The border to C is unsafe by nature, and the lints
/// of that crate require a reason at each place.
pub(crate) fn unsafe_code(source: &Source) -> Vec<Fault> {
    if UNSAFE.contains(&source.file.as_str()) || source.file.starts_with("crates/capi/src/") {
        return Vec::new();
    }
    let words = source.words.iter().filter(|word| word.name == "unsafe");
    words.map(|word| Fault::at(word.place, "unsafe code".to_owned())).collect()
}

const UNSAFE: [&str; 4] =
    ["src/net/clock.rs", THREADS, "crates/cli/src/birth.rs", "benches/src/contender/ring.rs"];

/// Reports uses of the library other than `redbolt::resp` and `redbolt::proto`.
pub(crate) fn behind_the_protocol(source: &Source) -> Vec<Fault> {
    let paths = source.paths.iter().filter(|named| {
        let mut parts = named.path.split("::");
        parts.next() == Some("redbolt")
            && !matches!(parts.next(), Some("proto" | "resp"))
            && !PARSED_ADDRESSES.contains(&named.path.as_str())
    });
    paths
        .map(|named| Fault::at(named.place, format!("{} is beyond the protocol", named.path)))
        .collect()
}

/// The exceptions, because parsing an address is a pure function and has a fuzz target.
const PARSED_ADDRESSES: [&str; 2] = ["redbolt::net::Address", "redbolt::net::AddressError"];

/// Reports words that have a better one, in code, comments and messages, and the one name that must
/// be qualified because it means two things.
pub(crate) fn words(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let line = line.to_lowercase();
        for (word, better) in WORDS.iter().filter(|(word, _)| line.contains(word)) {
            faults.push(Fault { line: at + 1, text: format!("\"{word}\": say {better}") });
        }
    }
    let imports = source.paths.iter().filter(|named| named.imported && named.path == "mio::Token");
    faults.extend(imports.map(|named| {
        Fault::at(
            named.place,
            "mio::Token is imported: qualify it, a token belongs to a lock".to_owned(),
        )
    }));
    faults
}

/// Returns the names at the root of the library: its modules, and the items exported there.
pub(crate) fn root_names(library: &str) -> Vec<&str> {
    let modules = library.lines().filter_map(|line| line.strip_prefix("pub mod "));
    let modules = modules.map(|rest| rest.trim_end_matches([';', '{', ' ']));
    // Items of a module are indented.
    let exports = library.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let names = exports.flat_map(|(list, _)| {
        let names = list.split_once('{').map_or(list, |(_, names)| names.trim_end_matches('}'));
        names.split(',').map(|name| name.rsplit("::").next().unwrap_or(name).trim())
    });
    modules.chain(names).filter(|name| !name.is_empty()).collect()
}

pub(crate) fn denies_missing_docs(source: &Source) -> bool {
    let mut words = source.words.iter().map(|word| word.name.as_str());
    words.by_ref().any(|word| word == "deny") && words.next() == Some("missing_docs")
}

/// A part of the library, in the folder of `src` with this name.
struct Layer {
    name: &'static str,
    /// The other layers that it may use.
    below: &'static [&'static str],
    /// The crates that it may use.
    crates: &'static [&'static str],
    /// `true` if it decides: it gets time, entropy and bytes as arguments.
    decides: bool,
}

impl Layer {
    fn has(&self, file: &str) -> bool {
        file.split('/').nth(1) == Some(self.name)
    }

    fn may_use(&self, layer: &str) -> bool {
        layer == self.name || self.below.contains(&layer)
    }
}

const LAYERS: [Layer; 4] = [
    Layer {
        name: "api",
        below: &["net", "proto"],
        crates: &["getrandom", "log", "mio"],
        decides: false,
    },
    Layer {
        name: "net",
        below: &["proto", "resp"],
        crates: &["libc", "mio", "rustls", "rustls_native_certs", "socket2"],
        decides: false,
    },
    Layer {
        name: "proto",
        below: &["resp"],
        crates: &["bytes", "memchr", "sha1_smol"],
        decides: true,
    },
    Layer { name: "resp", below: &[], crates: &["bytes", "memchr"], decides: true },
];

/// The parts of the standard library that reach beyond memory. Maps take their order from the
/// system's entropy, so that two runs with the same input would differ.
const MACHINE: [&str; 13] = [
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::env",
    "std::fs",
    "std::hash::RandomState",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time",
];

/// The exceptions that are only memory. A core shares its configuration with its API.
const INERT: [&str; 2] = ["std::sync::Arc", "std::time::Duration"];

const PRINTS: [&str; 5] = ["dbg", "eprint", "eprintln", "print", "println"];

/// A path that one file may use against the rule.
pub(crate) struct Exception {
    pub(crate) file: &'static str,
    pub(crate) path: &'static str,
}

/// An assertion in `drop` must be silent during a panic, or a second panic would abort the process
/// before the first one is reported. It exists in debug builds only, and starts no thread.
pub(crate) const EXCEPTIONS: [Exception; 1] =
    [Exception { file: "src/resp/encode.rs", path: "std::thread::panicking" }];

const WORDS: [(&str, &str); 5] = [
    ("heartbeat", "extend"),
    ("lock name", "resource"),
    ("majority vote", "quorum"),
    ("renew", "extend"),
    ("rollback", "undo"),
];

mod tests {
    use super::*;

    fn arrows_of(file: &str, text: &str) -> Vec<Fault> {
        let crates = ["libc", "memchr", "mio"].map(str::to_owned).into();
        arrows(&Source::parse(file, text), &crates)
    }

    fn breaks(rule: impl Fn(&Source) -> Vec<Fault>, file: &str, text: &str) -> bool {
        !rule(&Source::parse(file, text)).is_empty()
    }

    #[test]
    fn an_arrow_that_runs_back_is_a_fault() {
        let down = "use crate::resp::Token; use super::lease::Lease; use std::fmt; use memchr::a;";
        assert_eq!(arrows_of("src/proto/vote.rs", down), []);
        for up in ["use crate::{net, resp};", "fn f() { super::super::super::net::now() }"] {
            assert_eq!(arrows_of("src/proto/core/hold.rs", up).len(), 1, "{up}");
        }
        assert_eq!(arrows_of("src/resp/decode.rs", "use crate::proto::Now;").len(), 1);
        assert_eq!(arrows_of("src/net/socket.rs", "fn f(c: crate::api::Client) {}").len(), 1);
    }

    #[test]
    fn re_exports_do_not_hide_a_layer() {
        assert_eq!(arrows_of("src/proto/vote.rs", "use crate::Client;").len(), 1);
        assert_eq!(arrows_of("src/proto/vote.rs", "use crate::*;").len(), 1);
        assert_eq!(arrows_of("src/proto/vote.rs", "use crate as all;").len(), 1);
        assert_eq!(arrows_of("src/lib.rs", "pub use crate::api::Client;"), []);
    }

    #[test]
    fn a_crate_of_another_layer_is_a_fault() {
        assert_eq!(arrows_of("src/resp/decode.rs", "fn f() { memchr::memchr(0, b); }"), []);
        assert_eq!(arrows_of("src/resp/decode.rs", "fn f() { assert!(libc::a()); }").len(), 1);
        assert_eq!(arrows_of("src/proto/vote.rs", "use mio;").len(), 1);
    }

    #[test]
    fn a_folder_without_a_layer_is_a_fault() {
        assert_eq!(arrows_of("src/util/mod.rs", "").len(), 1);
    }

    #[test]
    fn the_core_touches_memory_only() {
        let core = "src/proto/vote.rs";
        for bad in [
            "use std::time::Instant;",
            "use std::time::{self, Duration};",
            "fn f() { let _ = std::time::SystemTime::now(); }",
            "use std::sync::{Arc, Mutex};",
            "use core::sync::atomic::AtomicU32;",
            "fn f() { ::std::thread::panicking(); }",
            "use std::net::IpAddr;",
            "use std::collections::HashMap;",
            "fn f() { if x { dbg!(x); } }",
        ] {
            assert!(breaks(machine, core, bad), "{bad}");
            assert!(!breaks(machine, "src/net/vote.rs", bad), "{bad}");
            assert!(
                !breaks(machine, core, &format!("#[cfg(test)] mod tests {{ {bad} }}")),
                "{bad}"
            );
        }
        let good = "use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};
            fn f() { assert!(std::mem::take(&mut print)); }";
        assert!(!breaks(machine, core, good));
    }

    #[test]
    fn an_exception_is_for_one_file() {
        let text = "fn f() -> bool { std::thread::panicking() }";
        assert!(!breaks(machine, "src/resp/encode.rs", text));
        assert!(breaks(machine, "src/resp/decode.rs", text));
    }

    #[test]
    fn a_thread_that_takes_signals_is_found() {
        let text = "fn f() { std::thread::Builder::new().spawn(g); }";
        assert!(breaks(threads, "src/net/resolve.rs", text));
        assert!(breaks(threads, "src/api/engine/mod.rs", "fn f() { thread::spawn(g); }"));
        assert!(!breaks(threads, "src/net/threads.rs", text));
        let tests = format!("#[cfg(test)] mod tests {{ {text} }}");
        assert!(!breaks(threads, "src/net/resolve.rs", &tests));
    }

    #[test]
    fn unsafe_code_is_found() {
        let text = "fn f() { unsafe { g() } }";
        assert!(breaks(unsafe_code, "src/net/socket.rs", text));
        assert!(!breaks(unsafe_code, "src/net/clock.rs", text));
        assert!(!breaks(unsafe_code, "src/net/threads.rs", text));
        assert!(!breaks(unsafe_code, "crates/cli/src/birth.rs", text));
        assert!(breaks(unsafe_code, "crates/cli/src/signals.rs", text));
        assert!(!breaks(unsafe_code, "crates/capi/src/foreign.rs", text));
        assert!(!breaks(unsafe_code, "benches/src/contender/ring.rs", text));
        assert!(breaks(unsafe_code, "benches/src/contender/redbolt_uring.rs", text));
        assert!(breaks(unsafe_code, "crates/capi/tests/programs.rs", text));
        assert!(!breaks(unsafe_code, "src/lib.rs", "#![deny(unsafe_code)] // unsafe"));
    }

    #[test]
    fn a_model_may_not_use_the_network() {
        let rule = behind_the_protocol;
        assert!(breaks(rule, "crates/fuzz/src/lib.rs", "use redbolt::{net::now, resp::Token};"));
        assert!(breaks(rule, "crates/fuzz/src/lib.rs", "use redbolt::Client;"));
        let good = "use redbolt::{proto, resp::Token}; use redbolt_node::Node;";
        assert!(!breaks(rule, "crates/fuzz/src/lib.rs", good));
    }

    #[test]
    fn words_with_a_better_one_are_found() {
        assert!(breaks(words, "src/lib.rs", "// Renews the lease."));
        assert!(breaks(words, "src/lib.rs", "const A: &str = \"no lock name given\";"));
        assert!(breaks(words, "src/lib.rs", "use mio::{Poll, Token};"));
        assert!(!breaks(words, "src/lib.rs", "use mio::Poll; // extends the lease of mio::Token"));
    }

    #[test]
    fn names_at_the_root_are_counted() {
        let library = "mod api;\npub mod net;\npub mod log {\n    pub use crate::api::{Log, Note};\n}\n\n\
            pub use api::{\n    Client,\n    Engine,\n};\npub use proto::Wait;\n";
        assert_eq!(root_names(library), ["net", "log", "Client", "Engine", "Wait"]);
    }

    #[test]
    fn the_lint_against_missing_docs_is_required() {
        let denies = |text: &str| denies_missing_docs(&Source::parse("src/lib.rs", text));
        assert!(denies("#![deny(missing_docs, unsafe_code)]"));
        assert!(!denies("#![warn(missing_docs)]") && !denies("#![deny(unsafe_code)]"));
    }
}

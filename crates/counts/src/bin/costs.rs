//! What callgrind has counted, by the functions of the source.
//!
//! `costs CALLGRIND-FILE PROGRAM` prints the total of one repetition, and a line for each function: its own
//! instructions, those with everything that it calls, and its name.
//!
//! The compiler puts most functions into their callers, and callgrind sees what is left. So each instruction
//! is looked up in the program's debug information, which knows from which function it came and into which
//! it was put. An instruction belongs to the innermost function of this repository; what came from `std`
//! belongs to the one that it was put into. The functions of this crate play the caller, and are not part
//! of the total. Not here: what figures are compared with.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;

use addr2line::Loader;
use redbolt_counts::REPETITIONS;

fn main() -> Result<(), Box<dyn Error>> {
    let [file, program] = &env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("which file of callgrind, and of which program?".into());
    };
    let mut stacks = Stacks::of(program)?;
    let mut costs = HashMap::new();
    for entry in entries(&fs::read_to_string(file)?, program) {
        let stack = stacks.at(&entry);
        let innermost = stack.first().expect("a stack has an innermost function");
        if !entry.is_call {
            costs.entry(innermost.clone()).or_insert_with(Cost::default).own += entry.instructions;
        }
        for function in stack.iter().collect::<BTreeSet<_>>() {
            costs.entry(function.clone()).or_default().all += entry.instructions;
        }
    }
    print(costs);
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Cost {
    own: u64,
    all: u64,
}

fn print(costs: HashMap<String, Cost>) {
    let is_caller = |name: &String| CALLER.iter().any(|prefix| name.starts_with(prefix));
    let counted = costs.iter().filter(|(name, _)| !is_caller(name)).map(|(_, cost)| cost.own);
    println!("total {}", per_repetition(counted.sum()));
    let mut sorted: Vec<_> = costs.into_iter().filter(|(name, _)| !is_caller(name)).collect();
    sorted.sort_by(|(a, x), (b, y)| (y.own, a).cmp(&(x.own, b)));
    for (name, cost) in sorted {
        println!("{} {} {name}", per_repetition(cost.own), per_repetition(cost.all));
    }
}

/// Rounded: what happens now and then has its share.
fn per_repetition(instructions: u64) -> u64 {
    let times = REPETITIONS as u64;
    (instructions + times / 2) / times
}

/// One instruction that ran, or the calls that it made.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'f> {
    /// Where it is in the program; `None` in a library.
    address: Option<u64>,
    /// The function that callgrind takes it to be in.
    function: &'f str,
    instructions: u64,
    is_call: bool,
}

/// Reads callgrind's format, as it is with addresses and without any compression.
fn entries<'f>(text: &'f str, program: &str) -> Vec<Entry<'f>> {
    let mut entries = Vec::new();
    let (mut is_program, mut function, mut is_call) = (false, "", false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = object == program;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((address, rest)) =
            line.strip_prefix("0x").and_then(|line| line.split_once(' '))
        {
            let address = u64::from_str_radix(address, 16).ok();
            let instructions = rest.split(' ').nth(1).and_then(|count| count.parse().ok());
            entries.push(Entry {
                address: address.filter(|_| is_program),
                function,
                instructions: instructions.unwrap_or_default(),
                is_call: std::mem::take(&mut is_call),
            });
        }
    }
    entries
}

/// Which functions an instruction is in, the innermost first.
struct Stacks {
    loader: Loader,
    known: HashMap<u64, Vec<String>>,
}

impl Stacks {
    fn of(program: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self { loader: Loader::new(Path::new(program))?, known: HashMap::new() })
    }

    fn at(&mut self, entry: &Entry<'_>) -> Vec<String> {
        let Some(address) = entry.address else { return vec![library(entry.function)] };
        let loader = &self.loader;
        let stack = self.known.entry(address).or_insert_with(|| stack(loader, address));
        if stack.is_empty() { vec![plain(entry.function)] } else { stack.clone() }
    }
}

/// Of this repository's functions, or the outermost one if there is none of them.
fn stack(loader: &Loader, address: u64) -> Vec<String> {
    let (mut ours, mut outermost) = (Vec::new(), None);
    let Ok(mut frames) = loader.find_frames(address) else { return ours };
    while let Ok(Some(frame)) = frames.next() {
        let Some(name) = frame.function.as_ref().and_then(|name| name.demangle().ok()) else {
            continue;
        };
        let name = plain(&name);
        if OURS.iter().any(|prefix| name.starts_with(prefix)) {
            ours.push(name);
        } else {
            outermost = Some(name);
        }
    }
    if ours.is_empty() { outermost.into_iter().collect() } else { ours }
}

/// A function's path without what the compiler adds to it: types, hashes and closures.
fn plain(name: &str) -> String {
    let mut path = Vec::new();
    for part in parts(name) {
        let part = implementor(part);
        let is_hash = part.len() == 17 && part.starts_with('h') && !part.contains('_');
        let is_numbered = part.starts_with('{');
        if !part.is_empty() && !is_hash && !is_numbered {
            path.push(part);
        }
    }
    path.join("::")
}

/// The parts of a path; what is between angle brackets is one part or belongs to one.
fn parts(name: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    let bytes = name.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'{' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b'}' => depth -= 1,
            b':' if depth == 0 && at > 0 && bytes[at - 1] == b':' => {
                parts.push(&name[from..at - 1]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&name[from..]);
    parts
}

/// Of `<T as Trait>` the `T`, of `f<T>` the `f`, of `<impl T>` nothing: where it stands says enough.
fn implementor(part: &str) -> &str {
    let Some(inside) = part.strip_prefix('<') else {
        return part.split('<').next().unwrap_or_default();
    };
    if inside.starts_with("impl ") {
        return "";
    }
    let end = inside.find(" as ").unwrap_or(inside.len() - 1);
    let name = inside[..end].split('<').next().unwrap_or_default();
    name.trim_start_matches(['&', '['])
}

/// A library's function, without the kind of processor that this variant of it is for.
fn library(name: &str) -> String {
    let name = name.trim_start_matches('_');
    let end = ["_avx", "_sse", "_evex", "_erms", "_unaligned", "'"]
        .iter()
        .filter_map(|variant| name.find(variant))
        .min();
    format!("libc {}", &name[..end.unwrap_or(name.len())])
}

/// How the functions of this repository begin.
const OURS: [&str; 2] = ["redbolt", "count_"];

/// How those begin that play the caller.
const CALLER: [&str; 2] = ["redbolt_counts::", "count_"];

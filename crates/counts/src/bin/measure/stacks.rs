//! Finds the source functions that an instruction belongs to.
//!
//! The compiler inlines most functions, and callgrind sees only the rest. The debug information has
//! the function that an instruction comes from, and the callers into which it was inlined.

use std::collections::HashMap;
use std::error::Error;

use addr2line::Context;
use addr2line::gimli::{self, Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};

use crate::callgrind::Entry;
use crate::names::{of_library, plain};

type Bytes<'p> = EndianSlice<'p, LittleEndian>;

/// The debug information of one program.
pub(crate) struct Stacks<'p> {
    context: Context<Bytes<'p>>,
    known: HashMap<u64, Vec<String>>,
}

impl<'p> Stacks<'p> {
    pub(crate) fn of(program: &'p [u8]) -> Result<Self, Box<dyn Error>> {
        let file = object::File::parse(program)?;
        let section = |id: SectionId| {
            let section = file.section_by_name(id.name());
            let bytes = section.and_then(|section| section.data().ok()).unwrap_or_default();
            Ok::<_, gimli::Error>(Bytes::new(bytes, LittleEndian))
        };
        let context = Context::from_dwarf(Dwarf::load(section)?)?;
        Ok(Self { context, known: HashMap::new() })
    }

    /// Returns this repository's functions that an instruction belongs to, the innermost first; if
    /// there is none, the function that was called.
    pub(crate) fn at(&mut self, entry: &Entry<'_>) -> Vec<String> {
        let Some(address) = entry.address else { return vec![of_library(entry.function)] };
        let context = &self.context;
        let stack = self.known.entry(address).or_insert_with(|| ours(context, address));
        if stack.is_empty() { vec![plain(entry.function)] } else { stack.clone() }
    }
}

fn ours(context: &Context<Bytes<'_>>, address: u64) -> Vec<String> {
    let mut stack = Vec::new();
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { return stack };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref().and_then(|function| function.demangle().ok());
        let path = name.as_deref().map(plain).unwrap_or_default();
        if OURS.iter().any(|prefix| path.starts_with(prefix)) {
            stack.push(path);
        }
    }
    stack
}

/// The prefixes of this repository's functions.
const OURS: [&str; 2] = ["count_", "redbolt"];

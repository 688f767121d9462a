//! Running callgrind, and parsing its output.

use std::path::Path;
use std::process::Command;

/// Counts one scenario of a program, between this crate's two marker functions.
pub(crate) fn count(program: &Path, scenario: &str, file: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", "--dump-instr=yes"]);
    valgrind.args(["--compress-pos=no", "--compress-strings=no"]);
    for mark in ["counted", "uncounted"] {
        valgrind.arg(format!("--toggle-collect=redbolt_counts::{mark}*"));
    }
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    valgrind.arg(program).arg(scenario);
    valgrind
}

/// The instructions at one address, or those of the calls made there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'f> {
    /// The address in the program; `None` in a shared library.
    pub(crate) address: Option<u64>,
    /// The function that callgrind attributes the address to.
    pub(crate) function: &'f str,
    pub(crate) instructions: u64,
    /// `true` if the instructions are those of a callee.
    pub(crate) is_call: bool,
}

/// Parses callgrind's output, with addresses and without any compression.
pub(crate) fn entries<'f>(text: &'f str, program: &Path) -> Vec<Entry<'f>> {
    let mut entries = Vec::new();
    let (mut is_program, mut function, mut is_call) = (false, "", false);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = Path::new(object) == program;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((address, instructions)) = counted(line) {
            let address = Some(address).filter(|_| is_program);
            let is_call = std::mem::take(&mut is_call);
            entries.push(Entry { address, function, instructions, is_call });
        }
    }
    entries
}

/// Parses an address, a source line and a number of instructions.
fn counted(line: &str) -> Option<(u64, u64)> {
    let (address, rest) = line.strip_prefix("0x")?.split_once(' ')?;
    let (_, instructions) = rest.split_once(' ')?;
    Some((u64::from_str_radix(address, 16).ok()?, instructions.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_distinguished_from_own_instructions() {
        let text = "positions: instr line
events: Ir
summary: 12

ob=/bin/it
fl=a.rs
fn=one
0x1b 55 3
cob=/lib/libc.so
cfi=???
cfn=memcpy
calls=2 0xff 0
0x1c 56 7
fi=b.rs
0x1d 9 1

ob=/lib/libc.so
fl=???
fn=memcpy
0xff 0 7
";
        let entry = |address, function, instructions, is_call| Entry {
            address,
            function,
            instructions,
            is_call,
        };
        assert_eq!(
            entries(text, Path::new("/bin/it")),
            [
                entry(Some(0x1b), "one", 3, false),
                entry(Some(0x1c), "one", 7, true),
                entry(Some(0x1d), "one", 1, false),
                entry(None, "memcpy", 7, false),
            ]
        );
    }
}

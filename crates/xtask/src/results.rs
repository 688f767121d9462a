//! The output of `cargo test`, shown as it comes, and its results, kept for the end, where a reader
//! looks first.
//!
//! Not here: running it.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
};

/// The result line of each program that had tests to run, with the names of failed tests.
#[derive(Default)]
pub(crate) struct Results {
    /// The running program, as cargo names it.
    running: String,
    lines: Vec<(String, String)>,
}

impl Results {
    /// Copies the output to its end. It works on bytes, because a test may print anything.
    pub(crate) fn read(&mut self, output: impl Read, shown: &mut impl Write) -> io::Result<()> {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            shown.write_all(&line)?;
            self.take(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        shown.flush()
    }

    fn take(&mut self, line: &str) {
        if let Some(program) = line.strip_prefix("     Running ") {
            self.running = program.to_owned();
        } else if let Some(library) = line.strip_prefix("   Doc-tests ") {
            self.running = format!("documentation of {library}");
        } else if line.starts_with("test ") && line.ends_with(" ... FAILED")
            || line.starts_with("test result: ") && !line.contains(NOTHING)
        {
            self.lines.push((self.running.clone(), line.to_owned()));
        }
    }
}

/// The result lines of cargo's tests, each below its program.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xtask: results, by program:")?;
        for (program, line) in &self.lines {
            write!(f, "\n{program}\n{line}")?;
        }
        Ok(())
    }
}

/// Part of the result line of a program without tests.
const NOTHING: &str = " 0 passed; 0 failed; 0 ignored;";

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &[u8] = b"   Compiling redbolt v0.1.0
     Running unittests src/lib.rs (target/debug/deps/redbolt-1)
\xff\xfe
test first ... ok
test second ... FAILED
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s
     Running unittests src/main.rs (target/debug/deps/xtask-1)
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests redbolt
test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn every_program_with_tests_keeps_its_result() {
        let (mut results, mut shown) = (Results::default(), Vec::new());
        results.read(OUTPUT, &mut shown).unwrap();
        assert_eq!(shown, OUTPUT);
        let told: Vec<_> =
            results.lines.iter().map(|(program, line)| (&program[..9], &line[..15])).collect();
        let expected = [
            ("unittests", "test second ..."),
            ("unittests", "test result: FA"),
            ("documenta", "test result: ok"),
        ];
        assert_eq!(told, expected);
    }
}

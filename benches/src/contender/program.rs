//! A contender in a C program of its own, which is compiled at the start.
//!
//! That program runs and measures whole blocks, so the pipes to it are in no figure. An order to it
//! has three 64-bit numbers: the operation (a letter), the number of pairs, and a time limit in
//! nanoseconds. The answer has the number of pairs, two times for each, and the five numbers of its
//! resource usage; or `u64::MAX`, and the length and the text of an error. The program ends when
//! its input does. Not here: what all of them do, see `program.h`, and the lock, see the `.c` of each.

use std::fmt::Display;
use std::fs::write;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::contract::{Contender, Node, NotInstalled, Task};
use super::timings::{Timings, Usage};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

/// A contender's program.
pub(super) struct Source {
    /// The text in C.
    pub(super) text: &'static str,
    /// What to compile and link it with.
    pub(super) flags: Vec<String>,
    /// What the compiler says where the library is missing.
    pub(super) signs: &'static [&'static str],
    /// What to install then.
    pub(super) install: &'static str,
}

/// Compiles it and starts it.
pub(super) fn start(source: &Source, task: &Task) -> Result<Box<dyn Contender>> {
    let folder = tempfile::tempdir()?;
    compile(source, &folder)?;
    write_restart_guards(&task.nodes)?;
    let mut child = Command::new(folder.path().join("program"))
        .args([&task.resource, &task.ttl.as_millis().to_string()])
        .args([TOKEN.as_slice(), GUARD].map(text))
        .arg(text(&load_undo(&task.nodes)?))
        .args(task.nodes.iter().map(|(Node::Tcp(address) | Node::Unix(address))| address))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let orders = child.stdin.take();
    let answers = BufReader::new(child.stdout.take().context("the child has no output")?);
    let mut program = Program { orders, answers, child, _folder: folder };
    ensure!(program.number()? == 0, "the first answer is not empty");
    Ok(Box::new(program))
}

fn compile(source: &Source, folder: &TempDir) -> Result<()> {
    let file = folder.path().join("program.c");
    write(folder.path().join("program.h"), include_str!("program.h"))?;
    write(&file, source.text)?;
    let compiler = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .arg(folder.path().join("program"))
        .arg(&file)
        .args(&source.flags)
        .output();
    let output = match compiler {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(missing("no C compiler was found", source.install))
        }
        outcome => outcome?,
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if source.signs.iter().any(|sign| complaint.contains(sign)) {
        bail!(missing("the library was not found", source.install));
    }
    ensure!(output.status.success() && complaint.is_empty(), "cc: {complaint}");
    Ok(())
}

pub(super) fn missing(what: impl Display, install: &str) -> NotInstalled {
    NotInstalled(format!("{what}: {install}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Program {
    /// Taken to make the program end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    child: Child,
    _folder: TempDir,
}

impl Contender for Program {
    fn acquire(&mut self) -> Result<()> {
        self.obey(b'a', 0, Duration::ZERO, &mut Timings::default())
    }

    fn release(&mut self) -> Result<()> {
        self.obey(b'r', 0, Duration::ZERO, &mut Timings::default())
    }

    fn block(&mut self, pairs: usize, until: Duration, out: &mut Timings) -> Result<()> {
        self.obey(b'b', pairs as u64, until, out)
    }
}

impl Program {
    fn obey(&mut self, what: u8, pairs: u64, until: Duration, out: &mut Timings) -> Result<()> {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let order = [u64::from(what), pairs, until].map(u64::to_ne_bytes).concat();
        self.orders.as_mut().context("the program has been told to end")?.write_all(&order)?;
        for _ in 0..self.number()? {
            let [acquire, release] = [self.number()?, self.number()?].map(Duration::from_nanos);
            out.push(acquire, release);
        }
        let usage = self.usage()?;
        out.outside = Some(out.outside.map_or(usage, |before| before.plus(usage)));
        Ok(())
    }

    fn usage(&mut self) -> Result<Usage> {
        let counted = |number| (number != u64::MAX).then_some(number);
        Ok(Usage {
            cpu: Duration::from_nanos(self.number()?),
            voluntary_switches: self.number()?,
            involuntary_switches: self.number()?,
            allocations: counted(self.raw_number()?),
            bytes: counted(self.raw_number()?),
        })
    }

    /// A number, unless it begins an error.
    fn number(&mut self) -> Result<u64> {
        match self.raw_number()? {
            u64::MAX => {
                let mut complaint = vec![0; self.raw_number()? as usize];
                self.answers.read_exact(&mut complaint)?;
                bail!(text(&complaint))
            }
            number => Ok(number),
        }
    }

    fn raw_number(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.answers.read_exact(&mut bytes).context("its program ended")?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The program ends by itself, and its status does not matter.
        let _ = self.child.wait();
    }
}

//! hiredis, in a C program of its own, which is compiled at the start.
//!
//! That program runs and measures whole blocks, so the pipes to it are in no figure. An order to it
//! has three 64-bit numbers: the operation (a letter), the number of pairs, and a time limit in
//! nanoseconds. The answer has the number of pairs, two times for each, and the five numbers of its
//! resource usage; or `u64::MAX`, and the length and the text of an error. The program ends when
//! its input does. Not here: the lock, see `hiredis.c`.

use std::fmt::Display;
use std::fs::write;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{Contender, Node, NotInstalled, Task, Timings, Usage};
use crate::wire::{GUARD, TOKEN, load_undo, write_restart_guards};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let folder = tempfile::tempdir()?;
    compile(&folder)?;
    write_restart_guards(&task.nodes)?;
    let mut child = Command::new(folder.path().join("hiredis"))
        .args([&task.resource, &task.ttl.as_millis().to_string()])
        .args([TOKEN.as_slice(), GUARD].map(text))
        .arg(text(&load_undo(&task.nodes)?))
        .args(task.nodes.iter().map(|(Node::Tcp(address) | Node::Unix(address))| address))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let orders = child.stdin.take();
    let answers = BufReader::new(child.stdout.take().context("the child has no output")?);
    let mut hiredis = Hiredis { orders, answers, child, _folder: folder };
    ensure!(hiredis.number()? == 0, "the first answer is not empty");
    Ok(Box::new(hiredis))
}

fn compile(folder: &TempDir) -> Result<()> {
    let source = folder.path().join("hiredis.c");
    write(&source, include_str!("hiredis.c"))?;
    let compiler = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .arg(folder.path().join("hiredis"))
        .arg(&source)
        .arg("-lhiredis")
        .output();
    let output = match compiler {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(missing("no C compiler was found"))
        }
        outcome => outcome?,
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if ["hiredis/hiredis.h: No such", "-lhiredis"].iter().any(|sign| complaint.contains(sign)) {
        bail!(missing("hiredis was not found"));
    }
    ensure!(output.status.success() && complaint.is_empty(), "cc: {complaint}");
    Ok(())
}

fn missing(what: impl Display) -> NotInstalled {
    NotInstalled(format!("{what}: apt-get install gcc libc6-dev libhiredis-dev"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Hiredis {
    /// Taken to make the program end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    child: Child,
    _folder: TempDir,
}

impl Contender for Hiredis {
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

impl Hiredis {
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

impl Drop for Hiredis {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The program ends by itself, and its status does not matter.
        let _ = self.child.wait();
    }
}

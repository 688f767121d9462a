//! hiredis, in a C program of its own. Not here: the lock, see `hiredis.c`.

use anyhow::Result;

use super::contract::{Contender, Task};
use super::program::{self, Source};

pub(super) fn start(task: &Task) -> Result<Box<dyn Contender>> {
    let source = Source {
        text: include_str!("hiredis.c"),
        flags: vec!["-lhiredis".to_owned()],
        signs: &["hiredis/hiredis.h: No such", "-lhiredis"],
        install: "apt-get install gcc libc6-dev libhiredis-dev",
    };
    program::start(&source, task)
}

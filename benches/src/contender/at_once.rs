//! The common part of the contenders that use a driver's futures: they ask all nodes at once, and
//! return at a majority's answer.
//!
//! A driver may skip a command whose future was dropped, so the futures of slow nodes are kept, and
//! polled together with those of the next call. Not here: the drivers' commands, see `redis_async`,
//! `fred_client` and `rustis_client`.

use std::future::{Ready, ready};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use futures_util::future::{Join, join};
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Runtime;

use super::contract::Contender;

/// The command for all nodes.
#[derive(Clone, Copy)]
pub(super) enum Call {
    Acquire,
    Release,
}

/// A driver's client for each node. `call` makes the future of a node's yes or no.
pub(super) fn start<N, F>(
    runtime: Runtime,
    nodes: Vec<N>,
    call: impl Fn(&N, Call) -> F + 'static,
) -> Box<dyn Contender>
where
    N: 'static,
    F: Future<Output = Result<bool>> + 'static,
{
    Box::new(AtOnce { open: FuturesUnordered::new(), runtime, nodes, call, number: 0 })
}

struct AtOnce<N, F: Future, C> {
    /// The futures of this call and of earlier ones, with the call's number. Dropped before the
    /// runtime.
    open: FuturesUnordered<Join<Ready<u64>, F>>,
    runtime: Runtime,
    nodes: Vec<N>,
    call: C,
    number: u64,
}

impl<N, F, C> Contender for AtOnce<N, F, C>
where
    F: Future<Output = Result<bool>>,
    C: Fn(&N, Call) -> F,
{
    fn acquire(&mut self) -> Result<()> {
        self.ask(Call::Acquire)
    }

    fn release(&mut self) -> Result<()> {
        self.ask(Call::Release)
    }
}

impl<N, F, C> AtOnce<N, F, C>
where
    F: Future<Output = Result<bool>>,
    C: Fn(&N, Call) -> F,
{
    fn ask(&mut self, call: Call) -> Result<()> {
        self.number += 1;
        for node in &self.nodes {
            self.open.push(join(ready(self.number), (self.call)(node, call)));
        }
        let (quorum, mut answered) = (self.nodes.len() / 2 + 1, 0);
        self.runtime.block_on(async {
            while answered < quorum {
                let (number, answer) = self.open.next().await.context("no node is left")?;
                ensure!(answer?, "not granted, or not held");
                answered += usize::from(number == self.number);
            }
            Ok(())
        })
    }
}

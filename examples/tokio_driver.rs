//! Locks in tasks of tokio without the engine's thread: one task owns the driver, and sleeps on its
//! file descriptor and its deadline. The other tasks send it their requests.
//!
//! ```text
//! cargo run --example tokio_driver [-- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3]
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success, 1 on failure, 2 for
//! a wrong command line.

mod nodes;

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use redbolt::{AutoExtend, Config, Driver, Event, LockId, LockRequest, Wait};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::nodes::{addresses, embedded_nodes};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: tokio_driver [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_driver: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs five tasks that want one lock, and get it one after the other.
async fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // This is only for nodes that are really new. In production an operator runs `redbolt init`,
    // once.
    let config = Config::builder().nodes(&addresses).new_nodes().label(b"example").build()?;
    let (asks, asked) = mpsc::channel(16);
    let locks = tokio::spawn(Locks::new(Driver::new(config)?)?.serve(asked));
    let workers: Vec<_> = (1..=5).map(|number| tokio::spawn(work(number, asks.clone()))).collect();
    drop(asks);
    for worker in workers {
        worker.await?.map_err(|error| error as Box<dyn Error>)?;
    }
    Ok(locks.await??)
}

async fn work(number: u32, asks: mpsc::Sender<Ask>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (answer, answered) = oneshot::channel();
    asks.send(Ask::Lock(answer)).await?;
    let id = answered.await??;
    println!("task {number} begins");
    sleep(Duration::from_millis(20)).await;
    println!("task {number} ends");
    Ok(asks.send(Ask::Unlock(id)).await?)
}

enum Ask {
    Lock(Answer),
    Unlock(LockId),
}

type Answer = oneshot::Sender<Result<LockId, String>>;

struct Locks {
    driver: Driver,
    /// A second descriptor of the driver's epoll, which tokio watches.
    readable: AsyncFd<OwnedFd>,
    waiting: HashMap<LockId, Answer>,
}

impl Locks {
    fn new(driver: Driver) -> io::Result<Self> {
        let readable = driver.as_fd().try_clone_to_owned()?;
        #[allow(deprecated, reason = "what replaces it is unsafe; this descriptor stays as it is")]
        let readable = AsyncFd::with_interest(readable, Interest::READABLE)?;
        Ok(Self { driver, readable, waiting: HashMap::new() })
    }

    /// Serves until every sender is dropped, and the nodes have confirmed all releases.
    async fn serve(mut self, mut asked: mpsc::Receiver<Ask>) -> io::Result<()> {
        let mut is_open = true;
        while is_open || self.driver.has_pending_releases() {
            let nap = self.driver.timeout().unwrap_or(PATIENCE);
            tokio::select! {
                ask = asked.recv(), if is_open => match ask {
                    Some(ask) => self.take(ask),
                    None => is_open = false,
                },
                ready = self.readable.readable() => ready?.clear_ready(),
                () = sleep(nap) => {}
            }
            self.driver.process();
            while let Some(event) = self.driver.poll_event() {
                self.tell_outcome(event);
            }
        }
        Ok(())
    }

    fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Unlock(id) => self.driver.release(id),
            Ask::Lock(answer) => {
                let request = LockRequest::new(RESOURCE).wait(Wait::UpTo(PATIENCE));
                match self.driver.acquire(request.auto_extend(AutoExtend::until_released())) {
                    Ok(id) => drop(self.waiting.insert(id, answer)),
                    // A task that was dropped needs no answer, here and below.
                    Err(error) => drop(answer.send(Err(error.to_string()))),
                }
            }
        }
    }

    fn tell_outcome(&mut self, event: Event) {
        let (id, outcome) = match event {
            Event::Granted(id) => (id, Ok(id)),
            Event::Refused(id, refusal) => (id, Err(self.driver.report(&refusal).to_string())),
            // A program with more to lose passes `Event::Lost` on to its task.
            _ => return,
        };
        let answer = self.waiting.remove(&id);
        if answer.is_none_or(|answer| answer.send(outcome).is_err()) {
            self.driver.release(id);
        }
    }
}

const RESOURCE: &[u8] = b"redbolt-example-tokio";
const PATIENCE: Duration = Duration::from_secs(20);

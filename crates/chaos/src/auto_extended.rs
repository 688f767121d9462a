//! A worker process whose engine auto-extends a lock until it is lost. In `work` the process calls
//! extend itself.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{AcquireError, AutoExtend, Engine, LockRequest, OwnedGuard, Wait};
use redbolt_test_servers::Connection;

use crate::clock::now;
use crate::nodes::LIMIT;
use crate::part::{BETWEEN_LOOKS, Part};
use crate::stage::{Failure, RESOURCE};
use crate::wire::{Order, Report, say};

/// Carries out orders with an engine that auto-extends each lock until it is lost. With `careless`,
/// a second extender also extends the key and finally deletes it, even if another client owns it.
pub(crate) fn hold(part: &Part, careless: bool) -> Result<(), Failure> {
    let engine = Engine::new(part.config()?)?;
    for line in io::stdin().lock().lines() {
        let order = Order::parse(&line?)?;
        let request = LockRequest::new(RESOURCE.as_bytes())
            .ttl(order.ttl)
            .wait(Wait::UpTo(order.wait))
            .auto_extend(AutoExtend::until_released());
        match engine.acquire(request).wait() {
            Ok(guard) => {
                let beside = careless.then(|| Careless::start(part, order.ttl));
                stay(guard, &order)?;
                drop(beside);
            }
            Err(AcquireError::Refused(report)) => say(&Report::Refused(report.to_string()))?,
            Err(error) => return Err(error.into()),
        }
        say(&Report::Done)?;
    }
    Ok(())
}

/// Checks the guard repeatedly until it reports the loss, and then waits a while for the loss
/// callback, which must be called once.
fn stay(guard: OwnedGuard, order: &Order) -> Result<(), Failure> {
    let told = Arc::new(AtomicUsize::new(0));
    let callbacks = Arc::clone(&told);
    guard.on_loss(move |_| {
        callbacks.fetch_add(1, Ordering::SeqCst);
    });
    let mut last = now();
    if !guard.is_valid() {
        return say(&Report::Refused("the lease ended before the first check".to_owned()));
    }
    say(&Report::Entered { at: last, token: None, slot: None })?;
    let looked = loop {
        let at = now();
        if !guard.is_valid() {
            break at;
        }
        last = at;
        thread::sleep(BETWEEN_LOOKS);
    };
    say(&Report::Left { at: last, looked: Some(looked) })?;
    let until = Instant::now() + LIMIT;
    while told.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        thread::sleep(BETWEEN_LOOKS);
    }
    // A second call of the callback would come within this time.
    thread::sleep(order.ttl * 2);
    let _ = guard.release().wait();
    thread::sleep(order.ttl / 2);
    say(&Report::Told(told.load(Ordering::SeqCst)))
}

/// An extender that uses only the key's name, and ignores token and clock.
struct Careless {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Careless {
    fn start(part: &Part, ttl: Duration) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (nodes, ended) = (part.nodes.clone(), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut nodes: Vec<_> = nodes.iter().map(|node| Connection::open(node)).collect();
            let extend = format!("PEXPIRE {RESOURCE} {}", ttl.as_millis());
            while !ended.load(Ordering::SeqCst) {
                nodes.iter_mut().for_each(|node| drop(node.cmd(&extend)));
                thread::sleep(ttl / 3);
            }
            nodes.iter_mut().for_each(|node| drop(node.cmd(&format!("DEL {RESOURCE}"))));
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

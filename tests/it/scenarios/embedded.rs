//! The driver in a host's loop: behind its one file descriptor, and in the host's registry.
//!
//! The host has a thread for its loop. The test sends it jobs, and wakes it through a socket in the
//! same loop. The host records all outcomes in a book.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll};
use redbolt::inspect::UnlockScope;
use redbolt::proto::ViewId;
use redbolt::{
    AcquireError, Config, DetachedLock, Driver, Event, ExtendError, FencingToken, LockId, LockLost,
    LockMode, LockRequest, LossCause, Released, RequestError,
    inspect::{ForceUnlockReport, Inspection},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::scenarios::api::{Api, Cancels, Detaches, Inspects, Notifies};
use crate::support::{LIMIT, eventually};

pub(super) type BehindADescriptor = Embedded<OneDescriptor>;
pub(super) type InARegistry = Embedded<HostsPoll>;

pub(super) struct Embedded<L> {
    jobs: Sender<Job>,
    wake: UnixStream,
    thread: JoinHandle<()>,
    book: Arc<Book>,
    of: std::marker::PhantomData<L>,
}

type Job = Box<dyn FnOnce(&mut Driver) + Send>;

/// A host's loop.
pub(super) trait Loop: Sized + 'static {
    fn start(config: Config, bell: &UnixStream) -> (Self, Driver);

    /// Sleeps until the driver or the bell is ready, or the driver's deadline has passed.
    fn sleep(&mut self, driver: &mut Driver, bell: &UnixStream);
}

/// A host that calls `poll(2)` with two descriptors, one of them the driver's.
pub(super) struct OneDescriptor;

impl Loop for OneDescriptor {
    fn start(config: Config, _: &UnixStream) -> (Self, Driver) {
        (Self, Driver::new(config).unwrap())
    }

    fn sleep(&mut self, driver: &mut Driver, bell: &UnixStream) {
        let span = driver.timeout().map(|deadline| Timespec {
            tv_sec: deadline.as_secs() as _,
            tv_nsec: deadline.subsec_nanos() as _,
        });
        let mut both = [PollFd::new(driver, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        poll(&mut both, span.as_ref()).unwrap();
    }
}

/// A host with a `mio::Poll`, and tokens for the bell and the driver.
pub(super) struct HostsPoll {
    poll: Poll,
    events: Events,
    _bell: mio::net::UnixStream,
}

impl Loop for HostsPoll {
    fn start(config: Config, bell: &UnixStream) -> (Self, Driver) {
        let poll = Poll::new().unwrap();
        let mut bell = mio::net::UnixStream::from_std(bell.try_clone().unwrap());
        poll.registry().register(&mut bell, BELL, Interest::READABLE).unwrap();
        let tokens = BELL.0 + 1..BELL.0 + 1 + Driver::tokens_needed(&config);
        let driver = Driver::in_registry(config, poll.registry(), tokens).unwrap();
        (Self { poll, events: Events::with_capacity(16), _bell: bell }, driver)
    }

    fn sleep(&mut self, driver: &mut Driver, _: &UnixStream) {
        match self.poll.poll(&mut self.events, driver.timeout()) {
            // The process was stopped meanwhile.
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            slept => slept.unwrap(),
        }
        for event in &self.events {
            assert_eq!(driver.on_event(event), event.token() != BELL, "{event:?}");
        }
    }
}

const BELL: mio::Token = mio::Token(7);

/// Runs the host until no more jobs can come.
fn serve<L: Loop>(config: Config, mut bell: UnixStream, jobs: Receiver<Job>, book: &Book) {
    let (mut own, mut driver) = L::start(config, &bell);
    loop {
        while bell.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        loop {
            match jobs.try_recv() {
                Ok(job) => job(&mut driver),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        while let Some(event) = driver.poll_event() {
            book.note(&mut driver, event);
        }
        own.sleep(&mut driver, &bell);
        driver.process();
    }
}

/// The driver's outcomes of each lock.
#[derive(Default)]
struct Book {
    pages: Mutex<Pages>,
    written: Condvar,
}

#[derive(Default)]
struct Pages {
    locks: HashMap<LockId, Page>,
    inspections: Vec<Inspection>,
    /// A force-unlock, and its result.
    breaking: Option<ViewId>,
    broken: Option<ForceUnlockReport>,
}

impl Pages {
    fn of(&mut self, id: LockId) -> &mut Page {
        self.locks.entry(id).or_default()
    }
}

#[derive(Default)]
struct Page {
    acquired: Option<Result<(), AcquireError>>,
    extended: Option<Result<(), ExtendError>>,
    /// The result of a change of its mode.
    changed: Option<Result<(), ExtendError>>,
    losses: Vec<LossCause>,
    outcome: Option<Result<Released, LockLost>>,
}

impl Book {
    fn note(&self, driver: &mut Driver, event: Event) {
        let pages = &mut *self.pages.lock().unwrap();
        match event {
            Event::Granted(id) => pages.of(id).acquired = Some(Ok(())),
            Event::Refused(id, refusal) => {
                pages.of(id).acquired = Some(Err(AcquireError::Refused(driver.report(&refusal))));
            }
            Event::Extended(id) => pages.of(id).extended = Some(Ok(())),
            Event::NotExtended(id, refusal) => {
                pages.of(id).extended = Some(Err(ExtendError::Refused(driver.report(&refusal))));
            }
            Event::Upgraded(id) | Event::Downgraded(id) | Event::DowngradeDelayed(id, _) => {
                pages.of(id).changed = Some(Ok(()));
            }
            Event::NotUpgraded(id, refusal) => {
                pages.of(id).changed = Some(Err(ExtendError::Refused(driver.report(&refusal))));
            }
            Event::Lost(id, cause) => {
                let page = pages.of(id);
                page.losses.push(cause);
                let lost = driver.lock_lost(id, cause);
                page.changed = Some(Err(ExtendError::Lost(lost.clone())));
                page.extended = Some(Err(ExtendError::Lost(lost.clone())));
                page.outcome = Some(Err(lost));
            }
            Event::Released(id, confirmed) => {
                pages.of(id).outcome = Some(Ok(confirmed));
            }
            Event::Viewed(id) if pages.breaking == Some(id) => {
                pages.broken = driver.take_force_unlock(id);
            }
            Event::Viewed(id) => pages.inspections.extend(driver.take_inspection(id)),
            _ => {}
        }
        self.written.notify_all();
    }

    /// Waits until an entry is found.
    fn read<T>(&self, mut find: impl FnMut(&mut Pages) -> Option<T>) -> T {
        let until = Instant::now() + 2 * LIMIT;
        let mut pages = self.pages.lock().unwrap();
        loop {
            if let Some(found) = find(&mut pages) {
                return found;
            }
            let left =
                until.checked_duration_since(Instant::now()).expect("the entry is written in time");
            pages = self.written.wait_timeout(pages, left).unwrap().0;
        }
    }

    fn read_of<T>(&self, id: LockId, find: impl Fn(&mut Page) -> Option<T>) -> T {
        self.read(|pages| find(pages.of(id)))
    }
}

impl<L> Embedded<L> {
    fn call<T: Send + 'static>(&self, job: impl FnOnce(&mut Driver) -> T + Send + 'static) -> T {
        let (reported, received) = channel();
        self.jobs.send(Box::new(move |driver| drop(reported.send(job(driver))))).unwrap();
        self.ring();
        received.recv_timeout(LIMIT).unwrap()
    }

    fn ring(&self) {
        // A full socket already wakes the host.
        let _ = (&self.wake).write(&[0]);
    }
}

impl<L: Loop> Api for Embedded<L> {
    type Asked = Result<LockId, RequestError>;
    type Held = LockId;

    fn start(config: Config) -> Self {
        let (wake, bell) = UnixStream::pair().unwrap();
        wake.set_nonblocking(true).unwrap();
        bell.set_nonblocking(true).unwrap();
        let (jobs, todo) = channel();
        let book = Arc::new(Book::default());
        let own = Arc::clone(&book);
        let thread = thread::spawn(move || serve::<L>(config, bell, todo, &own));
        Self { jobs, wake, thread, book, of: std::marker::PhantomData }
    }

    fn request(&mut self, request: LockRequest<'static>) -> Self::Asked {
        self.call(move |driver| driver.acquire(request))
    }

    fn outcome(&mut self, asked: Self::Asked) -> Result<Self::Held, AcquireError> {
        let id = asked?;
        self.book.read_of(id, |page| page.acquired.take())?;
        Ok(id)
    }

    fn batch(
        &mut self,
        requests: Vec<LockRequest<'static>>,
    ) -> Vec<Result<Self::Held, AcquireError>> {
        let asked: Vec<_> = self.call(move |driver| {
            driver.batch(|driver| {
                requests.into_iter().map(|request| driver.acquire(request)).collect()
            })
        });
        asked.into_iter().map(|asked| self.outcome(asked)).collect()
    }

    fn remaining(&mut self, &held: &Self::Held) -> Duration {
        self.call(move |driver| driver.remaining(held))
    }

    fn fencing_token(&mut self, &held: &Self::Held) -> Option<FencingToken> {
        self.call(move |driver| driver.fencing_token(held))
    }

    fn extend(&mut self, &mut held: &mut Self::Held, ttl: Duration) -> Result<(), ExtendError> {
        self.call(move |driver| driver.extend(held, ttl)).map_err(ExtendError::Request)?;
        self.book.read_of(held, |page| page.extended.take())
    }

    fn mode(&mut self, &held: &Self::Held) -> LockMode {
        self.call(move |driver| driver.mode(held)).unwrap()
    }

    fn slot(&mut self, &held: &Self::Held) -> Option<u16> {
        self.call(move |driver| driver.slot(held))
    }

    fn try_upgrade(&mut self, &mut held: &mut Self::Held) -> Result<bool, ExtendError> {
        self.call(move |driver| driver.try_upgrade(held)).map_err(ExtendError::Request)?;
        match self.book.read_of(held, |page| page.changed.take()) {
            Err(ExtendError::Refused(report)) if report.is_contended() => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn downgrade(&mut self, &mut held: &mut Self::Held) -> Result<(), ExtendError> {
        self.call(move |driver| driver.downgrade(held)).map_err(ExtendError::Request)?;
        self.book.read_of(held, |page| page.changed.take())
    }

    fn release(&mut self, held: Self::Held) -> Result<Released, LockLost> {
        self.call(move |driver| driver.release(held));
        self.book.read_of(held, |page| page.outcome.clone())
    }

    /// Has no guards: the panic ends the host's loop, and drops the driver.
    fn panic_holding(mut self, request: LockRequest<'static>) -> Option<Self> {
        let resource = request.resources().next().unwrap().to_vec();
        self.hold(request);
        // The inspection ends when all nodes have answered. Over TLS, a node that has not may miss
        // the releases of a drop.
        self.call(move |driver| driver.inspect(&resource).map(drop)).unwrap();
        self.book.read(|pages| pages.inspections.pop());
        self.jobs.send(Box::new(|_| resume_unwind(Box::new("on purpose")))).unwrap();
        self.ring();
        assert!(self.thread.join().is_err());
        None
    }

    fn end(self) {
        drop(self.jobs);
        drop(self.wake);
        self.thread.join().unwrap();
    }
}

impl<L: Loop> Cancels for Embedded<L> {
    fn cancel(&mut self, asked: Self::Asked) {
        let id = asked.unwrap();
        self.call(move |driver| driver.release(id));
    }
}

impl<L: Loop> Notifies for Embedded<L> {
    fn losses(&mut self, held: &mut Self::Held) -> Vec<LossCause> {
        let reported = |page: &mut Page| (!page.losses.is_empty()).then(|| page.losses.clone());
        self.book.read_of(*held, reported)
    }
}

impl<L: Loop> Inspects for Embedded<L> {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection {
        self.call(|driver| driver.inspect(resource).map(drop)).unwrap();
        self.book.read(|pages| pages.inspections.pop())
    }

    fn force_unlock(&mut self, resource: &'static [u8]) -> ForceUnlockReport {
        let book = Arc::clone(&self.book);
        self.call(move |driver| {
            let id = driver.force_unlock(resource, UnlockScope::Locks).unwrap();
            book.pages.lock().unwrap().breaking = Some(id);
        });
        self.book.read(|pages| pages.broken.take())
    }
}

impl<L: Loop> Detaches for Embedded<L> {
    /// Waits for all nodes first, because a late grant would have no client left to undo it.
    fn detach(&mut self, held: Self::Held) -> Option<DetachedLock> {
        let is_answered = || !self.call(move |driver| driver.awaits_answers(held));
        eventually("all nodes have answered", is_answered);
        self.call(move |driver| driver.detach(held))
    }

    fn attach(&mut self, detached: DetachedLock) -> Self::Held {
        self.call(move |driver| driver.attach(&detached)).unwrap()
    }
}

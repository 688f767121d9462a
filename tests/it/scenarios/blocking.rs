//! The blocking client, on a separate thread like that of any caller.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::{
    AcquireError, Client, Config, DetachedLock, ExtendError, FencingToken, LockGuard, LockLost,
    LockMode, LockRequest, Released,
    inspect::{ForceUnlockReport, Inspection},
};

use crate::scenarios::api::{Api, Detaches, Guards, Inspects, Locks};
use crate::support::LIMIT;

/// A client with or without spinning before it sleeps.
pub(super) struct Blocking<const SPINS: bool = false> {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    locks: u32,
}

type Job = Box<dyn for<'c> FnOnce(&'c Client, &mut Guarded<'c>) + Send>;
type Guarded<'c> = HashMap<u32, LockGuard<'c>>;

const ON_PURPOSE: &str = "on purpose";

const TTL: Duration = Duration::from_secs(10);

impl<const SPINS: bool> Blocking<SPINS> {
    /// Starts a job on the thread, without waiting for it.
    fn begin<T: Send + 'static>(
        &self,
        job: impl for<'c> FnOnce(&'c Client, &mut Guarded<'c>) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (reported, received) = channel();
        self.jobs
            .send(as_job(move |client, locks| drop(reported.send(job(client, locks)))))
            .unwrap();
        received
    }

    fn call<T: Send + 'static>(
        &self,
        job: impl for<'c> FnOnce(&'c Client, &mut Guarded<'c>) -> T + Send + 'static,
    ) -> T {
        self.begin(job).recv_timeout(2 * LIMIT).unwrap()
    }

    fn number(&mut self) -> u32 {
        self.locks += 1;
        self.locks
    }
}

/// Annotates a closure's lifetime: it works for a client of any lifetime.
fn as_job(job: impl for<'c> FnOnce(&'c Client, &mut Guarded<'c>) + Send + 'static) -> Job {
    Box::new(job)
}

impl<const SPINS: bool> Api for Blocking<SPINS> {
    const SPINS: bool = SPINS;

    type Asked = Receiver<Result<u32, AcquireError>>;
    type Held = u32;

    fn start(config: Config) -> Self {
        let (jobs, todo) = channel::<Job>();
        let thread = thread::spawn(move || {
            let client = Client::new(config).unwrap();
            let mut locks = Guarded::new();
            for job in todo {
                job(&client, &mut locks);
            }
        });
        Self { jobs, thread, locks: 0 }
    }

    fn request(&mut self, request: LockRequest<'static>) -> Self::Asked {
        let number = self.number();
        self.begin(move |client, locks| {
            let guard = client.acquire(request)?;
            locks.insert(number, guard);
            Ok(number)
        })
    }

    fn outcome(&mut self, asked: Self::Asked) -> Result<Self::Held, AcquireError> {
        asked.recv_timeout(2 * LIMIT).unwrap()
    }

    fn batch(
        &mut self,
        requests: Vec<LockRequest<'static>>,
    ) -> Vec<Result<Self::Held, AcquireError>> {
        let numbers: Vec<u32> = requests.iter().map(|_| self.number()).collect();
        self.call(|client, locks| {
            let outcomes = client.acquire_all(requests).into_iter().zip(numbers);
            let keep = |(outcome, number): (Result<_, _>, _)| {
                outcome.map(|guard| {
                    locks.insert(number, guard);
                    number
                })
            };
            outcomes.map(keep).collect()
        })
    }

    fn remaining(&mut self, &held: &Self::Held) -> Duration {
        self.call(move |_, locks| locks[&held].remaining())
    }

    fn fencing_token(&mut self, &held: &Self::Held) -> Option<FencingToken> {
        self.call(move |_, locks| locks[&held].fencing_token())
    }

    fn extend(&mut self, &mut held: &mut Self::Held, ttl: Duration) -> Result<(), ExtendError> {
        self.call(move |_, locks| locks.get_mut(&held).unwrap().extend(ttl))
    }

    fn mode(&mut self, &held: &Self::Held) -> LockMode {
        self.call(move |_, locks| locks[&held].mode())
    }

    fn slot(&mut self, &held: &Self::Held) -> Option<u16> {
        self.call(move |_, locks| locks[&held].slot())
    }

    fn try_upgrade(&mut self, &mut held: &mut Self::Held) -> Result<bool, ExtendError> {
        self.call(move |_, locks| locks.get_mut(&held).unwrap().try_upgrade())
    }

    fn downgrade(&mut self, &mut held: &mut Self::Held) -> Result<(), ExtendError> {
        self.call(move |_, locks| locks.get_mut(&held).unwrap().downgrade())
    }

    fn release(&mut self, held: Self::Held) -> Result<Released, LockLost> {
        self.call(move |_, locks| locks.remove(&held).unwrap().release())
    }

    fn panic_holding(self, request: LockRequest<'static>) -> Option<Self> {
        let panicked = self.call(|client, _| {
            let work = || {
                let _held = client.acquire(request).unwrap();
                resume_unwind(Box::new(ON_PURPOSE))
            };
            let panic = catch_unwind::<_, ()>(AssertUnwindSafe(work)).unwrap_err();
            panic.downcast_ref() == Some(&ON_PURPOSE)
        });
        assert!(panicked, "the lock was not granted");
        Some(self)
    }

    /// A guard borrows its client, so both can only be leaked together.
    fn end(self) {
        self.call(|_, locks| locks.drain().for_each(|(_, guard)| std::mem::forget(guard)));
        drop(self.jobs);
        self.thread.join().unwrap();
    }
}

impl<const SPINS: bool> Guards for Blocking<SPINS> {
    fn drop_guard(&mut self, held: Self::Held) {
        self.call(move |_, locks| drop(locks.remove(&held).unwrap()));
    }
}

impl<const SPINS: bool> Locks for Blocking<SPINS> {
    fn lock(&mut self, resource: &'static str) -> Self::Asked {
        let number = self.number();
        self.begin(move |client, locks| {
            locks.insert(number, client.lease(resource, TTL).acquire()?);
            Ok(number)
        })
    }

    fn try_lock(&mut self, resource: &'static str) -> Result<Option<Self::Held>, AcquireError> {
        let number = self.number();
        self.call(move |client, locks| {
            let guard = client.lease(resource, TTL).try_acquire()?;
            Ok(guard.map(|guard| {
                locks.insert(number, guard);
                number
            }))
        })
    }
}

impl<const SPINS: bool> Inspects for Blocking<SPINS> {
    fn inspect(&mut self, resource: &'static [u8]) -> Inspection {
        self.call(|client, _| client.inspect(resource).unwrap())
    }

    fn force_unlock(&mut self, resource: &'static [u8]) -> ForceUnlockReport {
        self.call(|client, _| client.force_unlock(resource, UnlockScope::Locks).unwrap())
    }
}

impl<const SPINS: bool> Detaches for Blocking<SPINS> {
    fn detach(&mut self, held: Self::Held) -> Option<DetachedLock> {
        self.call(move |_, locks| locks.remove(&held).unwrap().detach())
    }

    fn attach(&mut self, detached: DetachedLock) -> Self::Held {
        let number = self.number();
        self.call(move |client, locks| {
            locks.insert(number, client.attach(&detached).unwrap()).map(drop)
        });
        number
    }
}

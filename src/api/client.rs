//! The blocking API: writes and reads happen on the calling thread.
//!
//! It has no thread, so nothing happens between calls. A lock is extended only when the caller
//! extends it, and release bytes that a socket did not accept are written by the next call, or when
//! the client is dropped.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use super::builder::RequestBuilder;
use super::config::Config;
use super::driver::Driver;
use super::error::{AcquireError, unless_contended};
use super::guard::LockGuard;
use super::inspection::{ForceUnlockReport, Inspection};
use super::metrics::MetricsReport;
use super::observer::Observer;
use super::report::NodeReport;
use super::start::StartError;
use crate::proto::{
    ClockReading, DetachedLock, Event, LockId, LockRequest, Refusal, RefusalReason, RequestError,
    UnlockScope, ViewId, Wait, debug_by_name,
};

/// A client that takes locks on the calling thread. It is `Send` but not `Sync`: use one per
/// thread. Many threads or tasks can share an [`Engine`](crate::Engine).
///
/// ```compile_fail,E0277
/// # use redbolt::{Client, LockRequest};
/// # fn f(client: Client) {
/// // `RefCell<Driver>` cannot be shared between threads safely: an engine can.
/// std::thread::scope(|scope| {
///     scope.spawn(|| client.acquire(LockRequest::new("job")).map(drop));
/// });
/// # }
/// ```
///
/// ```
/// # use redbolt::{Engine, LockRequest};
/// # fn f(engine: Engine) {
/// std::thread::scope(|scope| {
///     scope.spawn(|| engine.acquire(LockRequest::new("job")).wait().map(drop));
/// });
/// # }
/// ```
///
/// For what happens when it is dropped, and after a `fork`, see [choosing an
/// API](crate::manual::choosing_an_api).
///
/// ```no_run
/// use std::time::Duration;
/// use redbolt::{Client, Config, LockRequest, Wait};
///
/// let config = Config::builder()
///     .node("10.0.0.1").node("10.0.0.2").node("10.0.0.3")
///     .build()?;
/// let client = Client::new(config)?;
/// let request = LockRequest::new("job").wait(Duration::from_secs(2));
/// let mut lock = client.acquire(request)?;
/// // ... do the work while lock.is_valid() ...
/// lock.extend(Duration::from_secs(10))?;
/// lock.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client {
    config: Config,
    driver: RefCell<Driver>,
}

impl Client {
    /// Starts connecting to all nodes. A node that cannot be reached is not an error here.
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors left.
    pub fn new(config: Config) -> Result<Self, StartError> {
        Ok(Self { config: config.clone(), driver: RefCell::new(Driver::new(config)?) })
    }

    /// Creates a client as [`new`](Self::new) does, for these nodes and with the defaults. Nothing
    /// is sent or waited for.
    ///
    /// # Errors
    ///
    /// [`StartError::Config`]: an address cannot be parsed, there is none, or one is given twice.
    /// [`StartError::Io`]: as for `new`.
    pub fn connect<A: AsRef<str>>(nodes: impl IntoIterator<Item = A>) -> Result<Self, StartError> {
        Self::new(Config::builder().nodes(nodes).build()?)
    }

    /// Waits, for at most `within`, until each node is known to be ready or not, and returns their
    /// states.
    ///
    /// If it is not called, the first acquisition waits for the connections that it needs.
    pub fn warm_up(&self, within: Duration) -> NodeReport {
        let mut driver = self.driver.borrow_mut();
        driver.connect();
        // Reads the end of links that closed since the last call: their nodes are not ready.
        driver.process();
        settled(&mut driver, within, NodeReport::is_connected)
    }

    /// Waits as [`warm_up`](Self::warm_up) does, then probes for at most another `within` which
    /// nodes can push notifications to waiters. It opens the second connection that waiting needs.
    /// See [`NodeStatus::push`](crate::report::NodeStatus::push).
    pub fn warm_up_push(&self, within: Duration) -> NodeReport {
        let before = self.warm_up(within);
        let mut driver = self.driver.borrow_mut();
        driver.try_push();
        settled(&mut driver, within, NodeReport::is_push_settled).or_before(before)
    }

    /// Returns which nodes can vote, as far as known without querying them.
    #[must_use]
    pub fn node_report(&self) -> NodeReport {
        self.driver.borrow().node_report()
    }

    /// Begins a request for a lease on `resource`. The lease ends after `ttl` unless the holder
    /// extends it ([`LockGuard::extend`]) or releases it first. By default the request waits for
    /// the current holder.
    ///
    /// Nothing happens between two calls, so no lock is extended in the background. An
    /// [`Engine`](crate::Engine) does that.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn f(client: redbolt::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let ttl = Duration::from_secs(10);
    /// let invoices = client.lease("invoices", ttl).acquire()?;
    /// if let Some(lease) = client.lease("tidy-up", ttl).try_acquire()? { // None: another client holds it
    ///     lease.release()?;
    /// }
    /// invoices.release()?; // an error if it was lost: the work was not covered
    /// # Ok(()) }
    /// ```
    pub fn lease(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> RequestBuilder<&Self> {
        RequestBuilder::new(self, resource.as_ref()).ttl(ttl)
    }

    /// Acquires a lock. It waits as long as the request allows: for the holder to release the lock,
    /// and also for nodes to return or to end their quarantine. A failure that only an operator can
    /// fix ends the wait at once.
    ///
    /// Dropping the guard releases the lock without waiting for the nodes. Only
    /// [`LockGuard::extend`] extends it.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`]: the request is not valid. [`AcquireError::Refused`]: it was
    /// refused; the error has each node's vote. In both cases the attempt leaves nothing on the
    /// nodes, or its undo is in flight.
    pub fn acquire(&self, request: LockRequest<'_>) -> Result<LockGuard<'_>, AcquireError> {
        let mut driver = self.driver.borrow_mut();
        let now = driver.catch_up();
        let id = acquire(&mut driver, &request, now)?;
        let outcome = driver.outcome(id, |it| matches!(it, Event::Granted(_) | Event::Refused(..)));
        let refusal = if let Event::Refused(_, refusal) = outcome { Some(refusal) } else { None };
        self.granted(&mut driver, id, &request, refusal)
    }

    /// Returns the guard of a lock, if it was granted and is still valid.
    fn granted(
        &self,
        driver: &mut Driver,
        id: LockId,
        request: &LockRequest<'_>,
        refusal: Option<Refusal>,
    ) -> Result<LockGuard<'_>, AcquireError> {
        // The process may have been stopped between the last reply and here: a lock that has
        // expired since is refused.
        let is_late = || driver.remaining(id).is_zero();
        if refusal.is_none() && !is_late() {
            let mode = driver.mode(id).expect("a lock is known while its validity lasts");
            return Ok(LockGuard::new(&self.driver, id, mode));
        }
        let refusal = refusal.unwrap_or_else(|| {
            let votes = driver.votes(id);
            driver.release(id);
            Refusal::new(RefusalReason::Expired, votes)
        });
        Err(AcquireError::Refused(driver.report(&refusal).of_lock(request.resources())))
    }

    /// Acquires several independent locks with one write to each node, and returns when each of
    /// them is granted or refused. For all or nothing use [`LockRequest::and`].
    ///
    /// The outcomes are in the order of the requests. The validity of a lock granted early runs
    /// while the others are awaited, so choose waits that are short compared with the TTL. A
    /// request for a resource that an earlier request of the same call names could only wait for
    /// itself. It is refused at once ([`RequestError::DuplicateRequest`]).
    pub fn acquire_all<'a>(
        &self,
        requests: impl IntoIterator<Item = LockRequest<'a>>,
    ) -> Vec<Result<LockGuard<'_>, AcquireError>> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up();
        let asked: Vec<_> = driver.batch(|driver| {
            let acquire = |request: Result<LockRequest<'a>, _>| {
                let (request, now) = (request?, driver.now());
                Ok((acquire(driver, &request, now)?, request))
            };
            distinct(requests).map(acquire).collect()
        });
        let open = asked.iter().flatten().map(|(id, _)| *id).collect();
        let refused = driver.outcomes(open);
        let outcome = |asked: Result<(LockId, LockRequest<'_>), RequestError>| {
            let (id, request) = asked?;
            self.granted(&mut driver, id, &request, refused.get(&id).copied())
        };
        asked.into_iter().map(outcome).collect()
    }

    /// Queries all nodes for the holder of `resource`. Acquires and writes nothing.
    ///
    /// Once a quorum has answered, it does not wait for nodes that seem to hang, and waits for
    /// others only briefly: 250 ms, or four of their round trips.
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(
        &self,
        resource: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Inspection, RequestError> {
        self.view(|driver| driver.inspect(resource), Driver::take_inspection)
    }

    /// Observes who leads in `election`, until the result is dropped. Takes no part and writes
    /// nothing. An observation is a [hint](crate::manual::leader).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn f(client: redbolt::Client) -> Result<(), redbolt::RequestError> {
    /// // Once:
    /// if let Some(seen) = client.observe("leader:shop")?.changed(Duration::from_secs(1)) {
    ///     println!("{seen}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The name is empty, too long, the restart guard's, or that of a fencing counter.
    pub fn observe(
        &self,
        election: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Observer<'_>, RequestError> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up();
        let id = driver.observe(election)?;
        Ok(Observer::new(&self.driver, id))
    }

    /// Breaks the lock on `resource`, whichever client holds it, on every node that can be reached.
    /// It is meant for operators, against a holder that hangs or has died.
    ///
    /// It deletes the lock that it finds there, as far as the `scope` allows, and reports its
    /// holder. It deletes no other key, and no lock that is acquired in the meantime.
    ///
    /// The holder is not notified, and works on until it checks its lock. From then on only a
    /// fencing token protects its work.
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long, the guard's, or that of a fencing counter.
    pub fn force_unlock(
        &self,
        resource: &(impl AsRef<[u8]> + ?Sized),
        scope: UnlockScope,
    ) -> Result<ForceUnlockReport, RequestError> {
        self.view(|driver| driver.force_unlock(resource, scope), Driver::take_force_unlock)
    }

    /// Attaches a lock that this process, or another one on the same machine,
    /// [detached](LockGuard::detach). Dropping the guard releases the lock; to keep it, detach it
    /// again.
    ///
    /// A lease that has expired is not an error: the guard's [`remaining`](LockGuard::remaining) is
    /// zero, [`extend`](LockGuard::extend) reports that it is lost, and a release undoes what the
    /// nodes still keep and reports the loss too. Nothing is sent before that.
    ///
    /// Attach it only once: if it is attached twice, one lock has two holders.
    ///
    /// # Errors
    ///
    /// This client has other nodes, the same nodes in another order, or another quorum or limits.
    pub fn attach(&self, detached: &DetachedLock) -> Result<LockGuard<'_>, RequestError> {
        let id = self.driver.borrow_mut().attach(detached)?;
        Ok(LockGuard::new(&self.driver, id, detached.mode()))
    }

    fn view<T>(
        &self,
        begin: impl FnOnce(&mut Driver) -> Result<ViewId, RequestError>,
        take: impl Fn(&mut Driver, ViewId) -> Option<T>,
    ) -> Result<T, RequestError> {
        let mut driver = self.driver.borrow_mut();
        driver.catch_up();
        let id = begin(&mut driver)?;
        loop {
            if let Some(seen) = take(&mut driver, id) {
                return Ok(seen);
            }
            if !driver.is_ours() {
                return Err(RequestError::Forked);
            }
            let timeout = driver.timeout();
            driver.wait(timeout);
            while driver.poll_event().is_some() {}
        }
    }

    /// Returns the counts since the client was created.
    #[must_use]
    pub fn metrics(&self) -> MetricsReport {
        self.driver.borrow().metrics()
    }

    /// Returns whether this process created the client. A forked child did not: the connections
    /// belong to its parent, and nothing is sent or read there.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.driver.borrow().is_ours()
    }

    /// Returns the configuration that the client was created with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl<'c> RequestBuilder<&'c Client> {
    /// Acquires the lease, and waits as long as the request allows.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::acquire`] does.
    pub fn acquire(self) -> Result<LockGuard<'c>, AcquireError> {
        self.handle.acquire(self.request)
    }

    /// Tries once to acquire the lease. `Ok(None)` means that another client has it: a quorum of
    /// the nodes has answered, and the grants that are missing are held by others.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::acquire`] does. [`AcquireError::Refused`] means that it is unknown
    /// whether another client has the lock, because too few nodes vote or because they answered too
    /// late.
    pub fn try_acquire(self) -> Result<Option<LockGuard<'c>>, AcquireError> {
        unless_contended(self.wait(Wait::No).acquire())
    }
}

impl Drop for Client {
    /// Releases the locks of guards that were leaked, and waits up to 50 ms for confirmations of
    /// releases.
    fn drop(&mut self) {
        let driver = self.driver.get_mut();
        driver.sockets.release_all();
        // Nodes that do not confirm in time keep the lock until its TTL ends.
        driver.wait_while(LAST_RELEASES, Driver::has_pending_releases);
    }
}

debug_by_name!(Client);

/// Processes until `is_settled` holds for the nodes, for at most `within`.
fn settled(
    driver: &mut Driver,
    within: Duration,
    is_settled: impl Fn(&NodeReport) -> bool,
) -> NodeReport {
    driver.wait_while(within, |driver| !is_settled(&driver.node_report()));
    driver.node_report()
}

/// Returns the requests, with an error for each that names a resource of an earlier one: it could
/// only wait for itself.
pub(super) fn distinct<'a>(
    requests: impl IntoIterator<Item = LockRequest<'a>>,
) -> impl Iterator<Item = Result<LockRequest<'a>, RequestError>> {
    let mut wanted = HashSet::new();
    requests.into_iter().enumerate().map(move |(index, request)| {
        let resources: Vec<_> = request.resources().map(<[u8]>::to_vec).collect();
        if resources.iter().any(|resource| wanted.contains(resource)) {
            return Err(RequestError::DuplicateRequest { index });
        }
        wanted.extend(resources);
        Ok(request)
    })
}

/// Begins an acquisition. Automatic extension is refused because no thread runs between two calls.
fn acquire(
    driver: &mut Driver,
    request: &LockRequest<'_>,
    now: ClockReading,
) -> Result<LockId, RequestError> {
    match request.is_auto_extended() {
        true => Err(RequestError::AutoExtendUnsupported),
        false => driver.acquire_at(request, now),
    }
}

/// The longest wait for confirmations of releases when a client is dropped.
const LAST_RELEASES: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::grows_in_proportion;

    /// Refuses every request, because no node can be reached.
    #[test]
    fn many_asks_have_their_outcomes_in_proportion() {
        grows_in_proportion(512, |count| {
            let config = Config::builder().node("127.0.0.1:1").build().unwrap();
            let client = Client::new(config).unwrap();
            let names: Vec<_> = (0..count).map(|at| format!("resource {at}")).collect();
            move || {
                let requests = names.iter().map(|name| LockRequest::new(name.as_bytes()));
                assert!(client.acquire_all(requests).iter().all(Result::is_err));
            }
        });
    }
}

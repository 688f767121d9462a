//! The blocking API: writes and reads happen on the calling thread.
//!
//! No thread stands behind it, so nothing happens between calls: a lock is extended when the caller
//! extends it, and what a release could not write goes with the next call, or with the client's
//! own drop.

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

/// Takes locks on the calling thread. `Send`, not `Sync`: one for each thread. Many threads or tasks share
/// an [`Engine`](crate::Engine).
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
/// [Choosing an API](crate::manual::choosing_an_api) says what happens at its end and after a `fork`.
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
    /// Begins to connect to all nodes. A node that cannot be reached is no error here.
    ///
    /// # Errors
    ///
    /// [`StartError::Io`]: the system has no file descriptors left.
    pub fn new(config: Config) -> Result<Self, StartError> {
        Ok(Self { config: config.clone(), driver: RefCell::new(Driver::new(config)?) })
    }

    /// As [`new`](Self::new), with these nodes and the defaults. Nothing is sent or waited for.
    ///
    /// # Errors
    ///
    /// [`StartError::Config`]: an address cannot be read, or there is none, or one twice. [`StartError::Io`] as `new`.
    pub fn connect<A: AsRef<str>>(nodes: impl IntoIterator<Item = A>) -> Result<Self, StartError> {
        Self::new(Config::builder().nodes(nodes).build()?)
    }

    /// Waits until every node is ready or known not to be, for at most `within`, and tells which.
    ///
    /// Without it the first acquisition waits for the connections as far as it needs them.
    pub fn warm_up(&self, within: Duration) -> NodeReport {
        let mut driver = self.driver.borrow_mut();
        driver.connect();
        // A link that has ended since the last call is not ready.
        driver.process();
        settled(&mut driver, within, NodeReport::is_connected)
    }

    /// As [`warm_up`](Self::warm_up), and finds out besides which nodes tell those who wait, for at most
    /// `within` more: it opens the second connection that waiting takes. See [`NodeStatus::push`](crate::report::NodeStatus::push).
    pub fn warm_up_push(&self, within: Duration) -> NodeReport {
        let before = self.warm_up(within);
        let mut driver = self.driver.borrow_mut();
        driver.try_push();
        settled(&mut driver, within, NodeReport::is_push_settled).or_before(before)
    }

    /// Which nodes can vote, as far as it is known without asking them.
    #[must_use]
    pub fn node_report(&self) -> NodeReport {
        self.driver.borrow().node_report()
    }

    /// Asks for a lease on `resource`, which ends after `ttl` unless the holder extends it ([`LockGuard::extend`]) or releases it
    /// before. It waits for the holder unless said otherwise.
    ///
    /// Between two calls nothing happens, so nobody extends a lock in the background: an [`Engine`](crate::Engine) does that.
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

    /// Takes a lock, waiting for as long as the request says: for its holder to let go, and as well for
    /// nodes to come back or to end their quarantine. What only an operator can mend ends a wait at once.
    ///
    /// The guard releases the lock when it is dropped, without waiting for the nodes. Nothing
    /// extends it but [`LockGuard::extend`].
    ///
    /// # Errors
    ///
    /// [`AcquireError::Request`] if the request is not valid; [`AcquireError::Refused`] with every node's vote. In
    /// both cases nothing of the attempt stays on the nodes, or the undo is on its way.
    pub fn acquire(&self, request: LockRequest<'_>) -> Result<LockGuard<'_>, AcquireError> {
        let mut driver = self.driver.borrow_mut();
        let now = driver.catch_up();
        let id = acquire(&mut driver, &request, now)?;
        let outcome = driver.outcome(id, |it| matches!(it, Event::Granted(_) | Event::Refused(..)));
        let refusal = if let Event::Refused(_, refusal) = outcome { Some(refusal) } else { None };
        self.granted(&mut driver, id, &request, refusal)
    }

    /// The guard of a lock that was granted, and still is.
    fn granted(
        &self,
        driver: &mut Driver,
        id: LockId,
        request: &LockRequest<'_>,
        refusal: Option<Refusal>,
    ) -> Result<LockGuard<'_>, AcquireError> {
        // The process may have been stopped between the last reply and here.
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

    /// Takes several locks that have nothing to do with each other, with one write to each node, and
    /// returns when each of them is granted or refused. For all or nothing see [`LockRequest::and`].
    ///
    /// The outcomes are in the order of the requests. A lock that was granted early waits for the others with
    /// its validity running, so give them a wait that is short against their TTL. A request for a resource
    /// that an earlier one of the same call asks for could only wait for itself, and is refused at
    /// once ([`RequestError::DuplicateRequest`]).
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

    /// Asks all nodes who holds `resource`. Takes no lock and writes nothing.
    ///
    /// Behind a quorum it does not wait for nodes that seem to hang, and for others a moment: 250 ms, or four
    /// of their round trips.
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

    /// Observes who leads in `election`, for as long as the result lives. Takes no part and writes nothing. What is seen is
    /// a [hint](crate::manual::leader).
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

    /// Breaks the lock on `resource`, whoever holds it, on every node that can be reached: an
    /// operator's means against a holder that hangs or is gone. It deletes what it finds there, as far as that is in the
    /// `scope`, and says whose it was: no other key, and no lock that somebody takes meanwhile.
    ///
    /// The holder is not asked, and works on until it looks; what then protects its work is a fencing
    /// token.
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

    /// Attaches a lock that was [detached](LockGuard::detach), by this process or another one on the same
    /// machine. Dropping the guard releases it, as ever; to let it live on, detach it again.
    ///
    /// A lock whose lease is over is no error: the guard's [`remaining`](LockGuard::remaining) is zero,
    /// [`extend`](LockGuard::extend) says that it is lost, and its release undoes what the nodes still
    /// keep and says so too. Nothing is sent before that.
    ///
    /// Attach it once: two who attach it are two holders of one lock.
    ///
    /// # Errors
    ///
    /// This client has other nodes, the same in another order, or another quorum or limits.
    pub fn attach(&self, detached: &DetachedLock) -> Result<LockGuard<'_>, RequestError> {
        let id = self.driver.borrow_mut().attach(detached)?;
        Ok(LockGuard::new(&self.driver, id, detached.mode()))
    }

    /// Begins a view of a resource, and waits for its result.
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

    /// What was counted since it was made.
    #[must_use]
    pub fn metrics(&self) -> MetricsReport {
        self.driver.borrow().metrics()
    }

    /// Whether this is the process that made it. In a forked child it is not: the connections are the parent's, and nothing
    /// is sent or read there.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.driver.borrow().is_ours()
    }

    /// The configuration it was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl<'c> RequestBuilder<&'c Client> {
    /// Takes the lease, and waits for it as long as it says.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`].
    pub fn acquire(self) -> Result<LockGuard<'c>, AcquireError> {
        self.handle.acquire(self.request)
    }

    /// Tries once. `Ok(None)` says that another client has the lock: a quorum of the nodes has answered, and others have
    /// what is missing.
    ///
    /// # Errors
    ///
    /// As [`Client::acquire`]. [`AcquireError::Refused`]: it is not known whether another client has it, for too few nodes
    /// vote, or answered too late.
    pub fn try_acquire(self) -> Result<Option<LockGuard<'c>>, AcquireError> {
        unless_contended(self.wait(Wait::No).acquire())
    }
}

impl Drop for Client {
    /// Lets go of what forgotten guards hold, and gives releases up to 50 ms to be confirmed.
    fn drop(&mut self) {
        let driver = self.driver.get_mut();
        driver.sockets.release_all();
        driver.wait_while(LAST_RELEASES, Driver::has_pending_releases);
    }
}

debug_by_name!(Client);

/// Processes until this is true of the nodes, for at most `within`.
fn settled(
    driver: &mut Driver,
    within: Duration,
    is_settled: impl Fn(&NodeReport) -> bool,
) -> NodeReport {
    driver.wait_while(within, |driver| !is_settled(&driver.node_report()));
    driver.node_report()
}

/// Requests of one call. One for what an earlier one asks for could only wait for itself.
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

/// Between two calls there is no thread that would auto-extend the lock.
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

/// How long a client's drop waits for confirmations of releases.
const LAST_RELEASES: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::grows_in_proportion;

    /// All of them are refused, because no node can be reached.
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

//! Resolves host names, with at most one look-up per host and port in flight.
//!
//! The system's resolver can block for about 30 s, and cannot be interrupted. Invariant: a caller
//! waits no longer than its deadline, and a host and port has at most one look-up in flight,
//! however often it is asked for.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::host_port::HostPort;
use super::threads::{self, lock};

/// The system's resolver, or a replacement by a test.
#[derive(Clone, Default)]
pub(crate) struct HostResolver(Option<Arc<Resolve>>);

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl HostResolver {
    /// Creates a resolver that calls this function of a test.
    pub(crate) fn by(
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(resolve)))
    }

    /// Resolves a host. Blocks as long as the system does.
    pub(super) fn resolve(&self, place: &HostPort) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = place;
        match (known(place), &self.0) {
            (Some(address), _) => Ok(vec![address]),
            (None, Some(resolve)) => resolve(host, *port),
            (None, None) => (host.as_str(), *port).to_socket_addrs().map(Iterator::collect),
        }
    }
}

/// Returns the address if the host is an IP address.
fn known((host, port): &HostPort) -> Option<SocketAddr> {
    host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, *port))
}

impl fmt::Debug for HostResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "HostResolver(test)" } else { "HostResolver" })
    }
}

/// The look-ups in flight, each shared by all callers for the same host and port.
#[derive(Default)]
pub(super) struct LookUps {
    pub(super) resolver: HostResolver,
    pending: Mutex<HashMap<HostPort, Arc<LookUp>>>,
}

#[derive(Default)]
struct LookUp {
    answer: Mutex<Option<(Instant, Addresses)>>,
    is_answered: Condvar,
}

type Addresses = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

impl LookUps {
    pub(super) fn new(resolver: HostResolver) -> Self {
        Self { resolver, pending: Mutex::default() }
    }

    /// Returns the addresses if they are known by `until`. A slower look-up continues for a later
    /// call.
    pub(super) fn find(
        self: &Arc<Self>,
        place: &HostPort,
        until: Instant,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Some(address) = known(place) {
            return Ok(vec![address]);
        }
        let look_up = self.begin(place)?;
        let Some(answer) = look_up.answer_by(until) else {
            return Err(io::Error::new(io::ErrorKind::TimedOut, STILL_LOOKED_UP));
        };
        // Used only by the callers that waited, because addresses can change. A newer look-up
        // stays.
        let mut pending = lock(&self.pending);
        if pending.get(place).is_some_and(|known| Arc::ptr_eq(known, &look_up)) {
            pending.remove(place);
        }
        answer.map_err(|(kind, words)| io::Error::new(kind, words))
    }

    /// Returns the pending or recent look-up of this host and port, or begins one.
    fn begin(self: &Arc<Self>, place: &HostPort) -> io::Result<Arc<LookUp>> {
        let mut pending = lock(&self.pending);
        pending.retain(|_, known| known.is_fresh());
        if let Some(known) = pending.get(place) {
            return Ok(Arc::clone(known));
        }
        // The number is bounded because sentinels may keep naming new masters.
        if pending.len() >= MOST {
            return Err(io::Error::other(STILL_LOOKED_UP));
        }
        let look_up = Arc::<LookUp>::default();
        let (this, ours, of) = (Arc::clone(self), Arc::clone(&look_up), place.clone());
        let resolve = move || {
            let answer = this.resolver.resolve(&of);
            ours.answer(answer.map_err(|error| (error.kind(), error.to_string())));
        };
        // The map is locked until the insertion, so that no other caller begins the same look-up.
        threads::start("redbolt-resolve", resolve)?;
        pending.insert(place.clone(), Arc::clone(&look_up));
        Ok(look_up)
    }
}

impl LookUp {
    fn answer(&self, answer: Addresses) {
        *lock(&self.answer) = Some((Instant::now(), answer));
        self.is_answered.notify_all();
    }

    fn answer_by(&self, until: Instant) -> Option<Addresses> {
        let left = until.saturating_duration_since(Instant::now());
        let answer = lock(&self.answer);
        let waited = self.is_answered.wait_timeout_while(answer, left, |it| it.is_none());
        let (answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.as_ref().map(|(_, answer)| answer.clone())
    }

    /// Returns whether the look-up is pending, or ended recently enough for the next caller.
    fn is_fresh(&self) -> bool {
        lock(&self.answer).as_ref().is_none_or(|(since, _)| since.elapsed() < FRESH)
    }
}

/// The maximum number of look-ups: above one master for each of 32 sentinels of 32 nodes.
const MOST: usize = 2_048;

/// How long an unused answer is kept: longer than the pause between two attempts.
const FRESH: Duration = Duration::from_secs(10);

const STILL_LOOKED_UP: &str = "its name is still being looked up";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use super::*;

    fn place(host: &str) -> HostPort {
        (host.to_owned(), 7)
    }

    /// Returns a resolver that hangs until it is released, and the number of its calls.
    fn hanging() -> (Arc<LookUps>, Sender<()>, Arc<AtomicUsize>) {
        let (go, gone): (_, Receiver<()>) = channel();
        let (gone, calls) = (Mutex::new(gone), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&calls);
        let resolver = HostResolver::by(move |_, port| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = lock(&gone).recv();
            Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))])
        });
        (Arc::new(LookUps::new(resolver)), go, calls)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(10)
    }

    fn long() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_resolver_that_hangs_is_asked_once_and_not_waited_for() {
        let (look_ups, go, calls) = hanging();
        for _ in 0..5 {
            let error = look_ups.find(&place("a"), soon()).unwrap_err();
            assert_eq!(error.to_string(), STILL_LOOKED_UP);
        }
        let others: Vec<_> = (0..2)
            .map(|_| {
                let look_ups = Arc::clone(&look_ups);
                thread::spawn(move || look_ups.find(&place("a"), long()).unwrap())
            })
            .collect();
        // Callers that come after the answer would begin another look-up.
        let callers = || Arc::strong_count(&lock(&look_ups.pending)[&place("a")]) - 2;
        let until = long();
        while callers() < others.len() {
            assert!(Instant::now() < until, "both wait for the same look-up");
            thread::yield_now();
        }
        go.send(()).unwrap();
        for other in others {
            assert_eq!(other.join().unwrap(), ["10.0.0.1:7".parse().unwrap()]);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        go.send(()).unwrap();
        assert!(look_ups.find(&place("a"), long()).is_ok());
        assert_eq!(calls.load(Ordering::SeqCst), 2, "what was told is not told again");
    }

    #[test]
    fn an_answer_that_came_late_is_taken_by_the_next_call() {
        let (look_ups, go, calls) = hanging();
        assert!(look_ups.find(&place("a"), soon()).is_err());
        go.send(()).unwrap();
        assert!(look_ups.find(&place("a"), long()).is_ok());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_address_is_not_looked_up() {
        let (look_ups, _go, calls) = hanging();
        for host in ["10.0.0.2", "::1"] {
            let found = look_ups.find(&place(host), soon()).unwrap();
            assert_eq!(found, [SocketAddr::new(host.parse().unwrap(), 7)]);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn an_error_of_the_resolver_is_told() {
        let resolver = HostResolver::by(|_, _| Err(io::Error::other("no such host")));
        let look_ups = Arc::new(LookUps::new(resolver));
        assert_eq!(look_ups.find(&place("a"), long()).unwrap_err().to_string(), "no such host");
    }
}

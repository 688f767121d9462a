//! The events of a driver as records of plain numbers.

use std::ffi::c_void;
use std::ptr;

use redbolt::report::{NodeState, Refusal};
use redbolt::{Driver, Event, LockId};

use crate::failure::Failure;
use crate::numbers::Numbers;
use crate::status::{Loss, Status};

/// The kind of an event.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The lock is held. Check the validity that is left before acting on it.
    Granted = 1,
    /// The acquisition ended without a lock: `status` has the reason. It is the lock's last event.
    Refused = 2,
    /// An extension succeeded.
    Extended = 3,
    /// An extension found no quorum. The lock is held until its validity ends.
    NotExtended = 4,
    /// An automatic extension succeeded.
    AutoExtended = 5,
    /// Automatic extensions fail. They are retried, and a series of failures is reported once.
    AutoExtendFailed = 6,
    /// The lock is held, but its validity was shortened.
    Shortened = 7,
    /// The lock is lost: `loss` has the cause. Stop the work that it protects, and release it.
    Lost = 8,
    /// The lock was released, and `confirmed` nodes have confirmed it. It is the lock's last event.
    Released = 9,
    /// A shared lock is exclusive now. Its validity and its fencing token are new.
    Upgraded = 10,
    /// A shared lock did not become exclusive. It is held as before.
    NotUpgraded = 11,
    /// Other clients may share the resource of a lock that was exclusive.
    Downgraded = 12,
    /// The nodes do not let other clients share the resource yet.
    DowngradeDelayed = 13,
    /// Node number `node` votes (`status` is OK), or has stopped voting.
    Node = 14,
    /// The inspection or the forced unlock `view` is complete: take its result.
    Viewed = 15,
}

/// An event. Fields that do not belong to its kind are zero.
#[repr(C)]
pub struct EventRecord {
    /// The kind of an event.
    pub kind: EventKind,
    /// The reason of a refusal.
    pub status: Status,
    /// The cause of a loss.
    pub loss: Loss,
    /// The number of the node, from one.
    pub node: u32,
    /// The number of nodes that have confirmed a release.
    pub confirmed: u32,
    /// The number of the lock.
    pub lock: u64,
    /// The number of the view.
    pub view: u64,
    /// The `data` that was passed with that lock or that view.
    pub data: *mut c_void,
}

/// A function that builds the error of an event if the host wants it.
pub(crate) type Words = Box<dyn FnOnce(&Driver) -> Failure>;

/// Takes the next event that has a record for the host.
pub(crate) fn told(
    driver: &mut Driver,
    numbers: &mut Numbers,
) -> Option<(EventRecord, Option<Words>)> {
    loop {
        let event = driver.poll_event()?;
        // Skips events of locks that were detached meanwhile, and of requests that C has no
        // function for.
        if let Some(told) = record(numbers, event) {
            return Some(told);
        }
    }
}

fn record(numbers: &mut Numbers, event: Event) -> Option<(EventRecord, Option<Words>)> {
    use EventKind as Kind;
    Some(match event {
        Event::Granted(id) => (of(numbers, Kind::Granted, id)?, None),
        Event::Extended(id) => (of(numbers, Kind::Extended, id)?, None),
        Event::AutoExtended(id) => (of(numbers, Kind::AutoExtended, id)?, None),
        Event::Shortened(id) => (of(numbers, Kind::Shortened, id)?, None),
        Event::Upgraded(id) => (of(numbers, Kind::Upgraded, id)?, None),
        Event::Downgraded(id) => (of(numbers, Kind::Downgraded, id)?, None),
        Event::Refused(id, refusal) => {
            let record = of(numbers, Kind::Refused, id)?;
            numbers.forget(record.lock);
            refused(record, refusal)
        }
        Event::NotExtended(id, refusal) => refused(of(numbers, Kind::NotExtended, id)?, refusal),
        Event::NotUpgraded(id, refusal) => refused(of(numbers, Kind::NotUpgraded, id)?, refusal),
        Event::AutoExtendFailed(id, refusal) => {
            refused(of(numbers, Kind::AutoExtendFailed, id)?, refusal)
        }
        Event::DowngradeDelayed(id, refusal) => {
            refused(of(numbers, Kind::DowngradeDelayed, id)?, refusal)
        }
        Event::Lost(id, cause) => {
            let record = of(numbers, Kind::Lost, id)?;
            numbers.lost(record.lock);
            let record = EventRecord { status: Status::Lost, loss: cause.into(), ..record };
            (record, Some(Box::new(move |driver| driver.lock_lost(id, cause).into())))
        }
        Event::Released(id, confirmed) => {
            let record = of(numbers, Kind::Released, id)?;
            numbers.forget(record.lock);
            (EventRecord { confirmed: confirmed.nodes, ..record }, None)
        }
        Event::Node(node, NodeState::Ready) => (of_node(node.index(), Status::Ok), None),
        Event::Node(node, _) => (of_node(node.index(), Status::NoQuorum), Some(of_all())),
        Event::Viewed(id) => {
            let (view, data) = numbers.of_view(id)?;
            (EventRecord { view, data: data.0, ..EventRecord::new(Kind::Viewed) }, None)
        }
        _ => return None,
    })
}

fn of(numbers: &Numbers, kind: EventKind, id: LockId) -> Option<EventRecord> {
    let (lock, data) = numbers.of(id)?;
    Some(EventRecord { lock, data: data.0, ..EventRecord::new(kind) })
}

fn of_node(index: usize, status: Status) -> EventRecord {
    let node = u32::try_from(index + 1).unwrap_or(u32::MAX);
    EventRecord { node, status, ..EventRecord::new(EventKind::Node) }
}

/// Returns the state of all nodes at the time when it is asked for.
fn of_all() -> Words {
    Box::new(|driver| Failure::of_nodes(&driver.node_report()))
}

fn refused(record: EventRecord, refusal: Refusal) -> (EventRecord, Option<Words>) {
    let status = Status::from(refusal.reason);
    (EventRecord { status, ..record }, Some(Box::new(move |driver| driver.report(&refusal).into())))
}

impl EventRecord {
    fn new(kind: EventKind) -> Self {
        Self {
            kind,
            status: Status::Ok,
            loss: Loss::None,
            node: 0,
            confirmed: 0,
            lock: 0,
            view: 0,
            data: ptr::null_mut(),
        }
    }
}

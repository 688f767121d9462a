//! The numbers by which a host refers to the locks and views of a driver. A number is never used
//! twice. The number of a lock is forgotten after its last event, and that of a view when its
//! result is taken.

use std::collections::HashMap;

use redbolt::LockId;
use redbolt::proto::ViewId;

use crate::foreign::UserData;

#[derive(Default)]
pub(crate) struct Numbers {
    last: u64,
    by_number: HashMap<u64, Known>,
    by_id: HashMap<LockId, u64>,
    views: HashMap<u64, View>,
}

/// A view that has not been taken.
struct View {
    id: ViewId,
    kind: ViewKind,
    data: UserData,
}

/// The subject of a view. Each kind is taken by a separate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewKind {
    ForceUnlock,
    Inspection,
}

struct Known {
    id: LockId,
    data: UserData,
    /// `true` once the host was notified that the lock is lost.
    is_lost: bool,
    /// `true` once the host has released it.
    is_let_go: bool,
}

impl Numbers {
    pub(crate) fn number(&mut self, id: LockId, data: UserData) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, Known { id, data, is_lost: false, is_let_go: false });
        self.by_id.insert(id, self.last);
        self.last
    }

    pub(crate) fn id(&self, number: u64) -> Option<LockId> {
        self.by_number.get(&number).map(|known| known.id)
    }

    /// Returns `true` if the host was told that the lock is lost.
    pub(crate) fn is_lost(&self, number: u64) -> bool {
        self.by_number.get(&number).is_some_and(|known| known.is_lost)
    }

    /// Returns the number and the data for an event of this lock.
    pub(crate) fn of(&self, id: LockId) -> Option<(u64, UserData)> {
        let number = *self.by_id.get(&id)?;
        self.by_number.get(&number).map(|known| (number, known.data))
    }

    /// Records that the host was notified of the loss. Nothing follows if the host has released the
    /// lock.
    pub(crate) fn lost(&mut self, number: u64) {
        self.end_if(number, |known| {
            known.is_lost = true;
            known.is_let_go
        });
    }

    /// Records that the host has released the lock. Nothing follows if the host was notified of a
    /// loss.
    pub(crate) fn let_go(&mut self, number: u64) {
        self.end_if(number, |known| {
            known.is_let_go = true;
            known.is_lost
        });
    }

    /// Forgets a lock after its last event.
    pub(crate) fn forget(&mut self, number: u64) {
        self.end_if(number, |_| true);
    }

    /// Returns a number for a view that begins.
    pub(crate) fn view(&mut self, id: ViewId, kind: ViewKind, data: UserData) -> u64 {
        self.last += 1;
        self.views.insert(self.last, View { id, kind, data });
        self.last
    }

    /// Returns the view with this number, if it is of this kind.
    pub(crate) fn view_id(&self, number: u64, kind: ViewKind) -> Option<ViewId> {
        self.views.get(&number).filter(|view| view.kind == kind).map(|view| view.id)
    }

    /// Returns the number and the data for the event of a view.
    pub(crate) fn of_view(&self, id: ViewId) -> Option<(u64, UserData)> {
        // A search is fast enough, because a program has few views at a time.
        let mut views = self.views.iter();
        views.find(|(_, view)| view.id == id).map(|(number, view)| (*number, view.data))
    }

    /// Forgets a view whose result was taken.
    pub(crate) fn forget_view(&mut self, number: u64) {
        self.views.remove(&number);
    }

    fn end_if(&mut self, number: u64, is_over: impl FnOnce(&mut Known) -> bool) {
        let over = self.by_number.get_mut(&number).is_some_and(is_over);
        if over && let Some(known) = self.by_number.remove(&number) {
            self.by_id.remove(&known.id);
        }
    }
}

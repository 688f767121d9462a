//! The numbers by which a host knows the locks and views of a driver. A number is never used twice. That of a lock is forgotten
//! after the last event, that of a view when its result is taken. Not here: the locks and the views.

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

/// The subject of a view. Each kind is taken by a function of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewKind {
    ForceUnlock,
    Inspection,
}

struct Known {
    id: LockId,
    data: UserData,
    /// The host has been told that it is lost.
    is_lost: bool,
    /// The host has let go of it.
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

    /// What an event of this lock tells the host.
    pub(crate) fn of(&self, id: LockId) -> Option<(u64, UserData)> {
        let number = *self.by_id.get(&id)?;
        self.by_number.get(&number).map(|known| (number, known.data))
    }

    /// The host is told that it is lost. That is the last of it, once it has let go.
    pub(crate) fn lost(&mut self, number: u64) {
        self.end_if(number, |known| {
            known.is_lost = true;
            known.is_let_go
        });
    }

    /// The host lets go. If it was told of the loss, nothing more is to come.
    pub(crate) fn let_go(&mut self, number: u64) {
        self.end_if(number, |known| {
            known.is_let_go = true;
            known.is_lost
        });
    }

    /// Nothing more is to come.
    pub(crate) fn forget(&mut self, number: u64) {
        self.end_if(number, |_| true);
    }

    /// Gives a view that begins a number.
    pub(crate) fn view(&mut self, id: ViewId, kind: ViewKind, data: UserData) -> u64 {
        self.last += 1;
        self.views.insert(self.last, View { id, kind, data });
        self.last
    }

    /// The view of that number, if it is of that kind.
    pub(crate) fn view_id(&self, number: u64, kind: ViewKind) -> Option<ViewId> {
        self.views.get(&number).filter(|view| view.kind == kind).map(|view| view.id)
    }

    /// What the event of a view tells the host.
    pub(crate) fn of_view(&self, id: ViewId) -> Option<(u64, UserData)> {
        // A program has few views at a time.
        let mut views = self.views.iter();
        views.find(|(_, view)| view.id == id).map(|(number, view)| (*number, view.data))
    }

    /// The result of a view was taken.
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

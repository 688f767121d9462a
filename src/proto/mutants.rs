//! Bugs that can be planted in the core, and under the same names in the scripts' model in
//! `crates/node`, so that the simulator can show that it finds them.
//!
//! Each is a fault that a lock client or driver has shipped, one that a draft of this library had,
//! or a broken rule of the protocol. They exist only under `--cfg redbolt_mutants`, which no
//! feature turns on and which does not compile without debug assertions, so that no release can
//! contain one. Otherwise `mutant!(Name)` is `false`.
//!
//! Invariant: a bug is a separate statement in front of the rule that it breaks, and never a part
//! of the rule. Bugs of one changed token are made by `cargo xtask mutants` without any mark in the
//! source (`.cargo/mutants-shipped.txt` lists them).

#[cfg(all(redbolt_mutants, not(debug_assertions)))]
compile_error!("planted bugs are for the mutation gate, and never for a release");

#[cfg(not(redbolt_mutants))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

#[cfg(redbolt_mutants)]
macro_rules! mutant {
    ($name:ident) => {
        $crate::proto::mutants::Mutant::$name.is_planted()
    };
}

pub(super) use mutant;

#[cfg(redbolt_mutants)]
pub use self::planted::{Mutant, plant};

#[cfg(redbolt_mutants)]
mod planted {
    use std::cell::Cell;

    macro_rules! mutants {
        ($($(#[doc = $what:literal])+ $name:ident,)+) => {
            /// A bug that can be planted.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Mutant { $($(#[doc = $what])+ $name,)+ }

            impl Mutant {
                /// All bugs.
                pub const ALL: &[Self] = &[$(Self::$name,)+];

                /// Returns what the bug does, and where it was found.
                #[must_use]
                pub fn what(self) -> &'static str {
                    match self { $(Self::$name => concat!($($what,)+).trim_ascii_start(),)+ }
                }
            }
        };
    }

    mutants! {
        /// An attempt waits for all nodes, including dead ones (redlock-rb#60, rslock).
        AllNodesAwaited,
        /// A request that was lost with its connection is sent again with its token (ioredis#965).
        AskSentAgain,
        /// A writer that downgrades releases its lock before the nodes let it read (a draft of the
        /// design).
        DowngradeReleasesFirst,
        /// A downgrade shortens the validity.
        DowngradeShortens,
        /// An extension succeeds after the validity has ended (redlock-rb#36).
        ExtendAfterExpiry,
        /// The validity of an extension counts from its answer (node-redlock#299).
        ExtendFromAnswer,
        /// One node is enough for an extension (Redisson#2172).
        ExtendWithOne,
        /// A waiter for a permit is called only when no permit is held.
        CalledOnlyAlone,
        /// A release that another library publishes wakes no waiter.
        ChannelIgnored,
        /// A closed key is taken by any waiter in the queue that finds it.
        ClosedIsAnybodys,
        /// A permit occupies its slot until the last permit of the semaphore has expired.
        EndedPermitCounts,
        /// A failed extension releases the lock on all nodes while it is held (rslock).
        FailedExtendUndoes,
        /// A node that failed counts as one that denies (redlock-py).
        FailIsDeny,
        /// The first clock that a node reports is trusted, however wrong it is (a first draft of
        /// this library).
        FenceClockOfOne,
        /// The token is the largest counter, and no node is raised to it.
        FenceNotWrittenBack,
        /// One node is enough for a fencing token.
        FenceWithOne,
        /// A node may have been a replica in between without notice (a first version of this
        /// library).
        HistoryIgnored,
        /// A lock in another library's format is undone as a lock of redbolt.
        ForeignUndoneAsPlain,
        /// A grant counts without regard to the restart guard (all known clients).
        RestartGuardIgnored,
        /// A node without a restart guard is treated as new.
        RestartGuardMissingIsNew,
        /// The quarantine ends after half of `max_ttl`.
        RestartGuardTooShort,
        /// The validity counts from the last answer (node-redlock#168).
        LeaseFromAnswer,
        /// A single reader is removed when another one comes (a draft of the format).
        LoneReaderIsReplaced,
        /// The undo of any reader removes a single reader (a draft of the format).
        LoneReaderIsAnybody,
        /// A new client gets a slot of a semaphore that has waiters (a draft of the queue).
        MarkIgnored,
        /// A key without a mark keeps the longer TTL of a marked one.
        MarkOutlives,
        /// A semaphore stays marked when it has no more waiters.
        MarkStays,
        /// The release of the last permit deletes the key, although clients are in the queue.
        MarkedNotClosed,
        /// A node's reply counts after the permit was moved to another slot (a draft of the
        /// semaphore).
        MovedAnswerCounts,
        /// A waiter drops its ticket each time that it is refused (a draft of the queue).
        LeavesWhenRefused,
        /// A granted waiter stays in the queue.
        NeverLeavesQueue,
        /// A script that the node no longer has is not sent again (redlock-rb#29).
        NoScriptIsFinal,
        /// A waiter is never woken (Redisson#1763).
        PauseWithoutEnd,
        /// A quorum of any slots is a permit, even if the slots differ (redis-semaphore).
        PermitOfAnySlots,
        /// A waiter for another mode before a permit counts as a waiter for a permit.
        PermitPassesOthers,
        /// A free slot goes to the first waiter that asks (Redisson's semaphore has no queue).
        PermitPassesPermits,
        /// A waiter for another mode overtakes waiters for permits.
        PermitsArePassed,
        /// A semaphore is not marked for its waiters.
        PermitsUnmarked,
        /// A lost connection is never opened again (fred#315).
        ReconnectNever,
        /// A pending extension revives a lock that is being released (Redisson#7272).
        ReleaseOvertaken,
        /// One node is enough for a reader (read one, write all).
        ReadFromOne,
        /// A request that timed out loses its place in the pipeline, and the next one gets its
        /// reply (redis-py#2624).
        ReplyShifted,
        /// A waiter for a permit treats a semaphore as held while any permit is held.
        SlotsNotCounted,
        /// A waiting lock asks a node that hangs again and again.
        SuspectAskedAgain,
        /// Every split vote waits for a node that hangs.
        SuspicionIgnored,
        /// Each node has its own order, because a waiter sends no stamp.
        StampOfEachNode,
        /// The stamp of a ticket is raised after a quorum has recorded its place (a draft of the
        /// queue).
        StampRaisedWithPlace,
        /// A writer of Symfony's format does not set the mark for writers (Symfony before 5.2 had
        /// no readers).
        AloneUnmarked,
        /// Each holder of a fenced Redisson lock starts the counter again.
        CounterBeginsAnew,
        /// A release in Redisson's format deletes the hash with the fields of other holders.
        HashOfAnyHolder,
        /// A release deletes a timestamp although the client's lease has expired (paused clients).
        LeaseNotLookedAt,
        /// A client that fails to take a timestamp over has overwritten it (the GETSET of the
        /// recipe).
        LoserOverwrites,
        /// A timestamp that has passed is never taken over.
        NeverTakenOver,
        /// A request in the queue leaves a free key to clients outside of it (models, queue:
        /// closed, but not by a waiter's request).
        AskLeavesFree,
        /// A call remains valid when the resource is found held (models, turns).
        CallsStay,
        /// A downgrade is reported only once the nodes have confirmed it (design, read/write).
        DowngradeBelievedLate,
        /// A key is free when its holder expires, although clients wait (models, queue: closed, but
        /// not by the end of a TTL).
        ExpiryLeavesFree,
        /// An extension counts for a permit in another slot (design, semaphore).
        ExtensionOfAnySlot,
        /// An extension of one claim of a holder counts for its other claim (design, read/write).
        ExtensionOfOtherClaim,
        /// An extension revives an expired reader (design, read/write: reviving).
        ExtensionRevives,
        /// Only the first reader raises the fencing counter (design, fencing).
        FirstReaderRaises,
        /// A first waiter gets the grace of the waiter that asks (models, turns).
        GraceOfAsker,
        /// A waiter has at most 500 ms to take its turn, however far away it is (a first version of
        /// this library).
        GraceHasCap,
        /// A ticket keeps the grace for its owner's first round trip (a first version of this
        /// library).
        GraceIsFixed,
        /// A call from before the node's clock was set back still counts (a first version of this
        /// library).
        CallFromFuture,
        /// A waiter behind the first two notices only at its next poll that both are dead (a first
        /// version of this library).
        NobodyLooksFromBehind,
        /// The waiters behind a dead one do not notice the end of a dead holder's lease (a first
        /// version of this library).
        HolderEndsUnnoticed,
        /// A dead writer in the queue keeps readers out while others share (a first version of this
        /// library).
        NobodyPings,
        /// A node that grants drops the ticket (design, queue).
        GrantDropsTicket,
        /// A node in quarantine grants a permit that is healed (design, semaphore: heal without
        /// guard).
        HealUnguarded,
        /// A request in the queue does not mark the holders' key (models, queue).
        HoldersUnmarked,
        /// The key of readers expires with the newest of them instead of the last (design,
        /// read/write).
        KeyEndsWithLatest,
        /// A reader is added by a check from before a writer came (design, read/write: look, then
        /// set).
        ReaderLooksBefore,
        /// A reader takes the fencing counter without raising it (design, fencing).
        ReadersNeverRaise,
        /// A release or an undo leaves a free key although clients wait (models, queue: closed, but
        /// not by a release).
        ReleaseLeavesFree,
        /// A reader's release deletes the key of all readers (design, read/write).
        ReleaseOfAllReaders,
        /// The stamp of a ticket is the clock of its client (design, queue).
        StampOfClientsClock,
        /// A stamp is sent before a quorum has named one (design, queue).
        StampSentEarly,
        /// An extension counts on a replica that was just promoted (a first version of this
        /// library).
        PromotedCountsAtOnce,
        /// A permit is undone by its slot instead of its token (design, semaphore).
        UndoBySlot,
        /// An upgrade ignores other readers (models, read/write).
        UpgradeIgnoresReaders,
        /// The two claims of an upgrade share a token, so that the undo of one ends both (design,
        /// read/write).
        UpgradeSharesToken,
        /// A node raises its fencing counter for a client that does not hold the lock (design,
        /// fencing: write-back unowned).
        WriteBackUnowned,
        /// A release deletes any value, as a reset does (python-redis-lock).
        ResetInsteadOfRelease,
        /// A lock whose value is a timestamp is released without a check of its holder
        /// (redis-objects).
        SecondOfAnyHolder,
        /// The timestamp of a lock lacks the extra second for the difference of clocks.
        SecondWithoutMargin,
        /// An extension does not change the timestamp of a lock.
        SecondNotExtended,
        /// All locks of a process share the token of its registry (Spring, which counts re-entries
        /// for it).
        TokenOfRegistry,
        /// A server's error is shown with the arguments of the command (postiz#1003).
        TokenInWords,
        /// An undo that was answered with an error counts as done (redis-py#4258).
        UndoErrorIsDone,
        /// A token that compare-and-delete does not find unchanged counts as deleted.
        UnequalIsUndone,
        /// Only nodes that granted are undone (redlock-rb#76, blnk#354).
        UndoOfGrantsOnly,
        /// A writer of Redisson's format requests the lock as a reader.
        WriterReads,
        /// An upgrade keeps the old lease if it is longer (a draft of the design).
        UpgradeOnOldLease,
    }

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a bug, or none, in all cores and models of scripts that run on this thread.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    impl Mutant {
        /// Returns whether the bug is planted on this thread.
        #[must_use]
        pub fn is_planted(self) -> bool {
            PLANTED.get() == Some(self)
        }
    }
}

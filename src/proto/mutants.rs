//! Bugs that can be planted in the core, so that the simulator can show that it would find them; and in the scripts, by the
//! same names, in `crates/node`, which models them.
//!
//! Each is a fault that a lock client or a driver has shipped, one that a draft of this library had, or
//! a broken rule of the restart guard, of fencing or of ghosts. They exist only under `--cfg redbolt_mutants`,
//! which no feature turns on and which does not compile without debug assertions, so that no release
//! can contain one. Elsewhere `mutant!(Name)` is the word `false`.
//!
//! A bug is a statement of its own before the rule that it breaks, and never a part of the rule.
//! Not here: what each bug does, which is where it is planted; and bugs that are one changed token,
//! which `cargo xtask mutants` makes without a word in the source (`.cargo/mutants-shipped.txt` lists them).

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
                /// All of them.
                pub const ALL: &[Self] = &[$(Self::$name,)+];

                /// What it does wrong, and who did.
                #[must_use]
                pub fn what(self) -> &'static str {
                    match self { $(Self::$name => concat!($($what,)+).trim_ascii_start(),)+ }
                }
            }
        };
    }

    mutants! {
        /// An attempt waits for all nodes, also for dead ones (redlock-rb#60, rslock).
        AllNodesAwaited,
        /// An ask that was lost with its connection is sent again under its token (ioredis#965).
        AskSentAgain,
        /// A writer that becomes a reader lets go before the nodes have let it read (a draft of the design).
        DowngradeReleasesFirst,
        /// A writer that becomes a reader is valid for less long.
        DowngradeShortens,
        /// An extension succeeds although the validity is over (redlock-rb#36).
        ExtendAfterExpiry,
        /// The validity of an extension counts from its answer (node-redlock#299).
        ExtendFromAnswer,
        /// One node is enough for an extension (Redisson#2172).
        ExtendWithOne,
        /// Whoever wants a permit is called only when nobody has one.
        CalledOnlyAlone,
        /// What another library tells of a release wakes nobody.
        ChannelIgnored,
        /// A closed key is taken by whoever in the queue finds it first.
        ClosedIsAnybodys,
        /// A permit takes up room until the last of its semaphore's is over.
        EndedPermitCounts,
        /// A failed extension unlocks everywhere, under the holder (rslock).
        FailedExtendUndoes,
        /// A node that failed counts as one that denies (redlock-py).
        FailIsDeny,
        /// The first clock that a node tells is believed, however wild it is (a first draft of this library).
        FenceClockOfOne,
        /// The token is the largest counter, and no node is raised to it.
        FenceNotWrittenBack,
        /// One node is enough for a fencing token.
        FenceWithOne,
        /// Nobody looks whether a node was a replica meanwhile (a first version of this library).
        HistoryIgnored,
        /// A lock of another library's format is undone as one of redbolt's own.
        ForeignUndoneAsPlain,
        /// A grant counts whatever the restart guard says (all known clients).
        RestartGuardIgnored,
        /// A node without a restart guard is taken for new.
        RestartGuardMissingIsNew,
        /// The quarantine ends after half of `max_ttl`.
        RestartGuardTooShort,
        /// The validity counts from the last answer (node-redlock#168).
        LeaseFromAnswer,
        /// Whoever shares alone is gone when another one comes (a draft of the format).
        LoneReaderIsReplaced,
        /// Any reader's undo lets go of whoever shares alone (a draft of the format).
        LoneReaderIsAnybody,
        /// A newcomer gets a slot of a semaphore for which others wait (a draft of the queue).
        MarkIgnored,
        /// What has no mark any longer lives as long as if it had one.
        MarkOutlives,
        /// A semaphore for which nobody waits any longer stays marked.
        MarkStays,
        /// Whoever gives back the last permit leaves a free key to those in the queue.
        MarkedNotClosed,
        /// A node's answer counts after it was moved to another slot (a draft of the semaphore).
        MovedAnswerCounts,
        /// A waiter drops its ticket each time that it is refused (a draft of the queue).
        LeavesWhenRefused,
        /// Whoever is granted goes on waiting in the queue.
        NeverLeavesQueue,
        /// A script that the node has forgotten is not sent again (redlock-rb#29).
        NoScriptIsFinal,
        /// A waiter is never woken (Redisson#1763).
        PauseWithoutEnd,
        /// A quorum of slots is a permit, whichever they are (redis-semaphore).
        PermitOfAnySlots,
        /// Who stands before a permit for another mode counts as if it were for a permit.
        PermitPassesOthers,
        /// A free slot goes to whoever in the queue asks first (Redisson's semaphore has no queue).
        PermitPassesPermits,
        /// Who wants another mode passes permits in the queue.
        PermitsArePassed,
        /// A semaphore is not marked for those who wait.
        PermitsUnmarked,
        /// A connection that was lost is never opened again (fred#315).
        ReconnectNever,
        /// An extension that was under way revives a lock that is being released (Redisson#7272).
        ReleaseOvertaken,
        /// One node is enough for a reader (read one, write all).
        ReadFromOne,
        /// A request that timed out loses its place, and the next one gets its answer (redis-py#2624).
        ReplyShifted,
        /// Whoever waits for a permit takes a semaphore for held as long as anybody has one.
        SlotsNotCounted,
        /// A node that hangs is asked again and again by a lock that waits.
        SuspectAskedAgain,
        /// A node that hangs is waited for in every split vote.
        SuspicionIgnored,
        /// Each node has an order of its own: a waiter tells none where it stands on the others.
        StampOfEachNode,
        /// The stamp of a ticket is raised once a quorum knows its place, to what any node says (a draft of the queue).
        StampRaisedWithPlace,
        /// Who has a lock of Symfony's format alone leaves out the mark that says so (Symfony before 5.2 knew of no readers).
        AloneUnmarked,
        /// Each holder of a fenced lock of Redisson's begins to count anew.
        CounterBeginsAnew,
        /// A release of Redisson's format deletes the hash, whoever's field is in it.
        HashOfAnyHolder,
        /// A release deletes the second of a member without a look whether its own lease lasts (members that were paused).
        LeaseNotLookedAt,
        /// Whoever finds that it cannot take a second over has overwritten it (the recipe's own GETSET).
        LoserOverwrites,
        /// What a member of another library has left is held without end, also when its second is over.
        NeverTakenOver,
        /// An ask in the queue leaves a free key to those who do not stand there (models, queue: closed, but not by a waiter's ask).
        AskLeavesFree,
        /// A call stays where the resource was found held (models, turns).
        CallsStay,
        /// A writer that becomes a reader is told so once the nodes have let it read (design, read/write: believed when confirmed).
        DowngradeBelievedLate,
        /// A key of a holder whose time is over is free although somebody waits (models, queue: closed, but not by the end of a TTL).
        ExpiryLeavesFree,
        /// An extension counts for a permit of another slot (design, semaphore).
        ExtensionOfAnySlot,
        /// An extension of one claim of a holder counts for its other one (design, read/write).
        ExtensionOfOtherClaim,
        /// An extension brings back a reader that is over (design, read/write: reviving).
        ExtensionRevives,
        /// Only the first reader raises the fencing counter (design, fencing).
        FirstReaderRaises,
        /// Whoever is first has the grace of who asks to take its turn (models, turns).
        GraceOfAsker,
        /// A waiter has 500 ms at the most to take its turn, however far away it is (a first version of this library).
        GraceHasCap,
        /// A ticket keeps the grace that its owner's first round trip needed (a first version of this library).
        GraceIsFixed,
        /// A call that was made before the node's clock was set back counts from the future (a first version of this library).
        CallFromFuture,
        /// Whoever stands behind the first two finds out at its next poll that both are dead (a first version of this library).
        NobodyLooksFromBehind,
        /// The waiters behind a dead one do not notice that a dead holder's lease has ended (a first version of this library).
        HolderEndsUnnoticed,
        /// A writer that has died keeps readers out while others share (a first version of this library).
        NobodyPings,
        /// A node that grants drops the ticket (design, queue).
        GrantDropsTicket,
        /// A node in quarantine lets a permit be healed (design, semaphore: heal without guard).
        HealUnguarded,
        /// An ask in the queue does not mark what holders have (models, queue).
        HoldersUnmarked,
        /// The key of those who share ends with the latest of them, and not with the last to end (design, read/write).
        KeyEndsWithLatest,
        /// A reader is added on what it saw before a writer came (design, read/write: look, then set).
        ReaderLooksBefore,
        /// Readers take the fencing counter, and do not raise it (design, fencing).
        ReadersNeverRaise,
        /// A release or an undo leaves a free key although somebody waits (models, queue: closed, but not by a release).
        ReleaseLeavesFree,
        /// A reader's release deletes the key of all who share (design, read/write).
        ReleaseOfAllReaders,
        /// The clocks of clients are the stamps of tickets (design, queue).
        StampOfClientsClock,
        /// A stamp is sent before a quorum has told one (design, queue).
        StampSentEarly,
        /// An extension counts on a replica that was just promoted (a first version of this library).
        PromotedCountsAtOnce,
        /// A permit is undone by its slot, and not by its token (design, semaphore).
        UndoBySlot,
        /// A reader that becomes a writer ignores all readers (models, read/write).
        UpgradeIgnoresReaders,
        /// A reader and the writer that it becomes have one token, so that the undo of the one ends both (design, read/write).
        UpgradeSharesToken,
        /// A node raises its fencing counter for who does not hold the lock (design, fencing: write-back unowned).
        WriteBackUnowned,
        /// A release deletes whatever is there, as a reset does (python-redis-lock's own).
        ResetInsteadOfRelease,
        /// A lock whose value is a second is let go of without a look at whose it is (redis-objects' own way).
        SecondOfAnyHolder,
        /// The second of a lock is when it ends, without the one more by which clocks may differ.
        SecondWithoutMargin,
        /// An extension leaves the second of a lock as it was.
        SecondNotExtended,
        /// All locks of a process have the token of its registry (Spring's own way, which counts re-entries for it).
        TokenOfRegistry,
        /// A server's words are repeated with what we sent in them (postiz#1003).
        TokenInWords,
        /// An undo that was answered with an error is done (redis-py#4258).
        UndoErrorIsDone,
        /// A token that the server's own command does not find as it was set is taken for gone.
        UnequalIsUndone,
        /// Only nodes that granted are undone (redlock-rb#76, blnk#354).
        UndoOfGrantsOnly,
        /// A writer of Redisson's format asks as a reader.
        WriterReads,
        /// A reader that becomes a writer keeps the lease that it had, where that is longer (a draft of the design).
        UpgradeOnOldLease,
    }

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a bug in all cores, and all models of scripts, that run on this thread; or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    impl Mutant {
        /// Whether it is planted on this thread.
        #[must_use]
        pub fn is_planted(self) -> bool {
            PLANTED.get() == Some(self)
        }
    }
}

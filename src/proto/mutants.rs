//! Bugs that can be planted in the core, so that the simulator can show that it would find them.
//!
//! Each is a fault that a lock client or a driver has shipped, one that a draft of this library had, or
//! a broken rule of the restart guard, of fencing or of ghosts. They exist only under `--cfg redbolt_mutants`,
//! which no feature turns on and which does not compile without debug assertions, so that no release
//! can contain one. Elsewhere `mutant!(Name)` is the word `false`.
//! Not here: what each bug does. That is where it is planted.

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
        /// Only the wall clock ends a lease, and it can be set back (warlock#3).
        BootClockIgnored,
        /// A node is asked whatever it lacks, so that it keeps what it cannot undo (all known clients).
        CapabilitiesIgnored,
        /// A connection on which nothing is answered is kept (redis-rs#374, hiredis#593).
        DeadPeerKept,
        /// The drift of clocks takes nothing from the validity (rslock).
        DriftIgnored,
        /// An extension succeeds although the validity is over (redlock-rb#36).
        ExtendAfterExpiry,
        /// An extension counts on nodes whose grant did not.
        ExtendCountsAll,
        /// An extension counts on what a node said before it lost the key (a first version of this library).
        ExtendCountsGone,
        /// The validity of an extension counts from its answer (node-redlock#299).
        ExtendFromAnswer,
        /// One node is enough for an extension (Redisson#2172).
        ExtendWithOne,
        /// A shorter extension shortens the validity (redsync).
        ExtendShortens,
        /// A failed extension unlocks everywhere, under the holder (rslock).
        FailedExtendUndoes,
        /// A node that failed counts as one that denies (redlock-py).
        FailIsDeny,
        /// The first clock that a node tells is believed, however wild it is (a first draft of this library).
        FenceClockOfOne,
        /// The token is the largest counter, and nobody is told.
        FenceNotWrittenBack,
        /// A late grant whose counter is past the token confirms it (a first draft of this library).
        FencePassedCounts,
        /// A counter is raised although the lock has gone to another holder.
        FenceUnowned,
        /// The validity is not read again after the write-back.
        FenceValidityUnchecked,
        /// One node is enough for a fencing token.
        FenceWithOne,
        /// A restart guard of any limits will do, so that clients disagree about them.
        RestartGuardAnyLimits,
        /// A restart guard of an earlier run will do, and stale data with it.
        RestartGuardAnyRun,
        /// A grant counts whatever the restart guard says (all known clients).
        RestartGuardIgnored,
        /// A node without a restart guard is taken for new.
        RestartGuardMissingIsNew,
        /// The quarantine ends after half of `max_ttl`.
        RestartGuardTooShort,
        /// A dead connection is killed by its number, whoever has that number now.
        KillAnyRun,
        /// The validity counts from the last answer (node-redlock#168).
        LeaseFromAnswer,
        /// A loss is never told (Redisson#4698).
        LossUntold,
        /// All waiters of one process ask at once.
        QueuesIgnored,
        /// The limit of extensions is not kept (Redisson#7272).
        MaxHoldIgnored,
        /// A script that the node has forgotten is not sent again (redlock-rb#29).
        NoScriptIsFinal,
        /// Two waiters ask again without a pause (rueidis#602, rustfs#7962).
        PauseSkipped,
        /// A waiter is never woken (Redisson#1763).
        PauseWithoutEnd,
        /// Half of the nodes are a quorum.
        QuorumOfHalf,
        /// What changed before a node was told to report it is not looked at (Redisson#1763).
        RecheckSkipped,
        /// A connection that was lost is never opened again (fred#315).
        ReconnectNever,
        /// An extension that was under way revives a lock that is being released (Redisson#7272).
        ReleaseOvertaken,
        /// A release goes to a quorum of the nodes only (redlock-rb#76).
        ReleaseToQuorum,
        /// A request that timed out loses its place, and the next one gets its answer (redis-py#2624).
        ReplyShifted,
        /// The first ask does not wait for SELECT (ioredis#42).
        SelectNotAwaited,
        /// A node that hangs is asked again and again by a lock that waits.
        SuspectAskedAgain,
        /// A node that hangs is waited for in every split vote.
        SuspicionIgnored,
        /// A server's words are repeated with what we sent in them (postiz#1003).
        TokenInWords,
        /// One token for all nodes, so that a server which stands in for two nodes mixes them up (all known
        /// clients).
        TokenOfAllNodes,
        /// An attempt uses the token of the one before (redsync, rslock).
        TokenReused,
        /// A process that has let go of a contended resource asks for it again at once.
        YieldSkipped,
        /// A server under a second name is taken for another one that has moved (a first draft of this
        /// library).
        TwinBelieved,
        /// An undo that was answered with an error is done (redis-py#4258).
        UndoErrorIsDone,
        /// What is owed is forgotten with the connection (redlock-rb#76).
        UndoForgotten,
        /// Only nodes that granted are undone (redlock-rb#76, blnk#354).
        UndoOfGrantsOnly,
        /// A grant is told although nothing of its validity is left (node-redlock#296, etcd#11456).
        ValidityUnchecked,
        /// What a node tells wakes nobody.
        WakeIgnored,
        /// Two waiters wake each other for as long as the lock is held elsewhere.
        WakesNotBackedOff,
        /// A jump of the wall clock ends no lease.
        WallClockIgnored,
    }

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a bug in all cores that run on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    impl Mutant {
        pub(crate) fn is_planted(self) -> bool {
            PLANTED.get() == Some(self)
        }
    }
}

//! The state of one node over its life: connections open and close, the process restarts.
//!
//! It does no I/O: the clock is an argument, and replies go to a buffer of the caller.
//! [`Store::poll_push`] and [`Store::poll_close`] return further work of the caller.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use crate::{
    clock::ClockReading,
    denial::{Denial, Denials},
    keys::{self, Entries},
    script::Script,
    scripts,
    session::{ConnId, Session, Sessions},
    tracking::{Journal, Messages},
};

/// The effect of a restart on the keys.
#[derive(Debug, Clone)]
pub enum Memory {
    /// They survive, as with an append-only file that is always synced.
    Kept,
    /// They are lost, as without persistence.
    Lost,
    /// They are those of an earlier instant, as with snapshots on disk or a replica that lagged.
    #[doc(hidden)]
    Stale(Snapshot),
}

/// The keys of a node at one instant, with their ends.
#[derive(Clone)]
pub struct Snapshot {
    databases: Vec<Entries>,
}

/// The settings that CONFIG SET changes.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) maxmemory: u64,
    pub(crate) policy: &'static str,
    /// The password of the default user; empty if none is needed.
    pub(crate) password: Vec<u8>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { maxmemory: 0, policy: "noeviction", password: Vec::new() }
    }
}

/// One node's memory and connections, without its sockets.
///
/// ```
/// use redbolt_node::model::{ClockReading, Store};
///
/// let mut store = Store::new("run-1", ClockReading::from_millis(0));
/// let conn = store.connect();
/// let mut out = Vec::new();
/// store.command(conn, &[b"SET", b"k", b"v", b"PX", b"10"], ClockReading::from_millis(5), &mut out);
/// store.command(conn, &[b"PTTL", b"k"], ClockReading::from_millis(8), &mut out);
/// store.command(conn, &[b"GET", b"k"], ClockReading::from_millis(16), &mut out);
/// assert_eq!(out, b"+OK\r\n:7\r\n$-1\r\n");
/// ```
pub struct Store {
    pub(crate) databases: Vec<Entries>,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Settings,
    pub(crate) users: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) denials: Denials,
    /// The commands that it has in addition to those of Redis 7.0.
    pub(crate) optional: Vec<&'static str>,
    pub(crate) scripts: Vec<Script>,
    pub(crate) run_id: String,
    /// The history of its data, reported only if it was set.
    pub(crate) replication_id: Option<String>,
    pub(crate) is_replica: bool,
    pub(crate) started: ClockReading,
    /// Scratch space for replies whose length comes first.
    pub(crate) scratch: Vec<u8>,
    pub(crate) journal: Journal,
    messages: Messages,
    loading_until: Option<ClockReading>,
    closing: VecDeque<ConnId>,
}

impl Store {
    /// Creates an empty node with redbolt's scripts. A real server's `run_id` is 40 random
    /// hexadecimal digits; here any text is accepted.
    pub fn new(run_id: &str, now: ClockReading) -> Self {
        Self {
            databases: vec![Entries::new(); DATABASES],
            sessions: Sessions::default(),
            settings: Settings::default(),
            users: BTreeMap::new(),
            denials: Denials::default(),
            optional: Vec::new(),
            scripts: scripts::shipped().to_vec(),
            run_id: run_id.to_owned(),
            replication_id: None,
            is_replica: false,
            started: now,
            scratch: Vec::new(),
            journal: Journal::default(),
            messages: Messages::default(),
            loading_until: None,
            closing: VecDeque::new(),
        }
    }

    /// Resets it, which costs less than a new one. Added scripts stay.
    pub fn reset(&mut self, run_id: &str, now: ClockReading) {
        self.settings = Settings::default();
        self.users.clear();
        self.denials = Denials::default();
        self.replication_id = None;
        self.restart(Memory::Lost, run_id, now);
    }

    /// Sets the `master_replid` that `INFO` reports; none at first. A real server's is 40 random
    /// hexadecimal digits; here any text is accepted.
    pub fn report_replication_id(&mut self, replication_id: Option<&str>) {
        self.replication_id = replication_id.map(str::to_owned);
    }

    /// Sets whether `INFO` reports the node as a replica. It still accepts writes: refusing them is
    /// up to the caller.
    pub fn follows(&mut self, is_replica: bool) {
        self.is_replica = is_replica;
    }

    /// Promotes the node after it was a replica of another server, whose memory it has now. Its run
    /// and its connections stay.
    pub fn was_replica(&mut self, memory: Memory, replication_id: &str, now: ClockReading) {
        self.replace(memory, now);
        self.is_replica = false;
        // Any key may have changed.
        self.journal.flushed();
        self.settle(None, &[]);
        self.report_replication_id(Some(replication_id));
    }

    /// Adds a script: the model that EVAL of this text runs from now on.
    #[cfg(test)]
    pub(crate) fn teach(&mut self, text: &'static str, run: crate::script::Model) {
        self.scripts.retain(|known| known.text != text);
        self.scripts.push(Script::new(text, run));
    }

    /// Adds an ACL user with all permissions. The user `default` is set by `requirepass` instead.
    pub fn add_user(&mut self, name: &str, password: &str) {
        self.users.insert(name.into(), password.into());
    }

    /// Sets the password of the default user; with an empty one none is required.
    pub fn require_password(&mut self, password: &str) {
        self.settings.password = password.into();
    }

    /// Disables a command for all users, also in scripts; `None` enables it again. A subcommand is
    /// named with its container, as in `client|id`.
    pub fn deny(&mut self, command: &str, denial: Option<Denial>) {
        self.denials.set(command, denial);
    }

    /// Sets the commands that it has in addition to those of Redis 7.0: of `delex`, as in Redis
    /// 8.4, and `delifeq`, as in Valkey 9.0.
    pub fn offer(&mut self, commands: &[&'static str]) {
        self.optional = commands.to_vec();
    }

    /// Opens a connection.
    pub fn connect(&mut self) -> ConnId {
        self.sessions.open(self.settings.password.is_empty())
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.remove(conn);
    }

    /// Returns the next pushed message, and the connection that gets it: a tracked key has changed.
    /// Its bytes follow all that the connection was sent so far.
    ///
    /// Call it until there is none, after each command and after [`expire`](Self::expire), even to
    /// drop the messages.
    pub fn poll_push(&mut self) -> Option<(ConnId, Vec<u8>)> {
        self.messages.pop()
    }

    /// Returns the next connection that the node itself has ended (QUIT, CLIENT KILL). The store
    /// has forgotten it already. The caller sends the remaining bytes and closes the socket.
    pub fn poll_close(&mut self) -> Option<ConnId> {
        self.closing.pop_front()
    }

    /// Restarts the process: all connections and loaded scripts are lost. Settings and users stay,
    /// as if they were in the configuration file.
    pub fn restart(&mut self, memory: Memory, run_id: &str, now: ClockReading) {
        self.sessions.clear();
        self.closing.clear();
        self.messages.clear();
        self.replace(memory, now);
        self.is_replica = false;
        self.loading_until = None;
        // A server keeps loaded scripts only in memory.
        self.scripts.iter_mut().for_each(|script| script.loaded = false);
        self.run_id.clear();
        self.run_id.push_str(run_id);
        self.started = now;
    }

    fn replace(&mut self, memory: Memory, now: ClockReading) {
        match memory {
            Memory::Kept => {}
            Memory::Lost => self.databases.iter_mut().for_each(Entries::clear),
            Memory::Stale(snapshot) => {
                self.databases = snapshot.databases;
                // Keys may have expired since the snapshot.
                self.expire(now);
            }
        }
    }

    /// Returns true if a database has a key. The key is not touched: nothing expires, and no
    /// message is sent.
    pub fn holds(&self, database: usize, key: &[u8], now: ClockReading) -> bool {
        self.databases.get(database).is_some_and(|entries| keys::holds(entries, key, now))
    }

    /// Returns the string under a key, if there is one, without touching the key.
    pub fn string(&self, database: usize, key: &[u8], now: ClockReading) -> Option<&[u8]> {
        self.databases.get(database).and_then(|entries| keys::string(entries, key, now))
    }

    /// Returns the current keys, for a restart that restores them.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { databases: self.databases.clone() }
    }

    /// Refuses most commands until this instant, like a server that loads its keys from a disk. A
    /// restart ends the loading, so call this after it.
    pub fn load_until(&mut self, end: ClockReading) {
        self.loading_until = Some(end);
    }

    pub(crate) fn is_loading(&self, now: ClockReading) -> bool {
        self.loading_until.is_some_and(|end| now < end)
    }

    /// Removes expired keys, as a server does about ten times a second.
    ///
    /// No reply depends on it while the clock runs forward. If the clock steps back, an expired key
    /// that was not touched exists again, unless it was removed here. Messages about an expiry are
    /// sent from here, or when the key is touched: the caller determines the delay.
    pub fn expire(&mut self, now: ClockReading) {
        let journal = &mut self.journal;
        self.databases.iter_mut().for_each(|database| keys::expire(database, now, journal));
        self.settle(None, &[]);
    }

    /// Returns true if any connection waits for the expiry of a key, so that
    /// [`expire`](Self::expire) matters.
    pub fn awaits_expiry(&self) -> bool {
        self.messages.awaits_expiry()
    }

    /// Returns true if a command of this connection can matter to a tracking connection.
    pub(crate) fn is_watched(&self, conn: ConnId) -> bool {
        self.awaits_expiry() || self.sessions.tracking(conn).is_some()
    }

    /// Adds the messages for everything noted during a command of `current` that named these keys,
    /// or outside of any command.
    pub(crate) fn settle(&mut self, current: Option<ConnId>, named: &[&[u8]]) {
        self.messages.add(&mut self.journal, &mut self.sessions, current, named);
    }

    /// Publishes a message on a channel, behind earlier changes. Returns the number of subscribers.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.journal.published(&self.sessions, channel, message)
    }

    pub(crate) fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.sessions.get(conn)
    }

    /// Ends a connection from inside.
    pub(crate) fn close(&mut self, conn: ConnId) {
        if self.remove(conn) {
            self.closing.push_back(conn);
        }
    }

    fn remove(&mut self, conn: ConnId) -> bool {
        let existed = self.sessions.remove(conn);
        if existed {
            self.messages.remove(conn);
        }
        existed
    }
}

/// Omits passwords, keys and values.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("run_id", &self.run_id)
            .field("connections", &self.sessions.iter().count())
            .field("keys", &self.databases.iter().map(Entries::len).sum::<usize>())
            .finish_non_exhaustive()
    }
}

/// Omits keys and values.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.databases.iter().map(Entries::len).sum::<usize>();
        f.debug_struct("Snapshot").field("keys", &count).finish()
    }
}

pub(crate) const DEFAULT_USER: &[u8] = b"default";
const DATABASES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Answer;

    struct Bench {
        store: Store,
        now: ClockReading,
    }

    impl Bench {
        fn new() -> Self {
            let now = ClockReading::from_millis(1_000_000);
            Self { store: Store::new("run", now), now }
        }

        fn say(&mut self, conn: ConnId, line: &str) -> String {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let mut out = Vec::new();
            self.store.command(conn, &args, self.now, &mut out);
            String::from_utf8(out).unwrap()
        }

        fn pass(&mut self, millis: u64) {
            self.now = ClockReading::from_micros(self.now.micros() + millis * 1_000);
        }
    }

    #[test]
    fn keys_end_by_the_clock_that_is_given() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "SET k v PX 100"), "+OK\r\n");
        assert_eq!(bench.say(conn, "SET k w NX PX 100"), "$-1\r\n");
        bench.pass(60);
        assert_eq!(bench.say(conn, "PTTL k"), ":40\r\n");
        assert_eq!(bench.say(conn, "PEXPIRE k 100"), ":1\r\n");
        bench.pass(100);
        assert_eq!(bench.say(conn, "PTTL k"), ":0\r\n");
        bench.pass(1);
        assert_eq!(bench.say(conn, "PEXPIRE k 100"), ":0\r\n");
        assert_eq!(bench.say(conn, "SET k w NX PX 100"), "+OK\r\n");
    }

    #[test]
    fn time_is_the_time_given() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        bench.now = ClockReading::from_micros(1_234_567_890_123_456);
        assert_eq!(bench.say(conn, "TIME"), "*2\r\n$10\r\n1234567890\r\n$6\r\n123456\r\n");
        assert!(bench.say(conn, "INFO server").contains("\r\nuptime_in_seconds:1234566890\r\n"));
    }

    #[test]
    fn a_restart_loses_connections_and_scripts_and_keys_if_requested() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        bench.say(conn, "SET k v");
        let load = [&b"SCRIPT"[..], b"LOAD", bench.store.scripts[0].text.as_bytes()];
        bench.store.command(conn, &load, bench.now, &mut Vec::new());
        let exists = format!("SCRIPT EXISTS {}", bench.store.scripts[0].sha.escape_ascii());
        assert_eq!(bench.say(conn, &exists), "*1\r\n:1\r\n");

        bench.store.restart(Memory::Kept, "second", bench.now);
        assert_eq!(bench.say(conn, "PING"), "", "the old connection is gone");
        let conn = bench.store.connect();
        assert_eq!(conn.number(), 1);
        assert_eq!(bench.say(conn, "GET k"), "$1\r\nv\r\n");
        assert_eq!(bench.say(conn, &exists), "*1\r\n:0\r\n");
        assert!(bench.say(conn, "INFO server").contains("\r\nrun_id:second\r\n"));

        bench.store.restart(Memory::Lost, "third", bench.now);
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "GET k"), "$-1\r\n");
    }

    #[test]
    fn a_restart_with_stale_keys_has_the_unexpired_keys_of_the_snapshot() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        bench.say(conn, "SET short v PX 100");
        bench.say(conn, "SET long v PX 1000");
        bench.say(conn, "SET changed old");
        let snapshot = bench.store.snapshot();
        bench.say(conn, "SET changed new");
        bench.say(conn, "SET later v");
        bench.say(conn, "DEL long");
        bench.pass(101);

        bench.store.restart(Memory::Stale(snapshot.clone()), "second", bench.now);
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "PTTL long"), ":899\r\n");
        assert_eq!(bench.say(conn, "GET changed"), "$3\r\nold\r\n");
        assert_eq!(bench.say(conn, "EXISTS later"), ":0\r\n");
        bench.now = ClockReading::from_millis(1_000_000);
        assert_eq!(bench.say(conn, "EXISTS short"), ":0\r\n", "it was not loaded at all");
        assert_eq!(format!("{snapshot:?}"), "Snapshot { keys: 3 }");
    }

    #[test]
    fn a_node_that_was_a_replica_has_another_s_memory_and_its_own_connections() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        let reported = |bench: &mut Bench| bench.say(conn, "INFO replication");
        assert!(!reported(&mut bench).contains("master_replid"), "it was not given any");
        bench.store.report_replication_id(Some("before"));
        bench.say(conn, "SET both old");
        let snapshot = bench.store.snapshot();
        bench.say(conn, "SET both new");
        bench.say(conn, "SET one v");
        bench.store.was_replica(Memory::Stale(snapshot), "after", bench.now);
        assert_eq!(bench.say(conn, "GET both"), "$3\r\nold\r\n");
        assert_eq!(bench.say(conn, "EXISTS one"), ":0\r\n");
        assert!(reported(&mut bench).contains("\r\nmaster_replid:after\r\n"));
        assert!(bench.say(conn, "INFO server").contains("\r\nrun_id:run\r\n"));
    }

    #[test]
    fn a_store_is_new_after_a_reset() {
        let mut bench = Bench::new();
        bench.store.teach("return 7", |_, _, _| Ok(Answer::Int(7)));
        bench.store.add_user("bob", "pw");
        let conn = bench.store.connect();
        for line in ["SET k v", "SELECT 3", "SET k v", "CONFIG SET requirepass x maxmemory 7"] {
            assert_eq!(bench.say(conn, line), "+OK\r\n");
        }
        bench.store.load_until(ClockReading::from_millis(u64::MAX / 1_000));
        bench.store.reset("second", bench.now);
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "CLIENT ID"), ":1\r\n");
        assert_eq!(bench.say(conn, "EXISTS k"), ":0\r\n");
        assert_eq!(bench.say(conn, "CONFIG GET maxmemory"), "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n");
        assert!(bench.say(conn, "AUTH bob pw").starts_with("-WRONGPASS "));
        assert_eq!(bench.say(conn, "SELECT 3"), "+OK\r\n");
        assert_eq!(bench.say(conn, "EXISTS k"), ":0\r\n");
        let mut out = Vec::new();
        bench.store.command(conn, &[b"EVAL", b"return 7", b"0"], bench.now, &mut out);
        assert_eq!(out, b":7\r\n");
    }

    #[test]
    fn a_clock_that_steps_back_restores_expired_keys_that_were_not_removed() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        for key in ["untouched", "touched"] {
            bench.say(conn, &format!("SET {key} v PX 100"));
        }
        bench.pass(200);
        assert_eq!(bench.say(conn, "GET touched"), "$-1\r\n");
        bench.now = ClockReading::from_millis(1_000_050);
        assert_eq!(bench.say(conn, "PTTL touched"), ":-2\r\n");
        assert_eq!(bench.say(conn, "PTTL untouched"), ":50\r\n");
        bench.store.expire(ClockReading::from_millis(1_000_101));
        assert_eq!(bench.say(conn, "PTTL untouched"), ":-2\r\n");
    }

    #[test]
    fn a_store_that_loads_refuses_until_it_is_done_or_starts_again() {
        let mut bench = Bench::new();
        let conn = bench.store.connect();
        bench.store.load_until(ClockReading::from_millis(1_000_010));
        assert!(bench.say(conn, "GET k").starts_with("-LOADING "));
        assert_eq!(bench.say(conn, "CLIENT ID"), ":1\r\n");
        bench.pass(10);
        assert_eq!(bench.say(conn, "GET k"), "$-1\r\n");
        bench.store.load_until(ClockReading::from_millis(2_000_000));
        bench.store.restart(Memory::Kept, "second", bench.now);
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "GET k"), "$-1\r\n");
    }

    #[test]
    fn a_killed_connection_is_reported_and_runs_nothing_more() {
        let mut bench = Bench::new();
        let (one, two) = (bench.store.connect(), bench.store.connect());
        assert_eq!(bench.say(one, &format!("CLIENT KILL ID {}", two.number())), ":1\r\n");
        assert_eq!(bench.store.poll_close(), Some(two));
        assert_eq!(bench.store.poll_close(), None);
        assert_eq!(bench.say(two, "SET k v"), "");
        assert_eq!(bench.say(one, "EXISTS k"), ":0\r\n");
        assert_eq!(bench.say(one, "QUIT"), "+OK\r\n");
        assert_eq!(bench.store.poll_close(), Some(one));
    }

    #[test]
    fn a_tracker_receives_changes_and_expiries_through_its_redirect() {
        let mut bench = Bench::new();
        let (writer, tracker, target) =
            (bench.store.connect(), bench.store.connect(), bench.store.connect());
        bench.say(target, "SUBSCRIBE __redis__:invalidate");
        bench.say(tracker, &format!("CLIENT TRACKING ON REDIRECT {} NOLOOP", target.number()));
        bench.say(tracker, "PTTL k");
        assert_eq!(bench.store.poll_push(), None);
        bench.say(writer, "SET k v PX 10");
        bench.say(writer, "SET k v PX 10");
        let message = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n";
        assert_eq!(bench.store.poll_push(), Some((target, message.to_vec())));
        assert_eq!(bench.store.poll_push(), None, "once, until it is read again");
        bench.say(tracker, "PTTL k");
        bench.pass(11);
        assert_eq!(bench.store.poll_push(), None, "the expiry was not noticed yet");
        bench.store.expire(bench.now);
        assert_eq!(bench.store.poll_push(), Some((target, message.to_vec())));
        bench.say(tracker, "PTTL k");
        bench.say(writer, "SET k v");
        bench.store.disconnect(target);
        assert_eq!(bench.store.poll_push(), None, "what was not fetched is gone with its receiver");
        bench.store.disconnect(tracker);
        assert!(!bench.store.awaits_expiry());
    }

    #[test]
    fn named_users_and_the_default_one_need_their_passwords() {
        let mut bench = Bench::new();
        bench.store.require_password("sesame");
        bench.store.add_user("bob", "pw");
        let conn = bench.store.connect();
        assert_eq!(bench.say(conn, "GET k"), "-NOAUTH Authentication required.\r\n");
        assert!(bench.say(conn, "AUTH bob sesame").starts_with("-WRONGPASS "));
        assert_eq!(bench.say(conn, "GET k"), "-NOAUTH Authentication required.\r\n");
        assert_eq!(bench.say(conn, "AUTH bob pw"), "+OK\r\n");
        assert_eq!(bench.say(conn, "GET k"), "$-1\r\n");
        assert_eq!(bench.say(conn, "AUTH sesame"), "+OK\r\n");
        assert!(!format!("{:?}", bench.store).contains("sesame"));
    }

    #[test]
    fn a_script_can_be_taught() {
        let mut bench = Bench::new();
        bench.store.teach("return #KEYS", |_, keys, _| Ok(Answer::Int(keys.len() as i64)));
        let conn = bench.store.connect();
        let mut out = Vec::new();
        let call = [&b"EVAL"[..], b"return #KEYS", b"2", b"a", b"b", b"c"];
        bench.store.command(conn, &call, bench.now, &mut out);
        assert_eq!(out, b":2\r\n");
    }
}

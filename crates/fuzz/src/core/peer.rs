//! The nodes' replies: those of an honest node, and those of other nodes.

use redbolt::proto::HandshakeStep as Step;

use super::request::{Kind, Request};

/// A node, as described by its replies.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: usize,
    /// The part of a restart guard behind the run ID.
    pub(super) limits: String,
    /// True if locks wait in the queue.
    pub(super) has_queue: bool,
    /// True if a restart guard of other limits may be overwritten.
    pub(super) may_change: bool,
    /// True if every enrolment begins a quarantine.
    pub(super) quarantines: bool,
}

impl Place {
    /// Returns the restart guard of one process of the server.
    fn restart_guard(&self, era: char) -> String {
        run_id(self.node, era) + &self.limits
    }
}

/// Returns the reply of a well-behaved node. `refuse` chooses the negative one: held, missing, or
/// of the wrong type.
pub(super) fn honest(request: Request, place: &Place, refuse: bool, era: char) -> String {
    match request {
        Request::Handshake(step) | Request::Look(step) => handshake(step, place, refuse, era),
        Request::History => handshake(Step::InfoReplication, place, refuse, era),
        Request::Ask { kind: Kind::InQueue { stamp, .. }, .. } if refuse => {
            format!("+WAIT 700 {stamp} 1 {OTHER}00:35 -\r\n")
        }
        Request::Ask { kind: Kind::InQueue { stamp, of_permit: true, .. }, .. } => {
            format!("+OK {stamp} {} 0 7\r\n", place.node % 2)
        }
        Request::Ask { kind: Kind::InQueue { stamp, proposed: Some(proposed), .. }, .. } => {
            format!("+OK {stamp} {proposed}\r\n")
        }
        Request::Ask { kind: Kind::InQueue { stamp, .. }, .. } => format!("+OK {stamp}\r\n"),
        Request::Ask { kind: Kind::Plain, .. } if refuse => "$-1\r\n".into(),
        Request::Ask { .. } if refuse => ":700\r\n".into(),
        Request::Ask { kind: Kind::Fenced { proposed }, .. } => format!("+OK {proposed}\r\n"),
        Request::Ask { kind: Kind::Permit, .. } => format!("+OK {} 0 7\r\n", place.node % 2),
        Request::Move { .. } if refuse => ":700\r\n".into(),
        Request::Move { slot, .. } => format!("+OK {slot}\r\n"),
        Request::Ask { kind: Kind::Plain | Kind::Many | Kind::Shared, .. } => "+OK\r\n".into(),
        Request::Change { .. } if refuse => ":700\r\n".into(),
        Request::Change { proposed: Some(proposed), .. } => format!("+OK {proposed}\r\n"),
        Request::Change { .. } => "+OK\r\n".into(),
        Request::Counter => bulk(if refuse { "" } else { "1700000000000000" }),
        Request::Delete { .. }
        | Request::Enrol
        | Request::Extend { .. }
        | Request::Kill
        | Request::KillOthers
        | Request::Leave { .. }
        | Request::Undo { .. }
        | Request::WriteBack { .. } => if refuse { ":0\r\n" } else { ":1\r\n" }.into(),
        Request::Caching | Request::Track if refuse => {
            "-NOPERM this user has no permissions to run the command\r\n".into()
        }
        Request::Caching | Request::Track => "+OK\r\n".into(),
        Request::Watched => bulk(if refuse { "" } else { "00112233445566778899" }),
        Request::Remaining | Request::ViewTtl => if refuse { ":-2\r\n" } else { ":40\r\n" }.into(),
        Request::ViewHolders if refuse => bulk(""),
        Request::ViewHolders => bulk("1\n40 00112233445566778899aabbccddeeff00:me"),
        Request::ViewQueue if refuse => "-NOPERM No permissions to access a key\r\n".into(),
        Request::ViewQueue => bulk(&queue_of_one()),
        Request::ViewType => if refuse { "+none\r\n" } else { "+string\r\n" }.into(),
        Request::ViewValue => {
            bulk(if refuse { "" } else { "00112233445566778899aabbccddeeff00:me" })
        }
    }
}

/// Returns a node's report of one waiter to an inspection.
fn queue_of_one() -> String {
    format!("1 marked -1\n{OTHER}00:500 1767225600000000 1500 5500")
}

/// Returns the restart guard's TTL behind a lock request.
pub(super) fn check(refuse: bool) -> &'static str {
    if refuse { ":-2\r\n" } else { ":60000\r\n" }
}

fn handshake(step: Step, place: &Place, refuse: bool, era: char) -> String {
    match step {
        Step::Auth if refuse => "-WRONGPASS invalid username-password pair\r\n".into(),
        Step::Select if refuse => "-ERR DB index is out of range\r\n".into(),
        Step::Auth | Step::Select | Step::SetName => "+OK\r\n".into(),
        Step::ClientId => format!(":{}\r\n", place.node + 7),
        Step::InfoServer => server(place.node, era),
        Step::InfoReplication => bulk(if refuse { "role:slave\r\n" } else { "role:master\r\n" }),
        Step::InfoMemory if refuse => bulk("maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"),
        Step::InfoMemory => bulk("maxmemory:0\r\n"),
        Step::Eval | Step::EvalSha | Step::Del | Step::Set if refuse => {
            "-NOPERM this user has no permissions to run the command\r\n".into()
        }
        Step::Eval | Step::EvalSha => ":0\r\n".into(),
        Step::Del => "-ERR wrong number of arguments for 'del' command\r\n".into(),
        // The nodes differ in their native commands.
        Step::DelIfEq if place.node == 1 => ":0\r\n".into(),
        Step::DelEx if place.node == 2 => {
            "-ERR wrong number of arguments for 'delex' command\r\n".into()
        }
        Step::DelEx | Step::DelIfEq => "-ERR unknown command\r\n".into(),
        Step::Set => "-ERR syntax error\r\n".into(),
        Step::RestartGuardValue if refuse => "$-1\r\n".into(),
        Step::RestartGuardValue => bulk(&place.restart_guard(era)),
        Step::RestartGuardTtl => check(refuse).into(),
    }
}

/// Returns the server at a node's address. Each era is another process.
pub(super) fn server(node: usize, era: char) -> String {
    bulk(&format!("redis_mode:standalone\r\nrun_id:{}\r\n", run_id(node, era)))
}

fn run_id(node: usize, era: char) -> String {
    node.to_string().repeat(20) + &era.to_string().repeat(20)
}

/// Returns a reply that some server could send.
pub(super) fn plausible(code: u8, place: &Place) -> String {
    if let Some(at) = usize::from(code).checked_sub(usize::from(FIRST_OF_RESTART_GUARD)) {
        return of_restart_guard(at, place);
    }
    if let (true, Some(at)) = (place.has_queue, code.checked_sub(FIRST_OF_QUEUE)) {
        return of_queue(at);
    }
    let node = place.node;
    let fixed = match PLAUSIBLE.get(usize::from(code)) {
        Some(text) => return (*text).into(),
        None => usize::from(code) - PLAUSIBLE.len(),
    };
    match fixed {
        0 => server(0, ERA),
        1 => server(node, NEXT_ERA),
        2 => server(node, ERA),
        3 => bulk("redis_mode:cluster\r\nrun_id:short\r\n"),
        4 => bulk("role:master\r\n"),
        5 => bulk("role:slave\r\n"),
        6 => bulk(""),
        number => format!(":{}\r\n", i64::try_from(number).map_or(0, |n| n - 20)),
    }
}

/// Returns a reply about a restart guard or a fencing counter.
fn of_restart_guard(at: usize, place: &Place) -> String {
    match OF_RESTART_GUARD.get(at) {
        Some(text) => (*text).into(),
        None => bulk(&match at - OF_RESTART_GUARD.len() {
            0 => place.restart_guard(ERA),
            1 => place.restart_guard(NEXT_ERA),
            2 => place.restart_guard(ERA) + "1",
            3 => place.restart_guard(ERA).replace(':', ":1"),
            4 => format!("-{}", place.limits),
            of_slot @ 6..11 => return OF_SLOTS[of_slot - 6].into(),
            _ => "somebody's".into(),
        }),
    }
}

/// Returns the place of a ticket, at one of four stamps, or another reply about a queue.
fn of_queue(at: u8) -> String {
    let stamp = [5, 7, 9, 1_700_000_000_000_000_u64][usize::from(at % 4)];
    match at / 4 {
        0 => format!("+WAIT 700 {stamp} 0 - -\r\n"),
        1 => format!("+WAIT 700 {stamp} 1 {OTHER}00:35 -\r\n"),
        2 => format!("+WAIT 0 {stamp} 1 {OTHER}00:35 -\r\n"),
        3 => format!("+WAIT -1 {stamp} 2 {OTHER}00:35 {}00\r\n", OTHER.replace('b', "c")),
        4 => format!("+OK {stamp}\r\n"),
        5 => format!("+OK {stamp} 1700000000000000\r\n"),
        6 => format!("+OK {stamp} 1700000000000001\r\n"),
        7 => format!("+OK {stamp} 1 0 7\r\n"),
        8 => format!("+OK {stamp} 0 0 7\r\n"),
        9 => format!("+OK {stamp} 3 0 7\r\n"),
        10 => bulk(&stamp.to_string()),
        11 => bulk("\nredbolt"),
        12 => format!("+WAIT {stamp}\r\n"),
        13 => format!("+WAIT 0 0 {stamp} - -\r\n"),
        14 => format!("+WAIT 0 {stamp} 1 short -\r\n"),
        _ => "+WAIT 18446744073709551615 5 0 - -\r\n".into(),
    }
}

/// Returns a node's message on a push link: about a resource, the ticket before the lock's own, any
/// key, or an invalid one.
pub(super) fn pushed(code: u8) -> String {
    let keys = match code % 8 {
        at @ 0..5 => bulk(&format!("k{at}")),
        5 => bulk(&format!("redbolt:line-wait:{OTHER}")),
        6 => return format!("{INVALIDATED}*-1\r\n"),
        _ => return plausible_push(code / 8).into(),
    };
    format!("{INVALIDATED}*1\r\n{keys}")
}

fn plausible_push(code: u8) -> &'static str {
    let all = ["+OK\r\n", ":107\r\n", ":-1\r\n", "-NOPERM no\r\n", "-ERR unknown command\r\n"];
    all[usize::from(code) % all.len()]
}

const INVALIDATED: &str = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";

/// A ticket of another client, up to the node's digits.
const OTHER: &str = "xabababababababababababababababab";

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The era of a server process, the last letter of its run ID.
pub(super) const ERA: char = 'a';
pub(super) const NEXT_ERA: char = 'b';
/// The era of the servers at the end; no input can name it.
pub(super) const LAST_ERA: char = 'f';

/// The first code of replies about a queue, if locks wait in one.
const FIRST_OF_QUEUE: u8 = 160;

/// The first code of replies about a restart guard or a counter.
const FIRST_OF_RESTART_GUARD: u8 = 224;

const OF_RESTART_GUARD: &[&str] = &[
    ":126144000000\r\n",
    ":126144000001\r\n",
    ":126144030000\r\n",
    "+GUARD -2\r\n",
    "+GUARD 126144000777\r\n",
    "+GUARD 5\r\n",
    "+CLOCK 1700000003000000\r\n",
    "+CLOCK 1\r\n",
    "+CLOCK 18446744073709551615\r\n",
    "+OK 1700000000000000\r\n",
    "+OK 1700000000000010\r\n",
    "+OK 9007199254740990\r\n",
    "+OK 9007199254740991\r\n",
    "+OK 0\r\n",
    "+OK -1\r\n",
];

/// The slots of a semaphore, and one that it does not have.
const OF_SLOTS: &[&str] =
    &["+OK 0 0 7\r\n", "+OK 1 0 7\r\n", "+OK 1 0 0\r\n", "+OK 2\r\n", "+OK 3 0 7\r\n"];

const PLAUSIBLE: &[&str] = &[
    "+OK\r\n",
    "$-1\r\n",
    ":0\r\n",
    ":1\r\n",
    ":-1\r\n",
    ":-2\r\n",
    ":30000\r\n",
    ":9223372036854775807\r\n",
    "-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
    "-MISCONF Redis is configured to save RDB snapshots\r\n",
    "-BUSY Redis is busy running a script.\r\n",
    "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "-NOAUTH Authentication required.\r\n",
    "-NOPERM this user has no permissions to run the 'set' command\r\n",
    "-ERR unknown command 'SET', with args beginning with: 'k0'\r\n",
    "-ERR Error running script (call to f_0): @user_script:1: -READONLY x\r\n",
    "-DENIED Redis is running in protected mode\r\n",
    "-\r\n",
    "+\r\n",
    "*0\r\n",
    "*-1\r\n",
    "*2\r\n+OK\r\n+OK\r\n",
    "*1\r\n:1\r\n",
    "%1\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
];

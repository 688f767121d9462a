//! A core of three nodes whose replies the test writes by hand.

use redbolt::proto::restart_guard::Expected;
use redbolt::proto::{ClockReading, NodeSettings, RestartTrust, Settings, Timestamp, WakeStrategy};
use redbolt_testkit::Handshake;

pub(crate) use redbolt_testkit::Bench;

/// Returns a core with open links on which no request was answered.
pub(crate) fn cold() -> Bench {
    let mut settings = Settings::new(vec![NodeSettings::default(); 3]);
    settings.wake = WakeStrategy::Timer;
    let now = Timestamp(1_000_000_000);
    Bench::new(settings, ClockReading { boot: now, wall: now })
}

/// Returns a core whose nodes all vote and have no request left to answer.
pub(crate) fn warm() -> Bench {
    let mut bench = cold();
    for node in 0..3 {
        bench.handshake(node, &ready(node));
    }
    bench.reported();
    bench
}

/// Returns the handshake of a node that votes.
pub(crate) fn ready(node: usize) -> Handshake {
    Handshake {
        restart_guard: Some(restart_guard_value(node, 1)),
        pttl: Handshake::VOTES,
        ..Handshake::unguarded(run_id(node, 1))
    }
}

/// Returns the run ID of a node. Each node is a separate server.
pub(crate) fn run_id(node: usize, run: u8) -> String {
    let mut run_id = [b'a' + node as u8; 40];
    run_id[0] = b'0' + run;
    String::from_utf8(run_id.to_vec()).unwrap()
}

/// Returns the restart guard's value that this client expects of a node in its `run`.
pub(crate) fn restart_guard_value(node: usize, run: u8) -> Vec<u8> {
    restart_guard_of(node, run, None)
}

/// Returns the same for a node that reports the history of its data.
pub(crate) fn restart_guard_of(node: usize, run: u8, history: Option<u8>) -> Vec<u8> {
    let run_id = run_id(node, run).as_bytes().try_into().ok();
    let replication_id = history.map(|history| [history; 40]);
    let (max_ttl_ms, nodes, database, restart_trust) = (30_000, 3, 0, RestartTrust::Strict);
    Expected { run_id, replication_id, max_ttl_ms, nodes, database, restart_trust }.value()
}

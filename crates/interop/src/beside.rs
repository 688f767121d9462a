//! Measures redbolt and Redisson in one run: the time of a pair of lock and unlock, and of a
//! hand-off from a holder to a waiter.
//!
//! Each process takes its own times, so that the pipes to it do not count. The rounds of both
//! alternate, so that a slow machine slows both. `own` is redbolt as one of those processes.

use std::fs;
use std::thread;
use std::time::Duration;

use redbolt_test_servers::{Reply, Server, servers};

use crate::checks::{SETTLED, at, ms};
use crate::failure::Failure;
use crate::fleet::comes;
use crate::library::Library;
use crate::own;
use crate::peer::Peer;
use crate::table::Section;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// The number of pairs in each round.
    pub(crate) pairs: usize,
    /// The number of hand-offs in each round.
    pub(crate) hand_offs: usize,
}

/// Two processes of one kind.
struct Side {
    one: Peer,
    two: Peer,
}

/// The times of one side in a round.
#[derive(Default)]
struct Times {
    pairs: Vec<Duration>,
    watched: Vec<Duration>,
    hand_offs: Vec<Duration>,
}

/// Returns the table, for one node and for three.
pub(crate) fn section(library: &Library, effort: Effort) -> Section {
    let title = format!("{} {}: pair and hand-off", library.name, library.version);
    let mut body = format!(
        "\n{} rounds of {} pairs and {} hand-offs of each, in turn.\n\n{HEAD}",
        effort.rounds, effort.pairs, effort.hand_offs
    );
    let mut has_failed = false;
    for nodes in [1, 3] {
        println!("interop: beside {} {}, nodes: {nodes}", library.name, library.version);
        let rows = rows(library, nodes, effort);
        has_failed |= rows.is_err();
        let rows = rows.unwrap_or_else(|error| format!("| **FAILED**, N = {nodes}: {error} |\n"));
        print!("{rows}");
        body.push_str(&rows);
    }
    Section { title, body, row: None, has_failed }
}

/// Returns two rows for the pairs, and one for the hand-offs.
fn rows(library: &Library, nodes: usize, effort: Effort) -> Result<String, Failure> {
    let servers = servers(nodes);
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    fs::write(library.complaints(), "")?;
    let config = redbolt::Config::builder().nodes(&addresses).build()?;
    redbolt::init(&config, Duration::from_secs(10))?;
    let theirs = || library.start_measured(&addresses);
    let ours = || own::start(library, &addresses);
    let mut sides = [Side { one: ours()?, two: ours()? }, Side { one: theirs()?, two: theirs()? }];
    for Side { one, two } in &mut sides {
        // Java may need longer to start than the TTL of a lock that is held meanwhile.
        one.expect("pairs ready 1 20000", "pairs")?;
        two.expect("pairs ready 1 20000", "pairs")?;
    }
    exclude_each_other(&mut sides, &servers)?;
    for side in &mut sides {
        side.pairs(WARM_UP, A_LEASE)?;
        side.pairs(WARM_UP, NO_LEASE)?;
        side.hand_offs(WARM_UP_HAND_OFFS, Duration::from_millis(5))?;
    }
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        rounds.push(one_round(&mut sides, round, effort)?);
    }
    let complaints = library.complained()?;
    if !complaints.is_empty() {
        return Err(format!("it complained: {}", complaints.join("; ")).into());
    }
    let row = |what, of| row(&format!("{what}, N = {nodes}"), &rounds, of);
    let pairs = row("pair", |times| &times.pairs);
    let watched = row("pair, Redisson's with its watchdog", |times| &times.watched);
    let hand_offs = row("hand-off", |times| &times.hand_offs);
    Ok(pairs + &watched + &hand_offs)
}

/// Checks, as a control, that both take the same lock in the same format: neither gets a lock that
/// the other holds.
fn exclude_each_other(sides: &mut [Side; 2], servers: &[Server]) -> Result<(), Failure> {
    let [ours, theirs] = sides;
    excludes(&mut ours.one, &mut theirs.one, servers)?;
    excludes(&mut theirs.one, &mut ours.one, servers)
}

fn excludes(holder: &mut Peer, other: &mut Peer, servers: &[Server]) -> Result<(), Failure> {
    holder.expect("wait both", "held")?;
    let is_hash =
        |server: &Server| matches!(server.cmd("TYPE both"), Reply::Status(it) if it == "hash");
    if !comes(Duration::from_secs(2), || servers.iter().all(is_hash)) {
        return Err("a lock is not a hash on each node".into());
    }
    other.expect("pairs both 1 20000", "failed busy")?;
    holder.expect("leave both", "left")?;
    other.expect("pairs both 1 20000", "pairs")?;
    Ok(())
}

/// Runs a round. The side that is first in a round is second in the next.
fn one_round(sides: &mut [Side; 2], round: usize, effort: Effort) -> Result<[Times; 2], Failure> {
    let mut times = [Times::default(), Times::default()];
    for turn in 0..2 {
        let side = (round + turn) % 2;
        times[side].pairs = sides[side].pairs(effort.pairs, A_LEASE)?;
    }
    for turn in 0..2 {
        let side = (round + turn) % 2;
        times[side].watched = sides[side].pairs(effort.pairs, NO_LEASE)?;
    }
    for turn in 0..2 {
        let side = (round + turn) % 2;
        times[side].hand_offs = sides[side].hand_offs(effort.hand_offs, SETTLED)?;
    }
    Ok(times)
}

impl Side {
    fn pairs(&mut self, count: usize, lease: u32) -> Result<Vec<Duration>, Failure> {
        self.one.order(&format!("pairs pair {count} {lease}"))?;
        let (reply, _) = self.one.reply()?;
        let spans = reply.strip_prefix("pairs ").ok_or_else(|| reply.clone())?;
        let mut spans = spans
            .split(' ')
            .map(|nanos| Ok(Duration::from_nanos(nanos.parse()?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        spans.sort_unstable();
        Ok(spans)
    }

    fn hand_offs(&mut self, count: usize, settles: Duration) -> Result<Vec<Duration>, Failure> {
        let mut spans = Vec::new();
        for turn in 0..count {
            let (holder, waiter) = match turn % 2 {
                0 => (&mut self.one, &mut self.two),
                _ => (&mut self.two, &mut self.one),
            };
            holder.expect("wait hand", "held")?;
            waiter.order("wait hand")?;
            thread::sleep(settles);
            holder.order("leave hand")?;
            let (left, came) = (moment(holder, "left ")?, moment(waiter, "held ")?);
            spans.push(came.checked_sub(left).ok_or("it came before it had gone")?);
            waiter.expect("leave hand", "left")?;
        }
        spans.sort_unstable();
        Ok(spans)
    }
}

fn moment(peer: &mut Peer, word: &str) -> Result<Duration, Failure> {
    let (reply, _) = peer.reply()?;
    let nanos = reply.strip_prefix(word).ok_or_else(|| reply.clone())?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// Returns a row with both sides over all rounds, and how they compare in each.
fn row(name: &str, rounds: &[[Times; 2]], of: fn(&Times) -> &Vec<Duration>) -> String {
    let all = |side: usize| {
        let mut spans: Vec<_> = rounds.iter().flat_map(|round| of(&round[side])).copied().collect();
        spans.sort_unstable();
        format!("{} | {}", ms(at(&spans, 50)), ms(at(&spans, 99)))
    };
    let ratio = |part: usize| {
        let of_round = |[ours, theirs]: &[Times; 2]| {
            at(of(ours), part).as_secs_f64() / at(of(theirs), part).as_secs_f64()
        };
        let mut ratios: Vec<_> = rounds.iter().map(of_round).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let [least, median, most] =
            [0, ratios.len() / 2, ratios.len() - 1].map(|place| ratios[place]);
        format!("{median:.2} ({least:.2} to {most:.2})")
    };
    format!("| {name} | {} | {} | {} |\n", all(0), all(1), ratio(50))
}

/// The number of uncounted pairs, enough for Java's compiler to have seen all of it.
const WARM_UP: usize = 5_000;
const WARM_UP_HAND_OFFS: usize = 300;

/// The TTL in milliseconds, which tells Redisson not to use its watchdog.
const A_LEASE: u32 = 20_000;
const NO_LEASE: u32 = 0;

const HEAD: &str = "\
| | redbolt p50 | p99 | Redisson p50 | p99 | p50, redbolt to Redisson (least to most of a round) |
|---|--:|--:|--:|--:|--:|
";

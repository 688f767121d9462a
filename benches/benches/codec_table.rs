//! The codec compared with other codecs as a table of ratios, in Markdown.
//!
//! The contenders of a shape take turns, each for at least 50 microseconds, so that other load on
//! the machine affects all of them alike. A ratio is computed within a turn; the table shows the
//! median of all turns and, in brackets, the first and third quartile. Arguments select the rows
//! whose names contain one of them.

use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use redbolt_benches::codec::{Command, DECODERS, ENCODERS, shapes};

fn main() {
    let names: Vec<_> = DECODERS.iter().map(|(name, _)| *name).collect();
    heading("decode", "reply", &names);
    for shape in shapes().into_iter().filter(|shape| chosen(shape.name)) {
        let mut contenders: Vec<_> = DECODERS
            .iter()
            .map(|(_, contender)| {
                let mut contender = contender(&shape);
                move || black_box(contender()) as usize
            })
            .collect();
        row(shape.name, shape.replies, &mut contenders);
    }
    let names: Vec<_> = ENCODERS.iter().map(|(name, _)| *name).collect();
    heading("encode", "command", &names);
    for (name, command) in
        [("SET key token NX PX ttl", Command::Set), ("EVALSHA, 1 key, 2 args", Command::Evalsha)]
    {
        if !chosen(name) {
            continue;
        }
        let mut contenders: Vec<_> =
            ENCODERS.iter().map(|(_, contender)| contender(command)).collect();
        row(name, 1, &mut contenders);
    }
}

fn chosen(name: &str) -> bool {
    let mut wanted = env::args().skip(1).filter(|arg| arg != "--bench").peekable();
    wanted.peek().is_none() || wanted.any(|part| name.contains(&part))
}

fn heading(what: &str, unit: &str, contenders: &[&str]) {
    println!("\n| {what} | {}, ns per {unit} | {} |", contenders[0], contenders[1..].join(" | "));
    println!("|---|{}", "---|".repeat(contenders.len()));
}

fn row(name: &str, replies: usize, contenders: &mut [impl FnMut() -> usize]) {
    let calls: Vec<_> = contenders.iter_mut().map(|contender| calls_per_slice(contender)).collect();
    let mut turns = vec![Vec::new(); contenders.len()];
    for _ in 0..turns_wanted() {
        for ((contender, &calls), times) in contenders.iter_mut().zip(&calls).zip(&mut turns) {
            times.push(time(contender, calls).as_secs_f64() * 1e9 / f64::from(calls));
        }
    }
    let floor = &turns[0];
    let (_, nanoseconds, _) = spread(floor.iter().map(|call| call / replies as f64));
    print!("| {name} | {nanoseconds:.2} |");
    for times in &turns[1..] {
        let ratios = times.iter().zip(floor).map(|(time, floor)| time / floor);
        let (low, median, high) = spread(ratios);
        print!(" {median:.2} ({low:.2}–{high:.2}) |");
    }
    println!();
}

/// Returns the number of turns: one outside `cargo bench`, which only checks that all contenders
/// run.
fn turns_wanted() -> usize {
    if env::args().any(|arg| arg == "--bench") { TURNS } else { 1 }
}

fn calls_per_slice(contender: &mut impl FnMut() -> usize) -> u32 {
    let mut calls = 1;
    while time(contender, calls) < SLICE {
        calls *= 2;
    }
    calls
}

fn time(contender: &mut impl FnMut() -> usize, calls: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(contender());
    }
    start.elapsed()
}

/// Returns the first quartile, the median and the third quartile.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values[(values.len() - 1) * percent / 100];
    (at(25), at(50), at(75))
}

const SLICE: Duration = Duration::from_micros(50);
const TURNS: usize = 1001;

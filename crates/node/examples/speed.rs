//! Measures the cost of commands in a [`Store`], in nanoseconds: `cargo run --release -p
//! redbolt-node --example speed`.
//!
//! A simulator's nodes do little else, so this cost determines its schedules per second. Each line
//! is the best of many short rounds, so that a busy machine matters little.

use std::{hint::black_box, time::Instant};

use redbolt::proto::script::{ACQUIRE_FENCED, ACQUIRE_MANY, EXTEND, UNDO};
use redbolt_node::model::{ClockReading, ConnId, Store};

fn main() {
    let mut bench = Bench::new();
    println!("{:>8.0}  a new store", bench.time(|bench| bench.store = Store::new(RUN, NOW)));
    println!("{:>8.0}  restart", bench.time(|bench| bench.restart()));
    println!("{:>8.0}  connect and disconnect", bench.time(Bench::visit));

    bench.restart();
    let [many, fenced, extend, undo] =
        [ACQUIRE_MANY.text, ACQUIRE_FENCED.text, EXTEND.text, UNDO.text]
            .map(|text| bench.load(text));
    bench.say(&["SET", "redbolt:guard", "0123:30000:3:0", "PX", "126144000000"]);
    for words in GREETING.iter().chain(&OTHERS) {
        println!("{:>8.0}  {}", bench.time(|bench| bench.say(words)), words.join(" "));
    }
    let micros = (NOW.micros() + 5).to_string();
    let scripts: [(&str, Vec<&str>); 4] = [
        ("ACQUIRE_MANY.text", vec![&many, "3", "a", "b", "redbolt:guard", TOKEN, "1000", "2"]),
        ("ACQUIRE_FENCED.text", {
            let keys = ["a", "redbolt:fence:a", "redbolt:guard"];
            [&[&fenced[..], "3"], &keys[..], &[TOKEN, "1000", "1", &micros, "604800000"]].concat()
        }),
        ("EXTEND.text", vec![&extend, "1", "a", TOKEN, "2000"]),
        ("UNDO.text", vec![&undo, "1", "a", TOKEN]),
    ];
    for (name, call) in &scripts {
        let words = [&["EVALSHA"], &call[..]].concat();
        let free = ["DEL", "a", "b"];
        let both = bench.time(|bench| {
            bench.say(&words);
            bench.say(&free);
        });
        println!("{both:>8.0}  {name}, and DEL of two keys");
    }
    println!("{:>8.0}  the nodes' part of a schedule, in all", bench.time(Bench::schedule));
}

struct Bench {
    store: Store,
    conn: ConnId,
    out: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let mut store = Store::new(RUN, NOW);
        let conn = store.connect();
        Self { store, conn, out: Vec::new() }
    }

    fn restart(&mut self) {
        self.store.restart(redbolt_node::Memory::Lost, RUN, NOW);
        self.conn = self.store.connect();
    }

    fn visit(&mut self) {
        let conn = self.store.connect();
        self.store.disconnect(conn);
    }

    fn say(&mut self, words: &[&str]) {
        let mut args = [&b""[..]; 16];
        words.iter().zip(&mut args).for_each(|(word, arg)| *arg = word.as_bytes());
        self.out.clear();
        self.store.command(self.conn, &args[..words.len()], NOW, &mut self.out);
        black_box(&self.out);
    }

    /// Loads a script and returns its digest.
    fn load(&mut self, text: &str) -> String {
        self.say(&["SCRIPT", "LOAD", text]);
        let reply = String::from_utf8_lossy(&self.out);
        reply.lines().nth(1).expect("a bulk string has two lines").to_owned()
    }

    /// Runs three nodes, nine connections and twenty commands of locks.
    fn schedule(&mut self) {
        for _ in 0..3 {
            self.restart();
            for _ in 0..3 {
                self.conn = self.store.connect();
                for line in GREETING {
                    self.say(line);
                }
            }
            for _ in 0..7 {
                self.say(&["SET", "a", TOKEN, "NX", "PX", "1000"]);
                self.say(&["PTTL", "redbolt:guard"]);
                self.say(&["EVAL", UNDO.text, "1", "a", TOKEN]);
            }
        }
    }

    /// Returns the shortest time of one call in several rounds, in nanoseconds.
    fn time(&mut self, mut call: impl FnMut(&mut Self)) -> f64 {
        let mut round = || {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call(self));
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
    }
}

const GREETING: [&[&str]; 7] = [
    &["CLIENT", "SETNAME", "redbolt"],
    &["CLIENT", "ID"],
    &["INFO", "server"],
    &["INFO", "replication"],
    &["INFO", "memory"],
    &["GET", "redbolt:guard"],
    &["PTTL", "redbolt:guard"],
];
const OTHERS: [&[&str]; 3] =
    [&["PING"], &["SET", "k", TOKEN, "PX", "1000"], &["SET", "k", "v", "NX", "PX", "1000"]];
const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const NOW: ClockReading = ClockReading::from_millis(1_767_225_600_000);
const CALLS: u32 = 500;
const ROUNDS: u32 = 400;

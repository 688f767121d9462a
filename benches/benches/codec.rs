//! The codec compared with other codecs, one by one, with criterion's statistics.
//!
//! For ratios use `codec_table`, in which the contenders of a shape take turns.

// The macros of criterion make public items.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redbolt_benches::codec::{Command, DECODERS, ENCODERS, shapes};

fn decode(criterion: &mut Criterion) {
    for shape in shapes() {
        let mut group = criterion.benchmark_group(format!("decode {}", shape.name));
        group.throughput(Throughput::Elements(shape.replies as u64));
        for (name, contender) in DECODERS {
            let mut contender = contender(&shape);
            group.bench_function(*name, |bencher| bencher.iter(&mut contender));
        }
        group.finish();
    }
}

fn encode(criterion: &mut Criterion) {
    for command in [Command::Set, Command::Evalsha] {
        let mut group = criterion.benchmark_group(format!("encode {command:?}"));
        for (name, contender) in ENCODERS {
            let mut contender = contender(command);
            group.bench_function(*name, |bencher| bencher.iter(&mut contender));
        }
        group.finish();
    }
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);

//! In steady state the codec allocates nothing.

use allocation_counter::measure;
use redbolt::resp::{Decoder, Limits, command};
use resp_tests::recorded;

use crate::report;

#[test]
fn decoding_recorded_replies_allocates_nothing() {
    let recorded = recorded::read();
    let mut tokens = 0;
    let cost = measure(|| {
        for (_, stream) in &recorded {
            let (mut decoder, mut at) = (Decoder::new(Limits::default()), 0);
            while let Ok(Some((_, len))) = decoder.next(&stream[at..]) {
                at += len;
                tokens += 1;
            }
        }
    });
    assert_eq!(cost.count_total, 0);
    report(&format!("{tokens} recorded tokens without an allocation"));
}

#[test]
fn encoding_into_a_reused_buffer_allocates_nothing() {
    let mut out = Vec::with_capacity(4096);
    let cost = measure(|| {
        for ttl in 0..1000 {
            out.clear();
            drop(
                command(&mut out, 6)
                    .arg(b"SET")
                    .arg(b"key")
                    .arg(b"token")
                    .arg(b"NX")
                    .arg(b"PX")
                    .int(ttl),
            );
        }
    });
    assert_eq!(cost.count_total, 0);
    assert!(out.ends_with(b"$3\r\n999\r\n"));
}

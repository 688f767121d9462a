//! The codec allocates nothing in steady state.

use allocation_counter::measure;
use redbolt::resp::{BytesMut, Decoder, Frame, FrameDecoder, Limits, command};
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
fn a_frame_costs_an_allocation_for_each_array_and_none_for_a_payload() {
    let replies =
        [(&b"+OK\r\n+QUEUED\r\n"[..], 0), (b":7\r\n$-1\r\n*0\r\n", 0)].into_iter().chain([
            (&b"$5\r\nalice\r\n-ERR no\r\n"[..], 0),
            (b"*2\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n", 2),
        ]);
    for (reply, arrays) in replies {
        let (mut decoder, mut buffer) = (FrameDecoder::new(Limits::default()), BytesMut::new());
        let mut receive = || {
            buffer.extend_from_slice(reply);
            while let Some(frame) = decoder.next(&mut buffer).unwrap() {
                // A client also uses the frame and drops it before it reads again.
                assert_ne!(frame, Frame::NilArray);
            }
        };
        (0..100).for_each(|_| receive());
        let cost = measure(|| (0..1000).for_each(|_| receive()));
        assert_eq!(cost.count_total, 1000 * arrays, "{}", reply.escape_ascii());
    }
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

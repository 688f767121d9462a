//! Counts the codec: the commands of a lock's life, and every shape of reply.

use std::hint::black_box;
use std::process::ExitCode;

use redbolt::resp::{Decoder, Limits, Token, command};
use redbolt_counts::{Scenario, run};

fn main() -> ExitCode {
    run(&[
        Scenario { name: "codec/encode-ask", prepare: || encoding(ask) },
        Scenario { name: "codec/encode-undo", prepare: || encoding(undo) },
        Scenario { name: "codec/decode-ok", prepare: || decoding(b"+OK\r\n") },
        Scenario { name: "codec/decode-integer", prepare: || decoding(b":126143999999\r\n") },
        Scenario { name: "codec/decode-nil", prepare: || decoding(b"$-1\r\n") },
        Scenario { name: "codec/decode-bulk", prepare: || decoding(b"$11\r\norders:4711\r\n") },
        Scenario { name: "codec/decode-error", prepare: || decoding(ERROR) },
        Scenario { name: "codec/decode-array", prepare: || decoding(ARRAY) },
    ])
}

/// Returns a scenario that appends a command to a reused buffer. `black_box` hides the arguments
/// from the optimiser.
fn encoding(encode: fn(&mut Vec<u8>, &Inputs)) -> Box<dyn FnMut()> {
    let mut out = Vec::with_capacity(4096);
    let inputs = Inputs {
        key: b"orders:4711",
        token: b"0123456789abcdef0123456789abcdef00",
        sha: b"c5d8ec71e9a0b8a1d3d5f0a2f5e9b8a1d3d5f0a2",
        ttl: 10_000,
    };
    Box::new(move || {
        out.clear();
        encode(&mut out, black_box(&inputs));
        black_box(&out);
    })
}

struct Inputs {
    key: &'static [u8],
    token: &'static [u8],
    sha: &'static [u8],
    ttl: u64,
}

/// Encodes a lock request with the restart-guard check behind it.
fn ask(out: &mut Vec<u8>, inputs: &Inputs) {
    let set = command(out, 6).arg(b"SET").arg(inputs.key).arg(inputs.token);
    drop(set.arg(b"NX").arg(b"PX").int(inputs.ttl));
    drop(command(out, 2).arg(b"PTTL").arg(b"redbolt:guard"));
}

fn undo(out: &mut Vec<u8>, inputs: &Inputs) {
    let call = command(out, 5).arg(b"EVALSHA").arg(inputs.sha).arg(b"1");
    drop(call.arg(inputs.key).arg(inputs.token));
}

/// Returns a scenario that decodes one whole reply.
fn decoding(reply: &'static [u8]) -> Box<dyn FnMut()> {
    let mut decoder = Decoder::new(Limits::default());
    Box::new(move || {
        let (reply, mut at) = (black_box(reply), 0);
        while let Some((token, len)) = decoder.next(&reply[at..]).expect("the reply is valid") {
            black_box::<Token<'_>>(token);
            at += len;
        }
    })
}

const ERROR: &[u8] = b"-NOSCRIPT No matching script. Please use EVAL.\r\n";
const ARRAY: &[u8] = b"*3\r\n+OK\r\n:1732132800123456\r\n$4\r\n9000\r\n";

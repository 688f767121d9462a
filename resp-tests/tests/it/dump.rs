//! `examples/resp_dump` as a user runs it: every vector through a real process.

use std::env;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use resp_tests::case::{self, Case};

use crate::report;

#[test]
fn dump_prints_every_vector_canonically() {
    let program = build();
    let vectors = case::vectors();
    for vector in &vectors {
        let output = run(&program, vector);
        let (elements, complaint) = parts(&vector.expected);
        assert_eq!(String::from_utf8_lossy(&output.stdout), elements, "{}", vector.name);
        let stderr = String::from_utf8_lossy(&output.stderr);
        match complaint {
            None => assert_eq!(stderr, "", "{}", vector.name),
            Some(complaint) => {
                let last = stderr.lines().last().unwrap_or("");
                assert!(last.starts_with(&format!("{complaint}: ")), "{}: {last}", vector.name);
            }
        }
        assert_eq!(output.status.code(), Some(complaint.is_some().into()), "{}", vector.name);
    }
    report(&format!("{} vectors through resp_dump", vectors.len()));
}

#[test]
fn dump_reads_a_stream_larger_than_its_memory() {
    let program = build();
    let mut dump = Command::new("sh")
        .args(["-c", "ulimit -v 65536 && exec \"$0\""])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let reply = [b"*100\r\n".as_slice(), &b"$9\r\n123456789\r\n".repeat(100)].concat();
    let mut input = dump.stdin.take().unwrap();
    let mut written = 0;
    while written < 96 << 20 {
        input.write_all(&reply.repeat(50)).unwrap();
        written += reply.len() * 50;
    }
    drop(input);
    let output = dump.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0), "64 MiB of address space for {written} bytes");
}

#[test]
fn dump_refuses_a_wrong_command_line() {
    for args in [&["--bulk"][..], &["--bulk", "x"], &["file.resp"], &["--colour", "1"]] {
        let output = Command::new(build()).args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stderr.starts_with(b"resp_dump: "), "{args:?}");
    }
}

fn run(program: &Path, vector: &Case) -> Output {
    let mut command = Command::new(program);
    for (name, value) in &vector.set_limits {
        command.args([format!("--{name}"), value.to_string()]);
    }
    let mut dump = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The process may end at a violation before it has read everything.
    if let Err(error) = dump.stdin.take().unwrap().write_all(&vector.stream) {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{}", vector.name);
    }
    dump.wait_with_output().unwrap()
}

/// Returns the lines of the elements, and the line of an incomplete or invalid end.
fn parts(expected: &str) -> (&str, Option<&str>) {
    let body = expected.strip_suffix('\n').unwrap_or(expected);
    let last = body.rfind('\n').map_or(0, |at| at + 1);
    let complains = ["violation ", "incomplete "].iter().any(|end| body[last..].starts_with(end));
    if complains { (&expected[..last], Some(&body[last..])) } else { (expected, None) }
}

/// Builds the example in this test's profile and target directory, and returns its path.
/// `cargo xtask test` has built it and names its directory.
fn build() -> PathBuf {
    if let Some(examples) = env::var_os("REDBOLT_EXAMPLES") {
        return PathBuf::from(examples).join("resp_dump");
    }
    let test = env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let folder = target.file_name().and_then(|name| name.to_str()).unwrap();
    let profile = if folder == "debug" { "dev" } else { folder };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "redbolt", "--example", "resp_dump", "--profile"])
        .args([profile, "--target-dir"])
        .arg(target.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "resp_dump does not build");
    target.join("examples/resp_dump")
}

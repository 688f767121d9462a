//! A killed test leaves no server behind.
//!
//! This test has no harness: the program starts itself as the test to be killed.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    env,
    io::{BufRead, BufReader},
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redbolt_test_servers::Server;

fn main() {
    match env::args().any(|arg| arg == VICTIM) {
        true => be_the_victim(),
        false if cfg!(target_os = "linux") => a_killed_test_takes_its_servers_with_it(),
        false => println!("skipped: there is no parent-death signal on this system"),
    }
}

fn be_the_victim() {
    let server = Server::start();
    println!("{}", server.address());
    thread::sleep(Duration::from_secs(60));
}

fn a_killed_test_takes_its_servers_with_it() {
    // The directory of its server stays behind, because no process is left to remove it.
    let remains = tempfile::tempdir().unwrap();
    let mut victim = Command::new(env::current_exe().unwrap())
        .arg(VICTIM)
        .env("TMPDIR", remains.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(victim.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let listens = || TcpStream::connect(address.trim()).is_ok();
    assert!(listens(), "the victim's server is not up");

    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while listens() {
        assert!(Instant::now() < deadline, "the server outlives its test");
        thread::sleep(Duration::from_millis(5));
    }
    println!("a killed test leaves no server behind: ok");
}

const VICTIM: &str = "--victim";

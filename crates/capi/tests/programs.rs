//! Programs in C, C++ and Python, built with the system's compilers and run against real servers.
//!
//! Each runs under valgrind, which fails on a use of memory that is not allocated, and on memory
//! that can no longer be freed. Most also run without it, because valgrind lets one thread run at a
//! time. The one in Python does not run under valgrind, which would check the interpreter; with TLS
//! or a fork some checks are off, see `build`. The programs are linked with the static library, or
//! load the shared one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![cfg(target_os = "linux")]

#[path = "programs/build.rs"]
mod build;
#[path = "programs/secured.rs"]
mod secured;

use std::process::Command;

use redbolt_test_servers::{Server, servers};

use crate::build::{Program, c, cpp};

#[test]
fn a_c_program_takes_a_lock() {
    let nodes = Nodes::start();
    let steps = "locked, with a token: yes\nstep 1\nstep 2\nstep 3\nreleased\n";
    assert_eq!(c("examples/lock.c").run_both_ways(&nodes.addresses), steps);
}

#[test]
fn an_error_names_the_node() {
    let mut nodes = Nodes::start();
    nodes.servers[1].kill();
    nodes.servers[2].kill();
    let said = c("examples/lock.c").refused(&nodes.addresses);
    assert!(said.starts_with("not locked: "), "{said}");
    for number in 2..=3 {
        let named = format!("node {number} {}: ", nodes.addresses[number - 1]);
        assert!(said.contains(&named), "{named} is not in: {said}");
    }
}

#[test]
fn every_kind_of_lock_works_in_c() {
    let nodes = Nodes::with_data_of_others();
    assert_eq!(c("tests/c/client.c").run(&nodes.addresses), "all of it\n");
}

#[test]
fn the_client_is_clean_under_valgrind() {
    let nodes = Nodes::with_data_of_others();
    assert_eq!(c("tests/c/client.c").run_under_valgrind(&nodes.addresses), "all of it\n");
}

#[test]
fn a_lock_lives_in_a_loop_over_epoll() {
    let nodes = Nodes::start();
    let said = "nightly: granted\nnightly: still held after 3 extensions\nnightly: released\n";
    assert_eq!(c("examples/epoll.c").run_both_ways(&nodes.addresses), said);
}

#[test]
fn locks_live_in_libuv_and_are_held_one_by_one() {
    let nodes = Nodes::start();
    let program = Program::c_with("examples/libuv.c", &["libuv"]);
    let said = program.run_under_valgrind(&nodes.addresses);
    let jobs = (0..5).map(|job| format!("job {job} begins\njob {job} ends\n"));
    assert_eq!(said, jobs.collect::<String>());
}

#[test]
fn every_event_works_in_c() {
    let nodes = Nodes::start();
    assert_eq!(c("tests/c/driver.c").run(&nodes.addresses), "all of it\n");
}

#[test]
fn the_driver_is_clean_under_valgrind() {
    let nodes = Nodes::start();
    assert_eq!(c("tests/c/driver.c").run_under_valgrind(&nodes.addresses), "all of it\n");
}

#[test]
fn outcomes_come_in_callbacks() {
    let nodes = Nodes::start();
    let said = "locked: the report is written\nreleased\n";
    assert_eq!(c("examples/callbacks.c").run_both_ways(&nodes.addresses), said);
}

#[test]
fn an_engine_is_for_many_threads_in_c() {
    let nodes = Nodes::start();
    assert_eq!(c("tests/c/engine.c").run(&nodes.addresses), "all of it\n");
}

#[test]
fn the_engine_is_clean_under_valgrind() {
    let nodes = Nodes::start();
    assert_eq!(c("tests/c/engine.c").run_under_valgrind(&nodes.addresses), "all of it\n");
}

#[test]
fn a_lock_is_held_by_a_lock_guard() {
    let nodes = Nodes::start();
    let said = "held: true\nby another as well: false\nwith a token: true\n";
    assert_eq!(cpp("examples/lock_guard.cpp").run_both_ways(&nodes.addresses), said);
}

#[test]
fn owners_in_cpp_end_what_they_own() {
    let nodes = Nodes::with_data_of_others();
    assert_eq!(cpp("tests/c/owners.cpp").run_under_valgrind(&nodes.addresses), "all of it\n");
}

#[test]
fn results_take_the_place_of_exceptions_in_cpp() {
    let nodes = Nodes::start();
    let program = build::cpp_with("tests/c/results.cpp", &["-fno-exceptions"]);
    assert_eq!(program.run_under_valgrind(&nodes.addresses), "all of it\n");
}

/// The compiler warns in both forms of C++, and in C.
#[test]
fn the_outcome_of_a_release_cannot_be_ignored() {
    let cpp = |ends: &str| {
        format!(
            "#include <redbolt.hpp>\nvoid f(redbolt::driver &d, redbolt::lock &l) {{ (void)d; (void)l; {ends} }}\n"
        )
    };
    let c = |ends: &str| format!("#include <redbolt.h>\nvoid f(redbolt_lock *l) {{ {ends} }}\n");
    let forms: [&[&str]; 2] = [&[], &["-fno-exceptions"]];
    for options in forms {
        assert!(build::is_accepted(
            &cpp("(void)d.release(7); (void)l.is_valid();"),
            "cpp",
            options
        ));
        assert!(!build::is_accepted(&cpp("d.release(7);"), "cpp", options));
        assert!(!build::is_accepted(&cpp("l.is_valid();"), "cpp", options));
    }
    assert!(build::is_accepted(&cpp("(void)l.release();"), "cpp", forms[1]));
    assert!(!build::is_accepted(&cpp("l.release();"), "cpp", forms[1]));
    assert!(build::is_accepted(&c("if (redbolt_lock_release(l, 0)) return;"), "c", &[]));
    assert!(!build::is_accepted(&c("redbolt_lock_release(l, 0);"), "c", &[]));
}

/// The program declares functions and records by itself, and loads the shared library.
#[test]
fn python_finds_the_binary_interface_as_the_header_has_it() {
    let nodes = Nodes::start();
    let mut python = Command::new("python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/abi.py"));
    python.arg(build::library("so")).args(&nodes.addresses);
    assert_eq!(build::succeeded(build::ended(&mut python)), "client\ndriver\nengine\n");
}

#[test]
fn threads_that_share_a_client_are_refused_and_break_nothing() {
    let nodes = Nodes::start();
    assert_eq!(c("tests/c/threads.c").run_under_valgrind(&nodes.addresses), "all of it\n");
}

#[test]
fn a_forked_child_in_c_holds_nothing_and_harms_no_other() {
    let nodes = Nodes::start();
    let program = c("tests/c/fork.c");
    assert_eq!(program.run(&nodes.addresses), "all of it\n");
    assert_eq!(program.run_forking_under_valgrind(&nodes.addresses), "all of it\n");
}

/// As a control, valgrind must report the leak.
#[test]
fn valgrind_finds_a_lock_that_is_not_ended() {
    let nodes = Nodes::start();
    let leaky = Program::c_with("tests/c/leak.c", &[]);
    let said = leaky.fails_under_valgrind(&nodes.addresses);
    assert!(said.contains("definitely lost"), "{said}");
}

#[test]
fn the_snippets_of_the_manual_compile() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/use");
    let read = |page: &str| std::fs::read_to_string(format!("{manual}/{page}")).unwrap();
    let page = read("c-library.md") + &read("event-loop.md");
    for kind in ["c", "cpp"] {
        let fence = format!("```{kind}\n");
        let blocks = page.split(&fence).skip(1).filter_map(|rest| rest.split_once("```"));
        let snippets: Vec<&str> = blocks.map(|(snippet, _)| snippet).collect();
        assert!(!snippets.is_empty(), "the pages have no snippets in {kind}");
        snippets.into_iter().for_each(|snippet| build::compiles(snippet, kind));
    }
}

struct Nodes {
    servers: Vec<Server>,
    addresses: Vec<String>,
}

impl Nodes {
    fn start() -> Self {
        let servers = servers(3);
        let addresses = servers.iter().map(Server::address).collect();
        Self { servers, addresses }
    }

    /// Starts nodes with a lock of the SETNX recipe and with data that is not a lock.
    fn with_data_of_others() -> Self {
        let nodes = Self::start();
        for server in &nodes.servers {
            server.cmd("SET setnx 4102444800");
            server.cmd("SET data text");
        }
        nodes
    }
}

//! The checks on the system's server, and that they name what a server lacks.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;

use redbolt_servers::{Cell, Row, features, page, run};
use redbolt_test_servers::programs;

fn cells(args: &[&str]) -> BTreeMap<&'static str, Cell> {
    features().zip(run(&programs()[0], args)).collect()
}

fn is_named(cell: &Cell, words: &str) -> bool {
    matches!(cell, Cell::Named(told) if told.contains(words))
}

#[test]
fn the_system_s_server_has_every_feature() {
    for (feature, cell) in cells(&[]) {
        assert!(matches!(cell, Cell::Yes | Cell::By(_)), "{feature}: {cell:?}");
    }
}

#[test]
fn a_feature_that_a_server_lacks_is_named() {
    let cells = cells(&["--rename-command", "ACL", "", "--rename-command", "SUBSCRIBE", ""]);
    assert!(is_named(&cells["push"], "a needed command is missing or renamed"), "{cells:?}");
    assert!(is_named(&cells["ACL"], "unknown command"), "{cells:?}");
    assert_eq!(cells["lock"], Cell::Yes);
    let scriptless = self::cells(&["--rename-command", "EVAL", ""]);
    for feature in ["lock", "guard", "queue", "shared"] {
        assert!(
            is_named(&scriptless[feature], "scripts are forbidden"),
            "{feature}: {scriptless:?}"
        );
    }
}

#[test]
fn a_program_that_does_not_start_and_missing_servers_are_listed() {
    let row = Row::of(OsStr::new("/no/such/server"));
    let seven = Row { server: "Redis 7.0.15".to_owned(), outcome: Ok(vec![Cell::Yes]) };
    let page = page(vec![seven, row]);
    assert!(page.contains("| /no/such/server | did not start: "), "{page}");
    assert!(page.contains("| Redis 7.0.15 | yes |"), "{page}");
    let (_, missing) = page.split_once("Not there: ").unwrap();
    assert!(missing.contains("Redis 6.2, Redis 7.2") && missing.contains("KeyDB"), "{missing}");
}

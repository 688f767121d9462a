//! No target's body panics on its committed corpus.

use std::panic::catch_unwind;

use redbolt_fuzz::{TARGETS, corpus};

#[test]
fn every_body_survives_its_corpus() {
    let mut died = Vec::new();
    for target in TARGETS {
        for (name, input) in corpus::read(target) {
            if catch_unwind(|| (target.body)(&input)).is_err() {
                died.push(format!("{}: {name}", target.name));
            }
        }
    }
    assert!(died.is_empty(), "the targets panic on these inputs: {died:#?}");
}

#[test]
fn inputs_found_by_chance_are_named_by_their_digest() {
    for target in TARGETS {
        for (name, input) in corpus::read(target) {
            if corpus::by_chance(&name) {
                assert_eq!(name, corpus::digest(&input), "{} was changed by hand", target.name);
            }
        }
    }
}

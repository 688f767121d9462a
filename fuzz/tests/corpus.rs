//! Every body survives its committed corpus.

// A test reports by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use redbolt_fuzz::TARGETS;

#[test]
fn every_body_survives_its_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let mut inputs = 0;
        for file in fs::read_dir(corpora.join(target.name)).unwrap() {
            (target.body)(&fs::read(file.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "the corpus of {} is empty", target.name);
    }
}

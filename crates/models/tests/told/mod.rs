//! Runs a search, and tells how far it went.

use redbolt_models::search::{Model, Outcome, search};

/// Every state is as it should be.
pub(crate) fn clean(name: &str, model: &impl Model) {
    let outcome = run(name, model);
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// The search finds exactly this.
pub(crate) fn wrong(name: &str, model: &impl Model, what: &str) {
    let outcome = run(name, model);
    assert_eq!(outcome.violation.map(|violation| violation.what), Some(what), "{name}");
}

fn run(name: &str, model: &impl Model) -> Outcome {
    let outcome = search(model);
    println!("{name}: {outcome}");
    outcome
}

//! Runs a search, and tells how far it went.

use redbolt_models::search::{
    Model, Outcome, Progress, STUCK, search, search_for_progress, search_for_progress_of,
    search_nearest,
};

/// Every state is as it should be.
#[allow(dead_code, reason = "where progress matters it is searched for too")]
pub(crate) fn clean(name: &str, model: &impl Model) {
    let outcome = run(name, model);
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// Every state is as it should be among the nearest, if there are more of them.
#[allow(dead_code, reason = "most models are searched to the last state")]
pub(crate) fn clean_nearby(name: &str, most: usize, model: &impl Model) {
    let outcome = search_nearest(model, most);
    println!("{name}: {outcome}");
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

/// Every state is as it should be, and leads to a settled one.
#[allow(dead_code, reason = "not every model is about progress")]
pub(crate) fn progresses(name: &str, model: &impl Progress) {
    let outcome = search_for_progress(model);
    println!("{name}: {outcome}");
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// Every state of two models with the same states and steps leads to a settled one, by the definition of each.
#[allow(dead_code, reason = "few models have two kinds of progress")]
pub(crate) fn both_progress<M: Progress>(names: [&str; 2], models: [&M; 2]) {
    for (name, outcome) in names.into_iter().zip(search_for_progress_of(models)) {
        println!("{name}: {outcome}");
        assert!(outcome.violation.is_none(), "{name}: {outcome}");
    }
}

/// Some state is one from which nobody gets any further.
#[allow(dead_code, reason = "not every model is about progress")]
pub(crate) fn stuck(name: &str, model: &impl Progress) {
    let outcome = search_for_progress(model);
    println!("{name}: {outcome}");
    assert_eq!(outcome.violation.map(|violation| violation.what), Some(STUCK), "{name}");
}

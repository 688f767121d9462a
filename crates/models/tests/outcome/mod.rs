//! Runs a search and prints how far it went.

use redbolt_models::search::{
    Model, Outcome, Progress, STUCK, search, search_for_progress, search_for_progress_of,
    search_nearest,
};

/// Asserts that every state is valid.
#[allow(dead_code, reason = "where progress matters it is searched for too")]
pub(crate) fn clean(name: &str, model: &impl Model) {
    let outcome = run(name, model);
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// Asserts that every state is valid among the nearest `most`.
#[allow(dead_code, reason = "most models are searched to the last state")]
pub(crate) fn clean_nearby(name: &str, most: usize, model: &impl Model) {
    let outcome = search_nearest(model, most);
    println!("{name}: {outcome}");
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// Asserts that the search finds exactly this violation.
pub(crate) fn wrong(name: &str, model: &impl Model, what: &str) {
    let outcome = run(name, model);
    assert_eq!(outcome.violation.map(|violation| violation.what), Some(what), "{name}");
}

fn run(name: &str, model: &impl Model) -> Outcome {
    let outcome = search(model);
    println!("{name}: {outcome}");
    outcome
}

/// Asserts that every state is valid and leads to a settled one.
#[allow(dead_code, reason = "not every model is about progress")]
pub(crate) fn progresses(name: &str, model: &impl Progress) {
    let outcome = search_for_progress(model);
    println!("{name}: {outcome}");
    assert!(outcome.violation.is_none(), "{name}: {outcome}");
}

/// Asserts that every state leads to a settled one under each of two definitions of progress.
#[allow(dead_code, reason = "few models have two kinds of progress")]
pub(crate) fn both_progress<M: Progress>(names: [&str; 2], models: [&M; 2]) {
    for (name, outcome) in names.into_iter().zip(search_for_progress_of(models)) {
        println!("{name}: {outcome}");
        assert!(outcome.violation.is_none(), "{name}: {outcome}");
    }
}

/// Asserts that some state no longer leads to a settled one.
#[allow(dead_code, reason = "not every model is about progress")]
pub(crate) fn stuck(name: &str, model: &impl Progress) {
    let outcome = search_for_progress(model);
    println!("{name}: {outcome}");
    assert_eq!(outcome.violation.map(|violation| violation.what), Some(STUCK), "{name}");
}

//! The answers of sentinels for an old master that is cut off, with the library's rules, and with
//! each rule broken.

mod outcome;

use redbolt_models::sentinel_answer::{Age, SentinelAnswer};

use self::outcome::{clean, wrong};

const RULES: SentinelAnswer = SentinelAnswer::RULES;

const TWICE: &str = "two hold the lock";

#[test]
fn an_old_master_grants_nothing_that_outlives_the_quarantine_of_the_new_one() {
    clean("the word of sentinels", &RULES);
    clean(
        "the word of sentinels, asked for each time",
        &SentinelAnswer { limit: Some(0), ttl: 5, ..RULES },
    );
}

#[test]
fn the_limit_and_the_longest_ttl_fit_into_the_quarantine() {
    let longer = SentinelAnswer { ttl: RULES.ttl + 1, ..RULES };
    wrong("the word of sentinels, a longer lock", &longer, TWICE);
    let later = SentinelAnswer { limit: Some(3), ..RULES };
    wrong("the word of sentinels, a later limit", &later, TWICE);
}

#[test]
fn without_a_limit_an_old_master_grants_for_ever() {
    wrong("the word of sentinels, no limit", &SentinelAnswer { limit: None, ..RULES }, TWICE);
}

#[test]
fn the_answer_of_a_minority_is_not_enough() {
    wrong("the word of sentinels, one of three", &SentinelAnswer { needed: 1, ..RULES }, TWICE);
}

#[test]
fn an_answer_is_as_old_as_its_question() {
    let rules = SentinelAnswer { age: Age::OfAnswer, ..RULES };
    wrong("the word of sentinels, dated when it comes", &rules, TWICE);
}

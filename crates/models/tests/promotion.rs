//! Extensions on a promoted replica with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::promotion::{Counts, Promotion, Since};

use self::outcome::{clean, wrong};

const RULES: Promotion = Promotion::RULES;

/// No extension counts before the new master votes.
const STRICT: Promotion = Promotion { counts: Counts::OnceItVotes, ..RULES };

const TWICE: &str = "two hold the lock";

fn kept(since: Since, than: u8) -> Promotion {
    Promotion { counts: Counts::KeptAfter(since, than), ..RULES }
}

#[test]
fn an_extension_counts_if_the_old_master_keeps_the_key_longer_than_an_answer_counts() {
    clean("promotion", &RULES);
    clean("promotion, a longer lock", &Promotion { ttl: 4, quarantine: 5, ..RULES });
}

#[test]
fn an_extension_may_count_only_on_a_node_that_votes() {
    clean("promotion, once it votes", &STRICT);
    clean("promotion, once it votes, a short lock", &Promotion { ttl: 2, quarantine: 3, ..STRICT });
}

#[test]
fn an_extension_that_counts_without_a_vote_lets_another_hold_the_lock() {
    for ttl in [2, 3] {
        let all = Promotion { counts: Counts::All, ttl, quarantine: ttl + 1, ..RULES };
        wrong("promotion, all extensions", &all, TWICE);
    }
}

#[test]
fn the_key_must_be_kept_longer_than_an_answer_counts() {
    wrong("promotion, as long as a word", &kept(Since::Connected, 0), TWICE);
}

#[test]
fn the_time_counts_from_the_connection_and_not_from_the_question() {
    wrong("promotion, since the question", &kept(Since::Asked, 1), TWICE);
}

#[test]
fn an_extension_that_does_not_count_is_not_remembered() {
    wrong("promotion, remembered", &Promotion { uncounted_is_known: true, ..RULES }, TWICE);
}

#[test]
fn it_depends_on_a_majority_of_sentinels_and_the_limit() {
    wrong("promotion, no limit", &Promotion { limit: None, ..RULES }, TWICE);
    wrong("promotion, the word of one", &Promotion { needed: 1, ..RULES }, TWICE);
    wrong("promotion, once it votes, no limit", &Promotion { limit: None, ..STRICT }, TWICE);
}

#[test]
fn the_limit_and_the_longest_ttl_fit_into_the_quarantine() {
    wrong("promotion, an early vote", &Promotion { quarantine: 3, ..RULES }, TWICE);
    wrong("promotion, once it votes, an early vote", &Promotion { quarantine: 3, ..STRICT }, TWICE);
}

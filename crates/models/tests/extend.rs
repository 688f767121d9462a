//! Extension with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::extend::{Extending, Heeds, Script};

use self::outcome::{clean, wrong};

const RULES: Extending = Extending::RULES;

const TWO: &str = "two holders at once";

#[test]
fn extensions_of_any_length_in_any_order() {
    for rounds in [[3, 1], [1, 3], [2, 2]] {
        clean(&format!("extension, {rounds:?} ticks"), &Extending { rounds, ..RULES });
    }
}

/// Runs the longer one first, or delays the shorter one.
#[test]
fn broken_by_an_extension_that_shortens() {
    for rounds in [[3, 1], [1, 3]] {
        let plain = Extending { script: Script::Pexpire, rounds, ..RULES };
        wrong(&format!("extension, PEXPIRE, {rounds:?} ticks"), &plain, TWO);
    }
}

#[test]
fn broken_by_an_extension_that_restores_a_key() {
    wrong("extension, SET", &Extending { script: Script::Set, ..RULES }, TWO);
}

#[test]
fn broken_by_a_validity_that_is_counted_from_the_answer() {
    let late = Extending { from_first_byte: false, ..RULES };
    wrong("extension, counted from the answer", &late, TWO);
}

#[test]
fn broken_if_answers_count_after_the_end() {
    let late = Extending { within_validity: false, ..RULES };
    wrong("extension, counted after the end", &late, "a lock that had ended is held again");
}

#[test]
fn broken_if_an_answer_counts_for_a_later_round() {
    let any = Extending { own_round: false, rounds: [1, 3], ..RULES };
    wrong("extension, answers of any round", &any, TWO);
}

#[test]
fn broken_if_the_new_validity_replaces_the_old() {
    let new = Extending { larger_of_both: false, ..RULES };
    wrong("extension, new for old", &new, "an extension has shortened the validity");
}

/// A key is deleted, and a holder that receives this relies on the other nodes only.
#[test]
fn the_holder_stops_relying_on_a_deleted_key() {
    for rounds in [[3, 1], [1, 3], [2, 2]] {
        for deletions in [1, 2] {
            let deleted = Extending { rounds, deletions, ..RULES };
            clean(&format!("extension, {rounds:?} ticks, {deletions} deleted"), &deleted);
        }
    }
}

const MISLED: &str = "a holder relies on nodes that have said no";

#[test]
fn broken_by_the_larger_validity_after_a_key_is_deleted() {
    let none = Extending { deletions: 1, heeds: Heeds::None, ..RULES };
    wrong("extension, a loss that is not heeded", &none, MISLED);
}

#[test]
fn broken_if_a_loss_is_heeded_in_its_round_only() {
    let of_round = Extending { deletions: 1, heeds: Heeds::OfTheRound, ..RULES };
    wrong("extension, a loss that is heard late", &of_round, MISLED);
}

/// One clock is enough: that of a node on which a holder with a bare quorum relies.
#[test]
fn broken_by_one_clock_that_is_set_forward() {
    wrong("extension, one clock set forward", &Extending { steps: 1, ..RULES }, TWO);
}

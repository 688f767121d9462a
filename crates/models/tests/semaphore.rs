//! The semaphore with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::semaphore::{Extend, Heal, Moves, Permit, Semaphore, Undo};

use self::outcome::{clean, clean_nearby, wrong};

type Two = Semaphore<3, 2>;
type Three = Semaphore<3, 3>;

const TWO: Two = Two::RULES;
const THREE: Three = Three::RULES;

const SAME: &str = "two permits with one slot";
const MORE: &str = "more permits than slots";

#[test]
fn three_clients_and_two_slots() {
    clean("semaphore, three clients", &THREE);
}

#[test]
fn a_holder_heals_and_extends() {
    for slots in [1, 2] {
        let rules = Two { slots, heal: Heal::Guarded, ..TWO };
        clean(&format!("semaphore, {slots} slots, two heal, a loss"), &Two { losses: 1, ..rules });
    }
    let rules = Two { slots: 1, heal: Heal::Guarded, extensions: [3, 3], quarantine: 3, ..TWO };
    clean("semaphore, one slot, two heal and extend, a loss", &Two { losses: 1, ..rules });
    let one = Two { slots: 2, extensions: [3, 0], ..rules };
    clean("semaphore, 2 slots, two heal and one extends", &one);
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn three_clients_with_all_that_may_happen() {
    clean("semaphore, three clients, a loss", &Three { losses: 1, ..THREE });
    clean("semaphore, three clients, one comes twice", &Three { attempts: [2, 1, 1], ..THREE });
    clean("semaphore, three clients, one extends", &Three { extensions: [2, 0, 0], ..THREE });
}

#[test]
#[ignore = "minutes: cargo xtask models --all"]
fn two_heal_and_extend_with_two_slots() {
    let rules = Two { heal: Heal::Guarded, extensions: [2, 2], ..TWO };
    clean("semaphore, 2 slots, two heal and extend", &rules);
    let lossy = Two { extensions: [2, 0], losses: 1, ..rules };
    clean("semaphore, 2 slots, two heal and one extends, a loss", &lossy);
}

/// These have more states than fit.
#[test]
#[ignore = "many minutes: cargo xtask models --all"]
fn four_clients_and_three_slots() {
    clean_nearby("semaphore, four clients, three slots", 8_000_000, &FOUR);
}

#[test]
fn four_clients_and_three_slots_to_begin_with() {
    clean_nearby("semaphore, four clients, three slots", 50_000, &FOUR);
}

const FOUR: Semaphore<3, 4> = Semaphore { slots: 3, ..Semaphore::RULES };

#[test]
fn without_slots_all_nodes_have_to_agree() {
    let all = Three { permit: Permit::AnySlots, quorum: 3, ..THREE };
    clean("semaphore, counted by each node, all nodes", &all);
}

#[test]
fn broken_by_nodes_that_count_permits_separately() {
    let permit = Permit::AnySlots;
    wrong("semaphore, counted by each node", &Three { permit, ..THREE }, MORE);
    let five = Semaphore::<5, 3> { permit, ..Semaphore::RULES };
    wrong("semaphore, counted by each node, five nodes", &five, MORE);
}

#[test]
#[ignore = "a minute: cargo xtask models --all"]
fn broken_by_nodes_that_count_each_to_three() {
    let four = Semaphore { permit: Permit::AnySlots, ..FOUR };
    wrong("semaphore, counted by each node, three slots", &four, MORE);
}

#[test]
fn broken_by_an_extension_of_any_slot() {
    let model = Three { extend: Extend::AnySlot, extensions: [2, 0, 0], ..THREE };
    wrong("semaphore, extension of any slot", &model, SAME);
}

#[test]
fn broken_by_an_answer_that_counts_after_its_move() {
    let model = Three { moves: Moves::KeepAnswer, ..THREE };
    wrong("semaphore, an answer counts after its move", &model, SAME);
}

#[test]
fn broken_without_quarantine() {
    let model = Two { slots: 1, losses: 1, quarantine: 0, ..TWO };
    wrong("semaphore, no guard", &model, SAME);
}

#[test]
fn broken_by_an_undo_of_a_slot() {
    let model = Three { undo: Undo::Slot, attempts: [1; 3], ..THREE };
    wrong("semaphore, undo by slot", &model, SAME);
}

#[test]
fn broken_by_a_heal_that_does_not_look_at_the_guard() {
    let model = Two { slots: 1, heal: Heal::Unguarded, losses: 1, extensions: [2, 0], ..TWO };
    wrong("semaphore, heal without guard", &model, SAME);
}

#[test]
fn broken_by_a_heal_that_shortens() {
    let extensions = [3, 0];
    let model = Two { slots: 1, heal: Heal::Shortens, extensions, ttls: [1, 2], ..TWO };
    wrong("semaphore, heal shortens", &model, SAME);
}

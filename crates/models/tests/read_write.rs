//! The read/write lock with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::read_write::{
    Downgrade, Extend, KeyTtl, Mode, Plan, ReadWrite, Release, Upgrade, WriteAsk,
};

use self::outcome::{clean, wrong};

const READ: Plan = Plan::Once(Mode::Shared);
const WRITE: Plan = Plan::Once(Mode::Exclusive);
const READ_WRITE: Plan = Plan::Twice(Mode::Shared, Mode::Exclusive);
const WRITE_READ: Plan = Plan::Twice(Mode::Exclusive, Mode::Shared);

type Two = ReadWrite<3, 2>;
type Three = ReadWrite<3, 3>;

const fn two(plans: [Plan; 2]) -> Two {
    Two::rules(plans)
}

const fn three(plans: [Plan; 3]) -> Three {
    Three::rules(plans)
}

/// Two clients that both change modes, so that each meets the other in every mode.
const UPGRADES: Two = two([Plan::Upgrade; 2]);
const DOWNGRADES: Two = two([Plan::Downgrade; 2]);

const BESIDE: &str = "a writer beside another holder";

#[track_caller]
fn broken<const C: usize>(name: &str, model: &ReadWrite<3, C>) {
    wrong(&format!("read/write, {name}"), model, BESIDE);
}

#[test]
fn with_nothing_left_out_a_writer_is_alone() {
    for plans in [[WRITE, READ], [WRITE, WRITE]] {
        let full = Two { lean: false, losses: 1, ..two(plans) };
        clean(&format!("read/write, {plans:?}, a loss, nothing left out"), &full);
    }
}

#[test]
fn three_clients_lose_a_nodes_memory() {
    for plans in [[WRITE, READ, READ], [WRITE, WRITE, READ]] {
        clean(&format!("read/write, {plans:?}"), &three(plans));
        let lossy = Three { losses: 1, ..three(plans) };
        clean(&format!("read/write, {plans:?}, a loss"), &lossy);
    }
    let lossy = Two { losses: 2, ..two([WRITE, READ]) };
    clean("read/write, a writer and a reader, two losses", &lossy);
}

#[test]
fn second_attempts_are_separate_claims() {
    for plans in [[READ_WRITE, WRITE_READ], [WRITE_READ, WRITE_READ], [READ_WRITE, READ_WRITE]] {
        clean(&format!("read/write, {plans:?}, a loss"), &Two { losses: 1, ..two(plans) });
    }
}

/// A reader that leaves early removes nothing of one that stays, and one that stays keeps writers
/// out.
#[test]
fn readers_with_different_ttls() {
    for ttls in [[1, 3, 2], [3, 1, 2], [2, 1, 3]] {
        let model = Three { ttls, quarantine: 3, ..three([READ, READ, WRITE]) };
        clean(&format!("read/write, TTLs of {ttls:?}"), &model);
    }
}

#[test]
fn extensions_count_where_the_grant_counted() {
    for extensions in [[2, 0], [0, 2], [2, 2], [3, 1], [1, 3]] {
        let quarantine = 3;
        let model = Two { extensions, losses: 1, quarantine, ..two([WRITE, READ]) };
        clean(&format!("read/write, extensions of {extensions:?}, a loss"), &model);
    }
}

#[test]
fn an_upgrade_is_a_second_claim() {
    for (plans, losses) in [([Plan::Upgrade; 2], 1), ([Plan::Upgrade, READ], 1)] {
        let model = Two { losses, ..two(plans) };
        clean(&format!("read/write, {plans:?}, {losses} losses"), &model);
    }
    let extended = Two { extensions: [3, 0], quarantine: 3, ..two([Plan::Upgrade, READ_WRITE]) };
    clean("read/write, an upgrade with an extension", &extended);
}

#[test]
fn a_downgrade_is_a_second_claim() {
    for downgrade in [Downgrade::AtQuorum, Downgrade::BehindEachAsk] {
        for plans in [[Plan::Downgrade; 2], [Plan::Downgrade, WRITE], [Plan::Downgrade, READ]] {
            let model = Two { losses: 1, downgrade, ..two(plans) };
            clean(&format!("read/write, {plans:?}, {downgrade:?}, a loss"), &model);
        }
    }
    let extended = Two { extensions: [3, 0], quarantine: 3, ..DOWNGRADES };
    clean("read/write, a downgrade with an extension", &extended);
}

/// An extension of the writer's claim counts on some nodes, and the claim is then relied on for
/// others.
#[test]
fn broken_by_a_downgrade_node_by_node_with_an_extension() {
    let downgrade = Downgrade::BehindEachAsk;
    let model = Two { extensions: [3, 0], quarantine: 3, downgrade, ..DOWNGRADES };
    broken("downgrade behind each ask, with an extension", &model);
}

#[test]
fn five_nodes() {
    for plans in [[WRITE, READ], [WRITE, WRITE]] {
        clean(&format!("read/write, five nodes, {plans:?}"), &ReadWrite::<5, 2>::rules(plans));
    }
}

#[test]
fn three_clients_do_everything() {
    for plans in EVERYTHING {
        clean(&format!("read/write, {plans:?}"), &three(plans));
    }
}

const EVERYTHING: [[Plan; 3]; 4] = [
    [Plan::Upgrade, Plan::Downgrade, READ],
    [Plan::Upgrade, Plan::Downgrade, WRITE],
    [WRITE_READ, WRITE, READ],
    [READ_WRITE, WRITE, READ],
];

#[test]
#[ignore = "a minute: cargo xtask models --all"]
fn three_clients_do_everything_with_a_loss() {
    for plans in EVERYTHING {
        clean(&format!("read/write, {plans:?}, a loss"), &Three { losses: 1, ..three(plans) });
    }
    for plans in [[WRITE, READ, READ], [WRITE, WRITE, READ]] {
        let name = format!("read/write, {plans:?}, nothing left out");
        clean(&name, &Three { lean: false, ..three(plans) });
    }
}

#[test]
#[ignore = "a minute: cargo xtask models --all"]
fn three_clients_do_everything_with_extensions() {
    for plans in EVERYTHING {
        let model = Three { extensions: [3, 3, 0], quarantine: 3, ..three(plans) };
        clean(&format!("read/write, {plans:?}, two extend"), &model);
    }
}

#[test]
#[ignore = "a minute: cargo xtask models --all"]
fn changes_of_mode_with_losses_and_extensions() {
    for plans in [[Plan::Upgrade; 2], [Plan::Upgrade, Plan::Downgrade], [Plan::Downgrade; 2]] {
        let model = Two { extensions: [3, 3], losses: 1, quarantine: 3, ..two(plans) };
        clean(&format!("read/write, {plans:?}, both extend, a loss"), &model);
        clean(&format!("read/write, {plans:?}, two losses"), &Two { losses: 2, ..two(plans) });
        let five = ReadWrite::<5, 2> { losses: 1, ..ReadWrite::rules(plans) };
        clean(&format!("read/write, five nodes, {plans:?}, a loss"), &five);
    }
}

#[test]
fn broken_without_quarantine() {
    broken("no guard", &Two { losses: 1, quarantine: 0, ..two([WRITE, READ]) });
}

#[test]
fn broken_by_a_quarantine_a_tick_short() {
    broken("quarantine a tick short", &Two { losses: 1, quarantine: 1, ..two([WRITE, READ]) });
}

#[test]
fn broken_by_the_key_ttl_of_the_latest_reader() {
    let ttls = [3, 1, 1];
    let key_ttl = KeyTtl::Latest;
    broken("key TTL of the latest reader", &Three { ttls, key_ttl, ..three([READ, READ, WRITE]) });
}

#[test]
fn broken_by_a_release_that_deletes_the_key() {
    let release = Release::Key;
    broken("release deletes the key", &Three { release, ..three([READ, READ, WRITE]) });
}

#[test]
fn broken_by_an_inspection_before_the_set() {
    broken("look, then set", &Two { write: WriteAsk::LookThenSet, ..two([WRITE, READ]) });
}

#[test]
fn broken_by_less_than_a_quorum() {
    broken("read one", &Two { quorums: [1, 2], ..two([WRITE, READ]) });
    broken("half", &Two { quorums: [1, 1], ..two([WRITE, READ]) });
}

#[test]
fn broken_by_a_validity_that_is_counted_from_the_answer() {
    broken("validity from the answer", &Two { from_first_byte: false, ..two([WRITE, READ]) });
}

#[test]
fn broken_by_an_extension_that_counts_uncounted_nodes() {
    let extend = Extend::Present;
    let model = Two { extend, extensions: [2, 0], losses: 2, ..two([WRITE, READ]) };
    broken("extension of an uncounted node", &model);
}

#[test]
fn broken_by_an_extension_that_restores_an_entry() {
    let extend = Extend::Revives;
    let model = Three { extend, extensions: [2, 0, 0], ..three([WRITE, READ, WRITE]) };
    broken("extension revives", &model);
}

#[test]
fn broken_by_an_extension_that_counts_for_the_other_claim() {
    for plan in [Plan::Upgrade, Plan::Downgrade] {
        let extend = Extend::OfEither;
        let model = Two { extend, extensions: [3, 0], quarantine: 3, ..two([plan, WRITE_READ]) };
        broken(&format!("extension of either claim, {plan:?}"), &model);
    }
}

#[test]
fn broken_by_an_upgrade_that_ignores_all_readers() {
    let upgrade = Upgrade::IgnoresReaders;
    broken("upgrade ignores readers", &Two { upgrade, ..two([Plan::Upgrade, READ]) });
}

#[test]
fn broken_by_an_upgrade_on_the_validity_of_the_reader() {
    let upgrade = Upgrade::LentValidity;
    let extensions = [3, 0];
    let model = Two { upgrade, extensions, quarantine: 3, ..two([Plan::Upgrade, READ]) };
    broken("upgrade on the reader's validity", &model);
}

#[test]
fn broken_by_one_token_for_reader_and_writer() {
    let upgrade = Upgrade::OneToken;
    broken("upgrade with one token", &Two { upgrade, ..two([Plan::Upgrade, WRITE]) });
}

/// A client that fails to upgrade goes on as a reader, for as long as its extension says.
#[test]
fn broken_by_an_upgrade_that_shortens_the_readers_entry() {
    let model = Two { extensions: [3, 0], quarantine: 3, ..two([Plan::Upgrade, WRITE]) };
    clean("read/write, an upgrade behind an extension", &model);
    let upgrade = Upgrade::Shortens;
    broken("upgrade shortens the reader's entry", &Two { upgrade, ..model });
}

#[test]
fn broken_by_a_downgrade_that_takes_effect_when_confirmed() {
    let downgrade = Downgrade::WhenConfirmed;
    broken("downgrade when confirmed", &Two { downgrade, ..two([Plan::Downgrade, READ]) });
}

#[test]
fn broken_by_a_downgrade_that_releases_first() {
    let downgrade = Downgrade::ReleaseFirst;
    broken("downgrade releases first", &Two { downgrade, ..two([Plan::Downgrade, WRITE]) });
}

/// Clients that change modes meet others that do.
#[test]
fn broken_changes_of_mode_meet_each_other() {
    let upgrade = Upgrade::IgnoresReaders;
    broken("two upgrades that ignore readers", &Two { upgrade, ..UPGRADES });
    let downgrade = Downgrade::WhenConfirmed;
    broken("two downgrades when confirmed", &Two { downgrade, ..DOWNGRADES });
}

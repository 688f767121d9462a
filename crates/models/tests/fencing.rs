//! Fencing tokens with the library's rules, and with each rule broken.

mod outcome;

use redbolt_models::fencing::{Fencing, Late, Odd, Wiped, WriteBack};

use self::outcome::{clean, wrong};

type OneEach = Fencing<3, 2>;
type TwoEach = Fencing<3, 4>;

const ODD: &str = "the token of one who holds it alone is odd";
const LOWER: &str = "a token is not above one that was held before it was asked for";
const SAME: &str = "two holders have the same token";

/// One attempt of each of two clients, from all counters, with nothing left out.
const FULL: OneEach = OneEach { most_at_first: 2, lean: false, ..OneEach::RULES };

/// A lean model of it.
const LEAN: OneEach = OneEach { lean: true, ..FULL };

#[test]
fn one_attempt_each() {
    clean("fencing, 2 x 1 attempts, counters 0..2, nothing left out", &FULL);
    clean("fencing, 2 x 1 attempts, counters 0..2", &LEAN);
}

#[test]
fn two_attempts_each() {
    clean("fencing, 2 x 2 attempts, counters 0", &TwoEach::RULES);
    let counters = TwoEach { most_at_first: 1, ..TwoEach::RULES };
    clean("fencing, 2 x 2 attempts, counters 0..1", &counters);
}

#[test]
fn three_clients() {
    let three = Fencing::<3, 3> { clients: 3, most_at_first: 2, ..Fencing::RULES };
    clean("fencing, 3 x 1 attempts, counters 0..2", &three);
}

#[test]
fn five_nodes() {
    let five = Fencing::<5, 2> { most_at_first: 2, ..Fencing::RULES };
    clean("fencing, five nodes, 2 x 1 attempts, counters 0..2", &five);
}

#[test]
fn a_denial_may_raise_the_counter() {
    let bump = OneEach { bump_on_deny: true, ..FULL };
    clean("fencing, counters grow on denials too", &bump);
}

/// Memory may be lost if the counter then begins above all others, as it does with a sane clock.
#[test]
fn a_lost_counter_that_begins_above_all_others() {
    let seeded = OneEach { wipes: 1, wiped: Wiped::Overtaken, ..FULL };
    clean("fencing, a wiped counter begins above all", &seeded);
}

/// A reader and a writer, and the counters that two readers leave to a writer.
#[test]
fn readers_take_odd_tokens() {
    clean("fencing, a reader and a writer, nothing left out", &OneEach { shared: 0b01, ..FULL });
    clean("fencing, a reader and a writer", &OneEach { shared: 0b01, ..LEAN });
    let each = TwoEach { shared: 0b0110, ..TwoEach::RULES };
    clean("fencing, each reads and writes, in either order", &each);
    for (who, shared) in [("two readers and a writer", 0b011), ("a reader and two writers", 0b001)]
    {
        let three = Fencing::<3, 3> { clients: 3, most_at_first: 1, shared, ..Fencing::RULES };
        clean(&format!("fencing, {who}, counters 0..1"), &three);
    }
}

/// The odd counter is from before a writer, on a node that came back with an earlier memory.
#[test]
fn an_old_odd_counter_is_not_reused() {
    let back =
        OneEach { most_at_first: 1, shared: 0b10, wipes: 1, wiped: Wiped::AnEarlierOne, ..LEAN };
    clean("fencing, an earlier counter, a writer and a reader", &back);
    clean("fencing, an earlier counter, nothing left out", &OneEach { lean: false, ..back });
    let each = Fencing::<3, 3> { clients: 3, wipes: 1, wiped: back.wiped, ..Fencing::RULES };
    clean(
        "fencing, an earlier counter, two readers and a writer",
        &Fencing { shared: 0b110, ..each },
    );
    let kept = OneEach { odd: Odd::Kept, ..back };
    wrong("fencing, an earlier counter is kept", &kept, LOWER);
}

/// This is safe too, but concurrent readers disagree and pay for the write-back.
#[test]
fn readers_may_raise_the_counter_each() {
    let raised = OneEach { shared: 0b01, odd: Odd::Raised, ..LEAN };
    clean("fencing, each reader raises", &raised);
}

#[test]
#[ignore = "a minute: cargo xtask models --all"]
fn readers_on_five_nodes_in_threes_and_twice() {
    clean("fencing, a reader and a writer, twice", &TwoEach { shared: 0b0011, ..TwoEach::RULES });
    let five = Fencing::<5, 2> { most_at_first: 1, shared: 0b01, ..Fencing::RULES };
    clean("fencing, five nodes, a reader and a writer, counters 0..1", &five);
    for (who, shared) in [("two readers and a writer", 0b011), ("a reader and two writers", 0b001)]
    {
        let three = Fencing::<3, 3> { clients: 3, most_at_first: 2, shared, ..Fencing::RULES };
        clean(&format!("fencing, {who}, counters 0..2"), &three);
    }
}

#[test]
fn broken_by_readers_that_never_raise() {
    let shared = 0b01;
    let never = OneEach { shared, odd: Odd::Untouched, ..LEAN };
    wrong("fencing, readers never raise", &never, SAME);
}

/// The first reader may have come without a token.
#[test]
fn broken_if_only_the_first_reader_raises() {
    let kept = Fencing::<3, 3> {
        clients: 3,
        shared: 0b110,
        without_token: 0b010,
        lean: false,
        ..Fencing::RULES
    };
    clean("fencing, a reader without a token", &Fencing { lean: true, ..kept });
    let first = Fencing { odd: Odd::RaisedByFirst, ..kept };
    wrong("fencing, the first reader raises", &first, SAME);
}

#[test]
fn broken_write_backs_of_readers_and_writers() {
    for (name, write_back) in [("unowned", WriteBack::Unconditional), ("none", WriteBack::None)] {
        let model = TwoEach { shared: 0b0110, write_back, ..TwoEach::RULES };
        wrong(&format!("fencing, readers and writers, write-back {name}"), &model, SAME);
    }
}

/// The first grants differ, and each client takes the higher one.
#[test]
fn broken_without_a_write_back() {
    broken("fencing, no write-back", SAME, |rules| rules.write_back = WriteBack::None);
}

/// The write-back runs after another client has got the key.
#[test]
fn broken_by_a_write_back_that_does_not_look_whose_key_it_is() {
    broken("fencing, unconditional write-back", SAME, |rules| {
        rules.write_back = WriteBack::Unconditional;
    });
}

#[test]
fn broken_by_one_voter_that_lost_its_counter() {
    broken("fencing, one amnesiac voter", SAME, |rules| rules.wipes = 1);
}

/// Another holder of the same token may have come before a late grant above the token: a token has
/// to be at least as large as every grant that counts for it.
#[test]
fn broken_by_late_grants_above_the_token() {
    broken("fencing, late grants above the token count", SAME, |rules| rules.late = Late::AtLeast);
}

#[test]
fn broken_by_late_grants_below_the_token() {
    broken("fencing, all late grants count", SAME, |rules| rules.late = Late::Any);
}

/// The node itself still grants with its old counter. Once its replica votes, it does not.
#[test]
fn broken_by_a_promoted_replica_that_confirms_before_it_votes() {
    broken("fencing, a promoted replica confirms", SAME, |rules| rules.replica_confirms = true);
}

/// Readers could not tell their own tokens from those of exclusive holders.
#[test]
fn broken_by_counters_that_go_up_by_one() {
    broken("fencing, one more than the counter", ODD, |rules| rules.even = false);
}

/// Checks both models, which shows that the lean one hides no violation.
fn broken(name: &str, what: &'static str, spoil: impl Fn(&mut OneEach)) {
    for (how, mut model) in [("nothing left out", FULL), ("lean", LEAN)] {
        spoil(&mut model);
        wrong(&format!("{name}, {how}"), &model, what);
    }
}

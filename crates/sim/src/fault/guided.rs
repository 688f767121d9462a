//! Faults aimed at weak points that random faults reach only by accident: the nodes that two
//! quorums share, the moment of a commit, the moment before use.

use redbolt::proto::WakeStrategy;
use redbolt_testkit::Random;

use super::errors::PREFIXES;
use super::swarm;
use super::{Fault, Loss, What, When};
use crate::coverage::Phase;
use crate::plan::{ClientPlan, Job, Kind, MS, Plan, Start, US};
use crate::world::queue::Time;

/// Adds one aimed fault to many schedules.
pub(crate) fn draw(plan: &mut Plan, draw: &mut Random, span: Time) {
    let first = plan.jobs[0];
    let ttl = (first.ttl_ms * MS).min(2 * span);
    if plan.can_fence() && plan.nodes > 1 && plan.clients.len() > 1 && draw.chance(300) {
        return diverged_counters(plan, draw);
    }
    let aimed = match draw.below(12) {
        0 => ghost_at_commit(plan, draw, ttl),
        1 => pause_before_use(plan, draw, ttl),
        2 | 3 if plan.may_forget() => wipe_intersection(plan, draw),
        4 if plan.may_forget() => flush_behind_set(plan, draw),
        5 => hole_while_asking(plan, draw, ttl),
        7 if plan.may_forget() && plan.setup.max_ttl_ms < 1_000 && plan.clients.len() > 1 => {
            return change_of_limits(plan, draw);
        }
        6 if plan.nodes > 1 && draw.chance(500) => debtor_strays(plan, draw, ttl),
        6 if plan.may_forget() && plan.nodes > 1 => one_server_twice(plan, draw, ttl),
        _ => return,
    };
    plan.faults.extend(aimed);
    if plan.clients.len() > 1 {
        rivals(plan, draw);
    }
}

fn fault(what: What, when: When, client: u8) -> Fault {
    Fault { at: 0, when, what, client, node: 0, span: 0, amount: 0 }
}

/// Loses the connection when the SET has been written; the SET runs later.
fn ghost_at_commit(plan: &Plan, draw: &mut Random, ttl: Time) -> Vec<Fault> {
    let phase = draw.pick(&[Phase::Asked, Phase::Asked, Phase::Partly, Phase::Extending]);
    let ghost = |node| Fault { node, ..fault(What::Ghost, When::Reached(phase, 0), 0) };
    let mut ghosts: Vec<_> = (0..plan.nodes as u8).map(ghost).collect();
    ghosts.truncate(draw.between(1, plan.nodes as u64) as usize);
    for ghost in &mut ghosts {
        ghost.span = draw.below(ttl * 3 / 2);
    }
    ghosts
}

/// Stops the holder between its check of the lease and its write.
fn pause_before_use(_: &Plan, draw: &mut Random, ttl: Time) -> Vec<Fault> {
    let span = draw.between(ttl / 10, 3 * ttl);
    let what = draw.pick(&[What::PauseClient, What::PauseClient, What::Freeze]);
    vec![Fault { span, ..fault(what, When::Reached(Phase::Granted, 0), 0) }]
}

/// Makes some of the nodes that granted the lock lose their memory, one after another.
fn wipe_intersection(plan: &Plan, draw: &mut Random) -> Vec<Fault> {
    let loss = swarm::loss(plan, draw);
    let lag = draw.below(20 * MS);
    let mut faults = vec![Fault {
        amount: draw.between(1, plan.nodes as u64),
        span: draw.below(60 * MS),
        ..fault(What::CrashGrants { loss }, When::Reached(Phase::Granted, lag), 0)
    }];
    if plan.nodes > 1 && draw.chance(500) {
        faults.push(behind_a_hole(plan, draw));
    }
    faults
}

/// Keeps the holder's request from one node, so that the holder has a bare quorum.
fn behind_a_hole(plan: &Plan, draw: &mut Random) -> Fault {
    let node = draw.below(plan.nodes as u64) as u8;
    let span = draw.between(50 * MS, 400 * MS);
    Fault { node, span, ..fault(What::HoleUp, When::Time, 0) }
}

/// Restarts a server, which a client reaches under a second name while it is quarantined.
fn one_server_twice(plan: &Plan, draw: &mut Random, ttl: Time) -> Vec<Fault> {
    let node = draw.below(plan.nodes as u64) as u8;
    let restarted = (node + 1) % plan.nodes as u8;
    let loss = swarm::loss(plan, draw);
    let loading = draw.chance(200);
    let crash = fault(What::Crash { loss, loading }, When::Time, 0);
    let twin = fault(What::Twin, When::Time, draw.below(plan.clients.len() as u64) as u8);
    let at = draw.below(ttl);
    let quarantine = plan.setup.max_ttl_ms * MS;
    vec![
        Fault { at, node: restarted, span: draw.below(20 * MS), ..crash },
        Fault { at: at + draw.below(200 * MS), node, span: draw.below(2 * quarantine), ..twin },
    ]
}

/// Lets a node answer with errors, so that the client owes it an undo. Then its name leads to a
/// server that granted the same lock, on which that undo must not run.
fn debtor_strays(plan: &Plan, draw: &mut Random, ttl: Time) -> Vec<Fault> {
    let node = draw.below(plan.nodes as u64) as u8;
    let errors = What::Errors(draw.below(PREFIXES.len() as u64) as u8);
    let asked = When::Reached(draw.pick(&[Phase::Connecting, Phase::Asked]), 0);
    let granted = When::Reached(Phase::Granted, draw.below(ttl));
    let mut faults = vec![
        Fault { node, span: draw.between(ttl / 4, ttl), ..fault(errors, asked, 0) },
        Fault { node, span: ttl, ..fault(What::Twin, granted, 0) },
    ];
    // That server may even be unable to report its run ID.
    if draw.chance(300) {
        let other = (node + 1) % plan.nodes as u8;
        let errors = What::Errors(draw.below(PREFIXES.len() as u64) as u8);
        faults.push(Fault { node: other, span: ttl, ..fault(errors, granted, 0) });
    }
    faults
}

/// Changes the limits while a holder's lock lasts longer than the new ones allow, and others wait
/// for it under the new limits. The restart guard does not promise to survive a loss of memory at
/// the same time.
fn change_of_limits(plan: &mut Plan, draw: &mut Random) {
    plan.faults.retain(|it| !it.what.loses_memory() && it.what != What::OtherLimits);
    plan.setup.other_ttl_ms = plan.setup.max_ttl_ms;
    plan.setup.max_ttl_ms = 1_700;
    for (at, job) in plan.jobs.iter_mut().enumerate() {
        job.keys = 1;
        job.client = u8::from(at > 0);
        if job.kind != Kind::Probe {
            job.at += if at > 0 { 100 * MS } else { 0 };
            (job.patience, job.work) = if at > 0 { (2_500 * MS, 50 * MS) } else { (0, 1_700 * MS) };
            job.kind = Kind::Hold;
        }
    }
    plan.jobs[0].ttl_ms = 1_632;
    plan.jobs[0].patience = 0;
    let change = When::Reached(Phase::Granted, draw.below(200 * MS));
    let unheard = When::Reached(Phase::Granted, draw.below(200 * MS));
    let (node, span) = (draw.below(plan.nodes as u64) as u8, draw.below(400 * MS));
    plan.faults.extend([
        fault(What::OtherLimits, When::Time, 1),
        fault(What::Change, change, 0),
        Fault { node, span, ..fault(What::Isolate, unheard, 0) },
    ]);
}

fn flush_behind_set(plan: &Plan, draw: &mut Random) -> Vec<Fault> {
    let flush = |node| Fault { node, ..fault(What::FlushBehindSet, When::Time, 0) };
    let mut faults: Vec<_> = (0..plan.nodes as u8).map(flush).collect();
    faults.truncate(draw.between(1, plan.nodes as u64) as usize);
    faults
}

/// Silences a minority from the start: no client may wait for it.
fn hole_while_asking(plan: &Plan, draw: &mut Random, ttl: Time) -> Vec<Fault> {
    let what = draw.pick(&[What::HoleDown, What::HoleUp, What::PauseNode]);
    let hole = |node| Fault { node, span: ttl, ..fault(what, When::Reached(Phase::Asked, 0), 0) };
    (0..(plan.nodes / 2) as u8).map(hole).collect()
}

/// Lets a holder extend while one node misses the extension, and makes another one lose the key
/// after it. Until the next extension the lease relies on a node that has lost the key.
pub(crate) fn draw_broken(plan: &mut Plan, draw: &mut Random) {
    let first = plan.jobs[0];
    if !plan.may_forget() || plan.nodes == 1 || first.ttl_ms > 2_000 || !draw.chance(40) {
        return;
    }
    let ttl = first.ttl_ms * MS;
    (plan.jobs[0].kind, plan.jobs[0].work) = (Kind::AutoExtend, 2 * ttl);
    let misses = draw.below(plan.nodes as u64) as u8;
    let loses = (misses + 1 + draw.below(plan.nodes as u64 - 1) as u8) % plan.nodes as u8;
    // The first extension comes a third of the TTL after the grant.
    let extended = When::Reached(Phase::Granted, ttl / 4);
    let broken = When::Reached(Phase::Granted, ttl / 2);
    let misconf = PREFIXES.iter().position(|prefix| prefix.name() == "MISCONF").unwrap_or_default();
    let crash = What::Crash { loss: Loss::Lost, loading: false };
    plan.faults.extend([
        Fault { node: misses, span: ttl / 6, ..fault(What::Errors(misconf as u8), extended, 0) },
        Fault { node: loses, span: draw.below(10 * MS), ..fault(crash, broken, 0) },
    ]);
}

/// Makes some of the nodes that granted the lock replicas and promotes them again, while others
/// want the lock on connections that were open before.
pub(crate) fn draw_replicas(plan: &mut Plan, draw: &mut Random) {
    if !plan.may_forget() || plan.clients.len() == 1 || !draw.chance(60) {
        return;
    }
    let what = What::Replica { of_its_own: draw.chance(500) };
    let count = draw.between(1, plan.nodes as u64);
    for node in 0..count as u8 {
        let granted = When::Reached(Phase::Granted, draw.below(20 * MS));
        let span = draw.between(SHORTEST_RESYNC, 60 * MS);
        plan.faults.push(Fault { node, span, ..fault(what, granted, 0) });
    }
    if count < plan.nodes as u64 && draw.chance(500) {
        plan.faults.push(behind_a_hole(plan, draw));
    }
    rivals(plan, draw);
    // Extensions and releases last only for a few messages, so the faults above meet them only by
    // accident.
    let phase = match draw.below(10) {
        0 => Phase::Extending,
        1 => Phase::Releasing,
        _ => return,
    };
    if phase == Phase::Extending {
        plan.jobs[0].kind = Kind::AutoExtend;
    }
    for replica in plan.faults.iter_mut().filter(|it| it.what == what) {
        replica.when = When::Reached(phase, 0);
    }
}

/// The shortest time for which a server is a replica; the core relies on half of it.
const SHORTEST_RESYNC: Time = 4 * MS;

/// Sets the first holder's clock ahead and keeps its token from one node. The second holder then
/// finds a quorum of counters that disagree, and its write-back fails or not.
fn diverged_counters(plan: &mut Plan, draw: &mut Random) {
    let ttl = (plan.jobs[0].ttl_ms * MS).min(400 * MS);
    let span = draw.between(ttl / 4, ttl);
    (plan.clients[0].wall_ahead, plan.clients[1].wall_ahead) = (2_000_000, -1_000_000);
    for (at, job) in plan.jobs.iter_mut().filter(|job| job.kind != Kind::Probe).enumerate() {
        (job.client, job.keys, job.fenced, job.kind) = ((at % 2) as u8, 1, true, Kind::Hold);
        job.work = if at == 0 { span / 4 } else { span };
        job.at = 20 * MS + 8 * plan.net.delay + (at as Time * span / 2);
        job.patience = if draw.chance(500) { span } else { 0 };
    }
    let last = (plan.nodes - 1) as u8;
    let unheard = |node| Fault { node, span, ..fault(What::HoleUp, When::Time, 0) };
    plan.faults.extend((plan.quorum() as u8..=last).map(unheard));
    let asked = When::Reached(Phase::Asked, 0);
    let silent = |node| Fault { node, span, ..fault(What::HoleDown, asked, 1) };
    plan.faults.extend((1..plan.quorum() as u8).map(silent));
    let kinds = [What::HoleUp, What::Ghost, What::Reset, What::PauseNode, What::FlushScripts];
    let lag = draw.below(3 * plan.net.delay);
    for node in [0, last] {
        let what = draw.pick(&kinds);
        let partly = When::Reached(Phase::Partly, lag);
        plan.faults.push(Fault { node, span, ..fault(what, partly, 1) });
    }
}

/// Lets others want the first job's resources, at the same time and for long.
fn rivals(plan: &mut Plan, draw: &mut Random) {
    let Job { ttl_ms, at, .. } = plan.jobs[0];
    let ttl = (ttl_ms * MS).min(2_000 * MS);
    plan.jobs[0].keys = 1;
    plan.jobs[0].client = 0;
    plan.jobs[0].work = ttl;
    if !matches!(plan.jobs[0].kind, Kind::AutoExtend) {
        plan.jobs[0].kind = Kind::Hold;
    }
    let clients = plan.clients.len() as u64;
    for job in plan.jobs.iter_mut().skip(1).filter(|job| job.kind != Kind::Probe) {
        job.keys = 1;
        job.client = draw.between(1, clients - 1) as u8;
        job.at = at + draw.below(ttl / 2);
        job.patience = ttl;
        job.work = ttl / 2;
        job.kind = Kind::Hold;
    }
}

/// Steps the clocks of a quorum past the TTL while a client holds the lock; or the clock of one
/// node, if the holder has a bare quorum.
pub(crate) fn draw_clock_step(plan: &mut Plan, draw: &mut Random) {
    settle(plan, draw);
    let ttl_us = plan.jobs[0].ttl_ms * 1_000;
    let lag = draw.below(10 * MS);
    if draw.chance(300) {
        let (amount, quorum) = (draw.between(ttl_us, 2 * ttl_us), plan.quorum() as u8);
        let granted = When::Reached(Phase::Granted, lag);
        let step = fault(What::StepNode { back: false }, granted, 0);
        plan.faults.push(Fault { amount, node: draw.below(quorum.into()) as u8, ..step });
        let unheard = fault(What::HoleUp, When::Time, 0);
        let span = 4 * ttl_us * 1_000;
        let spared = quorum..plan.nodes as u8;
        return plan.faults.extend(spared.map(|node| Fault { node, span, ..unheard }));
    }
    plan.faults.push(Fault {
        amount: draw.between(ttl_us, 2 * ttl_us),
        ..fault(What::StepGrants, When::Reached(Phase::Granted, lag), 0)
    });
    if draw.chance(400) {
        let ttl = ttl_us * 1_000;
        let more = ghost_at_commit(plan, draw, ttl);
        plan.faults.extend(more);
    }
}

/// Restarts nodes that granted without their memory, with no restart guard to stop them from
/// voting.
pub(crate) fn draw_memory_loss(plan: &mut Plan, draw: &mut Random) {
    settle(plan, draw);
    plan.faults.push(Fault {
        amount: draw.between(1, plan.nodes as u64),
        span: draw.below(5 * MS),
        ..fault(
            What::CrashGrants { loss: Loss::Lost },
            When::Reached(Phase::Granted, draw.below(10 * MS)),
            0,
        )
    });
    if draw.chance(500) {
        let hole = behind_a_hole(plan, draw);
        plan.faults.push(hole);
    }
}

/// Draws a crowd that waits in the queue for few permits. Some hold theirs for long, one may never
/// release, and a process with one of the waiters may stop for a while. Some only try, as soon as
/// their process has released.
pub(crate) fn draw_waiting_for_permits(plan: &mut Plan, draw: &mut Random) {
    calm(plan);
    plan.setup.start = Start::Ready;
    let probe = plan.jobs.pop();
    let (permits, first) = (draw.pick(&[1, 2, 2, 3]), plan.jobs[0]);
    let (clients, others) = (plan.clients.len() as u64, draw.pick(&[0, 0, 200]));
    plan.jobs.clear();
    for at in 0..draw.between(4, 8) {
        let (kind, ttl_ms) = match draw.below(10) {
            0 => (Kind::Cancel { after: draw.below(600 * MS) }, 20_000),
            1 | 2 => (Kind::AutoExtend, 600),
            _ => (Kind::Hold, 20_000),
        };
        let wants_permit = !draw.chance(others);
        let (longest, only_tries) = (draw.pick(&[300, 300, 3_000]), draw.chance(150));
        plan.jobs.push(Job {
            at: 20 * MS + draw.below(300 * MS),
            client: draw.below(clients) as u8,
            keys: 1,
            ttl_ms: ttl_ms + at,
            kind,
            patience: if only_tries { 0 } else { 7_000 * MS },
            work: draw.between(1, longest) * MS,
            permits: if wants_permit { permits } else { 0 },
            shared: !wants_permit && draw.chance(500),
            changes: [0; 2],
            hand_on: None,
            ..first
        });
    }
    // If both happened, only the second waiter's timer would show it that a permit has expired.
    match draw.below(10) {
        0..3 => (plan.jobs[0].kind, plan.jobs[0].ttl_ms) = (Kind::Forget, 300),
        3..6 if clients > 1 => stop_one(plan, draw),
        _ => {}
    }
    for at in 1..plan.jobs.len() {
        if plan.jobs[at].client == plan.jobs[at - 1].client && draw.chance(150) {
            (plan.jobs[at].kind, plan.jobs[at].patience) = (Kind::Again, 0);
        }
    }
    plan.jobs.extend(probe);
}

/// Draws a crowd in the queue, readers and writers, and some that come later and only try. Some are
/// far away from the nodes, or never reach one of them; one may stop for a while, or never release.
pub(crate) fn draw_crowd_in_queue(plan: &mut Plan, draw: &mut Random) {
    calm(plan);
    plan.setup.start = Start::Ready;
    plan.faults.clear();
    let (probe, first) = (plan.jobs.pop(), plan.jobs[0]);
    while plan.clients.len() < 3 {
        plan.clients.push(plan.clients[0]);
    }
    let (clients, sharing) = (plan.clients.len() as u64, draw.pick(&[0, 300, 600, 900]));
    plan.jobs.clear();
    for at in 0..draw.between(4, 8) {
        let kind = match draw.below(10) {
            0 => Kind::Cancel { after: draw.below(600 * MS) },
            _ => Kind::Hold,
        };
        let only_tries = draw.chance(200);
        plan.jobs.push(Job {
            at: 20 * MS + draw.below(if only_tries { 2_000 * MS } else { 300 * MS }),
            client: draw.below(clients) as u8,
            keys: 1,
            ttl_ms: 20_000 + at,
            kind,
            patience: if only_tries { 0 } else { 7_000 * MS },
            work: draw.between(1, 300) * MS,
            shared: draw.chance(sharing),
            hand_on: None,
            ..first
        });
    }
    match draw.below(10) {
        0..3 => (plan.jobs[0].kind, plan.jobs[0].ttl_ms) = (Kind::Forget, 300),
        3..6 => stop_one(plan, draw),
        _ => {}
    }
    for client in 0..plan.clients.len() {
        let far = if draw.chance(300) { draw.between(8, 17) * MS } else { 0 };
        // No round trip may be longer than the response timeout.
        plan.clients[client].far = if plan.net.delay + plan.net.jitter > 5 * MS { 0 } else { far };
        if plan.nodes > 1 && draw.chance(200) {
            let node = draw.below(plan.nodes as u64) as u8;
            let cut = fault(What::HoleUp, When::Time, client as u8);
            plan.faults.push(Fault { node, span: 8_000 * MS, ..cut });
        }
    }
    plan.jobs.extend(probe);
}

/// Draws processes near the nodes that take turns again and again, and others that are far away and
/// want a turn as well.
pub(crate) fn draw_far_in_queue(plan: &mut Plan, draw: &mut Random) {
    calm(plan);
    plan.setup.start = Start::Ready;
    plan.setup.answer_ms = 1_000;
    plan.faults.clear();
    (plan.net.delay, plan.net.jitter) = (draw.pick(&[20 * US, 200 * US, MS]), 0);
    let (probe, first) = (plan.jobs.pop(), plan.jobs[0]);
    let (near, far) = (draw.pick(&[1, 2, 2, 3]), draw.pick(&[1, 1, 2]));
    let template = ClientPlan { far: 0, far_from: 0, ..plan.clients[0] };
    // The round trip of a waiter may grow, which the waiter notices at its next poll.
    let moves = draw.chance(300);
    plan.clients.clear();
    plan.jobs.clear();
    for client in 0..near + far {
        let is_far = client >= near;
        let distance = if is_far { draw.pick(&[25, 75, 150, 300]) * MS } else { 0 };
        let far_from = if is_far && moves { draw.between(600, 1_200) * MS } else { 0 };
        plan.clients.push(ClientPlan { far: distance, far_from, ..template });
        let (turns, work) = if is_far { (3, 1) } else { (80, draw.between(5, 30)) };
        let comes_by = if moves { 400 * MS } else { 2_000 * MS };
        for turn in 0..turns {
            let (is_first, ttl_ms) = (turn == 0, 20_000 + plan.jobs.len() as u64);
            plan.jobs.push(Job {
                at: 20 * MS + draw.below(comes_by) * u64::from(is_far),
                client,
                keys: 1,
                ttl_ms,
                kind: if is_first { Kind::Hold } else { Kind::Again },
                patience: 7_000 * MS,
                work: if is_first && moves && client == 0 { 5_000 * MS } else { work * MS },
                shared: false,
                changes: [0; 2],
                hand_on: None,
                ..first
            });
        }
    }
    plan.jobs.extend(probe.map(|probe| Job { client: 0, ..probe }));
}

/// Draws a crowd in the queue of which any number stops, mostly one behind the other, while a job
/// holds the lock. The nodes' clocks may be set back.
pub(crate) fn draw_stops_in_queue(plan: &mut Plan, draw: &mut Random) {
    calm(plan);
    plan.setup.start = Start::Ready;
    plan.faults.clear();
    let (probe, first) = (plan.jobs.pop(), plan.jobs[0]);
    let count = draw.between(4, 9);
    while plan.clients.len() < count as usize {
        plan.clients.push(plan.clients[0]);
    }
    plan.clients.iter_mut().for_each(|client| client.far = 0);
    let (sharing, held) = (draw.pick(&[0, 0, 300, 600]), draw.between(300, 3_000) * MS);
    plan.jobs.clear();
    for at in 0..count {
        let (is_holder, come) = (at == 0, 40 * MS + draw.below(300 * MS));
        plan.jobs.push(Job {
            at: if is_holder { 20 * MS } else { come },
            client: at as u8,
            keys: 1,
            ttl_ms: 20_000 + at,
            kind: Kind::Hold,
            patience: 7_000 * MS,
            work: if is_holder { held } else { draw.between(1, 100) * MS },
            shared: draw.chance(sharing),
            changes: [0; 2],
            hand_on: None,
            ..first
        });
    }
    plan.jobs[1..].sort_by_key(|job| job.at);
    let stopped = draw.between(1, count - 2) as usize;
    let from = draw.between(1, count - stopped as u64) as usize;
    let stopped: Vec<_> = plan.jobs[from..from + stopped].iter().map(|job| job.client).collect();
    for client in stopped {
        let stop = fault(What::PauseClient, When::Time, client);
        let at = draw.between(100 * MS, 20 * MS + held);
        plan.faults.push(Fault { at, span: 9_000 * MS, ..stop });
    }
    plan.jobs.extend(probe);
    if draw.chance(300) {
        // A restart guard would put the node into quarantine.
        plan.setup.restart_guard = false;
        plan.jobs.iter_mut().for_each(|job| job.fenced = false);
        let step = fault(What::StepNode { back: true }, When::Time, 0);
        for node in 0..plan.nodes as u8 {
            let (at, amount) = (draw.between(100, 4_000) * MS, draw.between(1, 60) * 1_000_000);
            plan.faults.push(Fault { at, node, amount, ..step });
        }
    } else if draw.chance(400) {
        // The holder has died as well, and its lease ends while others share, wait or have died.
        (plan.jobs[0].kind, plan.jobs[0].ttl_ms) = (Kind::Forget, draw.between(300, 3_000));
    }
}

/// Stops one process, which has exactly one job, for longer than any grace.
fn stop_one(plan: &mut Plan, draw: &mut Random) {
    let client = plan.jobs[1].client;
    let another = (client + 1) % plan.clients.len() as u8;
    for (at, job) in plan.jobs.iter_mut().enumerate() {
        if at != 1 && job.client == client {
            job.client = another;
        }
    }
    stop(plan, draw, client);
}

fn stop(plan: &mut Plan, draw: &mut Random, client: u8) {
    let at = draw.between(50, 600) * MS;
    let span = draw.between(1_000, 3_000) * MS;
    plan.faults.push(Fault { at, span, ..fault(What::PauseClient, When::Time, client) });
}

/// Stops up to three further waiters if one stops and there is no other fault. Each is the only
/// waiter of its process.
pub(crate) fn stop_more(plan: &mut Plan, draw: &mut Random) {
    if !matches!(plan.faults[..], [Fault { what: What::PauseClient, when: When::Time, .. }]) {
        return;
    }
    for at in 2..=1 + draw.between(1, 3) as usize {
        let follows = |at: usize| plan.jobs.get(at).is_none_or(|job| job.kind == Kind::Again);
        let is_last = at + 2 > plan.jobs.len();
        if is_last || follows(at) || follows(at + 1) {
            continue;
        }
        let client = plan.clients.len() as u8;
        plan.clients.push(plan.clients[0]);
        plan.jobs[at].client = client;
        stop(plan, draw, client);
    }
}

/// Calms the network and clients, so that a wait depends on the holder of the lock only.
fn calm(plan: &mut Plan) {
    (plan.net.tail_per_mille, plan.net.loss_per_mille) = (0, 0);
    plan.net.read = usize::MAX;
    plan.clients.iter_mut().for_each(|client| client.late = 0);
    (plan.setup.max_ttl_ms, plan.setup.other_ttl_ms) = (30_000, 30_200);
}

/// Draws many waiters for one resource. Machines are healthy, but some notifications are lost.
pub(crate) fn draw_waiting(plan: &mut Plan, draw: &mut Random) {
    calm(plan);
    let mut probe = plan.jobs.pop();
    let count = draw.between(3, 8) as usize;
    let clients = plan.clients.len() as u64;
    let first = plan.jobs[0];
    plan.jobs.clear();
    for at in 0..count {
        let kind = if draw.chance(100) {
            Kind::Cancel { after: draw.below(600 * MS) }
        } else {
            Kind::Hold
        };
        let many = if draw.chance(150) { draw.below(1 << plan.keys) as u8 } else { 0 };
        plan.jobs.push(Job {
            at: 20 * MS + draw.below(300 * MS),
            client: draw.below(clients) as u8,
            keys: 1 | many,
            ttl_ms: 20_000 + at as u64,
            kind,
            patience: 7_000 * MS,
            work: draw.between(1, 300) * MS,
            ..first
        });
    }
    // One holder may never release, so that its key has to expire.
    if draw.chance(200) {
        (plan.jobs[0].kind, plan.jobs[0].ttl_ms) = (Kind::Forget, 300);
    }
    plan.jobs.extend(probe.take());
    match draw.below(16) {
        0..=3 if plan.nodes > 1 => return held_elsewhere(plan, draw),
        4 => return again_and_again(plan, draw),
        _ => {}
    }
    for _ in 0..draw.pick(&[0, 0, 1, 2, 3]) {
        let what = draw.pick(&[
            swarm::PUSHES[0],
            swarm::PUSHES[1],
            swarm::PUSHES[2],
            What::PushReset,
            What::Reset,
        ]);
        let phase = draw.pick(&[Phase::Told, Phase::Told, Phase::Subscribing, Phase::Waiting]);
        let when = When::Reached(phase, draw.below(400 * MS));
        plan.faults.push(Fault {
            node: draw.below(plan.nodes as u64) as u8,
            span: draw.below(1_000 * MS),
            amount: draw.below(1 << 20),
            ..fault(what, when, draw.below(clients) as u8)
        });
    }
}

/// Keeps the first node down while the first job acquires, so that it grants the later jobs what
/// they cannot have: each request and each undo there is a change.
fn held_elsewhere(plan: &mut Plan, draw: &mut Random) {
    while plan.clients.len() < 4 {
        plan.clients.push(plan.clients[0]);
    }
    let work = draw.between(1_000, 3_000) * MS;
    for (at, job) in plan.jobs.iter_mut().filter(|job| job.kind != Kind::Probe).enumerate() {
        (job.client, job.keys, job.fenced) = ((at % 4) as u8, 1, false);
        job.kind = Kind::Hold;
        job.at = if at == 0 { 20 * MS } else { 300 * MS + draw.below(20 * MS) };
        job.work = if at == 0 { work } else { job.work };
    }
    let mut away = fault(What::Refuse, When::Time, 0);
    away.span = 200 * MS;
    plan.faults.push(away);
}

/// Lets one job acquire again as soon as it has released, while others wait. They need
/// notifications: against mere pauses, the job that requests at once always wins.
fn again_and_again(plan: &mut Plan, draw: &mut Random) {
    while plan.clients.len() < 3 {
        plan.clients.push(plan.clients[0]);
    }
    let probe = plan.jobs.pop();
    let first = Job { client: 0, keys: 1, kind: Kind::Again, fenced: false, ..plan.jobs[0] };
    plan.jobs.clear();
    if plan.setup.wake == WakeStrategy::Timer {
        plan.setup.wake = WakeStrategy::Lead;
    }
    let work = draw.between(80, 150) * MS;
    for at in 0..4_500 * MS / work {
        plan.jobs.push(Job { ttl_ms: 20_000 + at, work, ..first });
    }
    for client in 1..=draw.between(1, 2) {
        let at = draw.between(100, 400) * MS;
        let ttl_ms = 22_000 + client;
        plan.jobs.push(Job { at, client: client as u8, ttl_ms, kind: Kind::Hold, ..first });
    }
    (plan.jobs[0].kind, plan.jobs[0].at) = (Kind::Hold, 20 * MS);
    plan.jobs.extend(probe);
}

/// Prepares a schedule in which the first lock can be taken away: long enough, and wanted by
/// others.
fn settle(plan: &mut Plan, draw: &mut Random) {
    plan.setup.max_ttl_ms = if plan.setup.max_ttl_ms < 12_000 { 1_700 } else { 12_000 };
    for (at, job) in plan.jobs.iter_mut().filter(|job| job.kind != Kind::Probe).enumerate() {
        job.ttl_ms = (draw.between(400, 1_500) & !15) + at as u64;
        job.at = job.at.min(1_000 * MS);
    }
    rivals(plan, draw);
}

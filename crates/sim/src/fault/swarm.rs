//! Swarm testing: each schedule draws its faults from a random subset of all kinds. A schedule with
//! few kinds of fault reaches states that one with all of them never reaches.

use redbolt_testkit::Random;

use super::errors::PREFIXES;
use super::{Fault, Loss, What, When};
use crate::coverage::Phase;
use crate::plan::{Kind, MS, Plan};
use crate::world::queue::Time;

/// Adds up to four faults within `span`.
pub(crate) fn draw(plan: &mut Plan, draw: &mut Random, span: Time) {
    let kinds = draw.next() & draw.next();
    let count = draw.pick(&[0, 1, 1, 2, 2, 3, 4]);
    for _ in 0..count {
        let what = kind(plan, draw);
        // A kind outside of this schedule's subset is drawn again, and then kept.
        let number = what.number();
        let what = if kinds >> number & 1 == 1 { what } else { kind(plan, draw) };
        let fault = fault(plan, draw, what, span);
        if matches!(fault.when, When::Reached(Phase::Extending, _)) {
            let mut jobs = plan.jobs.iter_mut();
            let job = jobs.find(|job| job.client == fault.client && job.kind != Kind::Probe);
            if let Some(job) = job {
                (job.kind, job.work) = (Kind::AutoExtend, job.work.max(span));
            }
        }
        plan.faults.push(fault);
    }
}

pub(crate) fn fault(plan: &Plan, draw: &mut Random, what: What, span: Time) -> Fault {
    let lag = if draw.chance(500) { 0 } else { draw.below(2 * plan.net.delay + 1) };
    let when =
        if draw.chance(600) { When::Reached(draw.pick(&Phase::ALL), lag) } else { When::Time };
    let at = if draw.chance(250) { 0 } else { draw.below(span) };
    let lasts = match draw.below(4) {
        0 => draw.below(10 * MS),
        1 => draw.below(100 * MS),
        _ => draw.below(span),
    };
    let clients = plan.clients.len() as u64;
    // The client that probes at the end keeps the right limits.
    let probe = plan.jobs.iter().find(|job| job.kind == Kind::Probe).map_or(0, |job| job.client);
    let client = match what {
        What::OtherLimits => (u64::from(probe) + 1) % clients,
        _ => draw.below(clients),
    };
    Fault {
        at,
        when,
        what,
        client: client as u8,
        node: draw.below(plan.nodes as u64) as u8,
        span: lasts,
        amount: amount(draw, what),
    }
}

fn amount(draw: &mut Random, what: What) -> u64 {
    match what {
        // Fencing survives a loss of memory while the nodes' clocks agree within 2 s.
        What::StepNode { .. } => draw.below(200_000),
        What::StepWall { .. } => draw.pick(&[1_000, 300_000, 5_000_000, 3_600_000_000]),
        What::Skew { .. } => draw.pick(&[2_000_000, 20_000_000, 3_600_000_000]),
        _ => draw.next() >> 32,
    }
}

fn kind(plan: &Plan, draw: &mut Random) -> What {
    let back = draw.chance(500);
    let loss = loss(plan, draw);
    match draw.between(2, 19) {
        2 => What::Stall,
        3 | 4 => draw.pick(&[What::Ghost, What::Ghost, What::Reset, What::Finish, What::CutReply]),
        5 => draw.pick(&[What::HoleUp, What::HoleDown, What::Mute]),
        6 => draw.pick(&[What::Partition, What::Isolate]),
        7 => What::PauseNode,
        8 => What::Crash { loss, loading: false },
        9 => What::Crash { loss, loading: true },
        10 if plan.may_forget() && draw.chance(500) => {
            draw.pick(&[What::FlushAll, What::FlushBehindSet])
        }
        10 => What::FlushScripts,
        // Only backwards: a step forward shortens locks, which no promise covers.
        11 => What::StepNode { back: true },
        12 => draw.pick(&[What::PauseClient, What::Freeze, What::StepWall { back }]),
        13 => What::Errors(draw.below(PREFIXES.len() as u64) as u8),
        14 => What::Garbage,
        15 => draw.pick(&CONNECTION),
        16 => What::Cancel,
        17 => What::Skew { back },
        19 => draw.pick(&PUSHES),
        _ if plan.setup.restart_guard && plan.clients.len() > 1 && draw.chance(500) => {
            What::OtherLimits
        }
        _ => What::Twin,
    }
}

pub(crate) fn loss(plan: &Plan, draw: &mut Random) -> Loss {
    if plan.may_forget() { draw.pick(&[Loss::Kept, Loss::Lost, Loss::Stale]) } else { Loss::Kept }
}

pub(crate) const PUSHES: [What; 4] =
    [What::PushLost, What::PushBroken, What::PushForbidden, What::PushReset];

const CONNECTION: [What; 5] =
    [What::Refuse, What::Silent, What::OpenFails, What::Choke, What::ShortWrites];

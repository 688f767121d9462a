//! Shrinks a failing schedule until no client, job, member, fault, node or network delay can be
//! left out.

use crate::invariant::Violation;
use crate::lab::Lab;
use crate::plan::{Class, Cut, Plan};

/// Returns the largest cut of a seed's schedule, found within `tries` runs, that still breaks the
/// same invariant; and the violation of the cut schedule.
#[must_use]
pub fn shrink(class: Class, seed: u64, tries: usize) -> Option<(Cut, Violation)> {
    shrink_plan(&Plan::draw(class, seed), tries)
}

fn shrink_plan(plan: &Plan, tries: usize) -> Option<(Cut, Violation)> {
    let mut lab = Lab::new();
    let mut found = lab.run_plan(plan).violation?;
    let name = found.name();
    let mut cut = Cut::default();
    let mut left = tries;
    loop {
        let before = cut.clone();
        for candidate in candidates(plan, &cut) {
            if left == 0 {
                return Some((cut, found));
            }
            left -= 1;
            let outcome = lab.run_plan(&plan.clone().without(&candidate));
            if let Some(violation) = outcome.violation.filter(|it| it.name() == name) {
                cut = candidate;
                found = violation;
                break;
            }
        }
        if cut == before {
            return Some((cut, found));
        }
    }
}

/// Returns the cuts with one element more.
fn candidates(plan: &Plan, cut: &Cut) -> Vec<Cut> {
    let more = |change: &dyn Fn(&mut Cut)| {
        let mut more = cut.clone();
        change(&mut more);
        more
    };
    let mut all = Vec::new();
    let open = |list: &[u16], count: usize| {
        (0..count as u16).filter(|at| !list.contains(at)).collect::<Vec<_>>()
    };
    for client in open(&cut.clients, plan.clients.len()) {
        all.push(more(&|cut| cut.clients.push(client)));
    }
    for job in open(&cut.jobs, plan.jobs.len()) {
        all.push(more(&|cut| cut.jobs.push(job)));
    }
    for member in open(&cut.members, plan.members.len()) {
        all.push(more(&|cut| cut.members.push(member)));
    }
    for fault in open(&cut.faults, plan.faults.len()) {
        all.push(more(&|cut| cut.faults.push(fault)));
    }
    let nodes = cut.nodes.unwrap_or(plan.nodes);
    if nodes > 1 {
        all.push(more(&|cut| cut.nodes = Some(nodes - 2)));
    }
    if !cut.calm {
        all.push(more(&|cut| cut.calm = true));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a plan in which memory is lost without a restart guard, but whose class does not
    /// expect a violation.
    fn doctored(seed: u64) -> Plan {
        let mut plan = Plan::draw(Class::MemoryLossUnguarded, seed);
        plan.class = Class::Safe;
        plan
    }

    #[test]
    fn a_shrunk_schedule_still_fails_and_cannot_be_cut_further() {
        let mut lab = Lab::new();
        let fails = |lab: &mut Lab, plan: &Plan| lab.run_plan(plan).violation.is_some();
        let seed = (0..200).find(|&seed| fails(&mut lab, &doctored(seed))).expect("one fails");
        let plan = doctored(seed);
        let (cut, violation) = shrink_plan(&plan, 400).expect("it fails");
        let small = plan.clone().without(&cut);
        assert_eq!(lab.run_plan(&small).violation, Some(violation.clone()));
        assert!(small.jobs.len() < plan.jobs.len(), "{cut}");
        for candidate in candidates(&plan, &cut) {
            let smaller = lab.run_plan(&plan.clone().without(&candidate)).violation;
            assert!(smaller.is_none_or(|it| it.name() != violation.name()), "{candidate}");
        }
        assert_eq!(cut.to_string().parse(), Ok(cut));
    }
}

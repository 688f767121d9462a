//! The targets of the contests: redbolt with default settings.

use super::cell::Run;
use super::figures::Figures;
use crate::section::Target;
use crate::waiting::default_settings;

pub(super) fn targets(runs: &[Run]) -> Vec<Target> {
    let mut targets = Vec::new();
    for run in runs {
        let name = default_settings().name;
        let Some((_, own)) = run.rows.iter().find(|(entry, _)| entry.name == name) else {
            continue;
        };
        if run.cell.is_judged() {
            targets.extend(ratios(run, own, name));
            targets.push(one(run, own, name, "waits that were passed, in %", 0.0, || {
                100.0 * own.passed()
            }));
            targets.push(one(run, own, name, "idle, in %", 10.0, || 100.0 * own.idle()));
        }
        if run.cell.waiters == MANY {
            let in_vain = || own.in_vain().unwrap_or(f64::INFINITY);
            targets.push(one(run, own, name, "asks in vain per grant", 2.0, in_vain));
        }
    }
    targets
}

fn ratios(run: &Run, own: &Figures, name: &str) -> [Target; 3] {
    let ratios = own.ratios(run.floor());
    std::array::from_fn(|at| {
        let (quantile, bound) = BOUNDS[at];
        let measured = own.is_measured() && ratios[at].median.is_finite();
        Target {
            what: format!("hand-off {quantile}, {}: {name} / {}", run.cell, run.rows[0].0.name),
            bound,
            measured: measured.then_some(ratios[at].median),
            text: ratios[at].cell(),
        }
    })
}

fn one(
    run: &Run,
    own: &Figures,
    name: &str,
    what: &str,
    bound: f64,
    of: impl Fn() -> f64,
) -> Target {
    let measured = own.is_measured().then(of);
    let text = match (measured, &own.failure) {
        (Some(measured), _) => format!("{measured:.2}"),
        (None, failure) => failure.clone().unwrap_or_else(|| "no turn".to_owned()),
    };
    Target { what: format!("{what}, {}: {name}", run.cell), bound, measured, text }
}

/// The bounds, in the order of the quantiles.
const BOUNDS: [(&str, f64); 3] = [("p50", 1.2), ("p90", 1.5), ("p99", 2.0)];

/// The number of waiters from which useless requests are bounded.
const MANY: usize = 32;

//! NCCL does not use LL128 where it would.

use evidence::Source;
use fabric::Collective;
use nccl::tuning::Protocol;
use nccl::{Algorithm, Prediction};

use crate::efa::protocol_forced_simple;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ll128-unused",
    title: "the LL128 protocol is not used where it is possible",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Decisions],
    why: "LL128 has nearly the bandwidth of Simple and nearly the latency of LL: without it messages of some tens of KiB to some MiB take longer.",
    fix: "Unset NCCL_PROTO: NCCL chooses a protocol for each size.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-proto",
        "https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/graph/tuning.cc",
    ],
    checks: &[Check::Log(check)],
};

/// A time that is worth mentioning.
const FACTOR: f32 = 1.15;

fn check(log: &Log) -> Checked {
    let outcome = log.decisions()?;
    // A tuner other than the one that is modelled chooses by itself.
    let tuner = log.case.processes.iter().any(|it| it.facts.tuner.first().is_some());
    if !outcome.fits || has_ll128(&outcome.here) || (tuner && outcome.here.tuner.is_none()) {
        return Ok(Vec::new());
    }
    let Some(remedy) = outcome.remedy(|it| f64::from(u8::from(has_ll128(it)))) else { return Ok(Vec::new()) };
    // Another rule reports a search that found farther paths, over which NCCL does not use LL128.
    let searched = |it: &Prediction| it.communicator.agreed.ring.to_string();
    if searched(&remedy.better) != searched(&outcome.here) {
        return Ok(Vec::new());
    }
    let reported = protocol_forced_simple::RULE.log().and_then(|check| check(log).ok());
    if reported.is_some_and(|it| !it.is_empty()) {
        return Ok(Vec::new());
    }
    let message =
        format!("NCCL cannot use LL128, which is possible on this machine: {}", remedy.cause.sentence());
    let slowest = slowest(&outcome.here, &remedy.better);
    let why = slowest.map(|(bytes, factor)| {
        format!(
            "By NCCL's own tuning table all_reduce of {} takes {factor:.1} times as long. {}",
            if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) },
            RULE.why
        )
    });
    let costs = slowest.is_some_and(|it| it.1 >= FACTOR);
    let mut finding = Finding::new(Confidence::Certain, message)
        .severity(if costs { Severity::Warning } else { Severity::Info })
        .seen_all(remedy.cause.quotes())
        .seen(&outcome.counts)
        .fix(remedy.cause.fix())
        .why(why.unwrap_or_else(|| RULE.why.to_owned()));
    for it in remedy.cause.variables() {
        finding = finding.about_variable(&it.name);
    }
    Ok(vec![finding])
}

fn has_ll128(prediction: &Prediction) -> bool {
    let cell = |algorithm| prediction.tuning.cell(Collective::AllReduce, algorithm, Protocol::Ll128);
    [Algorithm::Ring, Algorithm::Tree].into_iter().any(|it| cell(it).bandwidth > 0.0)
}

/// The size of an all-reduce that loses most, and how many times longer it takes by NCCL's table.
fn slowest(here: &Prediction, better: &Prediction) -> Option<(u64, f32)> {
    let factor = |bytes| {
        let time = |it: &Prediction| it.choose(Collective::AllReduce, bytes).map(|it| it.time);
        Some((bytes, time(here)? / time(better)?))
    };
    let sizes = (14..=28).map(|it| 1_u64 << it);
    sizes.filter_map(factor).filter(|it| it.1.is_finite() && it.1 > 1.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::performance::testing::hgx;
    use crate::testing::{findings, quiet};

    #[test]
    fn the_variable_is_named_with_what_it_costs() {
        let found = findings(&RULE, &hgx("NCCL_PROTO", "Simple"));
        assert_eq!(
            found[0].message,
            "NCCL cannot use LL128, which is possible on this machine: NCCL_PROTO=Simple is set"
        );
        let why = found[0].why.as_ref().unwrap();
        assert!(why.starts_with("By NCCL's own tuning table all_reduce of "), "{why}");
        assert_eq!(findings(&RULE, &hgx("NCCL_PROTO", "LL")).len(), 1);
    }

    #[test]
    fn quiet_where_it_is_used_or_excluded_by_name() {
        quiet(&RULE, &hgx("NCCL_DEBUG", "INFO"));
        quiet(&RULE, &hgx("NCCL_PROTO", "LL,LL128,Simple"));
        quiet(&RULE, &hgx("NCCL_PROTO", "^LL"));
    }
}

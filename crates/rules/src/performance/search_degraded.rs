//! NCCL's search found rings with less bandwidth than the machine could give.

use evidence::Source;
use nccl::Prediction;

use super::nic_without_ring;
use crate::decisions::{Cause, bandwidth, goes_farther};
use crate::p2p::p2p_disabled_by_setting;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "search-degraded",
    title: "NCCL's search found slower rings than the machine allows",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Decisions],
    why: "NCCL searches for as many rings as the links carry. Where a link is missing or narrow, or a variable forbids one, it tries again with \
          less bandwidth per ring, fewer rings or farther paths, for all GPUs of all nodes: the slowest node decides.",
    fix: "Repair what the message names; `plumb topo --check LOG` shows what NCCL found.",
    references: &["https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/graph/search.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let outcome = log.decisions()?;
    if !outcome.fits {
        return Ok(Vec::new());
    }
    let Some(remedy) = outcome.remedy(bandwidth) else { return Ok(Vec::new()) };
    let (here, better) = (&outcome.here, &remedy.better);
    // Another rule reports what limits the number of channels alone.
    if here.communicator.agreed.ring.to_string() == better.communicator.agreed.ring.to_string() {
        return Ok(Vec::new());
    }
    // Another rule reports NICs that the search left out.
    if nic_without_ring::RULE.log().and_then(|check| check(log).ok()).is_some_and(|it| !it.is_empty()) {
        return Ok(Vec::new());
    }
    // Another rule reports peer access that a variable turns off.
    let variables = remedy.cause.variables();
    if variables.iter().all(|it| it.name.starts_with("NCCL_P2P_")) && !variables.is_empty() {
        let reported = p2p_disabled_by_setting::RULE.log().and_then(|check| check(log).ok());
        if reported.is_some_and(|it| !it.is_empty()) {
            return Ok(Vec::new());
        }
    }
    let farther = match goes_farther(here, better) {
        Some((now, then)) => format!(", over {now} instead of {then}"),
        None => String::new(),
    };
    let message = format!(
        "NCCL's search found {} where {} are possible{farther}: {}",
        rings(here),
        rings(better),
        remedy.cause.sentence()
    );
    let confidence = match remedy.cause {
        Cause::Variables(_) => Confidence::Certain,
        Cause::Machine(_) => Confidence::Likely,
    };
    let numbers = outcome.cost(better);
    let mut finding = Finding::new(confidence, message)
        .severity(if outcome.is_costly(better) { Severity::Warning } else { Severity::Info })
        .seen(&outcome.counts)
        .seen_all(remedy.cause.quotes())
        .fix(remedy.cause.fix())
        .with_numbers(&RULE, numbers)
        .priced(outcome.price(log, better));
    for it in variables {
        finding = finding.about_variable(&it.name);
    }
    Ok(vec![finding])
}

/// `8 rings of 48 GB/s`
fn rings(prediction: &Prediction) -> String {
    let ring = &prediction.communicator.agreed.ring;
    let each = if prediction.communicator.n_nodes > 1 { ring.bw_inter } else { ring.bw_intra };
    let count = ring.channels.len();
    format!("{count} ring{} of {each} GB/s", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::performance::testing::p4d;
    use crate::testing::quiet;

    // `tests/decisions.rs` has recordings in which it fires.
    #[test]
    fn quiet_where_the_search_is_as_good_or_another_rule_says_it() {
        quiet(&RULE, &p4d(8, "NCCL_CROSS_NIC", "1"));
        quiet(&RULE, &p4d(2, "NCCL_MAX_NCHANNELS", "2"));
        quiet(&RULE, &p4d(4, "NCCL_P2P_LEVEL", "LOC"));
        quiet(&RULE, &p4d(4, "NCCL_NET_GDR_LEVEL", "LOC"));
        // Not explained by the variable.
        quiet(&RULE, &p4d(3, "NCCL_P2P_LEVEL", "LOC"));
    }
}

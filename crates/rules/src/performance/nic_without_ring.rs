//! No ring uses one of the NICs that NCCL sees.

use evidence::Source;

use super::{nics_unused, single_nic_used};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nic-without-ring",
    title: "no ring uses one of the NICs",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Decisions],
    why: "NCCL's search gives every ring a NIC in each node. Collectives between nodes lose the bandwidth of a NIC that no ring uses.",
    fix: "Unset what limits the search (NCCL_MAX_NCHANNELS, NCCL_CROSS_NIC, NCCL_NET_GDR_LEVEL), and look at the PCIe links of the GPUs and NICs.",
    references: &[
        "https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/graph/search.cc",
        "https://github.com/NVIDIA/nccl/issues/1519",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let outcome = log.decisions()?;
    let machine = outcome.machine();
    // NICs beyond the number of GPUs are for storage, and a job on some of the GPUs uses the NICs near them.
    let known = outcome.fits && outcome.is_alike() && outcome.whole;
    if !known || !outcome.spans_nodes() || machine.nics.len() > machine.gpus.len() {
        return Ok(Vec::new());
    }
    let idle = outcome.idle_nics(&outcome.here);
    #[expect(clippy::cast_precision_loss, reason = "NICs are few")]
    let busy = |it: &nccl::Prediction| (machine.nics.len() - outcome.idle_nics(it).len()) as f64;
    let Some(remedy) = outcome.remedy(busy).filter(|_| !idle.is_empty()) else { return Ok(Vec::new()) };
    // Another rule reports what limits the number of channels alone.
    let searched = |it: &nccl::Prediction| it.communicator.agreed.ring.to_string();
    if searched(&remedy.better) == searched(&outcome.here) {
        return Ok(Vec::new());
    }
    // Two rules report the same from the connections.
    for other in [&nics_unused::RULE, &single_nic_used::RULE] {
        if other.log().and_then(|check| check(log).ok()).is_some_and(|it| !it.is_empty()) {
            return Ok(Vec::new());
        }
    }
    let names: Vec<&str> = idle.iter().filter_map(|it| Some(&*machine.nics.get(*it)?.name)).collect();
    let message = format!(
        "no ring uses {} of the {} NICs ({}): {}",
        idle.len(),
        machine.nics.len(),
        names.join(", "),
        remedy.cause.sentence()
    );
    let mut finding = Finding::new(Confidence::Likely, message)
        .seen(&outcome.counts)
        .seen_all(remedy.cause.quotes())
        .fix(remedy.cause.fix())
        .with_numbers(&RULE, outcome.cost(&remedy.better))
        .priced(outcome.price(log, &remedy.better));
    for it in &names {
        finding = finding.about_nic(it);
    }
    for it in remedy.cause.variables() {
        finding = finding.about_variable(&it.name);
    }
    Ok(vec![finding])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::performance::testing::p4d;
    use crate::testing::{findings, quiet};

    #[test]
    fn the_variable_that_leaves_nics_out_is_named() {
        let found = findings(&RULE, &p4d(4, "NCCL_NET_GDR_LEVEL", "LOC"));
        let message = &found[0].message;
        assert!(message.starts_with("no ring uses 2 of the 4 NICs ("), "{message}");
        assert!(message.ends_with("): NCCL_NET_GDR_LEVEL=LOC is set"), "{message}");
        assert!(found[0].why.as_ref().unwrap().contains(" % less. "), "{:?}", found[0].why);
    }

    #[test]
    fn quiet_where_all_are_used_or_the_log_is_not_explained() {
        quiet(&RULE, &p4d(8, "NCCL_DEBUG", "INFO"));
        quiet(&RULE, &p4d(8, "NCCL_NET_GDR_LEVEL", "LOC"));
        // Another rule says it.
        quiet(&RULE, &p4d(2, "NCCL_MAX_NCHANNELS", "2"));
    }
}

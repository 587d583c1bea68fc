//! NCCL uses fewer channels than it would on this machine.

use evidence::Source;

use crate::decisions::Outcome;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "fewer-channels",
    title: "fewer channels than NCCL would use on this machine",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Decisions],
    why: "A channel is a ring or tree with its own thread block on every GPU. Too few cannot fill NVLink and the NICs, and some NICs may carry \
          nothing.",
    fix: "Unset NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS and what else limits channels, unless it was set on purpose to leave more of the GPU to computation.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-max-nchannels",
        "https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/graph/connect.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let outcome = log.decisions()?;
    let count = |it: &nccl::Prediction| it.communicator.connected.channels.len();
    if !outcome.fits {
        return Ok(unexplained(log, outcome).into_iter().collect());
    }
    #[expect(clippy::cast_precision_loss, reason = "channels are few")]
    let Some(remedy) = outcome.remedy(|it| count(it) as f64) else { return Ok(Vec::new()) };
    // Another rule reports a search that found less.
    if searched(&remedy.better) != searched(&outcome.here) {
        return Ok(Vec::new());
    }
    let mut message = format!(
        "NCCL uses {} channels instead of {}: {}",
        outcome.channels,
        count(&remedy.better),
        remedy.cause.sentence()
    );
    let (idle, nics) = (outcome.idle_nics(&outcome.here).len(), outcome.machine().nics.len());
    if outcome.spans_nodes() && idle > outcome.idle_nics(&remedy.better).len() {
        message.push_str(&format!("; no ring uses {idle} of the {nics} NICs"));
    }
    let numbers = outcome.cost(&remedy.better);
    let severity = if outcome.is_costly(&remedy.better) { Severity::Warning } else { Severity::Info };
    let mut finding = Finding::new(Confidence::Certain, message)
        .severity(severity)
        .seen(&outcome.counts)
        .seen_all(remedy.cause.quotes())
        .fix(remedy.cause.fix())
        .with_numbers(&RULE, numbers)
        .priced(outcome.price(log, &remedy.better));
    for it in remedy.cause.variables() {
        finding = finding.about_variable(&it.name);
    }
    Ok(vec![finding])
}

/// The channels of the search and what each carries.
fn searched(prediction: &nccl::Prediction) -> String {
    prediction.communicator.agreed.ring.to_string()
}

/// The log has fewer channels than are predicted for its machine and variables. The program may have asked for that.
fn unexplained(log: &Log, outcome: &Outcome) -> Option<Finding> {
    let predicted = outcome.here.communicator.connected.channels.len();
    if outcome.channels as usize >= predicted {
        return None;
    }
    let mut configs = log.case.processes.iter().flat_map(|it| it.facts.comm_config.iter());
    let limited = configs.find(|it| it.value.contains("Max CTAs"));
    let message = match limited {
        Some(it) => format!(
            "NCCL uses {} channels instead of {predicted}: the program set {}",
            outcome.channels, it.value
        ),
        None => {
            format!("NCCL uses {} channels; {predicted} are predicted for this machine", outcome.channels)
        }
    };
    let confidence = if limited.is_some() { Confidence::Likely } else { Confidence::Possible };
    let finding = Finding::new(confidence, message).severity(Severity::Info).seen(&outcome.counts);
    Some(finding.seen_all(limited.map(|it| &it.quote)).fix(
        "Run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING and give the log to `plumb topo --check`: it shows in which line NCCL \
         decides otherwise.",
    ))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::performance::testing::p4d;
    use crate::testing::{check, findings, quiet, read};
    use crate::{Confidence, Severity};

    #[test]
    fn a_variable_that_limits_them_is_named() {
        let found = findings(&RULE, &p4d(2, "NCCL_MAX_NCHANNELS", "2"));
        assert_eq!(
            found[0].message,
            "NCCL uses 2 channels instead of 8: NCCL_MAX_NCHANNELS=2 is set; no ring uses 2 of the 4 NICs"
        );
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Certain, Some(Severity::Warning)));
        assert!(found[0].why.as_ref().unwrap().contains(" % less. "), "{:?}", found[0].why);
        // Four of the search's eight kernels' channels use all links.
        let found = findings(&RULE, &p4d(4, "NCCL_MAX_NCHANNELS", "4"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn what_nothing_explains_is_only_mentioned() {
        let found = findings(&RULE, &p4d(4, "NCCL_DEBUG", "INFO"));
        assert_eq!(found[0].message, "NCCL uses 4 channels; 8 are predicted for this machine");
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Possible, Some(Severity::Info)));
    }

    #[test]
    fn quiet_as_predicted_and_not_checked_without_a_machine_or_for_other_releases() {
        quiet(&RULE, &p4d(8, "NCCL_DEBUG", "INFO"));
        quiet(&RULE, &p4d(8, "NCCL_MAX_NCHANNELS", "16"));
        let unknown = p4d(2, "NCCL_MAX_NCHANNELS", "2").replace("p4d.24xlarge", "x9.huge");
        assert!(check(&RULE, &read(&unknown)).is_err());
        let old = p4d(2, "NCCL_MAX_NCHANNELS", "2").replace("2.28.9", "2.14.3");
        assert!(check(&RULE, &read(&old)).is_err());
    }
}

//! Variables from old guides that EFA does not need.

use fabric::variable;
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "pointless-with-efa",
    title: "a variable that EFA does not need",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "It comes from a guide for older releases. The plugin does the same itself, or the variable is for another network. A value set \
          by hand stays when the plugin would choose a better one.",
    fix: "Remove it.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
        "https://github.com/awslabs/awsome-distributed-ai/blob/main/1.architectures/efa-cheatsheet.md",
    ],
    checks: &[Check::Submission(check)],
};

/// Names with the id of the reason in advice.csv, and the values it applies to; an empty list means any value.
const NAMES: &[(&str, &str, &[&str])] = &[
    ("FI_EFA_ENABLE_SHM_TRANSFER", "not-needed-with-plugin", &[]),
    ("FI_EFA_FORK_SAFE", "not-needed", &["1", "true"]),
    ("FI_EFA_SET_CUDA_SYNC_MEMOPS", "no-effect", &[]),
    ("FI_EFA_USE_DEVICE_RDMA", "not-needed", &["1", "true", "yes", "on"]),
    ("FI_PROVIDER", "not-needed", &["efa"]),
    ("IBV_FORK_SAFE", "use-plugin-setting", &[]),
    ("NCCL_IB_DISABLE", "forcing-efa", &["1"]),
    ("NCCL_NSOCKS_PERTHREAD", "sockets-only", &[]),
    ("NCCL_SOCKET_NTHREADS", "sockets-only", &[]),
    ("NCCL_TUNER_PLUGIN", "not-needed", &[]),
    ("RDMAV_FORK_SAFE", "use-plugin-setting", &[]),
    ("RDMAV_HUGEPAGES_SAFE", "provider-refuses", &[]),
];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables().filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, id, values) = NAMES.iter().find(|it| it.0 == variable.name())?;
    let value = variable.value()?.trim();
    if !(values.is_empty() || values.contains(&value)) || !variable.is_about_efa() {
        return None;
    }
    // If it aborts the process, another rule reports it.
    if *name == "FI_EFA_USE_DEVICE_RDMA"
        && variable.everywhere(|it| it.instance.is_some_and(|it| it.rdma_read == Some(false)))
    {
        return None;
    }
    let advice = variable::find(name)?.find_advice(id)?;
    let versions = variable.releases();
    let applies = advice.applies(|it| versions.component(it));
    if applies == Some(false) {
        return None;
    }
    let mut reason = advice.when_not_to_set.trim_end_matches('.').to_owned();
    if applies.is_none() {
        let ranges: Vec<String> = advice.versions.iter().map(ToString::to_string).collect();
        reason.push_str(&format!(" (applies to {}; the release in use is not known)", ranges.join(" and ")));
    }
    let message = format!("{name}={value}: {}", lower(&reason));
    let finding = Finding::at(variable.file, &variable.setting.span, message)
        .reason(reason)
        .fix(format!("Remove {name}."));
    Some(if applies.is_none() { finding.confidence(Confidence::Likely) } else { finding })
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |it| it.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use fabric::Version;
    use fabric::variable;

    use super::{NAMES, RULE};
    use crate::lint::Given;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, findings_given, quiet};

    #[test]
    fn every_name_has_its_reason() {
        for (name, id, _) in NAMES {
            assert!(variable::find(name).unwrap().find_advice(id).is_some(), "{name}");
        }
    }

    #[test]
    fn the_release_of_the_plugin_decides() {
        let text = job("p5.48xlarge", 2, &[("FI_PROVIDER", "efa")]);
        let given = |minor| Given { plugin: Some(Version::new(1, minor, 0)), ..Given::default() };
        assert!(findings_given(&RULE, &text, &given(5)).is_empty());
        let found = findings_given(&RULE, &text, &given(16));
        assert!(found[0].message.starts_with("FI_PROVIDER=efa: not needed: the plugin selects efa itself"));
        assert!(!found[0].message.contains("not known"));
        assert!(
            findings(&RULE, &text)[0]
                .message
                .contains("aws-ofi-nccl 1.6.0 and newer; the release in use is not known")
        );
    }

    #[test]
    fn jobs_without_efa_and_other_values_are_left_alone() {
        quiet(&RULE, &pod(&[("NCCL_SOCKET_NTHREADS", "4"), ("NCCL_IB_DISABLE", "1")]));
        quiet(&RULE, &job("p5.48xlarge", 2, &[("NCCL_IB_DISABLE", "0"), ("FI_EFA_USE_HUGE_PAGE", "0")]));
    }
}

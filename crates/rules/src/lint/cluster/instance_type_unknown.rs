//! An instance type that does not exist.

use evidence::submission::InstanceName;
use fabric::{catalogue, instance};
use job::submitted::Submitted;

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "instance-type-unknown",
    title: "a node selector names an instance type that does not exist",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "No node has this label, so the pod stays Pending.",
    fix: "Use an instance type of this family that exists.",
    references: &["https://karpenter.sh/docs/reference/instance-types/"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        for InstanceName { name, span } in pod.pod.instances() {
            let bare = name.strip_prefix("ml.").unwrap_or(name);
            let Some((family, size)) = bare.split_once('.') else { continue };
            let sizes: Vec<&str> = instance::all()
                .iter()
                .filter(|it| it.name.split('.').next() == Some(family))
                .map(|it| it.name.as_str())
                .collect();
            let written = size.ends_with("xlarge") && !name.contains(['$', '{', '<']);
            if sizes.is_empty() || !written || catalogue::find(name).is_some() {
                continue;
            }
            let message = format!("{name} does not exist; {family} has {}", sizes.join(", "));
            findings.push(Finding::at(job.file, span, message).confidence(Confidence::Likely));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_for_a_size_that_is_not_made() {
        let found = findings(&RULE, &pod("p4d.48xlarge", "nvidia.com/gpu: 8"));
        assert_eq!(found[0].message, "p4d.48xlarge does not exist; p4d has p4d.24xlarge");
    }

    #[test]
    fn quiet_for_what_exists_and_for_other_families() {
        for name in [
            "p4d.24xlarge",
            "ml.p5.48xlarge",
            "m5.large",
            "trn1.32xlarge",
            "g5g.metal",
            "${TYPE}",
            "g5.metal",
        ] {
            quiet(&RULE, &pod(name, "nvidia.com/gpu: 8"));
        }
    }
}

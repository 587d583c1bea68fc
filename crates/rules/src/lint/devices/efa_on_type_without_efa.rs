//! A pod requests EFA on a machine that has none.

use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "efa-on-type-without-efa",
    title: "EFA is requested on an instance type without EFA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Nodes of this type do not offer `vpc.amazonaws.com/efa`, so the pod stays Pending.",
    fix: "Remove `vpc.amazonaws.com/efa`, or choose an instance type that has EFA.",
    references: &["https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        let Some(efa) = pod.efa else { continue };
        if !pod.machines.all(|it| !it.efa()) {
            continue;
        }
        let message = format!("the pod requests EFA, but {} has none", pod.machines.names());
        let family = pod.machines.known.first().and_then(|it| it.name.split('.').next()).unwrap_or_default();
        let larger: Vec<&str> = fabric::catalogue::all()
            .iter()
            .filter(|it| it.efa() && it.name.split('.').next() == Some(family))
            .map(|it| it.name)
            .collect();
        let mut finding = Finding::at(job.file, &efa.span(), message).label("no node offers it");
        if let Some(smallest) = larger.first() {
            finding = finding.fix(format!(
                "Remove `vpc.amazonaws.com/efa`, or choose {smallest}, the smallest {family} with EFA."
            ));
        }
        findings.push(match &pod.machines.span {
            Some(types) => finding.also_at(types, pod.machines.names()),
            None => finding,
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::job;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_on_small_types() {
        let found = findings(&RULE, &job(2, "g5.4xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        assert_eq!(found[0].message, "the pod requests EFA, but g5.4xlarge has none");
        assert!(found[0].fix.as_ref().is_some_and(|it| it.contains("g5.8xlarge")), "{:?}", found[0].fix);
    }

    #[test]
    fn quiet_with_efa_without_and_unknown() {
        quiet(&RULE, &job(2, "g5.8xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &job(2, "g5.4xlarge", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(2, "hpc7a.96xlarge", "vpc.amazonaws.com/efa: 2"));
        quiet(&RULE, &job(2, "", "vpc.amazonaws.com/efa: 2"));
    }
}

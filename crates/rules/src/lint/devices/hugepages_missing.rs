//! EFA without huge pages.

use evidence::submission::ResourceKind;
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "hugepages-missing",
    title: "EFA is requested without huge pages",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "libfabric places the buffers of EFA in huge pages if it can. Nodes with the EFA driver reserve 5128 pages of 2 MiB for this. A \
          pod that does not request huge pages gets none: it works, with ordinary pages.",
    fix: "Add `hugepages-2Mi: 5120Mi` to requests and limits, as the AWS manifests do. Do not add it if data loaders fork and run out of memory.",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
        "https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        let Some(efa) = pod.efa.filter(|_| pod.nvidia_gpus().is_some() && job.is_networked(pod)) else {
            continue;
        };
        let lists = pod.containers.iter().map(|it| it.container);
        let mut resources = lists.flat_map(|it| it.limits.iter().chain(&it.requests));
        let has = resources.any(|it| it.kind == ResourceKind::HugePages);
        let turned_off = submitted.setting_of_job(job, "FI_EFA_USE_HUGE_PAGE") == Some("0");
        if !has && !turned_off {
            let message = "the container requests EFA but no `hugepages-2Mi`";
            findings.push(Finding::at(job.file, &efa.span(), message));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::job;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_beside_efa() {
        let found = findings(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 32"));
        assert_eq!(found[0].message, "the container requests EFA but no `hugepages-2Mi`");
    }

    #[test]
    fn quiet_with_them_and_without_efa() {
        let healthy = "nvidia.com/gpu: 8\nhugepages-2Mi: 5120Mi\nvpc.amazonaws.com/efa: 32\nmemory: 32000Mi";
        quiet(&RULE, &job(2, "p5.48xlarge", healthy));
        quiet(&RULE, &job(2, "p5.48xlarge", "nvidia.com/gpu: 8"));
        let off = job(2, "", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1")
            .replace("  image:", "  env: [{name: FI_EFA_USE_HUGE_PAGE, value: \"0\"}]\n            image:");
        quiet(&RULE, &off);
    }
}

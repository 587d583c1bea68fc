//! No node pool in the files starts machines with the EFA interfaces that a job requests.

use job::submitted::Submitted;

use super::node_pool::{node_pools, of_job};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "nodepool-without-efa",
    title: "no node pool starts machines with the EFA interfaces that a job requests",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Karpenter starts a node for a pod only if an instance type that the pool allows has everything the pod requests. Here none \
          does, so the pod stays Pending.",
    fix: "Allow an instance type with enough EFA interfaces in the requirements of the node pool.",
    references: &[
        "https://karpenter.sh/docs/concepts/nodepools/",
        "https://karpenter.sh/docs/reference/instance-types/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let pools = node_pools(submitted);
    let mut findings = Vec::new();
    if pools.is_empty() {
        return Ok(findings);
    }
    for (job, pod) in submitted.pods() {
        let Some(efa) = pod.efa.and_then(|it| it.count) else { continue };
        let usable = of_job(pod, &pools);
        let named = usable.len() < pools.len() || pools.len() == 1;
        let short = |it: &&super::node_pool::NodePool<'_>| {
            it.types.as_ref().is_some_and(|types| types.iter().all(|it| u64::from(it.efa_nics()) < efa))
        };
        // A pool without requirements may start anything.
        if usable.is_empty() || !usable.iter().all(short) {
            continue;
        }
        let Some(pool) = usable.first() else { continue };
        let Some(span) = &pool.span else { continue };
        let most = pool.types.iter().flatten().max_by_key(|it| it.efa_nics());
        let Some(most) = most else { continue };
        let has =
            if most.efa_nics() == 0 { "none".to_owned() } else { format!("at most {}", most.efa_nics()) };
        let message = format!(
            "node pool {} starts machines with {has} EFA interfaces, but a pod requests {efa}",
            pool.name
        )
        .replace("with none EFA interfaces", "without EFA");
        let confidence = if named { Confidence::Likely } else { Confidence::Possible };
        let severity = if named { Severity::Error } else { Severity::Warning };
        let mut finding = Finding::at(pool.file, span, message).confidence(confidence).severity(severity);
        if let Some(asked) = pod.efa.map(|it| it.span()).filter(|_| job.file == pool.file) {
            finding = finding.also_at(&asked, "requested here");
        }
        findings.push(finding);
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::job;
    use crate::lint::testing::{findings, quiet};

    fn with_pool(types: &str, limits: &str) -> String {
        format!(
            "{}---\nkind: NodePool\nmetadata:\n  name: gpu\nspec:\n  template:\n    spec:\n      requirements:\n      - key: {types}\n",
            job(2, "", limits)
        )
    }
    const EFA: &str = "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1";

    #[test]
    fn fires_where_no_type_has_it() {
        let found = findings(
            &RULE,
            &with_pool(
                "node.kubernetes.io/instance-type\n        operator: In\n        values: [g5.xlarge, g5.2xlarge]",
                EFA,
            ),
        );
        assert_eq!(found[0].message, "node pool gpu starts machines without EFA, but a pod requests 1");
        assert_eq!(found[0].evidence.len(), 2);
        let many = "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 32";
        let family = "karpenter.k8s.aws/instance-family\n        operator: In\n        values: [p4d]";
        assert!(findings(&RULE, &with_pool(family, many))[0].message.contains("at most 4"));
    }

    #[test]
    fn quiet_where_a_type_has_it_or_nothing_is_said() {
        quiet(
            &RULE,
            &with_pool(
                "node.kubernetes.io/instance-type\n        operator: In\n        values: [g5.xlarge, g5.8xlarge]",
                EFA,
            ),
        );
        quiet(
            &RULE,
            &with_pool("karpenter.sh/capacity-type\n        operator: In\n        values: [on-demand]", EFA),
        );
        quiet(
            &RULE,
            &with_pool(
                "node.kubernetes.io/instance-type\n        operator: In\n        values: [g5.xlarge]",
                "nvidia.com/gpu: 1",
            ),
        );
        quiet(
            &RULE,
            &with_pool(
                "node.kubernetes.io/instance-type\n        operator: In\n        values: [trn1.32xlarge]",
                EFA,
            ),
        );
    }
}

//! A node pool of an EFA job that starts machines in several zones.

use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use super::node_pool::{NodePool, node_pools, of_job, subnets};
use super::spread_over_zones::is_zone;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "nodepool-many-zones",
    title: "the node pool of an EFA job starts machines in several zones",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "Karpenter uses whichever zone has capacity, so the nodes of one job may be in two zones. EFA does not cross zones: the job \
          then runs over TCP or does not start.",
    fix: "Set one zone in the requirements of the node pool, or keep the pods together with podAffinity on `topology.kubernetes.io/zone`.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
        "https://karpenter.sh/docs/concepts/nodepools/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let pools = node_pools(submitted);
    let mut findings: Vec<Finding> = Vec::new();
    if pools.is_empty() {
        return Ok(findings);
    }
    let of_efa = submitted.pods().filter(|(job, pod)| pod.efa.is_some() && job.nodes.is_multi());
    for (job, pod) in of_efa.filter(|(job, pod)| !is_kept(job, pod)) {
        let usable = of_job(pod, &pools);
        // With several pools it is not known which one serves the job.
        let [pool] = usable.as_slice() else { continue };
        if pool.zones.is_none() {
            let found = many_subnets(submitted, pool, job).filter(|it| !findings.contains(it));
            findings.extend(found);
        }
        let Some((zones, span)) = pool.zones.as_ref().filter(|it| it.0.len() > 1) else { continue };
        let message = format!(
            "node pool {} starts machines in {} zones, and {} pods of one EFA job may be spread over them",
            pool.name,
            zones.len(),
            job.nodes.at_least()
        );
        let finding =
            Finding::at(pool.file, span, message).label(zones.join(", ")).confidence(Confidence::Likely);
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// A pool without a zone uses any subnet of its class. The files do not say which zones these are in.
fn many_subnets(submitted: &Submitted<'_>, pool: &NodePool<'_>, job: &SubmittedJob<'_>) -> Option<Finding> {
    let (file, subnets, span) =
        pool.class.and_then(|it| subnets(submitted, it)).filter(|it| it.1.len() > 1)?;
    let message = format!(
        "node pool {} sets no zone and its node class lists {} subnets: {} pods of one EFA job may be spread over zones",
        pool.name,
        subnets.len(),
        job.nodes.at_least()
    );
    let finding = Finding::at(file, &span, message).label(subnets.join(", "));
    Some(finding.severity(Severity::Info).confidence(Confidence::Possible))
}

/// Whether the pods themselves require one zone.
fn is_kept(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> bool {
    let tree = &job.submission.tree;
    pod.pod.partial
        || pod.pod.selectors.iter().any(|it| is_zone(&it.key) && it.values.len() == 1)
        || tree.at(pod.pod.spec, &["affinity", "podAffinity"]).is_some()
        || job.labels(pod).iter().any(|it| it.contains("topology"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::devices::testing::{job, job_with};
    use crate::lint::testing::{findings, quiet};

    const POOL: &str = "---\nkind: NodePool\nmetadata:\n  name: gpu\nspec:\n  template:\n    spec:\n      requirements:\n      - key: \
                        topology.kubernetes.io/zone\n        operator: In\n        values: [us-east-1a, us-east-1b]\n";
    const EFA: &str = "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4";

    #[test]
    fn fires_with_the_zones() {
        let found = findings(&RULE, &format!("{}{POOL}", job(2, "p4d.24xlarge", EFA)));
        assert_eq!(
            found[0].message,
            "node pool gpu starts machines in 2 zones, and 2 pods of one EFA job may be spread over them"
        );
        assert_eq!(found[0].evidence[0].label(), "us-east-1a, us-east-1b");
    }

    #[test]
    fn subnets_of_the_node_class_count_where_no_zone_is_named() {
        let pool = "---\nkind: NodePool\nmetadata: {name: gpu}\nspec: {template: {spec: {nodeClassRef: {name: efa}, requirements: []}}}\n";
        let class = |ids: &str| {
            format!(
                "---\nkind: EC2NodeClass\nmetadata: {{name: efa}}\nspec:\n  subnetSelectorTerms: [{ids}]\n"
            )
        };
        let text = |ids: &str| format!("{}{pool}{}", job(2, "p4d.24xlarge", EFA), class(ids));
        let found = findings(&RULE, &text("{id: subnet-1}, {id: subnet-2}"));
        assert_eq!((found.len(), found[0].severity), (1, Some(crate::Severity::Info)));
        assert_eq!(found[0].evidence[0].label(), "subnet-1, subnet-2");
        quiet(&RULE, &text("{id: subnet-1}"));
        quiet(&RULE, &text("{tags: {role: gpu}}"));
    }

    #[test]
    fn quiet_with_one_zone_without_efa_and_alone() {
        quiet(&RULE, &format!("{}{}", job(2, "p4d.24xlarge", EFA), POOL.replace(", us-east-1b", "")));
        quiet(&RULE, &format!("{}{POOL}", job(2, "p4d.24xlarge", "nvidia.com/gpu: 8")));
        quiet(&RULE, &format!("{}{POOL}", job(1, "p4d.24xlarge", EFA)));
        quiet(&RULE, POOL.trim_start_matches("---\n"));
        let kept = "affinity:\n  podAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n    - topologyKey: topology.kubernetes.io/zone";
        quiet(&RULE, &format!("{}{POOL}", job_with(2, "p4d.24xlarge", EFA, kept)));
    }
}

//! Pods of one EFA job in different availability zones.

use evidence::yaml::{NodeId, Span};
use fabric::catalogue::Model;
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "spread-over-zones",
    title: "pods of an EFA job are spread over availability zones",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "EFA does not cross availability zones: pods in different zones cannot reach each other over it, and TCP between zones is slow and billed.",
    fix: "Remove the spreading and keep the job in one zone: podAffinity with `topologyKey: topology.kubernetes.io/zone`, or a node \
          selector for one zone.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/",
    ],
    checks: &[Check::Submission(check)],
};

/// The label of a zone.
pub(super) fn is_zone(key: &str) -> bool {
    matches!(
        key,
        "topology.kubernetes.io/zone"
            | "failure-domain.beta.kubernetes.io/zone"
            | "topology.k8s.aws/zone-id"
            | "topology.ebs.csi.aws.com/zone"
    )
}

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        let efa = pod.efa.is_some() || (pod.nvidia_gpus().is_some() && pod.machines.all(Model::efa));
        if efa && job.nodes.is_multi() {
            findings.extend(constraints(job, pod));
            findings.extend(apart(job, pod));
            findings.extend(several(job, pod));
        }
    }
    Ok(findings)
}

/// `topologySpreadConstraints`
fn constraints(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Vec<Finding> {
    let tree = &job.submission.tree;
    let list = pod.whole().and_then(|it| tree.get(it.spec, "topologySpreadConstraints"));
    let text = |node: NodeId, name: &str| tree.get(node, name).and_then(|it| tree.text(it));
    let mut findings = Vec::new();
    for item in list.map(|it| tree.items(it)).unwrap_or_default() {
        let skew = tree.get(*item, "maxSkew").and_then(|it| tree.integer(it)).unwrap_or(1);
        if !text(*item, "topologyKey").is_some_and(is_zone) || skew >= job.nodes.at_least() {
            continue;
        }
        // Kubernetes treats this as a preference.
        let wish = text(*item, "whenUnsatisfiable") == Some("ScheduleAnyway");
        findings.push(finding(
            job,
            &key_span(job, *item, "topologyKey"),
            wish,
            "topologySpreadConstraints spread",
        ));
    }
    findings
}

/// `podAntiAffinity`
fn apart(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Vec<Finding> {
    let tree = &job.submission.tree;
    let Some(spec) = pod.whole().map(|it| it.spec) else { return Vec::new() };
    let terms = |name: &str| {
        let list = tree.at(spec, &["affinity", "podAntiAffinity", name]);
        list.map(|it| tree.items(it)).unwrap_or_default()
    };
    let required = terms("requiredDuringSchedulingIgnoredDuringExecution").iter().map(|it| (*it, false));
    let preferred = terms("preferredDuringSchedulingIgnoredDuringExecution")
        .iter()
        .filter_map(|it| Some((tree.get(*it, "podAffinityTerm")?, true)));
    required
        .chain(preferred)
        .filter(|it| tree.get(it.0, "topologyKey").and_then(|it| tree.text(it)).is_some_and(is_zone))
        .map(|(term, wish)| finding(job, &key_span(job, term, "topologyKey"), wish, "podAntiAffinity puts"))
        .collect()
}

/// Several zones in a selector, and nothing that keeps the pods together.
fn several(job: &SubmittedJob<'_>, pod: &PodTemplate<'_>) -> Option<Finding> {
    let selector = pod.whole()?.selectors.iter().find(|it| is_zone(&it.key) && it.values.len() > 1)?;
    let tree = &job.submission.tree;
    if tree.at(pod.pod.spec, &["affinity", "podAffinity"]).is_some()
        || job.labels(pod).iter().any(|it| it.contains("topology"))
    {
        return None;
    }
    let message = format!(
        "{} pods of one job may run in {} zones, but EFA does not cross zones",
        job.nodes.at_least(),
        selector.values.len()
    );
    Some(
        Finding::at(job.file, &selector.span, message)
            .severity(Severity::Info)
            .confidence(Confidence::Possible)
            .label(selector.values.join(", "))
            .fix("Set one zone, or add podAffinity with `topologyKey: topology.kubernetes.io/zone`."),
    )
}

fn finding(job: &SubmittedJob<'_>, span: &Span, wish: bool, how: &str) -> Finding {
    let message = format!(
        "{how} {} pods of one EFA job over zones, but EFA does not cross zones",
        job.nodes.at_least()
    );
    let severity = if wish { Severity::Warning } else { Severity::Error };
    Finding::at(job.file, span, message).severity(severity).confidence(Confidence::Likely)
}

fn key_span(job: &SubmittedJob<'_>, node: NodeId, name: &str) -> Span {
    let tree = &job.submission.tree;
    let value = tree.get(node, name).unwrap_or(node);
    tree.node(value).span.clone()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::devices::testing::job_with;
    use crate::lint::testing::{findings, quiet};

    const EFA: &str = "nvidia.com/gpu: 8\nvpc.amazonaws.com/efa: 4";
    const SPREAD: &str = "topologySpreadConstraints:\n- maxSkew: 1\n  topologyKey: topology.kubernetes.io/zone\n  whenUnsatisfiable: DoNotSchedule";
    const APART: &str = "affinity:\n  podAntiAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n    - topologyKey: topology.kubernetes.io/zone";

    #[test]
    fn fires_for_spreading_and_for_keeping_apart() {
        let found = findings(&RULE, &job_with(4, "p4d.24xlarge", EFA, SPREAD));
        assert_eq!(
            found[0].message,
            "topologySpreadConstraints spread 4 pods of one EFA job over zones, but EFA does not cross zones"
        );
        assert_eq!(found[0].severity, Some(Severity::Error));
        let wish = SPREAD.replace("DoNotSchedule", "ScheduleAnyway");
        assert_eq!(findings(&RULE, &job_with(4, "", EFA, &wish))[0].severity, Some(Severity::Warning));
        assert_eq!(findings(&RULE, &job_with(4, "p5.48xlarge", "nvidia.com/gpu: 8", APART)).len(), 1);
    }

    #[test]
    fn several_zones_are_told() {
        let zones = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: \
                     topology.kubernetes.io/zone, operator: In, values: [a, b]}]}]}}}";
        assert_eq!(
            findings(&RULE, &job_with(4, "p4d.24xlarge", EFA, zones))[0].severity,
            Some(Severity::Info)
        );
        quiet(&RULE, &job_with(4, "p4d.24xlarge", EFA, &zones.replace("[a, b]", "[a]")));
    }

    #[test]
    fn quiet_by_host_without_efa_and_for_one_pod() {
        quiet(
            &RULE,
            &job_with(
                4,
                "p4d.24xlarge",
                EFA,
                &SPREAD.replace("topology.kubernetes.io/zone", "kubernetes.io/hostname"),
            ),
        );
        quiet(&RULE, &job_with(4, "g5.xlarge", "nvidia.com/gpu: 1", SPREAD));
        quiet(&RULE, &job_with(1, "p4d.24xlarge", EFA, SPREAD));
        quiet(&RULE, &job_with(4, "p4d.24xlarge", EFA, &APART.replace("podAntiAffinity", "podAffinity")));
        quiet(
            &RULE,
            &job_with(4, "p4d.24xlarge", "nvidia.com/gpu: 8", SPREAD).replace("PyTorchJob", "Deployment"),
        );
    }
}

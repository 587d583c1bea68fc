//! `hostNetwork` with the node's DNS, although the rendezvous uses a cluster DNS name.

use evidence::yaml::Span;
use job::submitted::{Submitted, SubmittedJob};

use super::{beside, flag, place, unique};
use crate::{Check, Checked, Confidence, Edit, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "host-network-dns",
    title: "hostNetwork without cluster DNS",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A pod with hostNetwork uses the DNS of its node unless `dnsPolicy` is ClusterFirstWithHostNet. That DNS does not know the \
          names of pods and Services, so the rendezvous fails with `Name or service not known` or a timeout.",
    fix: "Add `dnsPolicy: ClusterFirstWithHostNet` next to `hostNetwork: true`, or remove `hostNetwork`.",
    references: &[
        "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings: Vec<Finding> = Vec::new();
    for it in submitted.gpu_containers() {
        let Some(on) = flag(it.pod, "hostNetwork") else { continue };
        let file = it.job.submission;
        let tree = &file.tree;
        let policy = tree.get(it.pod.spec, "dnsPolicy").and_then(|it| tree.text(it));
        if !matches!(policy, None | Some("ClusterFirst")) || tree.get(it.pod.spec, "dnsConfig").is_some() {
            continue;
        }
        // The operator sets MASTER_ADDR of a PyTorchJob to a cluster DNS name; the MPIJob operator sets the policy itself.
        let operator = it.job.kind == "PyTorchJob" && it.job.nodes.pods > 1;
        let name = cluster_name(submitted, it.job);
        let (message, other) = match (&name, operator) {
            (Some((text, span)), _) => (
                format!(
                    "hostNetwork without ClusterFirstWithHostNet: `{text}` is a cluster DNS name, which the node cannot resolve"
                ),
                Some(span),
            ),
            (None, true) => {
                let message = "hostNetwork without ClusterFirstWithHostNet: MASTER_ADDR of a PyTorchJob is a cluster DNS name, which the node cannot resolve";
                (message.to_owned(), None)
            }
            (None, false) => continue,
        };
        let mut finding = Finding::at(it.job.file, &on.span, message).confidence(Confidence::Likely);
        if let Some(span) = other {
            finding = finding.also_at(span, "the node resolves this");
        }
        finding.edits.push(
            match place(tree, it.pod.spec, "dnsPolicy").zip(tree.get(it.pod.spec, "dnsPolicy")) {
                Some((_, value)) => {
                    let range = tree.node(value).span.range.clone();
                    let quoted = file.text.get(range.clone()).is_some_and(|it| it.starts_with('"'));
                    let text = if quoted { "\"ClusterFirstWithHostNet\"" } else { "ClusterFirstWithHostNet" };
                    Edit { range, text: text.to_owned() }
                }
                None => beside(&file.text, &on.span, "dnsPolicy", "ClusterFirstWithHostNet"),
            },
        );
        findings.push(finding);
    }
    Ok(unique(findings, |it| (it.file(), it.start())))
}

/// The rendezvous address of a job, if it is a cluster DNS name.
fn cluster_name(submitted: &Submitted<'_>, job: &SubmittedJob<'_>) -> Option<(String, Span)> {
    let settings =
        ["MASTER_ADDR", "PET_MASTER_ADDR"].into_iter().flat_map(|it| submitted.settings_of_job(job, it));
    let settings = settings.filter_map(|it| Some((it.value.as_deref()?, it.span.clone())));
    let launches = submitted.launches_of_job(job).filter_map(|it| {
        let option = it.launch.option(&["--master-addr", "--rdzv-endpoint"])?;
        Some((option.text, it.word_span(option.word)))
    });
    let found = settings.chain(launches).find(|it| is_cluster_name(it.0));
    found.map(|it| (it.0.to_owned(), it.1))
}

/// `pod.subdomain`, `service.namespace.svc.cluster.local`. A name without a dot may be that of a node; public names end differently.
fn is_cluster_name(value: &str) -> bool {
    let host = value.rsplit_once(':').map_or(value, |it| it.0).trim_end_matches('.');
    let labels: Vec<&str> = host.split('.').collect();
    let plain =
        host.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-' || it == b'.');
    let address = labels.iter().all(|it| it.bytes().all(|it| it.is_ascii_digit()));
    let cluster =
        labels.len() == 2 || labels.ends_with(&["svc"]) || labels.ends_with(&["svc", "cluster", "local"]);
    plain && !address && cluster && labels.iter().all(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{RULE, is_cluster_name};
    use crate::lint::testing::{findings, fixed, quiet};

    const JOB: &str = "kind: Job\nmetadata: {name: train}\nspec:\n  template:\n    spec:\n      # fast?\n      hostNetwork: true  # yes\n      subdomain: train\n\
                       \x20     containers:\n      - name: a\n        env:\n        - name: MASTER_ADDR\n          value: train-0.train\n        resources: {limits: {nvidia.com/gpu: 8}}\n";

    #[test]
    fn a_name_the_node_does_not_know() {
        let found = findings(&RULE, JOB);
        assert_eq!(
            found[0].message,
            "hostNetwork without ClusterFirstWithHostNet: `train-0.train` is a cluster DNS name, which the node cannot resolve"
        );
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (7, 12));
    }

    #[test]
    fn the_policy_is_added() {
        let line = "hostNetwork: true  # yes\n";
        assert_eq!(
            fixed(&RULE, JOB),
            JOB.replace(line, &format!("{line}      dnsPolicy: ClusterFirstWithHostNet\n"))
        );
        let other = JOB.replace(line, "hostNetwork: true\n      dnsPolicy: ClusterFirst # !\n");
        assert_eq!(fixed(&RULE, &other), other.replace("ClusterFirst #", "ClusterFirstWithHostNet #"));
    }

    #[test]
    fn a_pytorchjob_meets_by_name() {
        let replica = |role: &str| {
            format!(
                "    {role}:\n      replicas: 1\n      template:\n        spec:\n          hostNetwork: true\n          containers:\n          - name: pytorch\n            resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
            )
        };
        let job = format!(
            "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n{}{}",
            replica("Master"),
            replica("Worker")
        );
        assert_eq!(findings(&RULE, &job).len(), 2);
        quiet(&RULE, &format!("kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n{}", replica("Master")));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &JOB.replace("hostNetwork: true", "hostNetwork: false"));
        quiet(&RULE, &JOB.replace("subdomain: train", "dnsPolicy: ClusterFirstWithHostNet"));
        quiet(&RULE, &JOB.replace("train-0.train", "10.0.0.4"));
        quiet(&RULE, &JOB.replace("nvidia.com/gpu", "cpu"));
        quiet(&RULE, &JOB.replace("MASTER_ADDR", "OTHER_ADDR"));
    }

    #[test]
    fn names_of_the_cluster() {
        for name in ["a-0.a", "a.b.svc", "a-0.a.ns.svc.cluster.local:29500"] {
            assert!(is_cluster_name(name), "{name}");
        }
        for name in [
            "node7",
            "10.0.0.1",
            "10.0.0.1:29500",
            "a.example.com",
            "$X.y",
            "localhost",
            "localhost:0",
            "a..b",
            "",
        ] {
            assert!(!is_cluster_name(name), "{name}");
        }
    }
}

//! `hostNetwork` in a pod with EFA.

use job::submitted::Submitted;

use super::flag;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "host-network-not-needed",
    title: "hostNetwork in a pod with EFA",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "EFA bypasses the operating system through /dev/infiniband/uverbs*: neither the CNI nor the pod's network namespace is in the \
          path, so hostNetwork does not make collectives faster. It gives the pod the ports and services of the node and the credentials \
          of the node's role at the metadata address, bypasses network policies, and allows port conflicts.",
    fix: "Remove `hostNetwork: true` (and `dnsPolicy: ClusterFirstWithHostNet` with it).",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for it in submitted.gpu_containers() {
        if let (Some(on), Some(efa)) = (flag(it.pod, "hostNetwork"), it.template.efa) {
            let message = "hostNetwork gives the pod the network of the node, but EFA does not use it";
            findings.push(
                Finding::at(it.job.file, &on.span, message)
                    .also_at(&efa.span(), "bypasses the operating system"),
            );
        }
    }
    findings.dedup_by(|a, b| a.evidence.first() == b.evidence.first());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    const POD: &str = "kind: Pod\nspec:\n  hostNetwork: true\n  containers:\n  - name: a\n    resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}}\n";

    #[test]
    fn efa_does_not_need_it() {
        let found = findings(&RULE, POD);
        assert_eq!(
            found[0].message,
            "hostNetwork gives the pod the network of the node, but EFA does not use it"
        );
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (3, 6));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &POD.replace("hostNetwork: true", "hostNetwork: false"));
        quiet(&RULE, &POD.replace("nvidia.com/gpu: 8, ", ""));
        // RoCE by the interfaces of the node needs it.
        quiet(&RULE, &POD.replace("vpc.amazonaws.com/efa: 4", "memory: 4Gi"));
    }
}

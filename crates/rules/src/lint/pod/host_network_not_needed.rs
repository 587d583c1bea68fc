//! `hostNetwork` for EFA.

use super::{asking, entry, flag, pod_efa};
use crate::Severity;
use crate::lint::{Context, Flaw, LintRule};

/// See the module documentation.
pub(super) static RULE: LintRule = LintRule {
    id: "host-network-not-needed",
    title: "hostNetwork in a pod with EFA",
    severity: Severity::Warning,
    why: "EFA bypasses the operating system through /dev/infiniband/uverbs*: neither the CNI nor the pod's network namespace is in the \
          path, so hostNetwork makes no collective faster. It gives the pod the ports and services of the node and the credentials of its \
          role at the metadata address, takes it out of network policies, and lets ports clash.",
    fix: "Remove `hostNetwork: true` (and `dnsPolicy: ClusterFirstWithHostNet` with it).",
    references: &[
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
    ],
    check,
};

fn check(context: &Context<'_>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for it in asking(context) {
        if let (Some(on), Some(efa)) = (flag(it.pod, "hostNetwork"), pod_efa(it.pod)) {
            let message = "hostNetwork gives the pod the network of the node; EFA does not pass through it";
            flaws.push(
                Flaw::new(it.file, &on.span, message).also(&entry(efa), "bypasses the operating system"),
            );
        }
    }
    flaws.dedup_by(|a, b| a.file == b.file && a.places.first() == b.places.first());
    flaws
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{flaws, quiet};

    const POD: &str = "kind: Pod\nspec:\n  hostNetwork: true\n  containers:\n  - name: a\n    resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}}\n";

    #[test]
    fn efa_does_not_need_it() {
        let found = flaws(&RULE, POD);
        assert_eq!(
            found[0].message,
            "hostNetwork gives the pod the network of the node; EFA does not pass through it"
        );
        assert_eq!((found[0].places[0].span.line, found[0].places[1].span.line), (3, 6));
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &POD.replace("hostNetwork: true", "hostNetwork: false"));
        quiet(&RULE, &POD.replace("nvidia.com/gpu: 8, ", ""));
        // RoCE by the interfaces of the node needs it.
        quiet(&RULE, &POD.replace("vpc.amazonaws.com/efa: 4", "memory: 4Gi"));
    }
}

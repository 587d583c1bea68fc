//! The address of the first rank is a name that DNS does not resolve.

use std::collections::BTreeMap;

use evidence::submission::{Pod, Workload};
use evidence::yaml::{NodeId, Tree};
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "master-addr-without-service",
    title: "the address of the first rank does not resolve",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Other pods can resolve a pod's name only in the form POD.SERVICE, where SERVICE is a headless Service (`clusterIP: None`) and \
          also the `subdomain` of the pod (`serviceName` of a StatefulSet). Otherwise all ranks but the first wait for a name that never \
          resolves.",
    fix: "Add a Service with `clusterIP: None` that selects the pods, set `subdomain` of the pod template to its name, and use \
          POD.SERVICE as the address.",
    references: &[
        "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-hostname-and-subdomain-fields",
        "https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let services = services(submitted);
    let addresses = submitted.settings().filter(|it| matches!(it.name(), "MASTER_ADDR" | "PET_MASTER_ADDR"));
    let finding = |it: SubmittedVariable<'_>| {
        let (message, sure) = wrong(&services, it.job?.workload?, it.pod?.pod, &it)?;
        let confidence = if sure { Confidence::Certain } else { Confidence::Likely };
        Some(Finding::at(it.file, &it.setting.span, message).confidence(confidence))
    };
    Ok(addresses.filter_map(finding).collect())
}

/// Services of all files by name.
type Services<'a> = BTreeMap<&'a str, (&'a Tree, NodeId)>;

fn services<'a>(submitted: &Submitted<'a>) -> Services<'a> {
    let mut services = Services::new();
    for file in submitted.files {
        for object in file.objects.iter().filter(|it| &*it.kind == "Service") {
            if let Some(name) = object.name.as_deref() {
                services.entry(name).or_insert((&file.tree, object.root));
            }
        }
    }
    services
}

/// Why a name does not resolve, and whether the files alone show it.
fn wrong(
    services: &Services<'_>,
    workload: &Workload,
    pod: &Pod,
    variable: &SubmittedVariable<'_>,
) -> Option<(String, bool)> {
    let tree = &variable.submission.tree;
    // Operators create their own Services, and so may the controller of this pod.
    let plain = matches!(&*workload.kind, "Job" | "StatefulSet") && !is_volcano(tree, workload.root);
    let alone = pod.replicas.is_none_or(|it| it < 2);
    if !plain || alone {
        return None;
    }
    let value = variable.setting.value.as_deref()?;
    let name = workload.name.as_deref()?;
    let mut labels = value.split('.');
    let (host, domain) = (labels.next()?, labels.next());
    // Only names of the job's own pods, like `train-0`; other names may be outside the files.
    let index = host.strip_prefix(name)?.strip_prefix('-')?;
    if index.is_empty() || !index.bytes().all(|it| it.is_ascii_digit()) || services.contains_key(host) {
        return None;
    }
    let key = if &*workload.kind == "StatefulSet" { "serviceName" } else { "subdomain" };
    let holder = if &*workload.kind == "StatefulSet" { tree.get(workload.root, "spec")? } else { pod.spec };
    let own = tree.get(holder, key).and_then(|it| tree.text(it));
    let Some(domain) = domain else {
        let form = own.unwrap_or("SERVICE");
        return Some((
            format!("`{host}` is a pod, and the name of a pod does not resolve alone: use `{host}.{form}`"),
            false,
        ));
    };
    if own != Some(domain) {
        let known = services.contains_key(domain);
        let message = match own {
            Some(other) => format!("`{value}` refers to the Service `{domain}`, but {key} is `{other}`"),
            None => {
                format!("`{value}` does not resolve: the pods of {} `{name}` set no {key}", workload.kind)
            }
        };
        return Some((message, known));
    }
    let (services, root) = *services.get(domain)?;
    let address = services.at(root, &["spec", "clusterIP"]).and_then(|it| services.text(it));
    (address != Some("None") && services.at(root, &["spec", "type"]).is_none_or(|it| services.text(it) == Some("ClusterIP")))
        .then(|| (format!("`{value}` names a pod of the Service `{domain}`, which is not headless: its pods have no DNS names"), true))
}

fn is_volcano(tree: &Tree, root: NodeId) -> bool {
    tree.get(root, "apiVersion").and_then(|it| tree.text(it)).is_some_and(|it| it.contains("volcano"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(address: &str, spec: &str) -> String {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: train}}\nspec:\n  parallelism: 2\n  completionMode: Indexed\n  template:\n    spec:\n{spec}\
             \x20     containers:\n      - name: a\n        env:\n        - {{name: MASTER_ADDR, value: {address}}}\n        resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }
    const SERVICE: &str = "---\nkind: Service\nmetadata: {name: train-svc}\nspec:\n  clusterIP: None\n  selector: {job-name: train}\n";

    #[test]
    fn a_name_without_subdomain() {
        let found = findings(&RULE, &job("train-0.train-svc", ""));
        assert_eq!(
            found[0].message,
            "`train-0.train-svc` does not resolve: the pods of Job `train` set no subdomain"
        );
        let found = findings(&RULE, &job("train-0", "      subdomain: train-svc\n"));
        assert_eq!(
            found[0].message,
            "`train-0` is a pod, and the name of a pod does not resolve alone: use `train-0.train-svc`"
        );
        let found = findings(&RULE, &job("train-0.other.ns.svc", "      subdomain: train-svc\n"));
        assert!(found[0].message.ends_with("but subdomain is `train-svc`"));
        let open = SERVICE.replace("  clusterIP: None\n", "");
        let found = findings(&RULE, &(job("train-0.train-svc", "      subdomain: train-svc\n") + &open));
        assert!(found[0].message.contains("not headless"));
    }

    #[test]
    fn quiet_where_it_resolves() {
        quiet(&RULE, &(job("train-0.train-svc", "      subdomain: train-svc\n") + SERVICE));
        // The service may have been there before.
        quiet(&RULE, &job("train-0.train-svc", "      subdomain: train-svc\n"));
        let set = job("train-0.train", "")
            .replace("kind: Job", "kind: StatefulSet")
            .replace("parallelism: 2", "replicas: 2\n  serviceName: train");
        quiet(&RULE, &set);
    }

    #[test]
    fn quiet_where_nothing_is_known() {
        quiet(&RULE, &job("10.0.0.1", ""));
        quiet(&RULE, &job("master.training", ""));
        quiet(&RULE, &job("train-0.train", "").replace("parallelism: 2", "parallelism: 1"));
        quiet(&RULE, &job("train-0.train", "").replace("kind: Job", "kind: PyTorchJob"));
        quiet(&RULE, &(job("train-0", "") + &SERVICE.replace("train-svc", "train-0")));
    }
}

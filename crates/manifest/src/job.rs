//! Plain Kubernetes: an indexed Job, and a headless Service that gives its pods DNS names.

use crate::plan::Plan;
use crate::pod::{self, Shape};
use crate::program;
use crate::text::indent;

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let name = &plan.name;
    let command = torchrun(plan, &format!("{name}-0.{name}"))?;
    Ok(job(plan, &command, ""))
}

/// A Job whose pods wait for as many seconds, for programs that are started in them. It ends and is deleted by itself.
pub(crate) fn waiting(plan: &Plan, seconds: u32) -> String {
    let command = ["sleep".to_owned(), seconds.to_string()];
    let bounds = format!(
        "  activeDeadlineSeconds: {seconds}  # Ends the pods if nobody deletes the job.\n  \
         ttlSecondsAfterFinished: 60\n"
    );
    // Pods that wait do not need each other: one that is evicted must not end the others.
    let rank = "backoffLimit: 0  # A single rank cannot rejoin: the job fails with its first failed pod.";
    let pod = format!("backoffLimit: {}  # A pod that fails is replaced; the others stay.", 10 * plan.nodes);
    job(plan, &command, &bounds).replacen(rank, &pod, 1)
}

fn job(plan: &Plan, command: &[String], bounds: &str) -> String {
    let name = &plan.name;
    let several = plan.nodes > 1;
    let shape = Shape {
        container: "node",
        command,
        subdomain: several.then_some(name.as_str()),
        restart: Some("Never"),
        environment: true,
    };
    let service = if several {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n{}spec:\n  clusterIP: None  # Headless: DNS resolves the name of each pod.\n  \
             publishNotReadyAddresses: true  # Ranks resolve the first pod before it is ready.\n  selector:\n    app.kubernetes.io/name: {name}\n---\n",
            pod::metadata(plan, name)
        )
    } else {
        String::new()
    };
    // A plain Job has no gang scheduling. A comment below says so, and lint need not repeat it.
    let allow = if several && plan.queue.is_none() {
        "  # plumb: allow no-gang-scheduling (remove this once a queue is set below)"
    } else {
        ""
    };
    let spec = indexed(plan, shape);
    format!(
        "{}{}{service}apiVersion: batch/v1\nkind: Job{allow}\nmetadata:\n{}{}{}",
        plan.head(),
        pod::domain(plan),
        pod::metadata(plan, name),
        pod::queue(plan),
        spec.replacen("spec:\n", &format!("spec:\n{bounds}"), 1)
    )
}

/// `spec` of an indexed Job.
pub(crate) fn indexed(plan: &Plan, shape: Shape<'_>) -> String {
    let nodes = plan.nodes;
    format!(
        "spec:\n  completionMode: Indexed  # The pod index is the node rank.\n  completions: {nodes}\n  parallelism: {nodes}\n  \
         backoffLimit: 0  # A single rank cannot rejoin: the job fails with its first failed pod.\n  template:\n{}",
        indent(&pod::template(plan, shape), 4)
    )
}

/// torchrun on every pod of an indexed job; `address` is that of the first pod.
pub(crate) fn torchrun(plan: &Plan, first: &str) -> Result<Vec<String>, String> {
    let mut words = vec![
        "torchrun".to_owned(),
        format!("--nnodes={}", plan.nodes),
        format!("--nproc-per-node={}", plan.gpus),
    ];
    if plan.nodes > 1 {
        // Kubernetes inserts the index.
        words.push("--node-rank=$(JOB_COMPLETION_INDEX)".to_owned());
        words.push(format!("--master-addr={first}"));
        words.push("--master-port=29500".to_owned());
    } else {
        words.push("--standalone".to_owned());
    }
    words.extend(pod::literal(&program::torchrun(&plan.command)?));
    Ok(words)
}

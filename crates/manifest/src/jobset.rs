//! A `JobSet` of one indexed job; its controller creates the Service.

use super::job;
use crate::plan::Plan;
use crate::pod::{self, Shape};
use crate::text::indent;

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let name = &plan.name;
    let command = job::torchrun(plan, &format!("{name}-node-0-0.{name}"))?;
    let shape = Shape {
        container: "node",
        command: &command,
        subdomain: None,
        restart: Some("Never"),
        environment: true,
    };
    Ok(format!(
        "{}{}apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n{}{}spec:\n  network:\n    \
         enableDNSHostnames: true  # DNS names of the pods: {name}-node-0-INDEX.{name}.\n    \
         publishNotReadyAddresses: true  # Ranks resolve the first pod before it is ready.\n  failurePolicy:\n    \
         maxRestarts: 0  # Raise it for a program that resumes from checkpoints: all pods restart together.\n  \
         replicatedJobs:\n  - name: node\n    replicas: 1\n    template:\n{}",
        plan.head(),
        pod::domain(plan),
        pod::metadata(plan, name),
        pod::queue(plan),
        indent(&job::indexed(plan, shape), 6)
    ))
}

//! A `PyTorchJob` with workers only: the first one hosts the rendezvous, so that one template is enough.

use crate::plan::Plan;
use crate::pod::{self, Shape};
use crate::program;
use crate::text::indent;

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let Plan { name, nodes, gpus, .. } = plan;
    let mut command = vec!["torchrun".to_owned(), format!("--nproc-per-node={gpus}")];
    command.extend(pod::literal(&program::torchrun(&plan.command)?));
    let shape =
        Shape { container: "pytorch", command: &command, subdomain: None, restart: None, environment: true };
    let gang = if *nodes > 1 {
        format!(
            "    # Gang scheduling, if the operator runs with --gang-scheduler-name:\n    # schedulingPolicy:\n    #   minAvailable: {nodes}\n"
        )
    } else {
        String::new()
    };
    Ok(format!(
        "{head}{domain}apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n{metadata}{queue}spec:\n  nprocPerNode: \"{gpus}\"\n  \
         elasticPolicy:  # Sets the number of nodes and the address of the first worker for torchrun (PET_...).\n    rdzvBackend: c10d\n    \
         minReplicas: {nodes}\n    maxReplicas: {nodes}\n    maxRestarts: 0\n  runPolicy:\n    cleanPodPolicy: Running\n    \
         backoffLimit: 0  # A single rank cannot rejoin: the job fails with its first failed pod.\n{gang}  pytorchReplicaSpecs:\n    Worker:\n      \
         replicas: {nodes}\n      restartPolicy: Never\n      template:\n{pod}",
        head = plan.head(),
        domain = pod::domain(plan),
        metadata = pod::metadata(plan, name),
        queue = pod::queue(plan),
        pod = indent(&pod::template(plan, shape), 8),
    ))
}

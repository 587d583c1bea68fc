//! Kubeflow Trainer v2: a runtime that describes the machines, and a `TrainJob` with the command.

use crate::plan::Plan;
use crate::pod::{self, Shape};
use crate::program;
use crate::text::{indent, list};

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let name = &plan.name;
    let mut command = vec!["torchrun".to_owned()];
    command.extend(pod::literal(&program::torchrun(&plan.command)?));
    let shape =
        Shape { container: "node", command: &[], subdomain: None, restart: Some("Never"), environment: true };
    let gang = if plan.nodes > 1 {
        "  # Gang scheduling, if the coscheduling plugin of the scheduler is installed:\n  # podGroupPolicy:\n  #   \
         coscheduling:\n  #     scheduleTimeoutSeconds: 300\n"
    } else {
        ""
    };
    Ok(format!(
        "{head}{domain}# The machines. This needs cluster-wide permissions; without them use kind TrainingRuntime here and in runtimeRef.\n\
         apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata:\n  name: {name}\n  labels:\n    \
         trainer.kubeflow.org/framework: torch\nspec:\n  mlPolicy:\n    numNodes: {nodes}\n    torch: {{}}\n{gang}  template:\n    spec:\n      \
         replicatedJobs:\n      - name: node\n        template:\n          metadata:\n            labels:\n              \
         trainer.kubeflow.org/trainjob-ancestor-step: trainer  # Marks the step that the TrainJob configures.\n          spec:\n            \
         backoffLimit: 0  # A single rank cannot rejoin: the job fails with its first failed pod.\n            template:\n{pod}---\n\
         # The job.\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata:\n{metadata}{queue}spec:\n  runtimeRef:\n    \
         apiGroup: trainer.kubeflow.org\n    kind: ClusterTrainingRuntime\n    name: {name}\n  trainer:\n    numNodes: {nodes}\n    \
         numProcPerNode: {gpus}  # Trainer hands both to torchrun, with node rank and address (PET_...).\n    command:\n{command}",
        head = plan.head(),
        domain = pod::domain(plan),
        nodes = plan.nodes,
        gpus = plan.gpus,
        pod = indent(&pod::template(plan, shape), 14),
        metadata = pod::metadata(plan, name),
        queue = pod::queue(plan),
        command = indent(&list(&command), 4),
    ))
}

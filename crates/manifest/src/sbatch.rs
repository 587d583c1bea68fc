//! A Slurm script: one torchrun per node, or one task per rank for MPI programs.

use crate::plan::Plan;
use crate::text::shell;
use crate::{Variable, program};

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let Plan { name, nodes, gpus, .. } = plan;
    let tasks = if plan.nccl_tests { *gpus } else { 1 };
    let mut text =
        format!("#!/bin/bash\n{}#SBATCH --job-name={name}\n#SBATCH --nodes={nodes}\n", plan.head());
    text.push_str(if plan.nccl_tests {
        "# One task per rank.\n"
    } else {
        "# One task per node: torchrun starts the ranks.\n"
    });
    text.push_str(&format!("#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node={gpus}\n"));
    if plan.whole() {
        text.push_str("# Whole nodes with all their memory: other jobs would share the network.\n#SBATCH --exclusive\n#SBATCH --mem=0\n");
    }
    if let Some(partition) = &plan.queue {
        text.push_str(&format!("#SBATCH --partition={partition}\n"));
    }
    if plan.hardware.aws {
        text.push_str(&format!(
            "# If nodes have their type as a feature, as on AWS ParallelCluster, remove one #:\n##SBATCH --constraint={}\n",
            plan.hardware.name
        ));
    }
    text.push_str("#SBATCH --output=%x-%j.log\n\nset -euo pipefail\n\n");
    if plan.nodes > 1 && (plan.efa > 0 || plan.hardware.infiniband > 0) {
        text.push_str(
            "# RDMA locks memory, and the ranks inherit the limit of this shell.\n\
             ulimit -l unlimited 2>/dev/null || echo \"memlock is limited to $(ulimit -l) KiB: raise it for slurmd\" >&2\n\n",
        );
    }
    for Variable { name, value, why } in &plan.variables {
        text.push_str(&format!("# {why}\nexport {name}={value}\n"));
    }
    text.push_str(&format!(
        "# {} To check transports and NICs with plumb doctor:\n# export NCCL_DEBUG=INFO\n\n",
        plan.other_variables()
    ));
    let container = plan
        .image
        .as_deref()
        .map(container)
        .map_or_else(String::new, |it| format!(" --container-image={it}"));
    if plan.image.is_some() {
        text.push_str(
            "# --container-image needs pyxis. For files outside the image add --container-mounts=/fsx:/fsx to srun.\n",
        );
    }
    let program = |words: Vec<String>| words.iter().map(|it| shell(it)).collect::<Vec<_>>().join(" ");
    if plan.nccl_tests {
        text.push_str(&format!(
            "srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1{container} \\\n  {}\n",
            program(program::rank(&plan.command)?)
        ));
        return Ok(text);
    }
    let torchrun = program(program::torchrun(&plan.command)?);
    let srun = format!("srun --cpu-bind=none --kill-on-bad-exit=1{container} \\\n");
    if plan.nodes == 1 {
        text.push_str(&format!(
            "{srun}  torchrun --standalone --nnodes=1 --nproc-per-node={gpus} \\\n  {torchrun}\n"
        ));
        return Ok(text);
    }
    text.push_str(&format!(
        "# The rendezvous is on the first node.\nFIRST_NODE=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\n\
         {srun}  torchrun --nnodes={nodes} --nproc-per-node={gpus} \\\n    --rdzv-id=\"$SLURM_JOB_ID\" --rdzv-backend=c10d \
         --rdzv-endpoint=\"$FIRST_NODE:29500\" \\\n  {torchrun}\n"
    ));
    Ok(text)
}

/// In enroot's form: `#` after the registry. A file path is unchanged.
fn container(image: &str) -> String {
    let registry = image.split_once('/').filter(|(host, _)| {
        !host.is_empty() && !host.starts_with('.') && (host.contains(['.', ':']) || *host == "localhost")
    });
    let file = image.starts_with(['/', '.']) || image.contains('#');
    match registry.filter(|_| !file) {
        Some((host, rest)) => shell(&format!("{host}#{rest}")),
        None => shell(image),
    }
}

#[cfg(test)]
mod tests {
    use super::container;

    #[test]
    fn images_are_written_for_enroot() {
        for (image, want) in [
            ("nvcr.io/nvidia/pytorch:25.06-py3", "'nvcr.io#nvidia/pytorch:25.06-py3'"),
            ("nvcr.io#nvidia/pytorch", "'nvcr.io#nvidia/pytorch'"),
            ("pytorch/pytorch:2.8.0", "pytorch/pytorch:2.8.0"),
            ("/fsx/image.sqsh", "/fsx/image.sqsh"),
            ("localhost/a", "'localhost#a'"),
        ] {
            assert_eq!(container(image), want);
        }
    }
}

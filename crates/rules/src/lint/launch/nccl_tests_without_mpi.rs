//! nccl-tests without MPI in each of several pods, or on the first of several nodes.

use evidence::submission::{Kind, Launcher};
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Checked, Confidence, Finding, Severity};

const WHY: &str = "nccl-tests reaches other nodes only through MPI. Without MPI each process measures the GPUs it sees: the numbers are those of NVLink or PCIe, and nothing crosses the network.";
const FIX: &str = "Start it with mpirun or `srun --mpi=pmix`, from a build with MPI=1: `mpirun -np NODES*GPUS -N GPUS all_reduce_perf -g 1`.";

/// The check of [`crate::launch::nccl_tests_without_mpi::RULE`] before the job runs.
pub(crate) fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.launches().filter_map(|it| one(submitted, &it)).collect())
}

fn one(submitted: &Submitted<'_>, command: &SubmittedLaunch<'_>) -> Option<Finding> {
    if command.launch.launcher != Launcher::NcclTests {
        return None;
    }
    let nodes = command.job_nodes().filter(|it| it.value > 1)?;
    // A variable or a wrapper may hide a launcher.
    let elsewhere = ["mpirun", "mpiexec", "srun", "orterun"];
    let launched = if command.in_pod() {
        let mut beside = submitted.launches_of(command.file, command.launch.owner);
        beside.any(|it| it.launch.launcher != Launcher::NcclTests)
    } else {
        command.submission.kind != Kind::Sbatch
            || elsewhere.iter().any(|it| command.submission.text.contains(it))
    };
    if launched {
        return None;
    }
    let name = command.launch.words.first().map(|it| it.text.rsplit('/').next().unwrap_or_default())?;
    let message = if command.in_pod() {
        format!("{name} runs alone in each of {} pods", nodes.value)
    } else {
        format!("{name} runs only on the first of {} nodes", nodes.value)
    };
    let network = !command.in_pod() || command.pod.is_some_and(|it| it.efa.is_some());
    let finding = Finding::at(command.file, &command.span(), message)
        .label("no mpirun or srun before it")
        .also_at(&nodes.span, format!("{} nodes", nodes.value))
        .confidence(Confidence::Likely)
        .severity(Severity::Warning)
        .why(WHY)
        .fix(FIX);
    // Without EFA the purpose may be to check each node.
    Some(if network { finding } else { finding.severity(Severity::Info) })
}

#[cfg(test)]
mod tests {
    use crate::launch::nccl_tests_without_mpi::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(pods: u64, command: &str) -> String {
        format!(
            "kind: Job\nspec:\n  parallelism: {pods}\n  template:\n    spec:\n      containers:\n      - command: {command}\n        resources: {{limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}}}}\n"
        )
    }

    #[test]
    fn pods_that_measure_alone_are_found() {
        let found = findings(&RULE, &job(4, "[/opt/nccl-tests/build/all_reduce_perf, -g, \"8\"]"));
        assert_eq!(found[0].message, "all_reduce_perf runs alone in each of 4 pods");
        let found = findings(&RULE, "#!/bin/sh\n#SBATCH --nodes=2\n./all_reduce_perf -g 8\n");
        assert_eq!(found[0].message, "all_reduce_perf runs only on the first of 2 nodes");
    }

    #[test]
    fn one_node_or_a_launcher_is_quiet() {
        quiet(&RULE, &job(1, "[all_reduce_perf, -g, \"8\"]"));
        quiet(&RULE, &job(4, "[mpirun, -np, \"32\", all_reduce_perf]"));
        quiet(&RULE, "#!/bin/sh\n#SBATCH --nodes=2\nsrun --mpi=pmix ./all_reduce_perf -g 1\n");
        quiet(&RULE, "#!/bin/sh\n./all_reduce_perf -g 8\n");
        quiet(&RULE, &job(4, "[python, t.py]"));
    }
}

//! A launcher starts more or fewer processes on a node than the node has GPUs.

use evidence::submission::{Count, Launcher};
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "processes-unlike-gpus",
    title: "the number of processes per node differs from the number of GPUs",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Each rank uses one GPU. With more ranks than GPUs, two ranks use the same GPU and NCCL fails with \"Duplicate GPU detected\". \
          With fewer, some GPUs of the job are idle.",
    fix: "Start as many processes as the pod or node has GPUs; with `--nproc-per-node=gpu` torchrun counts them.",
    references: &[
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://github.com/NVIDIA/nccl/blob/master/src/init.cc",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings: Vec<Finding> = submitted.launches().filter_map(|it| of_launch(&it)).collect();
    findings.extend(of_fields(submitted));
    Ok(findings)
}

fn of_launch(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let launch = command.launch;
    // One task per node that starts the ranks; nccl-tests has GPUs per process, which another rule counts.
    if launch.launcher == Launcher::NcclTests || launch.nccl_tests().is_some() || command.inner().is_some() {
        return None;
    }
    let gpus = command.gpus_per_node()?;
    let shared = command.sets("CUDA_VISIBLE_DEVICES");
    let Some(processes) = command.processes_per_node() else {
        return left_to_default(command, &gpus).filter(|_| !shared);
    };
    let mpi = matches!(launch.launcher, Launcher::Mpirun | Launcher::Srun);
    let python = launch
        .words
        .iter()
        .any(|it| it.text.ends_with(".py") || it.text.rsplit('/').next() == Some("python"));
    // One process per node may start others; a number of tasks says little about programs that do not train.
    if mpi && (!python || processes.value <= 1) {
        return None;
    }
    let finding = compare(command.file, launch.launcher.name(), &processes, &gpus)?;
    let fewer = processes.value < gpus.value;
    (!(fewer && shared)).then_some(finding)
}

/// torchrun starts one process by default.
fn left_to_default(command: &SubmittedLaunch<'_>, gpus: &Count) -> Option<Finding> {
    let said = command.launch.has(&["--nproc-per-node"]) || command.sets("PET_NPROC_PER_NODE");
    let program = command.launch.own().len() < command.launch.words.len();
    if command.launch.launcher != Launcher::Torchrun
        || said
        || !program
        || command.has_hidden_options()
        || gpus.value < 2
    {
        return None;
    }
    let message = format!("torchrun starts one process, but the container has {} GPUs", gpus.value);
    let finding =
        Finding::at(command.file, &command.span(), message).label("no --nproc-per-node: its default is 1");
    Some(
        finding
            .also_at(&gpus.span, format!("{} GPUs", gpus.value))
            .severity(Severity::Warning)
            .confidence(Confidence::Likely)
            .fix("Add `--nproc-per-node=gpu`."),
    )
}

/// `nprocPerNode` of a `PyTorchJob`, `numProcPerNode` of a `TrainJob`.
fn of_fields(submitted: &Submitted<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (job, pod) in submitted.pods() {
        let tree = &job.submission.tree;
        let path: &[&str] = match job.kind {
            "PyTorchJob" => &["spec", "nprocPerNode"],
            "TrainJob" => &["spec", "trainer", "numProcPerNode"],
            _ => continue,
        };
        let field = job
            .root()
            .and_then(|it| tree.at(it, path))
            .and_then(|it| Some(Count { value: tree.integer(it)?, span: tree.node(it).span.clone() }));
        let Some((processes, gpus)) = field.zip(pod.containers.iter().find_map(|it| it.gpus?.counted()))
        else {
            continue;
        };
        let name = path.last().copied().unwrap_or_default();
        findings.extend(compare(job.file, name, &processes, &gpus));
    }
    findings
}

fn compare(file: usize, name: &str, processes: &Count, gpus: &Count) -> Option<Finding> {
    let (ranks, there) = (processes.value, gpus.value);
    if ranks == there {
        return None;
    }
    let count = |n: u64, unit: &str, units: &str| format!("{n} {}", if n == 1 { unit } else { units });
    let message = format!(
        "{name} starts {} on a node that has {}",
        count(ranks, "process", "processes"),
        count(there, "GPU", "GPUs")
    );
    let finding = Finding::at(file, &processes.span, message)
        .label(count(ranks, "process", "processes"))
        .also_at(&gpus.span, count(there, "GPU", "GPUs"))
        .fix(format!("Start {there} processes on each node, or request {ranks} GPUs."));
    Some(if ranks > there {
        finding
    } else {
        let why = format!(
            "{} of each node are allocated to the job and idle.",
            count(there - ranks, "GPU", "GPUs")
        );
        finding.severity(Severity::Warning).confidence(Confidence::Likely).why(why)
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn pod(command: &str, gpus: u64) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    command: [sh, -c, \"{command}\"]\n    resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}\n"
        )
    }

    #[test]
    fn more_processes_than_gpus_fail() {
        let found = findings(&RULE, &pod("torchrun --nproc_per_node=8 t.py", 4));
        assert_eq!(found[0].message, "torchrun starts 8 processes on a node that has 4 GPUs");
        assert_eq!((found.len(), found[0].severity, found[0].evidence.len()), (1, None, 2));
        assert_eq!(findings(&RULE, &pod("deepspeed --num_gpus 8 t.py", 1)).len(), 1);
        assert_eq!(findings(&RULE, &pod("export N=8; torchrun --nproc_per_node=$N t.py", 4)).len(), 1);
    }

    #[test]
    fn fewer_leave_gpus_idle() {
        let found = findings(&RULE, &pod("torchrun --nproc_per_node=4 t.py", 8));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        assert!(found[0].why.as_deref().is_some_and(|it| it.starts_with("4 GPUs")));
        assert!(findings(&RULE, &pod("torchrun t.py", 8))[0].message.contains("starts one process"));
        assert_eq!(
            findings(&RULE, &pod("accelerate launch --num_machines 4 --num_processes 8 t.py", 8)).len(),
            1
        );
    }

    #[test]
    fn what_fits_or_is_not_told_is_quiet() {
        for command in [
            "torchrun --nproc_per_node=8 t.py",
            "torchrun --nproc_per_node=gpu t.py",
            "torchrun --nproc_per_node=$GPUS t.py",
            "torchrun ${ARGS} t.py",
            "accelerate launch --num_machines 4 --num_processes 32 t.py",
            "accelerate launch --config_file c.yaml --num_processes 32 t.py",
            "pip install deepspeed",
            "CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=1 t.py",
            "torchrun --help",
        ] {
            quiet(&RULE, &pod(command, 8));
        }
        quiet(&RULE, "kind: Pod\nspec:\n  containers:\n  - command: [torchrun, --nproc-per-node=8, t.py]\n");
        let job = "kind: PyTorchJob\nspec:\n  nprocPerNode: \"8\"\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - command: [torchrun, t.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n";
        quiet(&RULE, job);
        assert_eq!(
            findings(&RULE, &job.replace("gpu: 8", "gpu: 4"))[0].message,
            "nprocPerNode starts 8 processes on a node that has 4 GPUs"
        );
    }

    #[test]
    fn tasks_of_slurm_are_processes() {
        let script = |lines: &str, command: &str| format!("#!/bin/bash\n#SBATCH {lines}\n{command}\n");
        let found =
            findings(&RULE, &script("--nodes=2 --ntasks-per-node=4 --gres=gpu:8", "srun python train.py"));
        assert_eq!(found[0].message, "srun starts 4 processes on a node that has 8 GPUs");
        quiet(&RULE, &script("--nodes=2 --ntasks-per-node=8 --gres=gpu:8", "srun python train.py"));
        quiet(
            &RULE,
            &script(
                "--nodes=2 --ntasks-per-node=1 --gres=gpu:8",
                "srun torchrun --nproc-per-node 8 train.py",
            ),
        );
        quiet(&RULE, &script("--nodes=2 --ntasks-per-node=1 --gres=gpu:8", "srun python train.py"));
        quiet(&RULE, &script("--nodes=2 --ntasks-per-node=64 --gres=gpu:8", "srun ./simulation"));
    }
}

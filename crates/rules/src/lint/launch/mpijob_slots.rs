//! `slotsPerWorker` of an `MPIJob` does not match the GPUs of its workers or its command.

use evidence::submission::{Count, Launcher};
use job::submitted::{Submitted, SubmittedJob, SubmittedLaunch};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "mpijob-slots",
    title: "slotsPerWorker of an MPIJob does not match its GPUs or its command",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "slotsPerWorker is the number of ranks that mpirun places on a worker, 1 by default; the operator writes it into the host file. \
          Open MPI rejects a command that needs more (\"not enough slots available\").",
    fix: "Set `slotsPerWorker` to the number of GPUs per worker.",
    references: &[
        "https://github.com/kubeflow/mpi-operator",
        "https://www.open-mpi.org/doc/v4.1/man1/mpirun.1.php",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mpijobs = submitted.jobs.iter().filter(|it| it.kind == "MPIJob");
    let of_job = |job| submitted.launches_of_job(job).filter_map(|it| of_mpirun(&it, it.job?));
    Ok(mpijobs.flat_map(of_job).collect())
}

/// The slots per worker, and where they are set; the span of `kind` if they are not.
fn slots(job: &SubmittedJob<'_>) -> Option<Count> {
    let (tree, root) = (&job.submission.tree, job.root()?);
    match tree.at(root, &["spec", "slotsPerWorker"]) {
        Some(node) => Some(Count { value: tree.integer(node)?, span: tree.node(node).span.clone() }),
        None => Some(Count { value: 1, span: tree.node(tree.get(root, "kind")?).span.clone() }),
    }
}

fn of_mpirun(command: &SubmittedLaunch<'_>, job: &SubmittedJob<'_>) -> Option<Finding> {
    let slots = slots(job).filter(|_| command.launch.launcher == Launcher::Mpirun)?;
    let own = command.launch.own();
    // Host lists and other MPI implementations count slots differently.
    let other = [
        "--oversubscribe",
        "-oversubscribe",
        "--host",
        "-host",
        "-H",
        "--hostfile",
        "-hostfile",
        "--machinefile",
        "-f",
        "-ppn",
        "-perhost",
    ];
    let oversubscribed = own.iter().any(|it| it.text.contains("oversubscribe"));
    if oversubscribed || command.launch.has(&other) || command.has_hidden_options() {
        return None;
    }
    let mut workers = job.pods.iter().filter(|it| it.works).flat_map(|it| &it.containers);
    let gpus = workers.find_map(|it| it.gpus?.counted())?;
    let left_out = command.submission.tree.at(job.root()?, &["spec", "slotsPerWorker"]).is_none();
    let label = if left_out {
        "no slotsPerWorker: its default is 1".to_owned()
    } else {
        format!("{} slots per worker", slots.value)
    };
    let fix = format!("Write `slotsPerWorker: {}`.", gpus.value);
    if let Some(each) = command.processes_per_node().filter(|it| it.value > slots.value) {
        let message =
            format!("mpirun needs {} ranks per worker, but slotsPerWorker is {}", each.value, slots.value);
        return Some(
            Finding::at(command.file, &slots.span, message)
                .label(label)
                .also_at(&each.span, format!("{} ranks per worker", each.value))
                .confidence(Confidence::Likely)
                .fix(fix),
        );
    }
    let nodes = command.job_nodes()?;
    let all = nodes.value.saturating_mul(slots.value);
    let counted = command.launch.has(&[
        "-np",
        "-n",
        "--np",
        "-c",
        "-N",
        "-npernode",
        "--npernode",
        "--map-by",
        "-map-by",
    ]);
    if let Some(ranks) =
        command.processes().filter(|it| it.value > all && command.processes_per_node().is_none())
    {
        let message = format!(
            "mpirun needs {} ranks, but {} workers with {} slots each hold {all}",
            ranks.value, nodes.value, slots.value
        );
        return Some(
            Finding::at(command.file, &slots.span, message)
                .label(label)
                .also_at(&ranks.span, format!("{} ranks", ranks.value))
                .also_at(&nodes.span, format!("{} workers", nodes.value))
                .confidence(Confidence::Likely)
                .fix(fix),
        );
    }
    let program = own.len() < command.launch.words.len()
        && command.inner().is_none()
        && command.launch.nccl_tests().is_none();
    (!counted && program && slots.value != gpus.value).then(|| {
        let more = slots.value > gpus.value;
        let message = format!(
            "slotsPerWorker is {}, so mpirun starts that many ranks on each worker, which has {} GPUs",
            slots.value, gpus.value
        );
        Finding::at(command.file, &slots.span, message)
            .label(label)
            .also_at(&gpus.span, format!("{} GPUs", gpus.value))
            .severity(if more { Severity::Error } else { Severity::Warning })
            .confidence(Confidence::Likely)
            .fix(fix)
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(slots: &str, command: &str) -> String {
        format!(
            "kind: MPIJob\nspec:\n  {slots}\n  mpiReplicaSpecs:\n    Launcher:\n      template:\n        spec:\n          containers:\n          - command: [sh, -c, \"{command}\"]\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }

    #[test]
    fn slots_that_are_too_few_are_found() {
        let found = findings(&RULE, &job("slotsPerWorker: 1", "mpirun -np 16 -N 8 all_reduce_perf -g 1"));
        assert_eq!(found[0].message, "mpirun needs 8 ranks per worker, but slotsPerWorker is 1");
        let found = findings(&RULE, &job("slotsPerWorker: 4", "mpirun -np 16 all_reduce_perf -g 1"));
        assert_eq!(found[0].message, "mpirun needs 16 ranks, but 2 workers with 4 slots each hold 8");
        let found = findings(&RULE, &job("cleanPodPolicy: All", "mpirun python train.py"));
        assert_eq!(
            found[0].message,
            "slotsPerWorker is 1, so mpirun starts that many ranks on each worker, which has 8 GPUs"
        );
        assert!(found[0].evidence[0].label().contains("default"));
    }

    #[test]
    fn slots_that_fit_are_quiet() {
        for command in [
            "mpirun -np 16 -N 8 all_reduce_perf -g 1",
            "mpirun python train.py",
            "mpirun -np 2 -N 1 all_reduce_perf -g 8",
            "mpirun -np $N python train.py",
            "deepspeed train.py",
        ] {
            quiet(&RULE, &job("slotsPerWorker: 8", command));
        }
        quiet(&RULE, &job("slotsPerWorker: 1", "mpirun --oversubscribe -np 16 -N 8 all_reduce_perf"));
        quiet(&RULE, "#!/bin/sh\nmpirun -np 16 -N 8 all_reduce_perf -g 1\n");
    }
}

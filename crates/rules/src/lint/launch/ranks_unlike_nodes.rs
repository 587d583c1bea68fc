//! The launch command is for another number of nodes than the job has.

use evidence::submission::{Launcher, Written};
use job::submitted::{Submitted, SubmittedJob, SubmittedLaunch, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "ranks-unlike-nodes",
    title: "the launch command is for another number of nodes than the job has",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A launcher for more nodes than there are waits for the missing ones until it times out. A launcher for fewer leaves nodes idle \
          or rejects them.",
    fix: "Give the launcher the number of pods or nodes that the job requests.",
    references: &[
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://www.open-mpi.org/doc/v4.1/man1/mpirun.1.php",
        "https://slurm.schedmd.com/sbatch.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for command in submitted.launches() {
        findings.extend(match command.launch.launcher {
            Launcher::Torchrun | Launcher::DeepSpeed | Launcher::Accelerate => nodes(&command),
            Launcher::Mpirun => ranks(&command),
            Launcher::Srun | Launcher::NcclTests => None,
        });
    }
    findings.extend(submitted.jobs.iter().filter_map(tasks));
    findings.extend(submitted.settings().filter_map(|it| world_size(submitted, &it)));
    Ok(findings)
}

/// `--nnodes` against the pods or nodes.
fn nodes(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let asked = command.nodes()?.exact()?;
    let there = command.job_nodes()?;
    // One of several templates may be a job of its own.
    let own = command.pod.and_then(|it| it.pod.replicas);
    if asked.value == there.value || own == Some(asked.value) {
        return None;
    }
    let unit = if command.in_pod() { "pods with GPUs" } else { "nodes" };
    let message =
        format!("the launch command is for {} nodes, but the job has {} {unit}", asked.value, there.value);
    let finding = Finding::at(command.file, &asked.span, message)
        .label(format!("{} nodes", asked.value))
        .also_at(&there.span, format!("{} {unit}", there.value))
        .fix(format!("Launch for {} nodes, or request {}.", there.value, asked.value));
    Some(if asked.value > there.value {
        finding
    } else {
        finding.severity(Severity::Warning).confidence(Confidence::Likely)
    })
}

/// `-np` against `-N` and the nodes.
fn ranks(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let ranks = command.processes()?;
    let each = command.processes_per_node().filter(|it| it.value > 0)?;
    let label = |finding: Finding| {
        finding
            .label(format!("{} ranks", ranks.value))
            .also_at(&each.span, format!("{} per node", each.value))
    };
    if let Some(there) = command.job_nodes() {
        let all = there.value.saturating_mul(each.value);
        if ranks.value == all {
            return None;
        }
        // A test may use only some of the nodes.
        if ranks.value < all && ranks.value % each.value == 0 {
            return None;
        }
        let message = format!(
            "the command starts {} ranks, but {} nodes with {} each are {all}",
            ranks.value, there.value, each.value
        );
        let finding = label(Finding::at(command.file, &ranks.span, message))
            .also_at(&there.span, format!("{} nodes", there.value));
        let finding = finding.fix(format!("Write `-np {all} -N {}`.", each.value));
        return Some(if ranks.value > all { finding } else { finding.severity(Severity::Warning) });
    }
    let uneven = ranks.value > each.value && ranks.value % each.value != 0;
    uneven.then(|| {
        let rest = ranks.value % each.value;
        let message =
            format!("{} ranks with {} per node leave {rest} on the last node", ranks.value, each.value);
        label(Finding::at(command.file, &ranks.span, message))
            .severity(Severity::Warning)
            .confidence(Confidence::Likely)
            .why(
                "If ranks are not spread evenly, some GPUs are idle, and the rings differ from node to node.",
            )
            .fix(format!("Make -np a multiple of {}.", each.value))
    })
}

/// `--ntasks` against `--nodes` and `--ntasks-per-node`.
fn tasks(job: &SubmittedJob<'_>) -> Option<Finding> {
    let directives = &job.submission.directives;
    let (all, nodes) = (directives.number("ntasks")?, directives.nodes()?);
    let each = directives.number("ntasks-per-node")?;
    let product = nodes.value.saturating_mul(each.value);
    (all.value > product).then(|| {
        let message = format!(
            "the job requests {} tasks, but {} nodes with at most {} each hold {product}",
            all.value, nodes.value, each.value
        );
        Finding::at(job.file, &all.span, message)
            .label(format!("{} tasks", all.value))
            .also_at(&nodes.span, format!("{} nodes", nodes.value))
            .also_at(&each.span, format!("at most {} per node", each.value))
            .confidence(Confidence::Likely)
            .why("With --ntasks, --ntasks-per-node is the maximum per node, so the request cannot be satisfied.")
            .fix(format!("Write `--ntasks={product}`, or remove it."))
    })
}

/// A `WORLD_SIZE` that is neither the number of nodes nor the number of GPUs of the job.
fn world_size(submitted: &Submitted<'_>, it: &SubmittedVariable<'_>) -> Option<Finding> {
    let setting = it.setting;
    if it.name() != "WORLD_SIZE" || setting.written != Written::Env {
        return None;
    }
    let value: u64 = setting.value.as_deref()?.trim().parse().ok()?;
    let (job, container) = (it.job?, it.pod?.containers.get(setting.owner?.container)?);
    let (nodes, each) = (job.nodes.stated.as_ref()?, container.gpus?.count?);
    let all = nodes.value.saturating_mul(each);
    let even = job.gpus_per_node.as_ref().is_some_and(|it| it.value == each);
    // Launchers that start the ranks set it themselves.
    let launched = submitted.launches_of(it.file, setting.owner).next().is_some();
    if launched || !even || value == all || value == nodes.value {
        return None;
    }
    let message = format!(
        "WORLD_SIZE is {value}, but the job has {} pods with {each} GPUs each: {all} ranks",
        nodes.value
    );
    let finding = Finding::at(it.file, setting.value_span.as_ref().unwrap_or(&setting.span), message);
    Some(
        finding
            .also_at(&nodes.span, format!("{} pods", nodes.value))
            .confidence(Confidence::Likely)
            .severity(if value > all { Severity::Error } else { Severity::Warning })
            .fix(format!("Write \"{all}\" for one rank per GPU, or let the operator or launcher set it.")),
    )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    const JOB: &str = "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n      template: &t\n        spec:\n          containers:\n          - name: pytorch\n            command: [torchrun, --nnodes=NODES, --nproc-per-node=8, t.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n    Worker:\n      replicas: 3\n      template: *t\n";

    #[test]
    fn nodes_of_the_launch_are_those_of_the_job() {
        let found = findings(&RULE, &JOB.replace("NODES", "8"));
        assert_eq!(found[0].message, "the launch command is for 8 nodes, but the job has 4 pods with GPUs");
        assert_eq!(found[0].evidence[1].label(), "4 pods with GPUs");
        assert_eq!(findings(&RULE, &JOB.replace("NODES", "2"))[0].severity, Some(Severity::Warning));
        for nodes in ["4", "1:4", "$NODES"] {
            quiet(&RULE, &JOB.replace("NODES", nodes));
        }
    }

    #[test]
    fn ranks_of_mpirun_fill_the_nodes() {
        let job = "kind: MPIJob\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      template:\n        spec:\n          containers:\n          - command: [mpirun, -np, \"NP\", -N, \"8\", python, t.py]\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - resources: {limits: {nvidia.com/gpu: 8}}\n";
        let found = findings(&RULE, &job.replace("NP", "32"));
        assert_eq!(found[0].message, "the command starts 32 ranks, but 2 nodes with 8 each are 16");
        assert_eq!(findings(&RULE, &job.replace("NP", "12"))[0].severity, Some(Severity::Warning));
        quiet(&RULE, &job.replace("NP", "16"));
        quiet(&RULE, &job.replace("NP", "8"));
        assert_eq!(findings(&RULE, "#!/bin/sh\nmpirun -np 20 -N 8 ./a\n").len(), 1);
        quiet(&RULE, "#!/bin/sh\nmpirun -np 2 -N 8 ./a\nmpirun -np 640 -N 8 ./a\n");
    }

    #[test]
    fn tasks_of_a_script_fit() {
        let found =
            findings(&RULE, "#!/bin/sh\n#SBATCH --nodes=2 --ntasks=32 --ntasks-per-node=8\nsrun ./a\n");
        assert_eq!(found[0].message, "the job requests 32 tasks, but 2 nodes with at most 8 each hold 16");
        quiet(&RULE, "#!/bin/sh\n#SBATCH --nodes=2 --ntasks=16 --ntasks-per-node=8\nsrun ./a\n");
        let found = findings(&RULE, "#!/bin/sh\n#SBATCH --nodes=2\nsrun torchrun --nnodes 4 t.py\n");
        assert_eq!(found[0].message, "the launch command is for 4 nodes, but the job has 2 nodes");
    }

    #[test]
    fn a_world_size_is_pods_or_ranks() {
        let job = "kind: JobSet\nspec:\n  replicatedJobs:\n  - name: w\n    replicas: 1\n    template:\n      spec:\n        parallelism: 2\n        template:\n          spec:\n            containers:\n            - env:\n              - {name: WORLD_SIZE, value: \"N\"}\n              command: [python, t.py]\n              resources: {limits: {nvidia.com/gpu: 8}}\n";
        assert_eq!(findings(&RULE, &job.replace("\"N\"", "\"8\"")).len(), 1);
        quiet(&RULE, &job.replace("\"N\"", "\"16\""));
        quiet(&RULE, &job.replace("\"N\"", "\"2\""));
    }

    #[test]
    fn one_of_several_objects_is_not_judged() {
        quiet(
            &RULE,
            "kind: Job\nspec:\n  template:\n    spec:\n      containers:\n      - command: [torchrun, --nnodes=2, --node-rank=0, t.py]\n        resources: {limits: {nvidia.com/gpu: 8}}\n",
        );
        quiet(
            &RULE,
            "kind: Pod\nspec:\n  containers:\n  - command: [torchrun, --nnodes=2, t.py]\n    resources: {limits: {nvidia.com/gpu: 8}}\n",
        );
    }
}

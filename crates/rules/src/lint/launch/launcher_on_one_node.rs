//! torchrun for several nodes that runs only on the first node of a Slurm job.

use evidence::submission::{Kind, Launcher};
use job::submitted::{NodeRange, Submitted, SubmittedJob, SubmittedLaunch};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "launcher-on-one-node",
    title: "torchrun for several nodes runs on one node",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Slurm runs the script on the first node only. torchrun without srun starts only there, waits for the other nodes and times out.",
    fix: "Write `srun --ntasks-per-node=1 torchrun ...`.",
    references: &[
        "https://slurm.schedmd.com/sbatch.html",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    // Anything that could start it on the other nodes; all nodes may run a script that this one writes.
    let carriers = ["srun", "mpirun", "mpiexec", "pdsh", "ssh", "clush", "parallel", "<<"];
    let alone = |it: &&SubmittedJob<'_>| {
        let submission = it.submission;
        submission.kind == Kind::Sbatch && !carriers.iter().any(|it| submission.text.contains(it))
    };
    let scripts = submitted.jobs.iter().filter(alone);
    Ok(scripts.flat_map(|it| submitted.launches_of_job(it)).filter_map(|it| finding(&it)).collect())
}

fn finding(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let option = command.launch.nodes().filter(|_| command.launch.launcher == Launcher::Torchrun)?;
    let nodes = command.job_nodes().filter(|it| it.value > 1)?;
    let several = match command.nodes().and_then(NodeRange::exact) {
        Some(count) => count.value > 1,
        None => option.text.contains("SLURM"),
    };
    several.then(|| {
        let message = format!("torchrun is for several nodes, but runs only on the first of {}", nodes.value);
        Finding::at(command.file, &command.span(), message)
            .label("no srun before it")
            .also_at(&nodes.span, format!("{} nodes", nodes.value))
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_launch_without_srun_is_found() {
        let text =
            "#!/bin/bash\n#SBATCH --nodes=4\ntorchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 t.py\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "torchrun is for several nodes, but runs only on the first of 4"
        );
        quiet(&RULE, &text.replace("torchrun", "srun torchrun"));
        quiet(&RULE, &text.replace("--nodes=4", "--nodes=1"));
        quiet(&RULE, &text.replace("--nnodes=$SLURM_NNODES", "--nnodes=1"));
        quiet(&RULE, &text.replace("#SBATCH --nodes=4\n", ""));
    }
}

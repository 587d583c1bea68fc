//! A Slurm job that starts ranks and requests no GPUs.

use evidence::submission::{Kind, Launcher};
use job::submitted::Submitted;

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "sbatch-without-gpus",
    title: "a Slurm job that requests no GPUs",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Where Slurm manages GPUs, a job sees only those it requests. Without --exclusive, other jobs share the node, its GPUs and its \
          EFA interfaces, which Slurm does not manage at all.",
    fix: "Add `#SBATCH --gpus-per-node=8`, and `#SBATCH --exclusive` if the job should have the network to itself.",
    references: &["https://slurm.schedmd.com/gres.html", "https://slurm.schedmd.com/sbatch.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (file, submission) in submitted.files.iter().enumerate() {
        if submission.kind != Kind::Sbatch {
            continue;
        }
        let directives = &submission.directives.0;
        let asks = directives.iter().any(|it| {
            it.name.contains("gpu")
                || matches!(
                    &*it.name,
                    "gres"
                        | "exclusive"
                        | "tres-per-node"
                        | "tres-per-task"
                        | "partition"
                        | "qos"
                        | "constraint"
                )
        });
        let trains = |it: &&evidence::submission::Launch| {
            matches!(it.launcher, Launcher::Torchrun | Launcher::DeepSpeed | Launcher::Accelerate)
                || it.nccl_tests().is_some()
        };
        let launch = submission.launches.iter().find(trains);
        let several = submission.directives.nodes().filter(|it| it.value > 1);
        let text = &submission.text;
        let asked_elsewhere = ["--gpus", "--gres", "--exclusive"].iter().any(|it| text.contains(it));
        if let (false, false, Some(launch), Some(nodes)) = (asks, asked_elsewhere, launch, several) {
            let place = launch.words.first().map_or(0..0, |it| it.range.clone());
            let message =
                format!("the job requests {} nodes, but neither GPUs nor exclusive nodes", nodes.value);
            findings.push(
                Finding::at(file, &nodes.span, message)
                    .also_at(&submission.span(place), "needs GPUs")
                    .confidence(Confidence::Possible),
            );
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_job_without_gpus_is_told() {
        let text = "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun --nproc-per-node=8 t.py\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "the job requests 2 nodes, but neither GPUs nor exclusive nodes"
        );
        quiet(&RULE, &text.replace("--nodes=2", "--nodes=2 --exclusive"));
        quiet(&RULE, &text.replace("--nodes=2", "--nodes=2 --gres=gpu:8"));
        quiet(&RULE, &text.replace("--nodes=2", "--nodes=2 -p gpu"));
        quiet(&RULE, &text.replace("torchrun", "./simulation"));
    }
}

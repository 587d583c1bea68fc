//! torchrun for several nodes that only the first node of a Slurm job starts.

use evidence::submission::{Kind, Launcher};

use super::sbatch;
use super::scene::{Scene, scenes};
use crate::lint::Context;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "launcher-on-one-node",
    title: "a launch for several nodes that one node starts",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Slurm runs the script on the first node only. torchrun without srun before it starts there alone, waits for the other nodes, \
          and times out.",
    fix: "Write `srun --ntasks-per-node=1 torchrun ...`.",
    references: &[
        "https://slurm.schedmd.com/sbatch.html",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(context: &Context<'_>) -> Checked {
    Ok(scenes(context).iter().filter_map(one).collect())
}

fn one(scene: &Scene<'_>) -> Option<Finding> {
    if scene.launch.launcher != Launcher::Torchrun || scene.submission.kind != Kind::Sbatch {
        return None;
    }
    // Anything that could carry it to the other nodes; a script that is written by this one may be started by all.
    let carriers = ["srun", "mpirun", "mpiexec", "pdsh", "ssh", "clush", "parallel", "<<"];
    if carriers.iter().any(|it| scene.submission.text.contains(it)) {
        return None;
    }
    let nodes = sbatch::nodes(scene.submission).filter(|it| it.value > 1)?;
    let text = scene.launch.value(&["--nnodes"])?;
    let several = match scene.number(&["--nnodes"]) {
        Some(count) => count.value > 1,
        None => text.contains("SLURM"),
    };
    several.then(|| {
        let message = format!("torchrun for several nodes runs on the first of {} only", nodes.value);
        Finding::at(scene.file, &scene.span(), message)
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
            "torchrun for several nodes runs on the first of 4 only"
        );
        quiet(&RULE, &text.replace("torchrun", "srun torchrun"));
        quiet(&RULE, &text.replace("--nodes=4", "--nodes=1"));
        quiet(&RULE, &text.replace("--nnodes=$SLURM_NNODES", "--nnodes=1"));
        quiet(&RULE, &text.replace("#SBATCH --nodes=4\n", ""));
    }
}

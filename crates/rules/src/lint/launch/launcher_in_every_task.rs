//! torchrun starts in each of several tasks per node.

use evidence::submission::Launcher;
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "launcher-in-every-task",
    title: "torchrun or accelerate in each of several tasks per node",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "srun and mpirun start the command once per task, and torchrun starts its own processes each time: 8 tasks with 8 processes are \
          64 per node, and they compete for the same GPUs and the same port.",
    fix: "Start torchrun, accelerate and deepspeed with one task per node, `--ntasks-per-node=1`; or start python with srun, one task per GPU.",
    references: &[
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://slurm.schedmd.com/srun.html",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.launches().filter_map(|it| one(&it)).collect())
}

fn one(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let name = match command.launch.launcher {
        Launcher::Torchrun => "torchrun",
        Launcher::Accelerate => "accelerate launch",
        _ => return None,
    };
    let outer = command.outer()?;
    // A variable may hold another number of tasks.
    let variable = outer.launch.own().iter().any(|it| it.text.starts_with('$'));
    let tasks = outer.processes_per_node().filter(|it| it.value > 1 && !variable)?;
    let each = command.processes_per_node().filter(|it| it.value > 1);
    let message = match &each {
        Some(each) => format!(
            "{name} starts {} processes in each of {} tasks: {} processes per node",
            each.value,
            tasks.value,
            each.value.saturating_mul(tasks.value)
        ),
        None if command.literal(&["--nproc-per-node"]) == Some("1") => return None,
        None => format!("each of {} tasks per node starts {name}", tasks.value),
    };
    let finding = Finding::at(command.file, &tasks.span, message)
        .label(format!("{} tasks per node", tasks.value))
        .also_at(&command.span(), "each task starts this");
    Some(match each {
        Some(each) => finding.also_at(&each.span, format!("{} processes", each.value)),
        None => finding.confidence(Confidence::Likely),
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn script(tasks: u64, command: &str) -> String {
        format!("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node={tasks}\n{command}\n")
    }

    #[test]
    fn sixty_four_processes_on_a_node() {
        let found = findings(&RULE, &script(8, "srun torchrun --nnodes 4 --nproc-per-node=8 t.py"));
        assert_eq!(found[0].message, "torchrun starts 8 processes in each of 8 tasks: 64 processes per node");
        assert_eq!(found[0].evidence.len(), 3);
        assert_eq!(
            findings(&RULE, &script(1, "srun --ntasks-per-node 8 torchrun --nproc-per-node=gpu t.py")).len(),
            1
        );
    }

    #[test]
    fn one_task_a_node_is_quiet() {
        quiet(&RULE, &script(8, "srun --ntasks-per-node=1 bash -c 'torchrun --nproc-per-node=8 t.py'"));
        quiet(&RULE, &script(1, "srun torchrun --nproc-per-node=8 t.py"));
        quiet(&RULE, &script(8, "srun --ntasks-per-node=1 torchrun --nproc-per-node=8 t.py"));
        quiet(&RULE, &script(8, "srun -n 4 torchrun --nproc-per-node=8 t.py"));
        quiet(&RULE, &script(8, "srun $ARGS torchrun --nproc-per-node=8 t.py"));
        quiet(&RULE, &script(8, "srun python t.py"));
        quiet(&RULE, &script(8, "torchrun --nproc-per-node=8 t.py"));
    }
}

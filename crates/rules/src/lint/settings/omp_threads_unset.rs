//! The optimizer runs on the CPU with one thread per rank.

use evidence::submission::{Kind, Launch, Launcher, Submission};
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "omp-threads-unset",
    title: "CPU offload with one thread per rank",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "torchrun sets OMP_NUM_THREADS to 1 if it starts several ranks and the variable is not set. The optimizer that DeepSpeed runs \
          on the CPU then has one core per rank, and the GPUs wait for it.",
    fix: "Set OMP_NUM_THREADS to the number of cores of the pod divided by its ranks.",
    references: &[
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py",
        "https://www.deepspeed.ai/tutorials/zero-offload/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let offloads: Vec<&str> = submitted.files.iter().filter_map(offload).collect();
    if offloads.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for it in submitted.launches().filter(|it| it.launch.launcher == Launcher::Torchrun) {
        let Some(offload) = offloads.iter().find(|name| belongs(name, it.submission, it.launch)) else {
            continue;
        };
        let from_elsewhere = it.container.is_some_and(|it| it.env_from);
        if from_elsewhere || it.sets("OMP_NUM_THREADS") {
            continue;
        }
        if let Some(ranks @ 2..) = it.processes_per_node().map(|it| it.value) {
            let message = format!(
                "{offload} offloads to the CPU, but torchrun gives each of {ranks} ranks one thread, because OMP_NUM_THREADS is not set"
            );
            found.push(Finding::at(it.file, &it.span(), message).label(format!("starts {ranks} ranks")));
        }
    }
    Ok(found)
}

/// Whether a launch command uses a DeepSpeed file: it names the file, or both are in one folder.
fn belongs(settings: &str, submission: &Submission, launch: &Launch) -> bool {
    let split = |path: &str| {
        path.rsplit_once('/').map_or((String::new(), path.to_owned()), |it| (it.0.into(), it.1.into()))
    };
    let (folder, name) = split(settings);
    launch.words.iter().any(|it| it.text.ends_with(&name)) || split(&submission.name).0 == folder
}

/// The name of a DeepSpeed file that offloads the optimizer to the CPU.
fn offload(file: &Submission) -> Option<&str> {
    if file.kind != Kind::DeepSpeed {
        return None;
    }
    let tree = &file.tree;
    let device = |root| tree.at(root, &["zero_optimization", "offload_optimizer", "device"]);
    let cpu = tree.documents.iter().any(|it| device(*it).and_then(|it| tree.text(it)) == Some("cpu"));
    cpu.then_some(&*file.name)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Finding;
    use crate::lint::testing::files;
    use crate::lint::{Given, Submitted};

    fn found(job: &str, settings: &str) -> Vec<Finding> {
        let files = files(&[("job.yaml", job), ("ds.json", settings)]);
        crate::lint::testing::check(&RULE, &Submitted::new(&files, Given::default()))
    }

    const JOB: &str = "kind: Pod\nspec:\n  containers:\n  - command: [torchrun, --nproc_per_node=8, train.py]\n    env: [{name: A, value: x}]\n";
    const OFFLOAD: &str =
        "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}}";

    #[test]
    fn one_thread_a_rank_is_seen() {
        let found = found(JOB, OFFLOAD);
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .message
                .starts_with("ds.json offloads to the CPU, but torchrun gives each of 8 ranks one thread")
        );
    }

    #[test]
    fn settings_of_another_folder_count_where_they_are_named() {
        let count = |job: &str| {
            let files = files(&[("a/job.yaml", job), ("b/ds.json", OFFLOAD)]);
            crate::lint::testing::check(&RULE, &Submitted::new(&files, Given::default())).len()
        };
        assert_eq!(count(JOB), 0);
        assert_eq!(count(&JOB.replace("train.py", "train.py, --deepspeed, /b/ds.json")), 1);
    }

    #[test]
    fn other_jobs_are_left_alone() {
        assert!(found(&JOB.replace("name: A", "name: OMP_NUM_THREADS"), OFFLOAD).is_empty());
        assert!(found(&JOB.replace("=8", "=1"), OFFLOAD).is_empty());
        assert!(found(JOB, &OFFLOAD.replace("cpu", "nvme")).is_empty());
        assert!(found(JOB, "{\"zero_optimization\": {\"stage\": 2}}").is_empty());
    }
}

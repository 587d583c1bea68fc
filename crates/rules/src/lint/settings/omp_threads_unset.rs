//! The optimizer on the CPU with one thread a rank.

use evidence::submission::{Kind, Launch, Launcher, Submission};

use crate::lint::Context;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "omp-threads-unset",
    title: "CPU offload with one thread a rank",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "torchrun sets OMP_NUM_THREADS to 1 where it starts several ranks and nobody has set it. The optimizer that DeepSpeed \
          runs on the CPU then has one core a rank, and GPUs wait for it.",
    fix: "Set OMP_NUM_THREADS to the cores of the pod divided by its ranks.",
    references: &[
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py",
        "https://www.deepspeed.ai/tutorials/zero-offload/",
    ],
    checks: &[Check::Submission(check)],
};

fn check(context: &Context<'_>) -> Checked {
    let offloads: Vec<&str> = context.files.iter().filter_map(offload).collect();
    let mut found = Vec::new();
    for (file, submission) in context.files.iter().enumerate() {
        for launch in submission.launches.iter().filter(|it| it.launcher == Launcher::Torchrun) {
            let Some(offload) = offloads.iter().find(|it| belongs(it, submission, launch)) else { continue };
            let set = |name: &str| {
                submission.settings.iter().find(|it| &*it.name == name && it.owner == launch.owner)
            };
            let from_elsewhere =
                launch.owner.and_then(|it| submission.owner(it)).is_some_and(|it| it.2.env_from);
            let ranks = ranks(launch).or_else(|| set("PET_NPROC_PER_NODE")?.value.as_ref()?.parse().ok());
            if let (Some(ranks @ 2..), None, false, Some(word)) =
                (ranks, set("OMP_NUM_THREADS"), from_elsewhere, launch.words.first())
            {
                let span = submission.span(word.range.clone());
                let message = format!(
                    "{offload} offloads to the CPU, and torchrun gives each of {ranks} ranks one thread: OMP_NUM_THREADS is not set"
                );
                found.push(Finding::at(file, &span, message).label(format!("starts {ranks} ranks")));
            }
        }
    }
    Ok(found)
}

fn ranks(launch: &Launch) -> Option<u64> {
    launch.number(&["--nproc-per-node"])
}

/// Whether a launch uses a file of settings: it names it, or both stand in one folder.
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
    use crate::lint::{Context, Given};

    fn found(job: &str, settings: &str) -> Vec<Finding> {
        let files = files(&[("job.yaml", job), ("ds.json", settings)]);
        crate::lint::testing::check(&RULE, &Context { files: &files, given: &Given::default() })
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
                .starts_with("ds.json offloads to the CPU, and torchrun gives each of 8 ranks one thread")
        );
    }

    #[test]
    fn settings_of_another_folder_count_where_they_are_named() {
        let count = |job: &str| {
            let files = files(&[("a/job.yaml", job), ("b/ds.json", OFFLOAD)]);
            crate::lint::testing::check(&RULE, &Context { files: &files, given: &Given::default() }).len()
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

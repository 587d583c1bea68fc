//! Variables that a script sets and its tasks never see.

use evidence::submission::{Kind, Launcher, Submission};

use super::sbatch;
use super::scene::{Scene, scenes};
use crate::lint::Context;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(super) static RULE: Rule = Rule {
    id: "exports-not-passed",
    title: "variables that do not reach the tasks",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "With --export=NONE, or with a list that does not begin with ALL, srun starts its tasks without the variables that the script \
          has set. sbatch --export=NONE holds for every srun inside, by SLURM_EXPORT_ENV.",
    fix: "Write `--export=ALL` on srun, or `unset SLURM_EXPORT_ENV` before it.",
    references: &["https://slurm.schedmd.com/srun.html", "https://slurm.schedmd.com/sbatch.html"],
    checks: &[Check::Submission(check)],
};

fn check(context: &Context<'_>) -> Checked {
    Ok(scenes(context).iter().filter(|it| it.launch.launcher == Launcher::Srun).filter_map(one).collect())
}

fn one(scene: &Scene<'_>) -> Option<Finding> {
    let submission = scene.submission;
    let (value, span) = match scene.launch.option(&["--export"]) {
        Some(word) => (scene.launch.value(&["--export"])?.to_owned(), scene.word(word)),
        None => {
            let it =
                sbatch::directive(submission, "export").filter(|it| it.value.eq_ignore_ascii_case("none"))?;
            let span = it.span(submission);
            (it.value.into(), span)
        }
    };
    let all = value.to_ascii_uppercase().split(',').any(|it| it == "ALL") || value.contains('$');
    if submission.kind != Kind::Sbatch || all || submission.text.contains("SLURM_EXPORT_ENV") {
        return None;
    }
    let lost = lost(submission, &value);
    let (first, span_of_first) = lost.first()?;
    let others = lost.len() - 1;
    let names = if others == 0 { first.clone() } else { format!("{first} and {others} more") };
    let verb = if others == 0 { "does" } else { "do" };
    let message = format!("{names} {verb} not reach the tasks of srun: --export={value}");
    Some(Finding::at(scene.file, &span, message).also_at(span_of_first, "set here"))
}

/// What the script sets for NCCL, libfabric or the rendezvous, and the list does not name.
fn lost(submission: &Submission, export: &str) -> Vec<(String, evidence::yaml::Span)> {
    let passed = |name: &str| export.split(',').any(|it| it.split('=').next() == Some(name));
    let ours = |name: &str| {
        let known = ["NCCL_", "FI_", "OFI_", "TORCH_", "PET_", "MASTER_"];
        known.iter().any(|it| name.starts_with(it)) || name == "LD_LIBRARY_PATH"
    };
    let mut lost: Vec<(String, evidence::yaml::Span)> = Vec::new();
    for setting in submission.settings.iter().filter(|it| ours(&it.name) && !passed(&it.name)) {
        // Those of srun's own list are no exports of the script.
        let line = submission.text.get(..setting.span.range.start).unwrap_or_default();
        let line = line.rsplit('\n').next().unwrap_or_default();
        let exported = line.trim_start().starts_with("export ");
        if exported && lost.iter().all(|it| *it.0 != *setting.name) {
            lost.push((setting.name.as_ref().to_owned(), setting.span.clone()));
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_list_without_all_drops_the_rest() {
        let text = "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_DEBUG=INFO\nexport FI_PROVIDER=efa\nsrun --export=NONE python t.py\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "NCCL_DEBUG and 1 more do not reach the tasks of srun: --export=NONE"
        );
        let list = text.replace("NONE", "NCCL_DEBUG");
        assert_eq!(
            findings(&RULE, &list)[0].message,
            "FI_PROVIDER does not reach the tasks of srun: --export=NCCL_DEBUG"
        );
        let whole = text.replace(" --export=NONE", "").replace("--nodes=2", "--nodes=2 --export=NONE");
        assert_eq!(findings(&RULE, &whole).len(), 1);
        quiet(&RULE, &whole.replace("export NCCL", "unset SLURM_EXPORT_ENV\nexport NCCL"));
    }

    #[test]
    fn all_is_all() {
        let text = "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_DEBUG=INFO\nsrun --export=ALL,FI_PROVIDER=efa python t.py\n";
        quiet(&RULE, text);
        quiet(&RULE, &text.replace(" --export=ALL,FI_PROVIDER=efa", ""));
        quiet(&RULE, &text.replace("=ALL", "=NONE").replace("export NCCL_DEBUG=INFO\n", ""));
    }
}

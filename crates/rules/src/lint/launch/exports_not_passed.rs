//! Variables that a script exports and its tasks do not get.

use std::collections::BTreeSet;

use evidence::submission::{Kind, Launcher, Setting, Submission};
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "exports-not-passed",
    title: "exported variables that do not reach the tasks",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "With --export=NONE, or with a list without ALL, srun starts its tasks without the variables that the script exports. sbatch \
          --export=NONE applies to every srun in the script, through SLURM_EXPORT_ENV.",
    fix: "Write `--export=ALL` on srun, or `unset SLURM_EXPORT_ENV` before it.",
    references: &["https://slurm.schedmd.com/srun.html", "https://slurm.schedmd.com/sbatch.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for job in submitted.jobs.iter().filter(|it| it.submission.kind == Kind::Sbatch) {
        if job.submission.text.contains("SLURM_EXPORT_ENV") {
            continue;
        }
        let exported = exported(job.submission);
        let sruns = submitted.launches_of_job(job).filter(|it| it.launch.launcher == Launcher::Srun);
        findings.extend(sruns.filter_map(|it| finding(&it, &exported)));
    }
    Ok(findings)
}

fn finding(command: &SubmittedLaunch<'_>, exported: &[&Setting]) -> Option<Finding> {
    let (value, span) = match command.launch.option(&["--export"]) {
        Some(option) => (option.text, command.word_span(option.word)),
        None => {
            let export = command.submission.directives.find("export")?;
            let none = export.value.eq_ignore_ascii_case("none");
            (Some(&*export.value).filter(|_| none)?, export.span.clone())
        }
    };
    if value.to_ascii_uppercase().split(',').any(|it| it == "ALL") || value.contains('$') {
        return None;
    }
    let passed = |name: &str| value.split(',').any(|it| it.split('=').next() == Some(name));
    let mut lost = exported.iter().filter(|it| !passed(&it.name));
    let first = lost.next()?;
    let others = lost.count();
    let names =
        if others == 0 { first.name.to_string() } else { format!("{} and {others} more", first.name) };
    let verb = if others == 0 { "does" } else { "do" };
    let message = format!("{names} {verb} not reach the tasks of srun: --export={value}");
    Some(Finding::at(command.file, &span, message).also_at(&first.span, "set here"))
}

/// The variables for NCCL, libfabric or the rendezvous that the script exports, each name once.
fn exported(submission: &Submission) -> Vec<&Setting> {
    let known = ["NCCL_", "FI_", "OFI_", "TORCH_", "PET_", "MASTER_"];
    let ours = |name: &str| known.iter().any(|it| name.starts_with(it)) || name == "LD_LIBRARY_PATH";
    let mut names = BTreeSet::new();
    let exported = |it: &&Setting| {
        // Names in srun's own list are not exports of the script.
        let line = submission.text.get(..it.span.range.start).unwrap_or_default();
        let line = line.rsplit('\n').next().unwrap_or_default();
        ours(&it.name) && line.trim_start().starts_with("export ") && names.insert(it.name.clone())
    };
    submission.settings.iter().filter(exported).collect()
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

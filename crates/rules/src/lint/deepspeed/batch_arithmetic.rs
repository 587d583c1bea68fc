//! Batch sizes that do not multiply.

use job::submitted::Submitted;

use super::config::{Config, REFERENCE, configs};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "batch-arithmetic",
    title: "batch sizes do not multiply to train_batch_size",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "train_batch_size is train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel ranks. DeepSpeed checks this \
          and fails with \"Check batch related parameters\".",
    fix: "Remove train_batch_size: DeepSpeed computes it from the other two, for any number of GPUs.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py",
    ],
    checks: &[Check::Submission(check)],
};

const ALL: [&str; 1] = ["train_batch_size"];
const MICRO: [&str; 1] = ["train_micro_batch_size_per_gpu"];
const STEPS: [&str; 1] = ["gradient_accumulation_steps"];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(configs(submitted).iter().filter_map(|it| one(submitted, it)).collect())
}

fn one(submitted: &Submitted<'_>, config: &Config<'_>) -> Option<Finding> {
    let all = config.integer(&ALL)?;
    let micro = config.integer(&MICRO);
    let steps = config.integer(&STEPS);
    let each = match (micro, steps) {
        (Some(micro), Some(steps)) => micro.checked_mul(steps)?,
        // A value that is not given is computed and must be an integer.
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    let fits = |parts: u64| parts > 0 && all.is_multiple_of(parts);
    let product = match (micro, steps) {
        (Some(micro), Some(steps)) => format!("{micro} x {steps}"),
        _ => each.to_string(),
    };
    let finding = |message: String| {
        let mut finding = Finding::at(config.file, &config.span(&ALL).unwrap_or_default(), message);
        for path in [&MICRO, &STEPS] {
            if let Some(span) = config.integer(path).and_then(|_| config.span(path)) {
                finding = finding.also_at(&span, "");
            }
        }
        finding
    };
    if !fits(each) {
        return Some(finding(format!(
            "train_batch_size {all} is not a multiple of {product}, so no number of GPUs fits"
        )));
    }
    let size = submitted.only_job()?.size()?;
    let world = size.ranks();
    let whole = match (micro, steps) {
        (Some(_), Some(_)) => all / each == world,
        _ => fits(each.saturating_mul(world)),
    };
    if whole || world == 0 {
        return None;
    }
    let wanted = each.saturating_mul(world);
    let size = format!("{} nodes with {} GPUs are {world} ranks", size.nodes, size.gpus_per_node);
    let message = match (micro, steps) {
        (Some(_), Some(_)) => {
            format!("train_batch_size is {all}, but {size}: {product} x {world} = {wanted}")
        }
        _ => format!("train_batch_size {all} is not a multiple of {product} x {world} ranks ({size})"),
    };
    // Tensor or pipeline parallel ranks share a batch.
    let shared = world.is_multiple_of((all / each).max(1));
    let finding = finding(message).confidence(if shared { Confidence::Possible } else { Confidence::Likely });
    Some(if shared { finding.severity(Severity::Warning) } else { finding })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::deepspeed::config::testing::{beside, job};
    use crate::lint::testing::{findings, quiet};

    fn settings(all: u64, micro: u64, steps: u64) -> String {
        format!(
            "{{\"train_batch_size\": {all}, \"train_micro_batch_size_per_gpu\": {micro}, \"gradient_accumulation_steps\": {steps}}}"
        )
    }

    #[test]
    fn what_no_number_of_gpus_fits_is_found() {
        let found = findings(&RULE, &settings(100, 4, 4));
        assert_eq!(
            found[0].message,
            "train_batch_size 100 is not a multiple of 4 x 4, so no number of GPUs fits"
        );
        assert_eq!(found[0].evidence.len(), 3);
        quiet(&RULE, &settings(128, 4, 4));
        quiet(&RULE, "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 3}");
        quiet(&RULE, "{\"train_batch_size\": 32, \"steps_per_print\": 10}");
    }

    #[test]
    fn the_job_beside_tells_the_ranks() {
        let job = job(2, "p5.48xlarge");
        let found = beside(&RULE, &settings(512, 4, 4), &job);
        assert_eq!(
            found[0].message,
            "train_batch_size is 512, but 2 nodes with 8 GPUs are 16 ranks: 4 x 4 x 16 = 256"
        );
        assert!(beside(&RULE, &settings(256, 4, 4), &job).is_empty());
        assert_eq!(
            beside(&RULE, "{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 4}", &job).len(),
            1
        );
        assert!(
            beside(&RULE, "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 4}", &job)
                .is_empty()
        );
    }
}

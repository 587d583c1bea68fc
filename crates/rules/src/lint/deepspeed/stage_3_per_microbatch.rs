//! Parameters that cross a slow network for each of several micro-batches.

use fabric::Collective;
use job::submitted::{Submitted, SubmittedJob};

use super::config::{Config, REFERENCE, configs, time};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "stage-3-per-microbatch",
    title: "parameters gathered again for each micro-batch",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Stage 3 gathers the parameters in the forward and again in the backward pass and reduces the gradients, for every micro-batch: \
          gradient accumulation does not save network traffic as it does in stage 1. On a network that is slow for its GPUs this \
          dominates the step time.",
    fix: "Use a larger micro-batch and fewer accumulation steps; or stage 1 or 2 if the model fits; or gather inside a node only, with \
          `zero_hpz_partition_size` set to the number of its GPUs.",
    references: &[REFERENCE, "https://arxiv.org/abs/1910.02054", "https://arxiv.org/abs/2306.10209"],
    checks: &[Check::Submission(check)],
};

/// Gbit/s per GPU from which a network counts as fast: EFA of p5 and later has 400.
const FAST: f64 = 100.0;
/// The model size used for the number in the message.
const PARAMETERS: u64 = 8_000_000_000;

fn check(submitted: &Submitted<'_>) -> Checked {
    let Some(job) = submitted.only_job().filter(|it| slow(it)) else { return Ok(Vec::new()) };
    Ok(configs(submitted).iter().filter_map(|it| one(job, it)).collect())
}

fn slow(job: &SubmittedJob<'_>) -> bool {
    job.machine().is_some_and(|it| it.bandwidth.0 / f64::from(it.gpus.max(1)) < FAST)
}

fn one(job: &SubmittedJob<'_>, config: &Config<'_>) -> Option<Finding> {
    let nodes = job.node_count().filter(|it| *it > 1)?;
    let path = ["gradient_accumulation_steps"];
    let steps = config.integer(&path).filter(|it| *it > 1)?;
    let inside = config.integer(&["zero_optimization", "zero_hpz_partition_size"]).is_some_and(|it| it > 1);
    let span = config.span(&path).filter(|_| config.stage() == Some(3) && !inside)?;
    let bytes = PARAMETERS * 2;
    let gather = time(job, Collective::AllGather, bytes)?;
    let reduce = time(job, Collective::ReduceScatter, bytes)?;
    let seconds = (2.0 * gather + reduce) / 1e6;
    let name = job.machine().map(|it| it.name).unwrap_or_default();
    let message = format!(
        "stage 3 with {steps} accumulation steps on {nodes} x {name}: with 8 billion parameters, each of the {steps} micro-batches takes about {seconds:.1} s on the network"
    );
    let finding = Finding::at(config.file, &span, message).confidence(Confidence::Likely);
    let stage = config.span(&["zero_optimization", "stage"]);
    Some(stage.into_iter().fold(finding, |it, span| it.also_at(&span, "stage 3")))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::deepspeed::config::testing::{beside, job};
    use crate::lint::testing::quiet;

    #[test]
    fn accumulation_over_a_slow_network_is_told() {
        let text = "{\"zero_optimization\": {\"stage\": 3}, \"gradient_accumulation_steps\": 4}";
        let found = beside(&RULE, text, &job(4, "p4d.24xlarge"));
        assert!(found[0].message.starts_with("stage 3 with 4 accumulation steps on 4 x p4d.24xlarge"));
        assert!(beside(&RULE, text, &job(4, "p5.48xlarge")).is_empty());
        assert!(beside(&RULE, text, &job(1, "p4d.24xlarge")).is_empty());
        assert!(beside(&RULE, &text.replace('4', "1"), &job(4, "p4d.24xlarge")).is_empty());
        assert!(
            beside(&RULE, &text.replace("\"stage\": 3", "\"stage\": 2"), &job(4, "p4d.24xlarge")).is_empty()
        );
        quiet(&RULE, text);
    }
}

//! Buckets so small that latency dominates.

use fabric::Collective;
use job::submitted::Submitted;

use super::config::{Config, REFERENCE, configs, time};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "buckets-too-small",
    title: "buckets too small for the network",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Each bucket is one collective. Small buckets spend their time on latency and never reach the bandwidth of the network, which \
          takes tens of megabytes.",
    fix: "Keep the default bucket sizes (5e8 elements, 5e7 for prefetch), or use \"auto\" with the Trainer.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py",
    ],
    checks: &[Check::Submission(check)],
};

/// Setting, its default, and the smallest number of elements that is enough.
const BUCKETS: [(&str, f64, f64); 3] = [
    ("reduce_bucket_size", 5e8, 5e6),
    ("allgather_bucket_size", 5e8, 5e6),
    ("stage3_prefetch_bucket_size", 5e7, 1e6),
];
/// Bytes of an element in 16 bits.
const BYTES: f64 = 2.0;

fn check(submitted: &Submitted<'_>) -> Checked {
    let all = configs(submitted);
    Ok(all.iter().flat_map(|it| BUCKETS.iter().filter_map(|bucket| one(submitted, it, *bucket))).collect())
}

fn one(
    submitted: &Submitted<'_>,
    config: &Config<'_>,
    (name, default, enough): (&str, f64, f64),
) -> Option<Finding> {
    let path = ["zero_optimization", name];
    let stage = config.stage().filter(|it| *it > 0)?;
    // A prefetch of 0 turns it off; the other two belong to other stages.
    let elements = config.number(&path).filter(|it| *it > 0.0 && *it < enough)?;
    let applies = match name {
        "stage3_prefetch_bucket_size" => stage == 3,
        "allgather_bucket_size" => stage < 3,
        _ => true,
    };
    let span = config.span(&path).filter(|_| applies)?;
    let megabytes = elements * BYTES / 1e6;
    let mut message = format!("{name} is {elements:.0} elements, {megabytes:.2} MB in 16 bits");
    if let Some(share) = share(submitted, elements, default) {
        message
            .push_str(&format!("; the network reaches {share:.0}% of the bandwidth it has with the default"));
    }
    Some(Finding::at(config.file, &span, message).confidence(Confidence::Likely))
}

/// Percent of the default's bandwidth.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are bounded before")]
fn share(submitted: &Submitted<'_>, elements: f64, default: f64) -> Option<f64> {
    let job = submitted.only_job()?;
    let speed = |elements: f64| {
        let bytes = elements * BYTES;
        Some(bytes / time(job, Collective::ReduceScatter, bytes as u64)?)
    };
    let share = 100.0 * speed(elements)? / speed(default)?;
    share.is_finite().then_some(share)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::deepspeed::config::testing::{beside, job};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn small_buckets_are_told_with_their_cost() {
        let text = "{\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1e5}}";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "reduce_bucket_size is 100000 elements, 0.20 MB in 16 bits"
        );
        let found = beside(&RULE, text, &job(4, "p5.48xlarge"));
        assert!(found[0].message.contains("% of the bandwidth"), "{}", found[0].message);
    }

    #[test]
    fn usual_sizes_are_quiet() {
        for size in ["5e8", "2e8", "\"auto\"", "50000000", "0"] {
            quiet(
                &RULE,
                &format!("{{\"zero_optimization\": {{\"stage\": 2, \"reduce_bucket_size\": {size}}}}}"),
            );
        }
        quiet(&RULE, "{\"zero_optimization\": {\"stage\": 2, \"stage3_prefetch_bucket_size\": 1e4}}");
        quiet(&RULE, "{\"zero_optimization\": {\"stage\": 0, \"reduce_bucket_size\": 1e4}}");
    }
}

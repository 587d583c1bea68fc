//! Communication that does not overlap with computation.

use job::submitted::{Submitted, SubmittedJob};

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "overlap-comm-off",
    title: "communication does not overlap with the backward pass",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "With overlap_comm false the backward pass stops for each reduction of gradients: the time on the network is added to every \
          step instead of hidden behind computation. Overlap costs memory: 4.5 times the bucket size.",
    fix: "Set `overlap_comm` to true. If memory is short, make the buckets smaller first.",
    references: &[REFERENCE, "https://huggingface.co/docs/transformers/main/en/deepspeed"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let path = ["zero_optimization", "overlap_comm"];
    let mut findings = Vec::new();
    for config in configs(submitted) {
        let stage = config.stage().filter(|it| *it > 0);
        if let (Some(stage), Some(false), Some(span)) = (stage, config.bool(&path), config.span(&path)) {
            let message = format!("overlap_comm is off in stage {stage}");
            // Inside one node it costs little.
            let far = submitted.only_job().and_then(SubmittedJob::size).is_some_and(|it| it.nodes > 1);
            let confidence = if far { Confidence::Likely } else { Confidence::Possible };
            findings.push(Finding::at(config.file, &span, message).confidence(confidence));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn only_what_is_turned_off_is_told() {
        let text = "{\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false}}";
        assert_eq!(findings(&RULE, text)[0].message, "overlap_comm is off in stage 3");
        quiet(&RULE, &text.replace("false", "true"));
        quiet(&RULE, &text.replace('3', "0"));
        quiet(&RULE, "{\"zero_optimization\": {\"stage\": 3}}");
    }
}

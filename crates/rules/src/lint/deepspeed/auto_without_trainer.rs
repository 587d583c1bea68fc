//! `"auto"` where nothing fills it in.

use evidence::submission::{Launcher, Submission};
use job::submitted::Submitted;

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "auto-without-trainer",
    title: "\"auto\" without the Trainer or Accelerate to replace it",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "The Hugging Face Trainer and Accelerate replace \"auto\" with their own arguments. DeepSpeed itself does not know it and fails \
          with an error about the type of the value.",
    fix: "Write the values, or start training through the Trainer or Accelerate.",
    references: &["https://huggingface.co/docs/transformers/main/en/deepspeed", REFERENCE],
    checks: &[Check::Submission(check)],
};

/// Words in a command or script that show the Trainer or Accelerate in use.
const FILLERS: [&str; 12] = [
    "accelerate",
    "transformers",
    "trainer",
    "trl",
    "sft",
    "llamafactory",
    "llama_factory",
    "axolotl",
    "swift",
    "hf_",
    "huggingface",
    "finetune",
];

fn check(submitted: &Submitted<'_>) -> Checked {
    let starts = |it: &Submission| {
        it.launches.iter().any(|it| matches!(it.launcher, Launcher::DeepSpeed | Launcher::Torchrun))
    };
    let fills = |it: &Submission| {
        let text = it.text.to_ascii_lowercase();
        FILLERS.iter().any(|word| text.contains(word))
    };
    // Only with a launch command that names none of them.
    if !submitted.files.iter().any(starts) || submitted.files.iter().any(fills) {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    for config in configs(submitted) {
        let autos = config.autos();
        if let Some((name, span)) = autos.first() {
            let names = match autos.len() {
                1 => format!("{name} is"),
                n => format!("{name} and {} more are", n - 1),
            };
            let message =
                format!("{names} \"auto\", but the launch command names neither the Trainer nor Accelerate");
            findings.push(Finding::at(config.file, span, message).confidence(Confidence::Possible));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::deepspeed::config::testing::{beside, job};
    use crate::lint::testing::quiet;

    #[test]
    fn auto_beside_a_plain_launch_is_told() {
        let text = "{\"train_batch_size\": \"auto\", \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\"}}";
        let found = beside(&RULE, text, &job(2, "p5.48xlarge"));
        assert_eq!(
            found[0].message,
            "train_batch_size and 1 more are \"auto\", but the launch command names neither the Trainer nor Accelerate"
        );
        assert!(beside(&RULE, text, &job(2, "p5.48xlarge").replace("t.py", "run_trainer.py")).is_empty());
        assert!(beside(&RULE, &text.replace("\"auto\"", "8"), &job(2, "p5.48xlarge")).is_empty());
        quiet(&RULE, text);
    }
}

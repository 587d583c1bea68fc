//! DeepSpeed's configuration overrides the trainer's gradient accumulation.

use evidence::Source;
use evidence::signals::application::ACCUMULATION_MISMATCH;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gradient-accumulation-overridden",
    title: "the DeepSpeed file overrides the trainer's gradient accumulation",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The trainer and the DeepSpeed file name different gradient accumulation steps, and DeepSpeed's are used. The effective batch, \
          the learning rate that fits it, and how often gradients cross the network are not what the trainer's arguments say.",
    fix: "Set `\"gradient_accumulation_steps\": \"auto\"` in the DeepSpeed file, so that the trainer's value is used, or make both equal.",
    references: &["https://huggingface.co/docs/accelerate/usage_guides/deepspeed"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&ACCUMULATION_MISMATCH], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let (plugin, config) = (first.get("plugin"), first.get("config"));
    let message =
        format!("gradients are accumulated over {config} steps (DeepSpeed), not {plugin} (trainer)");
    Ok(vec![Finding::new(Confidence::Certain, message).seen(&first.quote)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn names_both_values() {
        let text = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, DeepSpeed config has 4. Using DeepSpeed's value.\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "gradients are accumulated over 4 steps (DeepSpeed), not 1 (trainer)"
        );
        quiet(&RULE, "  Gradient Accumulation steps = 4\n");
    }
}

//! Two formats of 16 bits at once.

use super::config::{REFERENCE, configs};
use crate::Severity;
use crate::lint::{Context, Flaw, LintRule};

/// See the module documentation.
pub(super) static RULE: LintRule = LintRule {
    id: "fp16-and-bf16",
    title: "fp16 and bf16 both enabled",
    severity: Severity::Error,
    why: "A model trains in one format. DeepSpeed ends at start with \"bfloat16 and fp16 modes cannot be simultaneously enabled\".",
    fix: "Set `fp16.enabled` to false on A100 and later, `bf16.enabled` to false on older GPUs.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py",
    ],
    check,
};

fn check(context: &Context<'_>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for config in configs(context) {
        let on = |name: &str| {
            config.span(&[name, "enabled"]).filter(|_| config.bool(&[name, "enabled"]) == Some(true))
        };
        let bf16 = on("bf16").or_else(|| on("bfloat16"));
        if let Some((fp16, bf16)) = on("fp16").zip(bf16) {
            let flaw = Flaw::new(config.file, &fp16, "fp16 and bf16 are both enabled").label("fp16");
            flaws.push(flaw.also(&bf16, "bf16"));
        }
    }
    flaws
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{flaws, quiet};

    #[test]
    fn one_format_is_enough() {
        let text = "{\"zero_optimization\": {\"stage\": 2},\n \"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}";
        let found = flaws(&RULE, text);
        assert_eq!((found[0].places[0].span.line, found[0].places[1].span.line), (2, 3));
        quiet(&RULE, &text.replacen("true", "false", 1));
        quiet(&RULE, &text.replacen("true", "\"auto\"", 2));
        quiet(&RULE, "kind: Pod\nspec: {containers: [{name: a}]}\n");
    }
}

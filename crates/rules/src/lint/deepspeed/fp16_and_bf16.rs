//! Two 16-bit formats at once.

use job::submitted::Submitted;

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "fp16-and-bf16",
    title: "fp16 and bf16 both enabled",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "A model trains in one format. DeepSpeed fails at start with \"bfloat16 and fp16 modes cannot be simultaneously enabled\".",
    fix: "Set `fp16.enabled` to false on A100 and later, `bf16.enabled` to false on older GPUs.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for config in configs(submitted) {
        let on = |name: &str| {
            config.span(&[name, "enabled"]).filter(|_| config.bool(&[name, "enabled"]) == Some(true))
        };
        let bf16 = on("bf16").or_else(|| on("bfloat16"));
        if let Some((fp16, bf16)) = on("fp16").zip(bf16) {
            let finding = Finding::at(config.file, &fp16, "fp16 and bf16 are both enabled").label("fp16");
            findings.push(finding.also_at(&bf16, "bf16"));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn one_format_is_enough() {
        let text = "{\"zero_optimization\": {\"stage\": 2},\n \"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}";
        let found = findings(&RULE, text);
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (2, 3));
        quiet(&RULE, &text.replacen("true", "false", 1));
        quiet(&RULE, &text.replacen("true", "\"auto\"", 2));
        quiet(&RULE, "kind: Pod\nspec: {containers: [{name: a}]}\n");
    }
}

//! Parameters offloaded where they are not partitioned.

use job::submitted::Submitted;

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "offload-below-stage-3",
    title: "parameters offloaded below stage 3",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "offload_param works with stage 3 only. In lower stages every GPU keeps all parameters, so no memory is freed.",
    fix: "Remove offload_param, or set stage 3.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let path = ["zero_optimization", "offload_param"];
    let mut findings = Vec::new();
    for config in configs(submitted) {
        let device = config.text(&["zero_optimization", "offload_param", "device"]);
        let used = device.is_some_and(|it| matches!(it, "cpu" | "nvme"));
        if let (Some(stage), Some(span), true) =
            (config.stage().filter(|it| *it < 3), config.key(&path), used)
        {
            let message = format!("offload_param has no effect in stage {stage}");
            let finding = Finding::at(config.file, &span, message);
            let stage = config.span(&["zero_optimization", "stage"]);
            findings.push(stage.into_iter().fold(finding, |it, span| it.also_at(&span, "")));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn only_stage_3_offloads_parameters() {
        let text = "{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}";
        assert_eq!(findings(&RULE, text)[0].message, "offload_param has no effect in stage 2");
        quiet(&RULE, &text.replace('2', "3"));
        quiet(&RULE, &text.replace("cpu", "none"));
        quiet(&RULE, &text.replace("_param", "_optimizer"));
    }
}

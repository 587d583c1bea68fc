//! Parameters offloaded where they are not partitioned.

use super::config::{REFERENCE, configs};
use crate::Severity;
use crate::lint::{Context, Flaw, LintRule};

/// See the module documentation.
pub(super) static RULE: LintRule = LintRule {
    id: "offload-below-stage-3",
    title: "parameters offloaded below stage 3",
    severity: Severity::Warning,
    why: "offload_param is valid with stage 3 only: below it every GPU keeps all parameters, and the memory that was meant to be freed \
          is not.",
    fix: "Take offload_param out, or set stage 3.",
    references: &[
        REFERENCE,
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py",
    ],
    check,
};

fn check(context: &Context<'_>) -> Vec<Flaw> {
    let path = ["zero_optimization", "offload_param"];
    let mut flaws = Vec::new();
    for config in configs(context) {
        let device = config.text(&["zero_optimization", "offload_param", "device"]);
        let used = device.is_some_and(|it| matches!(it, "cpu" | "nvme"));
        if let (Some(stage), Some(span), true) =
            (config.stage().filter(|it| *it < 3), config.key(&path), used)
        {
            let message = format!("offload_param has no effect in stage {stage}");
            let flaw = Flaw::new(config.file, &span, message);
            let stage = config.span(&["zero_optimization", "stage"]);
            flaws.push(stage.into_iter().fold(flaw, |it, span| it.also(&span, "")));
        }
    }
    flaws
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{flaws, quiet};

    #[test]
    fn only_stage_3_offloads_parameters() {
        let text = "{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}";
        assert_eq!(flaws(&RULE, text)[0].message, "offload_param has no effect in stage 2");
        quiet(&RULE, &text.replace('2', "3"));
        quiet(&RULE, &text.replace("cpu", "none"));
        quiet(&RULE, &text.replace("_param", "_optimizer"));
    }
}

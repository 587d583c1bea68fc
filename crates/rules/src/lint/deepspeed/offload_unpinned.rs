//! Offload to host memory that is not pinned.

use job::submitted::Submitted;

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "offload-unpinned",
    title: "offload to host memory that is not pinned",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "A GPU copies to and from host memory directly only if that memory is pinned. Otherwise the driver copies every piece once \
          more, and the copy does not overlap with computation.",
    fix: "Add `\"pin_memory\": true` next to \"device\", if the host has memory to spare.",
    references: &[REFERENCE],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for config in configs(submitted) {
        for name in ["offload_optimizer", "offload_param"] {
            let of = |last: &'static str| ["zero_optimization", name, last];
            let pinned = config.bool(&of("pin_memory")).unwrap_or(false);
            if config.text(&of("device")) != Some("cpu") || pinned {
                continue;
            }
            let place = config.span(&of("pin_memory")).or_else(|| config.span(&of("device")));
            let message = format!("{name} copies to host memory that is not pinned");
            let finding = Finding::at(config.file, &place.unwrap_or_default(), message);
            findings.push(finding.confidence(Confidence::Likely));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn pinned_memory_is_quiet() {
        let text = "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": false}}}";
        let found = findings(&RULE, text);
        assert_eq!(found[0].message, "offload_param copies to host memory that is not pinned");
        assert_eq!(&text[found[0].evidence[0].at().range.clone()], "\"pin_memory\": false");
        quiet(&RULE, &text.replace("false", "true"));
        quiet(&RULE, &text.replace("cpu", "none"));
        assert_eq!(findings(&RULE, &text.replace(", \"pin_memory\": false", "")).len(), 1);
    }
}

//! Algorithm or protocol set by a variable.

use fabric::Version;
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "forced-choice",
    title: "NCCL's algorithm or protocol set by hand",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "NCCL and the plugin's tuner choose by size, number of nodes and topology. A fixed list is right for one size at best, and \
          stays when the hardware changes.",
    fix: "Remove it, unless it works around a known bug.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-algo",
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables_named(&["NCCL_ALGO", "NCCL_PROTO"]).filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    if value.is_empty() {
        return None;
    }
    let new = |message: String| {
        Finding::at(variable.file, &variable.setting.span, message).fix(format!("Remove {name}."))
    };
    let plugin = variable.releases().plugin;
    // The types that the plugin's tuner knows are those with LL and LL128 over EFA.
    if variable.is_about_efa() && variable.everywhere(|it| it.instance.is_some_and(|it| it.ofi_tuner)) {
        if let Some(plugin) = plugin.filter(|it| *it < Version::new(1, 20, 0)) {
            let message =
                format!("{name}={value}{}: it can crash the tuner of aws-ofi-nccl {plugin}", variable.on());
            return Some(new(message).severity(Severity::Warning));
        }
        if name == "NCCL_PROTO" && value.eq_ignore_ascii_case("simple") {
            let finding = new(format!("{name}={value} disables LL and LL128{}", variable.on()));
            return Some(if plugin.is_some() { finding.severity(Severity::Warning) } else { finding });
        }
    }
    if name == "NCCL_PROTO" && value.eq_ignore_ascii_case("simple") && variable.is_about_efa() {
        if plugin.is_some_and(|it| it < Version::new(1, 6, 0)) {
            return None;
        }
        let reason = "aws-ofi-nccl 1.6.0 and newer set it where it is needed";
        return Some(new(format!("{name}={value}: {reason}")).reason(reason));
    }
    Some(new(format!("{name}={value} overrides NCCL's choice")))
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::RULE;
    use crate::Severity;
    use crate::lint::Given;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, findings_given, quiet};

    #[test]
    fn the_release_of_the_plugin_decides() {
        let text = job("p5.48xlarge", 2, &[("NCCL_PROTO", "simple")]);
        let given = |minor| Given { plugin: Some(Version::new(1, minor, 0)), ..Given::default() };
        assert!(findings_given(&RULE, &text, &given(16))[0].message.contains("can crash"));
        let newer = findings_given(&RULE, &text, &given(20));
        assert!(newer[0].message.contains("LL128") && newer[0].severity == Some(Severity::Warning));
        assert_eq!(findings(&RULE, &text)[0].severity, None);
        let old = job("p4d.24xlarge", 2, &[("NCCL_PROTO", "simple")]);
        assert!(findings_given(&RULE, &old, &given(5)).is_empty());
    }

    #[test]
    fn it_is_worth_knowing_elsewhere() {
        assert_eq!(
            findings(&RULE, &pod(&[("NCCL_ALGO", "Ring")]))[0].message,
            "NCCL_ALGO=Ring overrides NCCL's choice"
        );
        quiet(&RULE, &pod(&[("NCCL_ALGO", ""), ("NCCL_DEBUG", "INFO")]));
    }
}

//! A variable selects TCP although EFA is available.

use fabric::catalogue::Model;
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "tcp-forced",
    title: "a variable that selects TCP instead of EFA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "All traffic between nodes uses TCP sockets of one interface, and the EFA interfaces are idle.",
    fix: "Remove the variable: with the plugin in the image, NCCL uses EFA by default.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net",
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&["NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER"])
        .filter_map(|it| finding(&it))
        .collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let tcp = match name {
        "NCCL_NET" => value.eq_ignore_ascii_case("Socket"),
        "NCCL_NET_PLUGIN" => value == "none",
        // A list without EFA, or one that excludes it.
        _ => {
            let out = value.strip_prefix('^');
            let has = |list: &str| list.split([',', ';']).any(|it| it.trim().starts_with("efa"));
            !value.is_empty() && out.map_or_else(|| !has(value), has)
        }
    };
    if !tcp || !(variable.has_efa() || variable.everywhere(Model::efa)) {
        return None;
    }
    if variable.several_nodes() == Some(false) {
        return None;
    }
    let message = format!("{name}={value} keeps NCCL from using EFA{}", variable.on());
    let finding = Finding::at(variable.file, &variable.setting.span, message).fix(format!("Remove {name}."));
    // Without the resource the pod has no EFA; another rule reports that.
    Some(if variable.has_efa() { finding } else { finding.severity(Severity::Warning) })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn sockets_beside_efa_are_an_error() {
        for env in [
            ("NCCL_NET", "Socket"),
            ("NCCL_NET_PLUGIN", "none"),
            ("FI_PROVIDER", "tcp"),
            ("FI_PROVIDER", "^efa"),
        ] {
            let found = findings(&RULE, &job("p5.48xlarge", 2, &[env]));
            assert_eq!(
                found[0].message,
                format!("{}={} keeps NCCL from using EFA on p5.48xlarge", env.0, env.1)
            );
        }
    }

    #[test]
    fn efa_itself_and_jobs_without_it_are_left_alone() {
        quiet(
            &RULE,
            &job(
                "p5.48xlarge",
                2,
                &[("FI_PROVIDER", "efa"), ("NCCL_NET", "AWS Libfabric"), ("NCCL_NET_PLUGIN", "ofi")],
            ),
        );
        quiet(&RULE, &job("p5.48xlarge", 2, &[("FI_PROVIDER", "${FI_PROVIDER}")]));
        quiet(&RULE, &job("p5.48xlarge", 1, &[("NCCL_NET", "Socket")]));
        quiet(&RULE, &pod(&[("NCCL_NET", "Socket")]));
    }
}

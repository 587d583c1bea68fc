//! An interface list that includes the loopback interface.

use job::submitted::{Submitted, SubmittedVariable};

use crate::sentence::capitalised;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "loopback-interface",
    title: "an interface list that includes lo",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Ranks then advertise 127.0.0.1 as their address, and ranks on other nodes cannot reach them.",
    fix: "Write ^lo,docker or the name of the interface.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
        .filter_map(|it| finding(&it))
        .collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let several = variable.several_nodes();
    if value.is_empty() || several == Some(false) {
        return None;
    }
    let span = variable.setting.value_span.as_ref()?;
    if let Some(list) = value.strip_prefix('^') {
        // Gloo takes one name and does not support ^.
        if name != "NCCL_SOCKET_IFNAME" {
            return None;
        }
        let exact = list.starts_with('=');
        let out = list.trim_start_matches('=').split(',').map(str::trim);
        let excluded = |it: &str| it == "lo" || (!exact && !it.is_empty() && "lo".starts_with(it));
        if out.into_iter().any(excluded) {
            return None;
        }
        let message =
            format!("{name}={value} includes lo: with a custom list NCCL does not exclude it by default");
        let finding = Finding::at(variable.file, span, message)
            .label("lo is not excluded")
            .confidence(Confidence::Likely)
            .fix(format!("Write ^lo,{list}."))
            .instead(format!("^lo,{list}"));
        let severity = if several == Some(true) { Severity::Warning } else { Severity::Info };
        return Some(finding.severity(severity));
    }
    let list = value.trim_start_matches('=');
    if !list.split(',').all(|it| it.trim() == "lo") {
        return None;
    }
    let reason = "ranks on other nodes cannot be reached over lo";
    let finding = Finding::at(variable.file, span, format!("{name}={value}: {reason}"))
        .reason(capitalised(reason))
        .label("local machine only")
        .instead("^lo,docker");
    Some(if several == Some(true) {
        finding
    } else {
        finding.severity(Severity::Info).confidence(Confidence::Possible)
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_list_without_lo_lets_it_in() {
        let found = findings(&RULE, &job("p5.48xlarge", 2, &[("NCCL_SOCKET_IFNAME", "^docker0")]));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        assert_eq!(found[0].fix.as_deref(), Some("Write ^lo,docker0."));
        assert_eq!(
            findings(&RULE, &pod(&[("NCCL_SOCKET_IFNAME", "^docker0")]))[0].severity,
            Some(Severity::Info)
        );
        let found = findings(&RULE, &job("p5.48xlarge", 2, &[("NCCL_SOCKET_IFNAME", "lo")]));
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn other_lists_and_one_node_are_left_alone() {
        for value in ["^lo,docker", "^docker,lo,veth", "^lo", "eth0", "=eth0", "en,eth", "^l"] {
            quiet(&RULE, &job("p5.48xlarge", 2, &[("NCCL_SOCKET_IFNAME", value)]));
        }
        quiet(&RULE, &job("p5.48xlarge", 1, &[("NCCL_SOCKET_IFNAME", "lo")]));
    }

    #[test]
    fn nodes_are_counted_in_scripts_too() {
        let text = "#!/bin/bash\n#SBATCH --nodes=4\nexport NCCL_SOCKET_IFNAME=^docker0\nsrun train\n";
        assert_eq!(findings(&RULE, text)[0].severity, Some(Severity::Warning));
        quiet(&RULE, &text.replace("=4", "=1"));
    }
}

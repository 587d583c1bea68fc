//! `NCCL_TOPO_FILE` set to nothing.

use fabric::catalogue::Model;
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "topology-dropped",
    title: "an empty NCCL_TOPO_FILE",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "The plugin treats an empty value as set and silently does not give NCCL the topology of the instance type. NCCL then guesses \
          which GPU is near which NIC.",
    fix: "Remove NCCL_TOPO_FILE: unset and empty are not the same.",
    references: &["https://github.com/aws/aws-ofi-nccl/blob/master/src/platform-aws.cpp"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&["NCCL_TOPO_FILE"])
        .filter(|it| it.value() == Some(""))
        .map(|it| {
            let message = format!("NCCL_TOPO_FILE is set to an empty value{}", it.on());
            let finding = Finding::at(it.file, &it.setting.span, message).label("empty is not unset");
            let finding = match it.removal() {
                Some(range) => finding.edit(range, ""),
                None => finding,
            };
            // The plugin provides a file for p4d, p4de and g5.48xlarge, and generates one where it groups NICs.
            let given = |it: &Model| {
                it.instance.is_some_and(|it| it.ofi_topo_file.is_some())
                    || (it.groups_nics() && it.nics > it.gpus)
            };
            if it.everywhere(given) {
                finding.severity(Severity::Error)
            } else if it.everywhere(|it| !given(it)) {
                finding.severity(Severity::Info)
            } else {
                finding
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, fixed, quiet};

    #[test]
    fn nothing_is_removed_with_its_line() {
        let text = job("p4d.24xlarge", 2, &[("A", "1"), ("NCCL_TOPO_FILE", ""), ("B", "2")]);
        let found = findings(&RULE, &text);
        assert_eq!(found[0].message, "NCCL_TOPO_FILE is set to an empty value on p4d.24xlarge");
        assert_eq!(found[0].severity, Some(Severity::Error));
        let text = text.replace("value: \"1\"", "value: \"1\" # keep");
        let after = fixed(&RULE, &text);
        assert_eq!(after, text.replace("        - name: NCCL_TOPO_FILE\n          value: \"\"\n", ""));
        assert!(after.contains("# keep"));
    }

    #[test]
    fn the_type_decides_how_bad_it_is() {
        assert_eq!(
            findings(&RULE, &job("g6e.48xlarge", 2, &[("NCCL_TOPO_FILE", "")]))[0].severity,
            Some(Severity::Info)
        );
        assert_eq!(findings(&RULE, &pod(&[("NCCL_TOPO_FILE", "")]))[0].severity, None);
    }

    #[test]
    fn a_file_is_left_alone() {
        quiet(&RULE, &job("p4d.24xlarge", 2, &[("NCCL_TOPO_FILE", "/opt/topo.xml")]));
        quiet(&RULE, &job("p4d.24xlarge", 2, &[("NCCL_GRAPH_FILE", "")]));
    }
}

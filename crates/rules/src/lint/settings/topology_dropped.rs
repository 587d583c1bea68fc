//! `NCCL_TOPO_FILE` set to nothing.

use super::place;
use crate::Severity;
use crate::lint::{Context, Flaw, LintRule};

/// See the module documentation.
pub(super) static RULE: LintRule = LintRule {
    id: "topology-dropped",
    title: "an empty NCCL_TOPO_FILE",
    severity: Severity::Warning,
    why: "For the plugin an empty value is a value: it does not give NCCL the topology of the instance type, without a word. \
          NCCL then guesses which GPU is near which NIC.",
    fix: "Remove NCCL_TOPO_FILE: unset and empty are not the same.",
    references: &["https://github.com/aws/aws-ofi-nccl/blob/master/src/platform-aws.cpp"],
    check,
};

fn check(context: &Context<'_>) -> Vec<Flaw> {
    place::named(context, &["NCCL_TOPO_FILE"])
        .filter(|it| it.value() == Some(""))
        .map(|it| {
            let message = format!("NCCL_TOPO_FILE is set, to nothing{}", it.on());
            let flaw = Flaw::new(it.file, &it.setting.span, message).label("empty is not unset");
            let flaw = match it.removal() {
                Some(range) => flaw.edit(range, ""),
                None => flaw,
            };
            // The plugin hands one out for p4d, p4de and g5.48xlarge, and writes one where it bundles NICs.
            let given = |it: &fabric::instance::Instance| {
                it.ofi_topo_file.is_some()
                    || (it.ofi_protocol.as_deref() == Some("RDMA") && it.nics > it.gpus)
            };
            if it.everywhere(given) {
                flaw.severity(Severity::Error)
            } else if it.everywhere(|it| !given(it)) {
                flaw.severity(Severity::Info)
            } else {
                flaw
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{fixed, flaws, quiet};

    #[test]
    fn nothing_is_removed_with_its_line() {
        let text = job("p4d.24xlarge", 2, &[("A", "1"), ("NCCL_TOPO_FILE", ""), ("B", "2")]);
        let found = flaws(&RULE, &text);
        assert_eq!(found[0].message, "NCCL_TOPO_FILE is set, to nothing on p4d.24xlarge");
        assert_eq!(found[0].severity, Some(Severity::Error));
        let text = text.replace("value: \"1\"", "value: \"1\" # keep");
        let after = fixed(&RULE, &text);
        assert_eq!(after, text.replace("        - name: NCCL_TOPO_FILE\n          value: \"\"\n", ""));
        assert!(after.contains("# keep"));
    }

    #[test]
    fn the_type_decides_how_bad_it_is() {
        assert_eq!(
            flaws(&RULE, &job("g6e.48xlarge", 2, &[("NCCL_TOPO_FILE", "")]))[0].severity,
            Some(Severity::Info)
        );
        assert_eq!(flaws(&RULE, &pod(&[("NCCL_TOPO_FILE", "")]))[0].severity, None);
    }

    #[test]
    fn a_file_is_left_alone() {
        quiet(&RULE, &job("p4d.24xlarge", 2, &[("NCCL_TOPO_FILE", "/opt/topo.xml")]));
        quiet(&RULE, &job("p4d.24xlarge", 2, &[("NCCL_GRAPH_FILE", "")]));
    }
}

//! An empty `NCCL_TOPO_FILE` stops the plugin from providing its topology.

use evidence::signals::topology_file::FILE_GIVEN;
use evidence::{Missing, Quote, Source};
use job::{Setter, Variable};

use crate::efa::machine;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "topo-file-emptied",
    title: "NCCL_TOPO_FILE is set but empty",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::JobOutput, Source::Instance],
    why: "An empty variable counts as set: aws-ofi-nccl then does not give NCCL the topology of the machine. NCCL cannot see the PCIe \
          switches of a virtual machine by itself, and pairs GPUs with distant NICs.",
    fix: "Remove `NCCL_TOPO_FILE` from the environment or the manifest altogether; do not set it to \"\".",
    references: &[
        "aws-ofi-nccl src/platform-aws.cpp",
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&FILE_GIVEN], Source::JobOutput);
    let mut assigned = log.job.settings.named("NCCL_TOPO_FILE");
    let written =
        assigned.find(|it| it.setter == Setter::Submission && it.text().is_empty()).and_then(Variable::quote);
    let logged =
        found.iter().flatten().find(|it| it.get("file").trim_end_matches('.').is_empty()).map(|it| &it.quote);
    let Some(quote): Option<&Quote> = logged.or(written) else { return found.map(|_| Vec::new()) };
    let (machine, named) = machine(log).ok_or(Missing(Source::Instance))?;
    // Only where the plugin has a file, or makes one, is something lost.
    let gives_one = machine.ofi_topo_file.is_some() || machine.ofi_protocol.as_deref() == Some("RDMA");
    if !gives_one {
        return Ok(Vec::new());
    }
    let message = format!(
        "NCCL_TOPO_FILE is set to an empty value, so NCCL does not get the plugin's topology of {}",
        machine.name
    );
    Ok(vec![
        Finding::new(Confidence::Certain, message)
            .seen(quote)
            .seen_all(named)
            .about_variable("NCCL_TOPO_FILE"),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn log(machine: &str, file: &str) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Running on {machine} platform, NCCL_TOPO_FILE environment variable is already set to {file}\n"
        )
    }

    #[test]
    fn fires_when_it_is_empty() {
        let found = findings(&RULE, &log("p4d.24xlarge", ""));
        assert_eq!(
            found[0].message,
            "NCCL_TOPO_FILE is set to an empty value, so NCCL does not get the plugin's topology of p4d.24xlarge"
        );
    }

    #[test]
    fn fires_when_a_manifest_sets_it_empty() {
        let manifest = "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector:\n    node.kubernetes.io/instance-type: p4d.24xlarge\n\
                        \x20 containers:\n  - env:\n    - name: NCCL_TOPO_FILE\n      value: \"\"\n";
        assert_eq!(findings(&RULE, manifest).len(), 1);
        quiet(&RULE, &manifest.replace("\"\"", "/x.xml"));
    }

    #[test]
    fn quiet_with_a_file_and_where_there_is_none_to_give() {
        quiet(&RULE, &log("p4d.24xlarge", "/opt/p4d.xml"));
        quiet(&RULE, &log("g6e.48xlarge", ""));
    }
}

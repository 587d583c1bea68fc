//! NCCL has no topology file where it needs one.

use evidence::Source;
use evidence::signals::topology_file::{FILE_NOT_OPENED, NO_PATH};

use crate::efa::{efa_in_use, machine, providers};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "topo-file-missing",
    title: "the topology file is missing",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "On a virtual machine NCCL does not see which GPU and which NIC share a PCIe switch. Without a file that describes it, NCCL uses \
          few channels, distant NICs and no GPUDirect.",
    fix: "Set NCCL_TOPO_FILE to a file that exists inside the container, or unset it. On p4d, p4de and g5.48xlarge use the AWS build of \
          aws-ofi-nccl with its xml folder (/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml): it sets the variable itself; on p5 and later it \
          creates the topology at run time.",
    references: &["https://github.com/aws/aws-ofi-nccl/issues/64", "NCCL src/graph/xml.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&FILE_NOT_OPENED, &NO_PATH], Source::JobOutput)?;
    let unopened: Vec<_> = found.iter().copied().filter(|it| *it.signal == FILE_NOT_OPENED).collect();
    if let Some(first) = unopened.first() {
        let file = first.get("file");
        // NCCL tries the default path of a hypervisor's file on every machine.
        let named =
            log.job.settings.named("NCCL_TOPO_FILE").next().is_some() || !file.contains("nvidia-topologyd");
        if !named || file.is_empty() {
            return Ok(Vec::new());
        }
        let message = format!(
            "the topology file {file} cannot be opened ({}); NCCL continues without it",
            first.get("reason")
        );
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &unopened).about_file(file)]);
    }
    // EFA in use, no line about a topology, and a search that failed: NCCL does not know the machine's topology.
    let known = log
        .case
        .processes
        .iter()
        .any(|it| !it.facts.plugin.topology_file.is_empty() || !it.facts.topology_file.is_empty())
        || log.job.settings.named("NCCL_TOPO_FILE").next().is_some();
    let expected = machine(log).is_none_or(|it| it.0.ofi_topo_file.is_some());
    if found.is_empty() || known || !efa_in_use(log) || !expected {
        return Ok(Vec::new());
    }
    let message = "NCCL found no path for its rings, and nothing provided the topology of this EFA machine";
    let provider = providers(log).next().map(|it| it.1);
    let finding = Finding::new(Confidence::Likely, message)
        .severity(Severity::Error)
        .by(log, &found)
        .seen_all(provider);
    Ok(vec![finding.or("vm-no-topology")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const NO_PATH: &str = "a:9:9 [4] graph/search.cc:765 NCCL WARN Could not find a path for pattern 4, falling back to simple order\n";

    #[test]
    fn fires_when_the_file_cannot_be_opened() {
        let log = "a:1:2 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /opt/topo/x.xml\n\
                   a:1:2 [0] NCCL INFO Could not open XML topology file /opt/topo/x.xml : No such file or directory\n";
        let found = findings(&RULE, log);
        assert_eq!(
            found[0].message,
            "the topology file /opt/topo/x.xml cannot be opened (No such file or directory); NCCL continues without it"
        );
    }

    #[test]
    fn fires_on_efa_without_a_topology() {
        let log = format!(
            "a:9:9 [4] NCCL INFO NET/OFI Selected Provider is efa\na:9:9 [4] NCCL INFO Using network AWS Libfabric\n{NO_PATH}"
        );
        assert_eq!(findings(&RULE, &log).len(), 1);
    }

    #[test]
    fn quiet_with_a_topology_and_without_efa() {
        quiet(
            &RULE,
            &format!(
                "a:9:9 [4] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n\
                 a:9:9 [4] NCCL INFO Using network Libfabric\n{NO_PATH}"
            ),
        );
        quiet(&RULE, NO_PATH);
    }
}

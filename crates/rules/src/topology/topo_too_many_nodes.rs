//! The machine has more devices than NCCL's topology can hold.

use evidence::Source;
use evidence::signals::topology_file::TOO_MANY;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "topo-too-many-nodes",
    title: "the topology has too many nodes for NCCL",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL keeps the PCI devices, GPUs and NICs of a node in tables of fixed size (256 XML nodes). Machines with many NICs, or local \
          ranks whose views differ, overflow them, and the setup fails.",
    fix: "Use a newer NCCL, and an aws-ofi-nccl that creates the topology itself. Until then give every rank the same short NCCL_TOPO_FILE \
          (only `<cpu>` and `<pci>` of GPUs and NICs), and make sure that all local ranks see the same devices.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/2160",
        "https://github.com/NVIDIA/nccl/pull/2386",
        "NCCL src/graph/xml.h",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&TOO_MANY], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = match first.get("max") {
        "" => "NCCL's topology cannot hold all devices of one kind".to_owned(),
        max => format!("the machine's topology needs more than the {max} entries that NCCL has for it"),
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_every_form() {
        let log = "a:1:2 [0] graph/xml.h:350 NCCL WARN Error : too many XML nodes (max 256)\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "the machine's topology needs more than the 256 entries that NCCL has for it"
        );
        for text in [
            "Error : XML parser is limited to 1024 nodes\n",
            "a:1:2 [0] x.cc:1 NCCL WARN Error : tried to create too many nodes of type 3\n",
        ] {
            assert_eq!(findings(&RULE, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn quiet_otherwise() {
        quiet(
            &RULE,
            "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 300 nNodes 300 localRanks 1 localRank 0 MNNVL 0\n",
        );
    }
}

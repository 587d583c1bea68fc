//! A virtual machine hides which devices share a switch.

use evidence::plain::{TopologyMatrix, TopologyXml};
use evidence::signals::topology_file::{NO_PATH, VIRTUAL_MACHINE};
use evidence::{Missing, Source};

use crate::efa::efa_in_use;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "vm-no-topology",
    title: "the virtual machine shows no PCIe topology",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::TopologyXml],
    why: "NCCL decides on peer to peer and GPUDirect by the PCIe tree and the NUMA nodes. If the hypervisor attaches every device directly \
          to one CPU, NCCL sees no path shorter than through the CPU: no peer to peer, no GPUDirect, few channels.",
    fix: "Let the hypervisor pass the PCIe switches through (or emulate them) with NUMA nodes, or dump the topology on the host \
          (NCCL_TOPO_DUMP_FILE), keep its `<cpu>` and `<pci>` tags with the bus ids of the guest, and give it as NCCL_TOPO_FILE. NVSwitch \
          machines need the switches or a fabric partition in the guest as well.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1329",
        "https://github.com/NVIDIA/nccl/issues/1843",
        "https://github.com/NVIDIA/nccl-tests/issues/86",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    if let Some(finding) = log.case.xml.iter().find_map(flat) {
        return Ok(vec![finding]);
    }
    let virtual_machine = log.case.sightings_of(&VIRTUAL_MACHINE).next();
    if let Some((machine, matrix)) = virtual_machine.zip(log.case.matrices.iter().find(|it| through_cpu(it)))
    {
        let message =
            format!("{} GPUs of a virtual machine reach each other only through the CPU", matrix.n_gpus());
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(&matrix.quote).seen(&machine.quote)]);
    }
    // Old releases warn about it; newer ones try patterns that need not exist, and report that at level INFO.
    let no_path: Vec<_> = log.case.sightings_of(&NO_PATH).filter(|it| it.warning).collect();
    if !no_path.is_empty() && !efa_in_use(log) {
        let message =
            "NCCL found no path for its rings, as happens when a virtual machine hides the PCIe topology";
        return Ok(vec![Finding::new(Confidence::Possible, message).by(log, &no_path)]);
    }
    if log.case.xml.is_empty() && log.case.matrices.is_empty() {
        Err(Missing(Source::TopologyXml))
    } else {
        Ok(Vec::new())
    }
}

/// A topology without link widths or NUMA nodes.
fn flat(xml: &TopologyXml) -> Option<Finding> {
    if xml.gpus.len() < 2 {
        return None;
    }
    let without_width = xml.pci > 0 && xml.pci_without_link == xml.pci;
    let without_numa = xml.cpus_without_numa > 0;
    // Many GPUs without a switch between them and without a NUMA node are not a desktop.
    let without_switch = xml.gpus.len() > 3 && xml.pci <= xml.gpus.len() + xml.nets.len();
    // A desktop has no NUMA node either; a device without a width is never real.
    let confidence = match (without_width, without_numa) {
        (true, true) => Confidence::Likely,
        (true, false) => Confidence::Possible,
        (false, true) if without_switch => Confidence::Possible,
        (false, _) => return None,
    };
    let missing: Vec<&str> = [
        (without_width, "no PCIe link widths"),
        (without_numa, "no NUMA nodes"),
        (without_switch, "no PCIe switches"),
        (xml.nvlinks == 0, "no NVLink"),
    ]
    .into_iter()
    .filter_map(|it| it.0.then_some(it.1))
    .collect();
    let message = format!(
        "the topology of {} GPUs has {}: the machine hides its PCIe tree",
        xml.gpus.len(),
        missing.join(", ")
    );
    Some(Finding::new(confidence, message).seen_all(&xml.quote))
}

/// Whether no two GPUs share a switch or NVLink.
fn through_cpu(matrix: &TopologyMatrix) -> bool {
    matrix.n_gpus() > 1 && matrix.gpu_paths().all(|it| matches!(it.path, "PHB" | "NODE" | "SYS"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet, read};

    fn xml(numa: &str, width: &str) -> String {
        format!(
            "<system version=\"1\">\n<cpu numaid=\"{numa}\" arch=\"x86_64\">\n\
             <pci busid=\"0000:00:09.0\" class=\"0x030200\" link_speed=\"\" link_width=\"{width}\">\n<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/>\n</pci>\n\
             <pci busid=\"0000:00:0a.0\" class=\"0x030200\" link_speed=\"\" link_width=\"{width}\">\n<gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\"/>\n</pci>\n</cpu>\n</system>\n"
        )
    }

    #[test]
    fn fires_on_a_flat_topology() {
        let found = findings(&RULE, &xml("-1", "0"));
        assert_eq!(
            found[0].message,
            "the topology of 2 GPUs has no PCIe link widths, no NUMA nodes, no NVLink: the machine hides its PCIe tree"
        );
    }

    #[test]
    fn a_desktop_without_numa_is_real() {
        quiet(&RULE, &xml("-1", "16"));
        quiet(&RULE, &xml("0", "16"));
    }

    #[test]
    fn a_log_alone_cannot_show_it() {
        assert!(crate::testing::check(&RULE, &read("a:1:2 [0] NCCL INFO Using network Socket\n")).is_err());
    }
}

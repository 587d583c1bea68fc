//! Access Control Services or an IOMMU between devices.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{count, list};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-pci-redirected",
    title: "traffic between GPUs and NICs is redirected through the CPU",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Devices, Source::PciConfiguration],
    why: "With Access Control Services on, PCI switches send what one device writes to another up to the CPU and down again. That halves the \
          bandwidth of GPUDirect, and can hang NCCL's peer access.",
    fix: "On bare metal, switch ACS off in the firmware's settings, or with `setpci -s BRIDGE ECAP_ACS+0x6.w=0000` at every boot, and the IOMMU off or \
          to pass-through (`iommu=pt`). In a virtual machine ACS must stay on; there ATS on the NIC helps.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let Some(bridges) = state.pci.bridges else { return Err(Missing(Source::Devices)) };
    let virtual_machine = state.system.virtual_machine == Some(true);
    if count(state) == 0 || bridges == 0 || virtual_machine {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let kinds = state.pci.iommu.as_deref().unwrap_or_default();
    if kinds.iter().any(|it| it.starts_with("DMA")) {
        let message =
            format!("the IOMMU translates addresses of devices (groups of type {})", list(kinds, 3));
        let finding = Finding::new(Confidence::Possible, message).severity(Severity::Info);
        found.push(finding.fix("Unless it is wanted, `iommu=pt` on the kernel's command line."));
    }
    let Some(acs) = &state.pci.acs else {
        return if found.is_empty() { Err(Missing(Source::PciConfiguration)) } else { Ok(found) };
    };
    if !acs.is_empty() {
        let message = format!(
            "ACS redirects traffic at {} of {bridges} bridges above GPUs and NICs ({})",
            acs.len(),
            list(acs, 3)
        );
        found.push(Finding::new(Confidence::Certain, message));
    }
    Ok(found)
}

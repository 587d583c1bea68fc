//! PCIe access control diverts GPUDirect traffic.

use evidence::Source;
use evidence::signals::p2p::{ACS_CONTROL, ACS_HINT, IB_LOCAL_PROTECTION};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "acs-breaks-gdr",
    title: "PCIe access control breaks GPUDirect RDMA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The HCA could not reach the memory of a transfer (completion status 4, a local protection error), usually in the first transfer. With \
          GPUDirect the usual cause is ACS: the PCIe switches send requests between HCA and GPU up to the root complex, where they are \
          refused or altered.",
    fix: "Run once with NCCL_NET_GDR_LEVEL=0 (NCCL_NET_GDR_LEVEL=LOC): if the error is gone, GPUDirect is the cause. Then turn ACS off on \
          all bridges: `lspci -vvv | grep ACSCtl` must show `SrcValid- ... ReqRedir- CmpltRedir-` (BIOS, `setpci -s BRIDGE \
          ECAP_ACS+6.w=0000`, and IOMMU/VT-d off or `iommu=pt`). With NCCL before 2.8 also check for a forced relaxed ordering of the HCA \
          (`mlxconfig q PCI_WR_ORDERING` must be per_mkey).",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs",
        "https://github.com/NVIDIA/nccl/issues/928",
        "https://github.com/NVIDIA/nccl/issues/214",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&IB_LOCAL_PROTECTION, &ACS_HINT], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let diverted: Vec<_> =
        log.case.sightings_of(&ACS_CONTROL).filter(|it| it.get("flags").contains("Redir+")).collect();
    let network: Vec<bool> =
        log.case.links().filter_map(|it| it.link.transport()?.network().map(|it| it.2)).collect();
    let without_gdr = !network.is_empty() && !network.contains(&true);
    let (confidence, tail) = if !diverted.is_empty() {
        (Confidence::Certain, "and a PCIe bridge has ACS on")
    } else if without_gdr {
        // Then the memory is the host's, and ACS plays no part.
        (Confidence::Possible, "though no connection uses GPUDirect")
    } else {
        (Confidence::Likely, "the usual sign of ACS breaking GPUDirect")
    };
    let message = format!("an HCA could not reach local memory (completion status 4), {tail}");
    let finding =
        Finding::new(confidence, message).by(log, &found).seen_all(diverted.iter().map(|it| &it.quote));
    Ok(vec![finding.or("nic-relaxed-ordering-forced")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        for line in [
            "n:1:2 [0] transport/net_ib.cu:788 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 21938, vendor err 81",
            "n:1:2 [0] ib_plugin.c:1105 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<49189> with error 4, opcode 5327, len 5327, vendor err 81 (Send)",
            "n:1:2 [0] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<4> with status=4 opcode=0 len=0 vendor err 81 (Send) hca mlx5_0",
            "n:1:2 [0] net_ib/p2p.cc:688 (f) NCCL WARN NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_SEND(0) vendor_err=81 hca mlx5_0",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely, "{line}");
        }
    }

    #[test]
    fn is_certain_with_lspci_beside_it() {
        let log = "NCCL WARN NET/IB : Got completion with error 4, opcode 0, len 32694, vendor err 81\n\
                   ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n";
        assert_eq!(findings(&RULE, log)[0].confidence, Confidence::Certain);
    }

    #[test]
    fn other_errors_are_not_its_business() {
        quiet(
            &RULE,
            "n:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<4> with error 12, opcode 0, len 0, vendor err 129 (Send)\n",
        );
        quiet(
            &RULE,
            "n:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<4> with error 5, opcode 4, len 0, vendor err 249\n",
        );
    }
}

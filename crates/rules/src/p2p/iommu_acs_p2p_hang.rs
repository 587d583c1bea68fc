//! Peer to peer over PCIe hangs because ACS or the IOMMU diverts it.

use evidence::signals::p2p::{
    ACS_CONTROL, ACS_HINT, FIRST_COLLECTIVE_TIMEOUT, IB_LOCAL_PROTECTION, IOMMU_ADVICE, IOMMU_FAULT,
};
use evidence::{Quote, Source};
use fabric::Transport;
use job::inside::NvLink;

use super::machine::{nvlink, p2p_off};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "iommu-acs-p2p-hang",
    title: "ACS or the IOMMU may break peer to peer over PCIe",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput, Source::KernelLog],
    why: "GPUs without NVLink write to each other over PCIe. With ACS on, the bridges send these writes up to the root complex and the IOMMU; \
          they arrive late, wrong or never. The setup succeeds, and the first collective hangs with all GPUs at 100 %.",
    fix: "Try NCCL_P2P_DISABLE=1: if the hang is gone, this is the cause. Then turn ACS off (`lspci -vvv | grep ACSCtl` must show \
          `ReqRedir- CmpltRedir-`; BIOS, or `setpci -s BRIDGE ECAP_ACS+6.w=0000`), and the IOMMU too (BIOS VT-d or AMD-Vi off, \
          `intel_iommu=off` or `amd_iommu=off`, or `iommu=pt`). `p2pBandwidthLatencyTest` of the CUDA samples must then pass.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs",
        "https://github.com/NVIDIA/nccl/issues/2079",
        "https://github.com/NVIDIA/nccl/issues/257",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let seen = [&ACS_CONTROL, &IOMMU_FAULT, &IOMMU_ADVICE];
    let found = log.find_signals(&seen, Source::JobOutput)?;
    // With a completion error the same bridges break GPUDirect, and another rule reports it.
    if log.case.first_of(&[&IB_LOCAL_PROTECTION, &ACS_HINT]).is_some() {
        return Ok(Vec::new());
    }
    let of = |signal: &'static evidence::Signal| found.iter().copied().filter(move |it| it.signal == signal);
    let faults: Vec<_> = of(&IOMMU_FAULT).collect();
    if !faults.is_empty() {
        let message = "the IOMMU stopped a device: peer to peer over PCIe does not work";
        return Ok(vec![Finding::new(Confidence::Possible, message).by(log, &faults)]);
    }
    let diverted: Vec<_> = of(&ACS_CONTROL).filter(|it| it.get("flags").contains("Redir+")).collect();
    let enabled: Vec<_> = of(&ACS_CONTROL).filter(|it| it.get("flags").contains("SrcValid+")).collect();
    let hung = hang_over_pcie(log);
    if !diverted.is_empty() || !enabled.is_empty() {
        let (bridges, what) = if diverted.is_empty() {
            (&enabled, "ACS is on")
        } else {
            (&diverted, "ACS diverts peer to peer")
        };
        let finding = Finding::new(Confidence::Possible, format!("{what} on a PCIe bridge (lspci ACSCtl)"))
            .by(log, bridges);
        let finding = finding.seen_all(hung);
        return Ok(vec![if diverted.is_empty() { finding.severity(Severity::Warning) } else { finding }]);
    }
    if let Some(quote) = hung {
        let message = "GPUs without NVLink exchange data peer to peer over PCIe, and the first collective never finished";
        return Ok(vec![Finding::new(Confidence::Possible, message).seen(quote).or("timeout-undetermined")]);
    }
    let advice: Vec<_> = of(&IOMMU_ADVICE).collect();
    if advice.is_empty() {
        return Ok(Vec::new());
    }
    // A job that also turns peer to peer off has had the hang.
    let setting = p2p_off(log).map(|it| it.1);
    let severity = if setting.is_some() { Severity::Warning } else { Severity::Info };
    let message = "RCCL advises `iommu=pt`: without it peer to peer can hang";
    let finding = Finding::new(Confidence::Possible, message).by(log, &advice).severity(severity).fix(
        "Add `iommu=pt` to the kernel's command line and reboot. If the job hangs, try NCCL_P2P_DISABLE=1: if the hang is gone, this is the \
         cause.",
    );
    Ok(vec![finding.seen_all(setting)])
}

/// The line of a first collective that timed out, where GPUs that are known to have no NVLink use peer to peer.
fn hang_over_pcie(log: &Log) -> Option<&Quote> {
    let timeout = log.case.first_of(&[&FIRST_COLLECTIVE_TIMEOUT])?;
    let peer_to_peer = log.case.links().any(|it| matches!(it.link.transport(), Some(Transport::P2p { .. })));
    (peer_to_peer && nvlink(log) == Some(NvLink::Absent)).then_some(&timeout.quote)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const MATRIX: &str = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";

    #[test]
    fn never_more_than_possible() {
        let acs = "lspci: ACSCtl: SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+ (0x001d) on the bridges\n";
        let hang = format!(
            "{MATRIX}\nn:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n\
             [rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, \
             NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600027 milliseconds before timing out.\n"
        );
        let fault = "[  12.1] AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x0000 address=0x1 flags=0x0020]\n";
        for text in [acs, &hang, fault] {
            assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Possible, "{text}");
        }
    }

    #[test]
    fn quiet_where_acs_is_off_or_nothing_hangs() {
        quiet(
            &RULE,
            "\t\tACSCtl: SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n",
        );
        quiet(&RULE, &format!("{MATRIX}\nn:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"));
        quiet(&RULE, "Device=0 CANNOT Access Peer Device=2\n");
    }

    #[test]
    fn leaves_completion_errors_to_gpudirect() {
        quiet(
            &RULE,
            "NCCL WARN NET/IB : Got completion with error 4, opcode 0, len 3, vendor err 81\nACSCtl: SrcValid+ ReqRedir+\n",
        );
    }
}

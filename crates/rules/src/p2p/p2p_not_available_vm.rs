//! The GPUs cannot reach each other: a virtual machine or a model without peer access.

use evidence::Source;
use evidence::signals::p2p::{P2P_NOT_ENABLED, P2P_OFF, P2P_OFF_ON_NVLINK, PEER_MATRIX_REFUSED};
use evidence::signals::topology_file::VIRTUAL_MACHINE;
use fabric::gpu::peer_access_in_text;

use super::p2p_disabled_nvlink;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-not-available-vm",
    title: "the GPUs of a node have no peer access",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "CUDA does not let these GPUs reach each other, so every byte between them goes through host memory. This is normal in many \
          virtual machines (peer access over PCIe is not passed through) and for GeForce and some other models.",
    fix: "No NCCL setting changes this. `nvidia-smi topo -p2p r` shows what the driver allows. For more speed use a machine with NVLink or \
          peer access, or put fewer ranks of one job on a node.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/175",
        "https://github.com/NVIDIA/nccl/issues/1516",
        "NCCL src/transport/p2p.cc (p2pCanConnect)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&P2P_OFF, &P2P_NOT_ENABLED, &PEER_MATRIX_REFUSED], Source::NcclLog)?;
    if found.is_empty()
        || log.case.first_of(&[&P2P_OFF_ON_NVLINK]).is_some()
        || p2p_disabled_nvlink::takes(log)
    {
        return Ok(Vec::new());
    }
    let mut pairs: Vec<(&str, &str)> =
        found.iter().map(|it| (it.get("a").min(it.get("b")), it.get("a").max(it.get("b")))).collect();
    pairs.retain(|it| !it.0.is_empty());
    pairs.sort_unstable();
    pairs.dedup();
    let message = match expected(log) {
        Some(machine) => {
            format!(
                "GPUs of {machine} have no peer access and exchange data through host memory: normal there"
            )
        }
        None if pairs.is_empty() => {
            "the driver refuses peer access between GPUs; they exchange data through host memory".to_owned()
        }
        None => format!(
            "CUDA refuses peer access between GPUs ({}); they exchange data through host memory",
            listed(&pairs)
        ),
    };
    let finding = Finding::new(Confidence::Certain, message).by(log, &found);
    if expected(log).is_some() {
        return Ok(vec![finding.severity(Severity::Info)]);
    }
    // PCIe cards usually have no peer access, which is normal; a virtual machine may hide it.
    let virtual_machine = log.case.sightings_of(&VIRTUAL_MACHINE).next().map(|it| &it.quote);
    let severity = if virtual_machine.is_some() { Severity::Warning } else { Severity::Info };
    Ok(vec![finding.severity(severity).seen_all(virtual_machine).or("p2p-disabled-nvlink")])
}

/// A machine or model that is known to have no peer access.
fn expected(log: &Log) -> Option<&str> {
    let instance = log.job.instance().filter(|it| it.nvlink != Some(true)).map(|it| it.name.as_str());
    instance.or_else(|| {
        let mut models = log.case.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.name);
        models.find(|it| peer_access_in_text(it) == Some(false))
    })
}

fn listed(pairs: &[(&str, &str)]) -> String {
    let names: Vec<String> = pairs.iter().take(6).map(|it| format!("{}-{}", it.0, it.1)).collect();
    let more = if pairs.len() > 6 { ", ..." } else { "" };
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    const NOT: &str = "n:1:2 [1] NCCL INFO Could not enable P2P between dev 1(=81000) and dev 0(=41000)\n";

    #[test]
    fn fires_when_cuda_refuses() {
        assert!(findings(&RULE, NOT)[0].message.contains("0-1"));
        let nvml = "n:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 6 and 7. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n";
        assert_eq!(findings(&RULE, nvml)[0].severity, Some(Severity::Info));
        let machine = format!("Hypervisor vendor:     KVM\n{nvml}");
        assert_eq!(findings(&RULE, &machine)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn fires_on_the_drivers_own_table() {
        assert_eq!(
            findings(
                &RULE,
                " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\n  CNS  = Chipset not supported\n"
            )
            .len(),
            1
        );
        quiet(&RULE, " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\n  CNS  = Chipset not supported\n");
    }

    #[test]
    fn known_instances_are_only_mentioned() {
        let found = findings(&RULE, &format!("instance-type: g5.12xlarge\n{NOT}"));
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn quiet_otherwise() {
        quiet(&RULE, "n:1:2 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n");
        quiet(
            &RULE,
            &format!(
                "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n\nn:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You\n{NOT}"
            ),
        );
    }
}

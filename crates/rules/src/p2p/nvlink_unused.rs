//! The machine has NVLink, but the ranks do not use it.

use evidence::Source;
use evidence::plain::GpuPath;
use fabric::Transport;
use job::inside::NvLink;

use super::machine::{counted, host_memory_pairs, nvlink, p2p_off, unread_pairs};
use crate::expected::{self, Expected};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nvlink-unused",
    title: "the GPUs have NVLink, but the ranks do not use it",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "NVLink is many times as fast as the path in use. Either a setting turns peer access off, or the processes are in containers that \
          cannot see each other's GPUs.",
    fix: "Unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL. Run all ranks of a node in one container that has all its GPUs: ranks in separate \
          pods cannot map each other's memory.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/issues/228",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level",
        "NCCL src/misc/utils.cc (getHostHash), src/transport/p2p.cc",
    ],
    checks: &[Check::Log(check)],
};

/// What to check where the links themselves are missing.
const LINKS: &str = "Check `nvidia-smi topo -m` and `nvidia-smi nvlink --status` inside the container, and the Fabric Manager on the host.";

fn check(log: &Log) -> Checked {
    if let Some(finding) = not_shown(log) {
        return Ok(vec![finding]);
    }
    log.connections()?;
    let expected = log.expected();
    let mut pairs = host_memory_pairs(log);
    match nvlink(log) {
        Some(NvLink::Full) => {}
        // Keep the pairs that NVLink is known to join.
        Some(NvLink::Partial) => {
            pairs.retain(|it| expected.as_ref().and_then(|e| e.nvlink(log, it.0)).is_some());
        }
        _ => return Ok(Vec::new()),
    }
    let name = log.job.machine_name.as_ref().map_or("this machine", |it| &*it.value);
    let Some((first, _)) = pairs.first() else {
        return Ok(expected.and_then(|it| over_pci(log, it)).into_iter().collect());
    };
    let setting = p2p_off(log);
    let (confidence, reason) = match setting {
        Some((setting, _)) => (Confidence::Certain, format!("{setting} turns peer access off")),
        None => (Confidence::Likely, "nothing in the input says why".to_owned()),
    };
    let path = expected.as_ref().and_then(|it| it.nvlink(log, *first));
    let rate = path.map(|it| format!(" of {} GB/s", expected::number(it.bandwidth))).unwrap_or_default();
    let message = format!(
        "{} of ranks (first {} and {}) exchange data through host memory although {name} has NVLink{rate}: {reason}",
        counted(pairs.len(), "pair"),
        first.0,
        first.1
    );
    let loss = expected::loss_inside(log, expected::through_host);
    let finding =
        Finding::new(confidence, message).seen_all(setting.map(|it| it.1)).with_numbers(&RULE, loss);
    Ok(vec![finding.seen_all(pairs.iter().map(|it| it.1)).or("gpu-isolation-per-process")])
}

/// Ranks that reach each other directly, but not as NCCL does over the NVLink that joins them: two A100 read over
/// NVLink and write over PCIe.
fn over_pci(log: &Log, expected: &Expected) -> Option<Finding> {
    let pairs = unread_pairs(log);
    let reads = |it: &(u32, u32)| {
        let (one, other) = expected.gpus_of(log, *it)?;
        let transport = expected.between(one, other)?.transport?;
        matches!(transport, Transport::P2p { read: true, .. }).then_some(())
    };
    let (first, _) = pairs.iter().find(|it| reads(&it.0).is_some())?;
    let rate = expected::number(expected.nvlink(log, *first)?.bandwidth);
    let message = format!(
        "ranks {} and {} reach each other over PCIe (`via P2P` without `/read`), although {} has NVLink of {rate} GB/s",
        first.0, first.1, expected.name
    );
    let finding = Finding::new(Confidence::Likely, message)
        .with_numbers(&RULE, expected::loss_inside(log, expected::over_pci))
        .fix(LINKS);
    Some(finding.seen_all(pairs.iter().map(|it| it.1)).or("nvlink-fault").or("fabric-manager-not-running"))
}

/// `nvidia-smi` shows GPUs without the NVLink that this machine is known to have.
fn not_shown(log: &Log) -> Option<Finding> {
    let expected = log.expected().filter(|it| it.named && it.machine.has_nvswitch())?;
    let matrix = log.case.matrices.iter().find(|it| it.n_gpus() > 1)?;
    let GpuPath { from, to, path } = matrix.gpu_paths().find(|it| !it.is_nvlink())?;
    let message = format!(
        "`nvidia-smi topo -m` shows {path} between {from} and {to}, although {} has NVLink of {} GB/s",
        expected.name,
        expected::number(expected.wires(0, 1)?.bandwidth)
    );
    let finding =
        Finding::new(Confidence::Likely, message).seen(&matrix.quote).seen_all(expected.named_by.as_ref());
    let loss = expected::loss_inside(log, expected::over_pci);
    Some(finding.with_numbers(&RULE, loss).fix(LINKS).or("nvlink-fault").or("fabric-manager-not-running"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const P4D: &str =
        "n:1:1 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d-24xl-topo.xml\n";
    const SHM: &str = "n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";

    #[test]
    fn fires_on_an_instance_with_nvlink() {
        assert_eq!(findings(&RULE, &format!("{P4D}{SHM}"))[0].confidence, Confidence::Likely);
    }

    #[test]
    fn names_the_setting() {
        let off = "n:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n";
        let found = findings(&RULE, &format!("{P4D}{off}{SHM}"));
        assert!(found[0].message.contains("NVLink of 240 GB/s: NCCL_P2P_DISABLE=1"), "{}", found[0].message);
        let level = "n:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to LOC\n";
        let found = findings(&RULE, &format!("{P4D}{level}{SHM}"));
        assert!(found[0].message.contains("NCCL_P2P_LEVEL=LOC"), "{}", found[0].message);
        assert_eq!(found[0].confidence, Confidence::Certain);
    }

    #[test]
    fn quiet_without_nvlink_and_where_it_is_used() {
        quiet(&RULE, SHM);
        quiet(&RULE, &format!("{P4D}n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"));
        let pairs = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n\n";
        quiet(&RULE, &format!("{pairs}{SHM}"));
    }

    #[test]
    fn says_what_is_lost() {
        let found = findings(&RULE, &format!("{P4D}{SHM}"));
        assert!(found[0].message.contains("NVLink of 240 GB/s"), "{}", found[0].message);
        let why = found[0].why.as_ref().unwrap();
        assert!(why.starts_with("Expected loss: all_reduce of 1 GiB on 8 GPUs of one p4d.24xlarge"), "{why}");
        assert!(why.contains("times less"), "{why}");
    }

    #[test]
    fn a_matrix_without_the_links_of_the_machine() {
        let matrix = |path: &str| format!("{P4D}\tGPU0\tGPU1\nGPU0\t X \t{path}\nGPU1\t{path}\t X \n\n");
        let found = findings(&RULE, &matrix("PXB"));
        assert_eq!(
            found[0].message,
            "`nvidia-smi topo -m` shows PXB between GPU0 and GPU1, although p4d.24xlarge has NVLink of 240 GB/s"
        );
        quiet(&RULE, &matrix("NV12"));
        quiet(&RULE, &matrix("PHB").replace("p4d.24xlarge", "g6e.12xlarge"));
    }

    #[test]
    fn two_a100_that_write_do_not_use_nvlink() {
        let line = |via: &str| format!("{P4D}n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {via}\n");
        let found = findings(&RULE, &line("P2P/CUMEM"));
        assert!(found[0].message.contains("over PCIe"), "{}", found[0].message);
        let set = format!(
            "n:1:1 [0] NCCL INFO NCCL_P2P_READ_ENABLE set by environment to 0\n{}",
            line("P2P/CUMEM")
        );
        quiet(&RULE, &set);
        quiet(&RULE, &line("P2P/IPC").replace("p4d.24xlarge", "p5.48xlarge"));
    }
}

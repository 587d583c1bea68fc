//! Ranks of one node exchange data through host memory.

use evidence::Source;
use evidence::signals::p2p::{P2P_NOT_ENABLED, P2P_OFF};
use job::inside::NvLink;

use super::machine::{counted, host_memory_pairs, nvlink, p2p_off};
use super::p2p_unused;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "shm-inside-node",
    title: "ranks of one node exchange data through host memory",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "NCCL uses peer access over PCIe only where two GPUs are below a common PCIe switch (PXB or nearer; since 2.23 anywhere on AMD \
          hosts with two GPUs). GPUs on different host bridges exchange data through host memory. Without NVLink and PCIe switches this is \
          the best path there is.",
    fix: "Nothing to do if the machine has no NVLink. To compare, measure with NCCL_P2P_LEVEL=SYS: peer access across host bridges may be \
          faster or slower than host memory. If the machine has NVLink, find out why peer access is off (`nvidia-smi topo -m`, \
          NCCL_P2P_DISABLE).",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level",
        "NCCL src/graph/paths.cc (ncclTopoCheckP2p)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.connections()?;
    let expected = log.expected();
    let mut pairs = host_memory_pairs(log);
    pairs.retain(|it| !expected.as_ref().is_some_and(|e| p2p_unused::takes(log, e, it.0)));
    let machine = nvlink(log);
    // Another rule reports it where NVLink should carry this, or where the driver or a setting refuses.
    let refused = log.case.first_of(&[&P2P_OFF, &P2P_NOT_ENABLED]).is_some() || p2p_off(log).is_some();
    if pairs.is_empty() || machine == Some(NvLink::Full) || refused || log.case.is_in_host_memory() {
        return Ok(Vec::new());
    }
    let name = log.job.machine_name.as_ref().map(|it| &*it.value);
    let tail = match (machine, name) {
        (Some(NvLink::Absent), Some(name)) => {
            format!(": expected on {name}, whose GPUs have neither NVLink nor a common PCIe switch")
        }
        (Some(NvLink::Absent), None) => ": expected without NVLink and PCIe switches".to_owned(),
        (Some(NvLink::Partial), _) => ": expected where no NVLink joins the two".to_owned(),
        _ => "; expected only if no NVLink or PCIe switch joins the two".to_owned(),
    };
    let message = format!(
        "{} of ranks inside a node exchange data through host memory{tail}",
        counted(pairs.len(), "pair")
    );
    let confidence = if machine.is_some() { Confidence::Certain } else { Confidence::Likely };
    let finding = Finding::new(confidence, message).seen_all(pairs.iter().map(|it| it.1));
    let inside = expected.and_then(|it| it.inside(log)).filter(|_| machine == Some(NvLink::Absent));
    let normal = inside.and_then(|it| expected::is_normal(&expected::through_host(&it)));
    Ok(vec![finding.with_numbers(&RULE, normal)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const SHM: &str = "n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";

    #[test]
    fn says_that_it_is_expected() {
        let g6e = "n:1:1 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : g6e.12xlarge, Fall back to NCCL's tuner\n";
        assert!(findings(&RULE, &format!("{g6e}{SHM}"))[0].message.contains("expected on g6e.12xlarge"));
        let old = "n:1:1 [0] NCCL INFO Ring 00 : 2[3d000] -> 3[3e000] via direct shared memory\n";
        assert_eq!(findings(&RULE, old).len(), 1);
    }

    #[test]
    fn says_nothing_where_no_gpu_takes_part() {
        quiet(&RULE, &format!("n:1:1 [0] NCCL INFO plumb: data in host memory, no GPU\n{SHM}"));
    }

    #[test]
    fn leaves_nvlink_machines_to_their_rule() {
        let p5 = "n:1:1 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : p5.48xlarge, Fall back to NCCL's tuner\n";
        quiet(&RULE, &format!("{p5}{SHM}"));
        quiet(&RULE, "n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n");
    }
}

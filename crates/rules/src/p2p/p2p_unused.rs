//! GPUs below one PCIe switch exchange data through host memory.

use evidence::Source;
use evidence::signals::p2p::{P2P_NOT_ENABLED, P2P_OFF};
use fabric::Transport;
use nccl::PathType;

use super::machine::{counted, host_memory_pairs};
use crate::expected::{self, Expected};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-unused",
    title: "GPUs below one PCIe switch exchange data through host memory",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "GPUs below a common PCIe switch can write into each other's memory, and NCCL does so by default. Host memory carries every byte \
          twice, and all pairs share it.",
    fix: "Check `nvidia-smi topo -p2p r` inside the container: it must show OK. If not, let every process see all GPUs of the node, and in \
          a virtual machine pass the PCIe switches through; ACS on the bridges must be off on bare metal.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level",
        "NCCL src/graph/paths.cc (ncclTopoCheckP2p)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.connections()?;
    let mut pairs = host_memory_pairs(log);
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let Some(expected) = log.expected() else { return Ok(Vec::new()) };
    pairs.retain(|it| takes(log, expected, it.0));
    let Some((first, _)) = pairs.first() else { return Ok(Vec::new()) };
    let message = format!(
        "{} of ranks (first {} and {}) exchange data through host memory, although their GPUs are below a common PCIe switch of {}",
        counted(pairs.len(), "pair"),
        first.0,
        first.1,
        expected.name
    );
    let loss = expected::loss_inside(log, expected::through_host);
    let finding = Finding::new(Confidence::Likely, message).seen_all(pairs.iter().map(|it| it.1));
    let finding = finding.seen_all(expected.named_by.as_ref()).with_numbers(&RULE, loss);
    Ok(vec![finding.or("gpu-isolation-per-process").or("vm-no-topology")])
}

/// Whether two ranks should reach each other over PCIe here, and no line explains why they do not.
pub(super) fn takes(log: &Log, expected: &Expected, ranks: (u32, u32)) -> bool {
    if !expected.wired || log.case.first_of(&[&P2P_OFF, &P2P_NOT_ENABLED]).is_some() {
        return false;
    }
    let Some((one, other)) = expected.gpus_of(log, ranks) else { return false };
    let near = expected.wires(one, other).is_some_and(|it| matches!(it.kind, PathType::Pix | PathType::Pxb));
    let should = expected.between(one, other).and_then(|it| it.transport);
    near && matches!(should, Some(Transport::P2p { .. }))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const SHM: &str = "n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";

    fn matrix(path: &str) -> String {
        format!("\tGPU0\tGPU1\nGPU0\t X \t{path}\nGPU1\t{path}\t X \n\n")
    }

    #[test]
    fn fires_below_a_switch() {
        let found = findings(&RULE, &format!("{}{SHM}", matrix("PIX")));
        assert!(found[0].message.starts_with("1 pair of ranks (first 0 and 1)"), "{}", found[0].message);
        assert!(found[0].why.as_ref().unwrap().starts_with("Expected loss: "));
    }

    #[test]
    fn quiet_where_host_memory_is_right_or_wanted() {
        quiet(&RULE, &format!("{}{SHM}", matrix("PHB")));
        quiet(&RULE, &format!("{}{SHM}", matrix("NV12")));
        quiet(&RULE, SHM);
        let off = "n:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n";
        quiet(&RULE, &format!("{}{off}{SHM}", matrix("PIX")));
        let refused = "n:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n";
        quiet(&RULE, &format!("{}{refused}{SHM}", matrix("PIX")));
    }
}

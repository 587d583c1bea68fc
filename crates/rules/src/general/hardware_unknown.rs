//! The paths of the job are known, and whether they are the best of its machine is not.

use evidence::Source;
use fabric::Transport;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "hardware-unknown",
    title: "the machine is not known, so its best path is not known",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "A slower transport is right on a machine that has no faster one. Without the machine's type or topology plumb cannot tell whether \
          NVLink or GPUDirect RDMA is missing or was never there.",
    fix: "Name the machine, `plumb doctor --instance p5.48xlarge rank0.log` (`plumb machines` lists the names), or give plumb the output \
          of `nvidia-smi topo -m` of one node beside the log.",
    references: &["plumb docs/doctor.md"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.connections()?;
    if log.job.model.is_some() || log.expected().is_some() || log.case.is_in_host_memory() {
        return Ok(Vec::new());
    }
    let nvlink = log.case.processes.iter().any(|it| it.facts.nvls.iter().any(|it| it.value));
    let mut doubtful = Vec::new();
    let mut quote = None;
    for it in log.case.links() {
        let word = match it.link.transport() {
            Some(Transport::Shm) => "shared memory inside a node",
            Some(Transport::P2p { .. }) if !nvlink => "peer-to-peer inside a node, over NVLink or PCIe",
            // `socket-fallback` is about sockets.
            Some(Transport::Net { gpudirect: false, network, .. }) if **network != *"Socket" => {
                "no GPUDirect between nodes"
            }
            _ => continue,
        };
        if !doubtful.contains(&word) {
            doubtful.push(word);
            quote.get_or_insert(&it.link.quote);
        }
    }
    if doubtful.is_empty() {
        return Ok(Vec::new());
    }
    let message =
        format!("the machine is not known: this may or may not be its best path ({})", doubtful.join("; "));
    Ok(vec![Finding::new(Confidence::Certain, message).seen_all(quote)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const SETUP: &str = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
                         a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";

    #[test]
    fn a_slow_path_on_an_unknown_machine_is_a_note() {
        assert!(findings(&RULE, SETUP)[0].message.contains("shared memory"));
    }

    #[test]
    fn with_the_machine_it_is_judged() {
        quiet(&RULE, &format!("{SETUP}instance-type: g6e.12xlarge\n"));
    }
}

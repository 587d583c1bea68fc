//! Each process sees its own GPU only, so none can reach another's memory.

use std::collections::{BTreeMap, BTreeSet};

use evidence::signals::p2p::{GPU_BOUND_TO_TASK, IPC_OPEN_FAILED, PEER_GPU_INVISIBLE};
use evidence::{Quote, Source};
use fabric::Transport;
use job::inside::NvLink;

use super::machine::nvlink;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-isolation-per-process",
    title: "processes of one node see only their own GPU",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL must see all GPUs of a node in every process to find NVLink and to map a peer's memory. If a cgroup or container hides the \
          others, it fails or silently uses host memory.",
    fix: "Let every process see all GPUs of the node and choose by local rank: with Slurm `--gpu-bind=none` (or `--gpus-per-node` instead \
          of `--gpus-per-task`), with containers, one container with all GPUs per node. CUDA_VISIBLE_DEVICES alone does not hide a GPU \
          from NCCL; a device cgroup does.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1066",
        "https://github.com/NVIDIA/nccl/issues/1948",
        "https://github.com/NVIDIA/pyxis/issues/73",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let invisible = log.find_signals(&[&PEER_GPU_INVISIBLE], Source::JobOutput)?;
    // A wrong device of the program itself has this text too, before NCCL reaches any peer.
    let invisible: Vec<_> = invisible.into_iter().filter(|it| !it.quote.text.contains("init.cc")).collect();
    let bound: Vec<&Quote> = log.case.sightings_of(&GPU_BOUND_TO_TASK).map(|it| &it.quote).collect();
    if !invisible.is_empty() {
        let message = "a process tried to map the memory of a GPU that it cannot see";
        let finding = Finding::new(Confidence::Likely, message).by(log, &invisible).seen_all(bound);
        return Ok(vec![finding.or("imex-channel-missing")]);
    }
    if let Some((host, n, quotes)) = isolated(log, !bound.is_empty()) {
        let message = format!("{n} ranks of {host} each see only one GPU, and none reaches another directly");
        let finding =
            Finding::new(Confidence::Likely, message).seen_all(quotes).seen_all(bound).about_host(host);
        // Where there is no NVLink to lose, little is lost.
        let severity = if nvlink(log) == Some(NvLink::Absent) { Severity::Info } else { Severity::Warning };
        let loss = expected::loss_inside(log, expected::through_host);
        return Ok(vec![finding.severity(severity).with_numbers(&RULE, loss)]);
    }
    let refused: Vec<_> =
        log.case.sightings_of(&IPC_OPEN_FAILED).filter(|it| !it.get("why").contains("peer access")).collect();
    let Some(first) = refused.first() else { return Ok(Vec::new()) };
    let confidence = if bound.is_empty() { Confidence::Possible } else { Confidence::Likely };
    let message = format!("a process could not map the memory of another's GPU ({})", first.get("why"));
    Ok(vec![Finding::new(confidence, message).by(log, &refused).seen_all(bound).or("p2p-not-supported")])
}

/// The GPUs of a host's ranks, and the lines that show them.
type Gpus<'a> = (BTreeSet<u64>, Vec<&'a Quote>);

/// Ranks of one host that each see their GPU as the first one, though the GPUs differ, and that exchange data
/// without peer access. The host, how many, and the lines.
fn isolated(log: &Log, bound: bool) -> Option<(&str, usize, Vec<&Quote>)> {
    let is_p2p = |it: &Transport| matches!(it, Transport::P2p { .. });
    let mut transports = log.case.links().filter_map(|it| it.link.transport()).peekable();
    transports.peek()?;
    let world = log.case.world().filter(|_| !transports.any(is_p2p))?;
    // Before 2.18 NCCL does not print what NVML sees, and CUDA's first GPU says little by itself.
    let suspicious = bound || matches!(nvlink(log), Some(NvLink::Full | NvLink::Partial));
    let mut hosts: BTreeMap<&str, Option<Gpus<'_>>> = BTreeMap::new();
    for member in world.members.values() {
        let Some(process) = log.case.processes.get(member.process).filter(|it| !it.host.is_empty()) else {
            continue;
        };
        let seen = hosts.entry(&process.host).or_insert_with(|| Some((BTreeSet::new(), Vec::new())));
        let first = member.line().filter(|it| {
            it.cuda_device == Some(0)
                && it.nvml_device.map_or(suspicious, |it| it == 0)
                && it.bus_id.is_some()
        });
        match (first.and_then(|it| it.bus_id), seen.as_mut()) {
            (Some(bus), Some((gpus, quotes))) => {
                gpus.insert(bus);
                quotes.extend(member.facts.links.first().map(|it| &it.quote));
                let named = member.facts.start.as_ref().or(member.facts.complete.as_ref());
                quotes.extend(named);
            }
            _ => *seen = None,
        }
    }
    let isolated = hosts.into_iter().filter_map(|(host, seen)| seen.map(|it| (host, it.0.len(), it.1)));
    isolated.into_iter().find(|it| it.1 > 1)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_when_a_peer_cannot_be_mapped() {
        for line in [
            "n:1:2 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n",
            "n:1:2 [0] transport/p2p.cc:275 (f) NCCL WARN Cuda failure 101 'invalid device ordinal'\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely);
        }
        let old =
            "n:1:2 [0] transport/p2p.cu:548 NCCL WARN failed to open CUDA IPC handle : 11 invalid argument\n";
        assert_eq!(findings(&RULE, old)[0].confidence, Confidence::Possible);
        let mpi = "[n:1] Failed to register remote memory, rc=-1\nsrun -n 4 --gpus-per-task=1 ./x\n";
        assert_eq!(findings(&RULE, mpi)[0].confidence, Confidence::Likely);
    }

    fn ranks(nvml: [u32; 2], via: &str) -> String {
        format!(
            "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev {} busId 31000 commId 0x2 - Init START\n\
             n:2:2 [0] NCCL INFO comm 0x3 rank 1 nranks 2 cudaDev 0 nvmlDev {} busId ca000 commId 0x2 - Init START\n\
             n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via {via}\n",
            nvml[0], nvml[1]
        )
    }

    #[test]
    fn fires_when_it_costs_only_speed() {
        assert_eq!(findings(&RULE, &ranks([0, 0], "SHM/direct/direct"))[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn visible_devices_alone_hide_nothing() {
        quiet(&RULE, &ranks([0, 1], "SHM/direct/direct"));
        quiet(&RULE, &ranks([0, 0], "P2P/CUMEM"));
    }

    #[test]
    fn a_wrong_device_of_the_program_is_another_matter() {
        quiet(&RULE, "n:1:2 [0] init.cc:1582 NCCL WARN Cuda failure 101 'invalid device ordinal'\n");
        quiet(&RULE, "n: Test CUDA failure common.cu:986 'invalid device ordinal'\n");
    }
}

//! The driver refuses peer access between GPUs that NVLink joins.

use std::collections::{BTreeMap, BTreeSet};

use evidence::Source;
use evidence::signals::p2p::{P2P_OFF, P2P_OFF_ON_NVLINK};
use job::inside::NvLink;

use super::machine::{counted, nvlink};
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-disabled-nvlink",
    title: "peer access is off between GPUs joined by NVLink",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NVLink is wired, but the driver reports that one GPU cannot reach the other: the virtual machine does not expose it, the Fabric \
          Manager has not set it up, or a link is broken. NCCL stops, or uses host memory at a fraction of the speed.",
    fix: "Check `nvidia-smi topo -p2p r`, `nvidia-smi nvlink --status` and, on NVSwitch machines, the Fabric Manager. In a virtual machine \
          ask for an instance type or a hypervisor setting that exposes peer access. NCCL_IGNORE_DISABLED_P2P=1 only hides the message.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1214",
        "https://github.com/NVIDIA/nccl/issues/2329",
        "NCCL src/graph/paths.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&P2P_OFF_ON_NVLINK], Source::JobOutput)?;
    if let Some(first) = found.first() {
        let message = format!(
            "the driver refuses peer access between GPUs {} and {}, which NVLink joins",
            first.get("a"),
            first.get("b")
        );
        return Ok(vec![
            Finding::new(Confidence::Certain, message)
                .by(log, &found)
                .with_numbers(&RULE, expected::loss_inside(log, expected::through_host))
                .or("nvlink-fault")
                .or("fabric-manager-not-running"),
        ]);
    }
    if !takes(log) {
        return Ok(Vec::new());
    }
    let near: Vec<_> = log.case.sightings_of(&P2P_OFF).collect();
    let pairs: BTreeSet<(&str, &str)> =
        near.iter().map(|it| (it.get("a").min(it.get("b")), it.get("a").max(it.get("b")))).collect();
    let names: Vec<String> = pairs.iter().take(4).map(|it| format!("{}-{}", it.0, it.1)).collect();
    let message = format!(
        "the driver refuses peer access for {} of GPUs ({})",
        counted(pairs.len(), "pair"),
        names.join(", ")
    );
    Ok(vec![
        Finding::new(Confidence::Likely, message)
            .by(log, &near)
            .severity(Severity::Warning)
            .with_numbers(&RULE, expected::loss_inside(log, expected::through_host))
            .or("p2p-not-available-vm"),
    ])
}

/// Whether the refused pairs are joined by NVLink: the machine is known to have it, or, where nothing is
/// known of it, each GPU is refused one partner only, as with bridges. Without NVLink every GPU of a
/// socket is refused to every other.
pub(super) fn takes(log: &Log) -> bool {
    let mut partners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for it in log.case.sightings_of(&P2P_OFF) {
        for (a, b) in [(it.get("a"), it.get("b")), (it.get("b"), it.get("a"))] {
            let known = partners.entry(a).or_default();
            if !known.contains(&b) {
                known.push(b);
            }
        }
    }
    match nvlink(log) {
        _ if partners.is_empty() => false,
        Some(NvLink::Absent) => false,
        Some(NvLink::Full | NvLink::Partial) => true,
        None => partners.len() >= 4 && partners.values().all(|it| it.len() == 1),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    fn off(pairs: &[(u32, u32)]) -> String {
        let line = |it: &(u32, u32)| {
            format!(
                "n:1:2 [0] NCCL INFO P2P is disabled between connected GPUs {} and {}. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n",
                it.0, it.1
            )
        };
        pairs.iter().map(line).collect()
    }

    #[test]
    fn fires_when_nccl_says_so() {
        let log = "n:1:2 [0] graph/paths.cc:324 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case \
                   given their connectivity, and is probably due to a hardware issue. If you still want to proceed, you can set \
                   NCCL_IGNORE_DISABLED_P2P=1.\n";
        assert_eq!(findings(&RULE, log)[0].confidence, Confidence::Certain);
    }

    #[test]
    fn fires_for_pairs() {
        let found = findings(&RULE, &off(&[(1, 0), (3, 2)]));
        assert_eq!(found[0].message, "the driver refuses peer access for 2 pairs of GPUs (0-1, 2-3)");
        assert_eq!(found[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn a_machine_without_nvlink_is_another_matter() {
        quiet(&RULE, &off(&[(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)]));
        quiet(&RULE, &format!("instance-type: g5.12xlarge\n{}", off(&[(1, 0), (3, 2)])));
    }
}

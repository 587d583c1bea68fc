//! Settings of the machine that cost a little.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{count, ports};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-untuned",
    title: "settings of the node cost a little time",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::Devices],
    why: "None of these breaks a job. Together they make its start slower and its times less even.",
    fix: "Persistence: `systemctl enable --now nvidia-persistenced`. CPU clocks: `cpupower frequency-set -g performance`. Pages that wander between NUMA \
          nodes: `sysctl kernel.numa_balancing=0`. Huge pages for EFA: `sysctl vm.nr_hugepages=5128`. Clock: install chrony.",
    references: &[
        "https://docs.nvidia.com/deploy/driver-persistence/index.html",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    ],
    checks: &[Check::Node(check)],
};

/// Programs that keep the clock, as the kernel shortens their names.
const CLOCKS: &[&str] = &["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys", "openntpd"];

fn check(state: &NodeState) -> Checked {
    let efa = ports(state)?.iter().any(|it| it.kind == "efa");
    if state.pci.gpus.is_none() && state.gpus.is_none() {
        return Err(Missing(Source::Devices));
    }
    let mut found = Vec::new();
    let mut say = |message: String| found.push(Finding::new(Confidence::Certain, message));
    if count(state) > 0 {
        let gpus = state.gpus.as_deref().unwrap_or_default();
        let off = gpus.iter().filter(|it| it.persistence == Some(false)).count();
        if off > 0 && state.runs("nvidia-persistenced") != Some(true) {
            say(format!(
                "persistence is off on {off} of {} GPUs: the driver starts anew with every program",
                gpus.len()
            ));
        }
        if state.cpu.governors.iter().any(|it| it == "powersave") {
            say("the CPU governor is `powersave`: host threads of NCCL run at low clocks until the load rises".to_owned());
        }
        if state.cpu.numa_balancing == Some(true) && state.cpu.numa.len() > 1 {
            say("the kernel moves pages between NUMA nodes (kernel.numa_balancing)".to_owned());
        }
        if efa && !state.memory.hugepages.iter().any(|it| it.page_bytes == 2 << 20 && it.total > 0) {
            say("there are no huge pages of 2 MiB, which the EFA provider of libfabric uses where it can"
                .to_owned());
        }
    }
    let kept = |it: &&&str| state.runs(it) == Some(true);
    if state.services.is_some()
        && !state.in_container()
        && state.clock.synchronised != Some(true)
        && !CLOCKS.iter().any(|it| kept(&it))
    {
        say("no program keeps the clock: times in the logs of nodes will not agree".to_owned());
    }
    Ok(found)
}

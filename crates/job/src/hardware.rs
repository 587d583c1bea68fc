//! The machine that flags name, and what the input says otherwise.

use evidence::Case;
use fabric::catalogue::Model;
use fabric::gpu::{self, GpuModel};

use crate::known::{Conflict, Known, Source};
use crate::machine::{self, Resolved};
use crate::{Description, Size};

/// `--instance` or `--cluster`, and `--gpu`.
#[derive(Debug, Clone, Default)]
pub struct Hardware {
    /// The machine.
    pub machine: Option<Resolved>,
    /// The model of its GPUs.
    pub gpu: Option<&'static GpuModel>,
}

impl Hardware {
    /// The machine of `--instance`, otherwise that of a cluster file.
    pub fn new(
        instance: Option<&'static Model>,
        cluster: Option<Description>,
        gpu: Option<&'static GpuModel>,
    ) -> Self {
        let named = instance.map(|it| machine::of_model(it, Source::Flag("--instance")));
        Self { machine: named.or_else(|| cluster.map(|it| it.machine)), gpu }
    }

    /// The machine of the flags, with what a case says otherwise as conflicts.
    pub(crate) fn resolve(&self, case: &Case, size: &Size) -> Option<Resolved> {
        let mut resolved = self.machine.clone()?;
        resolved.conflicts.extend(machine::conflicts_with(case, &resolved));
        resolved.conflicts.extend(too_many_ranks(&resolved, size));
        resolved.conflicts.extend(other_gpu(case, &resolved));
        resolved.conflicts.extend(other_network(case, &resolved));
        Some(resolved)
    }

    /// The machine with the GPUs of `--gpu`.
    pub(crate) fn with_gpu(&self, mut resolved: Resolved) -> Resolved {
        if let Some(model) = self.gpu {
            let known = resolved.machine.value.gpus.first().and_then(|it| it.model.clone());
            let other = known.filter(|it| **it != *model.name);
            resolved.conflicts.extend(other.map(|name| Conflict {
                subject: "GPU model".into(),
                values: vec![
                    Known::new(model.name.as_str().into(), Source::Flag("--gpu")),
                    Known::new(name, resolved.machine.source.clone()),
                ],
            }));
            resolved.set_gpu_model(model);
        }
        resolved
    }
}

/// More ranks on a node than the machine has GPUs.
fn too_many_ranks(resolved: &Resolved, size: &Size) -> Option<Conflict> {
    let there = resolved.machine.value.gpus.len();
    let local = size.ranks_per_node.as_ref().filter(|it| it.value as usize > there)?;
    Some(Conflict {
        subject: "number of GPUs".into(),
        values: vec![
            Known::new(there.to_string().into(), resolved.machine.source.clone()),
            Known::new(format!("{} ranks on one node", local.value).into(), local.source.clone()),
        ],
    })
}

/// nccl-tests names another GPU than the machine has.
fn other_gpu(case: &Case, resolved: &Resolved) -> Option<Conflict> {
    let known = resolved.machine.value.gpus.first()?.model.clone()?;
    let (test, device) = case.tests.iter().find_map(|it| Some((it, it.devices.first()?)))?;
    let seen = gpu::by_name_in_text(&device.name)?;
    (seen.name != *known).then(|| Conflict {
        subject: "GPU model".into(),
        values: vec![
            Known::new(known, resolved.machine.source.clone()),
            Known::new(seen.name.as_str().into(), Source::Line(test.quote.clone())),
        ],
    })
}

/// The plugin uses EFA, which the machine does not have.
fn other_network(case: &Case, resolved: &Resolved) -> Option<Conflict> {
    let model = resolved.model.filter(|it| !it.efa())?;
    let mut providers = case.processes.iter().flat_map(|it| it.facts.plugin.provider.iter());
    let efa = providers.find(|it| &*it.value.name == "efa")?;
    Some(Conflict {
        subject: "network".into(),
        values: vec![
            Known::new(format!("{} without EFA", model.name).into(), resolved.machine.source.clone()),
            Known::new("EFA".into(), Source::Line(efa.quote.clone())),
        ],
    })
}

#[cfg(test)]
mod tests {
    use fabric::{catalogue, gpu};

    use super::Hardware;
    use crate::Job;
    use crate::testing::case;

    fn job(text: &str, instance: &str) -> Job {
        Job::of_case_on(&case(text), &Hardware::new(catalogue::find(instance), None, None))
    }

    #[test]
    fn a_flag_names_the_machine() {
        let found = job("", "dgx-h100");
        assert_eq!(found.model().map(|it| it.name), Some("dgx-h100"));
        assert!(found.conflicts.is_empty() && found.machines[0].value.gpus.len() == 8);
        let gpu = Hardware { gpu: gpu::find("H20"), ..Hardware::default() };
        assert_eq!(Job::of_case_on(&case(""), &gpu).gpu.unwrap().value.family, "H20");
    }

    #[test]
    fn what_the_log_says_otherwise_is_a_conflict() {
        let subjects = |text: &str, instance: &str| -> Vec<String> {
            job(text, instance).conflicts.iter().map(|it| it.subject.to_string()).collect()
        };
        assert_eq!(subjects("instance-type: p4d.24xlarge\n", "p5.48xlarge"), ["instance type"]);
        assert!(subjects("instance-type: p5.48xlarge\n", "p5.48xlarge").is_empty());
        let ranks = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
                     a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n";
        assert_eq!(subjects(ranks, "g6e.12xlarge"), ["number of GPUs"]);
        let test = "# Using devices\n#  Rank  0 Group  0 Pid 1 on a device  0 [0x1b] NVIDIA H100 80GB HBM3\n";
        assert_eq!(subjects(test, "p4d.24xlarge"), ["GPU model"]);
        assert!(subjects(test, "p5.48xlarge").is_empty());
        let efa = "a:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)\n";
        assert_eq!(subjects(efa, "dgx-h100"), ["network"]);
        assert!(subjects(efa, "g6e.12xlarge").is_empty());
    }
}

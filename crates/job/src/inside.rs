//! How the GPUs inside a node are joined.

use evidence::Case;
use evidence::plain::{NcclTests, TopologyMatrix};
use fabric::catalogue::{self, Inside};
use fabric::gpu::{self, NvLinkKind};
use fabric::{Machine, Transport};

use crate::Job;

/// Which GPUs of a node are joined by NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvLink {
    /// Every GPU with every other.
    Full,
    /// Some pairs.
    Partial,
    /// No pair.
    Absent,
}

impl NvLink {
    /// By `nvidia-smi topo -m`, the catalogue, the names of the GPUs or what NCCL reports, in this order. `None`: unknown.
    pub fn of(case: &Case, job: &Job) -> Option<Self> {
        of_matrix(case).or_else(|| of_catalogue(job)).or_else(|| of_names(case, job)).or_else(|| of_log(case))
    }
}

fn of_matrix(case: &Case) -> Option<NvLink> {
    // `topo -mp` shows no NVLink, and `topo -p2p` no paths.
    let shows_paths =
        |it: &&TopologyMatrix| it.n_gpus() > 1 && !it.hides_nvlink && it.gpu_paths().next().is_some();
    let matrix = case.matrices.iter().find(shows_paths)?;
    let paths: Vec<&str> = matrix.gpu_paths().map(|it| it.path).collect();
    let joined = paths.iter().filter(|it| it.starts_with("NV")).count();
    Some(match joined {
        0 => NvLink::Absent,
        n if n == paths.len() => NvLink::Full,
        _ => NvLink::Partial,
    })
}

fn of_catalogue(job: &Job) -> Option<NvLink> {
    match job.model()?.inside {
        Inside::NvSwitch => Some(NvLink::Full),
        Inside::NvLinkMesh => Some(NvLink::Partial),
        Inside::Pcie => Some(NvLink::Absent),
        Inside::OneGpu | Inside::Unknown => None,
    }
}

fn of_names(case: &Case, job: &Job) -> Option<NvLink> {
    let given = job.gpu.as_ref().map(|it| it.value.name.as_str());
    let seen = || case.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.name).find(|it| !it.is_empty());
    let name = given.or_else(seen)?;
    match gpu::nvlink_in_text(name)? {
        NvLinkKind::Switch => Some(NvLink::Full),
        NvLinkKind::Wires => Some(NvLink::Partial),
        NvLinkKind::None => Some(NvLink::Absent),
        // Whether a bridge is fitted is not in the name.
        NvLinkKind::Bridge => None,
    }
}

fn of_log(case: &Case) -> Option<NvLink> {
    if case.processes.iter().any(|it| it.facts.nvls.iter().any(|it| it.value)) {
        return Some(NvLink::Full);
    }
    // NCCL reads over NVLink between two A100, and over nothing else.
    let reads = |it: Option<&Transport>| matches!(it, Some(Transport::P2p { read: true, .. }));
    case.links().any(|it| reads(it.link.transport())).then_some(NvLink::Partial)
}

/// The machine without a name that a test of eight equal GPUs runs on, where they are sold only with an `NVSwitch`.
pub fn hgx_machine(test: &NcclTests) -> Option<Machine> {
    let name = &test.devices.first()?.name;
    let model = test.devices.iter().all(|it| it.name == *name).then(|| gpu::find(name)).flatten()?;
    let fits = |name: &&str| {
        catalogue::machine(name).is_some_and(|it| {
            it.gpus.len() == 8 && it.has_nvswitch() && it.gpus[0].model.as_deref() == Some(&*model.name)
        })
    };
    let mut machine = catalogue::machine(catalogue::names().find(fits)?)?;
    machine.name = None;
    Some(machine)
}

#[cfg(test)]
mod tests {
    use super::{NvLink, hgx_machine};
    use crate::Job;
    use crate::testing::case;

    fn nvlink(text: &str) -> Option<NvLink> {
        let case = case(text);
        NvLink::of(&case, &Job::of_case(&case))
    }

    #[test]
    fn what_does_not_show_nvlink_does_not_deny_it() {
        let rows = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n";
        let pcie = "\nLegend:\n\n  SYS  = Connection traversing PCIe\n  PIX  = Connection traversing at most a single PCIe bridge\n";
        assert_eq!(nvlink(rows), Some(NvLink::Absent));
        assert_eq!(nvlink(&format!("{rows}{pcie}")), None);
        assert_eq!(nvlink(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"), None);
    }

    #[test]
    fn the_matrix_comes_first() {
        let pairs = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n";
        assert_eq!(nvlink(pairs), Some(NvLink::Partial));
        let none = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n";
        assert_eq!(nvlink(&format!("INSTANCE_TYPE=p5.48xlarge\n{none}")), Some(NvLink::Absent));
        assert_eq!(nvlink(""), None);
    }

    #[test]
    fn the_instance_type_shows_how_gpus_are_joined() {
        for (name, want) in [
            ("p5.48xlarge", Some(NvLink::Full)),
            ("p3dn.24xlarge", Some(NvLink::Partial)),
            ("g6e.12xlarge", Some(NvLink::Absent)),
            ("g6e.xlarge", None),
        ] {
            assert_eq!(nvlink(&format!("INSTANCE_TYPE={name}\n")), want, "{name}");
        }
    }

    fn device(name: &str) -> String {
        format!("# Using devices\n#  Rank  0 Group  0 Pid  1 on a device  0 [0x10] {name}\n")
    }

    #[test]
    fn the_name_of_the_gpus_counts() {
        for (name, want) in [
            ("NVIDIA H100 80GB HBM3", Some(NvLink::Full)),
            ("NVIDIA L40S", Some(NvLink::Absent)),
            ("NVIDIA RTX A6000", None),
        ] {
            assert_eq!(nvlink(&device(name)), want, "{name}");
        }
    }

    #[test]
    fn a_gpu_sold_with_an_nvswitch_gives_the_machine() {
        let machine = |name: &str| hgx_machine(&case(&device(name)).tests[0]);
        let hgx = machine("NVIDIA H100 80GB HBM3").unwrap();
        assert_eq!((hgx.name, hgx.gpus.len()), (None, 8));
        assert_eq!(machine("NVIDIA L40S"), None);
    }
}

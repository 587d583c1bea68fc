//! The AWS instance types that have GPUs: what they are made of, and what the
//! EFA plugin does on them.
//!
//! The numbers are in `data/instances.json`, each type with its sources.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::machine::Maker;
use crate::units::{Gibibytes, GigabitsPerSecond, GigabytesPerSecond};

/// One instance type. `None` means that no source states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The EC2 name: `p4d.24xlarge`.
    pub name: String,
    /// The model of its GPUs.
    pub gpu: String,
    /// How many GPUs it has.
    pub gpus: u32,
    /// Memory of one GPU, as the EC2 API reports it.
    pub gpu_mem_gib: Option<Gibibytes>,
    /// Whether NVLink connects its GPUs.
    pub nvlink: Option<bool>,
    /// The NVLink generation.
    pub nvlink_gen: Option<u8>,
    /// NVLink bandwidth of one GPU, both directions together.
    #[serde(rename = "nvlink_GBps_per_gpu_bidir")]
    pub nvlink_per_gpu_bidir: Option<GigabytesPerSecond>,
    /// The PCI Express generation of GPUs and NICs.
    pub pcie_gen: Option<u8>,
    /// How many EFA interfaces it can have.
    pub nics: u32,
    /// Bandwidth of one EFA interface, if necessary the total divided by their number; `None` without EFA.
    pub nic_gbps_each: Option<GigabitsPerSecond>,
    /// Network bandwidth of the instance; the baseline for small sizes.
    pub net_gbps_total: GigabitsPerSecond,
    /// The EFA generation.
    pub efa_version: Option<u8>,
    /// Whether EFA can read and write GPU memory itself.
    pub gpudirect_rdma: Option<bool>,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Host memory.
    pub mem_gib: Gibibytes,
    /// Who made its CPU.
    #[serde(deserialize_with = "crate::link::maker")]
    pub cpu: Maker,
    /// The Nitro generation.
    pub nitro: Option<u8>,
    /// Whether its EFA has RDMA read.
    pub rdma_read: Option<bool>,
    /// Whether its EFA has RDMA write.
    pub rdma_write: Option<bool>,
    /// The protocol aws-ofi-nccl chooses: `SENDRECV`, `RDMA`, or `auto` where
    /// the type has no entry and the NICs decide; none without EFA.
    pub ofi_protocol: Option<String>,
    /// The topology file aws-ofi-nccl gives to NCCL.
    pub ofi_topo_file: Option<String>,
    /// Other names that releases of aws-ofi-nccl print for the type.
    #[serde(default)]
    pub ofi_aliases: Vec<String>,
    /// Whether the tuner of aws-ofi-nccl knows the type.
    pub ofi_tuner: bool,
    /// The latency that the plugin reports to NCCL, in microseconds; `None` without EFA.
    pub ofi_latency_us: Option<f64>,
    /// EFA interfaces per GPU.
    pub efa_per_gpu: f64,
    /// The types that its EFA reaches, itself included; empty where it reaches all that have EFA.
    #[serde(default)]
    pub efa_only_with: Vec<String>,
    /// How many EFA interfaces it can have where each is cut in parts of less bandwidth.
    pub nics_split: Option<u32>,
    /// What else is known, and where sources disagree.
    pub notes: Vec<String>,
    /// Where the numbers come from.
    pub source: Vec<String>,
}

impl Instance {
    /// Whether the type has EFA at all.
    pub fn efa(&self) -> bool {
        self.nics > 0
    }

    /// How many GPUs share one EFA interface; none without EFA.
    pub fn gpus_per_nic(&self) -> Option<f64> {
        self.efa().then(|| f64::from(self.gpus) / f64::from(self.nics))
    }
}

/// Every instance type, families together, small sizes first.
pub fn all() -> &'static [Instance] {
    static ALL: OnceLock<Vec<Instance>> = OnceLock::new();
    // The data is part of the binary, and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

/// The instance type of this name, in any case; `SageMaker` puts `ml.` before it.
pub fn find(name: &str) -> Option<&'static Instance> {
    let name = name.strip_prefix("ml.").unwrap_or(name);
    all().iter().find(|it| it.name.eq_ignore_ascii_case(name))
}

/// The instance type that a release of aws-ofi-nccl prints as `name`.
pub fn find_by_plugin_name(name: &str) -> Option<&'static Instance> {
    let alias =
        || all().iter().find(|it| it.ofi_aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name)));
    find(name).or_else(alias)
}

/// A family with EFA that is too old for the list of types.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// `g4dn`
    #[serde(rename = "family")]
    pub name: String,
    /// Whether its EFA has RDMA read.
    pub rdma_read: bool,
    /// Where that is written.
    pub source: String,
}

/// The old family that an instance type is of: `g4dn` of `g4dn.metal`.
pub fn old_family(name: &str) -> Option<&'static Family> {
    static ALL: OnceLock<Vec<Family>> = OnceLock::new();
    let all = ALL.get_or_init(|| read_families().unwrap_or_default());
    let (family, _) = name.split_once('.')?;
    all.iter().find(|it| it.name == family)
}

fn read_families() -> csv::Result<Vec<Family>> {
    csv::Reader::from_reader(include_bytes!("../data/efa_families.csv").as_slice()).deserialize().collect()
}

fn read() -> serde_json::Result<Vec<Instance>> {
    serde_json::from_str(include_str!("../data/instances.json"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{all, find, old_family, read, read_families};
    use crate::gpu;
    use crate::machine::Maker;

    #[test]
    fn the_data_can_be_read() {
        assert_eq!(read().unwrap(), all());
        assert!(all().len() > 40, "{}", all().len());
    }

    #[test]
    fn names_are_unique_and_sourced() {
        let names: BTreeSet<_> = all().iter().map(|it| it.name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), all().len());
        for it in all() {
            assert!(!it.source.is_empty(), "{} has no source", it.name);
            assert!(it.notes.iter().all(|it| it.ends_with('.')), "{}: {:?}", it.name, it.notes);
            for text in it.source.iter().chain(&it.notes) {
                assert_eq!(text.trim(), text, "{}", it.name);
                assert!(
                    !text.is_empty() && !["()", "  ", "_gen", "null"].iter().any(|it| text.contains(it)),
                    "{}: {text}",
                    it.name
                );
            }
        }
    }

    #[test]
    fn old_families_are_sourced_and_not_in_the_list() {
        for it in read_families().unwrap() {
            assert!(!it.source.is_empty(), "{it:?}");
            assert!(!all().iter().any(|known| known.name.split('.').next() == Some(&it.name)), "{it:?}");
        }
        assert_eq!(old_family("g4dn.12xlarge").map(|it| it.rdma_read), Some(false));
        assert_eq!(old_family("g5.12xlarge"), None);
    }

    #[test]
    fn finds_a_name_in_any_case() {
        assert_eq!(find("P4D.24xlarge").unwrap().name, "p4d.24xlarge");
        assert!(find("p4d.48xlarge").is_none());
        assert!(find("").is_none());
    }

    #[test]
    fn nics_add_up_to_the_network() {
        // There is no exception today; one would be listed here with its reason. Where two sources
        // give two totals (p6e-gb200), the notes say so, and the NICs go with the one that is used.
        for it in all().iter().filter(|it| it.efa()) {
            let each = it.nic_gbps_each.unwrap().0;
            let total = it.net_gbps_total.0;
            assert!(
                (f64::from(it.nics) * each - total).abs() < 1e-9,
                "{}: {} x {each} is not {total}",
                it.name,
                it.nics
            );
        }
    }

    #[test]
    fn no_type_contradicts_itself() {
        for it in all() {
            let name = &it.name;
            assert!(it.gpus > 0, "{name} has no GPU");
            assert!(
                (f64::from(it.nics) / f64::from(it.gpus) - it.efa_per_gpu).abs() < 1e-9,
                "{name}: EFA per GPU"
            );
            assert_eq!(it.nic_gbps_each.is_some(), it.efa(), "{name}: a speed without a NIC");
            assert_eq!(it.ofi_protocol.is_some(), it.efa(), "{name}: a protocol without EFA");
            assert_eq!(it.ofi_latency_us.is_some(), it.efa(), "{name}: a latency without EFA");
            assert!(gpu::find(&it.gpu).is_some(), "{name}: no model {}", it.gpu);
            assert_ne!(it.cpu, Maker::Unknown, "{name}");
            assert!(it.efa_only_with.is_empty() || it.efa_only_with.contains(name), "{name}: reaches itself");
            assert!(it.efa_only_with.iter().all(|it| find(it).is_some()), "{name}: reaches an unknown type");
            assert!(it.nics_split.is_none_or(|parts| parts > it.nics), "{name}: fewer parts than NICs");
            assert!(it.efa() || it.efa_version.is_none(), "{name}: a generation without EFA");
            assert!(it.efa() || it.gpudirect_rdma != Some(true), "{name}: GPUDirect RDMA without EFA");
            assert_eq!(it.nvlink == Some(true), it.nvlink_gen.is_some(), "{name}: NVLink generation");
            assert_eq!(it.nvlink_gen.is_some(), it.nvlink_per_gpu_bidir.is_some(), "{name}: NVLink speed");
            assert!(it.gpus > 1 || it.nvlink != Some(true), "{name}: NVLink to nobody");
            assert!(it.rdma_write != Some(true) || it.rdma_read == Some(true), "{name}: write without read");
            if it.ofi_protocol.as_deref() == Some("RDMA") {
                assert_eq!(it.rdma_write, Some(true), "{name}: the RDMA protocol needs RDMA write");
                assert_eq!(it.gpudirect_rdma, Some(true), "{name}: the RDMA protocol needs GPUDirect");
            }
        }
    }

    #[test]
    fn shares_nics_among_gpus() {
        assert_eq!(find("p4d.24xlarge").unwrap().gpus_per_nic(), Some(2.0));
        assert_eq!(find("p5.48xlarge").unwrap().gpus_per_nic(), Some(0.25));
        let without = find("g5.xlarge").unwrap();
        assert!(!without.efa());
        assert_eq!(without.gpus_per_nic(), None);
    }
}

//! Resources of a container, and what their names mean.

use super::Quantity;
use crate::yaml::Span;

/// The name by which NVIDIA's device plugin offers GPUs.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// The name by which AMD's device plugin offers GPUs.
pub const AMD_GPU: &str = "amd.com/gpu";
/// The name by which AWS's device plugin offers EFA interfaces.
pub const EFA: &str = "vpc.amazonaws.com/efa";

/// A quantity of something.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// `nvidia.com/gpu`
    pub name: Box<str>,
    /// What the name means.
    pub kind: ResourceKind,
    /// How much; none for a text that is not a quantity.
    pub quantity: Option<Quantity>,
    /// Where the name is.
    pub key: Span,
    /// Where the quantity is.
    pub value: Span,
}

impl Resource {
    /// Name and quantity.
    pub fn span(&self) -> Span {
        let end = self.value.range.end.max(self.key.range.end);
        Span { range: self.key.range.start..end, ..self.key.clone() }
    }
}

/// What the name of a resource means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// Whole GPUs.
    Gpu {
        /// Who makes them.
        vendor: Vendor,
        /// Whether the name is another than the device plugin's, so that no node offers it.
        misspelt: bool,
    },
    /// EFA interfaces.
    Efa {
        /// Whether the name is another than the device plugin's.
        misspelt: bool,
    },
    /// `hugepages-2Mi`
    HugePages,
    /// `cpu`, `memory`, storage: what Kubernetes itself knows.
    Standard,
    /// Any other name of a device plugin: `rdma/hca`, `nvidia.com/mig-1g.5gb`.
    Extended,
    /// A name without a domain that Kubernetes does not know.
    Unknown,
}

/// Who makes a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// `nvidia.com/gpu`
    Nvidia,
    /// `amd.com/gpu`
    Amd,
}

/// Names that look like misspelt ones and are other resources.
const OTHERS: [&str; 6] = [
    "nvidia.com/vgpu",
    "nvidia.com/pgpu",
    "nvidia.com/gpu.shared",
    "hpc.amazonaws.com/efa",
    "nvidia.com/cpu",
    "vpc.amazonaws.com/eni",
];

/// Spellings that differ in more than two letters: the domain or the part after `/` is left out or is another one.
const SLIPS: [(&str, &str); 14] = [
    ("nvidia.com", NVIDIA_GPU),
    ("nvidia", NVIDIA_GPU),
    ("nvidia-gpu", NVIDIA_GPU),
    ("nvidia_gpu", NVIDIA_GPU),
    ("nvidia/gpu", NVIDIA_GPU),
    ("nvidia.com/gpu-count", NVIDIA_GPU),
    ("nvidia.com/gpucount", NVIDIA_GPU),
    ("gpu.nvidia.com", NVIDIA_GPU),
    ("vpc.amazonaws.com", EFA),
    ("amazonaws.com/efa", EFA),
    ("aws.amazon.com/efa", EFA),
    ("amazon.com/efa", EFA),
    ("aws.com/efa", EFA),
    ("efa", EFA),
];

impl ResourceKind {
    /// What a name means.
    pub fn of(name: &str) -> Self {
        let gpu = |vendor, misspelt| Self::Gpu { vendor, misspelt };
        match name {
            NVIDIA_GPU => return gpu(Vendor::Nvidia, false),
            AMD_GPU => return gpu(Vendor::Amd, false),
            EFA => return Self::Efa { misspelt: false },
            "cpu" | "memory" | "ephemeral-storage" | "storage" => return Self::Standard,
            _ if name.starts_with("hugepages-") => return Self::HugePages,
            _ => {}
        }
        match meant(&name.trim().to_ascii_lowercase()) {
            Some(NVIDIA_GPU) => gpu(Vendor::Nvidia, true),
            Some(AMD_GPU) => gpu(Vendor::Amd, true),
            Some(_) => Self::Efa { misspelt: true },
            None if name.contains('/') => Self::Extended,
            None => Self::Unknown,
        }
    }

    /// The name to write for it, where there is one.
    pub fn proper_name(self) -> Option<&'static str> {
        match self {
            Self::Gpu { vendor: Vendor::Nvidia, .. } => Some(NVIDIA_GPU),
            Self::Gpu { vendor: Vendor::Amd, .. } => Some(AMD_GPU),
            Self::Efa { .. } => Some(EFA),
            Self::HugePages | Self::Standard | Self::Extended | Self::Unknown => None,
        }
    }

    /// Whether the name is another than the device plugin's.
    pub fn is_misspelt(self) -> bool {
        matches!(self, Self::Gpu { misspelt: true, .. } | Self::Efa { misspelt: true })
    }
}

/// Whether a device plugin offers it: such a resource cannot be assigned twice.
pub fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|it| it.0 != "kubernetes.io" && !it.0.ends_with(".kubernetes.io"))
}

/// The correct name for a misspelt one.
fn meant(name: &str) -> Option<&'static str> {
    if OTHERS.contains(&name) || name.starts_with("requests.") || name.starts_with("limits.") {
        return None;
    }
    let slip = SLIPS.iter().find(|it| it.0 == name).map(|it| it.1);
    let near = |known: &str| name.len().abs_diff(known.len()) <= 2 && strsim::levenshtein(name, known) <= 2;
    // `amd.com/gpu` is short: names two letters away belong to other makers.
    let amd = || name.starts_with("amd.com/") && strsim::levenshtein(name, AMD_GPU) <= 1;
    slip.or_else(|| [NVIDIA_GPU, EFA].into_iter().find(|it| near(it))).or_else(|| amd().then_some(AMD_GPU))
}

#[cfg(test)]
mod tests {
    use super::{EFA, NVIDIA_GPU, ResourceKind, Vendor, is_extended};

    #[test]
    fn slips_are_understood() {
        let gpu = |vendor| ResourceKind::Gpu { vendor, misspelt: true };
        for name in [
            "nvidia.com",
            "nvidia.com/gpus",
            "nvidia.com/GPU",
            "nvdia.com/gpu",
            "nvidia.com.gpu",
            "nvidia/gpu",
        ] {
            assert_eq!(ResourceKind::of(name), gpu(Vendor::Nvidia), "{name}");
        }
        for name in ["amd.com/gpus", "amd.com/GPU"] {
            assert_eq!(ResourceKind::of(name), gpu(Vendor::Amd), "{name}");
        }
        for name in
            ["vpc.amazonaws.com", "vpc.amazonaws.com/efas", "amazonaws.com/efa", "vpc.amazonaws.com/EFA"]
        {
            assert_eq!(ResourceKind::of(name), ResourceKind::Efa { misspelt: true }, "{name}");
        }
        assert_eq!(
            ResourceKind::of(NVIDIA_GPU),
            ResourceKind::Gpu { vendor: Vendor::Nvidia, misspelt: false }
        );
        assert_eq!(
            ResourceKind::of("amd.com/gpu"),
            ResourceKind::Gpu { vendor: Vendor::Amd, misspelt: false }
        );
    }

    #[test]
    fn other_devices_are_not_slips() {
        for name in [
            "intel.com/gpu",
            "nvidia.com/mig-1g.5gb",
            "nvidia.com/gpu.shared",
            "nvidia.com/gpumem",
            "nvidia.com/vgpu",
            "nvidia.com/hostdev",
            "rdma/hca_shared_devices_a",
            "aws.amazon.com/neuron",
            "vpc.amazonaws.com/pod-eni",
            "hpc.amazonaws.com/efa",
            "google.com/tpu",
        ] {
            assert_eq!(ResourceKind::of(name), ResourceKind::Extended, "{name}");
        }
        for name in ["cpu", "memory"] {
            assert_eq!(ResourceKind::of(name), ResourceKind::Standard);
        }
        for name in ["gpu", "${GPU}", ""] {
            assert_eq!(ResourceKind::of(name), ResourceKind::Unknown, "{name}");
        }
        assert_eq!(ResourceKind::of("hugepages-2Mi"), ResourceKind::HugePages);
    }

    #[test]
    fn devices_have_a_domain() {
        assert!(is_extended(NVIDIA_GPU) && is_extended(EFA));
        assert!(!is_extended("cpu") && !is_extended("x.kubernetes.io/a"));
    }
}

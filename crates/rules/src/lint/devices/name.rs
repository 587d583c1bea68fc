//! Names of resources, and what was meant by those that are none.

/// GPUs, as the device plugin of NVIDIA counts them.
pub(in crate::lint) const GPU: &str = "nvidia.com/gpu";
/// EFA interfaces, as the device plugin of AWS counts them.
pub(in crate::lint) const EFA: &str = "vpc.amazonaws.com/efa";

/// Names that look like those and are others.
const OTHERS: [&str; 6] = [
    "nvidia.com/vgpu",
    "nvidia.com/pgpu",
    "nvidia.com/gpu.shared",
    "hpc.amazonaws.com/efa",
    "nvidia.com/cpu",
    "vpc.amazonaws.com/eni",
];

/// Names of those that left the `/` or the domain away, or have another's.
const SLIPS: [(&str, &str); 14] = [
    ("nvidia.com", GPU),
    ("nvidia", GPU),
    ("nvidia-gpu", GPU),
    ("nvidia_gpu", GPU),
    ("nvidia/gpu", GPU),
    ("nvidia.com/gpu-count", GPU),
    ("nvidia.com/gpucount", GPU),
    ("gpu.nvidia.com", GPU),
    ("vpc.amazonaws.com", EFA),
    ("amazonaws.com/efa", EFA),
    ("aws.amazon.com/efa", EFA),
    ("amazon.com/efa", EFA),
    ("aws.com/efa", EFA),
    ("efa", EFA),
];

/// The resource of GPUs or EFA that a name means, rightly written or not.
pub(in crate::lint) fn meant(name: &str) -> Option<&'static str> {
    if let Some(exact) = [GPU, EFA].into_iter().find(|it| *it == name) {
        return Some(exact);
    }
    let name = name.trim().to_ascii_lowercase();
    if OTHERS.contains(&name.as_str()) || name.starts_with("requests.") || name.starts_with("limits.") {
        return None;
    }
    let slip = SLIPS.iter().find(|it| it.0 == name).map(|it| it.1);
    slip.or_else(|| [GPU, EFA].into_iter().find(|it| near(&name, it)))
}

/// At most two letters differ. Both ends of the name have to be there.
fn near(name: &str, known: &str) -> bool {
    let (one, other) = (name.as_bytes(), known.as_bytes());
    if one.len().abs_diff(other.len()) > 2 {
        return false;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.iter().enumerate() {
            let here = row[place + 1];
            row[place + 1] = (before + usize::from(byte != wanted)).min(here + 1).min(row[place] + 1);
            before = here;
        }
    }
    row[other.len()] <= 2
}

/// Whether Kubernetes knows a resource without a domain.
pub(in crate::lint) fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-")
}

/// Whether a device plugin gives it: such a resource cannot be promised twice.
pub(in crate::lint) fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|it| it.0 != "kubernetes.io" && !it.0.ends_with(".kubernetes.io"))
}

#[cfg(test)]
mod tests {
    use super::{EFA, GPU, is_extended, is_standard, meant};

    #[test]
    fn slips_are_understood() {
        for name in [
            GPU,
            "nvidia.com",
            "nvidia.com/gpus",
            "nvidia.com/GPU",
            "nvdia.com/gpu",
            "nvidia.com.gpu",
            "nvidia/gpu",
        ] {
            assert_eq!(meant(name), Some(GPU), "{name}");
        }
        for name in
            [EFA, "vpc.amazonaws.com", "vpc.amazonaws.com/efas", "amazonaws.com/efa", "vpc.amazonaws.com/EFA"]
        {
            assert_eq!(meant(name), Some(EFA), "{name}");
        }
    }

    #[test]
    fn other_devices_are_no_slips() {
        for name in [
            "cpu",
            "memory",
            "amd.com/gpu",
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
            "hugepages-2Mi",
            "google.com/tpu",
            "${GPU}",
            "",
        ] {
            assert_eq!(meant(name), None, "{name}");
        }
    }

    #[test]
    fn what_kubernetes_knows_is_standard() {
        assert!(is_standard("hugepages-2Mi") && is_standard("cpu") && !is_standard("gpu"));
        assert!(
            is_extended(GPU) && is_extended(EFA) && !is_extended("cpu") && !is_extended("x.kubernetes.io/a")
        );
    }
}

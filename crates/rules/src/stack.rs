//! Rules that hold for NVIDIA's GPUs and libraries alone.

use crate::{Log, Rule};

/// These rules speak of CUDA, NVLink, the NVIDIA driver or EFA, and are not checked for a job on AMD's GPUs.
pub(crate) const NVIDIA_ONLY: &[&str] = &[
    "bandwidth-below-normal",
    "bandwidth-too-good",
    "collective-in-graph-capture",
    "cuda-after-fork",
    "cuda-call-failed",
    "cuda-driver-too-old",
    "cuda-error-in-program",
    "cuda-shutting-down",
    "cumem-not-working",
    "dmabuf-unsupported",
    "driver-library-mismatch",
    "efa-device-not-in-container",
    "efa-fork-unsafe",
    "efa-hugepage-fork",
    "efa-nccl219-old-libfabric",
    "efa-nics-unexpected",
    "efa-peer-gone",
    "efa-provider-not-found",
    "efa-security-group",
    "efa-transfer-failed",
    "fabric-manager-not-running",
    "fewer-channels",
    "gdr-disabled",
    "gdr-off-by-distance",
    "gpu-ecc-error",
    "gpu-fell-off-bus",
    "gpu-isolation-per-process",
    "gpu-not-available",
    "gpu-registration-limit",
    "gpudirect-missing-on-another-rank",
    "gpudirect-off",
    "gpudirect-unsupported",
    "hardware-unknown",
    "imex-channel-missing",
    "ll128-unused",
    "mnnvl-off",
    "nccl-too-old-for-gpu",
    "nic-shared-by-gpus",
    "nic-without-ring",
    "nics-unused",
    "nvlink-fault",
    "nvlink-unused",
    "nvls-fabric-state",
    "ofi-plugin-lib-mismatch",
    "ofi-plugin-not-loaded",
    "one-gpu-of-many",
    "p2p-disabled-nvlink",
    "p2p-not-available-vm",
    "p2p-not-supported",
    "p2p-peer-limit",
    "p2p-unused",
    "plugin-too-old",
    "protocol-forced-simple",
    "search-degraded",
    "shm-inside-node",
    "topo-file-malformed",
    "topo-file-missing",
    "topo-too-many-nodes",
    "topology-limited",
    "vm-no-topology",
    "wsl-unsupported-nccl",
    "xid-reported",
];

/// Whether a rule is about the GPUs and libraries of this job.
pub(crate) fn applies(rule: &Rule, log: &Log) -> bool {
    !(log.job.is_on_amd() && NVIDIA_ONLY.contains(&rule.id))
}

#[cfg(test)]
mod tests {
    use super::NVIDIA_ONLY;
    use crate::testing::{ids, read};
    use crate::{Level, diagnose};

    const HEALTHY: &str = "z:1:1 [0] NCCL INFO Bootstrap : Using eno2np1:192.168.2.194<0>\n\
        z:1:1 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : librccl-net.so: cannot open shared object file: No such file or directory : when loading librccl-net.so\n\
        RCCL version : 2.21.5-HEAD:9a0e6a1\nHIP version  : 6.3.42134-a9a80e791\nROCm version : 6.3.3.0-74-cbc70b5\nLibrccl path : /opt/rocm-6.3.3/lib/librccl.so.1\n\
        z:1:1 [0] NCCL INFO ROCr version 1.14\nz:1:1 [0] NCCL INFO Using network Socket\n\
        z:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n\
        z:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer comm 0x1 nRanks 02\n\
        z:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId c5000 commId 0x9 localSize 328 used 1024 bytes on core 3 - Init COMPLETE\n";

    #[test]
    fn the_list_has_rules_that_exist() {
        for id in NVIDIA_ONLY {
            assert!(crate::find(id).is_some(), "{id}");
        }
    }

    #[test]
    fn a_healthy_job_with_rccl_is_quiet() {
        assert!(ids(HEALTHY).is_empty(), "{:?}", ids(HEALTHY));
        let verdict = diagnose(&read(HEALTHY)).verdict;
        assert_ne!(verdict.level, Level::Error);
        assert!(verdict.text.contains("RCCL 2.21.5"), "{}", verdict.text);
    }

    #[test]
    fn advice_of_rccl_is_not_a_failure() {
        let advice = "z:1:1 [0] /x/src/init.cpp:126 NCCL WARN Missing \"HSA_FORCE_FINE_GRAIN_PCIE=1\" from environment which can lead to low RCCL performance, system instablity or hang!\n";
        let log = format!("{advice}{HEALTHY}");
        assert_eq!(ids(&log), ["rccl-setting-missing"]);
        assert_eq!(diagnose(&read(&log)).verdict.level, Level::Info);
    }

    #[test]
    fn advice_about_nvidias_stack_is_not_for_amd() {
        let refused = "z:1:1 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error Bad address\n\
                       z:1:1 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n";
        let of = |stack: &str| ids(&format!("{stack}\n{refused}"));
        assert!(of("z:1:1 [0] NCCL INFO cudaDriverVersion 12090").contains(&"gdr-disabled"));
        assert!(!of("RCCL version : 2.21.5-HEAD:9a0e6a1").contains(&"gdr-disabled"));
    }
}

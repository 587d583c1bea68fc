//! Peer to peer and GPUDirect.

use super::Signal;
use crate::source::Kind;

/// The GPUs have NVLink, but the driver refuses peer access over it.
pub static P2P_OFF_ON_NVLINK: Signal = Signal {
    name: "p2p-off-on-nvlink",
    templates: &["P2P is disabled between NVLINK connected GPUs {a} and {b}."],
    source: "NCCL src/graph/paths.cc, a warning since 2.14",
    meaning: "NVML reports that peer access is not possible between two GPUs that NVLink joins; NCCL gives up.",
    kind: Kind::NcclLog,
};

/// The driver refuses peer access between GPUs of one root complex.
pub static P2P_OFF: Signal = Signal {
    name: "p2p-off",
    templates: &["P2P is disabled between connected GPUs {a} and {b}."],
    source: "NCCL src/graph/paths.cc, an INFO line since 2.14",
    meaning: "NVML reports that peer access is not possible between two near GPUs; NCCL uses host memory.",
    kind: Kind::NcclLog,
};

/// CUDA refuses peer access.
pub static P2P_NOT_ENABLED: Signal = Signal {
    name: "p2p-not-enabled",
    templates: &[
        "Could not enable P2P between dev {a}(={abus}) and dev {b}(={bbus})",
        "peer query failed between dev {a}(={abus}) and dev {b}(={bbus})",
    ],
    source: "NCCL src/transport/p2p.cc, all releases",
    meaning: "CUDA reports that one GPU cannot reach the memory of another; NCCL uses host memory.",
    kind: Kind::NcclLog,
};

/// A peer's memory could not be mapped, though NCCL chose to.
pub static PEER_NOT_SUPPORTED: Signal = Signal {
    name: "peer-not-supported",
    templates: &["peer access is not supported between these two devices"],
    source: "CUDA, error 217 (64 before CUDA 10.1), printed by NCCL, vLLM, TensorRT-LLM and PyTorch",
    meaning: "A program mapped the memory of a GPU that this GPU cannot reach.",
    kind: Kind::TrainingLog,
};

/// The table of peers is full.
pub static TOO_MANY_PEERS: Signal = Signal {
    name: "too-many-peers",
    templates: &["peer mapping resources exhausted", "CUDA_ERROR_TOO_MANY_PEERS", "cudaErrorTooManyPeers"],
    source: "CUDA, error 711 (60 before CUDA 10.1)",
    meaning: "A GPU has as many peers as the driver allows, counted over all processes.",
    kind: Kind::TrainingLog,
};

/// A handle of another process's GPU memory could not be opened because the GPU is not visible here.
pub static PEER_GPU_INVISIBLE: Signal = Signal {
    name: "peer-gpu-invisible",
    templates: &[
        "transport/p2p.cc:{line} NCCL WARN Cuda failure 101 'invalid device ordinal'",
        "transport/p2p.cc:{line} NCCL WARN Cuda failure 'invalid device ordinal'",
        "Cuda failure 101 'invalid device ordinal'",
    ],
    source: "NCCL src/transport/p2p.cc with cuMem, 2.19 and later",
    meaning: "NCCL tried to map the memory of a GPU that this process cannot see.",
    kind: Kind::NcclLog,
};

/// A handle of another process's GPU memory could not be opened.
pub static IPC_OPEN_FAILED: Signal = Signal {
    name: "ipc-open-failed",
    templates: &[
        "failed to open CUDA IPC handle : {why...}",
        "Failed to register remote memory, {why...}",
        "The call to cuIpcOpenMemHandle failed{why...}",
    ],
    source: "NCCL src/transport/p2p.cc, up to 2.12; Open MPI",
    meaning: "CUDA IPC does not work between two processes.",
    kind: Kind::NcclLog,
};

/// One GPU per task.
pub static GPU_BOUND_TO_TASK: Signal = Signal {
    name: "gpu-bound-to-task",
    templates: &[
        "--gpus-per-task={n}",
        "--gpus-per-task {n}",
        "--gpu-bind=single:{n}",
        "--gpu-bind=per_task:{n}",
        "--gpu-bind=map_gpu:{n}",
        "--gpu-bind=closest",
        "--tres-bind=gres/gpu:{how}",
    ],
    source: "srun and sbatch",
    meaning: "Slurm lets each task see only its own GPU.",
    kind: Kind::Notes,
};

/// An RDMA operation failed on local memory: the HCA could not reach it.
pub static IB_LOCAL_PROTECTION: Signal = Signal {
    name: "ib-local-protection",
    templates: &[
        "Got completion from peer {peer} with error 4, opcode {opcode}",
        "Got completion from peer with error 4, opcode {opcode}",
        "Got completion with error 4, opcode {opcode}",
        "Got completion error 4, opcode {opcode}",
        "with status=4 opcode={opcode}",
        "with status=IBV_WC_LOC_PROT_ERR(4)",
        "with status=LOC_PROT_ERR(4)",
        "send completion with error: local protection error",
        "Local protection on {device} (synd 0x4 vend {vendor}",
        "Failed status 4: wr_id {id} syndrom",
    ],
    source: "NCCL src/transport/net_ib*, all releases; the RDMA and SHARP plugin (ib_plugin.c); UCX; perftest",
    meaning: "Completion status 4, a local protection error: the HCA could not read or write the memory of a transfer.",
    kind: Kind::NcclLog,
};

/// NCCL's own hint about status 4.
pub static ACS_HINT: Signal = Signal {
    name: "acs-hint",
    templates: &[
        "HINT: In many cases this error occurs when ACS is enabled which would break GPU Direct RDMA protocol",
        "HINT: To confirm and fix the problem, you can set NCCL_NET_GDR_LEVEL=0",
    ],
    source: "NCCL src/transport/net_ib/common.h, 2.30.7, subsystem NET",
    meaning: "NCCL suspects that PCIe access control breaks GPUDirect.",
    kind: Kind::NcclLog,
};

/// PCIe access control of a bridge.
pub static ACS_CONTROL: Signal = Signal {
    name: "acs-control",
    templates: &["ACSCtl: {flags...}"],
    source: "lspci -vvv",
    meaning: "Which requests a PCIe bridge sends up to the root complex. `ReqRedir+` diverts peer to peer.",
    kind: Kind::Notes,
};

/// The IOMMU stopped a device.
pub static IOMMU_FAULT: Signal = Signal {
    name: "iommu-fault",
    templates: &[
        "AMD-Vi: Event logged [IO_PAGE_FAULT {what...}",
        "AMD-Vi: Event logged [INVALID_DEVICE_REQUEST {what...}",
        "DMAR: DRHD: handling fault status {what...}",
        "DMAR: [DMA Write] Request device {what...}",
        "DMAR: [DMA Read] Request device {what...}",
        "DMAR: [DMA Write NO_PASID] Request device {what...}",
        "DMAR: [DMA Read NO_PASID] Request device {what...}",
    ],
    source: "Linux, drivers/iommu",
    meaning: "A device used an address that the IOMMU does not know.",
    kind: Kind::KernelLog,
};

/// RCCL's advice about the IOMMU.
pub static IOMMU_ADVICE: Signal = Signal {
    name: "iommu-advice",
    templates: &["Missing \"iommu=pt\" from kernel command line"],
    source: "RCCL src/init.cc",
    meaning: "RCCL advises the IOMMU's passthrough mode.",
    kind: Kind::NcclLog,
};

/// Lines of p2pBandwidthLatencyTest.
pub static PEER_TABLE: Signal = Signal {
    name: "peer-table",
    templates: &[
        "Device={a} CAN Access Peer Device={b}",
        "Device={a} CANNOT Access Peer Device={b}",
        "P2P Connectivity Matrix",
    ],
    source: "CUDA samples, p2pBandwidthLatencyTest",
    meaning: "Which GPUs CUDA lets reach each other. Pairs that cannot are normal across root complexes.",
    kind: Kind::Notes,
};

/// A DMA-BUF could not be registered with the HCA.
pub static DMABUF_FAILED: Signal = Signal {
    name: "dmabuf-failed",
    templates: &[
        "Call to ibv_reg_dmabuf_mr failed{why...}",
        "Call to mlx5dv_reg_dmabuf_mr failed{why...}",
        "ibv_reg_dmabuf_mr failed with error {why...}",
        "ibv_reg_dmabuf_mr() failed: {why...}",
        "ibv_reg_dmabuf_mr failed: {why...}",
        "ibv_reg_dmabuf_mr(address={address}) failed: {why...}",
    ],
    source: "NCCL src/misc/ibvwrap.cc, 2.13 and later; UCX; libfabric",
    meaning: "NCCL used DMA-BUF for GPUDirect, but the kernel, rdma-core or the HCA driver refused it.",
    kind: Kind::NcclLog,
};

/// GPUDirect is off for an adapter, on a line that lost its NCCL prefix.
pub static HCA_WITHOUT_GPUDIRECT: Signal = Signal {
    name: "hca-without-gpudirect",
    templates: &[
        "GPU Direct RDMA Disabled for HCA {n} '{hca}'",
        "NET/IB : GPU Direct RDMA Disabled for GPU {gpu} / HCA {n} '{hca}' (no module or not supported by GPU)",
    ],
    source: "NCCL src/graph/topo.cc (2.13+), src/transport/net_ib.cc (before), subsystem NET",
    meaning: "The HCA cannot reach GPU memory: neither peermem nor DMA-BUF works.",
    kind: Kind::NcclLog,
};

/// A connection over InfiniBand, on a line that lost its NCCL prefix.
pub static CONNECTION_QUOTED: Signal = Signal {
    name: "connection-quoted",
    templates: &["[send] via NET/IB/{device}", "[receive] via NET/IB/{device}"],
    source: "NCCL src/transport/net.cc, quoted",
    meaning: "A connection between nodes; the line has GDRDMA where it uses GPUDirect.",
    kind: Kind::NcclLog,
};

/// GPUDirect is off because the adapter is far.
pub static GPUDIRECT_TOO_FAR: Signal = Signal {
    name: "gpudirect-too-far",
    templates: &[
        "GPU Direct RDMA Disabled for GPU {gpu} / HCA {hca} (distance {distance} > {limit})",
        "GPU Direct RDMA Disabled for GPU {gpu} / HCA {hca} (distance {distance} >= {limit})",
    ],
    source: "NCCL src/graph/paths.cc, up to 2.28; src/transport/net.cc in 2.4; subsystems GRAPH and NET",
    meaning: "The path from GPU to adapter is longer than NCCL_NET_GDR_LEVEL allows.",
    kind: Kind::NcclLog,
};

/// The module is loaded but did not register with the RDMA core, or is not loaded.
pub static PEERMEM_NOT_REGISTERED: Signal = Signal {
    name: "peermem-not-registered",
    templates: &[
        "/sys/kernel/mm/memory_peers/{module}: No such file or directory",
        "'/sys/kernel/mm/memory_peers': No such file or directory",
        "modprobe: ERROR: could not insert 'nvidia_peermem': {why...}",
        "modprobe: FATAL: Module nvidia_peermem not found",
        "modprobe: FATAL: Module nvidia-peermem not found",
        "modprobe: FATAL: Module nv_peer_mem not found",
    ],
    source: "cat, ls, modprobe",
    meaning: "No driver offers GPU memory to the RDMA core.",
    kind: Kind::Notes,
};

/// The HCA could not register memory of a GPU.
pub static GPU_REGISTRATION_FAILED: Signal = Signal {
    name: "gpu-registration-failed",
    templates: &[
        "Call to ibv_reg_mr failed with error Bad address",
        "Call to ibv_reg_mr_iova2 failed with error Bad address",
        "ibv_reg_mr(address={address}) failed: Bad address",
    ],
    source: "NCCL src/misc/ibvwrap.cc, UCX",
    meaning: "NCCL registered an address outside host memory, but no driver knows it: peermem is missing or broken.",
    kind: Kind::NcclLog,
};

/// What the driver reports about peer access, pair by pair.
pub static PEER_MATRIX_REFUSED: Signal = Signal {
    name: "peer-matrix-refused",
    templates: &["GPU0{cells}CNS", "GPU0{cells}GNS", "GPU0{cells}TNS"],
    source: "nvidia-smi topo -p2p r",
    meaning: "The driver refuses peer access: chipset, GPU or topology not supported.",
    kind: Kind::Notes,
};

/// The first collective of a process group never finished.
pub static FIRST_COLLECTIVE_TIMEOUT: Signal = Signal {
    name: "first-collective-timeout",
    templates: &[
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType={op},",
        "Watchdog caught collective operation timeout: WorkNCCL(OpType={op},",
    ],
    source: "PyTorch ProcessGroupNCCL.cpp, 1.8 and later",
    meaning: "The first collective of a group timed out: nothing was ever exchanged.",
    kind: Kind::TrainingLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &ACS_CONTROL,
    &ACS_HINT,
    &CONNECTION_QUOTED,
    &DMABUF_FAILED,
    &FIRST_COLLECTIVE_TIMEOUT,
    &GPUDIRECT_TOO_FAR,
    &GPU_BOUND_TO_TASK,
    &GPU_REGISTRATION_FAILED,
    &HCA_WITHOUT_GPUDIRECT,
    &IB_LOCAL_PROTECTION,
    &IOMMU_ADVICE,
    &IOMMU_FAULT,
    &IPC_OPEN_FAILED,
    &P2P_NOT_ENABLED,
    &P2P_OFF,
    &P2P_OFF_ON_NVLINK,
    &PEERMEM_NOT_REGISTERED,
    &PEER_GPU_INVISIBLE,
    &PEER_MATRIX_REFUSED,
    &PEER_NOT_SUPPORTED,
    &PEER_TABLE,
    &TOO_MANY_PEERS,
];

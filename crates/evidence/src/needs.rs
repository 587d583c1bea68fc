//! What a rule needs to see, and how to get it.

/// A source of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Any text of a job: its output, a traceback.
    JobOutput,
    /// Lines of NCCL at level INFO.
    NcclLog,
    /// Lines that show the transport between ranks.
    Connections,
    /// The logs of all ranks.
    AllRanks,
    /// Lines of the subsystems GRAPH and NET.
    GraphLines,
    /// The kernel's messages.
    KernelLog,
    /// `nvidia-smi topo -m`.
    TopologyMatrix,
    /// NCCL's topology dump.
    TopologyXml,
    /// Which machine this is.
    Instance,
    /// What NCCL decides on this machine: its description, and a release that is modelled.
    Decisions,
    /// Output of nccl-tests.
    NcclTests,
    /// The manifest or launch command of the job.
    LaunchCommand,
    /// Output of the trainer.
    TrainingLog,
    /// Dumps of PyTorch's Flight Recorder.
    FlightRecorder,
    /// Answers of NCCL's RAS service.
    Ras,
    /// The network's own diagnostics.
    FabricDiagnostics,
    /// The limits of the process or container.
    Limits,
    /// What the NVIDIA driver reports of its GPUs.
    GpuDriver,
    /// Devices of the PCI bus and the network in `/sys`.
    Devices,
    /// The configuration space of PCI devices.
    PciConfiguration,
    /// The programs of the host.
    HostProcesses,
    /// The states of two nodes or more.
    SeveralNodes,
    /// How many GPUs a node should have.
    ExpectedGpus,
}

/// A source that a rule needs and the input lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Missing(pub Source);

impl Source {
    /// How to obtain this source, as shown to the user.
    pub fn how_to_get(self) -> &'static str {
        match self {
            Self::JobOutput => "the output of the job, standard error included",
            Self::NcclLog => "the log of a run with NCCL_DEBUG=INFO",
            Self::Connections => {
                "the log of a run with NCCL_DEBUG=INFO that reaches the first collective (`Channel ... via` lines)"
            }
            Self::AllRanks => {
                "the logs of all ranks: NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log, `kubectl logs -l LABEL --prefix --tail=-1`, or `srun --label`"
            }
            Self::GraphLines => "a log with NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,GRAPH,TUNING,NET",
            Self::KernelLog => "the kernel's messages of each node: `dmesg -T | grep -iE 'NVRM|xid|oom|aer'`",
            Self::TopologyMatrix => "`nvidia-smi topo -m` of a node",
            Self::TopologyXml => "NCCL's topology: run with NCCL_TOPO_DUMP_FILE=/tmp/topo.xml",
            Self::Instance => {
                "the machine: aws-ofi-nccl names it in the log, or add the pod's manifest (node.kubernetes.io/instance-type)"
            }
            Self::Decisions => {
                "the machine and what NCCL 2.18 to 2.30 decided on it: a log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING, or `plumb doctor --instance NAME`"
            }
            Self::NcclTests => "the output of nccl-tests, e.g. `all_reduce_perf -b 8 -e 8G -f 2 -g 1`",
            Self::LaunchCommand => "the manifest or the launch command of the job",
            Self::TrainingLog => "the trainer's own output",
            Self::FlightRecorder => {
                "PyTorch's Flight Recorder: run with TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_DUMP_TEMP_FILE=/shared/nccl_trace_rank_ (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE) and give the files of all ranks"
            }
            Self::Ras => {
                "the answer of NCCL's RAS service while the job hangs: `ncclras -v` on one of its hosts (NCCL 2.24 or newer)"
            }
            Self::FabricDiagnostics => {
                "the network's diagnostics: `ibdiagnet`, `ethtool -S`, `rdma -p statistic show`, EFA hw_counters"
            }
            Self::Limits => "`ulimit -a` and `df -h /dev/shm` inside the container",
            Self::GpuDriver => {
                "the NVIDIA driver's own report: run `plumb node` (the glibc build) where libnvidia-ml.so.1 and /dev/nvidia* are visible"
            }
            Self::Devices => "the devices in /sys: run `plumb node` where /sys is mounted",
            Self::PciConfiguration => {
                "the configuration space of PCI bridges: run `plumb node` as root on the host"
            }
            Self::HostProcesses => {
                "the programs of the host: run `plumb node` on the host, or in a container with --pid=host"
            }
            Self::SeveralNodes => "the states of several nodes: `plumb node A.json B.json ...`",
            Self::ExpectedGpus => {
                "how many GPUs the node should have: `--gpus 0` for a login or CPU node, otherwise `--gpus 8` or `--instance NAME`"
            }
        }
    }
}

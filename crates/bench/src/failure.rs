//! Why a benchmark could not be run, as data. `report` writes the sentence.

use serde::{Deserialize, Serialize};

/// One failure: what, about which rank, on which host, while doing what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub cause: Cause,
    /// The rank it is about, where one is known.
    pub rank: Option<usize>,
    /// The host of that rank, or its address.
    pub host: Option<String>,
    /// What the job was doing: `rendezvous`, `all_reduce of 1048576 bytes`.
    pub stage: Option<String>,
}

impl Failure {
    /// A failure that is not about one rank.
    pub fn new(cause: Cause) -> Self {
        Self { cause, rank: None, host: None, stage: None }
    }

    /// The same, about a rank.
    #[must_use]
    pub fn of(mut self, rank: usize, host: Option<&str>) -> Self {
        self.rank = Some(rank);
        self.host = host.map(str::to_owned);
        self
    }

    /// The same, during a stage.
    #[must_use]
    pub fn during(mut self, stage: &str) -> Self {
        self.stage = Some(stage.to_owned());
        self
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::new(cause)
    }
}

/// What went wrong. `detail` is the text of the program or system that reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub enum Cause {
    /// A rank's process ended.
    RankDied { detail: String },
    /// A rank does not answer: it is stopped, it hangs, or its machine is gone.
    RankSilent { detail: String },
    /// A rank did not come to the rendezvous.
    RankDidNotJoin { detail: String },
    /// A connection broke although both ends live.
    ConnectionBroken { detail: String },
    /// Ranks made different calls.
    CallsDiffer { detail: String },
    /// The other side does not know the job's token.
    WrongToken { detail: String },
    /// The other side is another release of plumb.
    WrongRelease { detail: String },
    /// The port to listen on is taken.
    PortInUse { detail: String },
    /// There is no space for shared memory.
    NoSharedMemory { detail: String },
    /// A rank ended the job.
    Interrupted { detail: String },
    /// An argument that cannot be.
    Usage { detail: String },
    /// The operating system refused something.
    System { detail: String },
    /// The launcher's variables or its process manager do not say where this rank belongs.
    Launch { detail: String },
    /// The engine's log cannot be written.
    LogFile { path: String, detail: String },

    /// A rank was given other flags than rank 0.
    FlagsDiffer { flag: String, rank0: String },
    /// The buffers of a host's ranks are larger than its free memory, in bytes.
    MemoryShort { ranks: usize, needed: u64, free: u64 },
    /// There is no memory for one buffer.
    NoBuffer { bytes: u64 },
    /// The root is not one of the ranks.
    NoSuchRoot { root: usize },
    /// A size that this machine cannot count.
    SizeTooLarge { bytes: u64 },
    /// A call or a copy beyond the end of the buffers.
    OutsideBuffer { bytes: u64 },
    /// A rank's message to the others is not what it must be.
    BadExchange { problem: Exchange },

    /// A static build of plumb cannot load libraries.
    StaticBuild { library: String },
    /// The library of the NVIDIA driver is not on this machine.
    DriverMissing { library: String, detail: String },
    /// NCCL was not found.
    NcclMissing { library: String },
    /// A file is there and cannot be loaded.
    LibraryUnloadable { path: String, detail: String },
    /// The library lacks a function: it is too old, or another library.
    FunctionMissing { library: String, function: String },
    /// NCCL is older than the engine needs.
    NcclTooOld { found: String, oldest: String },
    /// Ranks have different releases of NCCL.
    NcclReleasesDiffer { rank0: String, other: String },
    /// The NVIDIA driver shows no GPU to this process.
    NoGpu,
    /// `NCCL_TESTS_DEVICE` is not the number of a GPU.
    DeviceVariable { value: String, gpus: usize },
    /// Two ranks have the same GPU.
    GpuShared { other: usize, other_host: Option<String>, bus: String },
    /// More ranks than NCCL can count.
    TooManyRanks { ranks: usize },
    /// A function of NCCL failed.
    NcclCall { function: String, detail: String },
    /// A function of the CUDA driver failed.
    CudaCall { function: String, detail: String },
    /// There is no GPU memory for one buffer; all in bytes.
    NoGpuMemory { bytes: u64, free: u64, total: u64, detail: String },
    /// NCCL did not return in time.
    NcclTimeout { seconds: u64 },
    /// The thread that calls NCCL cannot be started, or has ended.
    NcclThread { detail: String },
    /// The process has other threads, so its environment cannot be changed.
    SeveralThreads,
}

/// What is wrong with a rank's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// A rank is missing.
    RankMissing,
    /// It has another number of times.
    Count,
    /// It has a time that is negative or not a number.
    Time,
    /// It is not the result of a check.
    Check,
    /// It does not describe a GPU.
    Gpu,
    /// It has no unique id of NCCL.
    UniqueId,
}

#[cfg(test)]
mod tests {
    use super::{Cause, Failure};

    #[test]
    fn a_failure_is_data() {
        let failure = Failure::new(Cause::MemoryShort { ranks: 2, needed: 8, free: 4 }).of(1, Some("a"));
        let json = serde_json::to_string(&failure.clone().during("memory")).expect("JSON");
        assert_eq!(
            json,
            r#"{"cause":{"kind":"memory_short","ranks":2,"needed":8,"free":4},"rank":1,"host":"a","stage":"memory"}"#
        );
        assert_eq!(serde_json::from_str::<Failure>(&json).expect("the same"), failure.during("memory"));
    }
}

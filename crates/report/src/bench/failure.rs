//! The message for a failed benchmark.

use bench::{Cause, Exchange, Failure};

use crate::text::clean;

/// `rank 1 on vm: its process ended (all_reduce of 1048576 bytes)`
pub fn failure(failure: &Failure) -> String {
    let what = cause(&failure.cause);
    let mut text = match (failure.rank, &failure.host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}: {what}"),
        (Some(rank), None) => format!("rank {rank}: {what}"),
        (None, Some(host)) => format!("{host}: {what}"),
        (None, None) => what,
    };
    if let Some(stage) = &failure.stage {
        text.push_str(&format!(" ({stage})"));
    }
    clean(&text)
}

fn cause(cause: &Cause) -> String {
    match cause {
        Cause::RankDied { detail }
        | Cause::RankSilent { detail }
        | Cause::RankDidNotJoin { detail }
        | Cause::ConnectionBroken { detail }
        | Cause::CallsDiffer { detail }
        | Cause::WrongToken { detail }
        | Cause::WrongRelease { detail }
        | Cause::PortInUse { detail }
        | Cause::NoSharedMemory { detail }
        | Cause::Interrupted { detail }
        | Cause::Usage { detail }
        | Cause::System { detail }
        | Cause::Launch { detail } => detail.clone(),
        Cause::LogFile { path, detail } => format!("{path}: {detail}"),
        Cause::FlagsDiffer { flag, rank0 } => format!("has `{flag}` where rank 0 has `{rank0}`"),
        Cause::MemoryShort { ranks, needed, free } => format!(
            "{ranks} {} {} for buffers, but only {} are free: use a smaller -e or fewer ranks",
            if *ranks == 1 { "rank needs" } else { "ranks need" },
            amount(*needed),
            amount(*free)
        ),
        Cause::NoBuffer { bytes } => format!("not enough memory for a buffer of {bytes} bytes"),
        Cause::NoSuchRoot { root } => format!("root {root} does not exist: it must be one of the ranks"),
        Cause::SizeTooLarge { bytes } => format!("{bytes} bytes are more than this machine can address"),
        Cause::OutsideBuffer { bytes } => format!("{bytes} bytes do not fit into the buffers"),
        Cause::BadExchange { problem } => exchange(*problem).to_owned(),
        Cause::StaticBuild { library } => format!(
            "NCCL engine: this is the static build of plumb, which cannot load {library}: use the glibc build on GPU nodes"
        ),
        Cause::DriverMissing { library, detail } => format!(
            "NCCL engine: {library} is not on this machine: the NVIDIA driver is not installed, or not visible in this container ({detail})"
        ),
        Cause::NcclMissing { library } => format!(
            "NCCL engine: {library} was not found: install it with `pip install nvidia-nccl-cu12` (or -cu13), add its folder to LD_LIBRARY_PATH, or give the file with --nccl-library"
        ),
        Cause::LibraryUnloadable { path, detail } => {
            format!("NCCL engine: {path} cannot be loaded: {detail}")
        }
        Cause::FunctionMissing { library, function } => {
            format!("NCCL engine: {library} has no function {function}: it is too old, or another library")
        }
        Cause::NcclTooOld { found, oldest } => {
            format!("NCCL engine: NCCL {found} is too old: plumb needs {oldest} or newer")
        }
        Cause::NcclReleasesDiffer { rank0, other } => {
            format!("has NCCL {other}, rank 0 has NCCL {rank0}: all ranks need the same release")
        }
        Cause::NoGpu => {
            "NCCL engine: the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)".to_owned()
        }
        Cause::DeviceVariable { value, gpus } => {
            format!(
                "NCCL engine: NCCL_TESTS_DEVICE={value} is not the number of a GPU: expected 0 to {}",
                gpus.saturating_sub(1)
            )
        }
        Cause::GpuShared { other, other_host, bus } => format!(
            "uses the same GPU as rank {other} on {}, {bus}: NCCL needs one GPU per rank (start fewer ranks, or check CUDA_VISIBLE_DEVICES)",
            other_host.as_deref().unwrap_or("its host")
        ),
        Cause::TooManyRanks { ranks } => format!("NCCL engine: {ranks} ranks are more than NCCL can count"),
        Cause::NcclCall { function, detail } => format!("NCCL engine: {function} failed: {detail}"),
        Cause::CudaCall { function, detail } => format!("NCCL engine: CUDA: {function} failed: {detail}"),
        Cause::NoGpuMemory { bytes, free, total, detail } => format!(
            "NCCL engine: CUDA: cuMemAlloc failed: {detail}: a buffer needs {}, and {} of the GPU's {} are free",
            amount(*bytes),
            amount(*free),
            amount(*total)
        ),
        Cause::NcclTimeout { seconds } => format!("NCCL engine: NCCL did not return within {seconds} s"),
        Cause::NcclThread { detail } => {
            format!("NCCL engine: the thread that calls NCCL does not run: {detail}")
        }
        Cause::SeveralThreads => {
            "NCCL's log is not captured: the process has several threads already".to_owned()
        }
    }
}

fn exchange(problem: Exchange) -> &'static str {
    match problem {
        Exchange::RankMissing => "a rank is missing in an exchange of results",
        Exchange::Count => "sent another number of times than this rank measured",
        Exchange::Time => "sent a time that is negative or not a number",
        Exchange::Check => "a rank sent something that is not the result of a check",
        Exchange::Gpu => "sent something that does not describe a GPU",
        Exchange::UniqueId => "sent no unique id of NCCL",
    }
}

/// `1.5 GiB`
fn amount(bytes: u64) -> String {
    let mib = bytes / (1 << 20);
    if mib < 1024 { format!("{mib} MiB") } else { format!("{}.{} GiB", mib / 1024, mib % 1024 * 10 / 1024) }
}

#[cfg(test)]
mod tests {
    use bench::{Cause, Failure};

    use super::{amount, failure};

    #[track_caller]
    fn check(cause: Cause, expected: &str) {
        assert_eq!(failure(&Failure::new(cause)), expected);
    }

    #[test]
    fn rank_host_and_stage_stand_around_the_cause() {
        let died = Failure::new(Cause::RankDied { detail: "its process ended".to_owned() });
        assert_eq!(failure(&died), "its process ended");
        assert_eq!(failure(&died.clone().of(1, None)), "rank 1: its process ended");
        let full = died.of(1, Some("vm\u{1b}[31m")).during("rendezvous");
        assert_eq!(failure(&full), "rank 1 on vm[31m: its process ended (rendezvous)");
    }

    #[test]
    fn sentences() {
        check(
            Cause::MemoryShort { ranks: 1, needed: 3 << 30, free: 1 << 20 },
            "1 rank needs 3.0 GiB for buffers, but only 1 MiB are free: use a smaller -e or fewer ranks",
        );
        check(
            Cause::StaticBuild { library: "libcuda.so.1".to_owned() },
            "NCCL engine: this is the static build of plumb, which cannot load libcuda.so.1: use the glibc build on GPU nodes",
        );
        check(
            Cause::GpuShared { other: 0, other_host: Some("a".to_owned()), bus: "1b:00.0".to_owned() },
            "uses the same GPU as rank 0 on a, 1b:00.0: NCCL needs one GPU per rank (start fewer ranks, or check CUDA_VISIBLE_DEVICES)",
        );
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!(
            [0, 5 << 20, 3 << 29, 100 << 40].map(amount),
            ["0 MiB", "5 MiB", "1.5 GiB", "102400.0 GiB"]
        );
    }
}

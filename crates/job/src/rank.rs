//! The ranks of a job and what each of them is: its process, host and GPU are separate identities.

use evidence::{Case, Member};

/// A rank whose lines were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Its number in the largest communicator.
    pub rank: u32,
    /// Its process, by position in [`Case::processes`].
    pub process: usize,
    /// The host its process runs on; empty where the lines had lost their prefix.
    pub host: Box<str>,
    /// Its process id on that host.
    pub pid: u32,
    /// Its GPU.
    pub gpu: GpuIds,
    /// Whether it finished the setup.
    pub complete: bool,
}

/// The names that one GPU has: each counts differently inside a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuIds {
    /// CUDA's index, among the devices visible to the process.
    pub cuda_device: Option<u32>,
    /// NVML's index, among the devices visible to the driver in the container.
    pub nvml_device: Option<u32>,
    /// The PCI address, as NCCL prints it.
    pub bus_id: Option<u64>,
}

/// The ranks of the largest communicator, by number.
pub fn ranks(case: &Case) -> Vec<Rank> {
    let Some(world) = case.world() else { return Vec::new() };
    let rank = |(rank, member): (&u32, &Member)| {
        let process = case.processes.get(member.process)?;
        let line = member.line();
        Some(Rank {
            rank: *rank,
            process: member.process,
            host: process.host.clone(),
            pid: process.pid,
            gpu: GpuIds {
                cuda_device: line.and_then(|it| it.cuda_device),
                nvml_device: line.and_then(|it| it.nvml_device),
                bus_id: line.and_then(|it| it.bus_id),
            },
            complete: member.is_complete(),
        })
    };
    world.members.iter().filter_map(rank).collect()
}

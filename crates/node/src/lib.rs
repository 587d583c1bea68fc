//! The live machine as facts: what the NVIDIA driver, the PCI bus and the kernel report. For Linux.
//!
//! ```text
//! driver (NVML): names, compute capability, NVLinks --+
//!                                                     +-> Machine, and notes on what could not be read
//! sysfs: the PCI tree, NUMA nodes, network devices ---+
//! ```
//!
//! [`read`] gives how the machine is wired, [`state`] how its parts are. It only reads, and nothing that needs root. It does not judge.

#![forbid(unsafe_code)]

mod driver;
mod gpu_state;
mod network;
mod state;
mod sysfs;

use std::collections::BTreeMap;
use std::path::Path;

use fabric::Machine;
use fabric::gpu::NvLinkBy;
use fabric::machine::{Bridge, BusId, Gpu, NvEnd, NvLink, Place};

use driver::{Driver, DriverGpu};
use sysfs::Sysfs;

pub use state::state;

/// This machine, and what could not be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// The machine.
    pub machine: Machine,
    /// What was skipped or could not be read, in sentences.
    pub notes: Vec<String>,
}

/// Reads this machine.
pub fn read() -> Live {
    read_from(Path::new("/"), driver::read())
}

/// Reads the machine whose `sys` and `proc` are below `root`, and what a driver reports of its GPUs.
fn read_from(root: &Path, driver: Result<Driver, String>) -> Live {
    let sysfs = Sysfs::new(root);
    let mut notes = Vec::new();
    let mut machine = Machine { name: sysfs.name(), sockets: sysfs.sockets().to_vec(), ..Machine::default() };
    if !sysfs.has_pci() {
        notes.push("/sys does not show the PCI bus (not mounted, or hidden by a container).".to_owned());
    }
    let mut wiring = Wiring::default();
    let gpus = add_gpus(&sysfs, driver, &mut machine, &mut wiring, &mut notes);
    add_nvlinks(&sysfs, &gpus, &mut machine, &mut notes);
    network::add(&sysfs, &mut machine, &mut wiring, &mut notes);
    if wiring.without_numa > 0 && machine.sockets.len() > 1 {
        notes.push(format!(
            "{} without a NUMA node; plumb shows them at the first one.",
            if wiring.without_numa == 1 {
                "1 device is".to_owned()
            } else {
                format!("{} devices are", wiring.without_numa)
            }
        ));
    }
    if machine.gpus.iter().any(|it| it.link.is_none()) {
        machine.unknown.push(
            "PCI Express speed or width of GPUs cannot be read; this is usual in a virtual machine."
                .to_owned(),
        );
    }
    Live { machine, notes }
}

/// The bridges added to the machine so far, and devices without a NUMA node.
#[derive(Debug, Default)]
struct Wiring {
    bridges: BTreeMap<BusId, usize>,
    /// Devices whose NUMA node is unknown.
    without_numa: usize,
}

impl Wiring {
    /// What a device is attached to. Adds the bridges above it to the machine.
    ///
    /// As NCCL does, every second step up the bus counts: a switch has an upstream and a downstream port, and the root ports of the CPU
    /// are not a switch.
    fn place(&mut self, sysfs: &Sysfs, bus: BusId, machine: &mut Machine) -> Place {
        let numa = sysfs.numa(bus);
        let socket = machine.sockets.iter().position(|it| numa.is_some() && it.numa == numa);
        self.without_numa += usize::from(socket.is_none());
        let mut at = Place::Socket(socket.unwrap_or(0));
        let above: Vec<BusId> = sysfs.above(bus).into_iter().skip(1).step_by(2).collect();
        for bridge in above.into_iter().rev() {
            at = match self.bridges.get(&bridge) {
                Some(known) => Place::Bridge(*known),
                None => {
                    machine.bridges.push(Bridge { at, bus: Some(bridge), link: sysfs.link(bridge) });
                    self.bridges.insert(bridge, machine.bridges.len() - 1);
                    Place::Bridge(machine.bridges.len() - 1)
                }
            };
        }
        at
    }
}

/// Adds the GPUs to the machine, by socket and bus. Returns what the driver reports of each, in that order.
fn add_gpus(
    sysfs: &Sysfs,
    driver: Result<Driver, String>,
    machine: &mut Machine,
    wiring: &mut Wiring,
    notes: &mut Vec<String>,
) -> Vec<DriverGpu> {
    let on_bus = sysfs.gpus();
    let gpus: Vec<DriverGpu> = match driver {
        Ok(driver) => {
            let hidden = on_bus.iter().filter(|bus| driver.gpus.iter().all(|it| it.bus != **bus)).count();
            if hidden > 0 && sysfs.has_pci() {
                notes.push(format!(
                    "{hidden} more NVIDIA {} on the PCI bus, but the driver does not list them (a container may see only some GPUs).",
                    if hidden == 1 { "GPU is" } else { "GPUs are" }
                ));
            }
            notes.extend(driver.notes);
            driver.gpus
        }
        Err(problem) if on_bus.is_empty() => {
            notes.push(format!(
                "There is no NVIDIA GPU on the PCI bus, and the NVIDIA driver is not available ({problem})."
            ));
            Vec::new()
        }
        Err(problem) => {
            notes.push(format!(
                "The NVIDIA driver is not available ({problem}): GPUs are known from the PCI bus only."
            ));
            machine.unknown.push("Only the driver knows GPU models and NVLinks.".to_owned());
            (0..).zip(on_bus).map(|(index, bus)| DriverGpu { index, bus, ..DriverGpu::default() }).collect()
        }
    };
    let mut placed: Vec<(Place, DriverGpu)> = Vec::new();
    for gpu in gpus {
        placed.push((wiring.place(sysfs, gpu.bus, machine), gpu));
    }
    placed.sort_by_key(|(at, gpu)| (machine.socket_of(*at), gpu.bus));
    for (at, gpu) in &placed {
        machine.gpus.push(Gpu {
            index: gpu.index,
            at: *at,
            bus: Some(gpu.bus),
            link: sysfs.link(gpu.bus).or(gpu.link),
            model: gpu.name.as_deref().map(|it| fabric::gpu::find(it).map_or(it, |it| &it.name).into()),
            compute: gpu.compute,
            gpudirect: None,
            rank: None,
            c2c: None,
        });
        if gpu.mig {
            notes.push(format!("MIG splits GPU{} into instances, which do not use NVLink.", gpu.index));
        }
    }
    placed.into_iter().map(|it| it.1).collect()
}

/// Adds up the NVLinks of each GPU by what is at their other end.
fn add_nvlinks(sysfs: &Sysfs, gpus: &[DriverGpu], machine: &mut Machine, notes: &mut Vec<String>) {
    let mut counts: BTreeMap<(usize, NvEnd), u32> = BTreeMap::new();
    let (mut unseen, mut absent) = (0, 0);
    for (from, gpu) in gpus.iter().enumerate() {
        for remote in &gpu.nvlinks {
            let peer = gpus.iter().position(|it| Some(it.bus) == *remote);
            let class = remote.and_then(|it| sysfs.class(it));
            let to = match (peer, class) {
                (Some(peer), _) => NvEnd::Gpu(peer),
                (None, Some(class)) if class >> 16 == 0x03 => {
                    absent += 1;
                    continue;
                }
                // The switch itself is often hidden from a virtual machine.
                (None, class) => {
                    unseen += usize::from(class.is_none());
                    NvEnd::Switch
                }
            };
            *counts.entry((from, to)).or_default() += 1;
        }
    }
    if unseen > 0 {
        notes.push(format!(
            "The other end of {unseen} NVLinks is not on the PCI bus: plumb assumes NVSwitches."
        ));
    }
    for gpu in gpus {
        let port = gpu.name.as_deref().and_then(fabric::gpu::find).and_then(|it| it.nvlink);
        if let Some(port) = port.filter(|it| it.by != NvLinkBy::Bridge)
            && let active = gpu.nvlinks.len()
            && usize::try_from(port.links).is_ok_and(|links| active < links)
        {
            notes.push(format!("GPU{} has {} NVLinks, but {active} are active.", gpu.index, port.links));
        }
    }
    if absent > 0 {
        notes.push(format!("{absent} NVLinks lead to GPUs that the driver does not list."));
    }
    machine.nvlinks = counts.into_iter().map(|((from, to), count)| NvLink { from, to, count }).collect();
}

#[cfg(test)]
mod tests;

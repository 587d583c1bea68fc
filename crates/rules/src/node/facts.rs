//! Questions that several rules ask.

use evidence::node::{Gpu, NodeState, RdmaPort};
use evidence::{Missing, Source};
use fabric::catalogue::{self, Model};

/// The GPUs, as the driver reports them; empty where the machine has none.
pub(super) fn gpus(state: &NodeState) -> Result<&[Gpu], Missing> {
    match &state.gpus {
        Some(gpus) => Ok(gpus),
        None if state.pci.gpus == Some(0) && state.driver.is_none() => Ok(&[]),
        None => Err(Missing(Source::GpuDriver)),
    }
}

/// The same for what the kernel shows without the driver's library: bus, model, PCI Express link.
pub(super) fn gpus_of_kernel(state: &NodeState) -> Result<&[Gpu], Missing> {
    state.kernel_gpus.as_deref().filter(|it| !it.is_empty()).map_or_else(|| gpus(state), Ok)
}

/// How many GPUs the machine has, by whoever sees most.
pub(super) fn count(state: &NodeState) -> usize {
    let listed = state.gpus.as_ref().or(state.kernel_gpus.as_ref()).map_or(0, Vec::len);
    let bound = state.driver.as_ref().and_then(|it| it.bound_gpus);
    // The module may still have a GPU that has left the bus.
    let shown = state.pci.gpus.or(bound).unwrap_or(0);
    listed.max(usize::try_from(shown).unwrap_or(0))
}

/// The ports of RDMA devices.
pub(super) fn ports(state: &NodeState) -> Result<&[RdmaPort], Missing> {
    state.rdma.as_deref().ok_or(Missing(Source::Devices))
}

/// The machine of the catalogue: as the user named it, or as its firmware does.
pub(super) fn model(state: &NodeState) -> Option<&'static Model> {
    let names = [&state.machine.named, &state.machine.product];
    names.into_iter().flatten().find_map(|it| catalogue::find(it))
}

/// How many GPUs the machine should have: as the user says, or as the catalogue does.
pub(super) fn expected_gpus(state: &NodeState) -> Option<u32> {
    state.machine.expected_gpus.or_else(|| Some(model(state)?.gpus))
}

/// How a machine of the catalogue is called in a sentence.
pub(super) fn title(model: &Model) -> &'static str {
    model.title.unwrap_or(model.name)
}

/// `GPU3 (0000:18:00.0)`
pub(super) fn name(gpu: &Gpu) -> String {
    match &gpu.bus {
        Some(bus) => format!("GPU{} ({bus})", gpu.index),
        None => format!("GPU{}", gpu.index),
    }
}

/// `a, b and 3 more`
pub(super) fn list(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).map(String::as_str).collect::<Vec<_>>();
    match (names.len(), &*shown) {
        (all, _) if all > most => format!("{} and {} more", shown.join(", "), all - most),
        (_, [first @ .., last]) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => shown.join(", "),
    }
}

/// `64 MiB`, `16 GiB`
pub(super) fn bytes(amount: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, size)) = units.into_iter().find(|it| amount >= it.1) else {
        return format!("{amount} bytes");
    };
    let tenths = u128::from(amount) * 10 / u128::from(size);
    if tenths % 10 == 0 || tenths >= 1000 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

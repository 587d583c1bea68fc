//! The GPUs as the kernel shows them, for a process that cannot load NVML: `/proc/driver/nvidia` and the PCI bus.

use std::path::Path;

use evidence::node::{Gpu, LinkWidth};
use fabric::machine::BusId;

use super::devices::shown;
use super::name_of;
use crate::sysfs::{Sysfs, entries, gigatransfers, text};

/// Those on the bus; where that is hidden, those that the kernel module has taken. `None` where neither can be seen.
pub(super) fn read(sysfs: &Sysfs, root: &Path) -> Option<Vec<Gpu>> {
    let folder = root.join("proc/driver/nvidia/gpus");
    if !sysfs.has_pci() && !folder.exists() {
        return None;
    }
    let taken = || entries(&folder).iter().filter_map(|it| BusId::parse(name_of(it)?)).collect();
    let all: Vec<BusId> = if sysfs.has_pci() { sysfs.gpus() } else { taken() };
    let gpu = |(index, bus): (u32, BusId)| {
        let information = text(&folder.join(shown(bus)).join("information")).unwrap_or_default();
        let field = |name: &str| {
            let mut lines = information.lines().filter_map(|it| it.split_once(':'));
            let value = lines.find(|it| it.0.trim() == name)?.1.trim();
            // `GPU-????????-...` of a GPU that no program has opened yet.
            Some(value.to_owned()).filter(|it| !it.is_empty() && !it.contains('?') && it != "Unknown")
        };
        Gpu {
            index,
            bus: Some(shown(bus)),
            name: field("Model").map(|it| it.strip_prefix("NVIDIA ").map_or(it.clone(), str::to_owned)),
            uuid: field("GPU UUID"),
            vbios: field("Video BIOS"),
            pcie: link(sysfs, bus),
            ..Gpu::default()
        }
    };
    Some((0..).zip(all).map(gpu).collect())
}

/// The PCI Express link as it is, and the best that GPU and slot allow.
fn link(sysfs: &Sysfs, bus: BusId) -> Option<LinkWidth> {
    let speed = sysfs.attribute(bus, "current_link_speed").and_then(|it| gigatransfers(&it));
    let most = sysfs.link(bus);
    // 0 or 255 where it is unknown.
    let width = sysfs.attribute(bus, "current_link_width").and_then(|it| it.parse().ok());
    let link = LinkWidth {
        generation: speed.and_then(generation),
        max_generation: most.and_then(|it| generation(it.gigatransfers)),
        width: width.filter(|it| (1..=32).contains(it)),
        max_width: most.map(|it| it.width),
    };
    Some(link).filter(|it| *it != LinkWidth::default())
}

/// The generation of PCI Express with this signalling rate (PCI Express base specification 6.0, 1.2).
fn generation(gigatransfers: f64) -> Option<u32> {
    let known = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
    (1..).zip(known).find(|it| (it.1 - gigatransfers).abs() < 0.1).map(|it| it.0)
}

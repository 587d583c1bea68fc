//! Network devices: RDMA devices (EFA, InfiniBand, RoCE), else Ethernet.

use std::path::Path;

use evidence::topology::nic_kind;
use fabric::Machine;
use fabric::machine::{BusId, Nic, NicKind, Place};
use fabric::units::GigabitsPerSecond;

use super::Wiring;
use super::sysfs::{Sysfs, device_of, entries, text};

/// Amazon's PCI vendor id.
pub(super) const AMAZON: &str = "0x1d0f";

/// Adds the network devices to the machine. NCCL uses RDMA devices where there are some, else Ethernet.
pub(super) fn add(sysfs: &Sysfs, machine: &mut Machine, wiring: &mut Wiring, notes: &mut Vec<String>) {
    rdma(sysfs, machine, wiring, notes);
    let plain: Vec<_> = sysfs
        .members("net")
        .into_iter()
        .filter(|(name, path)| name != "lo" && path.join("device").exists())
        .collect();
    if machine.nics.is_empty() {
        for (name, path) in plain {
            ethernet(sysfs, &name, &path, machine, wiring, notes);
        }
    } else {
        let own = |path: &Path| path.join("device/infiniband").exists();
        let names: Vec<&str> = plain.iter().filter(|it| !own(&it.1)).map(|it| &*it.0).collect();
        if !names.is_empty() {
            notes.push(format!("There is also Ethernet ({}), for TCP only.", names.join(", ")));
        }
    }
    if machine.nics.is_empty() {
        notes.push("There is no network device below /sys/class.".to_owned());
    }
}

fn rdma(sysfs: &Sysfs, machine: &mut Machine, wiring: &mut Wiring, notes: &mut Vec<String>) {
    let peer_memory = ["nvidia_peermem", "nv_peer_mem"].iter().any(|it| {
        let module = format!("sys/module/{it}/initstate");
        sysfs.read(&module).is_some()
    });
    for (name, path) in sysfs.members("infiniband") {
        let bus = device_of(&path.join("device"));
        let efa = bus.and_then(|it| sysfs.attribute(it, "vendor")).as_deref() == Some(AMAZON);
        for (order, port) in entries(&path.join("ports")).iter().enumerate() {
            let label = match port.file_name().and_then(|it| it.to_str()) {
                Some(number) if order > 0 => format!("{name}:{number}"),
                _ => name.clone(),
            };
            if let Some(state) = text(&port.join("state")).filter(|it| !it.contains("ACTIVE")) {
                let state = state.split(':').next_back().unwrap_or_default().trim().to_lowercase();
                notes.push(format!("{label} is skipped: its port is {state}."));
                continue;
            }
            let kind = match text(&port.join("link_layer")).as_deref() {
                _ if efa => NicKind::Efa,
                Some("InfiniBand") => NicKind::InfiniBand,
                Some("Ethernet") => NicKind::Roce,
                _ => nic_kind(&name),
            };
            // `100 Gb/sec (4X EDR)`
            let rate =
                text(&port.join("rate")).and_then(|it| it.split_whitespace().next()?.parse::<f64>().ok());
            let rate = rate.filter(|it| *it > 0.0 && it.is_finite()).map(GigabitsPerSecond);
            if rate.is_none() {
                notes.push(format!("The rate of {label} cannot be read."));
            }
            let p2p = text(&path.join("device/p2p"));
            let gpudirect = match (kind, p2p) {
                (NicKind::Efa, Some(provider)) => Some(provider.contains("NVIDIA")),
                (NicKind::InfiniBand | NicKind::Roce, _) if peer_memory => Some(true),
                _ => None,
            };
            push(sysfs, machine, wiring, Nic { rate, gpudirect, ..blank(label, kind, bus) });
        }
    }
    if machine.nics.iter().any(|it| it.gpudirect.is_none()) {
        notes.push(
            "Whether some NICs can access GPU memory directly is not visible (DMA-BUF needs no module)."
                .to_owned(),
        );
    }
}

fn ethernet(
    sysfs: &Sysfs,
    name: &str,
    path: &Path,
    machine: &mut Machine,
    wiring: &mut Wiring,
    notes: &mut Vec<String>,
) {
    let speed = text(&path.join("speed")).and_then(|it| it.parse::<f64>().ok()).filter(|it| *it > 0.0);
    let rate = speed.filter(|it| it.is_finite()).map(|it| GigabitsPerSecond(it / 1000.0));
    if rate.is_none() {
        notes.push(format!("The rate of {name} cannot be read."));
    }
    let bus = device_of(&path.join("device"));
    let nic = Nic { rate, gpudirect: Some(false), ..blank(name.to_owned(), NicKind::Ethernet, bus) };
    push(sysfs, machine, wiring, nic);
}

fn blank(name: String, kind: NicKind, bus: Option<BusId>) -> Nic {
    let at = Place::Socket(0);
    let (link, rate, gpudirect, latency) = (None, None, None, None);
    Nic { name: name.into(), index: 0, at, bus, link, rate, gpudirect, latency, port: None, kind }
}

fn push(sysfs: &Sysfs, machine: &mut Machine, wiring: &mut Wiring, nic: Nic) {
    let index = u32::try_from(machine.nics.len()).unwrap_or(u32::MAX);
    let at = nic.bus.map_or(nic.at, |it| wiring.place(sysfs, it, machine));
    let link = nic.bus.and_then(|it| sysfs.link(it));
    machine.nics.push(Nic { index, at, link, ..nic });
}

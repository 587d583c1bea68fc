//! What the kernel reports in `/sys` and `/proc`: the PCI tree, NUMA nodes, the CPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fabric::machine::{BusId, Maker, PciLink, Socket};

/// NVIDIA's PCI vendor id.
const NVIDIA: &str = "0x10de";

/// The files of a machine.
#[derive(Debug)]
pub(super) struct Sysfs {
    root: PathBuf,
    /// The real path of each PCI device, through the bridges above it.
    devices: BTreeMap<BusId, PathBuf>,
    sockets: Vec<Socket>,
}

impl Sysfs {
    pub(super) fn new(root: &Path) -> Self {
        let mut devices = BTreeMap::new();
        for path in entries(&root.join("sys/bus/pci/devices")) {
            if let (Some(bus), Ok(real)) = (bus_of(&path), fs::canonicalize(&path)) {
                devices.insert(bus, real);
            }
        }
        Self { root: root.to_owned(), devices, sockets: sockets(root) }
    }

    /// Whether the PCI bus can be seen.
    pub(super) fn has_pci(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The instance type where the firmware has it, else the host name.
    pub(super) fn name(&self) -> Option<Box<str>> {
        let amazon = self.read("sys/class/dmi/id/sys_vendor").is_some_and(|it| it.contains("Amazon"));
        let product = self.read("sys/class/dmi/id/product_name").filter(|it| amazon && it.contains('.'));
        product.or_else(|| self.read("proc/sys/kernel/hostname")).map(Into::into)
    }

    /// The NUMA nodes that have CPUs; one without a number where none is shown.
    pub(super) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// NVIDIA's GPUs, by bus.
    pub(super) fn gpus(&self) -> Vec<BusId> {
        let ours = |bus: &BusId| {
            self.class(*bus).is_some_and(|it| it >> 16 == 0x03)
                && self.attribute(*bus, "vendor").as_deref() == Some(NVIDIA)
        };
        self.devices.keys().copied().filter(ours).collect()
    }

    /// NVIDIA's NVSwitches, by bus: bridges of the class "other".
    pub(super) fn nvswitches(&self) -> Vec<BusId> {
        let ours = |bus: &BusId| {
            self.class(*bus).is_some_and(|it| it >> 8 == 0x0680)
                && self.attribute(*bus, "vendor").as_deref() == Some(NVIDIA)
        };
        self.devices.keys().copied().filter(ours).collect()
    }

    /// The folder of a PCI device.
    pub(super) fn path(&self, bus: BusId) -> Option<&Path> {
        self.devices.get(&bus).map(PathBuf::as_path)
    }

    /// The class of a device: `0x030200` for a GPU.
    pub(super) fn class(&self, bus: BusId) -> Option<u32> {
        u32::from_str_radix(self.attribute(bus, "class")?.strip_prefix("0x")?, 16).ok()
    }

    /// The NUMA node of a device: the only one, where the device reports none.
    pub(super) fn numa(&self, bus: BusId) -> Option<u32> {
        let own = self.attribute(bus, "numa_node").and_then(|it| it.parse().ok());
        let only = || match &*self.sockets {
            [only] => only.numa,
            _ => None,
        };
        own.or_else(only)
    }

    /// The best link of a device: the slower and narrower of its own and that of the port above it.
    pub(super) fn link(&self, bus: BusId) -> Option<PciLink> {
        let device = self.devices.get(&bus)?;
        let own = link_of(device)?;
        Some(match device.parent().and_then(link_of) {
            Some(port) => PciLink {
                gigatransfers: own.gigatransfers.min(port.gigatransfers),
                width: own.width.min(port.width),
            },
            None => own,
        })
    }

    /// The PCI devices above a device, nearest first.
    pub(super) fn above(&self, bus: BusId) -> Vec<BusId> {
        let path = self.devices.get(&bus).map(PathBuf::as_path).and_then(Path::parent);
        path.map(|it| it.ancestors().map_while(bus_of).collect()).unwrap_or_default()
    }

    /// An attribute of a PCI device.
    pub(super) fn attribute(&self, bus: BusId, name: &str) -> Option<String> {
        text(&self.devices.get(&bus)?.join(name))
    }

    /// What a file holds, given its path below the root.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        text(&self.root.join(path))
    }

    /// The members of a class of devices, in the order of their names and numbers.
    pub(super) fn members(&self, class: &str) -> Vec<(String, PathBuf)> {
        let mut all: Vec<(String, PathBuf)> = entries(&self.root.join("sys/class").join(class))
            .into_iter()
            .filter_map(|it| Some((it.file_name()?.to_str()?.to_owned(), it)))
            .collect();
        all.sort_by_key(|it| natural(&it.0));
        all
    }
}

fn sockets(root: &Path) -> Vec<Socket> {
    let (maker, model) = cpu(&fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default());
    let mut nodes: Vec<(u32, String)> = entries(&root.join("sys/devices/system/node"))
        .iter()
        .filter_map(|it| {
            let number = it.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((number, text(&it.join("cpulist"))?))
        })
        .collect();
    nodes.sort();
    if nodes.is_empty() {
        return vec![Socket { numa: None, cpus: None, maker, model }];
    }
    let socket =
        |(numa, cpus): (u32, String)| Socket { numa: Some(numa), cpus: Some(cpus.into()), maker, model };
    nodes.into_iter().map(socket).collect()
}

/// Vendor, family and model of the CPU, from `/proc/cpuinfo`.
fn cpu(text: &str) -> (Maker, Option<(u32, u32)>) {
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|it| it.split_once(':'));
        fields.find(|it| it.0.trim() == name).map(|it| it.1.trim())
    };
    let number = |name| field(name).and_then(|it| it.parse().ok());
    let maker = match field("vendor_id") {
        Some("GenuineIntel") => Maker::Intel,
        Some("AuthenticAMD") => Maker::Amd,
        Some("CentaurHauls" | "Shanghai") => Maker::Zhaoxin,
        _ if field("CPU implementer").is_some() => Maker::Arm,
        _ if field("cpu").is_some_and(|it| it.starts_with("POWER")) => Maker::Power,
        _ => Maker::Unknown,
    };
    (maker, number("cpu family").zip(number("model")))
}

/// The PCI device that a path leads to, or into.
pub(super) fn device_of(path: &Path) -> Option<BusId> {
    let real = fs::canonicalize(path).ok()?;
    real.ancestors().find_map(bus_of)
}

/// The paths in a folder, sorted.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()).collect();
    all.sort();
    all
}

/// What a file holds, without white space around it; `None` for nothing.
pub(super) fn text(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    Some(text.trim().to_owned()).filter(|it| !it.is_empty())
}

fn bus_of(path: &Path) -> Option<BusId> {
    let name = path.file_name()?.to_str()?;
    BusId::parse(name).filter(|_| name.contains(':'))
}

/// `32.0 GT/s PCIe`; `Unknown` in some virtual machines.
pub(super) fn gigatransfers(speed: &str) -> Option<f64> {
    speed.split_whitespace().next()?.parse().ok().filter(|it: &f64| *it > 0.0 && it.is_finite())
}

/// `32.0 GT/s PCIe` and `16`
fn link_of(device: &Path) -> Option<PciLink> {
    let gigatransfers = gigatransfers(&text(&device.join("max_link_speed"))?)?;
    // 255 where it is unknown.
    let width = text(&device.join("max_link_width"))?.parse().ok().filter(|it| (1..=32).contains(it))?;
    Some(PciLink { gigatransfers, width })
}

/// A key that puts `mlx5_2` before `mlx5_10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(word);
        let (digits, tail) = tail.split_at(tail.find(|it: char| !it.is_ascii_digit()).unwrap_or(tail.len()));
        parts.push((text.to_owned(), digits.parse().unwrap_or(0)));
        rest = tail;
    }
    parts
}

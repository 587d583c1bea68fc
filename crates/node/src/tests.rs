//! Machines made of files in a folder of their own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fabric::machine::{BusId, Maker, NicKind, NvEnd, PciLink, Place};

use super::driver::{Driver, DriverGpu};
use super::{Live, read_from};

/// A folder that is removed at the end.
struct Fake(PathBuf);

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Fake {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("plumb-node-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder");
        Self(root)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// A device by its path below `pci0000:..`, with its attributes.
    fn device(&self, path: &str, class: &str, vendor: &str, numa: &str) {
        let folder = format!("sys/devices/{path}");
        for (name, text) in [
            ("class", class),
            ("vendor", vendor),
            ("numa_node", numa),
            ("max_link_speed", "8.0 GT/s PCIe"),
            ("max_link_width", "16"),
        ] {
            self.file(&format!("{folder}/{name}"), text);
        }
        let bus = Path::new(path).file_name().expect("a name").to_str().expect("text");
        self.link(&format!("sys/bus/pci/devices/{bus}"), &folder);
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.0.join(from);
        fs::create_dir_all(from.parent().expect("a parent")).expect("a folder");
        symlink(self.0.join(to), from).expect("a link");
    }

    fn read(&self, driver: Result<Driver, String>) -> Live {
        read_from(&self.0, driver)
    }
}

fn bus(text: &str) -> BusId {
    BusId::parse(text).expect("a bus id")
}

/// Two of the four switches of a p4d, one a socket, with two GPUs and an EFA device each.
fn p4d(name: &str) -> Fake {
    let fake = Fake::new(name);
    fake.file("sys/class/dmi/id/sys_vendor", "Amazon EC2");
    fake.file("sys/class/dmi/id/product_name", "p4d.24xlarge");
    fake.file("sys/devices/system/node/node0/cpulist", "0-23,48-71");
    fake.file("sys/devices/system/node/node1/cpulist", "24-47,72-95");
    // Memory without CPUs.
    fake.file("sys/devices/system/node/node2/cpulist", "");
    fake.file(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon",
    );
    for (numa, root, up, down) in [("0", "10", "11", "12"), ("1", "90", "91", "92")] {
        let switch = format!("pci0000:{root}/0000:{root}:00.0/0000:{up}:00.0");
        fake.device(&format!("pci0000:{root}/0000:{root}:00.0"), "0x060400", "0x1d0f", numa);
        fake.device(&switch, "0x060400", "0x1d0f", numa);
        for (slot, class, vendor) in
            [("1c", "0x030200", "0x10de"), ("1d", "0x030200", "0x10de"), ("1b", "0x020000", "0x1d0f")]
        {
            let port = format!("{switch}/0000:{down}:{slot}.0");
            fake.device(&port, "0x060400", "0x1d0f", numa);
            let number = u32::from_str_radix(root, 16).expect("hex") + 4;
            let path = format!("{port}/0000:{number:x}:{slot}.0");
            fake.device(&path, class, vendor, numa);
            if class == "0x020000" {
                let name = format!("rdmap{}s27", u32::from_str_radix(root, 16).expect("hex"));
                let folder = format!("sys/devices/{path}/infiniband/{name}");
                fake.file(&format!("{folder}/ports/1/state"), "4: ACTIVE");
                fake.file(&format!("{folder}/ports/1/rate"), "100 Gb/sec (4X EDR)");
                fake.file(&format!("{folder}/ports/1/link_layer"), "Unspecified");
                fake.file(&format!("sys/devices/{path}/p2p"), "NVIDIA");
                fake.link(&format!("{folder}/device"), &format!("sys/devices/{path}"));
                fake.link(&format!("sys/class/infiniband/{name}"), &folder);
            }
        }
    }
    fake
}

#[test]
fn a_p4d_with_its_driver() {
    let fake = p4d("p4d");
    let gpu = |index, text, peers: u32| DriverGpu {
        index,
        bus: bus(text),
        name: Some("A100-SXM4-40GB".to_owned()),
        compute: Some(80),
        nvlinks: (0..peers).map(|_| None).collect(),
        ..DriverGpu::default()
    };
    let gpus =
        vec![gpu(0, "14:1c.0", 12), gpu(1, "14:1d.0", 12), gpu(2, "94:1c.0", 12), gpu(3, "94:1d.0", 12)];
    let live = fake.read(Ok(Driver { gpus, notes: Vec::new() }));
    let machine = &live.machine;
    assert_eq!(machine.name.as_deref(), Some("p4d.24xlarge"));
    assert_eq!((machine.sockets.len(), machine.bridges.len()), (2, 2));
    assert_eq!((machine.sockets[0].maker, machine.sockets[1].model), (Maker::Intel, Some((6, 85))));
    assert_eq!(machine.bridges[1].bus, Some(bus("91:00.0")));
    assert_eq!(machine.bridges[1].at, Place::Socket(1));
    let gpu = &machine.gpus[3];
    assert_eq!((gpu.index, gpu.at, gpu.compute), (3, Place::Bridge(1), Some(80)));
    assert_eq!(gpu.link, Some(PciLink { gigatransfers: 8.0, width: 16 }));
    assert!(machine.nvlinks.iter().all(|it| it.to == NvEnd::Switch && it.count == 12));
    let nic = &machine.nics[1];
    assert_eq!((&*nic.name, nic.index, nic.at, nic.kind), ("rdmap144s27", 1, Place::Bridge(1), NicKind::Efa));
    assert_eq!((nic.rate.map(|it| it.0), nic.gpudirect), (Some(100.0), Some(true)));
    assert_eq!(live.notes, ["The other end of 48 NVLinks is not on the PCI bus: plumb assumes NVSwitches."]);
}

#[test]
fn gpus_without_a_driver() {
    let live = p4d("no-driver").read(Err("its library is not installed".to_owned()));
    assert_eq!(live.machine.gpus.iter().map(|it| it.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(live.notes[0].contains("GPUs are known from the PCI bus only"), "{:?}", live.notes);
}

#[test]
fn a_container_shows_some_gpus() {
    let gpus = vec![DriverGpu {
        index: 0,
        bus: bus("94:1c.0"),
        name: Some("NVIDIA A100-SXM4-40GB".to_owned()),
        nvlinks: vec![Some(bus("94:1d.0")), Some(bus("91:00.0"))],
        ..DriverGpu::default()
    }];
    let live = p4d("container").read(Ok(Driver { gpus, notes: Vec::new() }));
    assert_eq!(live.machine.gpus.len(), 1);
    assert!(live.notes[0].starts_with("3 more NVIDIA GPUs are on the PCI bus"), "{:?}", live.notes);
    assert!(live.notes.iter().any(|it| it.contains("1 NVLinks lead to GPUs")), "{:?}", live.notes);
    assert!(live.notes.iter().any(|it| it == "GPU0 has 12 NVLinks, but 2 are active."), "{:?}", live.notes);
    assert_eq!(live.machine.nvlinks[0].to, NvEnd::Switch);
}

#[test]
fn an_empty_machine() {
    let live = Fake::new("empty").read(Err("its library is not installed".to_owned()));
    assert!(live.machine.gpus.is_empty() && live.machine.nics.is_empty());
    assert_eq!(live.machine.sockets.len(), 1);
    assert_eq!(
        live.notes,
        [
            "/sys does not show the PCI bus (not mounted, or hidden by a container).",
            "There is no NVIDIA GPU on the PCI bus, and the NVIDIA driver is not available (its library is not installed).",
            "There is no network device below /sys/class.",
        ]
    );
}

#[test]
fn a_virtual_machine() {
    let fake = Fake::new("vm");
    fake.file("proc/sys/kernel/hostname", "vm-1");
    fake.file("sys/devices/system/node/node0/cpulist", "0-1");
    fake.device("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", "-1");
    fake.file("sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/speed", "-1");
    fake.link(
        "sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/device",
        "sys/devices/pci0000:00/0000:00:03.0/virtio0",
    );
    fake.link("sys/class/net/eth0", "sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0");
    fake.file("sys/class/net/lo/speed", "");
    let live = fake.read(Err("its library is not installed".to_owned()));
    assert_eq!(live.machine.name.as_deref(), Some("vm-1"));
    assert_eq!(live.machine.nics.len(), 1);
    assert_eq!((&*live.machine.nics[0].name, live.machine.nics[0].bus), ("eth0", Some(bus("00:03.0"))));
    assert!(live.notes.iter().any(|it| it == "The rate of eth0 cannot be read."), "{:?}", live.notes);
}

#[test]
fn this_machine_gives_an_answer() {
    let live = super::read();
    assert!(!live.machine.sockets.is_empty());
    for gpu in &live.machine.gpus {
        assert!(live.machine.socket_of(gpu.at).is_some());
    }
}

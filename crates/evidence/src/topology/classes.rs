//! Topology XML without `<gpu>` and `<net>`, as clouds ship it for virtual machines (`NCCL_TOPO_FILE`): PCI devices with
//! class codes, or with their bus ids alone.
//!
//! ```text
//! <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
//!   <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
//!     <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
//!     <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
//! ```
//!
//! NCCL finds the GPUs and NICs of the job itself, looks for their bus ids in the file and adds what is missing from sysfs and NVML
//! (2.28.9, `src/graph/topo.cc` `ncclTopoGetSystem`, `src/graph/xml.cc` `ncclTopoFillGpu`, `ncclTopoGetXmlFromSys`). Its
//! classes of devices are `kvDictPciClass` in `topo.cc`: `0x03` a GPU, `0x02` a NIC, `0x068000` an NVSwitch, all else a bridge.

use fabric::machine::{BusId, Machine, NicKind, Place};
use roxmltree::Node;

use super::xml::{attribute, pci_link};
use super::{NO_MODELS, NO_RATES, Trouble, blank_gpu, blank_nic, count};

/// PCI devices without tags of NCCL in them, by their class.
#[derive(Debug)]
pub(super) struct Classes {
    /// Whether the file has `<gpu>`, and whether `<net>`: then devices without are not part of the job.
    has_gpus: bool,
    has_nets: bool,
    gpus: usize,
    nics: usize,
    /// GPUs beside those that have a `<gpu>`.
    unused: usize,
    /// Without a class.
    nameless: usize,
}

impl Classes {
    pub(super) fn new(has_gpus: bool, has_nets: bool) -> Self {
        Self { has_gpus, has_nets, gpus: 0, nics: 0, unused: 0, nameless: 0 }
    }

    pub(super) fn gpus_by_class(&self) -> bool {
        self.gpus > 0
    }

    pub(super) fn nics_by_class(&self) -> bool {
        self.nics > 0
    }

    /// Takes a PCI device with no other below it.
    pub(super) fn take(&mut self, pci: Node<'_, '_>, at: Place, machine: &mut Machine) {
        let inside = |name: &str| pci.descendants().any(|it| it.has_tag_name(name));
        if inside("gpu") || inside("net") {
            return;
        }
        let bus = attribute(pci, "busid").and_then(BusId::parse);
        match attribute(pci, "class") {
            None => self.nameless += 1,
            Some(class) if class.starts_with("0x03") && self.has_gpus => self.unused += 1,
            Some(class) if class.starts_with("0x03") => {
                self.gpus += 1;
                let mut gpu = blank_gpu(0, at);
                (gpu.bus, gpu.link) = (bus, pci_link(pci));
                machine.gpus.push(gpu);
            }
            Some(class) if class.starts_with("0x02") && !self.has_nets => {
                self.nics += 1;
                let mut nic = blank_nic("", 0, at);
                (nic.bus, nic.link, nic.kind) = (bus, pci_link(pci), network(pci));
                machine.nics.push(nic);
            }
            Some(_) => {}
        }
    }

    /// Numbers the devices, and says what the file leaves open.
    pub(super) fn finish(self, machine: &mut Machine, notes: &mut Vec<String>) {
        if self.gpus > 0 {
            // The driver counts GPUs by their bus.
            let mut by_bus: Vec<usize> = (0..machine.gpus.len()).collect();
            by_bus.sort_by_key(|it| machine.gpus.get(*it).and_then(|it| it.bus));
            for (index, at) in (0_u32..).zip(by_bus) {
                machine.gpus.get_mut(at).into_iter().for_each(|it| it.index = index);
            }
            machine.hidden.nvlink = true;
            machine.unknown.insert(0, NO_MODELS.to_owned());
            notes.push("The file has PCI devices by their class only; GPUs are numbered by their bus, as the driver does.".to_owned());
        }
        if self.nics > 0 {
            machine.nics.sort_by_key(|it| it.bus);
            for (index, nic) in (0_u32..).zip(&mut machine.nics) {
                (nic.index, nic.name) = (index, format!("NIC{index}").into());
            }
            machine.unknown.push(NO_RATES.to_owned());
        }
        if self.unused > 0 {
            notes.push(format!(
                "{} of the file {} without <gpu>: not part of the job.",
                count(self.unused, "GPU"),
                if self.unused == 1 { "is" } else { "are" }
            ));
        }
        if self.nameless > 0 {
            notes.push(format!(
                "{} without a class: NCCL reads on the machine what they are, here they are left out.",
                count(self.nameless, "PCI device")
            ));
        }
    }

    /// Why the file shows no machine.
    pub(super) fn nothing(&self, bridges: usize, line: u64) -> Trouble {
        if self.nameless == 0 {
            return Trouble::at(line, "<system> has neither a GPU nor a NIC in it");
        }
        let below = if bridges == 0 { String::new() } else { format!(" below {}", count(bridges, "bridge")) };
        Trouble::says_too_little(
            line,
            format!(
                "the XML lists {}{below} by bus id, without their class: which of them are GPUs, NCCL reads on the machine",
                count(self.nameless, "PCI device")
            ),
            "Name the machine with --instance",
        )
    }
}

/// The network of a PCI device, by vendor and class: Amazon's are EFA, `0x0207` is InfiniBand, and Ethernet of Mellanox has verbs.
pub(super) fn network(pci: Node<'_, '_>) -> NicKind {
    let class = attribute(pci, "class").unwrap_or_default();
    match attribute(pci, "vendor") {
        Some("0x1d0f") => NicKind::Efa,
        _ if class.starts_with("0x0207") => NicKind::InfiniBand,
        Some("0x15b3") => NicKind::Roce,
        _ => NicKind::Unknown,
    }
}

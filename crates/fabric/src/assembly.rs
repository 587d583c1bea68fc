//! Puts the machines of the catalogue together, device by device.

use crate::catalogue::{SocketPlan, Wiring};
use crate::gpu::{self, GpuModel, NvLinkBy};
use crate::instance::Instance;
use crate::machine::{Bridge, BusId, Gpu, Machine, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
use crate::units::GigabitsPerSecond;

/// An instance type with its known wiring, otherwise with all devices at one socket.
pub(crate) fn of_instance(instance: &Instance, wiring: Option<&Wiring>) -> Machine {
    let model = gpu::find(&instance.gpu);
    let mut builder = Builder::new(&instance.name, model, wiring, instance.pcie_gen);
    builder.gpu.gpudirect = instance.gpudirect_rdma.filter(|it| *it);
    builder.nic.name = "efa".into();
    builder.nic.kind = NicKind::Efa;
    builder.nic.rate = instance.nic_gbps_each;
    builder.nic.gpudirect = instance.gpudirect_rdma;
    builder.nic.latency = instance.ofi_latency_us;
    let cpu = Socket { maker: instance.cpu, ..Socket::default() };
    if let Some(wiring) = wiring {
        builder.wire(wiring, &cpu);
    } else {
        let socket = SocketPlan {
            numa: 0,
            cpus: None,
            gpus: instance.gpus,
            nics: instance.nics,
            switches: Vec::new(),
        };
        builder.socket(&socket, &cpu);
        if instance.gpus > 1 {
            let text = "The wiring is not published: plumb shows all devices at one socket.";
            builder.machine.unknown.insert(0, text.to_owned());
        }
    }
    if !instance.efa() {
        builder.nic = Nic {
            name: "eth".into(),
            kind: NicKind::Ethernet,
            rate: Some(instance.net_gbps_total),
            gpudirect: Some(false),
            latency: None,
            port: None,
            ..builder.nic
        };
        builder.add_nic(Place::Socket(0));
    }
    if instance.nvlink.is_none() && model.is_none_or(|it| it.nvlink.is_some()) {
        let text = "Whether NVLink connects its GPUs is not published: plumb assumes none.";
        builder.machine.unknown.push(text.to_owned());
    }
    builder.join(model.filter(|_| instance.nvlink == Some(true)), wiring)
}

/// A machine that is not an instance type.
pub(crate) fn of_wiring(wiring: &Wiring) -> Machine {
    let model = wiring.gpu.as_deref().and_then(gpu::find);
    let mut builder = Builder::new(&wiring.name, model, Some(wiring), None);
    builder.gpu.gpudirect = Some(true);
    builder.nic.gpudirect = Some(true);
    if let Some(nic) = &wiring.network {
        builder.nic.name = nic.prefix.as_str().into();
        builder.nic.rate = Some(GigabitsPerSecond(nic.gbps));
        builder.nic.kind = nic.kind;
    }
    builder.wire(wiring, &Socket::default());
    builder.join(model, Some(wiring))
}

/// A machine that is being put together.
struct Builder {
    machine: Machine,
    /// The template of each GPU.
    gpu: Gpu,
    /// The template of each NIC; its name is the prefix before the number.
    nic: Nic,
    gpu_bus: Vec<Option<BusId>>,
    nic_bus: Vec<Option<BusId>>,
}

impl Builder {
    fn new(name: &str, model: Option<&GpuModel>, wiring: Option<&Wiring>, pcie_gen: Option<u8>) -> Self {
        let mut machine = Machine { name: Some(name.into()), ..Machine::default() };
        machine.unknown.extend(wiring.into_iter().flat_map(|it| it.unknown.clone()));
        let published = pcie_gen.or(wiring.and_then(|it| it.pcie_gen));
        let generation = published.or(model.and_then(|it| it.pcie_gen));
        if published.is_none() && generation.is_some() {
            let text = "The PCI Express generation is not published: plumb assumes that of the GPU.";
            machine.unknown.push(text.to_owned());
        }
        let link = generation.and_then(PciLink::generation);
        let bus = |of: fn(&Wiring) -> &Vec<String>| {
            wiring.map(|it| of(it).iter().map(|it| BusId::parse(it)).collect()).unwrap_or_default()
        };
        Self {
            machine,
            gpu: Gpu {
                index: 0,
                at: Place::Socket(0),
                bus: None,
                link,
                model: model.map(|it| it.name.as_str().into()),
                compute: model.map(|it| it.compute),
                gpudirect: None,
                rank: None,
                c2c: model.and_then(|it| it.c2c).map(|it| it.0),
            },
            nic: Nic {
                name: "nic".into(),
                index: 0,
                at: Place::Socket(0),
                bus: None,
                link,
                rate: None,
                gpudirect: None,
                latency: None,
                port: None,
                kind: NicKind::Unknown,
            },
            gpu_bus: bus(|it| &it.gpu_bus),
            nic_bus: bus(|it| &it.nic_bus),
        }
    }

    fn wire(&mut self, wiring: &Wiring, cpu: &Socket) {
        let mut cpu = cpu.clone();
        if let Some(stated) = &wiring.cpu {
            cpu.maker = stated.maker;
            cpu.model = stated.family.zip(stated.model);
        }
        for socket in &wiring.sockets {
            self.socket(socket, &cpu);
        }
    }

    fn socket(&mut self, plan: &SocketPlan, cpu: &Socket) {
        let socket = Place::Socket(self.machine.sockets.len());
        self.machine.sockets.push(Socket {
            numa: Some(plan.numa),
            cpus: plan.cpus.as_deref().map(Into::into),
            ..cpu.clone()
        });
        self.devices(plan.gpus, plan.nics, socket);
        for switch in &plan.switches {
            let place = Place::Bridge(self.machine.bridges.len());
            self.machine.bridges.push(Bridge { at: socket, bus: None, link: self.gpu.link });
            self.devices(switch.gpus, switch.nics, place);
        }
    }

    fn devices(&mut self, gpus: u32, nics: u32, at: Place) {
        for _ in 0..gpus {
            let place = self.machine.gpus.len();
            let bus = self.gpu_bus.get(place).copied().flatten();
            let index = u32::try_from(place).unwrap_or(u32::MAX);
            self.machine.gpus.push(Gpu { index, at, bus, ..self.gpu.clone() });
        }
        for _ in 0..nics {
            self.add_nic(at);
        }
    }

    fn add_nic(&mut self, at: Place) {
        let place = self.machine.nics.len();
        let bus = self.nic_bus.get(place).copied().flatten();
        let name = match bus.filter(|_| self.nic.kind == NicKind::Efa) {
            // EFA devices are named by bus and slot, in decimal.
            Some(BusId(bus)) => format!("rdmap{}s{}", bus >> 12 & 0xff, bus >> 4 & 0xff),
            None => format!("{}{place}", self.nic.name),
        };
        let index = u32::try_from(place).unwrap_or(u32::MAX);
        self.machine.nics.push(Nic { name: name.into(), index, at, bus, ..self.nic.clone() });
    }

    /// Adds the links between GPUs.
    fn join(mut self, model: Option<&GpuModel>, wiring: Option<&Wiring>) -> Machine {
        let Some(port) = model.and_then(|it| it.nvlink) else { return self.machine };
        if port.by == NvLinkBy::Switch {
            let all = 0..self.machine.gpus.len();
            self.machine.nvlinks =
                all.map(|from| NvLink { from, to: NvEnd::Switch, count: port.links }).collect();
        } else if let Some(wiring) = wiring {
            let both = |&(a, b, count): &(usize, usize, u32)| {
                [(a, b), (b, a)].map(|(from, to)| NvLink { from, to: NvEnd::Gpu(to), count })
            };
            self.machine.nvlinks = wiring.wires.iter().flat_map(both).collect();
            self.machine.nvlinks.sort_unstable();
        }
        self.machine
    }
}

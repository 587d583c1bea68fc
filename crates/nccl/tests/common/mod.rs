//! Machines and recordings the tests share.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::Read;
use std::path::PathBuf;

use fabric::Version;
use fabric::machine::{
    Bridge, BusId, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket,
};
use fabric::units::GigabitsPerSecond;
use nccl::{Job, Layout, Settings};

/// A log of real NCCL on a described machine.
pub(crate) struct Recording {
    pub(crate) name: &'static str,
    pub(crate) machine: &'static str,
    pub(crate) environment: Variables,
    pub(crate) text: String,
}

type Variables = &'static [(&'static str, &'static str)];

const RECORDINGS: [(&str, &str, Variables); 15] = [
    ("dgxh100", "1x8", &[]),
    ("dgxh100", "2x8", &[]),
    ("g6e12", "1x4", &[]),
    ("g6e12", "2x4-sys", &[("NCCL_P2P_LEVEL", "SYS")]),
    ("g6e12", "2x4", &[]),
    ("g6e12", "4x4", &[]),
    ("p4d", "1x4", &[]),
    ("p4d", "4x1", &[]),
    ("p5", "1x4", &[]),
    ("p5", "1x8", &[]),
    ("p5", "2x8", &[]),
    ("p5", "3x8", &[]),
    ("p5", "4x8", &[]),
    ("pcie8", "1x8", &[]),
    ("pcie8", "2x8", &[]),
];

pub(crate) fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// A file of a case; one that ends in `.gz` is unpacked.
pub(crate) fn case(name: &str) -> String {
    let path = cases().join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|it| it == "gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log in UTF-8");
    } else {
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    text
}

impl Recording {
    /// The job it is of: `2x4-sys` is two nodes with four GPUs each.
    pub(crate) fn job(&self) -> Job {
        let mut settings = Settings::new(Version::new(2, 28, 9)).with("NCCL_NET", "Libfabric");
        for (name, value) in self.environment {
            settings = settings.with(name, value);
        }
        let size = self.name.split('-').next().unwrap_or(self.name);
        let (nodes, gpus) = size.split_once('x').expect("nodes and GPUs");
        let layout = Layout::new(1, gpus.parse().expect("a number")).on(nodes.parse().expect("a number"));
        Job::new(&oracle_machine(self.machine), &settings, &layout).expect("a job that fits")
    }
}

pub(crate) fn recordings() -> Vec<Recording> {
    RECORDINGS
        .iter()
        .map(|&(machine, name, environment)| {
            let text = case(&format!("oracle-{machine}/{name}.log.gz"));
            Recording { name, machine, environment, text }
        })
        .collect()
}

/// The machine of a recording. The network told rate and GPUDirect of its NICs, the XML does not have them.
pub(crate) fn oracle_machine(name: &str) -> Machine {
    let (rate, gpudirect) = match name {
        "p4d" => (100.0, true),
        "g6e12" => (100.0, false),
        "pcie8" => (200.0, true),
        _ => (400.0, true),
    };
    let mut machine = read_xml(&case(&format!("oracle-{name}/{name}.xml")));
    for nic in &mut machine.nics {
        nic.rate = Some(GigabitsPerSecond(rate));
        nic.gpudirect = Some(gpudirect);
    }
    machine
}

/// Reads the few forms these files have: one tag a line, but for what is inside `gpu` and `nic`.
fn read_xml(text: &str) -> Machine {
    let mut machine = Machine::default();
    let mut above: Vec<(Place, Option<BusId>, PciLink)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let attribute = |name: &str| {
            let (_, rest) = line.split_once(&format!(" {name}=\""))?;
            rest.split_once('"').map(|it| it.0)
        };
        let number = |name: &str| attribute(name).and_then(|it| it.parse::<u32>().ok());
        if line.starts_with("<cpu ") {
            machine.sockets.push(Socket {
                numa: number("numaid"),
                cpus: None,
                maker: match attribute("vendor") {
                    Some("GenuineIntel") => Maker::Intel,
                    Some("AuthenticAMD") => Maker::Amd,
                    _ => Maker::Unknown,
                },
                model: number("familyid").zip(number("modelid")),
            });
            above.clear();
        } else if line.starts_with("<pci ") {
            let speed = attribute("link_speed").and_then(|it| it.split(' ').next()).expect("a speed");
            let link = PciLink {
                gigatransfers: speed.parse().expect("a number"),
                width: number("link_width").expect("a width"),
            };
            let bus = attribute("busid").and_then(BusId::parse);
            let at = above.last().map_or(Place::Socket(machine.sockets.len() - 1), |it| it.0);
            if attribute("class") == Some("0x060400") {
                machine.bridges.push(Bridge { at, bus, link: Some(link) });
                above.push((Place::Bridge(machine.bridges.len() - 1), bus, link));
            } else {
                above.push((at, bus, link));
            }
        } else if line.starts_with("</pci>") {
            above.pop();
        } else if line.starts_with("<gpu ") {
            let &(at, bus, link) = above.last().expect("inside a PCI device");
            if let Some(count) = number("count") {
                machine.nvlinks.push(NvLink { from: machine.gpus.len(), to: NvEnd::Switch, count });
            }
            machine.gpus.push(Gpu {
                index: number("dev").expect("a number"),
                at,
                bus,
                link: Some(link),
                model: None,
                compute: number("sm"),
                gpudirect: Some(true),
                rank: None,
                c2c: None,
            });
        } else if line.starts_with("<nic>") {
            let &(at, bus, link) = above.last().expect("inside a PCI device");
            machine.nics.push(Nic {
                name: attribute("name").expect("a name").into(),
                index: u32::try_from(machine.nics.len()).expect("few"),
                at,
                bus,
                link: Some(link),
                rate: None,
                gpudirect: None,
                latency: None,
                kind: NicKind::Unknown,
            });
        }
    }
    machine
}

//! XML that NCCL reads and writes.

use evidence::topology::Kind;
use fabric::machine::{NicKind, Place};

use super::{case, data, matrix, read};

/// As clouds ship it for virtual machines.
#[test]
fn xml_with_class_codes_only() {
    let device = |bus: &str, class: &str| {
        format!("<pci busid=\"{bus}\" class=\"{class}\" link_speed=\"16 GT/s\" link_width=\"16\"/>")
    };
    let text = format!(
        "<!-- a VM -->\n<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\">\n\
         <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n{}{}</pci></cpu>\n\
         <cpu numaid=\"1\" affinity=\"ff00\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\">{}{}{}{}</cpu></system>\n",
        device("0002:00:00.0", "0x030200"),
        device("0102:00:00.0", "0x020700"),
        device("0001:00:00.0", "0x030000"),
        device("0101:00:00.0", "0x020000").replace("class", "vendor=\"0x1d0f\" class"),
        device("0100:00:00.0", "0x010802"),
        "<pci busid=\"0200:00:00.0\"/>",
    );
    let it = read(text);
    let machine = &it.machine;
    assert_eq!(machine.gpus.iter().map(|it| it.index).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(
        machine.nics.iter().map(|it| (&*it.name, it.kind)).collect::<Vec<_>>(),
        [("NIC0", NicKind::Efa), ("NIC1", NicKind::InfiniBand)]
    );
    assert_eq!((machine.nics[1].at, machine.gpus[0].at), (Place::Bridge(0), Place::Bridge(0)));
    assert!(machine.hidden.nvlink && machine.nvlinks.is_empty());
    assert!(it.notes.iter().any(|it| it.contains("1 PCI device without a class")), "{:?}", it.notes);
}

#[test]
fn xml_that_nccl_reads() {
    for (name, gpus, nics, bridges, sockets, compute, links) in [
        ("p4d", 8, 4, 4, 2, 80, 12),
        ("p5", 8, 8, 8, 2, 90, 18),
        ("g6e12", 4, 1, 0, 1, 89, 0),
        ("dgxh100", 8, 8, 4, 2, 90, 18),
        ("pcie8", 8, 2, 2, 2, 90, 0),
    ] {
        let it = read(case(&format!("oracle-{name}/{name}.xml")));
        let machine = &it.machine;
        assert_eq!((it.kind, &it.notes), (Kind::TopologyXml, &Vec::new()), "{name}");
        let sizes = (machine.gpus.len(), machine.nics.len(), machine.bridges.len(), machine.sockets.len());
        assert_eq!(sizes, (gpus, nics, bridges, sockets), "{name}");
        assert!(machine.gpus.iter().all(|it| it.compute == Some(compute) && it.link.is_some()), "{name}");
        assert_eq!(machine.nvlinks.first().map_or(0, |it| it.count), links, "{name}");
        assert_eq!(machine.sockets[0].cpus.as_deref(), Some("0-15"), "{name}");
        assert_eq!(machine.nics[0].kind, NicKind::Efa, "{name}");
    }
    let p4d = read(case("oracle-p4d/p4d.xml")).machine;
    assert_eq!(p4d.gpus[0].link.expect("link").to_string(), "Gen3 x16");
    assert_eq!(p4d.sockets[0].model, Some((6, 85)));
    let cells = matrix(&p4d);
    assert_eq!((&*cells[0][1], &*cells[0][8], &*cells[0][9], &*cells[0][10]), ("NV12", "PIX", "PHB", "SYS"));
}

#[test]
fn a_dump_of_two_hosts() {
    let it = read(data("two-hosts.xml"));
    let machine = &it.machine;
    assert_eq!((machine.sockets.len(), machine.gpus.len(), machine.nics.len()), (1, 1, 2));
    let gpu = &machine.gpus[0];
    assert_eq!(
        (gpu.c2c, gpu.compute, gpu.rank, gpu.gpudirect),
        (Some(450.0), Some(100), Some(0), Some(true))
    );
    assert_eq!(gpu.bus.expect("bus").to_string(), "0009:01:00.0");
    assert_eq!(machine.nics[0].rate.expect("rate").to_string(), "400 Gbps");
    assert_eq!((machine.nics[0].link, machine.nics[1].at), (None, Place::Socket(0)));
    assert_eq!((machine.nics[1].kind, machine.nics[1].bus), (NicKind::Ethernet, None));
    assert!(it.notes[0].contains("2 hosts"), "{:?}", it.notes);
    assert!(it.notes[1].contains("Line 7") && it.notes[1].contains("0042:01:00.0"), "{:?}", it.notes);
}

#[test]
fn graphs_of_a_dump() {
    let it = read(data("graphs.xml"));
    assert_eq!(
        (it.kind, it.graphs.len(), it.machine.gpus.len(), it.machine.nics.len()),
        (Kind::GraphXml, 2, 2, 2)
    );
    let ring = &it.graphs[0];
    assert_eq!((ring.pattern, ring.n_channels, &*ring.type_intra, ring.same_channels), (4, 2, "NVL", false));
    assert_eq!((&*ring.channels[1].gpus, ring.channels[1].net_out), (&[1, 0][..], Some(1)));
}

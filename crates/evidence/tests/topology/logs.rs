//! What a log shows of its machine.

use evidence::topology::{self, Kind};

use super::{case, data, matrix, path, read};

#[test]
fn a_log_shows_what_the_xml_has() {
    let log = read(data("p5-2x8.log"));
    let xml = read(case("oracle-p5/p5.xml"));
    assert_eq!((log.kind, log.line, &log.notes), (Kind::Log, 10, &Vec::new()));
    assert_eq!(matrix(&log.machine), matrix(&xml.machine));
    assert_eq!(log.machine.nvlinks, xml.machine.nvlinks);
    for (a, b) in log.machine.gpus.iter().zip(&xml.machine.gpus) {
        assert_eq!((a.bus, a.link, a.compute, a.index), (b.bus, b.link, b.compute, b.index));
    }
    for (a, b) in log.machine.nics.iter().zip(&xml.machine.nics) {
        assert_eq!((a.bus, a.link, &a.name, a.index, a.kind), (b.bus, b.link, &b.name, b.index, b.kind));
        assert_eq!(a.rate.expect("rate").to_string(), "400 Gbps");
        assert_eq!(a.gpudirect, Some(true));
    }
    // NCCL's own types of the paths between NICs and GPUs are those of the machine that was read.
    let mut compared = 0;
    for (at, nic) in log.machine.nics.iter().enumerate() {
        for gpu in &log.machine.gpus {
            let to = format!("GPU/0-{:x}", gpu.bus.expect("bus").0);
            let from = format!("NET/0-{at}");
            let said = log.paths.iter().find(|it| *it.from == *from && *it.to == *to).expect("path");
            assert_eq!(&*said.kind, path(&log.machine, nic.at, gpu.at), "{from} {to}");
            compared += 1;
        }
    }
    assert_eq!(compared, 64);
    let ring = &log.graphs[0];
    assert_eq!((ring.pattern, ring.n_channels as usize, ring.channels.len()), (4, 8, 8));
    assert_eq!((ring.channels[0].net_in, ring.channels[0].gpus.len()), (Some(0), 8));
    assert_eq!((ring.speed_intra, &*ring.type_inter), (48.0, "PIX"));
}

#[test]
fn a_log_of_one_node() {
    let log = read(data("p4d-1x4.log"));
    assert_eq!((log.machine.gpus.len(), log.machine.nics.len(), log.machine.sockets.len()), (4, 4, 2));
    assert_eq!(log.machine.sockets[0].model, Some((6, 0x55)));
    assert_eq!(log.machine.gpus[0].compute, Some(80));
    assert_eq!(log.graphs[0].channels[0].gpus, [0, 1, 2, 3]);
    let job = read(case("graph-tuning/job.log"));
    assert_eq!((job.line, job.machine.name.as_deref()), (107, Some("node-3")));
    assert_eq!((&*job.machine.nics[0].name, job.machine.nics[0].bus), ("eth0", None));
    assert_eq!((job.machine.sockets[0].numa, job.machine.gpus[0].rank), (None, Some(3)));
    assert_eq!(job.graphs.len(), 2);
}

#[test]
fn an_old_log() {
    let text = "a:1:2 [0] NCCL INFO === System : maxWidth 42.0 totalWidth 252.0 ===\n\
                a:1:2 [0] NCCL INFO CPU/FFFFFFFFFFFFFFFF (1/2/-1)\n\
                b:1:2 [0] NCCL INFO + PCI[24.0] - GPU/9000 (7)\n\
                a:1:2 [0] NCCL INFO + PCI[24.0] - PCI/C000\n\
                a:1:2 [0] NCCL INFO               + PCI[24.0] - GPU/E000 (0)\n\
                a:1:2 [0] NCCL INFO                             + NVL[252.0] - NVS/0\n\
                a:1:2 [0] NCCL INFO               + PCI[24.0] - NIC/D000\n\
                a:1:2 [0] NCCL INFO                             + NET[25.0] - NET/0 (0/1/25.000000)\n\
                a:1:2 [0] NCCL INFO ==========================================\n\
                a:1:2 [0] NCCL INFO GPU/E000 :GPU/E000 (0/5000.000000/LOC) NET/0 (3/24.0/PI\n\
                a:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, speed 24.000000/24.000000, type LOC/PIX, sameChannels 1\n\
                a:1:2 [0] NCCL INFO  0 : NET/0 GPU/0 NET/0\n";
    let it = read(text);
    assert_eq!((it.machine.gpus.len(), it.machine.nics.len(), it.machine.bridges.len()), (1, 1, 1));
    assert_eq!((it.machine.sockets[0].numa, it.machine.nvlinks[0].count), (None, 12));
    assert_eq!(
        (it.paths.len(), &*it.graphs[0].channels[0].gpus, it.graphs[0].speed_intra),
        (1, &[0][..], 24.0)
    );
}

#[test]
fn a_case_has_a_topology() {
    let (p4d, p5) = (case("p4d-topo/topo.txt"), case("oracle-p5/p5.xml"));
    let of = |name: &str, text: &[u8]| topology::of_case(&evidence::read_texts([(name, text)]));
    assert_eq!(of("topo.txt", &p4d), Some(read(&p4d)));
    assert_eq!(of("p5.xml", &p5).map(|it| it.machine), Some(read(&p5).machine));
    let legend = data("dgx-h100.txt");
    assert_eq!(of("topo.txt", &legend), Some(read(&legend)));
    assert_eq!(of("a.log", b"nothing\n"), None);
}

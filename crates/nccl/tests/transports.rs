//! Every `via` of the recordings, and what layouts do to real machines.

mod common;

use std::path::Path;

use common::{case, cases, oracle_machine};
use evidence::nccl::{Direction, Message, parse, transport};
use fabric::machine::{Gpu, Machine, NicKind, Place, Socket};
use fabric::{P2pKind, Transport, Version};
use nccl::{Decisions, Layout, Loss, PathType, Reason, Settings};

/// Compares all connections in a text with what the job would take, and tells how many there are.
fn compare(name: &str, text: &str, job: &Decisions) -> usize {
    let mut seen = 0;
    for line in text.lines() {
        let Some((_, message)) = line.split_once(" NCCL INFO ") else { continue };
        let Message::Link(link) = parse(message.as_bytes()) else { continue };
        let via = str::from_utf8(link.via).expect("UTF-8");
        let Some(want) = transport(via.trim_end()) else { continue };
        let decision = job.transport(link.from.into(), link.to.into()).expect("two ranks of the job");
        let got = match link.direction {
            Direction::Receive => decision.received,
            Direction::Local | Direction::Send => decision.transport,
        };
        assert_eq!(got, Some(want), "{name}: {line}");
        seen += 1;
    }
    seen
}

fn machine(name: &str, kind: NicKind) -> Machine {
    let mut machine = oracle_machine(name);
    for nic in &mut machine.nics {
        nic.kind = kind;
    }
    machine
}

fn job(machine: &Machine, settings: &Settings, layout: &Layout) -> Decisions {
    Decisions::new(machine, settings, layout).expect("a job that fits")
}

fn release(minor: u16, patch: u16) -> Settings {
    Settings::new(Version::new(2, minor, patch))
}

#[test]
fn four_g6e_over_efa() {
    let job = job(&machine("g6e12", NicKind::Efa), &release(27, 3), &Layout::new(1, 4).on(4));
    assert_eq!(compare("g6e-4x4-efa", &case("g6e-4x4-efa/rank0.log"), &job), 30);
    let inside = job.transport(0, 1).expect("two ranks");
    assert_eq!(
        inside.reason.to_string(),
        "the path between the GPUs crosses the CPU (PHB) and NCCL 2.27.3 allows P2P only up to PXB here"
    );
}

#[test]
fn four_pods_on_a_p4d() {
    let layout = Layout { nics_per_pod: Some(1), ..Layout::new(4, 1) };
    let job = job(&machine("p4d", NicKind::Efa), &release(27, 3), &layout);
    assert!(compare("p4d-4-pods", &case("p4d-4-pods/rank0.log"), &job) > 10);
    assert_eq!(job.n_nodes(), 4);
    assert_eq!(
        job.transport(0, 1).expect("two ranks").reason.to_string(),
        "the pods have different host names, so NCCL counts them as two nodes"
    );
}

/// Each rank of these recordings is a node with one GPU and TCP.
#[test]
fn ranks_with_a_host_of_their_own() {
    let gpu = Gpu {
        index: 0,
        at: Place::Socket(0),
        bus: None,
        link: None,
        model: None,
        compute: Some(90),
        gpudirect: None,
        rank: None,
        c2c: None,
    };
    let machine = Machine { sockets: vec![Socket::default()], gpus: vec![gpu], ..Machine::default() };
    let job = job(&machine, &release(27, 3), &Layout::new(1, 1).on(64));
    let mut seen = 0;
    let mut folders: Vec<_> = std::fs::read_dir(cases())
        .expect("the cases")
        .map(|it| it.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|it| !it.starts_with("g6e-") && !it.starts_with("p4d-") && !it.starts_with("oracle-"))
        .filter(|it| cases().join(it).is_dir())
        .collect();
    folders.sort();
    for folder in folders {
        for entry in std::fs::read_dir(cases().join(&folder)).expect("a case") {
            let file = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            if Path::new(&file).extension().is_some_and(|it| it == "log") {
                let name = format!("{folder}/{file}");
                seen += compare(&name, &case(&name), &job);
            }
        }
    }
    assert!(seen > 1000, "{seen}");
}

#[test]
fn a100_read_over_nvlink_and_h100_do_not() {
    for (name, read) in [("p4d", true), ("p5", false)] {
        let machine = machine(name, NicKind::Efa);
        let whole = Layout::whole(&machine);
        let at = |settings: &Settings, layout: &Layout| {
            job(&machine, settings, layout).transport(0, 7).expect("two ranks").transport
        };
        let want = |kind, read| Some(Transport::P2p { kind, read });
        assert_eq!(at(&release(27, 3), &whole), want(P2pKind::Cumem, read));
        assert_eq!(at(&release(17, 1), &whole), want(P2pKind::Ipc, read));
        let one = Layout { one_process: true, ..whole };
        assert_eq!(at(&release(27, 3), &one), want(P2pKind::DirectPointer, read));
        let forced = release(27, 3).with("NCCL_P2P_READ_ENABLE", if read { "0" } else { "1" });
        assert_eq!(at(&forced, &whole), want(P2pKind::Cumem, !read));
    }
}

#[test]
fn variables_change_what_happens_inside_a_node() {
    let machine = machine("p5", NicKind::Efa);
    let at = |settings: &Settings| {
        job(&machine, settings, &Layout::whole(&machine)).transport(0, 1).expect("two ranks")
    };
    let off = at(&Settings::default().with("NCCL_P2P_DISABLE", "1"));
    // Without NVLink the NICs are the faster way.
    assert!(
        matches!(off.reason, Reason::NetFaster { .. } | Reason::CutNode | Reason::TooFar { .. }),
        "{off:?}"
    );
    let shared = at(&release(28, 9).with("NCCL_P2P_DISABLE", "1").with("NCCL_NET_DISABLE_INTRA", "1"));
    assert_eq!(shared.transport, Some(Transport::Shm));
    assert!(shared.reason.to_string().contains("NCCL_P2P_DISABLE=1 forbids P2P"), "{}", shared.reason);
    let nothing = at(&release(28, 9)
        .with("NCCL_P2P_DISABLE", "1")
        .with("NCCL_SHM_DISABLE", "1")
        .with("NCCL_NET_DISABLE_INTRA", "1"));
    assert_eq!((nothing.transport, nothing.reason), (None, Reason::Nothing));
}

#[test]
fn pods_with_one_host_name_need_one_shared_memory_too() {
    let machine = machine("p5", NicKind::Efa);
    let pods = Layout::new(8, 1);
    let at =
        |layout: Layout| job(&machine, &Settings::default(), &layout).transport(0, 7).expect("two ranks");
    assert_eq!(at(pods).reason, Reason::OtherHostName);
    assert_eq!(at(Layout { same_host: true, ..pods }).reason, Reason::OtherSharedMemory);
    let one = at(Layout { same_host: true, shared_memory: true, ..pods });
    assert_eq!(one.reason, Reason::Near { path: PathType::Nvl });
}

/// H100 at two sockets without NVLink: the NICs are faster than the link between the sockets, so it is two nodes to NCCL.
#[test]
fn a_node_is_cut_where_its_nics_are_faster() {
    let machine = machine("pcie8", NicKind::InfiniBand);
    let job = |settings: &Settings| job(&machine, settings, &Layout::whole(&machine));
    let cut = job(&release(28, 9));
    assert_eq!(cut.n_nodes(), 2);
    let between = cut.transport(3, 4).expect("two ranks");
    assert_eq!(between.reason, Reason::NetFaster { net: 25.0, direct: 22.0 });
    assert!(
        matches!(between.transport, Some(Transport::Net { gpudirect: true, device: 0, .. })),
        "{between:?}"
    );
    assert_eq!(job(&release(30, 7)).transport(3, 4).expect("two ranks").transport, Some(Transport::Shm));
    assert_eq!(job(&release(28, 9).with("NCCL_NET_DISABLE_INTRA", "1")).n_nodes(), 1);
}

#[test]
fn between_nodes_by_the_nic_of_the_peer() {
    let machine = machine("p5", NicKind::Efa);
    let job = |settings: &Settings| job(&machine, settings, &Layout::new(1, 8).on(2));
    let net = |device, through| {
        Some(Transport::Net { network: "Libfabric".into(), device, gpudirect: true, through })
    };
    let rail = job(&Settings::default()).transport(0, 8).expect("two ranks");
    assert_eq!((rail.transport, rail.received), (net(0, None), net(0, None)));
    // GPU 3 sends for GPU 0 by its own NIC.
    let other = job(&Settings::default()).transport(0, 11).expect("two ranks");
    assert_eq!((other.transport, other.received), (net(3, Some(3)), net(3, None)));
    let alone = job(&Settings::default().with("NCCL_PXN_DISABLE", "1")).transport(0, 11).expect("two ranks");
    assert_eq!(alone.transport, net(0, None));
}

#[test]
fn what_pods_of_one_gpu_lose() {
    let machine = machine("p4d", NicKind::Efa);
    let losses = |layout: Layout| job(&machine, &Settings::default(), &layout).losses();
    assert_eq!(losses(Layout::whole(&machine)), []);
    let texts: Vec<String> = losses(Layout::new(8, 1)).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "28 pairs of GPUs on one machine exchange over the network at 6.0 GB/s per GPU instead of NVLink at 240.0 \
             GB/s: 40.0 times less"
        ]
    );
    let four = losses(Layout { nics_per_pod: Some(1), ..Layout::new(4, 1) });
    assert!(four.contains(&Loss::Gpus { used: 4, of: 8 }), "{four:?}");
    let texts: Vec<String> = four.iter().map(ToString::to_string).collect();
    // Four pods on the first four GPUs: two of them get NICs of the other socket.
    assert!(texts.iter().any(|it| it.starts_with("the NICs of GPUs 1, 3 are reached over")), "{texts:?}");
    assert!(texts.iter().any(|it| it.starts_with("no GPUDirect RDMA for GPUs 1, 3")), "{texts:?}");
}

/// The same recordings on the machines of the catalogue.
#[test]
fn machines_of_the_catalogue() {
    let machine = |name| fabric::catalogue::machine(name).expect("a machine of the catalogue");
    let g6e = job(&machine("g6e.12xlarge"), &release(27, 3), &Layout::new(1, 4).on(4));
    assert_eq!(compare("g6e-4x4-efa", &case("g6e-4x4-efa/rank0.log"), &g6e), 30);
    let pods = Layout { nics_per_pod: Some(1), ..Layout::new(4, 1) };
    let p4d = job(&machine("p4d.24xlarge"), &release(27, 3), &pods);
    assert!(compare("p4d-4-pods", &case("p4d-4-pods/rank0.log"), &p4d) > 10);
    for name in fabric::catalogue::names() {
        let machine = machine(name).grouped();
        if machine.gpus.is_empty() {
            continue;
        }
        let job = job(&machine, &Settings::default(), &Layout::whole(&machine).on(2));
        assert_eq!(job.losses(), [], "{name}");
        for to in 1..job.layout().ranks() {
            let decision = job.transport(0, to).expect("two ranks");
            let domain = fabric::catalogue::wiring(name).and_then(|it| it.domain).is_some();
            let inside = domain || to < job.layout().ranks_per_node();
            let transport = decision.transport.expect("a transport");
            assert_eq!(transport.is_net(), !inside, "{name}: rank {to} by {transport}");
            let peer = matches!(transport, Transport::P2p { .. });
            assert_eq!(peer, inside && !machine.nvlinks.is_empty(), "{name}: rank {to} by {transport}");
        }
    }
}

/// The trays of an NVL72 reach each other by NVLink, those of two racks over the network.
#[test]
fn trays_of_a_rack_use_nvlink() {
    let machine = fabric::catalogue::machine("gb200-nvl72").expect("a machine of the catalogue");
    let layout = Layout::whole(&machine).on(19);
    let transport = |settings: &Settings, to: u64| {
        let job = Decisions::new(&machine, settings, &layout).expect("a job that fits");
        job.transport(0, to).and_then(|it| it.transport).expect("two ranks").to_string()
    };
    let settings = release(28, 9);
    assert_eq!([1, 4, 71].map(|to| transport(&settings, to)), ["P2P/MNNVL"; 3].map(str::to_owned));
    assert!(transport(&settings, 72).starts_with("NET/IB"));
    let off = settings.clone().with("NCCL_MNNVL_ENABLE", "0");
    assert_eq!(transport(&off, 1), "P2P/CUMEM");
    assert!(transport(&off, 4).starts_with("NET/IB"));
    let job = Decisions::new(&machine, &settings, &layout).expect("a job that fits");
    let pairs: u64 = job.survey(&machine).transports.iter().map(|it| it.pairs).sum();
    assert_eq!(pairs, 76 * 75);
}

//! Machines to draw.

use fabric::PathType;
use nccl::Between;
use report::topo::{
    Topo, TopoEdge, TopoFamily, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch,
    TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};

/// Every sample with its name.
pub(crate) fn all() -> Vec<(&'static str, Topo)> {
    vec![
        ("empty", empty()),
        ("one", one()),
        ("g6e", g6e()),
        ("p4d", p4d()),
        ("p5", p5()),
        ("mesh", mesh()),
        ("dgx", dgx()),
        ("pcie16", pcie16()),
        ("rings", rings()),
        ("trees", trees()),
        ("nics32", nics32()),
        ("mesh_ring", mesh_ring()),
        ("hostile", hostile()),
    ]
}

pub(crate) fn empty() -> Topo {
    Topo {
        schema: "plumb.topo/1",
        summary: "no GPU, no NIC".to_owned(),
        source: "topo.txt:1".to_owned(),
        unknown: vec!["which GPUs there are: the matrix has no rows".to_owned()],
        ..Topo::default()
    }
}

pub(crate) fn one() -> Topo {
    machine("laptop", "1 x RTX 4090", vec![vec![gpu(0, "RTX 4090", "Gen4 x16")]])
}

pub(crate) fn g6e() -> Topo {
    let gpus = (0..4).map(|it| gpu(it, "L40S", "Gen4 x16"));
    let children = gpus.chain([nic(0, "rdmap49s0", 100.0, 1, false)]).collect();
    let mut topo = machine("g6e.12xlarge", "4 x L40S; 1 x 100 Gbps EFA; 1 socket", vec![children]);
    topo.job =
        Some(job("1x4", "SHM/direct/direct", "the GPUs sit on four host bridges: PHB is farther than PXB"));
    topo.notes.push(
        "No G6e can do GPUDirect RDMA: every byte between machines is copied through host memory. 4 to 6 of the NIC's \
         12.5 GB/s are the best this machine can do."
            .to_owned(),
    );
    topo.normal = normal(4.6);
    topo
}

pub(crate) fn p4d() -> Topo {
    let names = ["rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"];
    let group = |it: u32| {
        let nic = nic(it, names[it as usize], 100.0, 1, true);
        switch(vec![gpu(2 * it, "A100-40GB", "Gen4 x16"), gpu(2 * it + 1, "A100-40GB", "Gen4 x16"), nic])
    };
    let mut topo = machine(
        "p4d.24xlarge",
        "8 x A100-40GB, NVSwitch 600 GB/s each; 4 x 100 Gbps EFA; 2 sockets",
        vec![vec![group(0), group(1)], vec![group(2), group(3)]],
    );
    nvswitch(&mut topo, 12, 300.0);
    topo.job = Some(job("1x8", "P2P/CUMEM/read", "NVLink joins them; read mode is normal on A100"));
    topo.normal = normal(78.0);
    topo
}

pub(crate) fn p5() -> Topo {
    let group = |it: u32| {
        let nic = nic(4 * it, &format!("rdmap{}s0", 79 + 11 * it), 100.0, 4, true);
        switch(vec![gpu(it, "H100", "Gen5 x16"), nic])
    };
    let mut topo = machine(
        "p5.48xlarge",
        "8 x H100, NVSwitch 900 GB/s each; 32 x 100 Gbps EFA; 2 sockets",
        vec![(0..4).map(group).collect(), (4..8).map(group).collect()],
    );
    nvswitch(&mut topo, 18, 450.0);
    topo
}

/// Eight GPUs with a NIC each, two more NICs for storage, and one link that lost half its lanes.
pub(crate) fn dgx() -> Topo {
    let group = |it: u32| {
        let width = if it == 5 { "Gen5 x8" } else { "Gen5 x16" };
        switch(vec![gpu(it, "H100", width), network(it, &format!("mlx5_{it}"), 400.0, 1, true, "InfiniBand")])
    };
    let storage = |it: u32| network(it, &format!("mlx5_{it}"), 200.0, 1, true, "InfiniBand");
    let mut low: Vec<TopoNode> = (0..4).map(group).collect();
    low.push(storage(8));
    let mut high: Vec<TopoNode> = (4..8).map(group).collect();
    high.push(storage(9));
    let summary = "8 x H100, NVSwitch 900 GB/s each; 8 x 400 Gbps InfiniBand; 2 sockets";
    let mut topo = machine("DGX H100", summary, vec![low, high]);
    nvswitch(&mut topo, 18, 450.0);
    topo
}

/// The cube mesh of eight V100.
pub(crate) fn mesh() -> Topo {
    let group = |it: u32| {
        let nic = network(it, &format!("mlx5_{it}"), 100.0, 1, true, "InfiniBand");
        switch(vec![gpu(2 * it, "V100", "Gen3 x16"), gpu(2 * it + 1, "V100", "Gen3 x16"), nic])
    };
    let groups = vec![vec![group(0), group(1)], vec![group(2), group(3)]];
    let mut topo = machine("DGX-1", "8 x V100, NVLink mesh; 4 x 100 Gbps InfiniBand; 2 sockets", groups);
    let pairs = [
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 2),
        (0, 4, 2),
        (1, 2, 2),
        (1, 3, 1),
        (1, 5, 2),
        (2, 3, 2),
        (2, 6, 1),
        (3, 7, 1),
        (4, 5, 1),
        (4, 6, 1),
        (4, 7, 2),
        (5, 6, 2),
        (5, 7, 1),
        (6, 7, 2),
    ];
    for (from, to, count) in pairs {
        let (from, to) = (format!("GPU{from}"), format!("GPU{to}"));
        let bandwidth = 20.0 * f64::from(count);
        let between =
            |it: &&mut TopoPath| (it.from == from && it.to == to) || (it.from == to && it.to == from);
        for path in topo.paths.iter_mut().filter(between) {
            path.kind = PathType::Nvl;
            path.smi = format!("NV{count}");
            path.bandwidth = Some(bandwidth);
        }
        topo.nvlinks.push(TopoNvlink { from, to, count, bandwidth: Some(bandwidth) });
    }
    topo
}

/// Sixteen GPUs below two levels of switches, without NVLink.
pub(crate) fn pcie16() -> Topo {
    let leaf = |it: u32| {
        let gpus = (0..4).map(|gpu_| gpu(4 * it + gpu_, "A10G", "Gen4 x16"));
        switch(gpus.chain([network(it, &format!("mlx5_{it}"), 200.0, 1, true, "RoCE")]).collect())
    };
    let socket = |it: u32| vec![switch(vec![leaf(2 * it), leaf(2 * it + 1)])];
    machine("box16", "16 x A10G; 4 x 200 Gbps RoCE; 2 sockets", vec![socket(0), socket(1)])
}

/// A ring over three p4d.
pub(crate) fn rings() -> Topo {
    let mut topo = p4d();
    let mut edges = Vec::new();
    for node in 0..3 {
        for at in 0..7 {
            edges.push(edge((node, at), (node, at + 1), TopoFamily::P2p, None));
        }
        edges.push(edge((node, 7), ((node + 1) % 3, 0), TopoFamily::Net, Some("rdmap160s27")));
    }
    topo.overlay = Some(TopoOverlay { name: "ring 0".to_owned(), nodes: 3, edges, ..TopoOverlay::default() });
    topo
}

/// A tree over six g6e.
pub(crate) fn trees() -> Topo {
    let mut topo = g6e();
    let mut edges = Vec::new();
    for node in 0..6 {
        for at in 0..3 {
            edges.push(edge((node, at + 1), (node, at), TopoFamily::Shm, None));
        }
    }
    for (from, to) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        edges.push(edge((from, 0), (to, 0), TopoFamily::Net, Some("rdmap49s0")));
    }
    topo.overlay = Some(TopoOverlay { name: "tree 0".to_owned(), nodes: 6, edges, ..TopoOverlay::default() });
    topo
}

/// A p5 whose NICs are told one by one.
pub(crate) fn nics32() -> Topo {
    let group = |it: u32| {
        let nics =
            (0..4).map(|nic_| nic(4 * it + nic_, &format!("rdmap{}s{nic_}", 79 + 11 * it), 100.0, 1, true));
        switch([gpu(it, "H100", "Gen5 x16")].into_iter().chain(nics).collect())
    };
    let groups = vec![(0..4).map(group).collect(), (4..8).map(group).collect()];
    let mut topo = machine("p5", "8 x H100; 32 x 100 Gbps EFA", groups);
    nvswitch(&mut topo, 18, 450.0);
    topo
}

/// A ring in one machine with a mesh, back and forth.
pub(crate) fn mesh_ring() -> Topo {
    let mut topo = mesh();
    let order = [0, 3, 2, 1, 5, 6, 7, 4];
    let edges =
        (0..8).map(|it| edge((0, order[it]), (0, order[(it + 1) % 8]), TopoFamily::P2p, None)).collect();
    topo.overlay = Some(TopoOverlay { name: "ring 3".to_owned(), nodes: 1, edges, ..TopoOverlay::default() });
    topo
}

/// Names that try to be something else.
pub(crate) fn hostile() -> Topo {
    let evil = "<script>alert('x')</script>&\"\u{1b}[31m\u{0}\u{ffff}\u{202e}";
    let mut topo =
        machine(evil, evil, vec![vec![gpu(0, evil, evil), nic(0, evil, f64::NAN, u32::MAX, true)]]);
    evil.clone_into(&mut topo.source);
    topo.notes.push(evil.to_owned());
    topo.unknown.push(evil.to_owned());
    topo.sockets[0].maker = Some(evil.to_owned());
    topo.nvlinks.push(TopoNvlink {
        from: evil.to_owned(),
        to: "GPU0".to_owned(),
        count: 0,
        bandwidth: Some(f64::INFINITY),
    });
    let nowhere = edge((u32::MAX, u32::MAX), (0, 9), TopoFamily::Net, Some(evil));
    topo.overlay = Some(TopoOverlay {
        name: evil.to_owned(),
        nodes: u32::MAX,
        edges: vec![nowhere],
        ..TopoOverlay::default()
    });
    topo
}

fn gpu(index: u32, model: &str, link: &str) -> TopoNode {
    TopoNode::Gpu {
        name: format!("GPU{index}"),
        model: Some(model.to_owned()),
        bus: Some(format!("0000:{:02x}:00.0", 0x10 + index)),
        link: Some(link.to_owned()),
        rank: None,
    }
}

fn nic(index: u32, name: &str, rate: f64, rail: u32, gpudirect: bool) -> TopoNode {
    network(index, name, rate, rail, gpudirect, "EFA")
}

fn network(index: u32, name: &str, rate: f64, rail: u32, gpudirect: bool, kind: &str) -> TopoNode {
    TopoNode::Nic {
        name: name.to_owned(),
        index,
        network: Some(kind.to_owned()),
        rate: Some(rate),
        gpudirect: Some(gpudirect),
        bus: None,
        link: None,
        rail,
    }
}

fn switch(children: Vec<TopoNode>) -> TopoNode {
    TopoNode::Switch { bus: None, link: Some("Gen4 x16".to_owned()), children }
}

fn edge(from: (u32, u32), to: (u32, u32), family: TopoFamily, nic: Option<&str>) -> TopoEdge {
    TopoEdge { from, to, family, nic: nic.map(ToOwned::to_owned), to_nic: None }
}

fn nvswitch(topo: &mut Topo, links: u32, bandwidth: f64) {
    topo.nvswitch = Some(TopoNvswitch { links, bandwidth: Some(bandwidth) });
    for it in topo.paths.iter_mut().filter(|it| it.to.starts_with("GPU")) {
        it.kind = PathType::Nvl;
        it.smi = format!("NV{links}");
        it.bandwidth = Some(bandwidth);
    }
}

fn job(pods: &str, inside: &str, reason: &str) -> TopoJob {
    let transport = |between: Between, pairs, example, transport: &str, reason: &str| TopoTransport {
        between,
        pairs,
        example,
        transport: transport.to_owned(),
        reason: reason.to_owned(),
    };
    TopoJob {
        nccl: "2.27.3".to_owned(),
        nodes: 2,
        nodes_may_share_machines: false,
        pods: pods.to_owned(),
        transports: vec![
            transport(Between::InsidePod, 56, (0, 1), inside, reason),
            transport(
                Between::Machines,
                64,
                (0, 8),
                "NET/Libfabric/0",
                "different hosts: the NIC that is nearest",
            ),
        ],
    }
}

fn normal(large: f64) -> Vec<TopoNormal> {
    let at = |shift: u32, part: f64, ceiling: &str| TopoNormal {
        collective: "all_reduce".to_owned(),
        bytes: 1 << shift,
        low: large * part * 0.8,
        expected: large * part,
        high: large * part * 1.2,
        time_us: f64::from(1_u32 << shift) / (large * part * 1e3),
        algorithm: "Ring".to_owned(),
        ceiling: ceiling.to_owned(),
        calibrated: true,
    };
    vec![
        at(10, 0.002, "latency of the network"),
        at(20, 0.3, "latency of the network"),
        at(26, 0.9, "the NICs: 50 GB/s for eight GPUs, in both directions at once"),
        at(30, 1.0, "the NICs: 50 GB/s for eight GPUs, in both directions at once"),
    ]
}

/// A machine with the paths that follow from where its devices hang.
fn machine(name: &str, summary: &str, sockets: Vec<Vec<TopoNode>>) -> Topo {
    let mut places: Vec<(Vec<usize>, TopoNode)> = Vec::new();
    for (at, children) in sockets.iter().enumerate() {
        let mut waiting: Vec<(Vec<usize>, &TopoNode)> = children.iter().map(|it| (vec![at], it)).collect();
        while let Some((place, node)) = (!waiting.is_empty()).then(|| waiting.remove(0)) {
            let TopoNode::Switch { children, .. } = node else {
                places.push((place, node.clone()));
                continue;
            };
            let below = [place, vec![waiting.len()]].concat();
            let below = children.iter().map(|it| (below.clone(), it)).collect::<Vec<_>>();
            waiting.splice(0..0, below);
        }
    }
    let mut paths = Vec::new();
    let mut nics = Vec::new();
    for (from, gpu) in &places {
        let TopoNode::Gpu { name: gpu, .. } = gpu else { continue };
        let mut near: Vec<(Option<usize>, TopoPath)> = Vec::new();
        for (to, other) in &places {
            let name = match other {
                TopoNode::Gpu { name, .. } if name != gpu => name,
                TopoNode::Nic { name, .. } => name,
                _ => continue,
            };
            let (kind, smi, bandwidth) = match from.iter().zip(to).take_while(|it| it.0 == it.1).count() {
                0 => (PathType::Sys, "SYS", 9.0),
                1 => (PathType::Phb, "NODE", 22.0),
                it if it == from.len() && it == to.len() => (PathType::Pix, "PIX", 24.0),
                _ => (PathType::Pxb, "PXB", 24.0),
            };
            let path = TopoPath {
                from: gpu.clone(),
                to: name.clone(),
                kind,
                smi: smi.to_owned(),
                bandwidth: Some(bandwidth),
            };
            if matches!(other, TopoNode::Nic { .. }) {
                near.push((PathType::ALL.iter().position(|it| *it == kind), path.clone()));
            }
            paths.push(path);
        }
        let best = near.iter().filter_map(|it| it.0).min();
        let nearest: Vec<&TopoPath> = near.iter().filter(|it| it.0 == best).map(|it| &it.1).collect();
        nics.push(TopoNicUse {
            gpu: gpu.clone(),
            nics: nearest.iter().map(|it| it.to.clone()).collect(),
            path: nearest.first().map(|it| it.kind.to_string()).unwrap_or_default(),
            gpudirect: nearest.first().is_some_and(|it| it.kind == PathType::Pix),
            shared_by: 2 - u32::from(sockets.iter().flatten().count() > 7),
            share: Some(6.25),
        });
    }
    let socket = |(at, children): (usize, Vec<TopoNode>)| TopoSocket {
        numa: u32::try_from(at).ok(),
        cpus: Some(format!("{}-{}", at * 24, at * 24 + 23)),
        maker: Some("Intel".to_owned()),
        children,
    };
    Topo {
        schema: "plumb.topo/1",
        name: Some(name.to_owned()),
        summary: summary.to_owned(),
        source: "the catalogue".to_owned(),
        sockets: sockets.into_iter().enumerate().map(socket).collect(),
        paths,
        nics,
        ..Topo::default()
    }
}

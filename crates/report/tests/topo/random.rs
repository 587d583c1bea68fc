//! Any machine can be drawn.

use fabric::PathType;
use nccl::Between;
use proptest::prelude::*;
use report::Style;
use report::topo::{
    Topo, TopoEdge, TopoFamily, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch,
    TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};

use unicode_width::UnicodeWidthStr;

use crate::{page, picture};

/// A name as machines have it, or anything.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => (0..20_u32).prop_map(|it| format!("GPU{it}")), 2 => "[a-z]{1,30}", 1 => any::<String>()]
}

fn node() -> impl Strategy<Value = TopoNode> {
    let maybe = || proptest::option::of("Gen[345] x(8|16)");
    let gpu = (name(), proptest::option::of(name()), maybe(), proptest::option::of(any::<u32>()))
        .prop_map(|(name, model, link, rank)| TopoNode::Gpu { name, model, bus: None, link, rank });
    let nic = (name(), proptest::option::of(any::<f64>()), 0..6_u32, maybe()).prop_map(
        |(name, rate, rail, link)| TopoNode::Nic {
            name,
            index: 0,
            network: None,
            rate,
            gpudirect: Some(true),
            bus: None,
            link,
            rail,
        },
    );
    prop_oneof![gpu, nic].prop_recursive(4, 24, 5, |inner| {
        (proptest::collection::vec(inner, 0..5), proptest::option::of("Gen[345] x16"))
            .prop_map(|(children, link)| TopoNode::Switch { bus: None, link, children })
    })
}

fn socket() -> impl Strategy<Value = TopoSocket> {
    (proptest::collection::vec(node(), 0..5), proptest::option::of(0..9_u32))
        .prop_map(|(children, numa)| TopoSocket { numa, cpus: None, maker: None, children })
}

prop_compose! {
    fn machine()(
        sockets in proptest::collection::vec(socket(), 0..4),
        links in proptest::collection::vec((name(), name(), 0..20_u32), 0..6),
        switch in any::<bool>(),
        paths in proptest::collection::vec((name(), name(), proptest::sample::select(PathType::ALL.as_slice()), any::<f64>()), 0..40),
        nics in proptest::collection::vec((name(), name(), 0..9_u32), 0..6),
        edges in proptest::collection::vec(((0..6_u32, 0..6_u32), (0..6_u32, 0..6_u32), name()), 0..12),
        nodes in 0..6_u32,
        normal in proptest::collection::vec((0..40_u32, 0.0..1e4_f64, "[a-z ]{0,60}"), 0..4),
        notes in proptest::collection::vec(any::<String>(), 0..3),
    ) -> Topo {
        let nvlink = |(from, to, count)| TopoNvlink { from, to, count, bandwidth: None };
        let path = |(from, to, kind, bandwidth)| TopoPath { from, to, kind, smi: "X".to_owned(), bandwidth: Some(bandwidth) };
        let nic_use = |(gpu, nic, shared_by)| {
            TopoNicUse { gpu, nics: vec![nic], path: "PIX".to_owned(), gpudirect: false, shared_by, share: None }
        };
        let edge = |(from, to, nic)| TopoEdge { from, to, family: TopoFamily::Net, nic: Some(nic), to_nic: None };
        let transport = |(size, _, reason): &(u32, f64, String)| TopoTransport {
            between: Between::Pods,
            pairs: u64::from(*size),
            example: (0, *size),
            transport: "NET/Libfabric/0/GDRDMA".to_owned(),
            reason: reason.clone(),
        };
        let transports = normal.iter().map(transport).collect();
        let row = |(shift, expected, ceiling): (u32, f64, String)| TopoNormal {
            collective: "all_reduce".to_owned(),
            bytes: 1 << shift,
            low: expected / 2.0,
            expected,
            high: expected * 2.0,
            time_us: expected,
            algorithm: "NVLSTree".to_owned(),
            ceiling,
            calibrated: false,
        };
        Topo {
            name: notes.first().cloned(),
            unknown: notes.clone(),
            notes,
            job: Some(TopoJob { nccl: "2.27.3".to_owned(), nodes, nodes_may_share_machines: nodes > 2, pods: "2x4".to_owned(), transports }),
            normal: normal.into_iter().map(row).collect(),
            sockets,
            nvlinks: links.into_iter().map(nvlink).collect(),
            nvswitch: switch.then_some(TopoNvswitch { links: 18, bandwidth: None }),
            paths: paths.into_iter().map(path).collect(),
            nics: nics.into_iter().map(nic_use).collect(),
            overlay: Some(TopoOverlay { name: "ring 0".to_owned(), nodes, edges: edges.into_iter().map(edge).collect(), ..TopoOverlay::default() }),
            ..Topo::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_line_is_too_long(topo in machine(), width in 40..120_usize, verbose in any::<bool>()) {
        for line in page(&topo, Style { width, verbose, ..Style::default() }).lines() {
            // A word that is longer than what is left of the line cannot be broken.
            let word = line.split(' ').map(UnicodeWidthStr::width).max().unwrap_or(0);
            prop_assert!(line.width() <= width || word + 22 > width, "{width}: {line}");
        }
    }

    #[test]
    fn every_picture_is_well_formed(topo in machine()) {
        let text = picture(&topo);
        let document = roxmltree::Document::parse(&text);
        prop_assert!(document.is_ok(), "{document:?}");
        if let Ok(document) = document {
            stays_inside(&document);
        }
    }
}

/// Nothing is drawn beyond the edge.
pub(crate) fn stays_inside(document: &roxmltree::Document<'_>) {
    let root = document.root_element();
    let view: Vec<f64> =
        root.attribute("viewBox").unwrap().split(' ').map(|it| it.parse::<f64>().unwrap()).collect();
    let number = |node: &roxmltree::Node<'_, '_>, name| {
        node.attribute(name).map_or(0.0, |it| it.parse::<f64>().unwrap())
    };
    for node in root.descendants().filter(|it| it.tag_name().name() == "rect") {
        let right = number(&node, "x") + number(&node, "width");
        let bottom = number(&node, "y") + number(&node, "height");
        assert!(number(&node, "x") >= 0.0 && right <= view[2] + 0.1 && bottom <= view[3] + 0.1, "{node:?}");
    }
    let routes = root.descendants().filter(|it| it.attribute("class").is_some_and(|it| it.contains("route")));
    for path in routes.filter_map(|it| it.attribute("d")) {
        for point in path.split(['M', 'L', 'Q']).filter(|it| !it.is_empty() && !it.contains('h')) {
            let numbers: Vec<f64> = point.split(' ').filter_map(|it| it.parse().ok()).collect();
            for it in numbers.chunks_exact(2) {
                assert!(it[0] >= 0.0 && it[0] <= view[2] && it[1] >= 0.0 && it[1] <= view[3], "{path}");
            }
        }
    }
}

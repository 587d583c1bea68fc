//! A description of a machine through everything: reading, paths, transports, what is normal, every format.
#![no_main]

use report::topo::{Question, Shape, Topo};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = evidence::topology::read(bytes) else { return };
    let question = Question {
        source: "topo.txt".to_owned(),
        settings: nccl::Settings::default(),
        layout: nccl::Layout::whole(&found.machine).on(2),
        collective: fabric::Collective::AllReduce,
        sizes: vec![0, 1 << 20, 1 << 33],
        overlay: report::topo::overlay_of_graph(&found.graphs, 0, Shape::Ring).ok(),
        graphs: found.graphs,
        notes: found.notes,
    };
    let Ok(topo) = Topo::new(&found.machine, question) else { return };
    let (mut json, mut text, mut svg) = (Vec::new(), Vec::new(), Vec::new());
    let style = report::Style { colour: false, width: 80, verbose: true };
    report::topo::json(&topo, &mut json).expect("memory takes all");
    report::topo::text(&topo, style, &mut text).expect("memory takes all");
    report::topo::svg(&topo, &mut svg).expect("memory takes all");
    assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
    for shown in [text, svg] {
        let shown = String::from_utf8(shown).expect("UTF-8");
        assert!(!shown.contains(|it: char| it.is_control() && it != '\n'), "{shown:?}");
    }
});

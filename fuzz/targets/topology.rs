//! A description of a machine through everything: reading, paths, transports, what is normal, every format.
#![no_main]

use fabric::{Collective, Layout};
use forecast::Cluster;
use job::channel::{self, Shape};
use job::{Job, Known, Source, machine};
use nccl::Decisions;
use report::topo::{Topo, TopoParts};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = evidence::topology::read(bytes) else { return };
    let source = Source::Topology { file: "topo.txt".into(), line: found.line, kind: found.kind };
    let mut resolved = machine::of_topology(&found, source, fabric::catalogue::find("p5.48xlarge"));
    resolved.deduce_generation();
    let layout = Layout::whole(&found.machine).on(2);
    let (seen, settings) = (resolved.seen_by_nccl(), fabric::Settings::default());
    let Ok(decisions) = Decisions::new(&seen, &settings, &layout) else { return };
    let cluster = Cluster::of_layout(&resolved.machine.value, &layout, &settings);
    let job = Job {
        machines: vec![resolved.machine],
        layout: Some(Known::new(layout, Source::Default)),
        conflicts: resolved.conflicts,
        ..Job::default()
    };
    let topo = Topo::new(TopoParts {
        job: &job,
        source: "topo.txt".to_owned(),
        seen_by_nccl: &seen,
        survey: &decisions.survey(&seen),
        normal: cluster.map(|it| forecast::table(Collective::AllReduce, &it, &[0, 1 << 20, 1 << 33])),
        collective: Collective::AllReduce,
        channel: channel::of_graphs(&found.graphs, channel::Selection { number: 0, shape: Shape::Ring }).ok().as_ref(),
        graphs: &found.graphs,
        notes: resolved.notes,
        price: None,
    });
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

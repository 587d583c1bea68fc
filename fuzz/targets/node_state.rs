//! A recorded state of a node: read, judged, compared and written in every format.
#![no_main]

use evidence::node::{KernelLog, NodeState};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut log = KernelLog::default();
    for line in String::from_utf8_lossy(bytes).lines() {
        log.add_record(line);
    }
    let Ok(state) = NodeState::read(bytes) else { return };
    let node = report::Node::new(state.clone(), &rules::node::judge(&state));
    let style = report::Style { colour: true, width: 80, verbose: true };
    node.text(style, &mut std::io::sink()).expect("a sink takes all");
    node.prometheus(&mut std::io::sink()).expect("a sink takes all");
    assert!(!report::Nagios::new(&node).line.contains('\n'));
    let mut json = Vec::new();
    node.json(&mut json).expect("memory takes all");
    assert_eq!(NodeState::read(&json).as_ref(), Ok(&state));
    let other = NodeState { host: "other".to_owned(), ..NodeState::default() };
    let states = [other, state];
    let judged = states.clone().map(|it| (it.clone(), rules::node::judge(&it)));
    let nodes = report::Nodes::new(judged.into(), &rules::node::judge_together(&states));
    nodes.text(style, &mut std::io::sink()).expect("a sink takes all");
});

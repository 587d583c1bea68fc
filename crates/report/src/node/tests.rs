//! Any state that can be read is judged and written in every format.

use evidence::node::NodeState;
use rules::node::{judge, judge_together};

use super::{Nagios, Node, Nodes, health_line};
use crate::Style;

const RECORDED: &str = include_str!("../../../cli/tests/data/nodes/node04.json");

fn state(text: &str) -> Option<NodeState> {
    NodeState::read(text.as_bytes()).ok()
}

/// Writes everything, and returns the JSON.
fn written(state: &NodeState) -> Vec<u8> {
    let node = Node::new(state.clone(), &judge(state));
    for verbose in [false, true] {
        node.text(Style { colour: true, width: 40, verbose }, &mut std::io::sink()).unwrap();
    }
    let mut metrics = Vec::new();
    node.prometheus(&mut metrics).unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    for line in metrics.lines() {
        assert!(line.starts_with("# ") || line.starts_with("plumb_node_"), "{line:?}");
    }
    assert!(!Nagios::new(&node).line.contains('\n'));
    assert!(health_line(&node).is_none_or(|it| it.starts_with("plumb: ") && !it.contains('\n')));
    let mut json = Vec::new();
    node.json(&mut json).unwrap();
    let pair = [NodeState { host: "other".to_owned(), ..NodeState::default() }, state.clone()];
    let judged = pair.clone().map(|it| (it.clone(), judge(&it)));
    let nodes = Nodes::new(judged.into(), &judge_together(&pair));
    nodes.text(Style::default(), &mut std::io::sink()).unwrap();
    json
}

#[test]
fn what_is_written_is_read_back() {
    let recorded = state(RECORDED).unwrap();
    assert_eq!(NodeState::read(&written(&recorded)), Ok(recorded));
}

#[test]
fn hostile_values_reach_no_terminal_and_no_metric() {
    let hostile = "a\u{1b}[31m\n# TYPE x gauge\n\"} 1\\";
    let mut bad = state(RECORDED).unwrap();
    bad.host = hostile.to_owned();
    bad.gpus.as_mut().unwrap()[0].uuid = Some(hostile.to_owned());
    bad.interfaces.as_mut().unwrap()[0].name = hostile.to_owned();
    let node = Node::new(bad.clone(), &judge(&bad));
    let mut out = Vec::new();
    node.text(Style::default(), &mut out).unwrap();
    assert!(!out.contains(&0x1b));
    out.clear();
    node.prometheus(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains("\n# TYPE x "), "{text}");
    written(&bad);
}

/// Changes of numbers, words and structure at places that a generator chooses.
#[test]
fn no_state_panics() {
    let mut seed = 7_u64;
    let mut random = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap_or(0) % most
    };
    let tokens =
        ["null", "0", "18446744073709551615", "4294967295", "1e308", "true", "\"\"", "[]", "{}", "-1"];
    let mut read = 0;
    for _ in 0..3000 {
        let mut text = RECORDED.to_owned();
        for _ in 0..=random(3) {
            // The value of a field in some line.
            let at = random(text.len());
            let Some(start) = text[at..].find(": ").map(|it| at + it + 2) else { continue };
            let end = text[start..].find([',', '\n']).map_or(text.len(), |it| start + it);
            text.replace_range(start..end, tokens[random(tokens.len())]);
        }
        if let Some(state) = state(&text) {
            read += 1;
            written(&state);
        }
    }
    assert!(read > 100, "only {read} of 3000 could be read: the test tries nothing");
}

//! What a validation takes from the states of machines: how many GPUs, which NICs.

use std::collections::{BTreeMap, BTreeSet};

use ::validate::live::{Engine, Node};

use super::node::state;

/// How many GPUs a machine has.
pub(super) fn gpus(node: &Node) -> usize {
    state(node).and_then(|it| it.gpus).map_or(0, |it| it.len())
}

/// How many most machines have.
pub(super) fn usual_gpus(nodes: &[&Node]) -> usize {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(gpus(node)).or_default() += 1;
    }
    counts.into_iter().max_by_key(|it| (it.1, it.0)).map_or(0, |it| it.0)
}

/// NICs that every machine has and that can be measured alone, if there are several.
pub(super) fn nics(nodes: &[&Node], engine: Engine, net: Option<&str>) -> Vec<String> {
    let of = |node: &&Node| -> BTreeSet<String> {
        let Some(state) = state(node) else { return BTreeSet::new() };
        match engine {
            Engine::Nccl => state.rdma.unwrap_or_default().into_iter().map(|it| it.device).collect(),
            Engine::Host => {
                let up = state.interfaces.unwrap_or_default().into_iter();
                up.filter(|it| it.physical && it.state.as_deref() == Some("up")).map(|it| it.name).collect()
            }
        }
    };
    let common = nodes.iter().map(of).reduce(|all, one| all.intersection(&one).cloned().collect());
    let common: Vec<String> = common.unwrap_or_default().into_iter().collect();
    // A network that the user chose is one NIC.
    if common.len() < 2 || (engine == Engine::Host && net.is_some()) { Vec::new() } else { common }
}

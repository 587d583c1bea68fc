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

/// What tells NICs for training from others.
#[derive(Clone, Copy)]
struct Port {
    gbps: Option<f64>,
    up: bool,
}

/// NICs that every machine has and that can be measured alone, if there are several: those of the highest rate, which are compared with
/// each other. One for storage or for logins may be slower; one that is up nowhere is not used.
pub(super) fn nics(nodes: &[&Node], engine: Engine, net: Option<&str>) -> Vec<String> {
    let all: Vec<BTreeMap<String, Port>> = nodes.iter().map(|it| ports(it, engine)).collect();
    let names = || all.iter().map(|it| it.keys().cloned().collect::<BTreeSet<String>>());
    let common = names().reduce(|all, one| &all & &one).unwrap_or_default();
    // On a machine where it is down or its rate is wrong, a NIC is of its kind all the same.
    let rate = |name: &String| all.iter().filter_map(|it| it.get(name)?.gbps).max_by(f64::total_cmp);
    let up = |name: &String| all.iter().any(|it| it.get(name).is_some_and(|it| it.up));
    let used: Vec<String> = common.into_iter().filter(up).collect();
    let highest = used.iter().filter_map(rate).max_by(f64::total_cmp);
    let as_fast = |name: &String| rate(name).is_none_or(|it| highest.is_none_or(|highest| it >= highest));
    let nics: Vec<String> = used.into_iter().filter(as_fast).collect();
    // A network that the user chose is one NIC.
    if nics.len() < 2 || (engine == Engine::Host && net.is_some()) { Vec::new() } else { nics }
}

/// The NICs of a machine: RDMA devices, or interfaces that are up.
fn ports(node: &Node, engine: Engine) -> BTreeMap<String, Port> {
    let Some(state) = state(node) else { return BTreeMap::new() };
    let mut ports: BTreeMap<String, Port> = BTreeMap::new();
    match engine {
        Engine::Nccl => {
            for it in state.rdma.unwrap_or_default() {
                // A state that cannot be read says nothing against it.
                let up = it.state.as_deref().is_none_or(|it| it == "ACTIVE");
                let of_both = ports.entry(it.device).or_insert(Port { gbps: it.gbps, up });
                of_both.gbps = [of_both.gbps, it.gbps].into_iter().flatten().max_by(f64::total_cmp);
                of_both.up |= up;
            }
        }
        Engine::Host => {
            let up = state.interfaces.unwrap_or_default().into_iter();
            let up = up.filter(|it| it.physical && it.state.as_deref() == Some("up"));
            ports.extend(up.map(|it| (it.name, Port { gbps: it.gbps, up: true })));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use validate::live::{Engine, Node};

    use super::nics;

    fn node(host: &str, state: &Value) -> Node {
        Node { host: host.to_owned(), facts: Some(json!({ "state": state })), failed: None }
    }

    fn rdma(ports: &[(&str, u32, &str, f64)]) -> Value {
        let port = |it: &(&str, u32, &str, f64)| json!({ "device": it.0, "port": it.1, "state": it.2, "gbps": it.3 });
        json!({ "rdma": ports.iter().map(port).collect::<Vec<Value>>() })
    }

    fn of(nodes: &[Node], engine: Engine, net: Option<&str>) -> Vec<String> {
        nics(&nodes.iter().collect::<Vec<&Node>>(), engine, net)
    }

    #[test]
    fn nics_of_the_highest_rate_that_all_machines_have_are_measured() {
        let whole = [
            ("mlx5_0", 1, "ACTIVE", 400.0),
            ("mlx5_1", 1, "ACTIVE", 400.0),
            ("mlx5_2", 1, "ACTIVE", 400.0),
            ("mlx5_3", 1, "ACTIVE", 100.0), // storage
            ("mlx5_4", 1, "DOWN", 400.0),
            ("mlx5_5", 1, "ACTIVE", 400.0), // on one machine only
            ("mlx5_6", 1, "DOWN", 10.0),
            ("mlx5_6", 2, "ACTIVE", 400.0), // its second port
        ];
        // Here one is down, and another came up at a lower rate: they are to be found, not left out.
        let bad = [
            ("mlx5_0", 1, "DOWN", 400.0),
            ("mlx5_1", 1, "ACTIVE", 200.0),
            ("mlx5_2", 1, "ACTIVE", 400.0),
            ("mlx5_3", 1, "ACTIVE", 100.0),
            ("mlx5_4", 1, "DOWN", 400.0),
            ("mlx5_6", 1, "DOWN", 10.0),
            ("mlx5_6", 2, "ACTIVE", 400.0),
        ];
        let nodes = [node("a", &rdma(&whole)), node("b", &rdma(&bad))];
        assert_eq!(of(&nodes, Engine::Nccl, None), ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_6"]);
        assert_eq!(of(&nodes, Engine::Host, None), [""; 0]);
        // One alone has nothing to be compared with.
        let one = [node("a", &rdma(&whole[..1])), node("b", &rdma(&bad))];
        assert_eq!(of(&one, Engine::Nccl, None), [""; 0]);
    }

    #[test]
    fn interfaces_that_are_virtual_or_down_are_none() {
        let interface = |name: &str, physical: bool, state: &str, gbps: Option<f64>| json!({ "name": name, "physical": physical, "state": state, "gbps": gbps });
        let state = json!({ "interfaces": [
            interface("ens1", true, "up", Some(100.0)),
            interface("ens2", true, "up", Some(100.0)),
            interface("ens3", true, "up", Some(10.0)),
            interface("ens4", true, "up", None), // a rate that cannot be read says nothing against it
            interface("ens5", true, "down", Some(100.0)),
            interface("docker0", false, "up", Some(100.0)),
        ] });
        let nodes = [node("a", &state), node("b", &state)];
        assert_eq!(of(&nodes, Engine::Host, None), ["ens1", "ens2", "ens4"]);
        assert_eq!(of(&nodes, Engine::Host, Some("ens1")), [""; 0]);
    }
}

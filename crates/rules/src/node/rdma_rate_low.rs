//! An RDMA port that runs below its rate.

use std::collections::BTreeMap;

use evidence::Source;
use evidence::node::{NodeState, RdmaPort};
use fabric::machine::NicKind;

use super::facts::{list, model, ports, title};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-rdma-rate-low",
    title: "a network port of the node runs below its rate",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Devices],
    why: "A port that negotiated a lower rate or lost lanes slows every ring and tree that crosses it, and with it the whole job.",
    fix: "`ibstat` or `ethtool DEVICE` show the rate. Reseat or replace cable and transceiver, compare with the switch port, and reset the port \
          (`ibportstate`); if it stays, replace the card.",
    references: &["https://docs.nvidia.com/networking/display/mlnxofedv24010331/infiniband+network"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let ports = ports(state)?;
    let active = |it: &&RdmaPort| it.state.as_deref() == Some("ACTIVE") && it.gbps.is_some();
    let mut found = Vec::new();
    // Drivers of EFA before 2024 report 100 Gbit/s for every generation, so its rate is not compared with the catalogue.
    if let Some(model) =
        model(state).filter(|it| it.nics > 0 && matches!(it.network, NicKind::InfiniBand | NicKind::Roce))
    {
        let each = model.bandwidth.0 / f64::from(model.nics);
        let fast =
            ports.iter().filter(active).filter(|it| it.gbps.is_some_and(|it| it >= each * 0.99)).count();
        let slow: Vec<&RdmaPort> = ports
            .iter()
            .filter(active)
            .filter(|it| it.kind != "efa" && it.gbps.is_some_and(|it| it < each * 0.99))
            .collect();
        // Other ports, for storage, may be slower.
        if fast < usize::try_from(model.nics).unwrap_or(usize::MAX) && !slow.is_empty() {
            let message = format!("{} below the {each:.0} Gbit/s of a {}", said(&slow), title(model));
            found.push(
                slow.iter()
                    .fold(Finding::new(Confidence::Certain, message), |it, port| it.about_nic(&port.device)),
            );
            return Ok(found);
        }
    }
    let mut kinds: BTreeMap<&str, Vec<&RdmaPort>> = BTreeMap::new();
    for port in ports.iter().filter(active) {
        kinds.entry(&port.kind).or_default().push(port);
    }
    for all in kinds.values().filter(|it| it.len() > 2) {
        let mut rates: Vec<f64> = all.iter().filter_map(|it| it.gbps).collect();
        rates.sort_by(f64::total_cmp);
        let Some(usual) = rates.get(rates.len() / 2).copied() else { continue };
        let slow: Vec<&RdmaPort> =
            all.iter().copied().filter(|it| it.gbps.is_some_and(|it| it < usual * 0.99)).collect();
        if !slow.is_empty() && slow.len() * 4 <= all.len() {
            let message =
                format!("{}, the other {} ports {usual:.0} Gbit/s", said(&slow), all.len() - slow.len());
            let finding = Finding::new(Confidence::Likely, message);
            found.push(slow.iter().fold(finding, |it, port| it.about_nic(&port.device)));
        }
    }
    Ok(found)
}

/// `mlx5_3 runs at 200 Gbit/s`
fn said(slow: &[&RdmaPort]) -> String {
    let names: Vec<String> = slow.iter().map(|it| it.device.clone()).collect();
    let rate = slow.iter().filter_map(|it| it.gbps).fold(f64::INFINITY, f64::min);
    format!("{} {} at {rate:.0} Gbit/s", list(&names, 4), if slow.len() == 1 { "runs" } else { "run" })
}

//! The paths of the data: network, interface, GPUDirect, and inside a node.

use std::collections::{BTreeMap, BTreeSet};

use evidence::Source;

use super::{ChecklistItem, List, lacks, not_checked, note, ok};

use crate::Log;

impl List<'_> {
    pub(super) fn network(&self) -> ChecklistItem {
        let values: BTreeMap<_, _> = self.log.case.networks().map(|it| (&*it.value, &it.quote)).collect();
        match values.first_key_value() {
            Some((name, quote)) if values.len() == 1 => {
                let used: BTreeSet<u32> =
                    self.log.case.links().filter_map(|it| Some(it.link.transport()?.network()?.1)).collect();
                let devices = match used.len() {
                    0 => String::new(),
                    1 => ", 1 device in use".to_owned(),
                    n => format!(", {n} devices in use"),
                };
                let words = self.summary.networks.first().map_or(*name, String::as_str);
                if case_is_single(self.log) && used.is_empty() {
                    note("network", format!("{words}, not used: all ranks are on one node"), Some(quote))
                } else {
                    ok(
                        "network",
                        format!("{words} (`{name}`) chosen by every communicator seen{devices}"),
                        Some(quote),
                    )
                }
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().copied().collect();
                note("network", format!("different networks: {}", list.join(", ")), Some(quote))
            }
            None => lacks("network", Source::NcclLog),
        }
    }

    pub(super) fn interface(&self) -> ChecklistItem {
        let (values, said) = self.values(|it| {
            let seen = it.facts.bootstrap.first()?;
            Some((seen.value.first()?.name.to_string(), &seen.quote))
        });
        match values.first_key_value() {
            Some((_, quote)) => {
                let names: Vec<&str> = values.keys().map(String::as_str).collect();
                ok(
                    "interface",
                    format!("setup over {} ({})", names.join(", "), self.everyone(said)),
                    Some(quote),
                )
            }
            None => lacks("interface", Source::NcclLog),
        }
    }

    pub(super) fn gpudirect(&self) -> ChecklistItem {
        let net = || {
            self.log
                .case
                .links()
                .map(|it| it.link)
                .filter(|it| it.transport().is_some_and(fabric::Transport::is_net))
        };
        let first = |wanted: bool| {
            net()
                .find(|it| {
                    it.transport().and_then(fabric::Transport::network).is_some_and(|it| it.2 == wanted)
                })
                .map(|it| &it.quote)
        };
        match self.summary.gpudirect {
            (0, 0) => {
                match self.log.case.processes.iter().find_map(|it| it.facts.plugin.gpudirect_off.first()) {
                    Some(seen) => note(
                        "gpudirect",
                        "off: the plugin reports that it cannot be used here",
                        Some(&seen.quote),
                    ),
                    None if case_is_single(self.log) => {
                        not_checked("gpudirect", "all ranks are on one node: nothing crosses a network")
                    }
                    None => lacks("gpudirect", Source::Connections),
                }
            }
            (n, 0) => ok("gpudirect", format!("on every connection seen ({n})"), first(true)),
            (0, n) if self.summary.networks == ["TCP sockets"] => note(
                "gpudirect",
                format!("off on {}: TCP copies through host memory", connections(n)),
                first(false),
            ),
            (0, n) => note(
                "gpudirect",
                format!("off on every connection seen ({n}): data is copied through host memory"),
                first(false),
            ),
            (with, without) => {
                note("gpudirect", format!("on {with}, off on {without} network connections"), first(false))
            }
        }
    }

    pub(super) fn inside(&self) -> ChecklistItem {
        let transports: Vec<String> = self
            .summary
            .inside
            .iter()
            .map(|(transport, n)| format!("{transport} on {}", connections(*n)))
            .collect();
        let first = self
            .log
            .case
            .links()
            .map(|it| it.link)
            .find(|it| it.transport().is_some_and(|it| !it.is_net()))
            .map(|it| &it.quote);
        if !transports.is_empty() {
            return if self.summary.inside.contains_key("SHM") {
                note("inside", transports.join(", "), first)
            } else {
                ok("inside", transports.join(", "), first)
            };
        }
        match self.log.job.size.reported_layout().map(|it| it.ranks_per_node) {
            Some(1) => not_checked("inside", "every rank is alone on its node, as NCCL counts nodes"),
            _ => lacks("inside", Source::Connections),
        }
    }

    pub(super) fn transport_protocol(&self) -> ChecklistItem {
        match self.log.case.processes.iter().find_map(|it| it.facts.plugin.protocol.first()) {
            Some(seen) => ok("transport", format!("plugin protocol {}", seen.value), Some(&seen.quote)),
            None => not_checked("transport", "only aws-ofi-nccl reports it"),
        }
    }
}

fn connections(n: u32) -> String {
    if n == 1 { "1 connection".to_owned() } else { format!("{n} connections") }
}

fn case_is_single(log: &Log) -> bool {
    log.job.size.spans_nodes() == Some(false)
}

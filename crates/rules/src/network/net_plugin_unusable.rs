//! A network plugin was found, and NCCL could not use it.

use std::collections::BTreeMap;

use evidence::nccl::PluginEvent;
use evidence::plugin::{self, aws_ofi, is_infiniband, is_socket};
use evidence::signals::network::{PLUGIN_NOT_STARTED, PLUGIN_UNSUPPORTED};
use evidence::{Process, Sighting, Source};

use super::socket_fallback::plugin_fix;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "net-plugin-unusable",
    title: "a network plugin was found, but NCCL cannot use it",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "NCCL asks a plugin for an interface of a version it knows, and then for its devices. If either is missing, NCCL says so at level \
          INFO alone and goes on with its own InfiniBand or socket transport.",
    fix: "Use a release of the plugin that is made for this NCCL, and look at its own lines for what it did not find. NCCL_NET=NAME with the \
          name of the plugin's network makes a failure an error instead of a slow job.",
    references: &["NCCL src/plugin/net.cc", "https://github.com/NVIDIA/nccl/tree/master/ext-net"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let processes = log.nccl_log()?;
    if !log.job.may_span_machines() {
        return Ok(Vec::new());
    }
    let mut failed: BTreeMap<(&str, u32), Vec<&Sighting>> = BTreeMap::new();
    for sighting in log.case.sightings_of(&PLUGIN_UNSUPPORTED) {
        if let Some(id) = &sighting.process {
            failed.entry((&id.host, id.pid)).or_default().push(sighting);
        }
    }
    Ok(processes
        .iter()
        .find_map(|it| {
            let own = failed.get(&(&*it.host, it.pid)).map(Vec::as_slice).unwrap_or_default();
            unsupported(log, it, own).or_else(|| not_started(log, it))
        })
        .into_iter()
        .collect())
}

/// The networks that a process chose, in words.
fn chosen(process: &Process) -> Option<String> {
    let first = process.facts.networks.first()?;
    Some(plugin::called(&first.value, std::slice::from_ref(process)))
}

/// No version of the interface was found: `failed` are the lines of this process that say so.
fn unsupported(log: &Log, process: &Process, failed: &[&Sighting]) -> Option<Finding> {
    // NCCL tries one version after the other: a failed one is normal where another was loaded.
    let loaded = process.facts.plugins.iter().any(|it| matches!(it.value, PluginEvent::Network { .. }));
    if failed.is_empty() || loaded {
        return None;
    }
    let network = chosen(process)?;
    let library = failed.iter().map(|it| it.get("library")).find(|it| !it.is_empty());
    let library = library.map(|it| format!(" {it}")).unwrap_or_default();
    let message = format!(
        "the network plugin{library} has no interface that this NCCL knows; {} uses {network} instead",
        process.name()
    );
    let network = process.facts.networks.first().map(|it| &it.quote);
    Some(Finding::new(Confidence::Certain, message).by(log, failed).seen_all(network))
}

/// The plugin was opened, but it found no device or no daemon.
fn not_started(log: &Log, process: &Process) -> Option<Finding> {
    // The plugins of HPC-X are in many images and fall silent without adapters; EFA has rules of its own.
    let counts = |name: &str| !is_infiniband(name) && !is_socket(name) && !aws_ofi::PLUGIN.gives(name);
    let (name, quote) = process.facts.plugins.iter().find_map(|it| match &it.value {
        PluginEvent::Network { name } if counts(name) => Some((&**name, &it.quote)),
        _ => None,
    })?;
    let network = process.facts.networks.first()?;
    if !process.facts.networks.iter().all(|it| is_socket(&it.value)) {
        return None;
    }
    let said: Vec<_> =
        log.case.sightings_of(&PLUGIN_NOT_STARTED).filter(|it| it.get("name").starts_with(name)).collect();
    let message = format!(
        "the network plugin {name} was loaded but does not work; {} uses TCP sockets",
        process.name()
    );
    let finding = Finding::new(Confidence::Certain, message).seen(quote).by(log, &said).seen(&network.quote);
    let known = plugin::of_network(name).map(|it| plugin_fix(it.name));
    Some(if let Some(fix) = known { finding.fix(fix) } else { finding })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const NETWORK: &str = "a:1:1 [0] NCCL INFO Using network Socket\n";

    #[test]
    fn fires_on_a_library_without_an_interface() {
        let new = "a:1:1 [0] NCCL INFO External network plugin libnccl-net-x.so is unsupported\n";
        assert_eq!(
            findings(&RULE, &format!("{new}{NETWORK}"))[0].message,
            "the network plugin libnccl-net-x.so has no interface that this NCCL knows; rank 0 on a uses TCP sockets instead"
        );
        let old = "a:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.\n\
                   a:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not supported.\n";
        assert_eq!(findings(&RULE, &format!("{old}{NETWORK}")).len(), 1);
        // An older version of the interface was found.
        quiet(
            &RULE,
            &format!("{old}a:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v6)\n{NETWORK}"),
        );
    }

    #[test]
    fn fires_on_a_plugin_without_its_daemon() {
        let log = "a:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin FasTrak (v8)\n\
                   a:1:1 [0] NCCL INFO Failed to initialize NET plugin FasTrak\n";
        let found = findings(&RULE, &format!("{log}{NETWORK}"));
        assert!(found[0].fix.as_ref().unwrap().contains("tcpxo-daemon"));
        quiet(&RULE, &format!("{log}a:1:1 [0] NCCL INFO Using network FasTrak\n"));
        let one = "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n";
        quiet(&RULE, &format!("{log}{NETWORK}{one}"));
        // An image with the plugin of HPC-X on a machine without adapters.
        let hpcx = "a:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin v8 (v8)\n";
        quiet(&RULE, &format!("{hpcx}{NETWORK}"));
    }
}

//! EFA and the aws-ofi-nccl plugin.

pub mod efa_device_not_in_container;
pub mod efa_fork_unsafe;
pub mod efa_hugepage_fork;
pub mod efa_nccl219_old_libfabric;
pub mod efa_nics_unexpected;
pub mod efa_peer_gone;
pub mod efa_provider_not_found;
pub mod efa_security_group;
pub mod efa_transfer_failed;
pub mod gpudirect_missing_on_another_rank;
pub mod gpudirect_off;
pub mod gpudirect_unsupported;
pub mod mixed_network_between_ranks;
pub mod nic_shared_by_gpus;
pub mod ofi_plugin_lib_mismatch;
pub mod ofi_plugin_not_loaded;
pub mod one_gpu_of_many;
pub mod plugin_too_old;
pub mod protocol_forced_simple;

use evidence::Quote;
use evidence::facts::Link;
use evidence::plugin::aws_ofi::PLUGIN;
use evidence::plugin::is_socket;
use evidence::signals::efa::{
    DOCKER_RUN, EFA_SETTING, FAMILY_NAMED, NETWORK_QUOTED, PROVIDER, SOCKET_QUOTED,
};
use fabric::instance::{self, Instance};

use crate::{Log, Rule};

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &efa_device_not_in_container::RULE,
    &efa_fork_unsafe::RULE,
    &efa_hugepage_fork::RULE,
    &efa_nccl219_old_libfabric::RULE,
    &efa_nics_unexpected::RULE,
    &efa_peer_gone::RULE,
    &efa_provider_not_found::RULE,
    &efa_security_group::RULE,
    &efa_transfer_failed::RULE,
    &gpudirect_missing_on_another_rank::RULE,
    &gpudirect_off::RULE,
    &gpudirect_unsupported::RULE,
    &mixed_network_between_ranks::RULE,
    &nic_shared_by_gpus::RULE,
    &ofi_plugin_lib_mismatch::RULE,
    &ofi_plugin_not_loaded::RULE,
    &one_gpu_of_many::RULE,
    &plugin_too_old::RULE,
    &protocol_forced_simple::RULE,
];

/// The AWS instance type that a log, a manifest, a note or a flag names, and the line that does.
pub(crate) fn machine(log: &Log) -> Option<(&'static Instance, Option<&Quote>)> {
    let known = log.job.model.as_ref()?;
    Some((known.value.instance?, known.quote()))
}

/// The libfabric providers in use, with their lines.
pub(crate) fn providers(log: &Log) -> impl Iterator<Item = (&str, &Quote)> {
    let logged = log
        .case
        .processes
        .iter()
        .flat_map(|it| it.facts.plugin.provider.iter())
        .map(|it| (&*it.value.name, &it.quote));
    let quoted = log.case.sightings_of(&PROVIDER).map(|it| (it.get("name").trim_end_matches('*'), &it.quote));
    logged.chain(quoted)
}

/// That the machine has EFA or that EFA should be used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignOfEfa<'a> {
    /// The line that shows it; none where a flag says so.
    pub(crate) quote: Option<&'a Quote>,
}

/// What shows that the job should use EFA.
pub(crate) fn sign_of_efa(log: &Log) -> Option<SignOfEfa<'_>> {
    if let Some(model) = log.job.model() {
        return model.efa().then(|| SignOfEfa { quote: log.job.model.as_ref().and_then(job::Known::quote) });
    }
    line_about_efa(log).map(|it| SignOfEfa { quote: Some(it) })
}

fn line_about_efa(log: &Log) -> Option<&Quote> {
    if let Some((_, quote)) = providers(log).find(|it| it.0 == "efa") {
        return Some(quote);
    }
    if let Some(seen) = log.case.sightings_of(&EFA_SETTING).next() {
        return Some(&seen.quote);
    }
    if let Some(seen) = log.case.manifests.iter().find_map(|it| it.efa.first()) {
        return Some(&seen.quote);
    }
    let family = log
        .case
        .sightings_of(&FAMILY_NAMED)
        .find(|it| it.get("types").split([',', ' ', '(']).any(always_has_efa));
    family.map(|it| &it.quote)
}

/// Whether every size of a family has EFA: `P5`, `p4d`.
fn always_has_efa(family: &str) -> bool {
    let family = family.trim().to_ascii_lowercase();
    let mut sizes =
        instance::all().iter().filter(|it| it.name.split('.').next() == Some(&*family)).peekable();
    sizes.peek().is_some() && sizes.all(Instance::efa)
}

/// The network that a connection uses, if it leaves the host.
fn network_of(link: &Link) -> Option<&str> {
    Some(link.transport()?.network()?.0)
}

/// Whether some rank got as far as using EFA.
pub(crate) fn efa_in_use(log: &Log) -> bool {
    let libfabric = |name: &str| PLUGIN.gives(name);
    log.case.networks().any(|it| libfabric(&it.value))
        || log.case.sightings_of(&NETWORK_QUOTED).any(|it| libfabric(it.get("name")))
        || log.case.links().any(|it| network_of(it.link).is_some_and(libfabric))
}

/// The line that shows that a rank chose TCP sockets.
pub(crate) fn socket_chosen(log: &Log) -> Option<&Quote> {
    let chosen = log.case.networks().find(|it| is_socket(&it.value)).map(|it| &it.quote);
    let quoted =
        || log.case.sightings_of(&NETWORK_QUOTED).find(|it| is_socket(it.get("name"))).map(|it| &it.quote);
    let link =
        || log.case.links().find(|it| network_of(it.link).is_some_and(is_socket)).map(|it| &it.link.quote);
    chosen.or_else(quoted).or_else(link).or_else(|| {
        // NCCL sets up its sockets last: where it did, and no other network is named, they are used.
        let set_up = log.case.sightings_of(&SOCKET_QUOTED).next()?;
        (log.case.networks().next().is_none() && !efa_in_use(log)).then_some(&set_up.quote)
    })
}

/// Whether any line comes from the plugin.
pub(crate) fn plugin_logged(log: &Log) -> bool {
    log.case
        .processes
        .iter()
        .any(|it| !it.facts.plugin.release.is_empty() || !it.facts.plugin.provider.is_empty())
        || log.case.sightings.iter().any(|it| it.quote.text.contains(PLUGIN.prefix))
}

/// The line that shows that a container was started without EFA devices.
pub(crate) fn container_without_devices(log: &Log) -> Option<&Quote> {
    let mut run = log.case.sightings_of(&DOCKER_RUN).map(|it| &it.quote);
    let given = |it: &&Quote| ["/dev/infiniband", "--privileged"].iter().any(|word| it.text.contains(word));
    if let Some(quote) = run.find(|it| !given(it)) {
        return Some(quote);
    }
    let requested = log.case.manifests.iter().any(|it| !it.efa.is_empty());
    let pod = log.case.manifests.iter().find(|it| !it.gpus.is_empty() && it.efa.is_empty())?;
    (!requested).then(|| pod.gpus.first().map(|it| &it.quote)).flatten()
}

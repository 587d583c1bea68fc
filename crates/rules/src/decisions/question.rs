//! What is predicted for a communicator: its machine, layout, release and variables, as its logs and flags have them.

use std::collections::BTreeSet;

use evidence::decided::system_lines;
use evidence::plugin::aws_ofi;
use evidence::topology::{self, Kind};
use fabric::{Layout, Machine, Placement, Settings, Version};
use job::machine::{self, Resolved};
use job::{Description, Job, Source};
use nccl::{Abilities, Decisions, NEWEST_PLUGIN, Prediction};

use super::machine::{complete_nics, join, number_by_device, number_by_rank, with_gpus};
use super::places::Places;
use super::{Given, LoggedCommunicator, Logs};

/// Variables whose effect is in the system that NCCL printed.
const IN_THE_SYSTEM: [&str; 9] = [
    "NCCL_HOSTID",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_MERGE_VFS",
    "NCCL_NET_FORCE_MERGE",
    "NCCL_NET_MERGE_LEVEL",
    "NCCL_NET_PLUGIN",
    "NCCL_SOCKET_IFNAME",
    "NCCL_TOPO_FILE",
];

/// What is predicted for.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// The machine as NCCL sees it, with the GPUs of the communicator alone.
    pub(crate) machine: Machine,
    /// Machines of other nodes that differ.
    pub(crate) others: Vec<Machine>,
    pub(crate) layout: Layout,
    /// Where each rank is, if the layout does not tell it; it counts instead.
    pub(crate) placement: Option<Placement>,
    /// The names of the nodes, where they are placed by the lines of their ranks.
    pub(crate) hosts: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) abilities: Abilities,
    pub(crate) plugin: Version,
    /// The settings are all that was in effect.
    pub(crate) complete: bool,
    /// NCCL itself printed the machine.
    pub(crate) printed: bool,
    /// The generation of the GPUs is not told, or deduced from their links.
    pub(super) no_generation: bool,
    /// Where the machine comes from.
    pub(crate) source: String,
    /// What was assumed.
    pub(super) notes: Vec<String>,
}

/// The machine of a communicator.
struct Found {
    resolved: Resolved,
    source: String,
    /// NCCL itself printed it: plugins have joined NICs, and only the GPUs of the communicator are in it.
    printed: bool,
    /// All ranks printed the same, or parts of one machine.
    alike: bool,
    /// How many machines one NVLink domain joins.
    domain: u32,
}

impl Question {
    /// What to predict, or what is missing for it.
    pub(crate) fn new(
        logs: &Logs<'_>,
        communicator: &LoggedCommunicator,
        given: &Given,
    ) -> Result<Self, Vec<String>> {
        let mut missing = Vec::new();
        let version = logs.version(given);
        if version.is_none() {
            missing.push("the release of NCCL (`NCCL version`); or give it with --nccl".to_owned());
        }
        let found = match found(logs, communicator, given) {
            Ok(it) => Some(it),
            Err(reason) => {
                missing.push(reason);
                None
            }
        };
        let (Some(version), Some(mut found)) = (version, found) else { return Err(missing) };
        let mut notes = Vec::new();
        if let Some(model) = given.gpu {
            found.resolved.set_gpu_model(model);
        }
        let no_generation = found.resolved.machine.value.gpus.iter().any(|it| it.compute.is_none());
        found.resolved.deduce_generation();
        let mut machine =
            if found.printed { found.resolved.machine.value.clone() } else { found.resolved.seen_by_nccl() };
        if found.printed {
            number_by_rank(&mut machine);
            number_by_device(&mut machine, &communicator.devices());
            if let Some(model) = &logs.job.model {
                machine.name = Some(model.value.name.into());
            }
        } else if given.layout.pods.is_none() {
            machine = used(communicator, &machine, &mut notes);
        }
        let mut variables = logs.job.settings.clone();
        // NCCL prints what it reads; a manifest or a note beside the log may be of another job.
        if is_complete(logs.job) {
            variables.variables.retain(job::Variable::is_logged);
        }
        for (name, value) in &given.environment {
            variables.add_flag("--env", name, value);
        }
        let mut settings = variables.effective(Some(version));
        if let Some(network) = communicator.first(|it| it.network.clone()) {
            settings = settings.with("NCCL_NET", &network);
        }
        if found.printed {
            settings.environment.retain(|name, _| !IN_THE_SYSTEM.contains(&name.as_str()));
        }
        let layout = layout(communicator, given, &machine, &found, &settings).filter(|_| found.alike);
        let (layout, places) = match layout {
            Some(it) => (it, Places::numbered(&machine, &it).filter(|_| found.printed)),
            None => {
                let places = places(logs, communicator, given, &found, &machine);
                let places = places.ok_or_else(|| vec![no_places(&found).to_owned()])?;
                (Layout::new(1, 1).on(u32::try_from(places.placement.nodes.len()).unwrap_or(1)), Some(places))
            }
        };
        let (mut others, mut placement, mut hosts) = (Vec::new(), None, Vec::new());
        if let Some(mut it) = places {
            others = it.machines.split_off(1);
            machine = it.machines.remove(0);
            (placement, hosts) = (Some(it.placement), it.hosts);
        }
        let latency = communicator.first(|it| it.latency);
        for nic in std::iter::once(&mut machine).chain(&mut others).flat_map(|it| &mut it.nics) {
            nic.latency = nic.latency.or(latency);
        }
        // GPUDirect was used with these NICs.
        if others.is_empty() {
            let used: BTreeSet<u32> =
                communicator.members.iter().flat_map(|it| &it.decided.direct).copied().collect();
            for nic in machine.nics.iter_mut().filter(|it| used.contains(&it.index)) {
                nic.gpudirect = nic.gpudirect.or(Some(true));
            }
        }
        let multicast = communicator.first(|it| it.multicast);
        let collnet = communicator.members.iter().any(|it| it.decided.collnet);
        Ok(Self {
            machine,
            others,
            layout,
            placement,
            hosts,
            settings,
            abilities: Abilities { multicast, domain: found.domain, collnet, ..Abilities::default() },
            plugin: given.plugin.unwrap_or_else(|| plugin(logs.job)),
            complete: is_complete(logs.job),
            printed: found.printed,
            no_generation,
            source: found.source,
            notes,
        })
    }

    /// Whether all nodes are alike: the layout tells where the ranks are.
    pub(crate) fn is_alike(&self) -> bool {
        let ranks = self.placement.as_ref().map(|it| it.ranks.len() as u64);
        self.others.is_empty() && ranks.is_none_or(|it| it == self.layout.ranks())
    }

    /// Predicts.
    pub(crate) fn predict(&self) -> Result<Prediction, String> {
        let mut job = nccl::Job::new(&self.machine, &self.layout, &self.settings);
        if let Some(placement) = &self.placement {
            job = job.placed(placement, &self.others);
        }
        (job.abilities, job.plugin) = (self.abilities, Some(self.plugin));
        job.settings_are_complete = self.complete;
        Prediction::new(&job).map_err(|error| error.to_string())
    }
}

/// The release of aws-ofi-nccl.
fn plugin(job: &Job) -> Version {
    job.releases.of_plugin(&aws_ofi::PLUGIN).map_or(NEWEST_PLUGIN, |it| it.value)
}

/// Whether the log has the variables that NCCL read.
fn is_complete(job: &Job) -> bool {
    job.settings.variables.iter().any(job::Variable::is_logged)
}

fn found(logs: &Logs<'_>, communicator: &LoggedCommunicator, given: &Given) -> Result<Found, String> {
    let printed = printed(logs, communicator, given);
    if let Some(description) = &given.described {
        let Description { machine: mut resolved, source, .. } = description.clone();
        if let Some(found) = &printed {
            complete_nics(&mut resolved.machine.value, &found.resolved.machine.value);
        }
        let domain = domain(communicator);
        return Ok(Found { resolved, source, printed: false, alike: true, domain });
    }
    if let Some(found) = printed {
        return Ok(found);
    }
    let named = given.instance.map(Description::of_flag).or_else(|| {
        let model = logs.job.model.as_ref()?;
        let found = machine::of_model(model.value, model.source.clone());
        Some(Description::new(found, format!("the catalogue: the log names {}", model.value.name)))
    });
    let Some(Description { machine: resolved, source, .. }) = named else {
        return Err(
            "the machine (`=== System`, subsystem GRAPH); or give it with --xml FILE or --instance NAME"
                .to_owned(),
        );
    };
    if communicator.mnnvl() {
        return Err("the system of an NVLink domain (`=== System`, subsystem GRAPH): MNNVL 1".to_owned());
    }
    Ok(Found { resolved, source, printed: false, alike: true, domain: 0 })
}

/// The machine that NCCL printed; `None` if it printed none.
fn printed(logs: &Logs<'_>, communicator: &LoggedCommunicator, given: &Given) -> Option<Found> {
    let mut known: Vec<&str> = Vec::new();
    let mut first: Option<Found> = None;
    for member in communicator.members.iter().filter(|it| it.decided.system.is_some()) {
        let one = &member.decided;
        // In an NVLink domain all machines are in one system, and the last domain may have fewer.
        if known.contains(&one.tree.as_str()) || (first.is_some() && communicator.mnnvl()) {
            continue;
        }
        let text = system_lines(logs.text(&member.file)?, one);
        let Some(topology) = topology::read(&text).ok().filter(|it| it.kind == Kind::Log) else { continue };
        if topology.machine.gpus.is_empty() {
            continue;
        }
        let line = one.system.unwrap_or(topology.line);
        let source = Source::Topology { file: member.file.as_str().into(), line, kind: Kind::Log };
        known.push(&one.tree);
        match &mut first {
            None => {
                let name = source.to_string();
                let resolved = machine::of_topology(&topology, source, given.instance);
                let domain = domain(communicator);
                first = Some(Found { resolved, source: name, printed: true, alike: true, domain });
            }
            // NCCL counts ranks of one machine as several nodes, and each prints its own GPUs only.
            Some(found) => {
                let whole = topology.machine.gpus.len() == one.gpus.len();
                if !whole || !join(&mut found.resolved.machine.value, &topology.machine) {
                    found.alike = false;
                    break;
                }
            }
        }
    }
    first
}

/// How many machines the system of an NVLink domain joins: `GPU/1-201c0` is a GPU of the second.
fn domain(communicator: &LoggedCommunicator) -> u32 {
    if !communicator.mnnvl() {
        return 0;
    }
    let hosts = |gpus: &[String]| {
        let all: BTreeSet<&str> = gpus.iter().filter_map(|it| Some(it.split_once('-')?.0)).collect();
        u32::try_from(all.len()).unwrap_or(0)
    };
    communicator.members.iter().map(|it| hosts(&it.decided.gpus)).max().unwrap_or(0)
}

/// The machine with the GPUs that the ranks of a node use.
fn used(communicator: &LoggedCommunicator, machine: &Machine, notes: &mut Vec<String>) -> Machine {
    let whole = machine.gpus.len();
    let Some(local) = communicator.local_ranks().and_then(|it| usize::try_from(it).ok()) else {
        return machine.clone();
    };
    if local >= whole || local == 0 {
        return machine.clone();
    }
    if let Some(node) = communicator.whole_node() {
        let by_bus = |bus: u64| machine.gpus.iter().position(|it| it.bus.is_some_and(|it| it.0 == bus));
        let by_number = |number: u32| machine.gpus.iter().position(|it| it.index == number);
        let buses: Option<Vec<usize>> = node.iter().map(|it| by_bus(it.bus?)).collect();
        let kept = buses.or_else(|| node.iter().map(|it| by_number(it.device?)).collect());
        let several = |it: &Vec<usize>| it.iter().collect::<BTreeSet<_>>().len() == it.len();
        if let Some(kept) = kept.filter(several) {
            return with_gpus(machine, &kept);
        }
    }
    notes.push(format!("Assumed: the ranks of a node use the first {local} of its {whole} GPUs."));
    machine.clone()
}

/// Where each rank is, where nodes are not alike.
fn places(
    logs: &Logs<'_>,
    communicator: &LoggedCommunicator,
    given: &Given,
    found: &Found,
    machine: &Machine,
) -> Option<Places> {
    if communicator.mnnvl() || given.layout.pods.is_some() || given.layout.nodes.is_some() {
        return None;
    }
    if !found.printed {
        return Places::on(machine, communicator);
    }
    Places::printed(logs, communicator, |topology| {
        let source = Source::Topology { file: "".into(), line: topology.line, kind: Kind::Log };
        let mut resolved = machine::of_topology(topology, source, given.instance);
        if let Some(model) = given.gpu {
            resolved.set_gpu_model(model);
        }
        resolved.deduce_generation();
        let mut system = Machine { name: machine.name.clone(), ..resolved.machine.value };
        number_by_device(&mut system, &communicator.devices());
        system
    })
}

fn no_places(found: &Found) -> &'static str {
    if found.alike {
        "where each rank is: the lines of all ranks (`Init START`, `nNodes`, `localRanks`, `=== System`); or give --nodes and --pods"
    } else {
        "where each rank is: systems (`=== System`) differ, and not every rank printed one; or give the machine with --instance NAME"
    }
}

/// Where the ranks are. Of NCCL's own tree the GPUs are those of the communicator.
fn layout(
    communicator: &LoggedCommunicator,
    given: &Given,
    machine: &Machine,
    found: &Found,
    settings: &Settings,
) -> Option<Layout> {
    let ranks = communicator.ranks?;
    let flags = &given.layout;
    if let Some(pods) = flags.pods {
        let each = u32::try_from(pods.ranks_per_node()).ok().filter(|it| *it > 0)?;
        let layout = Layout {
            nics_per_pod: flags.nics_per_pod,
            same_host: flags.same_host,
            shared_memory: flags.shared_memory,
            ..pods.on(flags.nodes.unwrap_or(ranks / each))
        };
        return (layout.ranks() == u64::from(ranks)).then_some(layout);
    }
    if !communicator.is_in_order() {
        return None;
    }
    let here = u32::try_from(machine.gpus.len()).ok().filter(|it| *it > 0)?;
    if found.domain > 1 {
        return ranks.is_multiple_of(here).then(|| Layout::new(1, here).on(ranks / here));
    }
    let (nodes, local) = (communicator.first(|it| it.nodes), communicator.local_ranks());
    // 2.18 and 2.19 do not count nodes; the system of a rank has the GPUs of its node.
    let own = communicator.first(|it| u32::try_from(it.gpus.len()).ok().filter(|it| *it > 0));
    let local = local.or(own.filter(|_| found.printed && nodes.is_none()));
    let nodes =
        nodes.or_else(|| ranks.checked_div(local.filter(|it| found.printed && ranks.is_multiple_of(*it))?));
    // NCCL may count the GPUs of one machine as several nodes, because of their paths or because they are in different pods.
    if found.printed && flags.nodes.is_none() {
        if !ranks.is_multiple_of(here) || (local == Some(here) && communicator.is_uneven()) {
            return None;
        }
        let one = Layout::new(1, here).on(ranks / here);
        let pods = local.filter(|it| *it > 0 && *it < here && here.is_multiple_of(*it));
        let pods = pods.map(|it| Layout::new(here / it, it).on(ranks / here));
        let counted = |it: &Layout| Decisions::new(machine, settings, it).ok().map(|it| it.n_nodes());
        let fits = |it: &Layout| nodes.is_none() || counted(it) == nodes.map(u64::from);
        return if fits(&one) { Some(one) } else { pods.filter(fits).or(Some(one)) };
    }
    if local.is_none() && communicator.first(|it| it.local_ranks).is_some() {
        return None;
    }
    let (nodes, local) = match (flags.nodes.or(nodes), local) {
        (Some(nodes), Some(local)) => (nodes, local),
        (Some(nodes), None) => (nodes, ranks.checked_div(nodes)?),
        (None, Some(local)) => (ranks.checked_div(local)?, local),
        (None, None) => return None,
    };
    (nodes.checked_mul(local) == Some(ranks)).then(|| Layout::new(1, local).on(nodes))
}

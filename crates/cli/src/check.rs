//! `plumb topo --check`: what a log says NCCL decided, compared with what is predicted.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use evidence::decided::{Decided, DecidedKind, decided};
use evidence::plugin::aws_ofi;
use evidence::topology::{self, Kind};
use fabric::machine::{Bridge, NvEnd, NvLink, Place};
use fabric::settings::Network;
use fabric::{Layout, Machine, Settings, Version};
use job::{Description, Job, machine};
use nccl::{Abilities, NEWEST_PLUGIN, Prediction};
use report::Style;
use report::decide::{Check, CheckParts, Compared, Logged, Verdict};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, topo};

/// Variables whose effect is in the system that NCCL printed.
const IN_THE_SYSTEM: [&str; 8] = [
    "NCCL_HOSTID",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_MERGE_VFS",
    "NCCL_NET_MERGE_LEVEL",
    "NCCL_NET_PLUGIN",
    "NCCL_SOCKET_IFNAME",
    "NCCL_TOPO_FILE",
];

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let check = match Logs::read(args).and_then(|it| it.check(args)) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        ListFormat::Json => report::decide::check_json(&check, out)?,
        ListFormat::Text => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            report::decide::check_text(&check, style, out)?;
        }
    }
    Ok(match check.verdict {
        Verdict::Same => CLEAN,
        Verdict::Different => FINDINGS,
        Verdict::Undecided => UNDECIDED,
    })
}

/// The logs of one job.
struct Logs {
    texts: Vec<(String, Vec<u8>)>,
    job: Job,
    /// What each file says NCCL decided.
    decided: Vec<(String, Decided)>,
    /// Communicators that are not those of all ranks.
    others: usize,
}

impl Logs {
    fn read(args: &args::Topo) -> Result<Self, String> {
        let mut texts = Vec::new();
        for path in args.check.iter().flat_map(|it| files(it)) {
            let name = input::name(&path);
            let text = topo::contents(&path).map_err(|error| format!("{name}: {error}"))?;
            texts.push((name, text));
        }
        let case = evidence::read_texts(texts.iter().map(|it| (it.0.as_str(), it.1.as_slice())));
        let of_file = |it: &(String, Vec<u8>)| {
            decided(&it.1).into_iter().map(|one| (it.0.clone(), one)).collect::<Vec<_>>()
        };
        let all: Vec<(String, Decided)> =
            texts.iter().flat_map(of_file).filter(|it| it.1.rank.is_some()).collect();
        let found = all.len();
        // The communicator of all ranks is the largest; of several of a rank the first counts.
        let most = all.iter().filter_map(|it| it.1.ranks).max();
        let mut kept: Vec<(String, Decided)> = Vec::new();
        for one in all.into_iter().filter(|it| it.1.ranks == most) {
            if !kept.iter().any(|it| it.1.rank == one.1.rank) {
                kept.push(one);
            }
        }
        kept.sort_by_key(|it| it.1.rank);
        Ok(Self { job: Job::of_case(&case), texts, others: found - kept.len(), decided: kept })
    }

    /// The first value that a rank prints.
    fn first<T>(&self, of: impl Fn(&Decided) -> Option<T>) -> Option<T> {
        self.decided.iter().find_map(|it| of(&it.1))
    }

    fn check(&self, args: &args::Topo) -> Result<Check, String> {
        let mut parts = CheckParts { ranks: self.first(|it| it.ranks), ..CheckParts::default() };
        if self.decided.is_empty() {
            parts
                .missing
                .push("the lines about channels (`Trees`, `coll channels`): subsystem INIT".to_owned());
        }
        parts.nccl = args.nccl.or(self.job.releases.nccl.as_ref().map(|it| it.value));
        if parts.nccl.is_none() {
            parts.missing.push("the release of NCCL (`NCCL version`); or give it with --nccl".to_owned());
        }
        let described = self.machine(args)?;
        if described.is_none() {
            let what = if self.decided.iter().any(|it| it.1.system.is_some()) {
                "one machine that all ranks have: their systems (`=== System`) differ; or give it with --instance NAME"
            } else {
                "the machine (`=== System`, subsystem GRAPH); or give it with --xml FILE or --instance NAME"
            };
            parts.missing.push(what.to_owned());
        }
        if let (Some(version), Some((description, printed)), false) =
            (parts.nccl, described, self.decided.is_empty())
        {
            parts.source = Some(description.source.clone());
            let layout = self.layout(args, &description.machine.machine.value, printed);
            match layout.filter(|_| !self.mnnvl()) {
                None if self.mnnvl() => {}
                Some(layout) => {
                    let asked = Asked::new(self, args, version, &description, printed, layout);
                    let (compared, notes) = asked.best(self)?;
                    parts.notes.extend(notes);
                    parts.compared = Some(compared);
                }
                None => parts.missing.push(
                    "how ranks lie on nodes (`nNodes`, `localRanks`), equally many on each; or give --nodes and --pods"
                        .to_owned(),
                ),
            }
        }
        parts.notes.extend(self.notes(parts.compared.is_some()));
        Ok(Check::new(parts))
    }

    /// The machine, and whether NCCL itself printed it.
    fn machine(&self, args: &args::Topo) -> Result<Option<(Description, bool)>, String> {
        if let Some(path) = &args.xml {
            let name = input::name(path);
            let text = topo::contents(path).map_err(|error| format!("{name}: {error}"))?;
            return Ok(Some((Description::of_text(&name, &text, args.instance, None)?, false)));
        }
        for (name, text) in &self.texts {
            if topology::read(text).is_ok_and(|it| it.kind == Kind::Log && !it.machine.gpus.is_empty()) {
                let mut found = Description::of_text(name, text, args.instance, None)?;
                return Ok(self.join_others(&mut found.machine.machine.value).then_some((found, true)));
            }
        }
        let named = args.instance.map(Description::of_flag);
        Ok(named
            .or_else(|| {
                let model = self.job.model.as_ref()?;
                let found = machine::of_model(model.value, model.source.clone());
                Some(Description::new(found, format!("the catalogue: the log names {}", model.value.name)))
            })
            .map(|it| (it, false)))
    }

    /// Adds the GPUs of ranks that NCCL counts as another node of the same machine: each node prints its own GPUs only. Whether all
    /// ranks are on such machines.
    fn join_others(&self, machine: &mut Machine) -> bool {
        let first = self.first(|it| Some(it.gpus.clone()).filter(|it| !it.is_empty())).unwrap_or_default();
        let mut known = vec![first];
        for (file, one) in &self.decided {
            let Some(system) = one.system.filter(|_| !known.contains(&one.gpus)) else { continue };
            let Some((_, text)) = self.texts.iter().find(|it| it.0 == *file) else { return false };
            let skip = usize::try_from(system).unwrap_or(usize::MAX).saturating_sub(1);
            let rest: Vec<u8> =
                text.split_inclusive(|it| *it == b'\n').skip(skip).flatten().copied().collect();
            let other = topology::read(&rest).ok().map(|it| it.machine);
            if !other.is_some_and(|it| it.gpus.len() == one.gpus.len() && join(machine, &it)) {
                return false;
            }
            known.push(one.gpus.clone());
        }
        true
    }

    /// Where the ranks are. Of NCCL's own tree the GPUs are those of the job.
    fn layout(&self, args: &args::Topo, machine: &Machine, printed: bool) -> Option<Layout> {
        let ranks = self.first(|it| it.ranks)?;
        if let Some((pods, gpus)) = args.pods {
            let each = pods.checked_mul(gpus).filter(|it| *it > 0)?;
            let nodes = args.nodes.unwrap_or(ranks / each);
            let layout = Layout { nics_per_pod: args.nics_per_pod, ..Layout::new(pods, gpus).on(nodes) };
            let layout = Layout { same_host: args.same_host, shared_memory: args.shared_shm, ..layout };
            return (layout.ranks() == u64::from(ranks)).then_some(layout);
        }
        // NCCL may count the GPUs of one host as several nodes: that is for the prediction to find out.
        if printed && args.nodes.is_none() {
            let local =
                u32::try_from(machine.gpus.len()).ok().filter(|it| *it > 0 && ranks.is_multiple_of(*it))?;
            return Some(Layout::new(1, local).on(ranks / local));
        }
        let local = self.first(|it| it.local_ranks);
        let nodes = args.nodes.or_else(|| self.first(|it| it.nodes));
        let (nodes, local) = match (nodes, local) {
            (Some(nodes), Some(local)) => (nodes, local),
            (Some(nodes), None) => (nodes, ranks.checked_div(nodes)?),
            (None, Some(local)) => (ranks.checked_div(local)?, local),
            (None, None) => return None,
        };
        let even = self.decided.iter().all(|it| it.1.local_ranks.is_none_or(|it| it == local));
        (even && nodes.checked_mul(local) == Some(ranks)).then(|| Layout::new(1, local).on(nodes))
    }

    fn mnnvl(&self) -> bool {
        self.decided.iter().any(|it| it.1.mnnvl)
    }

    fn notes(&self, compared: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let has = |kind| self.decided.iter().any(|it| it.1.lines.iter().any(|it| it.kind == kind));
        if compared {
            if !has(DecidedKind::Graph) {
                notes.push(
                    "The log has no `Pattern` lines (subsystem GRAPH): the search is not compared."
                        .to_owned(),
                );
            }
            if !has(DecidedKind::Table) {
                notes.push(
                    "The log has no tuning table (subsystem TUNING, rank 0): it is not compared.".to_owned(),
                );
            }
        }
        if self.others > 0 && compared {
            notes.push(format!(
                "{} further communicators of fewer ranks, or later ones of these ranks, are not compared.",
                self.others
            ));
        }
        if self.mnnvl() {
            notes.push(
                "The communicator spans several machines of one NVLink domain (MNNVL 1): plumb does not predict those."
                    .to_owned(),
            );
        }
        notes
    }
}

/// What is predicted for.
struct Asked {
    machine: Machine,
    layout: Layout,
    settings: Settings,
    abilities: Abilities,
    plugin: Version,
    complete: bool,
    notes: Vec<String>,
}

impl Asked {
    fn new(
        logs: &Logs,
        args: &args::Topo,
        version: Version,
        description: &Description,
        printed: bool,
        layout: Layout,
    ) -> Self {
        let mut found = description.machine.clone();
        if let Some(model) = args.gpu {
            found.set_gpu_model(model);
        }
        found.deduce_generation();
        // In NCCL's own tree the plugin has joined NICs already.
        let mut machine = if printed { found.machine.value.clone() } else { found.seen_by_nccl() };
        if printed {
            number_by_rank(&mut machine);
            if let Some(model) = &logs.job.model {
                machine.name = Some(model.value.name.into());
            }
        }
        let latency = logs.first(|it| it.latency);
        for nic in &mut machine.nics {
            nic.latency = nic.latency.or(latency);
        }
        let mut variables = logs.job.settings.clone();
        for (name, value) in &args.env {
            variables.add_flag("--env", name, value);
        }
        let mut settings = variables.effective(Some(version));
        if let Some(network) = logs.first(|it| it.network.clone()) {
            settings = settings.with("NCCL_NET", &network);
        }
        if printed {
            settings.environment.retain(|name, _| !IN_THE_SYSTEM.contains(&name.as_str()));
        }
        let known = logs.job.releases.of_plugin(&aws_ofi::PLUGIN).map(|it| it.value);
        Self {
            notes: Vec::new(),
            complete: logs.job.settings.variables.iter().any(job::Variable::is_logged),
            plugin: args.plugin.or(known).unwrap_or(NEWEST_PLUGIN),
            abilities: Abilities { multicast: logs.first(|it| it.multicast), ..Abilities::default() },
            machine,
            layout,
            settings,
        }
    }

    fn predict(&self, machine: &Machine) -> Result<Prediction, String> {
        let mut job = nccl::Job::new(machine, &self.layout, &self.settings);
        (job.abilities, job.plugin) = (self.abilities, Some(self.plugin));
        job.settings_are_complete = self.complete;
        Prediction::new(&job).map_err(|error| error.to_string())
    }

    /// The comparison. What the log does not say is tried: the values that explain most lines count, and a note says so.
    fn best(mut self, logs: &Logs) -> Result<(Compared, Vec<String>), String> {
        let logged: Vec<Logged<'_>> =
            logs.decided.iter().map(|it| Logged { file: &it.0, decided: &it.1 }).collect();
        let first = self.predict(&self.machine)?;
        self.notes.extend(first.unheeded.iter().map(|it| format!("{it}.")));
        let mut best = Compared::new(&logged, &first);
        let mut assumed: Option<String> = None;
        for (machine, assumption) in self.alternatives() {
            if best.different() == 0 {
                break;
            }
            let Ok(prediction) = self.predict(&machine) else { continue };
            let compared = Compared::new(&logged, &prediction);
            if compared.different() < best.different() {
                (best, assumed) = (compared, Some(assumption));
            }
        }
        self.notes.extend(assumed);
        Ok((best, self.notes))
    }

    /// The machine with other values for what the log does not say.
    fn alternatives(&self) -> Vec<(Machine, String)> {
        let no_model = self.machine.gpus.iter().any(|it| it.compute.is_none());
        let computes: &[Option<u32>] =
            if no_model { &[None, Some(70), Some(90), Some(100)] } else { &[None] };
        let plugin = self.settings.network(&self.machine) == Network::Libfabric;
        let no_latency = plugin && self.machine.nics.iter().all(|it| it.latency.is_none());
        let latencies: &[Option<f64>] =
            if no_latency { &[None, Some(0.0), Some(35.0), Some(150.0)] } else { &[None] };
        let mut all = Vec::new();
        for &compute in computes {
            for &latency in latencies {
                let mut machine = self.machine.clone();
                let mut parts = Vec::new();
                if let Some(it) = compute {
                    machine.gpus.iter_mut().for_each(|gpu| gpu.compute = gpu.compute.or(Some(it)));
                    parts.push(format!("GPUs of compute capability {}.{}", it / 10, it % 10));
                }
                if let Some(it) = latency {
                    machine.nics.iter_mut().for_each(|nic| nic.latency = Some(it));
                    parts.push(format!("a network latency of {it} us"));
                }
                if !parts.is_empty() {
                    let note =
                        format!("The log does not say it; its tuning table fits {}.", parts.join(" and "));
                    all.push((machine, note));
                }
            }
        }
        all
    }
}

/// The files of a folder, without what is hidden; otherwise the path itself.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return vec![path.to_owned()] };
    let mut all: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
    all.retain(|it| it.is_file() && !it.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.')));
    all.sort();
    all
}

/// Adds the GPUs of another node of the same machine, which has the same NICs. `false` if it is another machine.
fn join(machine: &mut Machine, other: &Machine) -> bool {
    let nics = |it: &Machine| it.nics.iter().map(|it| (it.index, it.bus)).collect::<Vec<_>>();
    let twice = |gpu: &fabric::machine::Gpu| machine.gpus.iter().any(|it| it.bus == gpu.bus);
    if nics(machine) != nics(other)
        || machine.sockets.len() != other.sockets.len()
        || other.gpus.iter().any(twice)
    {
        return false;
    }
    let mut bridges = Vec::new();
    for bridge in &other.bridges {
        let at = match bridge.at {
            Place::Bridge(it) => bridges.get(it).copied().map_or(bridge.at, Place::Bridge),
            socket @ Place::Socket(_) => socket,
        };
        let known = machine.bridges.iter().position(|it| it.bus.is_some() && it.bus == bridge.bus);
        bridges.push(known.unwrap_or_else(|| {
            machine.bridges.push(Bridge { at, ..bridge.clone() });
            machine.bridges.len() - 1
        }));
    }
    let first = machine.gpus.len();
    for gpu in &other.gpus {
        let at = match gpu.at {
            Place::Bridge(it) => bridges.get(it).copied().map_or(gpu.at, Place::Bridge),
            socket @ Place::Socket(_) => socket,
        };
        let index = gpu.index.saturating_add(u32::try_from(first).unwrap_or(0));
        machine.gpus.push(fabric::machine::Gpu { at, index, ..gpu.clone() });
    }
    for link in &other.nvlinks {
        let to = match link.to {
            NvEnd::Gpu(it) => NvEnd::Gpu(it + first),
            end => end,
        };
        machine.nvlinks.push(NvLink { from: link.from + first, to, ..*link });
    }
    true
}

/// Numbers GPUs by their ranks, which need not follow the buses.
fn number_by_rank(machine: &mut Machine) {
    let Some(ranks) = machine.gpus.iter().map(|it| it.rank).collect::<Option<Vec<u32>>>() else { return };
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != ranks.len() {
        return;
    }
    for (gpu, rank) in machine.gpus.iter_mut().zip(ranks) {
        let place = sorted.iter().position(|it| *it == rank).unwrap_or(0);
        gpu.index = u32::try_from(place).unwrap_or(0);
    }
}

//! Which machine this is.
//!
//! ```text
//! a name in a log, manifest or note, --instance -> catalogue              \
//! nvidia-smi topo -m, topology XML, GRAPH lines -> Topology (+ catalogue)  > Resolved
//! cluster file, live node                                                 /
//! ```
//!
//! A case that names a machine of the catalogue has that machine; otherwise it has the one that its first topology XML or
//! matrix describes. A file that is given for its description has the machine it describes, see [`of_file`]. Names and
//! descriptions that disagree are kept as conflicts.

mod complete;
mod stated;

use evidence::signals::efa::{MACHINE_NAMED, PLATFORM_QUOTED};
use evidence::signals::notes::INSTANCE_TYPE;
use evidence::topology::{self, Topology};
use evidence::{Case, Quote};
use fabric::Machine;
use fabric::catalogue::{self, Inside, Model};
use fabric::gpu::{self, GpuModel, NvLinkBy};
use fabric::instance;
use fabric::machine::{NvEnd, NvLink, PciLink};

use crate::known::{Conflict, Known, Source};
use complete::{complete, forget_what_is_known};

/// A machine, with notes and conflicts of its sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The machine with every NIC listed separately.
    pub machine: Known<Machine>,
    /// The catalogue's entry, where the machine has one.
    pub model: Option<&'static Model>,
    /// Whether it is known which device is below which switch.
    pub wired: bool,
    /// What is unusual about the source, in sentences.
    pub notes: Vec<String>,
    /// Sources that disagree.
    pub conflicts: Vec<Conflict>,
}

impl Resolved {
    /// `p5.48xlarge`, or `this machine`.
    pub fn title(&self) -> &str {
        self.machine.value.name.as_deref().unwrap_or("this machine")
    }

    /// The machine as NCCL sees it, see [`seen_by_nccl`].
    pub fn seen_by_nccl(&self) -> Machine {
        seen_by_nccl(&self.machine.value)
    }

    /// Gives every GPU this model, whatever its source said.
    pub fn set_gpu_model(&mut self, model: &GpuModel) {
        let link = link_of(model);
        let machine = &mut self.machine.value;
        for gpu in &mut machine.gpus {
            gpu.model = Some(model.name.as_str().into());
            gpu.compute = Some(model.compute);
            gpu.link = gpu.link.or(link);
        }
        if let Some(link) = link
            && like_the_gpus(machine, link)
        {
            self.notes.push(format!(
                "PCIe links of switches and NICs that the source does not show are taken to be as fast as those of {}.",
                model.family
            ));
        }
        forget_what_is_known(machine);
        if !machine.hidden.nvlink || machine.hidden.wiring {
            return;
        }
        match model.nvlink {
            None => {
                machine.hidden.nvlink = false;
                self.notes.push(format!("The source does not show NVLink; {} has none.", model.name));
            }
            Some(port) if port.by == NvLinkBy::Switch && machine.gpus.len() > 1 => {
                machine.hidden.nvlink = false;
                let all = 0..machine.gpus.len();
                machine.nvlinks =
                    all.map(|from| NvLink { from, to: NvEnd::Switch, count: port.links }).collect();
                self.notes.push(format!(
                    "The source does not show NVLink: taken as {} links of each {} to NVSwitches.",
                    port.links, model.family
                ));
            }
            Some(_) if machine.gpus.len() == 1 => machine.hidden.nvlink = false,
            Some(_) => {
                machine.unknown.push(format!("Which {} have an NVLink bridge between them.", model.name));
            }
        }
    }

    /// Deduces the generation of GPUs of unknown model from their number of NVLinks, where only one generation has that many.
    pub fn deduce_generation(&mut self) {
        let machine = &mut self.machine.value;
        if machine.gpus.iter().any(|it| it.compute.is_some()) {
            return;
        }
        let Some(links) = machine.nvlinks.iter().find(|it| it.to == NvEnd::Switch).map(|it| it.count) else {
            return;
        };
        let fits =
            |it: &&GpuModel| it.nvlink.is_some_and(|port| port.links == links && port.by == NvLinkBy::Switch);
        let models: Vec<&GpuModel> = gpu::all().iter().filter(fits).collect();
        let Some(first) = models.first() else { return };
        if models.iter().all(|it| it.compute == first.compute) {
            for gpu in &mut machine.gpus {
                gpu.compute = Some(first.compute);
            }
            self.notes.push(format!("{links} NVLinks to a switch: the GPUs are {}.", first.family));
        } else {
            let mut families: Vec<&str> = models.iter().map(|it| it.family.as_str()).collect();
            families.dedup();
            machine.unknown.push(format!(
                "The model of the GPUs is not known: {links} NVLinks match {}. Set it with --gpu {}.",
                families.join(", "),
                first.family
            ));
        }
    }
}

/// The machine as NCCL sees it: NICs that aws-ofi-nccl joins are one.
pub fn seen_by_nccl(machine: &Machine) -> Machine {
    let model = machine.name.as_deref().and_then(catalogue::find);
    if model.is_some_and(Model::groups_nics) { machine.grouped() } else { machine.clone() }
}

/// The machine of a case. `None`: nothing names or describes one that is known.
pub fn of_case(case: &Case) -> Option<Resolved> {
    let described = topology::of_case(case);
    let Some(named) = named_in(case) else {
        // Where NVLink does not show, nothing follows for the speed of the machine.
        let described = described.filter(|it| !it.machine.hidden.nvlink)?;
        let source = source_of(case, &described);
        return Some(of_topology(&described, source, None));
    };
    let mut resolved = of_model(named.value, named.source);
    resolved.conflicts.extend(differing_names(&names(case)));
    if let Some(described) = described {
        let other = Known::new(described.machine.clone(), source_of(case, &described));
        resolved.conflicts.extend(contradictions(&resolved.machine, &other));
    }
    Some(resolved)
}

/// What a case says otherwise about a machine that a flag names.
pub(crate) fn conflicts_with(case: &Case, given: &Resolved) -> Vec<Conflict> {
    let mut found = Vec::new();
    if let (Some(model), Some(named)) = (given.model, named_in(case)) {
        found.extend(differing_names(&[Known::new(model, given.machine.source.clone()), named]));
    }
    if let Some(described) = topology::of_case(case) {
        let other = Known::new(described.machine.clone(), source_of(case, &described));
        found.extend(contradictions(&given.machine, &other));
    }
    found
}

/// The machine of one file: what it describes, completed by `instance`; otherwise `instance`; otherwise what the file names.
///
/// Unlike in [`of_case`] a description counts before a name: the question is about that description. A name in the file that
/// contradicts it is a conflict; only the names that [`stated_in`] finds count. `None`: nothing names or describes a machine that
/// is known.
pub fn of_file(
    case: &Case,
    text: &[u8],
    described: Option<Known<&Topology>>,
    instance: Option<&'static Model>,
) -> Option<Resolved> {
    let named = stated_in(case, text);
    let mut resolved = match (described, instance, &named) {
        (Some(described), ..) => of_topology(described.value, described.source, instance),
        (None, Some(model), _) => of_model(model, Source::Flag("--instance")),
        (None, None, Some(named)) => of_model(named.value, named.source.clone()),
        (None, None, None) => return None,
    };
    let Some(named) = named else { return Some(resolved) };
    if let Some(model) = instance {
        let flag = Known::new(model, Source::Flag("--instance"));
        resolved.conflicts.extend(differing_names(&[flag, named]));
    } else {
        let catalogued = named.map(Model::machine);
        resolved.conflicts.extend(contradictions(&resolved.machine, &catalogued));
        resolved.conflicts.extend(differing_names(&names(case)));
    }
    Some(resolved)
}

/// The machine that a file says it is of: its plugin, its manifests, the metadata of a cloud, the labels of a node. A text that
/// merely mentions a machine says nothing, and a Markdown document only what a log in it says.
pub fn stated_in(case: &Case, text: &[u8]) -> Option<Known<&'static Model>> {
    if stated::is_document(text) {
        let plugin = case.processes.iter().find_map(|it| it.facts.plugin.instance.first());
        let plugin = plugin
            .and_then(|it| Some(Known::new(catalogue::find(&it.value)?, Source::Line(it.quote.clone()))));
        return plugin.or_else(|| by_platform(case));
    }
    let named = names(case).into_iter().next();
    named.or_else(|| by_platform(case)).or_else(|| stated::read(text))
}

/// The machine that a comment of NCCL's XML names.
pub(crate) fn named_in_comment(text: &[u8]) -> Option<&'static Model> {
    stated::in_comment(text)
}

/// A platform as the plugin names it, in a line without its prefix.
fn by_platform(case: &Case) -> Option<Known<&'static Model>> {
    let seen = case.sightings_of(&PLATFORM_QUOTED).next()?;
    let instance = instance::find_by_plugin_name(seen.get("type"))?;
    Some(Known::new(catalogue::find(&instance.name)?, Source::Line(seen.quote.clone())))
}

/// The machine of the catalogue that a case names, and the line that does.
pub fn named_in(case: &Case) -> Option<Known<&'static Model>> {
    if let Some(named) = names(case).into_iter().next().or_else(|| by_platform(case)) {
        return Some(named);
    }
    let known = |model, quote: &Quote| Known::new(model, Source::Line(quote.clone()));
    let prose = case.sightings_of(&MACHINE_NAMED).next()?;
    // Of `p5.48xlarge` and `p5en.48xlarge` the longer is meant where both fit.
    let fits =
        catalogue::all().iter().filter(|it| it.instance.is_some() && prose.quote.text.contains(it.name));
    Some(known(fits.max_by_key(|it| it.name.len())?, &prose.quote))
}

/// The names that the plugin, manifests and notes give the machine, if the catalogue has them; the first of each, in this order.
fn names(case: &Case) -> Vec<Known<&'static Model>> {
    let known = |it: Known<Box<str>>| Some(Known::new(catalogue::find(&it.value)?, it.source));
    written_names(case).filter_map(known).collect()
}

/// The first name that a case gives the machine, whether the catalogue has it or not.
pub fn name_in(case: &Case) -> Option<Known<Box<str>>> {
    written_names(case).next()
}

fn written_names(case: &Case) -> impl Iterator<Item = Known<Box<str>>> {
    let plugin = case.processes.iter().find_map(|it| it.facts.plugin.instance.first());
    let manifest = case.manifests.iter().find_map(|it| it.instance.first());
    let note = case.sightings_of(&INSTANCE_TYPE).next();
    let line = |name: &str, quote: &Quote| Known::new(name.into(), Source::Line(quote.clone()));
    let written = [plugin, manifest].into_iter().flatten().map(move |it| line(&it.value, &it.quote));
    written.chain(note.map(move |it| line(it.get("type"), &it.quote)))
}

fn differing_names(names: &[Known<&'static Model>]) -> Option<Conflict> {
    let first = names.first()?.value;
    let values = names.iter().map(|it| it.clone().map(|model| Box::from(model.name))).collect();
    names.iter().any(|it| it.value != first).then(|| Conflict { subject: "instance type".into(), values })
}

/// The first lines of the topologies of a case.
fn description_quotes(case: &Case) -> impl Iterator<Item = &Quote> {
    case.xml.iter().filter_map(|it| it.quote.as_ref()).chain(case.matrices.iter().map(|it| &it.quote))
}

/// The first line of the description that a source is, where a case has it.
pub fn description_quote<'a>(case: &'a Case, source: &Source) -> Option<&'a Quote> {
    let Source::Topology { file, line, .. } = source else { return None };
    description_quotes(case).find(|it| case.locate(it) == (&**file, *line))
}

/// Where a topology of a case is.
fn source_of(case: &Case, topology: &Topology) -> Source {
    let located = description_quotes(case).map(|it| case.locate(it)).find(|(_, line)| *line == topology.line);
    Source::Topology {
        file: located.map(|(file, _)| file).unwrap_or_default().into(),
        line: topology.line,
        kind: topology.kind,
    }
}

/// A machine of the catalogue.
pub fn of_model(model: &'static Model, source: Source) -> Resolved {
    Resolved {
        machine: Known::new(model.machine(), source),
        model: Some(model),
        wired: model.wiring.is_some_and(|it| it.unknown.is_empty()),
        notes: Vec::new(),
        conflicts: Vec::new(),
    }
}

/// A described machine, completed by what its instance type is known to have, where one is named.
pub fn of_topology(topology: &Topology, source: Source, instance: Option<&'static Model>) -> Resolved {
    let mut machine = Known::new(topology.machine.clone(), source);
    let mut conflicts = Vec::new();
    let mut wired = !topology.machine.hidden.wiring;
    if let Some(model) = instance {
        let known = Known::new(model.machine(), Source::Catalogue(model.name.into()));
        conflicts = contradictions(&machine, &known);
        if !wired && machine.value.gpus.len() == known.value.gpus.len() {
            machine.value = known.value;
            wired = model.wiring.is_some_and(|it| it.unknown.is_empty());
        } else {
            complete(&mut machine.value, &known.value, model.inside != Inside::Unknown);
            forget_what_is_known(&mut machine.value);
        }
    }
    Resolved { machine, model: instance, wired, notes: topology.notes.clone(), conflicts }
}

/// The machine plumb runs on.
pub fn of_live_node(machine: Machine, notes: Vec<String>) -> Resolved {
    Resolved {
        model: machine.name.as_deref().and_then(catalogue::find),
        machine: Known::new(machine, Source::LiveNode),
        wired: true,
        notes,
        conflicts: Vec::new(),
    }
}

/// What two sources say differently about one machine, the first being the one that counts.
fn contradictions(one: &Known<Machine>, other: &Known<Machine>) -> Vec<Conflict> {
    let mut found = Vec::new();
    let mut compare = |subject: &str, value: &dyn Fn(&Machine) -> Option<String>| {
        let (Some(first), Some(second)) = (value(&one.value), value(&other.value)) else { return };
        if first != second {
            let values = vec![
                Known::new(first.into(), one.source.clone()),
                Known::new(second.into(), other.source.clone()),
            ];
            found.push(Conflict { subject: subject.into(), values });
        }
    };
    compare("number of GPUs", &|it| Some(it.gpus.len().to_string()));
    compare("GPU model", &|it| {
        let name = it.gpus.first()?.model.as_deref()?;
        Some(gpu::find(name).map_or(name, |model| &model.name).to_owned())
    });
    found
}

/// Gives switches and NICs whose links are not known the link of the GPUs: with an unknown one NCCL, which reads it on the machine,
/// would count 12 GB/s. Whether there were any.
fn like_the_gpus(machine: &mut Machine, link: PciLink) -> bool {
    let switches = machine.bridges.iter_mut().map(|it| &mut it.link);
    let open: Vec<&mut Option<PciLink>> =
        switches.chain(machine.nics.iter_mut().map(|it| &mut it.link)).filter(|it| it.is_none()).collect();
    let any = !open.is_empty();
    for it in open {
        *it = Some(link);
    }
    any
}

/// The PCI Express link that a GPU of this model is built with.
pub(crate) fn link_of(model: &GpuModel) -> Option<PciLink> {
    model.pcie_gen.and_then(PciLink::generation).map(|it| PciLink { width: model.pcie_lanes, ..it })
}

#[cfg(test)]
mod tests {
    use evidence::{Case, read_texts, topology};
    use fabric::catalogue;

    use super::{named_in, of_case, of_live_node, of_model, of_topology};
    use crate::known::Source;

    const PLATFORM: &str =
        "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n";
    const MATRIX: &str = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";

    fn case(text: &str) -> Case {
        read_texts([("job.log", text.as_bytes())])
    }

    #[test]
    fn switches_and_nics_that_a_matrix_leaves_out_are_those_of_the_instance() {
        let row = |gpu: usize, cpus: &str| {
            let cells: Vec<&str> = (0..8).map(|it| if it == gpu { "X" } else { "NV12" }).collect();
            format!("GPU{gpu}\t{}\t{cpus}\n", cells.join("\t"))
        };
        let matrix = |second: &str| {
            let names: Vec<String> = (0..8).map(|it| format!("GPU{it}")).collect();
            let rows = (0..8).map(|it| row(it, if it < 4 { "0-23\t0" } else { second }));
            format!("\t{}\tCPU Affinity\tNUMA Affinity\n{}", names.join("\t"), rows.collect::<String>())
        };
        let p4d = catalogue::find("p4d.24xlarge").unwrap();
        let completed = |text: &str| {
            let found = topology::read(text.as_bytes()).unwrap();
            of_topology(&found, Source::Default, Some(p4d)).machine.value
        };
        let machine = completed(&matrix("24-47\t1"));
        assert_eq!((machine.nics.len(), machine.nics[0].at), (4, machine.gpus[0].at));
        // GPUs that are elsewhere than in the catalogue: the NICs are somewhere at the sockets.
        let other = completed(&matrix("0-23\t0"));
        assert_eq!(other.nics.len(), 4);
        assert!(other.bridges.is_empty() && other.unknown.iter().any(|it| it.contains("is not known")));
    }

    #[test]
    fn a_name_comes_before_a_description() {
        let named = of_case(&case(PLATFORM)).unwrap();
        assert_eq!((named.title(), named.wired), ("p4d.24xlarge", true));
        assert!(named.machine.source.quote().is_some_and(|it| it.text.contains("Running on")));
        assert!(named.conflicts.is_empty());
        let described = of_case(&case(MATRIX)).unwrap();
        assert_eq!((described.title(), described.machine.value.gpus.len()), ("this machine", 2));
        assert!(
            matches!(&described.machine.source, Source::Topology { file, line: 1, .. } if &**file == "job.log")
        );
        assert!(of_case(&case("")).is_none());
        assert!(of_case(&case("instance-type: x9.huge\n")).is_none());
    }

    #[test]
    fn names_as_people_and_old_plugins_write_them() {
        for (text, want) in [
            ("instance-type: ml.p5.48xlarge\n", "p5.48xlarge"),
            ("instance-type: dgx-h100\n", "dgx-h100"),
            ("> NET/OFI Running on P4d platform, Setting NCCL_TOPO_FILE\n", "p4d.24xlarge"),
            ("we run on p5en.48xlarge nodes\n", "p5en.48xlarge"),
        ] {
            assert_eq!(named_in(&case(text)).map(|it| it.value.name), Some(want), "{text}");
        }
        for it in fabric::instance::all() {
            let text = format!("we run on {} nodes\n", it.name);
            let want = it.efa().then_some(it.name.as_str());
            assert_eq!(named_in(&case(&text)).map(|it| it.value.name), want, "{text}");
        }
    }

    #[test]
    fn what_disagrees_is_kept() {
        let conflicts = |text: &str| {
            let all = of_case(&case(text)).unwrap().conflicts;
            all.iter()
                .map(|it| (it.subject.to_string(), it.values.iter().map(|it| it.value.to_string()).collect()))
                .collect::<Vec<(String, Vec<String>)>>()
        };
        let pair = |subject: &str, one: &str, other: &str| {
            (subject.to_owned(), vec![one.to_owned(), other.to_owned()])
        };
        assert_eq!(
            conflicts(&format!("{PLATFORM}instance-type: p5.48xlarge\n")),
            [pair("instance type", "p4d.24xlarge", "p5.48xlarge")]
        );
        assert_eq!(conflicts(&format!("{PLATFORM}{MATRIX}")), [pair("number of GPUs", "8", "2")]);
    }

    #[test]
    fn a_description_is_completed_by_its_instance_type() {
        let topology = topology::read(MATRIX.as_bytes()).unwrap();
        let resolved = of_topology(&topology, Source::LiveNode, catalogue::find("g6e.12xlarge"));
        assert_eq!((resolved.title(), resolved.machine.value.gpus.len()), ("g6e.12xlarge", 2));
        assert_eq!(&*resolved.conflicts[0].subject, "number of GPUs");
        let p4d = catalogue::find("p4d.24xlarge").unwrap();
        let eight = topology::Topology { machine: p4d.machine(), ..topology };
        let resolved = of_topology(&eight, Source::LiveNode, Some(p4d));
        assert!(resolved.conflicts.is_empty());
        assert_eq!(resolved.machine.value.gpus[0].compute, Some(80));
        let other = of_topology(&eight, Source::LiveNode, catalogue::find("p5.48xlarge"));
        assert_eq!(&*other.conflicts[0].subject, "GPU model");
    }

    #[test]
    fn nvlinks_give_the_generation() {
        let mut machine = catalogue::find("p4d.24xlarge").unwrap().machine();
        for gpu in &mut machine.gpus {
            (gpu.model, gpu.compute) = (None, None);
        }
        let mut resolved = of_live_node(machine.clone(), Vec::new());
        resolved.deduce_generation();
        assert_eq!(resolved.machine.value.gpus[0].compute, Some(80));
        assert_eq!(resolved.notes, ["12 NVLinks to a switch: the GPUs are A100."]);
        machine.nvlinks.iter_mut().for_each(|it| it.count = 18);
        let mut resolved = of_live_node(machine, Vec::new());
        resolved.deduce_generation();
        assert_eq!(resolved.machine.value.gpus[0].compute, None);
        let last = resolved.machine.value.unknown.last().unwrap();
        assert!(last.ends_with("Set it with --gpu H100."), "{last}");
    }

    #[test]
    fn nics_that_the_plugin_joins_are_one() {
        let p5 = of_model(catalogue::find("p5.48xlarge").unwrap(), Source::Flag("--instance"));
        assert_eq!((p5.machine.value.nics.len(), p5.seen_by_nccl().nics.len()), (32, 8));
        let p4d = of_model(catalogue::find("p4d.24xlarge").unwrap(), Source::Flag("--instance"));
        assert_eq!(p4d.seen_by_nccl(), p4d.machine.value);
    }
}

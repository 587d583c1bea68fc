//! A job that is described rather than logged: a machine from one file, the catalogue or the live node, and flags.

use evidence::topology::{self, Graph, Kind};
use fabric::Layout;
use fabric::catalogue::{self, Model};

use crate::channel::{self, Channel, Selection};
use crate::cluster_file::{self, ClusterFileError};
use crate::machine::{self, Resolved};
use crate::{Job, Known, Releases, Settings, Source};

/// A machine, and what its source says about the job that runs on it.
#[derive(Debug, Clone)]
pub struct Description {
    /// The machine.
    pub machine: Resolved,
    /// Where the machine comes from, for people: a file and line, the catalogue, this machine.
    pub source: String,
    /// The layout that the source gives.
    pub layout: Option<Known<Layout>>,
    /// The settings that the source shows.
    pub settings: Settings,
    /// The releases that the source shows.
    pub releases: Releases,
    /// The ring or tree that was selected.
    pub channel: Option<Channel>,
    /// The result of NCCL's search, if the source contains it.
    pub graphs: Vec<Graph>,
}

/// What flags say about the layout; each overrides the source of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LayoutFlags {
    /// `--nodes`
    pub nodes: Option<u32>,
    /// `--pods`: pods on one node, and GPUs in each.
    pub pods: Option<Layout>,
    /// `--nics-per-pod`
    pub nics_per_pod: Option<u32>,
    /// `--same-host`
    pub same_host: bool,
    /// `--shared-shm`
    pub shared_memory: bool,
}

impl Job {
    /// Whether nodes may be pods on fewer machines: NCCL counts a pod with a host name of its own as a node, and a log does not show which
    /// of them share a machine. A flag or a file with a layout settles it.
    pub fn nodes_may_share_machines(&self) -> bool {
        let (Some(layout), Some(machine)) = (&self.layout, self.machines.first()) else { return false };
        let each = usize::try_from(layout.value.ranks_per_node()).unwrap_or(usize::MAX);
        let room = machine.value.gpus.len() >= each.saturating_mul(2);
        matches!(layout.source, Source::Line(_)) && layout.value.nodes > 1 && room
    }
}

impl Description {
    /// A machine about which nothing else is known.
    pub fn new(machine: Resolved, source: impl Into<String>) -> Self {
        Self {
            machine,
            source: source.into(),
            layout: None,
            settings: Settings::default(),
            releases: Releases::default(),
            channel: None,
            graphs: Vec::new(),
        }
    }

    /// A machine of the catalogue that `--instance` names.
    pub fn of_flag(model: &'static Model) -> Self {
        Self::new(machine::of_model(model, Source::Flag("--instance")), CATALOGUE)
    }

    /// The machine and layout of a cluster file of this name.
    pub fn of_cluster_file(text: &str, name: &str) -> Result<Self, ClusterFileError> {
        let file = cluster_file::read(text, name)?;
        Ok(Self { layout: Some(file.layout), ..Self::new(file.machine, name) })
    }

    /// The machine that a file describes or, without a description, that `--instance` or the file names: see
    /// [`machine::of_file`]. The error names the file.
    pub fn of_text(
        name: &str,
        text: &[u8],
        instance: Option<&'static Model>,
        selection: Option<Selection>,
    ) -> Result<Self, String> {
        let named = |reason: String| format!("{name}: {reason}");
        let commented = machine::named_in_comment(text).filter(|_| instance.is_none());
        let instance = instance.or(commented);
        let (topology, trouble) = match topology::read(text) {
            Ok(found) => (Some(found), String::new()),
            Err(trouble) => match trouble.line {
                // It says too little, and the flag completes it.
                Some(line) if trouble.advice.is_some() && instance.is_some() => {
                    (None, format!("{name}:{line}: {}", trouble.text))
                }
                // An invalid description is an error, not a reason to guess.
                Some(line) => {
                    let advice = trouble.advice.map(|it| format!(". {it}")).unwrap_or_default();
                    return Err(format!("{name}:{line}: {}{advice}", trouble.text));
                }
                None => (None, trouble.text),
            },
        };
        let case = evidence::read_texts([(name, text)]);
        let described = topology
            .as_ref()
            .map(|it| Known::new(it, Source::Topology { file: name.into(), line: it.line, kind: it.kind }));
        let source = match (&described, instance, machine::stated_in(&case, text)) {
            (Some(it), ..) => it.source.to_string(),
            (None, None, Some(it)) => format!("{CATALOGUE}; {name} names {}", it.value.name),
            (None, ..) => CATALOGUE.to_owned(),
        };
        let Some(machine) = machine::of_file(&case, text, described, instance) else {
            let unknown = machine::name_in(&case).and_then(|it| catalogue::resolve(&it.value).err());
            let mentioned = machine::named_in(&case).map(|it| it.value.name);
            return Err(named(match (unknown, mentioned) {
                (Some(unknown), _) => unknown.to_string(),
                (None, Some(model)) => {
                    format!("{trouble}. It mentions {model}; if the machine is one, add --instance {model}")
                }
                (None, None) => trouble,
            }));
        };
        let mut found = Self::new(machine, source);
        if trouble.starts_with(name) && topology.is_none() {
            found.machine.notes.push(format!("{trouble}."));
        }
        if let Some(model) = commented {
            found.machine.notes.push(format!(
                "A comment in the file names {0}: what the XML leaves out is that of {0}.",
                model.name
            ));
        }
        let kind = topology.as_ref().map(|it| it.kind);
        found.graphs = topology.map(|it| it.graphs).unwrap_or_default();
        let channel = selection.map(|it| match kind {
            Some(Kind::GraphXml) => channel::of_graphs(&found.graphs, it),
            _ => channel::of_case(&case, &found.machine.machine.value, it),
        });
        found.channel = channel.transpose().map_err(named)?;
        found.layout = found
            .channel
            .as_ref()
            .map(|it| Known::new(Layout::whole(&found.machine.machine.value).on(it.nodes), Source::Default));
        if matches!(kind, None | Some(Kind::Log)) {
            let job = Job::of_case(&case);
            let gpus = found.machine.machine.value.gpus.len();
            let fits = |it: &Known<Layout>| it.value.gpus_per_pod as usize <= gpus;
            found.layout = found.layout.or(job.layout.filter(fits));
            (found.settings, found.releases) = (job.settings, job.releases);
        }
        Ok(found)
    }

    /// The job on this machine. Its layout is that of the flags, otherwise of the source, otherwise one pod with the whole
    /// machine.
    pub fn job(&self, flags: &LayoutFlags) -> Job {
        let machine = &self.machine;
        let mut layout = self
            .layout
            .clone()
            .unwrap_or_else(|| Known::new(Layout::whole(&machine.machine.value), Source::Default));
        let nodes = flags.nodes.unwrap_or(layout.value.nodes);
        if flags.nodes.is_some() {
            layout.source = Source::Flag("--nodes");
        }
        if let Some(pods) = flags.pods {
            layout = Known::new(pods, Source::Flag("--pods"));
        }
        layout.value = Layout {
            nodes,
            nics_per_pod: flags.nics_per_pod,
            same_host: flags.same_host,
            shared_memory: flags.shared_memory,
            ..layout.value
        };
        Job {
            machines: vec![machine.machine.clone()],
            model: machine.model.map(|it| Known::new(it, machine.machine.source.clone())),
            wired: machine.wired,
            layout: Some(layout),
            settings: self.settings.clone(),
            releases: self.releases.clone(),
            conflicts: machine.conflicts.clone(),
            ..Job::default()
        }
    }
}

const CATALOGUE: &str = "the catalogue";

#[cfg(test)]
mod tests {
    use fabric::{Layout, catalogue};

    use super::{Description, LayoutFlags};

    const MATRIX: &str = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";

    fn of_text(text: &str, instance: Option<&str>) -> Result<Description, String> {
        Description::of_text("x.txt", text.as_bytes(), instance.and_then(catalogue::find), None)
    }

    fn conflicts(text: &str, instance: Option<&str>) -> Vec<String> {
        let found = of_text(text, instance).unwrap();
        found.machine.conflicts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_description_counts_before_the_name_beside_it() {
        let both = format!("instance-type: p4d.24xlarge\n{MATRIX}");
        assert_eq!(of_text(&both, None).unwrap().machine.machine.value.gpus.len(), 2);
        assert_eq!(
            conflicts(&both, None),
            [
                "Sources disagree about the number of GPUs: x.txt:2 (nvidia-smi topo -m) says 2, `instance-type: p4d.24xlarge` says 8. The first counts."
            ]
        );
        assert!(conflicts(MATRIX, None).is_empty());
    }

    #[test]
    fn a_flag_counts_before_a_name() {
        let name = "instance-type: p4d.24xlarge\n";
        let found = of_text(name, Some("p5.48xlarge")).unwrap();
        assert_eq!((found.machine.title(), &*found.source), ("p5.48xlarge", "the catalogue"));
        assert_eq!(
            conflicts(name, Some("p5.48xlarge")),
            [
                "Sources disagree about the instance type: --instance says p5.48xlarge, `instance-type: p4d.24xlarge` says p4d.24xlarge. The first counts."
            ]
        );
        assert!(conflicts(name, Some("p4d.24xlarge")).is_empty());
        assert_eq!(of_text(name, None).unwrap().source, "the catalogue; x.txt names p4d.24xlarge");
        assert!(of_text("instance-type: p4d.48xlarge\n", None).unwrap_err().contains("p4d.24xlarge"));
    }

    #[test]
    fn nodes_of_a_log_with_few_gpus_may_be_pods_of_one_machine() {
        let log = "instance-type: p4d.24xlarge\nh:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0\n";
        let few = of_text(log, None).unwrap();
        let share = |it: &Description, flags: LayoutFlags| it.job(&flags).nodes_may_share_machines();
        assert!(share(&few, LayoutFlags::default()));
        // Said by a flag.
        assert!(!share(&few, LayoutFlags { nodes: Some(4), ..LayoutFlags::default() }));
        let pods = LayoutFlags { nodes: Some(1), pods: Some(Layout::new(4, 1)), ..LayoutFlags::default() };
        assert!(!share(&few, pods));
        // No second node fits beside one with all GPUs.
        let whole = log.replace("nRanks 4 nNodes 4 localRanks 1", "nRanks 16 nNodes 2 localRanks 8");
        assert!(!share(&of_text(&whole, None).unwrap(), LayoutFlags::default()));
        assert!(!share(
            &Description::of_flag(catalogue::find("p4d.24xlarge").unwrap()),
            LayoutFlags::default()
        ));
    }

    #[test]
    fn flags_override_the_layout_of_the_file() {
        let text = "[cluster]\ninstance = \"p5.48xlarge\"\nnodes = 2\npods = \"2x4\"\n";
        let file = Description::of_cluster_file(text, "c.toml").unwrap();
        let layout = |flags: LayoutFlags| file.job(&flags).layout.unwrap().value;
        assert_eq!(layout(LayoutFlags::default()), Layout::new(2, 4).on(2));
        let pods = LayoutFlags { pods: Some(Layout::new(8, 1)), ..LayoutFlags::default() };
        assert_eq!(layout(pods), Layout::new(8, 1).on(2));
        let nodes = LayoutFlags { nodes: Some(3), same_host: true, ..LayoutFlags::default() };
        assert_eq!(layout(nodes), Layout { same_host: true, ..Layout::new(2, 4).on(3) });
        let whole = Description::of_flag(catalogue::find("p4d.24xlarge").unwrap());
        assert_eq!(whole.job(&LayoutFlags::default()).layout.unwrap().value, Layout::new(1, 8));
    }
}

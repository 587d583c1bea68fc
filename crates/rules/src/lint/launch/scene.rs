//! A launch with what is around it: its pod or its script, the GPUs and nodes it gets.

use evidence::submission::{Container, Kind, Launch, Launcher, Pod, Setting, Submission, Word, Workload};
use evidence::yaml::Span;

use super::sbatch;
use crate::lint::Context;

/// The resource of NVIDIA's device plugin.
const GPU: &str = "nvidia.com/gpu";

/// The most launches of a file that are judged.
const MOST: usize = 1000;

/// A number and where it is written.
#[derive(Debug, Clone)]
pub(in crate::lint) struct Count {
    /// The number.
    pub(in crate::lint) value: u64,
    /// Its place.
    pub(in crate::lint) span: Span,
}

/// A launch and its surroundings.
#[derive(Debug, Clone, Copy)]
pub(in crate::lint) struct Scene<'a> {
    /// The file, by its place.
    pub(in crate::lint) file: usize,
    /// The file.
    pub(in crate::lint) submission: &'a Submission,
    /// The launch.
    pub(in crate::lint) launch: &'a Launch,
    /// Where it stands, in a manifest.
    pub(in crate::lint) around: Option<(&'a Workload, &'a Pod, &'a Container)>,
}

/// All launches of all files.
pub(in crate::lint) fn scenes<'a>(context: &Context<'a>) -> Vec<Scene<'a>> {
    let of_file = |(file, submission): (usize, &'a Submission)| {
        submission.launches.iter().take(MOST).map(move |launch| Scene {
            file,
            submission,
            launch,
            around: launch.owner.and_then(|it| submission.owner(it)),
        })
    };
    context.files.iter().enumerate().flat_map(of_file).collect()
}

impl<'a> Scene<'a> {
    /// The place of the launcher itself.
    pub(super) fn span(&self) -> Span {
        let first = self.launch.words.first();
        self.submission.span(first.map_or(0..0, |it| it.range.clone()))
    }

    /// The place of a word.
    pub(super) fn word(&self, word: &Word) -> Span {
        self.submission.span(word.range.clone())
    }

    /// An option's value as a number; a variable of the same text is followed.
    pub(super) fn number(&self, names: &[&str]) -> Option<Count> {
        let value = self.literal(names)?.parse().ok()?;
        Some(Count { value, span: self.word(self.launch.option(names)?) })
    }

    /// An option's value as a text, where it is known.
    pub(super) fn literal(&self, names: &[&str]) -> Option<&'a str> {
        let text = self.launch.value(names)?;
        let name =
            text.strip_prefix('$').map(|it| it.trim_start_matches(['{', '(']).trim_end_matches(['}', ')']));
        match name {
            Some(name) => self.setting(name)?.value.as_deref().filter(|it| !it.contains('$')),
            None => Some(text).filter(|it| !it.contains(['$', '`', '{', '<'])),
        }
    }

    /// A variable that the launch sees, if it is set once.
    pub(super) fn setting(&self, name: &str) -> Option<&'a Setting> {
        let mut all =
            self.submission.settings.iter().filter(|it| &*it.name == name && it.owner == self.launch.owner);
        let first = all.next()?;
        all.all(|it| it.value == first.value).then_some(first)
    }

    /// A variable that is a number.
    pub(super) fn setting_number(&self, name: &str) -> Option<Count> {
        let setting = self.setting(name)?;
        let value = setting.value.as_deref()?.trim().parse().ok()?;
        Some(Count { value, span: setting.value_span.clone().unwrap_or_else(|| setting.span.clone()) })
    }

    /// Whether a variable is set at all, to whatever.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.submission.settings.iter().any(|it| &*it.name == name && it.owner == self.launch.owner)
    }

    /// Whether options may hide behind a variable: `torchrun "${ARGS[@]}" train.py`, a `ConfigMap`, an operator.
    pub(super) fn hidden(&self) -> bool {
        let own = self.launch.own();
        let value_of_option = |at: usize| {
            at.checked_sub(1)
                .and_then(|it| own.get(it))
                .is_some_and(|it| it.text.starts_with('-') && !it.text.contains('='))
        };
        let variable = own
            .iter()
            .enumerate()
            .any(|(at, it)| it.text.starts_with(['$', '`', '{', '@']) && !value_of_option(at));
        // A plain script is started by something that may set variables.
        let script = self.around.is_none() && self.submission.kind != Kind::Sbatch;
        let from_elsewhere = script || self.around.is_some_and(|it| it.2.env_from);
        variable || from_elsewhere || self.operator()
    }

    /// Whether the operator of this kind sets the variables of torchrun.
    pub(super) fn operator(&self) -> bool {
        const KINDS: [&str; 4] = ["PyTorchJob", "TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"];
        self.around.is_some_and(|it| KINDS.contains(&&*it.0.kind))
    }

    /// The launch that starts this one: `srun` of `srun torchrun`.
    pub(super) fn outer(&self) -> Option<Scene<'a>> {
        let start = self.launch.words.first()?.range.start;
        let contains = |it: &&Launch| it.words.iter().skip(1).any(|word| word.range.contains(&start));
        let launch = self.submission.launches.iter().take(MOST).find(contains)?;
        Some(Self { launch, ..*self })
    }

    /// The launch that this one starts.
    pub(super) fn inner(&self) -> Option<Scene<'a>> {
        let mine = |it: &&Launch| {
            let start = it.words.first().map(|it| it.range.start);
            self.launch.words.iter().skip(1).any(|word| start.is_some_and(|it| word.range.contains(&it)))
        };
        let launch = self.submission.launches.iter().take(MOST).find(mine)?;
        Some(Self { launch, ..*self })
    }

    /// The GPUs one node of this launch has, as far as it is asked for.
    pub(in crate::lint) fn gpus(&self) -> Option<Count> {
        match self.around {
            Some((workload, _, container)) => gpus_of(container).or_else(|| {
                // A launcher has none itself: those of its workers count.
                let mut all =
                    workers(workload).into_iter().flat_map(|it| it.containers.iter().filter_map(gpus_of));
                let first = all.next().filter(|_| &*workload.kind == "MPIJob")?;
                all.all(|it| it.value == first.value).then_some(first)
            }),
            None => sbatch::gpus(self.submission),
        }
    }

    /// How many nodes or pods it runs on, as far as the job says.
    pub(in crate::lint) fn nodes(&self) -> Option<Count> {
        match self.around {
            Some((workload, ..)) => nodes_of(self.submission, workload),
            None => sbatch::nodes(self.submission),
        }
    }

    /// How many processes it starts on one node, where it says so.
    pub(super) fn processes(&self) -> Option<Count> {
        match self.launch.launcher {
            Launcher::Torchrun => {
                let option = ["--nproc-per-node"];
                if self.launch.has(&option) {
                    self.number(&option)
                } else {
                    self.setting_number("PET_NPROC_PER_NODE")
                }
            }
            Launcher::DeepSpeed => self.number(&["--num_gpus"]),
            Launcher::Mpirun => self.per_node(),
            Launcher::Srun => match self.launch.has(&["--ntasks-per-node", "--tasks-per-node"]) {
                true => self.number(&["--ntasks-per-node", "--tasks-per-node"]),
                // A count of its own changes what the script asks for.
                false if self.launch.has(&["-n", "--ntasks", "-N", "--nodes"]) => None,
                false => sbatch::number(self.submission, "ntasks-per-node"),
            },
            // A file of settings may say how many machines there are.
            Launcher::Accelerate if self.launch.has(&["--config_file"]) || self.hidden() => None,
            Launcher::Accelerate => {
                let all = self.number(&["--num_processes"])?;
                let machines = if self.launch.has(&["--num_machines"]) {
                    self.number(&["--num_machines"])?.value
                } else if self.nodes().is_some_and(|it| it.value > 1) {
                    return None;
                } else {
                    1
                };
                let value = all.value.checked_div(machines).filter(|_| all.value % machines == 0)?;
                Some(Count { value, ..all })
            }
            Launcher::NcclTests => None,
        }
    }

    /// `-N 8`, `--map-by ppr:8:node` of mpirun.
    fn per_node(&self) -> Option<Count> {
        let own = self.number(&["-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost"]);
        own.or_else(|| {
            let names = ["--map-by", "-map-by"];
            let value = self.literal(&names)?.strip_prefix("ppr:")?;
            let (count, unit) = value.split_once(':')?;
            let value = count.parse().ok().filter(|_| unit.starts_with("node"))?;
            Some(Count { value, span: self.word(self.launch.option(&names)?) })
        })
    }
}

/// The GPUs a container asks for.
pub(in crate::lint) fn gpus_of(container: &Container) -> Option<Count> {
    let all = container.limits.iter().chain(&container.requests);
    let resource = all.into_iter().find(|it| &*it.name == GPU)?;
    let value = resource.quantity?.whole().filter(|it| *it > 0)?;
    Some(Count { value, span: resource.value.clone() })
}

/// The pods of a job that have GPUs.
pub(in crate::lint) fn workers(workload: &Workload) -> Vec<&Pod> {
    let has = |it: &&Pod| it.containers.iter().any(|it| gpus_of(it).is_some());
    let mpi = &*workload.kind == "MPIJob";
    let launcher = |it: &&Pod| mpi && it.role.as_deref() == Some("Launcher");
    workload.pods.iter().filter(has).filter(|it| !launcher(it)).collect()
}

/// How many pods of a job work together. None where it is not told, or where pods of one object need not be one job.
pub(in crate::lint) fn nodes_of(submission: &Submission, workload: &Workload) -> Option<Count> {
    let tree = &submission.tree;
    if tree.at(workload.root, &["spec", "elasticPolicy"]).is_some() {
        return None;
    }
    let number = |path: &[&str]| {
        let node = tree.at(workload.root, path)?;
        Some(Count { value: tree.integer(node)?, span: tree.node(node).span.clone() })
    };
    let workers = workers(workload);
    let first = workers.first()?;
    let place = || replicas_place(submission, workload, first);
    let sum = |default: Option<u64>| {
        workers.iter().try_fold(0u64, |sum, it| Some(sum.saturating_add(it.replicas.or(default)?)))
    };
    let value = match &*workload.kind {
        "LeaderWorkerSet" => return number(&["spec", "leaderWorkerTemplate", "size"]),
        "PyTorchJob" | "JobSet" => sum(Some(1))?,
        "TrainJob" => sum(None)?,
        "MPIJob" => {
            let too = tree.at(workload.root, &["spec", "runLauncherAsWorker"]).and_then(|it| tree.bool(it));
            sum(Some(1))?.saturating_add(u64::from(too == Some(true)))
        }
        // Another such object beside it may hold the other nodes.
        "StatefulSet" | "Job" => sum(None).filter(|it| *it > 1)?,
        _ => return None,
    };
    Some(Count { value, span: place() })
}

/// Where the number of pods is written; the kind's own name where it is not.
fn replicas_place(submission: &Submission, workload: &Workload, pod: &Pod) -> Span {
    let tree = &submission.tree;
    let mut node = workload.root;
    let mut place =
        tree.get(node, "kind").map_or_else(|| tree.node(node).span.clone(), |it| tree.node(it).span.clone());
    for step in pod.path.split(['.', '[']) {
        let next = match step.strip_suffix(']') {
            Some(index) => index.parse().ok().and_then(|it: usize| tree.items(node).get(it).copied()),
            None => tree.get(node, step),
        };
        let Some(next) = next else { break };
        node = next;
        let told = ["parallelism", "replicas", "numNodes"].into_iter().find_map(|it| tree.get(node, it));
        place = told.map_or(place, |it| tree.node(it).span.clone());
    }
    place
}

/// The one job of all files: nodes and GPUs a node. None where there are several or not all is told.
pub(in crate::lint) fn only_job(context: &Context<'_>) -> Option<(u64, u64)> {
    let mut jobs = Vec::new();
    for file in context.files {
        for workload in &file.workloads {
            let gpus = workers(workload).into_iter().flat_map(|it| it.containers.iter().filter_map(gpus_of));
            let gpus: Vec<u64> = gpus.map(|it| it.value).collect();
            let Some(first) = gpus.first() else { continue };
            let same = gpus.iter().all(|it| it == first);
            let alone = matches!(&*workload.kind, "Pod" | "Job").then_some(1);
            let nodes = nodes_of(file, workload).map(|it| it.value).or(alone);
            jobs.push(nodes.filter(|_| same).map(|it| (it, *first)));
        }
        if file.kind == Kind::Sbatch {
            jobs.push(sbatch::nodes(file).and_then(|it| Some((it.value, sbatch::gpus(file)?.value))));
        }
    }
    match jobs.as_slice() {
        [Some(job)] => Some(*job),
        _ => None,
    }
}

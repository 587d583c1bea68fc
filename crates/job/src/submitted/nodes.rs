//! How many nodes a job runs on.

use evidence::submission::{Count, Launcher, Pod, Submission, Workload};
use evidence::yaml::Span;

use super::PodTemplate;
use super::index::FileIndex;

/// How many nodes a job runs on: what the object states, and what its commands and variables say.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    /// Pods that run ranks, an unstated number counted as one.
    pub pods: u64,
    /// The exact number, where the object states it and its pods are certain to be one job.
    pub stated: Option<Count>,
    /// The largest number that a command or a variable gives.
    launched: Option<u64>,
    /// Whether its pods work on one thing.
    pub joint: bool,
    /// Whether it says that it is one node.
    pub single: bool,
    /// Whether the files leave the number open.
    open: bool,
}

impl Nodes {
    /// The number of nodes at least.
    pub fn at_least(&self) -> u64 {
        let stated = self.stated.as_ref().map_or(0, |it| it.value).max(self.pods);
        stated.max(self.launched.unwrap_or(0))
    }

    /// Whether several pods or nodes are certain to work on one thing.
    pub fn is_multi(&self) -> bool {
        self.joint && self.at_least() > 1 && !self.single
    }

    /// Whether there are several nodes; none where the files do not say.
    pub fn several(&self) -> Option<bool> {
        if self.at_least() > 1 {
            return Some(true);
        }
        (!self.open).then_some(false)
    }
}

/// A number of nodes, or the range of an elastic job: `2:4`.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRange {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Where it is written.
    pub span: Span,
}

impl NodeRange {
    pub(super) fn read(text: &str, span: Span) -> Option<Self> {
        let (least, most) = text.trim().split_once(':').unwrap_or((text.trim(), text.trim()));
        Some(Self { least: least.parse().ok()?, most: most.parse().ok()?, span })
    }

    /// The number, where it is one.
    pub fn exact(self) -> Option<Count> {
        (self.least == self.most).then_some(Count { value: self.least, span: self.span })
    }
}

/// What commands and variables say together.
#[derive(Default)]
struct Said {
    most: Option<u64>,
    one: bool,
    several: bool,
}

impl Said {
    fn take(&mut self, text: &str) {
        match NodeRange::read(text, Span::default()) {
            Some(range) => {
                self.most = self.most.max(Some(range.least));
                self.one |= range.most == 1;
                self.several |= range.most > 1;
            }
            // `$NNODES`: more than one is meant.
            None => self.several = true,
        }
    }
}

fn said(submission: &Submission, workload: Option<usize>, index: &FileIndex<'_>) -> Said {
    let mut said = Said::default();
    for launch in index.launches_of_workload(workload).iter().filter_map(|it| submission.launches.get(*it)) {
        let Some(option) = launch.nodes() else { continue };
        let text = index.literal(submission, launch.owner, option.text).unwrap_or(option.text);
        // One step of a Slurm job may well use fewer nodes than the others.
        if launch.launcher == Launcher::Srun {
            said.most = said.most.max(text.parse().ok());
        } else {
            said.take(text);
        }
    }
    for name in ["PET_NNODES", "NNODES", "NUM_NODES"] {
        for position in index.settings_of_workload(workload, name) {
            let setting = submission.settings.get(*position);
            setting.and_then(|it| it.value.as_deref()).into_iter().for_each(|it| said.take(it));
        }
    }
    // Two of one job that disagree prove nothing.
    said.one &= !said.several;
    said
}

pub(super) fn of_script(submission: &Submission, index: &FileIndex<'_>) -> Nodes {
    let said = said(submission, None, index);
    let stated = submission.directives.nodes();
    let known = stated.is_some() || said.most.is_some();
    Nodes {
        pods: 0,
        stated,
        launched: said.most,
        joint: true,
        single: said.one,
        open: said.several || !known,
    }
}

pub(super) fn of_workload(
    submission: &Submission,
    position: usize,
    workload: &Workload,
    kind: &str,
    pods: &[PodTemplate<'_>],
    index: &FileIndex<'_>,
) -> Nodes {
    // Pods of these are one job by their kind; of others if they have EFA; of services only if a command says so.
    const OPERATORS: [&str; 9] = [
        "MPIJob",
        "PyTorchJob",
        "HyperPodPyTorchJob",
        "TFJob",
        "PaddleJob",
        "TrainJob",
        "JobSet",
        "LeaderWorkerSet",
        "RayJob",
    ];
    const SERVICES: [&str; 4] = ["Deployment", "ReplicaSet", "DaemonSet", "RayService"];
    let tree = &submission.tree;
    let said = said(submission, Some(position), index);
    let working = || pods.iter().filter(|it| it.works);
    let version = tree.get(workload.root, "apiVersion").and_then(|it| tree.text(it));
    let volcano = version.is_some_and(|it| it.contains("volcano"));
    let efa = pods.iter().any(|it| it.efa.is_some()) && !SERVICES.contains(&kind);
    let one_node_trainer = pods.iter().any(|it| it.pod.partial && it.pod.replicas == Some(1));
    let single = said.one || (one_node_trainer && !said.several);
    let stated = stated(submission, workload, kind, pods);
    let counted = working().next().is_some() && working().all(|it| it.pod.replicas.is_some());
    let known = single || counted || said.most.is_some() || stated.is_some();
    Nodes {
        pods: working().map(|it| it.count).fold(0, u64::saturating_add),
        stated,
        launched: said.most,
        joint: OPERATORS.contains(&kind) || volcano || said.several || efa,
        single,
        open: said.several || !known,
    }
}

/// How many pods of an object work together. None where the file does not say, or where its pods need not be one job.
fn stated(
    submission: &Submission,
    workload: &Workload,
    kind: &str,
    pods: &[PodTemplate<'_>],
) -> Option<Count> {
    let tree = &submission.tree;
    if let Some(policy) = tree.at(workload.root, &["spec", "elasticPolicy"]) {
        let number = |name: &str| tree.get(policy, name).and_then(|it| tree.integer(it));
        // As many at least as at most: the number is fixed.
        if number("minReplicas").is_none() || number("minReplicas") != number("maxReplicas") {
            return None;
        }
    }
    // The pods of a TrainJob get their GPUs from its runtime.
    let working = || pods.iter().filter(|it| it.works || (kind == "TrainJob" && it.pod.partial));
    let first = working().next()?;
    let sum = |unstated: Option<u64>| {
        working().try_fold(0u64, |sum, it| Some(sum.saturating_add(it.pod.replicas.or(unstated)?)))
    };
    let value = match kind {
        "LeaderWorkerSet" => {
            let node = tree.at(workload.root, &["spec", "leaderWorkerTemplate", "size"])?;
            return Some(Count { value: tree.integer(node)?, span: tree.node(node).span.clone() });
        }
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
    Some(Count { value, span: replicas_span(submission, workload, first.pod) })
}

/// Where the number of pods is written; the kind's own name where it is not.
fn replicas_span(submission: &Submission, workload: &Workload, pod: &Pod) -> Span {
    let tree = &submission.tree;
    let mut node = workload.root;
    let mut span =
        tree.get(node, "kind").map_or_else(|| tree.node(node).span.clone(), |it| tree.node(it).span.clone());
    for step in pod.path.split(['.', '[']) {
        let next = match step.strip_suffix(']') {
            Some(index) => index.parse().ok().and_then(|it: usize| tree.items(node).get(it).copied()),
            None => tree.get(node, step),
        };
        let Some(next) = next else { break };
        node = next;
        let number = ["parallelism", "replicas", "numNodes"].into_iter().find_map(|it| tree.get(node, it));
        span = number.map_or(span, |it| tree.node(it).span.clone());
    }
    span
}

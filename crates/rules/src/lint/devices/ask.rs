//! What the pods of a job ask for: GPUs, EFA interfaces, machines.
//!
//! One view for all that is submitted: a pod template, or the `resourcesPerNode` of a `TrainJob`, which has no pod of its own.

use evidence::submission::{Launcher, Object, Pod, Quantity, Resource, Submission, Workload};
use evidence::yaml::{NodeId, Span};
use fabric::instance::{self, Instance};

use super::name::{self, EFA, GPU};
use crate::lint::Context;

/// Pods of one template.
pub(in crate::lint) struct Ask<'a> {
    /// The file, by its place in [`Context::files`].
    pub(in crate::lint) file: usize,
    /// The file itself.
    pub(in crate::lint) submission: &'a Submission,
    /// `Pod`, `Job`, ...
    pub(in crate::lint) kind: &'a str,
    /// The root of the object.
    pub(in crate::lint) root: NodeId,
    /// The pod; none for a `TrainJob` that leaves it to its runtime.
    pub(in crate::lint) pod: Option<&'a Pod>,
    /// What each container asks for.
    pub(in crate::lint) containers: Vec<Wants>,
    /// The machines it can run on.
    pub(in crate::lint) types: Types,
    /// How many pods of this template run together at least.
    pub(in crate::lint) pods: u64,
    /// The whole job.
    pub(in crate::lint) job: Job,
}

/// Limits and requests of a container.
#[derive(Clone)]
pub(in crate::lint) struct Wants {
    /// The mapping `resources`, where there is one.
    pub(in crate::lint) node: Option<NodeId>,
    /// `limits`
    pub(in crate::lint) limits: Vec<Resource>,
    /// `requests`
    pub(in crate::lint) requests: Vec<Resource>,
}

/// What is known of the job around a pod.
#[derive(Clone, Copy, Default)]
pub(in crate::lint) struct Job {
    /// Pods with GPUs, at least.
    pub(in crate::lint) pods: u64,
    /// Whether its pods work on one thing.
    pub(in crate::lint) joint: bool,
    /// Whether it says that it is one node.
    pub(in crate::lint) single: bool,
}

/// Machines.
#[derive(Clone, Default)]
pub(in crate::lint) struct Types {
    /// Those the catalogue has.
    pub(in crate::lint) known: Vec<&'static Instance>,
    /// Where they are named, in the same file.
    pub(in crate::lint) place: Option<Span>,
    /// Names that the catalogue does not have.
    unknown: bool,
}

impl Types {
    fn add(&mut self, name: &str) {
        // What a template fills in is not said yet.
        match instance::find(name) {
            Some(it) if self.known.iter().all(|known| known.name != it.name) => self.known.push(it),
            Some(_) => {}
            None => self.unknown = true,
        }
    }

    /// All of them are known, and all are like this.
    pub(in crate::lint) fn all(&self, like: impl Fn(&Instance) -> bool) -> bool {
        !self.unknown && !self.known.is_empty() && self.known.iter().all(|it| like(it))
    }

    /// `p4d.24xlarge`, or `p5.48xlarge and p5e.48xlarge`.
    pub(in crate::lint) fn names(&self) -> String {
        let names: Vec<&str> = self.known.iter().map(|it| it.name.as_str()).collect();
        match names.as_slice() {
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            _ => names.concat(),
        }
    }

    /// The one with most of something, if all are known.
    pub(in crate::lint) fn most(&self, of: impl Fn(&Instance) -> u32) -> Option<&'static Instance> {
        self.known.iter().copied().filter(|_| !self.unknown).max_by_key(|it| of(it))
    }
}

impl Ask<'_> {
    fn wanted(&self, meant: &str) -> impl Iterator<Item = &Resource> {
        let lists = self.containers.iter().map(|it| {
            let has = |list: &[Resource]| list.iter().any(|it| name::meant(&it.name) == Some(meant));
            if has(&it.limits) { &it.limits } else { &it.requests }
        });
        lists.flatten().filter(move |it| name::meant(&it.name) == Some(meant))
    }

    fn sum(&self, meant: &str) -> Option<u64> {
        let mut numbers = self.wanted(meant).map(|it| it.quantity.and_then(Quantity::whole)).peekable();
        numbers.peek()?;
        numbers.try_fold(0u64, |sum, it| Some(sum.saturating_add(it?)))
    }

    /// GPUs of one pod; none where it asks for none or the number is not told.
    pub(in crate::lint) fn gpus(&self) -> Option<u64> {
        self.sum(GPU).filter(|it| *it > 0)
    }

    /// EFA interfaces of one pod; none where it asks for none or the number is not told.
    pub(in crate::lint) fn efa(&self) -> Option<u64> {
        self.sum(EFA).filter(|it| *it > 0)
    }

    /// Whether it asks for GPUs, in any number.
    pub(in crate::lint) fn wants_gpus(&self) -> bool {
        self.wanted(GPU).next().is_some() && self.sum(GPU) != Some(0)
    }

    /// Whether it asks for EFA, in any number, or has it from a claim.
    pub(in crate::lint) fn wants_efa(&self) -> bool {
        self.wanted(EFA).next().is_some() && self.sum(EFA) != Some(0)
    }

    /// Where the GPUs stand.
    pub(in crate::lint) fn gpu_place(&self) -> Option<Span> {
        self.wanted(GPU).next().map(place)
    }

    /// Where the EFA interfaces stand.
    pub(in crate::lint) fn efa_place(&self) -> Option<Span> {
        self.wanted(EFA).next().map(place)
    }

    /// Whether devices come by claims, which say nothing here.
    pub(in crate::lint) fn claims(&self) -> bool {
        let tree = &self.submission.tree;
        self.pod.is_some_and(|it| tree.get(it.spec, "resourceClaims").is_some())
    }

    /// Whether several pods with GPUs work on one thing.
    pub(in crate::lint) fn is_multi_node(&self) -> bool {
        self.job.joint && self.job.pods > 1 && !self.job.single
    }

    /// Whether the network between pods matters: several nodes, or EFA asked for by a job that is not one pod.
    pub(in crate::lint) fn is_networked(&self) -> bool {
        self.is_multi_node() || (self.wants_efa() && !self.job.single)
    }

    /// The value of a variable of the pod.
    pub(in crate::lint) fn setting(&self, name: &str) -> Option<&str> {
        let own = |it: &&evidence::submission::Setting| {
            &*it.name == name
                && it.owner.and_then(|it| self.submission.owner(it)).is_some_and(|it| it.0.root == self.root)
        };
        self.submission.settings.iter().find(own)?.value.as_deref()
    }

    /// Labels and annotations of the object and of the pod template, by key.
    pub(in crate::lint) fn labels(&self) -> Vec<&str> {
        let tree = &self.submission.tree;
        let roots = [Some(self.root), self.pod.and_then(|it| it.template)];
        let lists = roots.into_iter().flatten().flat_map(|root| {
            ["labels", "annotations"].into_iter().filter_map(move |it| tree.at(root, &["metadata", it]))
        });
        lists.flat_map(|it| tree.entries(it)).filter_map(|it| tree.text(it.0)).collect()
    }
}

/// Name and quantity of a resource.
pub(in crate::lint) fn place(resource: &Resource) -> Span {
    let range = resource.key.range.start..resource.value.range.end.max(resource.key.range.end);
    Span { range, ..resource.key.clone() }
}

/// All that is asked for, in the order of the files.
pub(in crate::lint) fn asks<'a>(context: &Context<'a>) -> Vec<Ask<'a>> {
    let mut all = Vec::new();
    for (file, submission) in context.files.iter().enumerate() {
        for (index, workload) in submission.workloads.iter().enumerate() {
            let mut asks: Vec<Ask<'a>> = Vec::new();
            // What a trainer asks for is read below, with what its runtime and overrides say.
            for pod in workload.pods.iter().filter(|it| !it.partial) {
                asks.push(of_pod(context, (file, submission), workload, pod));
            }
            asks.extend(of_trainer(context, (file, submission), &workload.kind, workload.root));
            finish(submission, Some(index), &mut asks);
            all.extend(asks);
        }
        for Object { kind, root, .. } in &submission.objects {
            let mut asks = Vec::from_iter(of_trainer(context, (file, submission), kind, *root));
            finish(submission, None, &mut asks);
            all.extend(asks);
        }
    }
    all
}

fn of_pod<'a>(
    context: &Context<'a>,
    (file, submission): (usize, &'a Submission),
    workload: &'a Workload,
    pod: &'a Pod,
) -> Ask<'a> {
    let tree = &submission.tree;
    let containers = pod.containers.iter().map(|it| Wants {
        node: tree.get(it.node, "resources"),
        limits: it.limits.clone(),
        requests: it.requests.clone(),
    });
    let size = number(submission, workload.root, &["spec", "leaderWorkerTemplate", "size"]);
    // A group has one leader, with a template of its own or as one of the workers.
    let group = size.map(|it| match workload.pods.len() {
        0 | 1 => it,
        _ if pod.role.as_deref() == Some("leaderTemplate") => 1,
        _ => it.saturating_sub(1),
    });
    Ask {
        file,
        submission,
        kind: &workload.kind,
        root: workload.root,
        pod: Some(pod),
        containers: containers.collect(),
        types: named(pod),
        pods: group.or(pod.replicas).unwrap_or(1),
        job: Job::default(),
    }
    .or_given(context)
}

/// `spec.trainer` of a `TrainJob`, or a part of one in a note.
fn of_trainer<'a>(
    context: &Context<'a>,
    (file, submission): (usize, &'a Submission),
    kind: &'a str,
    root: NodeId,
) -> Option<Ask<'a>> {
    let tree = &submission.tree;
    let trainer = tree.at(root, &["spec", "trainer"]).or_else(|| tree.get(root, "trainer"))?;
    let node = tree.get(trainer, "resourcesPerNode")?;
    let list = |name: &str| {
        let entries = tree.get(node, name).map(|it| tree.entries(it)).unwrap_or_default();
        let resource = |(key, value): &(NodeId, NodeId)| {
            Some(Resource {
                name: tree.text(*key)?.into(),
                quantity: tree.text(*value).and_then(Quantity::parse),
                key: tree.node(*key).span.clone(),
                value: tree.node(*value).span.clone(),
            })
        };
        entries.iter().filter_map(resource).collect::<Vec<_>>()
    };
    let mut types = Types::default();
    let overrides = tree.at(root, &["spec", "podTemplateOverrides"]);
    for item in overrides.map(|it| tree.items(it)).unwrap_or_default() {
        for (key, value) in
            tree.at(*item, &["spec", "nodeSelector"]).map(|it| tree.entries(it)).unwrap_or_default()
        {
            if tree.text(*key).is_some_and(|it| it.ends_with("kubernetes.io/instance-type")) {
                tree.text(*value).into_iter().for_each(|it| types.add(it));
                types.place = Some(tree.node(*value).span.clone());
            }
        }
    }
    // The runtime may say it.
    let runtime = tree.at(root, &["spec", "runtimeRef", "name"]).and_then(|it| tree.text(it));
    if types.known.is_empty() && !types.unknown {
        let all = context.files.iter().flat_map(|it| &it.workloads);
        let mut runtimes =
            all.filter(|it| it.kind.ends_with("TrainingRuntime") && it.name.as_deref() == runtime);
        if let Some(found) = runtimes.find(|_| runtime.is_some()) {
            for pod in &found.pods {
                pod.instances().iter().for_each(|it| types.add(it.0));
            }
        }
    }
    let nodes = number(submission, trainer, &["numNodes"]);
    let ask = Ask {
        file,
        submission,
        kind: if kind.is_empty() { "TrainJob" } else { kind },
        root,
        pod: None,
        containers: vec![Wants { node: Some(node), limits: list("limits"), requests: list("requests") }],
        types,
        pods: nodes.unwrap_or(1),
        job: Job { single: nodes == Some(1), ..Job::default() },
    };
    Some(ask.or_given(context))
}

fn number(submission: &Submission, node: NodeId, path: &[&str]) -> Option<u64> {
    submission.tree.at(node, path).and_then(|it| submission.tree.integer(it))
}

/// The machines a pod is tied to.
fn named(pod: &Pod) -> Types {
    let mut types = Types::default();
    for (name, place) in pod.instances() {
        types.add(name);
        types.place = Some(place.clone());
    }
    types
}

impl Ask<'_> {
    /// What the command line says, where the file does not or leaves it to a template.
    fn or_given(mut self, context: &Context<'_>) -> Self {
        let given = context.given.instance.as_deref();
        if let (true, Some(given)) = (self.types.known.is_empty(), given.and_then(instance::find)) {
            self.types = Types { known: vec![given], place: None, unknown: false };
        }
        self
    }
}

/// What the pods of one object are together.
fn finish(submission: &Submission, workload: Option<usize>, asks: &mut [Ask<'_>]) {
    // A template without a machine goes where the others with GPUs go.
    let beside =
        asks.iter().find(|it| it.wants_gpus() && !it.types.known.is_empty()).map(|it| it.types.clone());
    if let Some(beside) = beside {
        for ask in
            asks.iter_mut().filter(|it| it.types.known.is_empty() && !it.types.unknown && it.wants_gpus())
        {
            ask.types = Types { place: None, ..beside.clone() };
        }
    }
    let Some(first) = asks.first() else { return };
    let nodes = nodes(submission, workload);
    let with_gpus = asks.iter().filter(|it| it.wants_gpus()).map(|it| it.pods);
    let pods = with_gpus.fold(0, u64::saturating_add).max(nodes.most);
    let batch =
        first.submission.tree.get(first.root, "apiVersion").and_then(|it| first.submission.tree.text(it));
    let volcano = batch.is_some_and(|it| it.contains("volcano"));
    // Pods of these are one job by their kind; of others if they ask for EFA; of services only if a command says so.
    let operators = [
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
    let services = ["Deployment", "ReplicaSet", "DaemonSet", "RayService"];
    let efa = asks.iter().any(Ask::wants_efa) && !services.contains(&first.kind);
    let joint = operators.contains(&first.kind) || volcano || nodes.joint || efa;
    let single = nodes.single || (asks.iter().any(|it| it.job.single) && !nodes.joint);
    let job = Job { pods, joint, single };
    for ask in asks.iter_mut() {
        ask.job = job;
    }
}

/// What commands and settings say of the number of nodes.
struct Nodes {
    most: u64,
    joint: bool,
    single: bool,
}

fn nodes(submission: &Submission, workload: Option<usize>) -> Nodes {
    let mut nodes = Nodes { most: 0, joint: false, single: false };
    let Some(workload) = workload else { return nodes };
    let mut say = |text: &str| match text.trim().parse::<u64>() {
        Ok(1) => nodes.single = true,
        Ok(number) => (nodes.most, nodes.joint) = (nodes.most.max(number), true),
        // `1:4`, `$NNODES`: more than one is meant.
        Err(_) => nodes.joint = true,
    };
    for launch in submission.launches.iter().filter(|it| it.owner.is_some_and(|it| it.workload == workload)) {
        match launch.launcher {
            Launcher::Torchrun => launch.value(&["--nnodes"]).into_iter().for_each(&mut say),
            Launcher::Accelerate => launch.value(&["--num-machines"]).into_iter().for_each(&mut say),
            Launcher::Mpirun | Launcher::Srun | Launcher::DeepSpeed | Launcher::NcclTests => {}
        }
    }
    let set = submission.settings.iter().filter(|it| it.owner.is_some_and(|it| it.workload == workload));
    for setting in set.filter(|it| matches!(&*it.name, "PET_NNODES" | "NNODES" | "NUM_NODES")) {
        setting.value.as_deref().into_iter().for_each(&mut say);
    }
    // Two words of one job that disagree prove nothing.
    nodes.single &= !nodes.joint;
    nodes
}

//! Jobs as they are submitted: from manifests and scripts to pods, nodes, launches, variables and releases.
//!
//! ```text
//! &[Submission] + Given -> Submitted: jobs -> pod templates -> containers
//!                                     launches and variables, each with the job, pod and container it belongs to
//! ```
//!
//! Everything that is looked up by name or by container is indexed once, so that all rules together take linear time.

mod index;
mod launch;
mod machines;
mod nodes;
mod pod;
mod releases;
mod variable;

pub use launch::SubmittedLaunch;
pub use machines::Machines;
pub use nodes::{NodeRange, Nodes};
pub use pod::{ContainerTemplate, Efa, GpuContainer, Gpus, PodTemplate};
pub use releases::SubmittedReleases;
pub use variable::SubmittedVariable;

use evidence::submission::{Count, Kind, Owner, Setting, Submission, Workload};
use evidence::yaml::NodeId;
use fabric::Version;
use fabric::catalogue::Model;
use fabric::gpu::GpuModel;

use index::FileIndex;

/// What the command line says beside the files.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Given {
    /// The release of NCCL.
    pub nccl: Option<Version>,
    /// The release of aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// The release of libfabric.
    pub libfabric: Option<Version>,
    /// The machine, where no file names it.
    pub instance: Option<&'static Model>,
    /// The model of the GPUs, where no file and no flag names the machine.
    pub gpu: Option<&'static GpuModel>,
}

/// All jobs of all files.
#[derive(Debug)]
pub struct Submitted<'a> {
    /// The files, in the order they were given.
    pub files: &'a [Submission],
    /// What the command line says.
    pub given: Given,
    /// The jobs, in the order of the files.
    pub jobs: Vec<SubmittedJob<'a>>,
    index: Vec<FileIndex<'a>>,
}

/// A Kubernetes object that carries pods, or a script.
#[derive(Debug)]
pub struct SubmittedJob<'a> {
    /// The file, by its position in [`Submitted::files`].
    pub file: usize,
    /// The file.
    pub submission: &'a Submission,
    /// The object; none for a script.
    pub workload: Option<&'a Workload>,
    /// `Pod`, `Job`, `PyTorchJob`, ...; empty for a script.
    pub kind: &'a str,
    /// The pods, one for each template.
    pub pods: Vec<PodTemplate<'a>>,
    /// How many nodes it runs on.
    pub nodes: Nodes,
    /// GPUs of each node, where all have the same number.
    pub gpus_per_node: Option<Count>,
    /// The machines its ranks run on.
    pub machines: Machines,
    /// Its position in [`Submission::workloads`].
    position: Option<usize>,
}

/// How many nodes and GPUs a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmittedSize {
    /// Nodes or pods.
    pub nodes: u64,
    /// GPUs of each.
    pub gpus_per_node: u64,
}

impl SubmittedSize {
    /// One per GPU.
    pub fn ranks(&self) -> u64 {
        self.nodes.saturating_mul(self.gpus_per_node)
    }
}

impl<'a> Submitted<'a> {
    /// Reads the jobs of these files.
    pub fn new(files: &'a [Submission], given: Given) -> Self {
        let runtimes = machines::Runtimes::of(files);
        let mut jobs = Vec::new();
        let mut index: Vec<FileIndex<'a>> = Vec::with_capacity(files.len());
        for (file, submission) in files.iter().enumerate() {
            let of_file = FileIndex::of(submission, &given, jobs.len());
            for (position, workload) in submission.workloads.iter().enumerate() {
                jobs.push(SubmittedJob::of_workload(
                    file, submission, position, workload, &of_file, &runtimes, &given,
                ));
            }
            let script =
                matches!(submission.kind, Kind::Sbatch | Kind::Script | Kind::Dockerfile | Kind::Environment);
            if script {
                jobs.push(SubmittedJob::of_script(file, submission, &of_file, &given));
            }
            index.push(of_file);
        }
        Self { files, given, jobs, index }
    }

    /// Every pod template with its job.
    pub fn pods(&self) -> impl Iterator<Item = (&SubmittedJob<'a>, &PodTemplate<'a>)> {
        self.jobs.iter().flat_map(|job| job.pods.iter().map(move |pod| (job, pod)))
    }

    /// Every container that has GPUs, of whatever vendor, in a known number.
    pub fn gpu_containers(&self) -> impl Iterator<Item = GpuContainer<'_>> {
        self.pods().flat_map(|(job, pod)| pod.gpu_containers(job))
    }

    /// Every command that starts ranks.
    pub fn launches(&self) -> impl Iterator<Item = SubmittedLaunch<'_>> {
        let of_file = move |(file, it): (usize, &'a Submission)| {
            (0..it.launches.len()).filter_map(move |position| SubmittedLaunch::new(self, file, position))
        };
        self.files.iter().enumerate().flat_map(of_file)
    }

    /// The commands of one container, or of one script.
    pub fn launches_of(
        &self,
        file: usize,
        owner: Option<Owner>,
    ) -> impl Iterator<Item = SubmittedLaunch<'_>> {
        let positions = self.index.get(file).map(|it| it.launches_of(owner)).unwrap_or_default();
        positions.iter().filter_map(move |position| SubmittedLaunch::new(self, file, *position))
    }

    /// Every environment variable that a program can see.
    pub fn variables(&self) -> impl Iterator<Item = SubmittedVariable<'_>> {
        self.settings().filter(SubmittedVariable::is_exported)
    }

    /// Every exported variable of one of these names.
    pub fn variables_named<'s>(
        &'s self,
        names: &'static [&'static str],
    ) -> impl Iterator<Item = SubmittedVariable<'s>> {
        self.variables().filter(move |it| names.contains(&it.name()))
    }

    /// Every assignment, whether a program can see it or not.
    pub fn settings(&self) -> impl Iterator<Item = SubmittedVariable<'_>> {
        let of_file = move |(file, it): (usize, &'a Submission)| {
            it.settings.iter().map(move |setting| SubmittedVariable::new(self, file, setting))
        };
        self.files.iter().enumerate().flat_map(of_file)
    }

    /// The assignments of a name in one container, or in one script.
    pub fn settings_of(
        &self,
        file: usize,
        owner: Option<Owner>,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &'a Setting> {
        let positions = self.index.get(file).map(|it| it.settings_of(owner, name)).unwrap_or_default();
        let settings = self.files.get(file).map(|it| it.settings.as_slice()).unwrap_or_default();
        positions.iter().filter_map(|position| settings.get(*position))
    }

    /// Whether anything in a file assigns a variable.
    pub fn is_set_in_file(&self, file: usize, name: &str) -> bool {
        self.index.get(file).is_some_and(|it| it.is_set(name))
    }

    /// The assignments of a name in all containers of a job, or in its script.
    pub fn settings_of_job(&self, job: &SubmittedJob<'a>, name: &str) -> impl Iterator<Item = &'a Setting> {
        let positions = self.index.get(job.file).map(|it| it.settings_of_workload(job.position, name));
        let settings = &job.submission.settings;
        positions.unwrap_or_default().iter().filter_map(|position| settings.get(*position))
    }

    /// The value of the first of them.
    pub fn setting_of_job(&self, job: &SubmittedJob<'a>, name: &str) -> Option<&'a str> {
        self.settings_of_job(job, name).next()?.value.as_deref()
    }

    /// The commands of a job.
    pub fn launches_of_job(&self, job: &SubmittedJob<'a>) -> impl Iterator<Item = SubmittedLaunch<'_>> {
        let (file, positions) =
            (job.file, self.index.get(job.file).map(|it| it.launches_of_workload(job.position)));
        positions.unwrap_or_default().iter().filter_map(move |it| SubmittedLaunch::new(self, file, *it))
    }

    /// The one job with GPUs of all files; none where there are several.
    pub fn only_job(&self) -> Option<&SubmittedJob<'a>> {
        let mut jobs = self.jobs.iter().filter(|it| it.has_gpus() || it.submission.kind == Kind::Sbatch);
        jobs.next().filter(|_| jobs.next().is_none())
    }

    /// The job that a container or a script belongs to.
    pub fn job_of(&self, file: usize, owner: Option<Owner>) -> Option<&SubmittedJob<'a>> {
        let index = self.index.get(file)?;
        let position = owner.map_or(index.script_job(), |it| index.first_job() + it.workload);
        self.jobs.get(position).filter(|it| it.file == file)
    }

    /// The releases in a container or a script.
    pub fn releases_of(&self, file: usize, owner: Option<Owner>) -> SubmittedReleases {
        self.index.get(file).map(|it| it.releases_of(owner, &self.given)).unwrap_or_default()
    }
}

impl<'a> SubmittedJob<'a> {
    fn of_workload(
        file: usize,
        submission: &'a Submission,
        position: usize,
        workload: &'a Workload,
        index: &FileIndex<'a>,
        runtimes: &machines::Runtimes<'a>,
        given: &Given,
    ) -> Self {
        let trainer = workload.pods.iter().any(|it| it.partial);
        let kind = if workload.kind.is_empty() && trainer { "TrainJob" } else { &*workload.kind };
        let mut pods: Vec<PodTemplate<'a>> =
            workload.pods.iter().map(|pod| PodTemplate::new(submission, workload, pod)).collect();
        let machines = runtimes.resolve(submission, workload, &mut pods, given);
        let nodes = nodes::of_workload(submission, position, workload, kind, &pods, index);
        let mut counts =
            pods.iter().filter(|it| it.works).flat_map(|it| &it.containers).filter_map(|it| it.gpus);
        let first = counts.next();
        let alike = counts.all(|it| Some(it.count) == first.map(|it| it.count));
        let gpus_per_node = first.filter(|_| alike).and_then(|it| it.counted());
        Self {
            file,
            submission,
            workload: Some(workload),
            kind,
            pods,
            nodes,
            gpus_per_node,
            machines,
            position: Some(position),
        }
    }

    fn of_script(file: usize, submission: &'a Submission, index: &FileIndex<'a>, given: &Given) -> Self {
        Self {
            file,
            submission,
            workload: None,
            kind: "",
            pods: Vec::new(),
            nodes: nodes::of_script(submission, index),
            gpus_per_node: submission.directives.gpus_per_node(),
            machines: Machines::given(given),
            position: None,
        }
    }

    /// The root of the object.
    pub fn root(&self) -> Option<NodeId> {
        self.workload.map(|it| it.root)
    }

    /// Whether any of its pods has GPUs.
    pub fn has_gpus(&self) -> bool {
        self.pods.iter().any(|it| it.gpus.is_some())
    }

    /// Whether any of its pods has EFA interfaces.
    pub fn has_efa(&self) -> bool {
        self.pods.iter().any(|it| it.efa.is_some())
    }

    /// How many nodes it runs on, where that is certain. A single pod is one node.
    pub fn node_count(&self) -> Option<u64> {
        let alone = || matches!(self.kind, "Pod" | "Job").then_some(1);
        self.nodes.stated.as_ref().map(|it| it.value).or_else(alone)
    }

    /// Nodes and GPUs, where both numbers are certain.
    pub fn size(&self) -> Option<SubmittedSize> {
        Some(SubmittedSize { nodes: self.node_count()?, gpus_per_node: self.gpus_per_node.as_ref()?.value })
    }

    /// The machine its ranks run on, where only one is possible.
    pub fn machine(&self) -> Option<&'static Model> {
        match self.machines.known.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Whether the network between pods matters: several nodes, or a pod with EFA in a job that may have more than one.
    pub fn is_networked(&self, pod: &PodTemplate<'_>) -> bool {
        self.nodes.is_multi() || (pod.efa.is_some() && !self.nodes.single)
    }

    /// Labels and annotations of the object and of a pod template, by key.
    pub fn labels(&self, pod: &PodTemplate<'_>) -> Vec<&'a str> {
        let tree = &self.submission.tree;
        let roots = [self.root(), pod.pod.template];
        let lists = roots.into_iter().flatten().flat_map(|root| {
            ["labels", "annotations"].into_iter().filter_map(move |it| tree.at(root, &["metadata", it]))
        });
        lists.flat_map(|it| tree.entries(it)).filter_map(|it| tree.text(it.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use evidence::submission::{Submission, Vendor};
    use fabric::catalogue;

    use super::{Given, Submitted, SubmittedSize};

    fn read(text: &str) -> [Submission; 1] {
        [Submission::read("job", text).unwrap()]
    }

    fn pod(limits: &str, requests: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - resources: {{limits: {{{limits}}}, requests: {{{requests}}}}}\n"
        )
    }

    #[test]
    fn gpus_of_a_pod() {
        let nvidia = |count| Some((Vendor::Nvidia, count));
        for (limits, requests, expected) in [
            ("nvidia.com/gpu: 8", "", nvidia(Some(8))),
            ("nvidia.com/gpus: 8", "", nvidia(Some(8))),
            ("nvidia.com/gpus: 8, nvidia.com/gpu: 4", "", nvidia(Some(4))),
            ("", "nvidia.com/gpu: 2", nvidia(Some(2))),
            ("nvidia.com/gpu: $GPUS", "", nvidia(None)),
            ("amd.com/gpu: 8", "", Some((Vendor::Amd, Some(8)))),
            ("nvidia.com/gpu: 0", "", None),
            ("nvidia.com/mig-1g.5gb: 1", "", None),
            ("cpu: 8", "", None),
        ] {
            let files = read(&pod(limits, requests));
            let submitted = Submitted::new(&files, Given::default());
            let gpus = submitted.jobs[0].pods[0].gpus;
            assert_eq!(gpus.map(|it| (it.vendor, it.count)), expected, "{limits}");
        }
    }

    fn mpijob(launcher: &str, worker: &str) -> String {
        format!(
            "kind: MPIJob\nspec:\n  mpiReplicaSpecs:\n    Launcher:\n      template:\n        spec:\n          {launcher}\n          containers: [{{resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          {worker}\n          containers: [{{resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]\n"
        )
    }

    #[test]
    fn the_launcher_of_an_mpijob_runs_no_ranks() {
        let files = read(&mpijob("", ""));
        let submitted = Submitted::new(&files, Given::default());
        let job = &submitted.jobs[0];
        assert_eq!((job.nodes.pods, job.node_count()), (2, Some(2)));
        let size = job.size().unwrap();
        assert_eq!((size, size.ranks()), (SubmittedSize { nodes: 2, gpus_per_node: 8 }, 16));
    }

    #[test]
    fn nodes_of_a_job() {
        let job = |fields: &str, command: &str| {
            format!(
                "kind: Job\nspec:\n  {fields}\n  template:\n    spec:\n      containers:\n      - command: [{command}]\n        resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
            )
        };
        let sbatch = |line: &str, command: &str| format!("#!/bin/sh\n#SBATCH {line}\n{command}\n");
        for (text, multi, several) in [
            (job("parallelism: 2", ""), false, Some(true)),
            (job("parallelism: 2", "torchrun, --nnodes=2, a.py"), true, Some(true)),
            (job("parallelism: 1", "a"), false, Some(false)),
            (job("completions: 1", ""), false, None),
            (job("completions: 1", "torchrun, --nnodes=1, a.py"), false, Some(false)),
            (job("completions: 1", "torchrun, '--nnodes=1:4', a.py"), false, None),
            (job("completions: 1", "torchrun, '--nnodes=2:4', a.py"), true, Some(true)),
            (job("completions: 1", "torchrun, --nnodes=$N, a.py"), false, None),
            (sbatch("-N 4", "srun -N 1 hostname"), true, Some(true)),
            (sbatch("-N 1", "NNODES=3\ntorchrun --nnodes=$NNODES a.py"), true, Some(true)),
            (sbatch("-p gpu", ""), false, None),
        ] {
            let files = read(&text);
            let submitted = Submitted::new(&files, Given::default());
            let nodes = &submitted.jobs[0].nodes;
            assert_eq!((nodes.is_multi(), nodes.several()), (multi, several), "{text}");
        }
    }

    #[test]
    fn machines_come_from_the_pod_then_its_job_then_the_command_line() {
        let on = |name: &str| format!("nodeSelector: {{node.kubernetes.io/instance-type: {name}}}");
        let given = Given { instance: catalogue::find("g5.48xlarge"), ..Given::default() };
        for (launcher, worker, expected) in [
            (on("p4d.24xlarge"), on("p5.48xlarge"), ["p4d.24xlarge", "p5.48xlarge"]),
            (String::new(), on("p5.48xlarge"), ["p5.48xlarge"; 2]),
            (String::new(), on("mine.large"), ["g5.48xlarge"; 2]),
            (String::new(), String::new(), ["g5.48xlarge"; 2]),
        ] {
            let files = read(&mpijob(&launcher, &worker));
            let submitted = Submitted::new(&files, given);
            let names: Vec<String> = submitted.jobs[0].pods.iter().map(|it| it.machines.names()).collect();
            assert_eq!(names, expected, "{launcher} {worker}");
        }
        let text = mpijob(&on("c5.large"), &on("p5.48xlarge")).replacen("nvidia.com/gpu: 1", "cpu: 1", 1);
        let files = read(&text);
        let submitted = Submitted::new(&files, Given::default());
        assert_eq!(submitted.jobs[0].pods[0].machines.names(), "p5.48xlarge");
    }

    #[test]
    fn a_launch_sees_the_variables_of_its_own_container() {
        let files = read(
            "#!/bin/sh\n#SBATCH -N 2 --gpus-per-node=8\nexport GPUS=4\nPORT=1\nsrun torchrun --nproc-per-node=$GPUS a.py\n",
        );
        let submitted = Submitted::new(&files, Given::default());
        let launches: Vec<_> = submitted.launches().collect();
        assert_eq!(launches[1].processes_per_node().unwrap().value, 4);
        assert_eq!(launches[1].gpus_per_node().unwrap().value, 8);
        let (outer, inner) = (launches[1].outer().unwrap(), launches[0].inner().unwrap());
        assert_eq!((outer.launch, inner.launch), (launches[0].launch, launches[1].launch));
        let exported: Vec<&str> = submitted.variables().map(|it| it.name()).collect();
        assert_eq!(exported, ["GPUS"]);
    }
}

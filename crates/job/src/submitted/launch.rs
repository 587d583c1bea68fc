//! A launch with the job, pod and container it belongs to.

use evidence::submission::{
    Container, Count, Kind, Launch, Launcher, OptionValue, Setting, Submission, Word,
};
use evidence::yaml::Span;

use super::{NodeRange, PodTemplate, Submitted, SubmittedJob};

/// A command that starts ranks, and what it starts them with.
#[derive(Debug, Clone, Copy)]
pub struct SubmittedLaunch<'s> {
    submitted: &'s Submitted<'s>,
    /// The file, by its position in [`Submitted::files`].
    pub file: usize,
    /// The file.
    pub submission: &'s Submission,
    /// The command.
    pub launch: &'s Launch,
    /// The job; none for a command in a file that is not a job.
    pub job: Option<&'s SubmittedJob<'s>>,
    /// The pod, in a manifest.
    pub pod: Option<&'s PodTemplate<'s>>,
    /// The container, in a manifest.
    pub container: Option<&'s Container>,
    position: usize,
}

impl<'s> SubmittedLaunch<'s> {
    pub(super) fn new(submitted: &'s Submitted<'s>, file: usize, position: usize) -> Option<Self> {
        let submission = submitted.files.get(file)?;
        let launch = submission.launches.get(position)?;
        let job = submitted.job_of(file, launch.owner);
        let pod = launch.owner.and_then(|it| job?.pods.get(it.pod));
        let container = launch.owner.and_then(|it| pod?.pod.containers.get(it.container));
        Some(Self { submitted, file, submission, launch, job, pod, container, position })
    }

    /// The program of nccl-tests that it starts, with the same surroundings.
    #[must_use]
    pub fn with<'t>(&self, launch: &'t Launch) -> SubmittedLaunch<'t>
    where
        's: 't,
    {
        SubmittedLaunch { launch, ..*self }
    }

    /// The launcher itself.
    pub fn span(&self) -> Span {
        self.submission.span(self.launch.words.first().map_or(0..0, |it| it.range.clone()))
    }

    /// A word of the command.
    pub fn word_span(&self, word: &Word) -> Span {
        self.submission.span(word.range.clone())
    }

    /// Whether it is in a manifest.
    pub fn in_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// The kind of its object; empty in a script.
    pub fn kind(&self) -> &'s str {
        self.job.map(|it| it.kind).unwrap_or_default()
    }

    /// The value of an option, where it is known: a variable of the same container or script is filled in.
    pub fn literal(&self, names: &[&str]) -> Option<&'s str> {
        self.known(self.launch.option(names)?)
    }

    fn known(&self, option: OptionValue<'s>) -> Option<&'s str> {
        self.submitted.index.get(self.file)?.literal(self.submission, self.launch.owner, option.text)
    }

    /// The value of an option as a number.
    pub fn count(&self, option: Option<OptionValue<'s>>) -> Option<Count> {
        let option = option?;
        Some(Count { value: self.known(option)?.parse().ok()?, span: self.word_span(option.word) })
    }

    /// A variable that the launch sees, if it has one value.
    pub fn setting(&self, name: &str) -> Option<&'s Setting> {
        let index = self.submitted.index.get(self.file)?;
        self.submission.settings.get(index.only_setting(self.submission, self.launch.owner, name)?)
    }

    /// A variable that is a number.
    pub fn setting_count(&self, name: &str) -> Option<Count> {
        let setting = self.setting(name)?;
        let value = setting.value.as_deref()?.trim().parse().ok()?;
        Some(Count { value, span: setting.value_span.clone().unwrap_or_else(|| setting.span.clone()) })
    }

    /// Whether a variable is set, to whatever.
    pub fn sets(&self, name: &str) -> bool {
        self.submitted.settings_of(self.file, self.launch.owner, name).next().is_some()
    }

    /// Whether options may come from elsewhere: `torchrun "${ARGS[@]}" train.py`, a `ConfigMap`, an operator.
    pub fn has_hidden_options(&self) -> bool {
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
        let script = !self.in_pod() && self.submission.kind != Kind::Sbatch;
        let operator =
            matches!(self.kind(), "PyTorchJob" | "TrainJob" | "TrainingRuntime" | "ClusterTrainingRuntime");
        variable || script || operator || self.container.is_some_and(|it| it.env_from)
    }

    /// The launch that starts this one: `srun` of `srun torchrun`.
    pub fn outer(&self) -> Option<Self> {
        Self::new(self.submitted, self.file, self.submitted.index.get(self.file)?.outer(self.position)?)
    }

    /// The launch that this one starts.
    pub fn inner(&self) -> Option<Self> {
        Self::new(self.submitted, self.file, self.submitted.index.get(self.file)?.inner(self.position)?)
    }

    /// The GPUs that one node of this launch has.
    pub fn gpus_per_node(&self) -> Option<Count> {
        let container = self.launch.owner.and_then(|it| self.pod?.containers.get(it.container));
        match container {
            Some(it) => it.gpus.and_then(|it| it.counted()).or_else(|| {
                // A launcher has none itself: those of its workers count.
                self.job.filter(|it| it.kind == "MPIJob")?.gpus_per_node.clone()
            }),
            None => self.job?.gpus_per_node.clone(),
        }
    }

    /// How many nodes the job has.
    pub fn job_nodes(&self) -> Option<Count> {
        self.job?.nodes.stated.clone()
    }

    /// How many nodes the command is for: its option, or for torchrun the variable in its place.
    pub fn nodes(&self) -> Option<NodeRange> {
        if let Some(option) = self.launch.nodes() {
            return NodeRange::read(self.known(option)?, self.word_span(option.word));
        }
        let setting = self.setting("PET_NNODES").filter(|_| self.launch.launcher == Launcher::Torchrun)?;
        let span = setting.value_span.clone().unwrap_or_else(|| setting.span.clone());
        NodeRange::read(setting.value.as_deref()?, span)
    }

    /// How many processes it starts on all nodes, where it says so.
    pub fn processes(&self) -> Option<Count> {
        self.count(self.launch.processes())
    }

    /// How many processes it starts on one node, where it says so.
    pub fn processes_per_node(&self) -> Option<Count> {
        let own = self.launch.processes_per_node();
        match self.launch.launcher {
            Launcher::Torchrun if own.is_none() => self.setting_count("PET_NPROC_PER_NODE"),
            // A count of its own changes what the script requests.
            Launcher::Srun if own.is_none() => match self.launch.processes().or(self.launch.nodes()) {
                Some(_) => None,
                None => self.submission.directives.number("ntasks-per-node"),
            },
            // A file of settings may say how many machines there are.
            Launcher::Accelerate if self.launch.has(&["--config_file"]) || self.has_hidden_options() => None,
            Launcher::Accelerate => {
                let all = self.processes()?;
                let machines = match self.launch.nodes() {
                    Some(_) => self.nodes()?.exact()?.value,
                    None if self.job_nodes().is_some_and(|it| it.value > 1) => return None,
                    None => 1,
                };
                let value = all.value.checked_div(machines).filter(|_| all.value % machines == 0)?;
                Some(Count { value, ..all })
            }
            _ => self.count(own),
        }
    }
}

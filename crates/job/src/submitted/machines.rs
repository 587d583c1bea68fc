//! The machines that pods can run on: named by selectors, by the job's other pods, by a runtime, or on the command line.

use std::collections::BTreeMap;

use evidence::submission::{InstanceName, Pod, Submission, Workload};
use evidence::yaml::Span;
use fabric::catalogue::{self, Model};

use super::{Given, PodTemplate};

/// Machines of the catalogue, one of which a pod gets.
#[derive(Debug, Clone, Default)]
pub struct Machines {
    /// Those the catalogue has.
    pub known: Vec<&'static Model>,
    /// Where they are named, if that is in the pod itself.
    pub span: Option<Span>,
    /// Whether the pod also names machines that the catalogue does not have.
    unknown: bool,
}

impl Machines {
    /// The machine of the command line, or all with its GPUs.
    pub(super) fn given(given: &Given) -> Self {
        let with_gpu = |it: &&'static Model| given.gpu.is_some_and(|gpu| it.gpu.name == gpu.name);
        let known = match given.instance {
            Some(model) => vec![model],
            None => catalogue::all().iter().filter(with_gpu).collect(),
        };
        Self { known, ..Self::default() }
    }

    /// The machines a pod is tied to by its own selectors.
    fn selected(pod: &Pod) -> Self {
        let mut machines = Self::default();
        for InstanceName { name, span } in pod.instances() {
            machines.add(name);
            machines.span = Some(span.clone());
        }
        machines
    }

    fn add(&mut self, name: &str) {
        match catalogue::find(name) {
            Some(model) => self.join(&[model]),
            None => self.unknown = true,
        }
    }

    fn join(&mut self, models: &[&'static Model]) {
        for model in models {
            if !self.known.contains(model) {
                self.known.push(model);
            }
        }
    }

    /// Whether every machine is known, and every one is like this; never without one.
    pub fn all(&self, like: impl Fn(&Model) -> bool) -> bool {
        !self.unknown && !self.known.is_empty() && self.known.iter().all(|it| like(it))
    }

    /// The one with most of something, if all are known.
    pub fn most(&self, of: impl Fn(&Model) -> u32) -> Option<&'static Model> {
        self.known.iter().copied().filter(|_| !self.unknown).max_by_key(|it| of(it))
    }

    /// `p4d.24xlarge`, or `p5.48xlarge and p5e.48xlarge`.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.known.iter().map(|it| it.name).collect();
        match names.as_slice() {
            // With `--gpu` there can be many.
            [first, second, _, _, ..] => format!("{first}, {second} and {} others", names.len() - 2),
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            _ => names.concat(),
        }
    }

    /// ` on p5.48xlarge`, for the end of a sentence; empty where none is known.
    pub fn on(&self) -> String {
        if self.known.is_empty() { String::new() } else { format!(" on {}", self.names()) }
    }
}

/// Training runtimes of all files by name: a `TrainJob` runs where its runtime says.
pub(super) struct Runtimes<'a>(BTreeMap<&'a str, &'a Workload>);

impl<'a> Runtimes<'a> {
    pub(super) fn of(files: &'a [Submission]) -> Self {
        let mut runtimes = BTreeMap::new();
        let all = files.iter().flat_map(|it| &it.workloads).filter(|it| it.kind.ends_with("TrainingRuntime"));
        for workload in all {
            if let Some(name) = workload.name.as_deref() {
                runtimes.entry(name).or_insert(workload);
            }
        }
        Self(runtimes)
    }

    /// Fills in the machines of every pod of a job, and returns those of its ranks.
    ///
    /// A pod's own selectors come first, then the runtime's, then those of the job's other pods, then the command line. A pod
    /// without GPUs in a job that has some only starts or serves the others: what it sets is for their machines.
    pub(super) fn resolve(
        &self,
        submission: &Submission,
        workload: &Workload,
        pods: &mut [PodTemplate<'_>],
        given: &Given,
    ) -> Machines {
        let tree = &submission.tree;
        let runtime = || {
            let name =
                tree.at(workload.root, &["spec", "runtimeRef", "name"]).and_then(|it| tree.text(it))?;
            self.0.get(name)
        };
        for pod in pods.iter_mut() {
            pod.machines = Machines::selected(pod.pod);
            if pod.pod.partial && pod.machines.known.is_empty() && !pod.machines.unknown {
                let names = runtime().into_iter().flat_map(|it| &it.pods).flat_map(Pod::instances);
                names.for_each(|it| pod.machines.add(it.name));
            }
        }
        let with_gpus = pods.iter().any(|it| it.gpus.is_some());
        let joined = |only_gpus: bool| {
            let mut all = Machines::default();
            for pod in pods.iter().filter(|it| !only_gpus || it.gpus.is_some()) {
                all.join(&pod.machines.known);
                all.unknown |= pod.machines.unknown && pod.gpus.is_some();
            }
            all
        };
        let mut ranks = joined(with_gpus);
        if ranks.known.is_empty() && !ranks.unknown {
            ranks = joined(false);
        }
        if ranks.known.is_empty() && (given.instance.is_some() || given.gpu.is_some()) {
            ranks = Machines::given(given);
        }
        for pod in pods.iter_mut() {
            let serves = with_gpus && pod.gpus.is_none();
            if serves || (pod.machines.known.is_empty() && !pod.machines.unknown) {
                pod.machines = ranks.clone();
            } else if pod.machines.known.is_empty() && (given.instance.is_some() || given.gpu.is_some()) {
                pod.machines = Machines::given(given);
            }
        }
        ranks
    }
}

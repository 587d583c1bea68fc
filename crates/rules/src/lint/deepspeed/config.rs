//! The DeepSpeed settings, and the job they are for.

use evidence::submission::{Kind, Submission};
use evidence::yaml::{NodeId, Span, Tree};
use fabric::catalogue::Model;
use job::submitted::Submitted;

/// The documentation of all settings.
pub(super) const REFERENCE: &str = "https://www.deepspeed.ai/docs/config-json/";

/// One DeepSpeed file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config<'a> {
    /// The index of the file.
    pub(super) file: usize,
    tree: &'a Tree,
    root: NodeId,
}

/// All DeepSpeed files.
pub(super) fn configs<'a>(submitted: &Submitted<'a>) -> Vec<Config<'a>> {
    let of_file = |(file, it): (usize, &'a Submission)| {
        let roots = it.tree.documents.iter().filter(move |_| it.kind == Kind::DeepSpeed);
        roots.map(move |root| Config { file, tree: &it.tree, root: *root })
    };
    submitted.files.iter().enumerate().flat_map(of_file).collect()
}

impl<'a> Config<'a> {
    /// The span of a setting: key and value.
    pub(super) fn span(&self, path: &[&str]) -> Option<Span> {
        let (last, way) = path.split_last()?;
        let (key, value) = self.tree.entry(self.tree.at(self.root, way)?, last)?;
        let key = &self.tree.node(key).span;
        let end = self.tree.node(value).span.range.end.max(key.range.end);
        Some(Span { range: key.range.start..end, ..key.clone() })
    }

    /// The span of a setting's name.
    pub(super) fn key(&self, path: &[&str]) -> Option<Span> {
        let (last, way) = path.split_last()?;
        let (key, _) = self.tree.entry(self.tree.at(self.root, way)?, last)?;
        Some(self.tree.node(key).span.clone())
    }

    /// A setting as it is written.
    pub(super) fn text(&self, path: &[&str]) -> Option<&'a str> {
        self.tree.text(self.tree.at(self.root, path)?)
    }

    /// A number: `500000000`, `5e8`.
    pub(super) fn number(&self, path: &[&str]) -> Option<f64> {
        self.text(path)?.trim().parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0)
    }

    /// A whole number.
    pub(super) fn integer(&self, path: &[&str]) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// A boolean.
    pub(super) fn bool(&self, path: &[&str]) -> Option<bool> {
        self.tree.bool(self.tree.at(self.root, path)?)
    }

    /// The stage of `ZeRO`.
    pub(super) fn stage(&self) -> Option<u64> {
        self.integer(&["zero_optimization", "stage"])
    }

    /// Every setting with the value `"auto"`, at most three levels deep as DeepSpeed has them.
    pub(super) fn autos(&self) -> Vec<(&'a str, Span)> {
        let mut autos = Vec::new();
        let mut open = vec![(self.root, 0)];
        while let Some((node, depth)) = open.pop() {
            for (key, value) in self.tree.entries(node).iter().rev() {
                if self.tree.text(*value) == Some("auto") {
                    let name = self.tree.text(*key).unwrap_or_default();
                    autos.push((name, self.tree.node(*key).span.clone()));
                } else if depth < 3 {
                    open.push((*value, depth + 1));
                }
            }
        }
        autos.sort_by_key(|it| it.1.range.start);
        autos
    }
}

/// The job of all files together, and the machine it runs on, if they name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrainingJob {
    /// Nodes or pods.
    pub(super) nodes: u64,
    /// GPUs per node or pod.
    pub(super) gpus: u64,
    /// The machine.
    pub(super) machine: Option<&'static Model>,
}

impl TrainingJob {
    /// The one job of all files.
    pub(super) fn of(submitted: &Submitted<'_>) -> Option<Self> {
        let job = submitted.only_job()?;
        let machine = match job.machines.known.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        Some(Self { nodes: job.node_count()?, gpus: job.gpus_per_node.as_ref()?.value, machine })
    }

    /// GPUs of all nodes.
    pub(super) fn world(&self) -> u64 {
        self.nodes.saturating_mul(self.gpus)
    }

    /// How long a collective takes, in microseconds.
    pub(super) fn time(&self, collective: fabric::Collective, bytes: u64) -> Option<f64> {
        let nodes = u32::try_from(self.nodes).ok()?;
        let cluster =
            forecast::Cluster::of_machine(&self.machine?.machine(), nodes, &nccl::Settings::default())
                .ok()?;
        let cluster = cluster.with_pods(1, u32::try_from(self.gpus).ok()?).ok()?;
        Some(forecast::normal(collective, &cluster, bytes)?.time)
    }
}

#[cfg(test)]
pub(super) mod testing {
    use crate::lint::testing::{check, files};
    use crate::lint::{Given, Submitted};
    use crate::{Finding, Rule};

    /// A job of nodes with eight GPUs each.
    pub(crate) fn job(nodes: u64, instance: &str) -> String {
        format!(
            "kind: JobSet\nspec:\n  replicatedJobs:\n  - name: w\n    template:\n      spec:\n        parallelism: {nodes}\n        template:\n          spec:\n            nodeSelector: {{node.kubernetes.io/instance-type: {instance}}}\n            containers:\n            - command: [torchrun, --nproc-per-node=8, t.py]\n              resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }

    /// The findings of a rule for settings and a job.
    pub(crate) fn beside(rule: &Rule, settings: &str, job: &str) -> Vec<Finding> {
        let files = files(&[("ds.json", settings), ("job.yaml", job)]);
        check(rule, &Submitted::new(&files, Given::default()))
    }
}

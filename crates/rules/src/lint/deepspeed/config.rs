//! The DeepSpeed settings, and how long the job they are for communicates.

use evidence::submission::{Kind, Submission};
use evidence::yaml::{NodeId, Span, Tree};
use job::submitted::{Submitted, SubmittedJob};

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

/// How long a collective of all ranks of a job takes, in microseconds.
pub(super) fn time(job: &SubmittedJob<'_>, collective: fabric::Collective, bytes: u64) -> Option<f64> {
    let size = job.size()?;
    let nodes = u32::try_from(size.nodes).ok()?;
    let machine = job.machine()?.machine();
    let cluster = forecast::Cluster::of_machine(&machine, nodes, &nccl::Settings::default()).ok()?;
    let cluster = cluster.with_pods(1, u32::try_from(size.gpus_per_node).ok()?).ok()?;
    Some(forecast::normal(collective, &cluster, bytes)?.time)
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

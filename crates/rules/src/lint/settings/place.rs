//! A variable with what stands around it.

use std::ops::Range;

use evidence::submission::{Kind, Launcher, Pod, Setting, Submission, Workload, Written};
use fabric::instance::Instance;
use fabric::settings::c_integer;

use super::versions::Versions;
use crate::lint::Context;

/// A variable and where it is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    context: Context<'a>,
    /// The number of the file.
    pub(super) file: usize,
    /// The variable.
    pub(super) setting: &'a Setting,
}

/// All variables of these names.
pub(super) fn named<'a>(
    context: &Context<'a>,
    names: &'static [&'static str],
) -> impl Iterator<Item = Place<'a>> {
    all(context).filter(move |it| names.contains(&it.name()))
}

/// All variables of all files.
pub(super) fn all<'a>(context: &Context<'a>) -> impl Iterator<Item = Place<'a>> {
    let context = *context;
    context
        .files
        .iter()
        .enumerate()
        .flat_map(move |(file, submission)| {
            submission.settings.iter().map(move |setting| Place { context, file, setting })
        })
        .filter(Place::exported)
}

impl<'a> Place<'a> {
    /// Its name.
    pub(super) fn name(&self) -> &'a str {
        &self.setting.name
    }

    /// Its value, where it is literal: what Kubernetes, envsubst or a template fills in is not known.
    pub(super) fn value(&self) -> Option<&'a str> {
        let filled =
            |it: &str| it.starts_with('$') || ["$(", "${", "{{"].iter().any(|sign| it.contains(sign));
        self.setting.value.as_deref().filter(|it| !filled(it))
    }

    /// Its value as NCCL reads numbers.
    pub(super) fn number(&self) -> Option<i64> {
        self.value().and_then(number).map(|it| it.0)
    }

    /// Whether a program can see it: a line of a script that only assigns sets a variable of that script.
    fn exported(&self) -> bool {
        let (text, range) = (&*self.submission().text, &self.setting.span.range);
        if self.setting.written != Written::Command || self.submission().kind == Kind::Environment {
            return true;
        }
        let before = text.get(..range.start).unwrap_or_default();
        let after = text.get(range.end..).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let begins = line.trim().is_empty() && !before.trim_end().ends_with('\\');
        let ends = after.trim_start_matches([' ', '\t', '\r', '"', '\'']);
        let ends = ends.is_empty() || ends.starts_with(['\n', ';', '#', '&']);
        !(begins && ends) || text.contains(&format!("export {}", self.name()))
    }

    /// The file.
    pub(super) fn submission(&self) -> &'a Submission {
        &self.context.files[self.file]
    }

    fn owner(&self) -> Option<(&'a Workload, &'a Pod)> {
        self.setting.owner.and_then(|it| self.submission().owner(it)).map(|it| (it.0, it.1))
    }

    /// The pod it is set in.
    pub(super) fn pod(&self) -> Option<&'a Pod> {
        self.owner().map(|it| it.1)
    }

    /// The instance types it can run on, as far as they are known.
    pub(super) fn instances(&self) -> Vec<&'static Instance> {
        match self.owner() {
            Some((workload, pod)) => self.context.instances(workload, pod),
            None => {
                let given = self.context.given.instance.as_deref();
                given.and_then(fabric::instance::find).into_iter().collect()
            }
        }
    }

    /// Whether every type it can run on is known to be so; never without a type.
    pub(super) fn everywhere(&self, is: impl Fn(&Instance) -> bool) -> bool {
        let all = self.instances();
        !all.is_empty() && all.into_iter().all(is)
    }

    /// The types, for a message: ` on p5.48xlarge`; empty where none is known.
    pub(super) fn on(&self) -> String {
        let names: Vec<&str> = self.instances().into_iter().map(|it| it.name.as_str()).collect();
        if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) }
    }

    /// The releases it runs with.
    pub(super) fn versions(&self) -> Versions {
        Versions::of(self.context.given, self.submission(), self.setting.owner)
    }

    /// How many GPUs its pod asks for.
    pub(super) fn gpus(&self) -> Option<f64> {
        self.pod()?.limit("nvidia.com/gpu")
    }

    /// Whether the pod asks for EFA.
    pub(super) fn asks_for_efa(&self) -> bool {
        let asks = |pod: &Pod| pod.limit("vpc.amazonaws.com/efa").is_some_and(|it| it > 0.0);
        // A launcher sets variables for the workers beside it.
        self.owner().is_some_and(|(workload, _)| workload.pods.iter().any(asks))
    }

    /// Whether it is about EFA: the job asks for it, runs where it is, or sets up libfabric for it.
    pub(super) fn efa(&self) -> bool {
        let same = |it: &&Setting| it.owner == self.setting.owner;
        let speaks = |it: &Setting| {
            it.name.starts_with("FI_EFA_")
                || (&*it.name == "FI_PROVIDER" && it.value.as_deref() == Some("efa"))
        };
        self.asks_for_efa()
            || self.everywhere(Instance::efa)
            || self.submission().settings.iter().filter(same).any(speaks)
    }

    /// Whether the job runs on several nodes, where the files tell; none where they do not.
    pub(super) fn several_nodes(&self) -> Option<bool> {
        let submission = self.submission();
        let launches = submission
            .launches
            .iter()
            .filter(|it| it.owner.map(|it| it.workload) == self.setting.owner.map(|it| it.workload));
        let mut known = None;
        for launch in launches {
            let nodes = match launch.launcher {
                Launcher::Torchrun => launch.value(&["--nnodes"]),
                Launcher::Srun => launch.value(&["-N", "--nodes"]),
                Launcher::DeepSpeed => launch.value(&["--num_nodes"]),
                Launcher::Accelerate => launch.value(&["--num_machines"]),
                Launcher::Mpirun | Launcher::NcclTests => None,
            };
            // `2:4` is at least two.
            let nodes = nodes.and_then(|it| it.split(':').next()).and_then(|it| it.parse::<u64>().ok());
            known = known.max(nodes);
        }
        let pods = self.owner().map(|(workload, _)| workload.pods.as_slice()).unwrap_or_default();
        let with_gpus = || pods.iter().filter(|it| it.limit("nvidia.com/gpu").is_some());
        if with_gpus().count() > 0 && with_gpus().all(|it| it.replicas.is_some()) {
            known = known.max(Some(with_gpus().filter_map(|it| it.replicas).fold(0, u64::saturating_add)));
        }
        let sbatch = submission.text.lines().filter_map(|it| it.trim().strip_prefix("#SBATCH "));
        for line in sbatch {
            let mut words = line.split([' ', '=']).filter(|it| !it.is_empty());
            let option = words.next().unwrap_or_default();
            if let ("-N" | "--nodes", Some(Ok(nodes))) = (option, words.next().map(str::parse::<u64>)) {
                known = known.max(Some(nodes));
            }
        }
        known.map(|it| it > 1)
    }

    /// The bytes of the whole entry with its line, where nothing else stands on it.
    pub(super) fn removal(&self) -> Option<Range<usize>> {
        let text = &*self.submission().text;
        let range = self.setting.span.range.clone();
        if self.setting.written != Written::Env {
            return None;
        }
        let line_start = text.get(..range.start)?.rfind('\n').map_or(0, |it| it + 1);
        let dash = text.get(line_start..range.start)?.trim();
        // `- name: X` in block style; the last item of a list must stay, a list needs one.
        if dash != "-" {
            return None;
        }
        let indent = text.get(line_start..range.start)?.find('-')?;
        let mut end = text.get(range.start..)?.find('\n').map_or(text.len(), |it| range.start + it + 1);
        // All lines that are further in belong to the entry.
        while let Some(line) = text.get(end..).filter(|it| !it.is_empty()) {
            let line = line.split_inclusive('\n').next().unwrap_or_default();
            let inner = line.len() - line.trim_start_matches(' ').len();
            if line.trim().is_empty() || inner <= indent {
                break;
            }
            end += line.len();
        }
        let siblings = self.submission().settings.iter();
        let siblings = siblings.filter(|it| it.owner == self.setting.owner && it.written == Written::Env);
        (siblings.count() > 1).then_some(line_start..end)
    }
}

/// What `strtoll` with base 0 makes of a text: the number, and whether all of the text was read. None for no text at all.
pub(super) fn number(text: &str) -> Option<(i64, bool)> {
    let read = c_integer(text);
    (!text.trim_start().is_empty()).then_some((read.value, read.whole))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, want) in [
            ("1", Some((1, true))),
            (" -2", Some((-2, true))),
            ("0x10", Some((16, true))),
            ("010", Some((8, true))),
            ("0", Some((0, true))),
            ("true", Some((0, false))),
            ("8M", Some((8, false))),
            ("99999999999999999999", Some((i64::MAX, true))),
            ("-", Some((0, false))),
            ("", None),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
    }
}

//! An environment variable with the job, pod and container it is set for.

use std::ops::Range;

use evidence::submission::{Kind, Setting, Submission, Written};
use fabric::catalogue::Model;
use fabric::settings::c_integer;

use super::{Machines, PodTemplate, Submitted, SubmittedJob, SubmittedReleases};

/// A variable and where it is set.
#[derive(Debug, Clone, Copy)]
pub struct SubmittedVariable<'s> {
    submitted: &'s Submitted<'s>,
    /// The file, by its position in [`Submitted::files`].
    pub file: usize,
    /// The file.
    pub submission: &'s Submission,
    /// The variable, with its positions.
    pub setting: &'s Setting,
    /// The job.
    pub job: Option<&'s SubmittedJob<'s>>,
    /// The pod, in a manifest.
    pub pod: Option<&'s PodTemplate<'s>>,
}

impl<'s> SubmittedVariable<'s> {
    pub(super) fn new(submitted: &'s Submitted<'s>, file: usize, setting: &'s Setting) -> Self {
        let job = submitted.job_of(file, setting.owner);
        let pod = setting.owner.and_then(|it| job?.pods.get(it.pod));
        Self { submitted, file, submission: &submitted.files[file], setting, job, pod }
    }

    /// `NCCL_DEBUG`
    pub fn name(&self) -> &'s str {
        &self.setting.name
    }

    /// Its value, where it is literal: what Kubernetes, envsubst or a template fills in is not known.
    pub fn value(&self) -> Option<&'s str> {
        let filled =
            |it: &str| it.starts_with('$') || ["$(", "${", "{{"].iter().any(|sign| it.contains(sign));
        self.setting.value.as_deref().filter(|it| !filled(it))
    }

    /// Its value as NCCL reads numbers.
    pub fn number(&self) -> Option<i64> {
        self.value().filter(|it| !it.trim().is_empty()).map(|it| c_integer(it).value)
    }

    /// Whether a program can see it: a line of a script that only assigns sets a variable of that script.
    pub fn is_exported(&self) -> bool {
        let (text, range) = (&*self.submission.text, &self.setting.span.range);
        if self.setting.written != Written::Command || self.submission.kind == Kind::Environment {
            return true;
        }
        let before = text.get(..range.start).unwrap_or_default();
        let after = text.get(range.end..).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let begins = line.trim().is_empty() && !before.trim_end().ends_with('\\');
        let ends = after.trim_start_matches([' ', '\t', '\r', '"', '\'']);
        let ends = ends.is_empty() || ends.starts_with(['\n', ';', '#', '&']);
        !(begins && ends) || self.submitted.index.get(self.file).is_some_and(|it| it.is_exported(self.name()))
    }

    /// The machines it is set for.
    pub fn machines(&self) -> Option<&'s Machines> {
        self.pod.map(|it| &it.machines).or_else(|| self.job.map(|it| &it.machines))
    }

    /// Whether every machine it is set for is known to be so; never without one.
    pub fn everywhere(&self, is: impl Fn(&Model) -> bool) -> bool {
        self.machines().is_some_and(|it| it.all(is))
    }

    /// The machines, for the end of a sentence: ` on p5.48xlarge`.
    pub fn on(&self) -> String {
        self.machines().map(Machines::on).unwrap_or_default()
    }

    /// The releases it is set for.
    pub fn releases(&self) -> SubmittedReleases {
        self.submitted.releases_of(self.file, self.setting.owner)
    }

    /// How many GPUs its pod has.
    pub fn gpus(&self) -> Option<u64> {
        self.pod?.gpus?.count
    }

    /// Whether the job has EFA interfaces: a launcher sets variables for the workers beside it.
    pub fn has_efa(&self) -> bool {
        self.job.is_some_and(SubmittedJob::has_efa)
    }

    /// Whether it is about EFA: the job has it, its machines do, or its variables set libfabric up for it.
    pub fn is_about_efa(&self) -> bool {
        let index = self.submitted.index.get(self.file);
        self.has_efa()
            || self.everywhere(Model::efa)
            || index.is_some_and(|it| it.sets_up_efa(self.setting.owner))
    }

    /// Whether the job runs on several nodes; none where the files do not say.
    pub fn several_nodes(&self) -> Option<bool> {
        self.job?.nodes.several()
    }

    /// The bytes of the whole entry with its line, where nothing else is on it.
    pub fn removal(&self) -> Option<Range<usize>> {
        let text = &*self.submission.text;
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
        let entries = self.submitted.index.get(self.file)?.env_entries(self.setting.owner);
        (entries > 1).then_some(line_start..end)
    }
}

//! Rules that read what is submitted, before it runs: manifests, scripts, settings.
//!
//! A rule reads all files together ([`Context`]). Its findings have spans of one file and, where a change is safe without asking
//! anyone, the edits that repair it. Suppressed findings are removed here, once for all rules.

pub(crate) mod cluster;
pub(crate) mod deepspeed;
pub(crate) mod devices;
pub(crate) mod document;
pub(crate) mod launch;
pub(crate) mod pod;
pub(crate) mod settings;
pub(crate) mod silence;

#[cfg(test)]
pub(crate) mod testing;

use evidence::submission::{Pod, Submission, Workload};
use fabric::Version;
use fabric::instance::{self, Instance};

use crate::{Edit, Found, all};

pub use settings::{Action, Recommendation, recommend};

/// All that is known.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The files, in the order they were given.
    pub files: &'a [Submission],
    /// What was said on the command line.
    pub given: &'a Given,
}

impl<'a> Context<'a> {
    /// All pods, with the file, the workload and the pod.
    pub fn pods(&self) -> impl Iterator<Item = (usize, &'a Workload, &'a Pod)> {
        self.files
            .iter()
            .enumerate()
            .flat_map(|(at, file)| file.pods().map(move |(workload, pod)| (at, workload, pod)))
    }

    /// The instance types a pod can run on, as far as its selectors, its job's other pods or the command line tell. Types that plumb does
    /// not know are left out.
    pub fn instances(&self, workload: &Workload, pod: &Pod) -> Vec<&'static Instance> {
        let named =
            |pod: &Pod| pod.instances().iter().filter_map(|it| instance::find(it.0)).collect::<Vec<_>>();
        let own = named(pod);
        if !own.is_empty() {
            return own;
        }
        let beside: Vec<&'static Instance> = workload.pods.iter().flat_map(named).collect();
        if !beside.is_empty() {
            return beside;
        }
        self.given.instance.as_deref().and_then(instance::find).into_iter().collect()
    }
}

/// What a person says beside the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The release of NCCL.
    pub nccl: Option<Version>,
    /// The release of aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// The release of libfabric.
    pub libfabric: Option<Version>,
    /// The instance type, where no file names it.
    pub instance: Option<String>,
}

/// Runs every rule over the files, removes what is suppressed, and sorts by file and place.
pub fn lint(files: &[Submission], given: &Given) -> Vec<Found> {
    let context = Context { files, given };
    let mut found: Vec<Found> = Vec::new();
    for rule in all() {
        let Some(Ok(findings)) = rule.submission().map(|check| check(&context)) else { continue };
        found.extend(findings.into_iter().map(|finding| Found { rule, finding }));
    }
    let mut found = silence::apply(files, found);
    let key = |it: &Found| (it.finding.file(), it.finding.start(), it.rule.id);
    found.sort_by_key(key);
    found.dedup_by(|a, b| key(a) == key(b) && a.finding.message == b.finding.message);
    found
}

/// Applies the safe edits of one file. Where two overlap, the first counts; a second run finds the rest.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|it| (it.range.start, it.range.end));
    edits.dedup();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        let inside =
            edit.range.start >= at && edit.range.end <= text.len() && edit.range.start <= edit.range.end;
        let Some(before) = text.get(at..edit.range.start).filter(|_| inside) else { continue };
        out.push_str(before);
        out.push_str(&edit.text);
        at = edit.range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::{Edit, apply};

    #[test]
    fn edits_that_overlap_are_not_mixed() {
        let edit = |range, text: &str| Edit { range, text: text.to_owned() };
        let text = "abcdef";
        assert_eq!(
            apply(text, &[edit(4..5, "E"), edit(1..3, "X"), edit(2..4, "Y"), edit(6..6, "!")]),
            "aXdEf!"
        );
        assert_eq!(apply(text, &[edit(9..12, "?")]), text);
    }
}

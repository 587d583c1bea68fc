//! Rules for files that are about to be submitted: manifests, scripts, settings.
//!
//! A rule reads all files together ([`Submitted`]). Its findings have spans of one file and, where a change is always safe, the edits
//! that fix it. Suppressed findings are removed here, once for all rules.

pub(crate) mod cluster;
pub(crate) mod deepspeed;
pub(crate) mod devices;
pub(crate) mod document;
pub(crate) mod launch;
pub(crate) mod pod;
pub(crate) mod settings;
pub(crate) mod suppression;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;

use evidence::submission::Submission;
use serde_json::Value;

use crate::training::of_submitted;
use crate::{Edit, Finding, Found, Rule, all};

pub use job::submitted::{Given, Submitted};
pub use settings::{Objection, objections};

/// The same as [`lint`], with the training job that a file submits, as the tables of a job file: findings say what they cost in every
/// step. It is asked for once for each file that has such a finding.
pub fn lint_training(
    files: &[Submission],
    given: &Given,
    mut training: impl FnMut(Option<&Submission>) -> Value,
) -> Vec<Found> {
    let mut found = lint(files, given);
    let mut jobs: BTreeMap<Option<usize>, Value> = BTreeMap::new();
    for Found { finding, .. } in &mut found {
        let Some(slower) = finding.slower else { continue };
        let file = finding.file();
        let job = jobs.entry(file).or_insert_with(|| training(file.and_then(|it| files.get(it))));
        finding.price = of_submitted(job, &slower);
    }
    found
}

/// Runs every rule over the files, removes what is suppressed, and sorts by file and place.
pub fn lint(files: &[Submission], given: &Given) -> Vec<Found> {
    let submitted = Submitted::new(files, *given);
    let mut found: Vec<Found> = Vec::new();
    for rule in all() {
        found.extend(findings(rule, &submitted).into_iter().map(|finding| Found { rule, finding }));
    }
    let mut found = suppression::apply(files, found);
    let key = |it: &Found| (it.finding.file(), it.finding.start(), it.rule.id);
    found.sort_by_key(key);
    found.dedup_by(|a, b| key(a) == key(b) && a.finding.message == b.finding.message);
    found
}

/// The findings of one rule; empty if it is not about submitted files.
pub(crate) fn findings(rule: &Rule, submitted: &Submitted<'_>) -> Vec<Finding> {
    let checked = rule.submission().map_or_else(|| Ok(Vec::new()), |check| check(submitted));
    // The files are all that these rules read, and `plumb lint` has no list of unchecked rules.
    debug_assert!(checked.is_ok(), "{} was not checked: {checked:?}", rule.id);
    checked.unwrap_or_default()
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
    use std::collections::BTreeSet;

    use evidence::submission::Submission;

    use super::{Edit, Given, Submitted, apply, findings, lint};
    use crate::{Check, Rule};

    /// A job with something for most families of rules to object to.
    fn job(gpu: &str) -> String {
        format!(
            "kind: PyTorchJob\nmetadata: {{name: a}}\nspec:\n  nprocPerNode: 4\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 4\n      template:\n        spec:\n\
             \x20         hostIPC: true\n          hostNetwork: true\n          hostPID: true\n          nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}\n\
             \x20         containers:\n          - name: pytorch\n            image: train:latest\n            securityContext: {{privileged: true}}\n            command: [torchrun, --nproc-per-node=4, --nnodes=2, train.py]\n\
             \x20           env:\n            - {{name: NCCL_P2P_DISABLE, value: \"1\"}}\n            - {{name: NCCL_SOCKET_IFNAME, value: lo}}\n            - {{name: WORLD_SIZE, value: \"5\"}}\n\
             \x20           resources:\n              limits: {{{gpu}: 2, vpc.amazonaws.com/efa: 16}}\n"
        )
    }

    fn ids(text: &str) -> BTreeSet<&'static str> {
        let file = Submission::read("job.yaml", text).unwrap();
        lint(&[file], &Given::default()).into_iter().map(|it| it.rule.id).collect()
    }

    #[test]
    fn all_rules_agree_that_a_misspelt_name_means_gpus() {
        let mut expected = ids(&job("nvidia.com/gpu"));
        assert!(expected.len() > 10, "{expected:?}");
        expected.insert("resource-misspelt");
        for name in ["nvidia.com/gpus", "nvidia.com"] {
            assert_eq!(ids(&job(name)), expected, "{name}");
        }
    }

    #[test]
    fn gpus_of_another_vendor_are_gpus_and_not_nvidias() {
        let (nvidia, amd) = (ids(&job("nvidia.com/gpu")), ids(&job("amd.com/gpu")));
        assert!(amd.is_subset(&nvidia), "{amd:?}");
        let silent: Vec<&str> = nvidia.difference(&amd).copied().collect();
        assert_eq!(
            silent,
            ["efa-count-wasteful", "hugepages-missing", "one-gpu-pods", "partial-node-affinity"]
        );
        let mut misspelt = amd.clone();
        misspelt.insert("resource-misspelt");
        assert_eq!(ids(&job("amd.com/gpus")), misspelt);
    }

    #[test]
    fn every_rule_is_checked_without_files() {
        assert!(lint(&[], &Given::default()).is_empty());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "forced-choice was not checked")]
    fn a_rule_that_was_not_checked_is_not_silent() {
        static MISSING: &[Check] =
            &[Check::Submission(|_| Err(evidence::Missing(evidence::Source::NcclLog)))];
        let known = crate::all().iter().find(|it| it.id == "forced-choice").unwrap();
        let rule = Rule { checks: MISSING, ..**known };
        findings(&rule, &Submitted::new(&[], Given::default()));
    }

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

//! The findings of these rules by variable, for `plumb env`.

use evidence::submission::{Setting, Submission};

use super::RULES;
use crate::lint::{Given, Submitted, findings};

/// A variable that a job sets and should not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The variable.
    pub name: String,
    /// The value it has now.
    pub value: Option<String>,
    /// The value it should have instead; none where it should not be set.
    pub instead: Option<String>,
    /// What is wrong with it, in a sentence.
    pub reason: String,
    /// The source of the reason.
    pub source: String,
}

/// One objection per variable: that of the first rule with a finding about it.
pub fn objections(files: &[Submission], given: &Given) -> Vec<Objection> {
    let submitted = Submitted::new(files, *given);
    let mut all: Vec<Objection> = Vec::new();
    // A secret is not repeated, and the job needs it; of a duplicate, one has to stay.
    for rule in RULES.iter().filter(|it| !matches!(it.id, "secret-in-env" | "duplicate-variable")) {
        for finding in findings(rule, &submitted) {
            let Some((file, start)) = finding.file().zip(finding.start()) else { continue };
            let settings = files.get(file).map(|it| it.settings.as_slice()).unwrap_or_default();
            let at = |it: &&Setting| {
                let range = &it.span.range;
                range.start <= start && start < range.end.max(range.start + 1)
            };
            // Nested entries begin later: take the innermost.
            let Some(setting) = settings.iter().filter(at).max_by_key(|it| it.span.range.start) else {
                continue;
            };
            if all.iter().any(|it| *it.name == *setting.name) {
                continue;
            }
            all.push(Objection {
                name: setting.name.to_string(),
                value: setting.value.as_ref().map(ToString::to_string),
                instead: finding.instead.clone(),
                reason: format!("{}.", finding.reason.unwrap_or(finding.message).trim_end_matches('.')),
                source: rule.references.first().copied().unwrap_or_default().to_owned(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::objections;
    use crate::lint::Given;
    use crate::lint::settings::testing::job;
    use crate::lint::testing::files;

    #[test]
    fn what_the_job_should_not_set() {
        let text = job(
            "p4d.24xlarge",
            2,
            &[("NCCL_TOPO_FILE", ""), ("NCCL_DEBUG", "INFO"), ("NCCL_P2P_DIRECT_READ", "0")],
        );
        let all = objections(&files(&[("job.yaml", &text)]), &Given::default());
        let mut names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["NCCL_P2P_DIRECT_READ", "NCCL_TOPO_FILE"]);
        assert!(all.iter().all(|it| it.reason.ends_with('.') && !it.source.is_empty()), "{all:#?}");
    }

    #[test]
    fn a_value_that_should_be_another() {
        let all = objections(
            &files(&[("job.yaml", &job("p4d.24xlarge", 2, &[("NCCL_SOCKET_IFNAME", "^docker0")]))]),
            &Given::default(),
        );
        assert_eq!(all[0].instead.as_deref(), Some("^lo,docker0"));
    }

    #[test]
    fn a_reason_does_not_repeat_the_assignment() {
        let env = [("CUDA_LAUNCH_BLOCKING", "1"), ("NCCL_PROTO", "simple"), ("FI_PROVIDER", "efa")];
        let all = objections(&files(&[("job.yaml", &job("g6e.48xlarge", 2, &env))]), &Given::default());
        let begins = |name: &str, words: &str| {
            assert!(all.iter().any(|it| it.name == name && it.reason.starts_with(words)), "{name}: {all:#?}");
        };
        begins("CUDA_LAUNCH_BLOCKING", "Every kernel waits");
        begins("NCCL_PROTO", "aws-ofi-nccl 1.6.0 and newer set it");
        begins("FI_PROVIDER", "Not needed");
    }
}

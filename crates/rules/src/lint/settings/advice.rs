//! The environment for an instance type and releases: what to set, to leave alone and to remove. Mostly short.

use evidence::submission::Submission;
use fabric::instance::Instance;
use fabric::{Version, variable};

use super::RULES;
use crate::lint::{Given, Submitted};

/// What to do with a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    /// Its name.
    pub name: String,
    /// The value to set, or the one that is set now and should not be.
    pub value: Option<String>,
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// Where that is written.
    pub source: String,
}

/// What to do with a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Set it.
    Set,
    /// It is set and should not be.
    Remove,
    /// Do not set it.
    Leave,
}

impl Action {
    /// `set`, `remove`, `leave`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Leave => "leave",
        }
    }
}

/// What people set for EFA and should not, with the beginning of the reason in advice.csv.
const LEAVE_WITH_EFA: &[(&str, &str)] = &[
    ("FI_PROVIDER", "Not needed"),
    ("FI_EFA_USE_DEVICE_RDMA", "Not needed"),
    ("FI_EFA_FORK_SAFE", "Not needed"),
    ("NCCL_PROTO", "Not needed on EFA"),
    ("NCCL_BUFFSIZE", "Not on p4d and newer"),
    ("NCCL_TUNER_PLUGIN", "Not needed"),
    ("NCCL_TOPO_FILE", "Never empty"),
    ("NCCL_IB_DISABLE", "Not to force EFA"),
];

/// And everywhere.
const LEAVE: &[(&str, &str)] = &[("NCCL_ALGO", "Not in production"), ("NCCL_P2P_DISABLE", "Not 1")];

/// What to set, to remove and to leave alone. `files` are those of the job; none may be given.
pub fn recommend(
    instance: Option<&Instance>,
    nccl: Option<Version>,
    plugin: Option<Version>,
    files: &[Submission],
) -> Vec<Recommendation> {
    let version = |component: &str| match component {
        "nccl" => nccl,
        "aws-ofi-nccl" => plugin,
        _ => None,
    };
    let given = Given {
        nccl,
        plugin,
        libfabric: None,
        instance: instance.and_then(|it| fabric::catalogue::find(&it.name)),
    };
    let mut all = set(instance, plugin);
    all.extend(remove(files, &given));
    let efa = instance.is_some_and(Instance::efa);
    let names = LEAVE_WITH_EFA.iter().filter(|_| efa).chain(LEAVE);
    for (name, begin) in names {
        if all.iter().any(|it| it.name == *name) {
            continue;
        }
        // The plugin has values of its own for these types only.
        let tuned = instance.is_some_and(|it| {
            it.ofi_protocol.as_deref() == Some("RDMA")
                || matches!(it.name.as_str(), "p4d.24xlarge" | "p4de.24xlarge")
        });
        if *name == "NCCL_BUFFSIZE" && !tuned {
            continue;
        }
        let advice = variable::find(name).into_iter().flat_map(|it| &it.advice);
        let mut advice = advice.filter(|it| it.when_not_to_set.starts_with(begin));
        if let Some(advice) = advice.find(|it| it.applies(version) != Some(false)) {
            all.push(Recommendation {
                name: (*name).to_owned(),
                value: None,
                action: Action::Leave,
                reason: advice.when_not_to_set.clone(),
                source: advice.source.clone(),
            });
        }
    }
    all.sort_by(|a, b| (a.action, &a.name).cmp(&(b.action, &b.name)));
    all
}

/// Old plugins must be told; newer ones know.
fn set(instance: Option<&Instance>, plugin: Option<Version>) -> Vec<Recommendation> {
    let mut all = Vec::new();
    let (Some(instance), Some(plugin)) = (instance.filter(|it| it.efa()), plugin) else { return all };
    let source = "aws-ofi-nccl 2daf7d3 doc/efa-env-var.md";
    let mut add = |name: &str, value: &str, reason: String| {
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        all.push(Recommendation { name, value, action: Action::Set, reason, source: source.to_owned() });
    };
    if plugin < Version::new(1, 6, 0) {
        let reason = format!("aws-ofi-nccl {plugin} does not ask for efa by itself; 1.6.0 and newer do.");
        add("FI_PROVIDER", "efa", reason);
        let reason =
            format!("aws-ofi-nccl {plugin} does not choose the safe protocol by itself; 1.6.0 and newer do.");
        add("NCCL_PROTO", "simple", reason);
    }
    if plugin < Version::new(1, 7, 0) && instance.rdma_read == Some(true) {
        let reason = format!(
            "With aws-ofi-nccl {plugin} RDMA is off unless it is asked for; with 1.7.0 and libfabric 1.18 it is on."
        );
        add("FI_EFA_USE_DEVICE_RDMA", "1", reason);
    }
    all
}

/// What the rules of this family say against variables of the job.
fn remove(files: &[Submission], given: &Given) -> Vec<Recommendation> {
    let context = Submitted::new(files, *given);
    let mut all: Vec<Recommendation> = Vec::new();
    for rule in RULES {
        let found = rule.submission().and_then(|check| check(&context).ok()).unwrap_or_default();
        for finding in found {
            let Some((file, start)) = finding.file().zip(finding.start()) else { continue };
            let settings = files.get(file).map(|it| it.settings.as_slice()).unwrap_or_default();
            let at = |it: &&evidence::submission::Setting| {
                it.span.range.start <= start && start < it.span.range.end.max(it.span.range.start + 1)
            };
            // Nested entries begin later: the innermost is the one that is meant.
            let Some(setting) = settings.iter().filter(at).max_by_key(|it| it.span.range.start) else {
                continue;
            };
            // The first rule that speaks against a name is enough; a secret is not repeated, and stays where it is needed.
            if rule.id == "secret-in-env"
                || rule.id == "duplicate-variable"
                || all.iter().any(|it| *it.name == *setting.name)
            {
                continue;
            }
            all.push(Recommendation {
                name: setting.name.to_string(),
                value: setting.value.as_ref().map(ToString::to_string),
                action: Action::Remove,
                reason: format!("{}.", finding.message.trim_end_matches('.')),
                source: rule.references.first().copied().unwrap_or_default().to_owned(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use fabric::{Version, instance};

    use super::{Action, recommend};
    use crate::lint::settings::testing::job;
    use crate::lint::testing::files;

    #[test]
    fn new_releases_need_nothing() {
        let g6e = instance::find("g6e.12xlarge");
        let all = recommend(g6e, Some(Version::new(2, 27, 3)), Some(Version::new(1, 16, 2)), &[]);
        assert!(all.iter().all(|it| it.action == Action::Leave), "{all:#?}");
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        assert!(names.contains(&"FI_PROVIDER") && !names.contains(&"NCCL_BUFFSIZE"), "{names:?}");
        assert!(all.iter().all(|it| !it.reason.is_empty() && !it.source.is_empty()));
    }

    #[test]
    fn old_plugins_must_be_told() {
        let p4d = instance::find("p4d.24xlarge");
        let all = recommend(p4d, None, Some(Version::new(1, 5, 0)), &[]);
        let set: Vec<(&str, Option<&str>)> = all
            .iter()
            .filter(|it| it.action == Action::Set)
            .map(|it| (&*it.name, it.value.as_deref()))
            .collect();
        assert_eq!(
            set,
            [
                ("FI_EFA_USE_DEVICE_RDMA", Some("1")),
                ("FI_PROVIDER", Some("efa")),
                ("NCCL_PROTO", Some("simple"))
            ]
        );
        assert!(!all.iter().any(|it| it.action == Action::Leave && it.name == "FI_PROVIDER"));
    }

    #[test]
    fn what_the_job_should_not_set_is_removed() {
        let text = job(
            "p4d.24xlarge",
            2,
            &[("NCCL_TOPO_FILE", ""), ("NCCL_DEBUG", "INFO"), ("NCCL_P2P_DIRECT_READ", "0")],
        );
        let all = recommend(instance::find("p4d.24xlarge"), None, None, &files(&[("job.yaml", &text)]));
        let names: Vec<&str> =
            all.iter().filter(|it| it.action == Action::Remove).map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["NCCL_P2P_DIRECT_READ", "NCCL_TOPO_FILE"]);
    }
}

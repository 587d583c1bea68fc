//! The environment for a machine and releases: which variables to set, to leave unset and to remove.

use fabric::catalogue::Model;
use fabric::machine::NicKind;
use fabric::{Version, variable};
use serde::Serialize;

/// What to do with a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    /// The variable.
    pub name: String,
    /// The value to set, or the one that is set now and should not be.
    pub value: Option<String>,
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// The source of the reason.
    pub source: String,
}

/// What to do with a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Set it.
    Set,
    /// It is set and should not be.
    Remove,
    /// Do not set it.
    Leave,
}

/// Where a piece of advice applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Everywhere,
    Efa,
    /// EFA with GPUDirect RDMA: the plugin sets its own values for these types.
    EfaGpudirect,
    /// EFA where the plugin has a topology of the machine for NCCL.
    EfaTopology,
    InfiniBand,
}

impl Where {
    fn is(self, machine: Option<&Model>) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Efa => machine.is_some_and(Model::efa),
            Self::EfaGpudirect => machine.is_some_and(|it| it.efa() && it.gpudirect == Some(true)),
            Self::EfaTopology => machine
                .and_then(|it| it.instance)
                .is_some_and(|it| it.ofi_topo_file.is_some() || it.ofi_protocol.as_deref() == Some("RDMA")),
            Self::InfiniBand => {
                machine.is_some_and(|it| matches!(it.network, NicKind::InfiniBand | NicKind::Roce))
            }
        }
    }
}

/// Variables that are often set and should not be: the name, the id of the reason in `advice.csv`, and where it applies.
const LEAVE: &[(&str, &str, Where)] = &[
    ("FI_PROVIDER", "not-needed", Where::Efa),
    ("FI_EFA_USE_DEVICE_RDMA", "not-needed", Where::Efa),
    ("FI_EFA_FORK_SAFE", "not-needed", Where::Efa),
    ("NCCL_PROTO", "not-needed-on-efa", Where::Efa),
    ("NCCL_BUFFSIZE", "plugin-sets-it", Where::EfaGpudirect),
    ("NCCL_TUNER_PLUGIN", "not-needed", Where::Efa),
    ("NCCL_TOPO_FILE", "empty", Where::EfaTopology),
    ("NCCL_IB_DISABLE", "forcing-efa", Where::Efa),
    ("NCCL_IB_DISABLE", "disables-infiniband", Where::InfiniBand),
    ("NCCL_ALGO", "in-production", Where::Everywhere),
    ("NCCL_P2P_DISABLE", "in-production", Where::Everywhere),
];

/// The variables to set, to remove and to leave unset. `remove` is what lint finds about the variables of the job.
pub fn recommend(
    machine: Option<&Model>,
    nccl: Option<Version>,
    plugin: Option<Version>,
    remove: Vec<Recommendation>,
) -> Vec<Recommendation> {
    let version = |component: &str| match component {
        "nccl" => nccl,
        "aws-ofi-nccl" => plugin,
        _ => None,
    };
    let mut all = set(machine, plugin);
    all.extend(remove);
    for (name, id, _) in LEAVE.iter().filter(|it| it.2.is(machine)) {
        if all.iter().any(|it| it.name == *name) {
            continue;
        }
        let advice = variable::find(name).and_then(|it| it.find_advice(id));
        if let Some(advice) = advice.filter(|it| it.applies(version) != Some(false)) {
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

/// Variables that old plugins do not set themselves.
fn set(machine: Option<&Model>, plugin: Option<Version>) -> Vec<Recommendation> {
    let mut all = Vec::new();
    let (Some(machine), Some(plugin)) = (machine.filter(|it| it.efa()), plugin) else { return all };
    let source = "aws-ofi-nccl 2daf7d3 doc/efa-env-var.md";
    let mut add = |name: &str, value: &str, reason: String| {
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        all.push(Recommendation { name, value, action: Action::Set, reason, source: source.to_owned() });
    };
    if plugin < Version::new(1, 6, 0) {
        let reason = format!("aws-ofi-nccl {plugin} does not select the efa provider; 1.6.0 and newer do.");
        add("FI_PROVIDER", "efa", reason);
        let reason = format!("aws-ofi-nccl {plugin} does not select the safe protocol; 1.6.0 and newer do.");
        add("NCCL_PROTO", "simple", reason);
    }
    if plugin < Version::new(1, 7, 0) && machine.instance.is_some_and(|it| it.rdma_read == Some(true)) {
        let reason = format!(
            "With aws-ofi-nccl {plugin} RDMA is off by default; with 1.7.0 and libfabric 1.18 it is on."
        );
        add("FI_EFA_USE_DEVICE_RDMA", "1", reason);
    }
    all
}

#[cfg(test)]
mod tests {
    use fabric::{Version, catalogue, variable};

    use super::{Action, LEAVE, Recommendation, recommend};

    fn names(all: &[Recommendation], action: Action) -> Vec<&str> {
        all.iter().filter(|it| it.action == action).map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn every_piece_of_advice_is_in_the_data() {
        for (name, id, _) in LEAVE {
            assert!(variable::find(name).unwrap().find_advice(id).is_some(), "{name}: {id}");
        }
    }

    #[test]
    fn new_releases_need_nothing() {
        let g6e = catalogue::find("g6e.12xlarge");
        let all = recommend(g6e, Some(Version::new(2, 27, 3)), Some(Version::new(1, 16, 2)), Vec::new());
        assert!(all.iter().all(|it| it.action == Action::Leave), "{all:#?}");
        let names = names(&all, Action::Leave);
        assert!(names.contains(&"FI_PROVIDER") && !names.contains(&"NCCL_BUFFSIZE"), "{names:?}");
        assert!(all.iter().all(|it| !it.reason.is_empty() && !it.source.is_empty()));
    }

    #[test]
    fn old_plugins_need_settings() {
        let p4d = catalogue::find("p4d.24xlarge");
        let all = recommend(p4d, None, Some(Version::new(1, 5, 0)), Vec::new());
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
        assert!(!names(&all, Action::Leave).contains(&"FI_PROVIDER"));
    }

    #[test]
    fn machines_without_efa_get_the_advice_of_their_network() {
        let all = recommend(catalogue::find("dgx-h100"), None, None, Vec::new());
        assert_eq!(names(&all, Action::Leave), ["NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"]);
        assert!(all[1].reason.contains("InfiniBand"), "{}", all[1].reason);
        assert_eq!(
            names(&recommend(None, None, None, Vec::new()), Action::Leave),
            ["NCCL_ALGO", "NCCL_P2P_DISABLE"]
        );
    }

    #[test]
    fn what_lint_objects_to_is_removed_and_not_repeated() {
        let objection = Recommendation {
            name: "NCCL_ALGO".to_owned(),
            value: Some("Ring".to_owned()),
            action: Action::Remove,
            reason: "A fixed choice.".to_owned(),
            source: "somewhere".to_owned(),
        };
        let all = recommend(None, None, None, vec![objection]);
        assert_eq!(names(&all, Action::Remove), ["NCCL_ALGO"]);
        assert_eq!(names(&all, Action::Leave), ["NCCL_P2P_DISABLE"]);
    }
}

//! Variables that are set and do not count here: those that NCCL does not read, and those whose effect is not modelled.

use std::fmt;

use fabric::variable::{self, Status};

use crate::Settings;

/// A variable that changes nothing in what is decided here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheeded {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: Why,
}

/// Why a variable does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// NCCL would decide otherwise because of it; that is not modelled.
    NotModelled,
    /// This release of NCCL does not read it.
    NotRead,
    /// No release known reads it.
    Unknown,
}

impl fmt::Display for Unheeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::NotModelled => write!(f, "{} can change what NCCL decides, and is not modelled", self.name),
            Why::NotRead => write!(f, "NCCL of this release does not read {}", self.name),
            Why::Unknown => write!(f, "{} is not a variable that plumb knows", self.name),
        }
    }
}

/// Variables that change the system, the graphs, the channels or the choice for a call, and are not modelled. Those of NCCL that stand
/// neither here nor in this crate's code change none of that.
const NOT_MODELLED: [&str; 31] = [
    "NCCL_AGG_CHANNEL_SIZE",
    "NCCL_ALLGATHERV_ENABLE",
    "NCCL_CHUNK_SIZE",
    "NCCL_CONF_FILE",
    "NCCL_CTA_POLICY",
    "NCCL_GRAPH_FILE",
    "NCCL_HOSTID",
    "NCCL_IB_DATA_DIRECT",
    "NCCL_IB_MERGE_VFS",
    "NCCL_IB_QUERY_PORT_SPEED",
    "NCCL_MNNVL",
    "NCCL_MNNVL_CLIQUE_ID",
    "NCCL_MNNVL_CROSS_CLIQUE",
    "NCCL_MNNVL_UUID",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "NCCL_NET_GDR_MLOPART",
    "NCCL_NET_MERGE_POLICY",
    "NCCL_NET_PLUGIN",
    "NCCL_P2P_EPOCH_ENABLE",
    "NCCL_P2P_LL_THRESHOLD",
    "NCCL_P2P_SCHEDULE_GROUP_SIZE",
    "NCCL_SYM_CE_THRESHOLD",
    "NCCL_SYM_CTAS",
    "NCCL_SYM_GIN_KERNELS_ENABLE",
    "NCCL_SYM_KERNEL",
    "NCCL_SYM_NOWIN_ENABLE",
    "NCCL_SYM_TMA_ENABLE",
    "NCCL_TOPO_FILE",
    "NCCL_TOPO_SPLIT_MLOPART",
    "NCCL_UNPACK_DOUBLE_NCHANNELS",
    "NCCL_WIN_ENABLE",
];

/// The variables of NCCL and aws-ofi-nccl that are set and do not count here.
pub fn unheeded(settings: &Settings) -> Vec<Unheeded> {
    let names = settings.environment.keys();
    let ours = names.filter(|it| it.starts_with("NCCL_") || it.starts_with("OFI_NCCL_"));
    ours.filter_map(|name| Some(Unheeded { name: name.clone(), why: why(name, settings)? })).collect()
}

fn why(name: &str, settings: &Settings) -> Option<Why> {
    // Without a plugin NCCL uses its own networks.
    let no_plugin = name == "NCCL_NET_PLUGIN"
        && settings.text(name).is_some_and(|it| it.is_empty() || it.eq_ignore_ascii_case("none"));
    if NOT_MODELLED.contains(&name) && !no_plugin {
        return Some(Why::NotModelled);
    }
    let Some(known) = variable::find(name) else { return Some(Why::Unknown) };
    let is_read = match known.status {
        Status::Current | Status::Deprecated => true,
        Status::RemovedAfter(last) => settings.version <= last,
        Status::RemovedBefore(first) => settings.version < first,
        Status::NotAVariable => false,
    };
    (!is_read).then_some(Why::NotRead)
}

#[cfg(test)]
mod tests {
    use fabric::variable;

    use super::{NOT_MODELLED, Why, unheeded};
    use crate::Settings;

    #[test]
    fn all_are_variables_of_nccl() {
        assert!(NOT_MODELLED.is_sorted());
        for name in NOT_MODELLED {
            assert!(variable::find(name).is_some_and(variable::Variable::is_variable), "{name}");
        }
    }

    #[test]
    fn says_what_does_not_count() {
        let settings = Settings::default()
            .with("NCCL_ALGO", "Ring")
            .with("NCCL_DEBUG", "INFO")
            .with("NCCL_GRAPH_FILE", "rings.xml")
            .with("NCCL_TREE_THRESHOLD", "0")
            .with("NCCL_TIMEOUT", "30")
            .with("NCCL_FASTER", "1")
            .with("PATH", "/bin");
        let all: Vec<(String, Why)> = unheeded(&settings).into_iter().map(|it| (it.name, it.why)).collect();
        let want = [
            ("NCCL_FASTER", Why::Unknown),
            ("NCCL_GRAPH_FILE", Why::NotModelled),
            ("NCCL_TIMEOUT", Why::NotRead),
            ("NCCL_TREE_THRESHOLD", Why::NotRead),
        ];
        assert_eq!(all, want.map(|(name, why)| (name.to_owned(), why)));
    }
}

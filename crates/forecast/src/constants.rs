//! What hardware and software reach, as data: `data/constants.toml`, each number with its meaning and source.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

/// A number with what it means and where it comes from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number.
    pub value: f64,
    /// What it says.
    pub meaning: String,
    /// Where it was read or fitted.
    pub source: String,
    /// The smallest and the largest value that is possible, where the number is fitted to measurements.
    pub fit: Option<(f64, f64)>,
}

macro_rules! groups {
    ($($group:ident: $Group:ident { $($name:ident),* }),* $(,)?) => {
        /// All constants, and how many publications measured each regime.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Constants {
            $(pub(crate) $group: $Group,)*
            pub(crate) sources: BTreeMap<String, usize>,
        }

        impl Constants {
            /// Replaces a constant, named as in `network.share`; whether there is one of this name.
            pub(crate) fn set(&mut self, name: &str, value: f64) -> bool {
                match name {
                    $($(concat!(stringify!($group), ".", stringify!($name)) => self.$group.$name = value,)*)*
                    _ => return false,
                }
                true
            }
        }

        $(
            #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $Group { $(#[serde(deserialize_with = "number")] pub(crate) $name: f64),* }
        )*
    };
}

groups! {
    ring: Ring { share, chain, small, copy, mesh, detour, peer, shared_memory },
    nvls: Nvls { share, hopper, blackwell, blackwell_tree, domains, hopper_from, blackwell_from },
    network: Network { share, tcpx, tree, deep_tree, pci, host, tcp, tcp_most },
    pairs: Pairs { nvlink, neighbour, network, channel, domains, peer, later_peer },
    latency: Latency {
        host, launch, nvlink, pci, nvls, nvls_tree, nvls_step, infiniband, efa_1, efa, gpudirect_tcp, tcpx, tcp, ll_launch, ll_step, ll_share,
        ll128_share, ll128_hopper, ll128_ampere, ll128_fill, ll128_fill_hopper
    },
    fill: Fill { nvlink, nvls_hopper, nvls_blackwell, nvls_tree, nvls_domain, network, few, volta },
    spread: Spread { start, fill, link, network, efa, gpudirect_tcp, single, unmeasured },
    wire: Wire { nvlink, pci, slack },
}

fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Constant::deserialize(from).map(|it| it.value)
}

const TEXT: &str = include_str!("../data/constants.toml");

pub(crate) fn constants() -> &'static Constants {
    static ALL: OnceLock<Constants> = OnceLock::new();
    // The data is part of the binary, and a test reads it.
    ALL.get_or_init(|| toml::from_str(TEXT).unwrap_or_default())
}

/// Every constant with its group and name, in the order of the file.
pub fn all() -> Vec<(String, Constant)> {
    let groups: toml::Table = toml::from_str(TEXT).unwrap_or_default();
    let mut all = Vec::new();
    for (group, constants) in groups {
        let Some(constants) = constants.as_table().cloned() else { continue };
        for (name, constant) in constants {
            if let Ok(constant) = constant.try_into() {
                all.push((format!("{group}.{name}"), constant));
            }
        }
    }
    all
}

/// How many publications measured each regime.
pub fn sources() -> &'static BTreeMap<String, usize> {
    &constants().sources
}

#[cfg(test)]
mod tests {
    use super::{Constants, TEXT, all};

    #[test]
    fn every_constant_says_what_it_means() {
        let mut constants = toml::from_str::<Constants>(TEXT).unwrap();
        let all = all();
        assert!((40..80).contains(&all.len()), "constants: {}", all.len());
        for (name, it) in all {
            assert!(it.value.is_finite() && it.value > 0.0, "{name}");
            assert!(!it.meaning.is_empty() && !it.source.is_empty(), "{name}");
            assert!(it.fit.is_none_or(|(low, high)| low <= it.value && it.value <= high), "{name}");
            assert!(constants.set(&name, it.value), "{name}");
        }
    }
}

//! What hardware and software reach, as data: `data/constants.toml`, each number with its meaning and source.

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use crate::constant::Constant;
use crate::constant::{self, groups};

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
    wire: Wire { nvlink, pci, slack };
    sources: BTreeMap<String, usize>
}

const TEXT: &str = include_str!("../data/constants.toml");

pub(crate) fn constants() -> &'static Constants {
    static ALL: OnceLock<Constants> = OnceLock::new();
    // The data is part of the binary, and a test reads it.
    ALL.get_or_init(|| toml::from_str(TEXT).unwrap_or_default())
}

/// Every constant with its group and name, in the order of the file.
pub fn all() -> Vec<(String, Constant)> {
    constant::all(TEXT)
}

/// How many publications measured each regime.
pub fn sources() -> &'static BTreeMap<String, usize> {
    &constants().sources
}

#[cfg(test)]
mod tests {
    use super::{Constants, TEXT};

    #[test]
    fn every_constant_says_what_it_means() {
        let mut constants = toml::from_str::<Constants>(TEXT).unwrap();
        crate::constant::check(TEXT, |name, value| constants.set(name, value));
    }
}

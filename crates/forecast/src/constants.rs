//! What hardware and software reach, as data: `data/constants.toml`, each number with its meaning and source.

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use crate::constant::Constant;
use crate::constant::{self, groups};

groups! {
    ring: Ring { share, chain, small, copy, mesh, detour, peer, through_cpu, shared_memory },
    nvls: Nvls { share, hopper, blackwell, blackwell_tree, domains, hopper_from, blackwell_from },
    network: Network { share, tcpx, tree, deep_tree, pci, host, tcp, tcp_usual, tcp_most },
    pairs: Pairs { start, nvlink, neighbour, network, channel, channel_inside, channel_blackwell, domains, peer, later_peer },
    latency: Latency {
        host, host_slow, host_gpu, launch, launch_older, nvlink, pci, nvls, nvls_tree, nvls_step, infiniband, infiniband_simple, efa_1, efa, efa_flush, gpudirect_tcp, slingshot, tcpx, tcp, ll_launch, ll_step, ll_share, ll_volta, ll_ampere,
        ll_hopper, ll_network,
        ll128_share, ll128_hopper, ll128_ampere, ll128_volta, ll128_fill, ll128_fill_hopper
    },
    fill: Fill { nvlink, nvls_hopper, nvls_blackwell, nvls_tree, nvls_domain, network, few, far, volta },
    spread: Spread { start, near, far, fill, link, pci, network, efa, gpudirect_tcp, slingshot, tcp, many, single, unmeasured },
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

//! Which algorithms and protocols NCCL may use: the part of `ncclTopoTuneModel` after the time model.

use fabric::PathType;
use fabric::collective::Collective;

use super::list::{BadList, Wish, Wishes, wishes};
use super::{GraphInfo, GraphInfos, Protocol, Tuned, algorithms};
use crate::{Algorithm, Settings};

/// What variables and hardware allow, by the index of the collective in [`super::TUNED`].
pub(super) struct Allowed<'a> {
    settings: &'a Settings,
    communicator: &'a Tuned,
    graphs: &'a GraphInfos,
    algorithms: [[bool; 7]; 5],
    protocols: Wishes<3>,
}

impl<'a> Allowed<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        communicator: &'a Tuned,
        graphs: &'a GraphInfos,
    ) -> Result<Self, BadList> {
        let names: Vec<&str> = algorithms(settings.version).iter().map(|it| it.name()).collect();
        let protocols = wishes(settings, "NCCL_PROTO", &Protocol::ALL.map(Protocol::name))?;
        let wished: Wishes<7> = wishes(settings, "NCCL_ALGO", &names)?;
        let mut algorithms = wished.map(|row| row.map(|it| it != Wish::No));
        for row in &mut algorithms {
            for algorithm in Algorithm::ALL {
                row[algorithm.index()] &= is_possible(settings, communicator, algorithm);
            }
            // NCCL_ALGO=CollNet without in-network reduction is ignored, up to 2.23.
            let left = [Algorithm::Ring, Algorithm::Tree, Algorithm::Nvls, Algorithm::NvlsTree];
            if !settings.since(2, 24, 0)
                && communicator.collnet.is_none()
                && !left.iter().any(|it| row[it.index()])
            {
                row[Algorithm::Ring.index()] = true;
                row[Algorithm::Tree.index()] = true;
            }
        }
        Ok(Self { settings, communicator, graphs, algorithms, protocols })
    }

    pub(super) fn algorithm(&self, place: usize, collective: Collective, algorithm: Algorithm) -> bool {
        // 2.18 never takes the ring away from what has no tree.
        let kept = algorithm == Algorithm::Ring
            && collective != Collective::AllReduce
            && !self.settings.since(2, 19, 0);
        kept || self.algorithms[place][algorithm.index()]
    }

    pub(super) fn protocol(&self, place: usize, algorithm: Algorithm, protocol: Protocol) -> bool {
        match self.protocols[place][protocol.index()] {
            Wish::Yes => true,
            Wish::No => false,
            Wish::Default => protocol != Protocol::Ll128 || self.ll128(self.graphs.of(algorithm)),
        }
    }

    /// Whether LL128 is safe: it needs 128 bytes that arrive in order. NCCL built with CUDA 11.8 also leaves it out for the ring of
    /// two H100; that build is not modelled.
    fn ll128(&self, graph: &GraphInfo) -> bool {
        let since = |minor, patch| self.settings.since(2, minor, patch);
        let version = self.settings.version;
        let (least, most) = (self.communicator.min_compute, self.communicator.max_compute);
        let alike = least == most || (least >= 90 && since(30, 0));
        let known = match least {
            _ if since(27, 0) => least >= 70,
            70 | 80 | 90 => true,
            100 | 120 => since(25, 0),
            _ => false,
        };
        let inside = if since(18, 3) { PathType::Nvb } else { PathType::Nvl };
        alike
            && known
            && graph.type_intra.within(inside, version)
            && graph.type_inter.within(self.ll128_to_nic(least), version)
    }

    /// The farthest path to a NIC for LL128.
    fn ll128_to_nic(&self, compute: u32) -> PathType {
        let chip = self.settings.number("NCCL_LL128_C2C", 1) != 0;
        match () {
            () if compute < 90 => PathType::Pxb,
            () if !self.settings.since(2, 27, 0) => PathType::Pxn,
            // In 2.27.3 and 2.27.4 P2C is farther than PXN, then it is nearer.
            () if !self.settings.since(2, 27, 5) => {
                if chip {
                    PathType::P2c
                } else {
                    PathType::Pxn
                }
            }
            () if chip => PathType::Pxn,
            () => PathType::Pxb,
        }
    }
}

/// Whether the hardware allows an algorithm.
fn is_possible(settings: &Settings, communicator: &Tuned, algorithm: Algorithm) -> bool {
    // In 2.20 NVLS is not used across trays.
    let domain = communicator.mnnvl && settings.since(2, 20, 0) && !settings.since(2, 21, 0);
    let (one, several) = (communicator.nodes == 1 || domain, communicator.nodes > 1 || domain);
    match algorithm {
        Algorithm::Tree | Algorithm::Ring | Algorithm::Pat => true,
        Algorithm::CollNetDirect => communicator.collnet.is_some() && communicator.switches,
        Algorithm::CollNetChain => communicator.collnet.is_some(),
        Algorithm::Nvls => communicator.collnet.is_some() || !several,
        Algorithm::NvlsTree => !one,
    }
}

//! The NICs of a machine as aws-ofi-nccl shows them to NCCL.

use crate::machine::{Machine, Nic, NicKind, Place};
use crate::units::GigabitsPerSecond;

impl Machine {
    /// The machine as NCCL sees it through aws-ofi-nccl: the EFA interfaces below one switch that belong to one GPU become one device
    /// with the sum of their rates.
    ///
    /// The plugin does this only with its RDMA protocol; with SENDRECV each interface is a device. A switch with no more interfaces than
    /// GPUs is unchanged.
    #[must_use]
    pub fn grouped(&self) -> Self {
        let mut switches = vec![Switch::default(); self.bridges.len()];
        for gpu in &self.gpus {
            if let Some(switch) = switch_at(&mut switches, gpu.at) {
                switch.gpus += 1;
            }
        }
        let efa = self.nics.iter().filter(|it| it.kind == NicKind::Efa);
        for nic in efa {
            if let Some(switch) = switch_at(&mut switches, nic.at) {
                switch.nics += 1;
            }
        }
        let mut nics: Vec<Nic> = Vec::new();
        for nic in &self.nics {
            let switch = switch_at(&mut switches, nic.at).filter(|_| nic.kind == NicKind::Efa);
            let leader = switch.and_then(|it| it.leader_of_next(nics.len()));
            match leader.and_then(|it| nics.get_mut(it)) {
                Some(leader) => {
                    let rates = leader.rate.zip(nic.rate);
                    leader.rate = rates.map(|(all, one)| GigabitsPerSecond(all.0 + one.0));
                }
                None => nics.push(nic.clone()),
            }
        }
        for (index, nic) in (0..).zip(&mut nics) {
            nic.index = index;
        }
        Self { nics, ..self.clone() }
    }
}

/// The devices below a bridge, and the progress of the grouping.
#[derive(Debug, Clone, Copy, Default)]
struct Switch {
    gpus: usize,
    nics: usize,
    seen: usize,
    leader: usize,
}

impl Switch {
    /// The device that the next interface joins, or `None` if it becomes a new device at index `next`.
    fn leader_of_next(&mut self, next: usize) -> Option<usize> {
        let shared = self.gpus > 0 && self.nics.is_multiple_of(self.gpus);
        let size = if shared { self.nics / self.gpus } else { 1 };
        let first = self.seen.is_multiple_of(size.max(1));
        self.seen += 1;
        if first {
            self.leader = next;
        }
        (!first).then_some(self.leader)
    }
}

fn switch_at(switches: &mut [Switch], at: Place) -> Option<&mut Switch> {
    match at {
        Place::Bridge(bridge) => switches.get_mut(bridge),
        Place::Socket(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::catalogue::{machine, names};

    fn rates(name: &str) -> Vec<f64> {
        machine(name).unwrap().grouped().nics.iter().map(|it| it.rate.unwrap().0).collect()
    }

    #[test]
    fn interfaces_of_one_gpu_are_one_device() {
        assert_eq!(rates("p5.48xlarge"), [400.0; 8]);
        assert_eq!(rates("p5en.48xlarge"), [400.0; 8]);
        assert_eq!(rates("p6-b300.48xlarge"), [800.0; 8]);
        let grouped = machine("p5.48xlarge").unwrap().grouped();
        assert_eq!(&*grouped.nics[1].name, "rdmap96s0");
        assert_eq!(grouped.nics[7].index, 7);
        assert_eq!(grouped.nics[1].at, grouped.gpus[1].at);
    }

    #[test]
    fn the_rest_stays() {
        for name in ["p4d.24xlarge", "p6-b200.48xlarge", "dgx-h100", "g6e.48xlarge", "g5.xlarge"] {
            let machine = machine(name).unwrap();
            assert_eq!(machine.grouped(), machine, "{name}");
        }
    }

    #[test]
    fn no_bandwidth_is_lost_and_twice_is_once() {
        for name in names() {
            let machine = machine(name).unwrap();
            let once = machine.grouped();
            let total = |it: &crate::Machine| it.nics.iter().map(|it| it.rate.unwrap().0).sum::<f64>();
            assert!((total(&machine) - total(&once)).abs() < 1e-9, "{name}");
            assert_eq!(once.grouped(), once, "{name}");
        }
    }
}

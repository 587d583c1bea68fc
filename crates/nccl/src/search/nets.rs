//! Which NICs a channel may use, in the order they are tried.

use std::rc::Rc;

use super::draft::Draft;
use super::model::Model;
use crate::Pattern;

/// The most channels NCCL has: 64 since 2.25.1 (`MAXCHANNELS` in `src/include/device.h`).
pub(crate) fn max_channels(settings: &crate::Settings) -> usize {
    if settings.since(2, 25, 1) { 64 } else { 32 }
}

impl Model<'_> {
    /// The NICs to try from a GPU, or, without one, to begin a channel (`ncclTopoSelectNets`): first those the GPUs prefer,
    /// then all others up to a type.
    pub(super) fn select_nets(&self, farthest: u8, gpu: Option<usize>) -> Rc<[usize]> {
        if let Some(known) = self.selected.borrow().get(&(farthest, gpu)) {
            return Rc::clone(known);
        }
        let nets: Rc<[usize]> = self.find_nets(Some(farthest), gpu).into();
        self.selected.borrow_mut().insert((farthest, gpu), Rc::clone(&nets));
        nets
    }

    /// Without a farthest type: only those the GPUs prefer.
    pub(super) fn find_nets(&self, farthest: Option<u8>, gpu: Option<usize>) -> Vec<usize> {
        let most = max_channels(self.settings);
        let gpus: Vec<usize> = (0..self.gpus).filter(|it| gpu.is_none_or(|gpu| gpu == *it)).collect();
        let mut nets = Vec::new();
        let preferred: Vec<Vec<usize>> = if self.settings.since(2, 18, 5) {
            gpus.iter().map(|it| self.preferred(*it, most)).collect()
        } else {
            return self.find_nets_before_2_18_5(farthest, &gpus);
        };
        // In a domain of several machines the first NIC of each GPU comes before the second of any. Since 2.27.5.
        let scatter = self.paths.machines > 1
            && self.settings.since(2, 27, 5)
            && self.settings.number("NCCL_MNNVL_SCATTER_NETS_ENABLE", 1) != 0;
        if scatter {
            let longest = preferred.iter().map(Vec::len).max().unwrap_or(0);
            for channel in 0..longest {
                preferred.iter().filter_map(|it| it.get(channel)).for_each(|it| add(&mut nets, *it));
            }
        } else {
            preferred.iter().flatten().for_each(|it| add(&mut nets, *it));
        }
        // Since 2.28.7 `NCCL_NETDEVS_POLICY=MAX:n` also limits this list.
        let each = self.settings.most_nics_of_gpu().unwrap_or(usize::MAX);
        let limit = if gpu.is_none() { each.saturating_mul(self.gpus) } else { each };
        // Since 2.21.5 NCCL looks at no more NICs than there are channels.
        let seen = if self.settings.since(2, 21, 5) { most } else { usize::MAX };
        for kind in farthest.into_iter().flat_map(|it| 0..=it) {
            for &gpu in &gpus {
                for net in 0..self.nets.len().min(seen) {
                    if nets.len() >= limit {
                        return nets;
                    }
                    if self.gpu_net(gpu, net).kind == kind {
                        add(&mut nets, net);
                    }
                }
            }
        }
        nets
    }

    /// Up to 2.18.3: all up to a type, of each GPU from its own number on.
    fn find_nets_before_2_18_5(&self, farthest: Option<u8>, gpus: &[usize]) -> Vec<usize> {
        let mut nets = Vec::new();
        for kind in farthest.into_iter().flat_map(|it| 0..=it) {
            for &gpu in gpus {
                let of_kind = |net: &usize| self.gpu_net(gpu, *net).kind == kind;
                let mut near: Vec<usize> = (0..self.nets.len()).filter(of_kind).collect();
                let number = self.paths.gpus().get(gpu).map_or(0, |it| it.number as usize);
                if let Some(first) = number.checked_rem(near.len()) {
                    near.rotate_left(first);
                }
                for net in near {
                    add(&mut nets, net);
                }
            }
        }
        nets
    }

    /// The NICs of a GPU channel by channel, until the first comes again.
    fn preferred(&self, gpu: usize, most: usize) -> Vec<usize> {
        let Some(device) = self.paths.gpus().get(gpu).copied() else { return Vec::new() };
        let mut found = Vec::new();
        for channel in 0..most {
            let nic = self.paths.local_nic(device, channel);
            let Some(net) = nic.and_then(|nic| self.nets.iter().position(|it| it.position == nic)) else {
                break;
            };
            if found.first() == Some(&net) {
                break;
            }
            found.push(net);
        }
        found
    }

    /// Whether a channel may leave by a NIC (`ncclTopoSearchCheckNet`).
    pub(super) fn may_leave(&self, draft: &Draft, net: usize, step: usize) -> bool {
        let start = draft.start_net();
        if draft.pattern == Pattern::Tree && net != start {
            return false;
        }
        let (one, other) = (&self.nets[net], &self.nets[start]);
        // Between the machines of an NVLink domain NICs can count as one rail by their place in the machine. Since 2.28.7.
        let by_rail = self.settings.since(2, 28, 7)
            && self.settings.number("NCCL_MNNVL_RAIL_PER_HOST", 0) != 0
            && one.machine != other.machine;
        let same_card = if by_rail { one.rail == other.rail } else { one.asic == other.asic };
        let odd = !draft.n_channels.is_multiple_of(2);
        let previous = || draft.inter[draft.n_channels - 1][0];
        if self.settings.since(2, 23, 4) {
            if draft.pattern == Pattern::Ring && draft.cross_nic == 2 {
                if odd && net != previous() {
                    return false;
                }
            } else if draft.cross_nic == 0 && !same_card {
                return false;
            }
        } else {
            if draft.cross_nic != 1 && !same_card {
                return false;
            }
            // 2.20.3 to 2.22: two channels that change the NIC form a pair.
            if self.settings.since(2, 20, 3) && draft.cross_nic != 0 && odd && net != previous() {
                return false;
            }
        }
        draft.pattern != Pattern::BalancedTree || step == 0 || net == draft.inter[draft.n_channels][1]
    }

    /// Whether a channel may begin at a NIC.
    pub(super) fn may_begin(&self, draft: &Draft, net: usize) -> bool {
        let pairs = if self.settings.since(2, 23, 4) {
            draft.pattern == Pattern::Ring && draft.cross_nic == 2
        } else {
            self.settings.since(2, 20, 3) && draft.cross_nic != 0
        };
        !pairs || draft.n_channels.is_multiple_of(2) || net == draft.inter[draft.n_channels - 1][1]
    }
}

fn add(nets: &mut Vec<usize>, net: usize) {
    if !nets.contains(&net) {
        nets.push(net);
    }
}

//! The search itself: from NIC to GPU to GPU, one channel after the other, until time is up.

use std::rc::Rc;

use super::draft::Draft;
use super::model::{End, Model};
use super::order::SortNet;
use crate::{PathType, Pattern};

/// An order of GPUs that is tried before any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forced {
    No,
    /// That of the system.
    Pci,
    /// That of the channel before.
    Replay,
}

/// At which step a channel goes back to a NIC, and at which to its first GPU (`ncclTopoSearchParams`).
#[derive(Debug, Clone, Copy)]
struct Back {
    net: Option<usize>,
    first: Option<usize>,
}

/// A search for the channels of one graph with fixed bandwidths and types (`ncclTopoSearchRec`).
#[derive(Debug)]
pub(super) struct Walk<'m, 'a> {
    model: &'m mut Model<'a>,
    draft: &'m mut Draft,
    best: &'m mut Draft,
    /// The steps that are left; -1 where the best possible was found.
    time: i32,
}

/// Searches with at most `time` steps for channels better than `best`. Returns the steps that are left: -1 if the best possible was
/// found.
pub(super) fn walk(model: &mut Model<'_>, draft: &mut Draft, best: &mut Draft, time: i32) -> i32 {
    draft.reserve();
    let mut walk = Walk { model, draft, best, time };
    walk.channel();
    walk.time
}

impl Walk<'_, '_> {
    /// Searches for one more channel.
    fn channel(&mut self) {
        let gpus = self.model.gpus;
        let ring = self.draft.pattern == Pattern::Ring;
        if self.model.inter {
            let net = match self.draft.pattern {
                Pattern::Ring => gpus - 1,
                Pattern::SplitTree => 1,
                _ => 0,
            };
            return self.begin_at_nets(Back { net: Some(net), first: None });
        }
        let back = Back { net: None, first: ring.then(|| gpus - 1) };
        if self.draft.pattern == Pattern::Nvls {
            if self.draft.n_channels < gpus {
                self.try_gpu(0, back, Forced::No, None, self.draft.n_channels);
            }
            return;
        }
        if self.draft.n_channels == 0 {
            self.try_gpu(0, back, Forced::Pci, None, 0);
        } else {
            self.try_gpu(0, back, Forced::Replay, None, self.replayed(0));
        }
        if !self.draft.same_channels || self.draft.n_channels == 0 {
            for gpu in 0..gpus {
                self.try_gpu(0, back, Forced::No, None, gpu);
            }
        }
    }

    /// The GPU of the channel before at a step.
    fn replayed(&self, step: usize) -> usize {
        self.draft.gpu_at(self.draft.n_channels - 1, step)
    }

    /// Begins a channel at each NIC (`ncclTopoSearchRecNet`).
    fn begin_at_nets(&mut self, back: Back) {
        #[expect(clippy::cast_possible_truncation, reason = "NCCL counts the rate of NICs in whole GB/s")]
        let bandwidth = f32::from(self.draft.bw_inter as i16);
        let nets = self.model.select_nets(self.draft.type_inter, None);
        let since = |minor, patch| self.model.settings.since(2, minor, patch);
        let heads = matches!(self.draft.pattern, Pattern::Nvls | Pattern::CollNetDirect) && since(18, 3);
        let (rotates, one_head) = (since(19, 1), since(22, 3));
        let restores = since(23, 4);
        let mut found = false;
        for i in 0..nets.len() {
            if heads && found {
                break;
            }
            // 2.19 to 2.21: only the NIC of the channel's number.
            if heads && i > 0 && rotates && !one_head {
                continue;
            }
            let net = if rotates { nets[(self.draft.n_channels + i) % nets.len()] } else { nets[i] };
            if self.draft.collnet && !self.model.collnet
                || self.model.nets[net].left < bandwidth
                || !self.model.may_begin(self.draft, net)
            {
                continue;
            }
            let channel = self.draft.n_channels;
            self.draft.inter[channel][0] = net;
            self.draft.latency_inter = self.model.nets[net].latency;
            self.take_of_card(net, bandwidth);
            if heads {
                if channel < nets.len() {
                    match self.head(&nets, net, back) {
                        Head::Found => found = one_head,
                        // 2.22.3 did not give back what it had taken of the NIC.
                        Head::Duplicate if one_head && !restores => continue,
                        Head::Duplicate | Head::None => {}
                    }
                }
            } else if !self.begin_at_net(net, back) {
                continue;
            }
            self.take_of_card(net, -bandwidth);
        }
    }

    fn take_of_card(&mut self, net: usize, bandwidth: f32) {
        let asic = self.model.nets[net].asic;
        for net in self.model.nets.iter_mut().filter(|it| it.asic == asic) {
            net.left -= bandwidth;
        }
    }

    /// The GPU next to a NIC as the head of a channel.
    fn head(&mut self, nets: &[usize], net: usize, back: Back) -> Head {
        let settings = self.model.settings;
        // 2.18: the GPU next to the NIC of the channel's number, and no traffic from the NIC.
        if !settings.since(2, 19, 1) {
            let number = nets[self.draft.n_channels];
            // 2.18.3 takes the number of the NIC for that of a GPU.
            let gpu = if settings.since(2, 18, 5) { self.model.nets[number].local_gpu } else { Some(number) };
            let Some(gpu) = gpu.filter(|it| *it < self.model.gpus) else { return Head::None };
            self.try_gpu(0, back, Forced::No, None, gpu);
            return Head::Found;
        }
        let Some(gpu) = self.model.nets[net].local_gpu else {
            return if settings.since(2, 23, 4) { Head::None } else { Head::Found };
        };
        let known = (0..self.draft.n_channels).any(|it| self.draft.gpu_at(it, 0) == gpu);
        if known && settings.since(2, 22, 3) {
            return Head::Duplicate;
        }
        self.try_gpu(0, back, Forced::No, Some(End::Net(net)), gpu);
        Head::Found
    }

    /// Begins a channel at a NIC: as the channel before, in the order of the system, at the GPUs next to the NIC. `false` where
    /// NCCL forgets to give back what it took of the NIC.
    fn begin_at_net(&mut self, net: usize, back: Back) -> bool {
        let start = Some(End::Net(net));
        let settings = self.model.settings;
        let (first, same) = (self.draft.n_channels == 0, self.draft.same_channels);
        if !first && (same || !settings.since(2, 27, 5)) {
            let gpu = self.replayed(0);
            self.try_gpu(0, back, Forced::Replay, start, gpu);
        }
        if !first && same {
            return true;
        }
        if first && !(self.model.has_switch && settings.since(2, 19, 3)) {
            // A reference that does not count.
            let time = std::mem::replace(&mut self.time, 1 << 10);
            self.try_gpu(0, back, Forced::Pci, start, 0);
            self.time = if self.time == -1 { -1 } else { time };
        }
        if !settings.since(2, 27, 3) {
            for gpu in self.fast_gpus(net) {
                self.try_gpu(0, back, Forced::No, start, gpu);
            }
            return true;
        }
        let local = self.model.nets[net].local_gpu.filter(|_| settings.since(2, 27, 5));
        if let Some(gpu) = local {
            self.try_gpu(0, back, Forced::No, start, gpu);
        }
        let near = self.model.nets[net].near_gpus.clone();
        for &gpu in near.iter().filter(|it| Some(**it) != local) {
            self.try_gpu(0, back, Forced::No, start, gpu);
        }
        !near.is_empty()
    }

    /// Up to 2.26: the GPUs with the most bandwidth from a NIC and the fewest links to it.
    fn fast_gpus(&self, net: usize) -> Vec<usize> {
        let model = &*self.model;
        let settings = model.settings;
        let (mut most, mut fewest) = (0.0_f32, usize::MAX);
        for gpu in 0..model.gpus {
            let route = model.net_gpu(net, gpu);
            let hops = route.links.len();
            if route.bandwidth > most {
                (most, fewest) = (route.bandwidth, hops);
            } else if same(route.bandwidth, most) && hops < fewest && (hops > 0 || !settings.since(2, 23, 4))
            {
                fewest = hops;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "NCCL counts the rate of NICs in whole GB/s")]
        let wanted = f32::from(self.draft.bw_inter as i16);
        if most < wanted {
            return Vec::new();
        }
        let fast = |gpu: &usize| {
            let route = model.net_gpu(net, *gpu);
            same(route.bandwidth, most) && route.links.len() == fewest
        };
        if settings.since(2, 19, 1) {
            let gpus = (0..model.gpus).map(|it| (self.draft.n_channels + it) % model.gpus);
            return gpus.filter(fast).collect();
        }
        // 2.18: first those whose PCI link no channel uses yet in the other direction. What is left of it is looked at when
        // their turn comes, and by then all is given back.
        let (free, busy): (Vec<usize>, Vec<usize>) =
            (0..model.gpus).filter(fast).partition(|it| model.pci_left(*it) > 0);
        [free, busy].concat()
    }

    /// Goes to a GPU, if the way has the bandwidth, and on from there (`ncclTopoSearchTryGpu`).
    fn try_gpu(&mut self, step: usize, back: Back, forced: Forced, from: Option<End>, gpu: usize) {
        let flag = 1_u64 << self.draft.n_channels;
        if self.follow(from, End::Gpu(gpu), 1.0) {
            self.model.used[gpu] ^= flag;
            self.at_gpu(gpu, step, back, forced);
            self.model.used[gpu] ^= flag;
            self.follow(from, End::Gpu(gpu), -1.0);
        }
    }

    /// Continues a channel at a GPU (`ncclTopoSearchRecGpu`).
    fn at_gpu(&mut self, gpu: usize, step: usize, back: Back, forced: Forced) {
        if self.time <= 0 {
            return;
        }
        self.time -= 1;
        let gpus = self.model.gpus;
        if step == gpus {
            return self.end();
        }
        self.draft.put_gpu(step, gpu);
        if back.net == Some(step) {
            self.leave_by_nets(gpu, step, back, forced);
        } else if self.draft.pattern == Pattern::Nvls {
            self.pull(gpu);
        } else if self.draft.pattern == Pattern::CollNetDirect {
            self.spread(gpu);
        } else if step < gpus - 1 {
            let next = match forced {
                Forced::Pci => vec![step + 1],
                Forced::Replay => vec![self.replayed(step + 1)],
                Forced::No => {
                    let sort = match back.net {
                        None => SortNet::No,
                        Some(net) if net == step + 1 => SortNet::Next,
                        Some(_) => SortNet::Later,
                    };
                    self.model.next_gpus(self.draft, gpu, sort)
                }
            };
            for next in next {
                self.try_gpu(step + 1, back, forced, Some(End::Gpu(gpu)), next);
            }
        } else if back.first == Some(step) {
            let first = self.draft.gpu_at(self.draft.n_channels, 0);
            if self.follow(Some(End::Gpu(gpu)), End::Gpu(first), 1.0) {
                self.at_gpu(first, step + 1, Back { first: None, ..back }, forced);
                self.follow(Some(End::Gpu(gpu)), End::Gpu(first), -1.0);
            }
        } else {
            self.at_gpu(gpu, gpus, Back { net: None, first: None }, forced);
        }
    }

    /// A channel is complete: keeps all if they are the best so far, and searches for the next.
    fn end(&mut self) {
        self.draft.n_channels += 1;
        if self.draft.is_better(self.best, self.model.settings) {
            self.best.copy(self.draft);
            if self.draft.n_channels == self.draft.max_channels {
                self.time = -1;
            }
        }
        if self.draft.n_channels < self.draft.max_channels {
            self.channel();
        }
        self.draft.n_channels -= 1;
    }

    /// Back to a NIC.
    fn leave_by_nets(&mut self, gpu: usize, step: usize, back: Back, forced: Forced) {
        if !self.model.inter {
            return;
        }
        let balanced = self.draft.pattern == Pattern::BalancedTree;
        let nets = self.model.select_nets(self.draft.type_inter, Some(gpu));
        for &net in nets.iter() {
            if !self.model.may_leave(self.draft, net, step) {
                continue;
            }
            // Of a balanced tree the first two GPUs have half of the traffic each.
            let next = if balanced && step == 0 { Some(1) } else { None };
            let all = self.draft.bw_inter;
            let part = if balanced { all / 2.0 } else { all };
            self.draft.bw_inter = part;
            let there = self.follow(Some(End::Gpu(gpu)), End::Net(net), 1.0);
            self.draft.bw_inter = all;
            if there {
                let channel = self.draft.n_channels;
                self.draft.inter[channel][1] = net;
                self.at_gpu(gpu, step, Back { net: next, ..back }, forced);
                self.draft.bw_inter = part;
                self.follow(Some(End::Gpu(gpu)), End::Net(net), -1.0);
                self.draft.bw_inter = all;
            }
        }
    }

    /// Whether the `NVSwitch`es have the bandwidth for one more head: all GPUs send and receive, the head twice
    /// (`ncclTopoSearchTryNvls`).
    fn pull(&mut self, head: usize) {
        let gpus = self.model.gpus;
        let times = |gpu: usize| if gpu == head { 2.0 } else { 1.0 };
        let mut down = 0;
        while down < gpus && self.follow(Some(End::Switch), End::Gpu(down), times(down)) {
            down += 1;
        }
        if down == gpus {
            let mut up = 0;
            while up < gpus && self.follow(Some(End::Gpu(up)), End::Switch, times(up)) {
                up += 1;
            }
            if up == gpus {
                self.at_gpu(head, gpus, Back { net: None, first: None }, Forced::No);
            }
            for up in (0..up).rev() {
                self.follow(Some(End::Gpu(up)), End::Switch, -times(up));
            }
        }
        for down in (0..down).rev() {
            self.follow(Some(End::Switch), End::Gpu(down), -times(down));
        }
    }

    /// Whether a head can exchange its part with every GPU (`ncclTopoSearchTryCollnetDirect`).
    fn spread(&mut self, head: usize) {
        let gpus = self.model.gpus;
        let part = 1.0 / super::draft::count(gpus - 1);
        let mut to = 0;
        while to < gpus && self.follow(Some(End::Gpu(head)), End::Gpu(to), part) {
            to += 1;
        }
        if to == gpus {
            let mut from = 0;
            while from < gpus && self.follow(Some(End::Gpu(from)), End::Gpu(head), part) {
                from += 1;
            }
            if from == gpus {
                for (step, gpu) in (0..gpus).filter(|it| *it != head).enumerate() {
                    self.draft.put_gpu(step + 1, gpu);
                }
                self.at_gpu(head, gpus, Back { net: None, first: None }, Forced::No);
            }
            for from in (0..from).rev() {
                self.follow(Some(End::Gpu(from)), End::Gpu(head), -part);
            }
        }
        for to in (0..to).rev() {
            self.follow(Some(End::Gpu(head)), End::Gpu(to), -part);
        }
    }

    /// Takes a multiple of the channel's bandwidth from a path; a negative one gives it back. `false` if the path is too far or
    /// has not enough left (`ncclTopoFollowPath`).
    #[expect(clippy::cast_possible_truncation, reason = "NCCL counts hops in whole numbers")]
    fn follow(&mut self, from: Option<End>, to: End, times: f32) -> bool {
        let Some(from) = from else { return true };
        let settings = self.model.settings;
        let Some(route) = self.model.route(from, to) else { return false };
        // Up to 2.20.
        if route.links.is_empty() && !settings.since(2, 21, 5) {
            return true;
        }
        let intra = !matches!(from, End::Net(_)) && !matches!(to, End::Net(_));
        let (bandwidth, farthest) = if intra {
            (self.draft.bw_intra, self.draft.type_intra)
        } else {
            (self.draft.bw_inter, self.draft.type_inter)
        };
        if settings.since(2, 27, 3) && self.model.types.get(usize::from(route.kind)) == Some(&PathType::Dis) {
            return false;
        }
        if same(times, 1.0) {
            let back = self.model.route(to, from).map_or(0, |it| it.kind);
            let both_ways = self.draft.pattern.is_tree() && settings.since(2, 18, 3);
            if route.kind > farthest || (both_ways && back > farthest) {
                return false;
            }
        }
        let route = Rc::clone(route);
        let bandwidth = bandwidth * times;
        let had = self.model.take(&route, route.links.len(), from, bandwidth);
        if had < route.links.len() {
            self.model.take(&route, had, from, -bandwidth);
            return false;
        }
        let hops = super::draft::count(route.links.len());
        self.draft.hops = (f64::from(self.draft.hops) + f64::from(times * hops)) as i32;
        true
    }
}

/// What became of the head of a channel.
enum Head {
    Found,
    Duplicate,
    None,
}

#[expect(clippy::float_cmp, reason = "NCCL compares them so")]
fn same(one: f32, other: f32) -> bool {
    one == other
}

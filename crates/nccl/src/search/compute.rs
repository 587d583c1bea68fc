//! What is tried until a graph is found: bandwidths, types, patterns (`ncclTopoCompute`).

use fabric::machine::Maker;

use super::draft::{Draft, count};
use super::model::Model;
use super::nets::max_channels;
use super::speeds::speeds;
use super::walk::walk;
use crate::topo::single;
use crate::{PathType, Pattern};

/// Steps for all searches of one graph together: so that it takes about a second.
const ALL_STEPS: i64 = 1 << 19;
const ALL_STEPS_18: i64 = 5 << 16;
const ALL_STEPS_18_1: i64 = 1 << 18;
/// Steps for one search.
const STEPS: i32 = 1 << 14;
/// Steps for one search for channels that are all alike.
const STEPS_SAME: i32 = 1 << 8;
/// The most heads that pull from the `NVSwitch`es (`NCCL_MAX_NVLS_ARITY`).
const NVLS_ARITY: usize = 32;
/// The most peers of a head of `CollNetDirect` (`NCCL_MAX_DIRECT_ARITY`).
const DIRECT_ARITY: usize = 7;

/// The search for one graph.
struct Search<'m, 'a> {
    model: &'m mut Model<'a>,
    /// What is tried.
    draft: Draft,
    /// The best that was found.
    best: Draft,
    speeds: Vec<f32>,
    speed: usize,
    /// What `NCCL_CROSS_NIC` allows for this pattern.
    cross_nic: i64,
    intra: Limits,
    inter: Limits,
    same_channels: bool,
    left: i64,
}

/// The nearest and the farthest path type.
#[derive(Debug, Clone, Copy)]
struct Limits {
    nearest: u8,
    farthest: u8,
}

/// Searches for a graph; `wanted` has its pattern and limits.
pub(super) fn compute(model: &mut Model<'_>, wanted: Draft) -> Draft {
    let settings = model.settings;
    let mut graph = wanted;
    let gpus = model.gpus;
    let allowed = set_cross_nic(model, &mut graph);
    let (intra, inter) = limits(model);
    (graph.type_intra, graph.type_inter) = (intra.nearest, inter.nearest);
    graph.same_channels = graph.pattern != Pattern::Nvls;
    let same_channels = graph.same_channels;
    if graph.pattern == Pattern::Nvls && (!model.has_switch || model.compute < 90) {
        return graph;
    }
    set_channels(model, &mut graph);
    if gpus == 1 && graph.pattern != Pattern::Ring {
        graph.pattern = Pattern::Tree;
    }
    if !model.inter && graph.pattern == Pattern::Nvls {
        // All GPUs pull equally.
        graph.min_channels =
            if settings.since(2, 25, 1) { graph.max_channels } else { gpus.min(max_channels(settings)) };
        graph.max_channels = graph.min_channels;
    }
    // Two islands of NVLink: trees do better there and need two channels. Since 2.26.2.
    let split = settings.since(2, 26, 2) && graph.pattern == Pattern::Ring && model.nvlink_is_split();
    if split && graph.max_channels >= 2 && graph.min_channels == 1 {
        graph.min_channels = 2;
    }
    let steps = match () {
        () if settings.since(2, 19, 1) => ALL_STEPS,
        () if settings.since(2, 18, 3) => ALL_STEPS_18,
        () => ALL_STEPS_18_1,
    };
    let mut search = Search {
        speeds: speeds(model.compute, model.inter, settings),
        draft: graph.clone(),
        best: graph,
        speed: 0,
        cross_nic: allowed,
        intra,
        inter,
        same_channels,
        left: steps,
        model,
    };
    search.run(steps);
    search.finish()
}

/// Whether channels may change the NIC. Returns what `NCCL_CROSS_NIC` allows for the pattern.
fn set_cross_nic(model: &Model<'_>, graph: &mut Draft) -> i64 {
    let fits = matches!(graph.pattern, Pattern::Ring | Pattern::BalancedTree | Pattern::SplitTree);
    let wanted = model.settings.cross_nic();
    let allowed = if model.nets.len() > 1 && fits { wanted } else { 0 };
    if model.settings.since(2, 19, 1) {
        graph.cross_nic = u8::from(allowed == 1);
        return allowed;
    }
    // 2.18: the value itself, whatever the pattern.
    graph.cross_nic = if wanted == 2 { 0 } else { u8::try_from(wanted).unwrap_or(u8::MAX) };
    i64::from(allowed != 0)
}

/// The nearest and farthest types inside the node and to the NICs.
fn limits(model: &Model<'_>) -> (Limits, Limits) {
    let number = |kind| model.number(kind);
    let sys = number(PathType::Sys);
    let mut intra = Limits { nearest: number(PathType::Loc), farthest: sys };
    let mut inter = Limits { nearest: number(PathType::Pix), farthest: sys };
    // Up to 2.24 NCCL begins at NVLink and PIX and goes up to SYS whatever the machine has.
    if !model.settings.since(2, 25, 1) {
        if model.gpus > 1 {
            intra.nearest = number(PathType::Nvl);
        }
        return (intra, inter);
    }
    let between = |kinds: &mut dyn Iterator<Item = u8>| {
        let (mut nearest, mut farthest) = (sys, number(PathType::Loc));
        for kind in kinds {
            (nearest, farthest) = (nearest.min(kind), farthest.max(kind));
        }
        Limits { nearest, farthest }
    };
    let gpus = model.gpus;
    if gpus > 1 {
        let pairs = (0..gpus).flat_map(|one| (0..gpus).map(move |other| (one, other)));
        let mut kinds = pairs.filter(|it| it.0 != it.1).map(|it| model.gpu_gpu(it.0, it.1).kind);
        intra = between(&mut kinds);
    }
    if model.inter {
        let pairs = (0..gpus).flat_map(|gpu| (0..model.nets.len()).map(move |net| (gpu, net)));
        inter = between(&mut pairs.map(|it| model.gpu_net(it.0, it.1).kind));
        intra.farthest = inter.farthest;
    }
    // A balanced tree may have to come back by a farther path. Since 2.29.2.
    if model.compute < 90 && model.settings.since(2, 29, 2) {
        inter.farthest = sys;
    }
    (intra, inter)
}

/// How many channels there may be where each has a head of its own. From 2.19.1 to 2.24.3 NCCL allows one for each GPU, and has no room for
/// more than its most channels.
fn set_channels(model: &Model<'_>, graph: &mut Draft) {
    let limited = model.settings.since(2, 25, 1);
    let room = max_channels(model.settings);
    let most = match graph.pattern {
        Pattern::Nvls if limited => NVLS_ARITY,
        Pattern::CollNetDirect if limited => DIRECT_ARITY + 1,
        Pattern::Nvls if model.settings.since(2, 19, 1) => room,
        Pattern::CollNetDirect => room,
        _ => return,
    };
    graph.max_channels = most.min(model.gpus);
}

impl Search<'_, '_> {
    fn run(&mut self, all_steps: i64) {
        let gpus = count(self.model.gpus);
        let ring = self.best.pattern == Pattern::Ring;
        let several = if self.model.settings.since(2, 21, 5) {
            self.model.gpus > 1 && !ring
        } else {
            self.model.gpus == 1 || !ring
        };
        let mut total = self.model.total_bw;
        if several {
            total = single(f64::from(total) * (f64::from(gpus) / f64::from(gpus - 1.0)));
        }
        let channels = count(self.best.min_channels);
        let last = self.speeds.len() - 1;
        let mut most = self.model.max_bw;
        if !self.model.settings.since(2, 18, 3) {
            // 2.18.1: only what a path has; all GPUs pull equally from the `NVSwitch`es.
            total = f32::INFINITY;
            if self.best.pattern == Pattern::Nvls && !self.model.inter {
                most /= gpus;
            }
        }
        let too_fast = |speed: f32| speed > most || speed * channels > total;
        while self.speed < last && too_fast(self.speeds[self.speed]) {
            self.speed += 1;
        }
        self.set_speed(self.speeds[self.speed]);
        loop {
            let time = self.search();
            let perfect =
                time == -1 || count(self.best.n_channels) * self.best.bw_inter >= self.model.total_bw;
            if perfect || !self.relax(time, all_steps) {
                break;
            }
        }
        self.improve();
    }

    fn set_speed(&mut self, speed: f32) {
        (self.draft.bw_intra, self.draft.bw_inter) = (speed, speed);
    }

    /// One search with what is set. Returns the steps that are left: -1 if the best possible was found.
    fn search(&mut self) -> i32 {
        let time = if self.draft.same_channels { STEPS_SAME } else { STEPS };
        self.draft.n_channels = 0;
        self.left -= i64::from(time);
        walk(self.model, &mut self.draft, &mut self.best, time)
    }

    /// Sets the next thing to try while there is no good graph. `false` if nothing is left to try.
    fn relax(&mut self, time: i32, all_steps: i64) -> bool {
        let model = &*self.model;
        let settings = model.settings;
        let (draft, best) = (&mut self.draft, &self.best);
        let sys = model.number(PathType::Sys);
        // Between AMD sockets all channels stay alike. Since 2.19.1.
        let amd = settings.since(2, 19, 1) && model.cpu == Maker::Amd && draft.type_intra == sys;
        if draft.same_channels && !amd {
            draft.same_channels = false;
            return true;
        }
        draft.same_channels = self.same_channels;

        if time == -1 {
            self.left = all_steps;
        } else {
            self.left += i64::from(time);
        }
        if self.left < 0 && best.n_channels > 0 {
            return false;
        }

        if model.compute >= 90 && draft.pattern == Pattern::BalancedTree && settings.since(2, 18, 3) {
            draft.pattern = Pattern::Tree;
            return true;
        }
        draft.pattern = best.pattern;

        // Since 2.27.3 not beyond what is connected.
        let end = if settings.since(2, 27, 3) { model.number(PathType::Dis) } else { u8::MAX };
        let farthest = if model.inter { draft.type_inter } else { self.intra.farthest };
        if draft.type_intra < farthest && (best.n_channels == 0 || draft.type_intra < best.type_intra) {
            draft.type_intra += 1;
            if draft.type_intra < end {
                return true;
            }
        }
        draft.type_intra = self.intra.nearest;

        let may = best.n_channels == 0
            || draft.type_inter < best.type_inter
            || draft.type_inter < model.number(PathType::Pxn);
        if model.inter && draft.type_inter < self.inter.farthest && may {
            draft.type_inter += 1;
            if draft.type_inter < end {
                return true;
            }
        }
        draft.type_inter = self.inter.nearest;

        if let Some(cross_nic) = next_cross_nic(model, self.cross_nic, draft, best) {
            draft.cross_nic = cross_nic;
            return true;
        }
        draft.cross_nic = u8::from(settings.since(2, 19, 1) && self.cross_nic == 1);

        let next = self.speeds.get(self.speed + 1).copied();
        let near = |next: f32| best.n_channels == 0 || f64::from(next / best.bw_inter) > 0.49;
        if let Some(next) = next.filter(|it| near(*it)) {
            self.speed += 1;
            self.set_speed(next);
            return true;
        }
        false
    }

    /// From the graph that was found, tries to raise the bandwidth of its channels.
    fn improve(&mut self) {
        // Since 2.19.3 channels are duplicated before, earlier after.
        let before = self.model.settings.since(2, 19, 3);
        if before {
            self.best.duplicate(self.model.compute, self.model.settings);
        }
        self.draft.copy(&self.best);
        let last = self.speeds.len() - 1;
        let slow_enough = self.speeds.iter().position(|it| *it <= self.best.bw_inter);
        self.speed = slow_enough.unwrap_or(last);
        self.set_speed(self.speeds[self.speed]);
        self.draft.min_channels = self.best.n_channels;
        let mut time = -1;
        while time != 0 && self.speed > 0 && self.raise(before) {
            time = self.search();
        }
    }

    /// Sets the next higher bandwidth; `false` if the last one was not reached.
    #[expect(clippy::float_cmp, reason = "both are of the same list, as in NCCL")]
    fn raise(&mut self, rings_too: bool) -> bool {
        let next = self.speeds[self.speed - 1];
        let (draft, best) = (&mut self.draft, &self.best);
        if best.pattern == Pattern::Ring {
            if !rings_too {
                return false;
            }
            (draft.bw_intra, draft.bw_inter) = (next, next);
        } else if rings_too
            && best.pattern == Pattern::Nvls
            && draft.bw_inter == best.bw_inter
            && draft.bw_inter < draft.bw_intra * 2.0
        {
            (draft.min_channels, draft.max_channels) = (best.n_channels, best.n_channels);
            draft.bw_inter = next;
        } else if draft.bw_intra == best.bw_intra && draft.bw_intra < draft.bw_inter * 2.0 {
            draft.bw_intra = next;
        } else {
            return false;
        }
        self.speed -= 1;
        true
    }

    /// The graph, or the simple order where none was found.
    fn finish(self) -> Draft {
        let (model, mut best) = (self.model, self.best);
        let settings = model.settings;
        if best.n_channels == 0 && !best.collnet && best.pattern != Pattern::Nvls {
            best.reserve();
            for gpu in 0..model.gpus {
                best.put_gpu(gpu, gpu);
            }
            best.n_channels = 1;
            (best.bw_intra, best.bw_inter) = (0.1, 0.1);
            best.type_intra = model.number(PathType::Sys);
            best.type_inter = best.type_intra;
            // Up to 2.28 the NIC with the number 0, since 2.29.2 those the first and the last GPU prefer.
            let first = model.nets.iter().position(|it| model.paths.nic_number(it.position) == Some(0));
            best.inter[0] = [first.unwrap_or(0); 2];
            if settings.since(2, 29, 2) {
                let net = |gpu| model.find_nets(None, Some(gpu)).first().copied();
                if let (Some(one), Some(other)) = (net(0), net(model.gpus - 1)) {
                    best.inter[0] = [one, other];
                } else {
                    best.bw_inter = 0.0;
                    best.type_inter = model.number(PathType::Dis);
                }
            }
        }
        if !settings.since(2, 19, 3) {
            best.duplicate(model.compute, settings);
        }
        best
    }
}

/// The next value of `crossNic` to try.
fn next_cross_nic(model: &Model<'_>, allowed: i64, draft: &Draft, best: &Draft) -> Option<u8> {
    let settings = model.settings;
    if draft.cross_nic != 0 {
        return None;
    }
    if !settings.since(2, 19, 1) {
        return (allowed != 0).then_some(1);
    }
    if allowed != 2 {
        return None;
    }
    // Pairs of channels since 2.23.4.
    if !settings.since(2, 23, 4) {
        return Some(1);
    }
    matches!(best.pattern, Pattern::Ring | Pattern::BalancedTree).then_some(2)
}

//! A job on machines: which ranks NCCL takes for one node, and what each of these nodes sees.

use fabric::machine::Machine;

use crate::layout::join;
use crate::settings::Network;
use crate::transport::{net_is_faster, p2p_is_allowed};
use crate::{Layout, Paths, Scope, Seat, Settings, Unfit};

/// A job laid out on machines that are all alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
    pub(crate) network: Network,
    /// What the ranks of one machine see together where NCCL takes them for one node.
    pub(crate) parts: Vec<Paths>,
    /// The whole machine, as one pod with everything sees it.
    pub(crate) whole: Paths,
    /// Of each rank of a machine.
    seats: Vec<Place>,
    /// The index of each GPU, as people know it.
    pub(crate) gpus: Vec<u32>,
    /// What each NIC gives, in GB/s.
    pub(crate) nics: Vec<f64>,
}

/// Where a rank of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its GPU.
    pub(crate) seat: Seat,
    /// Its pod.
    pub(crate) pod: usize,
    /// Its part of the machine, an index into the parts.
    pub(crate) part: usize,
}

impl Job {
    /// Lays a job out.
    pub fn new(machine: &Machine, settings: &Settings, layout: &Layout) -> Result<Self, Unfit> {
        let whole = Paths::new(machine, settings).map_err(Unfit::TooLarge)?;
        layout.check(machine)?;
        let pods = pods(machine, layout, &whole);
        let mut job = Self {
            layout: *layout,
            settings: settings.clone(),
            network: settings.network(machine),
            parts: Vec::new(),
            seats: Vec::new(),
            gpus: machine.gpus.iter().map(|it| it.index).collect(),
            nics: machine.nics.iter().map(|it| fabric::link::nic(it.rate)).collect(),
            whole,
        };
        if layout.pods_are_one_node() {
            let one = if pods.len() == 1 { pods.clone() } else { vec![join(&pods)] };
            job.add_parts(machine, &one[0])?;
        } else {
            for pod in &pods {
                job.add_parts(machine, pod)?;
            }
        }
        job.seats = pods
            .iter()
            .enumerate()
            .flat_map(|(pod, scope)| scope.gpus.iter().map(move |seat| (pod, *seat)))
            .map(|(pod, seat)| Place { seat, pod, part: job.part_of(seat.place) })
            .collect();
        Ok(job)
    }

    /// The node of some ranks with one host and one shared memory. NCCL cuts it where GPUs can use neither P2P nor
    /// shared memory, or would be slower by them than over their NICs.
    fn add_parts(&mut self, machine: &Machine, scope: &Scope) -> Result<(), Unfit> {
        let paths = if *scope == Scope::whole(machine) {
            self.whole.clone()
        } else {
            Paths::within(machine, &self.settings, scope).map_err(Unfit::TooLarge)?
        };
        let seats = paths.seats().to_vec();
        let mut domains: Vec<usize> = Vec::new();
        for (place, one) in seats.iter().enumerate() {
            let joined = (0..place).filter(|&it| connects(&paths, one.place, seats[it].place));
            let domain = joined.map(|it| domains[it]).min().unwrap_or(place);
            domains.push(domain);
        }
        if domains.iter().all(|it| *it == 0) {
            self.parts.push(paths);
            return Ok(());
        }
        let mut kept = domains.clone();
        kept.sort_unstable();
        kept.dedup();
        for domain in kept {
            let gpus = seats.iter().zip(&domains).filter(|it| *it.1 == domain).map(|it| *it.0).collect();
            let scope = Scope { gpus, nics: scope.nics.clone() };
            self.parts.push(Paths::within(machine, &self.settings, &scope).map_err(Unfit::TooLarge)?);
        }
        Ok(())
    }

    fn part_of(&self, gpu: usize) -> usize {
        self.parts.iter().position(|it| it.seat_of(gpu).is_some()).unwrap_or(0)
    }

    /// The ways that a rank sees.
    pub fn paths(&self, rank: u64) -> Option<&Paths> {
        self.parts.get(self.place(rank)?.1.part)
    }

    /// The GPU of a rank, by its place in the machine.
    pub fn gpu(&self, rank: u64) -> Option<usize> {
        Some(self.place(rank)?.1.seat.place)
    }

    /// The index of a GPU, by its place in the machine.
    pub(crate) fn index(&self, gpu: usize) -> u32 {
        self.gpus.get(gpu).copied().unwrap_or(0)
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The network the job takes.
    pub fn network(&self) -> Network {
        self.network
    }

    /// How many nodes NCCL counts: `nNodes` in its log.
    pub fn nodes(&self) -> u64 {
        (self.parts.len() as u64).saturating_mul(u64::from(self.layout.nodes))
    }

    /// The parts of one machine that are nodes to NCCL.
    pub fn parts(&self) -> &[Paths] {
        &self.parts
    }

    /// The machine of a rank, and where on it the rank is.
    pub(crate) fn place(&self, rank: u64) -> Option<(u64, Place)> {
        if rank >= self.layout.ranks() {
            return None;
        }
        let each = self.layout.ranks_per_node();
        let on_machine = usize::try_from(rank.checked_rem(each)?).ok()?;
        Some((rank.checked_div(each)?, *self.seats.get(on_machine)?))
    }

    /// The rank of a GPU on the machine of another rank.
    pub(crate) fn rank_of(&self, machine: u64, gpu: usize) -> Option<u64> {
        let on_machine = self.seats.iter().position(|it| it.seat.place == gpu)?;
        machine.checked_mul(self.layout.ranks_per_node())?.checked_add(on_machine as u64)
    }
}

/// Whether two GPUs of a node can use P2P or shared memory, and should.
fn connects(paths: &Paths, from: usize, to: usize) -> bool {
    let p2p = p2p_is_allowed(paths, from, to);
    if p2p && paths.middle(from, to).is_some() {
        return !paths.settings.p2p_copy_engine();
    }
    net_is_faster(paths, from, to, true).is_none() && (p2p || !paths.settings.shm_disabled())
}

/// What each pod of a machine has: its GPUs, and NICs. First each GPU takes those next to it, as far as they are left;
/// then those that need more take the nearest of the rest.
fn pods(machine: &Machine, layout: &Layout, whole: &Paths) -> Vec<Scope> {
    let gpus = layout.gpus_of_pods(machine);
    let Some(each) = layout.nics_per_pod.and_then(|it| usize::try_from(it).ok()) else {
        let nics = Scope::whole(machine).nics;
        return gpus.into_iter().map(|gpus| Scope { gpus, nics: nics.clone() }).collect();
    };
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); gpus.len()];
    let mut left: Vec<usize> = whole.nics().iter().map(|it| it.place).collect();
    let distance = |gpus: &[Seat], nic: usize| {
        gpus.iter().map(|it| whole.nic_wires(it.place, nic).kind.order(whole.version())).min()
    };
    for anywhere in [false, true] {
        for (gpus, taken) in gpus.iter().zip(&mut taken) {
            let best = whole.nics().iter().filter_map(|it| distance(gpus, it.place)).min();
            while taken.len() < each {
                let near = (0..left.len()).min_by_key(|it| distance(gpus, left[*it]));
                match near.filter(|it| anywhere || distance(gpus, left[*it]) == best) {
                    Some(near) => taken.push(left.remove(near)),
                    None => break,
                }
            }
        }
    }
    let scope = |(gpus, mut nics): (Vec<Seat>, Vec<usize>)| {
        nics.sort_unstable();
        Scope { gpus, nics: (0..).zip(nics).map(|(number, place)| Seat { place, number }).collect() }
    };
    gpus.into_iter().zip(taken).map(scope).collect()
}

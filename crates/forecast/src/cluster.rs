//! A cluster as far as bandwidth depends on it.

use std::fmt;
use std::ops::RangeInclusive;

use fabric::machine::{Gpu, Machine, Nic, NicKind, NvEnd, NvLink};
use fabric::settings::Network;
use fabric::{Layout, Settings, Transport, Version, link};
use nccl::{Decisions, Paths};

use crate::decided::Origin;
use crate::release::Release;
use crate::rings::{self, Mesh, Rings};

/// Machines of one kind, and how a job is spread over them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The usual name of one of the machines.
    pub machine: String,
    /// How many machines.
    pub nodes: u32,
    /// Pods on each machine. NCCL counts pods of one machine as separate nodes.
    pub pods: u32,
    /// GPUs in each pod.
    pub gpus: u32,
    /// GPUs each machine has, used or not.
    pub gpus_there: u32,
    /// Groups of ranks like this one that communicate at the same time on each machine; 1 for a job of all ranks.
    pub at_once: u32,
    /// The compute capability of the GPUs, `90` for 9.0.
    pub compute: Option<u32>,
    /// How the GPUs of a machine are joined.
    pub inside: Inside,
    /// Whether GPUs that PCI Express joins reach each other only through a CPU.
    pub through_cpu: bool,
    /// What NCCL assumes for the PCI Express link of a GPU, in GB/s one way; none where it is not known.
    pub pci: Option<f64>,
    /// How machines are joined.
    pub between: Option<Between>,
    /// What the release and the variables of NCCL allow.
    pub allowed: Allowed,
    /// What NCCL's choices are predicted from; without it the fastest algorithm counts.
    pub origin: Origin,
}

/// Which algorithms NCCL may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Rings.
    pub ring: bool,
    /// Trees.
    pub tree: bool,
    /// Sums in the switches.
    pub nvls: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { ring: true, tree: true, nvls: true }
    }
}

impl Allowed {
    /// By release, `NCCL_ALGO` and `NCCL_NVLS_ENABLE`. A list that names nothing known forbids nothing: other collectives use it.
    fn new(settings: &Settings) -> Self {
        let mut allowed = Self::default();
        if let Some(list) = settings.text("NCCL_ALGO").filter(|it| !it.contains([':', ';'])) {
            let (list, not) = list.strip_prefix('^').map_or((list, false), |it| (it, true));
            let named = |name: &str| list.split(',').any(|it| it.trim().eq_ignore_ascii_case(name)) != not;
            let asked =
                Self { ring: named("ring"), tree: named("tree"), nvls: named("nvls") || named("nvlstree") };
            if asked.ring || asked.tree || asked.nvls {
                allowed = asked;
            }
        }
        let off = settings.text("NCCL_NVLS_ENABLE").is_some_and(|it| it.trim() == "0");
        // NVLS came with 2.17.
        allowed.nvls &= !off && settings.version >= Version::new(2, 17, 0);
        allowed
    }
}

/// How the GPUs of one machine are joined.
#[derive(Debug, Clone, PartialEq)]
pub enum Inside {
    /// By `NVSwitch`es.
    Switch {
        /// NVLinks of each GPU.
        links: u32,
        /// What NCCL assumes for all of them together, in GB/s one way.
        bandwidth: f64,
        /// GPUs the switches join: 8 in a machine, 72 in an NVL72.
        domain: u32,
    },
    /// By NVLinks from GPU to GPU: how many, between which.
    Mesh {
        /// From the first to the second, by position.
        links: Vec<(usize, usize, u32)>,
        /// What NCCL assumes for one of them, in GB/s one way.
        bandwidth: f64,
    },
    /// By PCI Express.
    Pci {
        /// Whether GPUs reach each other, or data goes through host memory.
        peer_to_peer: bool,
    },
}

/// How machines are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Between {
    /// The network.
    pub kind: NicKind,
    /// NICs of a machine.
    pub nics: u32,
    /// The rate of one, in Gbit/s.
    pub gbps: f64,
    /// Whether NICs read and write GPU memory themselves.
    pub gpudirect: bool,
    /// The generation of EFA, where it is one.
    pub efa: Option<u8>,
}

impl Between {
    /// Networks whose steps take so long that pipelines fill meanwhile.
    pub(crate) fn is_far(self) -> bool {
        matches!(self.kind, NicKind::Slingshot | NicKind::Ethernet)
    }

    /// GPUDirect-TCPX, which a3-high has with four NICs; a3-mega has eight with GPUDirect-TCPXO.
    pub(crate) fn is_tcpx(self) -> bool {
        self.kind == NicKind::GpuDirectTcp && self.nics <= 4
    }
}

/// Bandwidths that the NVLinks of a GPU can have together, in GB/s one way.
const NVLINK_BANDWIDTHS: RangeInclusive<f64> = 1.0..=1e4;

/// Why there is no expected bandwidth for a cluster, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(pub String);

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

impl Cluster {
    /// Machines of this kind with all GPUs in one pod, joined as NCCL would join them, with NCCL's choices for them.
    pub fn of_machine(machine: &Machine, nodes: u32, settings: &Settings) -> Result<Self, Impossible> {
        let mut cluster = Self::described(machine, nodes, settings)?.checked()?;
        let releases = Release::known(&cluster, Some(settings.version), Some(nccl::NEWEST_PLUGIN));
        cluster.origin = Origin::new(machine, settings, releases, &cluster);
        Ok(cluster)
    }

    /// The same where the release of NCCL, that of aws-ofi-nccl, or neither is known: what is normal covers what plausible ones choose.
    #[must_use]
    pub fn of_release(mut self, nccl: Option<Version>, plugin: Option<Version>) -> Self {
        self.origin = self.origin.of_release(&self, nccl, plugin);
        self
    }

    /// The oldest and the newest release of NCCL that predictions are for; none where NCCL's choices are not predicted.
    pub fn releases(&self) -> Option<(Version, Version)> {
        self.origin.releases()
    }

    /// The same with the newest of the possible releases.
    pub(crate) fn of_newest_release(mut self) -> Self {
        self.origin = self.origin.of_newest_release(&self);
        self
    }

    fn described(machine: &Machine, nodes: u32, settings: &Settings) -> Result<Self, Impossible> {
        let gpus = u32::try_from(machine.gpus.len()).unwrap_or(u32::MAX);
        let Some(first) = machine.gpus.first() else {
            return Err(Impossible("the machine has no GPU".to_owned()));
        };
        if first.compute.is_none() && !machine.nvlinks.is_empty() {
            return Err(Impossible("the model of the GPUs is not known".to_owned()));
        }
        let bandwidth = link::nvlink(first.compute.unwrap_or(80), settings.version);
        let to_switch = machine.nvlinks.iter().find(|it| it.from == 0 && it.to == NvEnd::Switch);
        let own = machine.name.as_deref();
        let model = || first.model.as_ref().map(|it| format!("{gpus} x {it}"));
        let name = own.map(str::to_owned).or_else(model).unwrap_or_else(|| "this machine".to_owned());
        let instance = own.and_then(fabric::instance::find);
        let machines = own.and_then(fabric::catalogue::wiring).and_then(|it| it.domain).unwrap_or(1);
        let peer_to_peer = peer_to_peer(machine, settings)?;
        let inside = if let Some(NvLink { count, .. }) = to_switch.filter(|_| peer_to_peer) {
            Inside::Switch {
                links: *count,
                bandwidth: bandwidth * f64::from(*count),
                domain: gpus.saturating_mul(machines),
            }
        } else if machine.nvlinks.is_empty() || !peer_to_peer {
            Inside::Pci { peer_to_peer }
        } else {
            let ends = machine.nvlinks.iter().filter_map(|it| match it.to {
                NvEnd::Gpu(to) => Some((it.from, to, it.count)),
                NvEnd::Switch | NvEnd::Socket(_) => None,
            });
            Inside::Mesh { links: ends.collect(), bandwidth }
        };
        let socket = settings.network(machine) == Network::Socket;
        let between = machine.nics.first().and_then(|nic| {
            let rate = nic.rate?;
            Some(Between {
                // NCCL_NET=Socket: NCCL does not try the plugin and InfiniBand.
                kind: if socket { NicKind::Ethernet } else { nic.kind },
                nics: u32::try_from(machine.nics.len()).unwrap_or(u32::MAX),
                gbps: rate.0,
                gpudirect: !socket && nic.gpudirect.unwrap_or(false) && gpudirect(machine, settings),
                efa: instance.and_then(|it| it.efa_version),
            })
        });
        if matches!(inside, Inside::Pci { .. }) && gpus > 1 && first.link.is_none() {
            return Err(Impossible("the PCI Express links of the GPUs are not known".to_owned()));
        }
        Ok(Self {
            machine: name,
            nodes,
            pods: 1,
            gpus,
            gpus_there: gpus,
            at_once: 1,
            compute: first.compute,
            inside,
            through_cpu: through_cpu(machine),
            pci: first.link.map(link::pci).filter(|it| it.is_finite() && *it > 0.0),
            between,
            allowed: Allowed::new(settings),
            origin: Origin::default(),
        })
    }

    /// Machines of this kind with this layout. Pods with one host name and one `/dev/shm` are one node to NCCL.
    pub fn of_layout(machine: &Machine, layout: &Layout, settings: &Settings) -> Result<Self, Impossible> {
        let cluster = Self::of_machine(machine, layout.nodes, settings)?;
        if layout.pods_are_one_node() {
            cluster.with_pods(1, layout.pods_per_node.saturating_mul(layout.gpus_per_pod))
        } else {
            cluster.with_pods(layout.pods_per_node, layout.gpus_per_pod)
        }
    }

    /// The same cluster with another layout, as in `1x8`: pods on each machine, and GPUs in each.
    pub fn with_pods(mut self, pods: u32, gpus: u32) -> Result<Self, Impossible> {
        (self.pods, self.gpus) = (pods, gpus);
        self.checked()
    }

    /// Whether such a job is possible.
    pub fn checked(self) -> Result<Self, Impossible> {
        let wrong = |text: String| Err(Impossible(text));
        if self.nodes == 0 || self.pods == 0 || self.gpus == 0 || self.at_once == 0 {
            return wrong("a job needs at least one node, one pod and one GPU".to_owned());
        }
        // A file can say anything.
        if let Some(between) = self.between.filter(|it| !Nic::RATES.contains(&it.gbps)) {
            return wrong(format!("{:?} Gbps is not a NIC rate", between.gbps));
        }
        let nvlink = match self.inside {
            Inside::Switch { links, bandwidth, .. } => Some((links, bandwidth)),
            Inside::Mesh { bandwidth, .. } => Some((1, bandwidth)),
            Inside::Pci { .. } => None,
        };
        if let Some((links, _)) = nvlink.filter(|it| !NVLINK_BANDWIDTHS.contains(&it.1)) {
            return wrong(format!("no GPU has {links} NVLinks to switches"));
        }
        match self.pods.checked_mul(self.gpus) {
            Some(used) if used <= self.gpus_there => {}
            _ => {
                return wrong(format!(
                    "{} pods of {} GPUs do not fit on {}, which has {} GPUs",
                    self.pods, self.gpus, self.machine, self.gpus_there
                ));
            }
        }
        if self.ranks().is_none() {
            return wrong(format!("{} nodes are too many", self.nodes));
        }
        if self.between.is_none() && self.groups() > 1 {
            return wrong(format!("{} nodes, but the network between them is not known", self.groups()));
        }
        Ok(self)
    }

    /// Ranks of the job.
    pub(crate) fn ranks(&self) -> Option<u32> {
        self.nodes.checked_mul(self.pods)?.checked_mul(self.gpus)
    }

    /// GPUs that NCCL counts as one node: those of a pod, or of a whole domain of switches.
    pub(crate) fn local(&self) -> u32 {
        match self.inside {
            Inside::Switch { domain, .. } if domain > self.gpus_there && self.pods == 1 => {
                (self.gpus * (domain / self.gpus_there.max(1))).min(self.ranks().unwrap_or(u32::MAX)).max(1)
            }
            _ => self.gpus,
        }
    }

    /// What NCCL counts as nodes.
    pub(crate) fn groups(&self) -> u32 {
        self.ranks().unwrap_or(u32::MAX).div_ceil(self.local().max(1))
    }

    /// Rings over the NVLinks of a mesh between the GPUs of one pod.
    pub(crate) fn mesh_rings(&self) -> Rings {
        let Inside::Mesh { links, .. } = &self.inside else { return Rings::default() };
        let n = self.gpus as usize;
        if n > 64 {
            return Rings::default();
        }
        let mut mesh: Mesh = vec![vec![0; n]; n];
        for &(from, to, count) in links {
            if let Some(cell) = mesh.get_mut(from).and_then(|it| it.get_mut(to)) {
                *cell = (*cell).max(count);
            }
        }
        rings::rings(&mesh)
    }
}

/// Whether NCCL lets each GPU reach the next one directly.
fn peer_to_peer(machine: &Machine, settings: &Settings) -> Result<bool, Impossible> {
    let decisions = Decisions::new(machine, settings, &Layout::whole(machine))
        .map_err(|it| Impossible(it.to_string()))?;
    let last = machine.gpus.len().saturating_sub(1) as u64;
    let direct = |rank: u64| {
        let decision = decisions.transport(rank, rank + 1);
        decision.is_some_and(|it| matches!(it.transport, Some(Transport::P2p { .. })))
    };
    Ok((0..last).all(direct))
}

/// Whether there are GPUs without a common switch.
fn through_cpu(machine: &Machine) -> bool {
    let top = |gpu: &Gpu| machine.bridges_above(gpu.at).last().copied();
    let first = machine.gpus.first().and_then(top);
    first.is_none() || machine.gpus.iter().any(|it| top(it) != first)
}

/// Whether NICs read and write the memory of the GPUs next to them.
fn gpudirect(machine: &Machine, settings: &Settings) -> bool {
    let Ok(paths) = Paths::new(machine, settings) else { return false };
    let near = (0..machine.gpus.len()).filter_map(|it| paths.near_nics(it));
    near.into_iter().all(|it| it.sending.is_on() && it.receiving.is_on())
}

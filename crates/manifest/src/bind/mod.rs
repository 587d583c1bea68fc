//! Which CPUs the rank of each GPU should run on, and what makes a launcher do that.
//!
//! ```text
//! Machine, Layout -> Binding (rank, GPU, NUMA node, CPUs) -> Blocks to paste, for one launcher
//! ```
//!
//! The ranks of a NUMA node share its cores evenly. NCCL's own threads stay on the CPUs of their rank: it restricts them to those of
//! the GPU's NUMA node that the process may use (NCCL v2.28.9 src/graph/topo.cc, `ncclTopoGetCpuAffinity`).

mod kubernetes;
mod mpirun;
mod slurm;
mod torchrun;
mod wrapper;

use fabric::machine::Maker;
use fabric::{CpuSet, Layout, Machine};

/// A program that starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `srun`
    Slurm,
    /// `mpirun` of Open MPI
    Mpirun,
    /// `torchrun`
    Torchrun,
    /// Kubernetes: the kubelet and the program in the pod
    Kubernetes,
}

impl Launcher {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Slurm, Self::Mpirun, Self::Torchrun, Self::Kubernetes];

    /// `slurm`, `mpirun`, `torchrun`, `k8s`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Mpirun => "mpirun",
            Self::Torchrun => "torchrun",
            Self::Kubernetes => "k8s",
        }
    }

    /// The launcher of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// On these CPUs.
    Cpus(CpuSet),
    /// On the CPUs of this NUMA node, whose numbers are not known.
    Node(u32),
    /// The source does not say which CPUs are near its GPU.
    Unknown,
}

/// A rank of a machine and the CPUs next to its GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Its number on the machine.
    pub local: u32,
    /// Its GPU, by the position in [`Machine::gpus`].
    pub gpu: usize,
    /// The NUMA node of the GPU.
    pub numa: Option<u32>,
    /// Where it runs.
    pub pin: Pin,
    /// How many ranks run on these CPUs, this one among them.
    pub shared_by: usize,
}

/// The ranks of one machine; all machines are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Machines.
    pub nodes: u32,
    /// Pods on each machine.
    pub pods: u32,
    /// Ranks of one machine, in their order.
    pub ranks: Vec<Rank>,
    /// What is unusual, or not known, in sentences.
    pub notes: Vec<String>,
    /// The CPUs of all NUMA nodes, where all are known.
    all: Option<CpuSet>,
}

/// A text to paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What it is, in a few words.
    pub title: String,
    /// Lines, each with its end.
    pub text: String,
}

impl Binding {
    /// The binding of a job: rank N of a machine has the GPU with the Nth smallest index.
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let mut notes = Vec::new();
        let mut order: Vec<usize> = (0..machine.gpus.len()).collect();
        order.sort_by_key(|it| machine.gpus.get(*it).map(|gpu| gpu.index));
        order.truncate(usize::try_from(layout.ranks_per_node()).unwrap_or(usize::MAX));
        let homes: Vec<Home> = order.iter().map(|gpu| Home::of(machine, *gpu)).collect();
        let mut sets: Vec<&CpuSet> = Vec::new();
        for cpus in homes.iter().filter_map(|it| it.cpus.as_ref()) {
            if !sets.contains(&cpus) {
                sets.push(cpus);
            }
        }
        let crossing = sets.iter().enumerate().any(|(at, a)| sets.iter().skip(at + 1).any(|b| a.overlaps(b)));
        if crossing {
            notes.push(
                "The CPU affinities of GPUs overlap without being equal: they are not used. Read the machine itself with plumb topo."
                    .to_owned(),
            );
        }
        // Grace, Power and Graviton number the threads of a core one after the other, or have one.
        let x86 = machine.sockets.iter().all(|it| !matches!(it.maker, Maker::Arm | Maker::Power));
        let threads = x86 && machine.sockets.len() == 1;
        let mut ranks: Vec<Rank> = Vec::new();
        for (local, (gpu, home)) in (0..).zip(order.iter().zip(&homes)) {
            let cpus = home.cpus.as_ref().filter(|_| !crossing);
            let sharers = homes.iter().filter(|it| it.cpus.is_some() && it.cpus == home.cpus).count();
            let before = homes.iter().take(local as usize).filter(|it| it.cpus == home.cpus).count();
            let part = cpus.and_then(|it| it.split(sharers, threads)?.into_iter().nth(before));
            let same_node = homes.iter().filter(|it| it.numa.is_some() && it.numa == home.numa).count();
            let (pin, shared_by) = match (part, cpus, home.numa) {
                (Some(part), ..) => (Pin::Cpus(part), 1),
                (None, Some(all), _) => (Pin::Cpus(all.clone()), sharers),
                (None, None, Some(node)) if !crossing => (Pin::Node(node), same_node),
                (None, None, _) => (Pin::Unknown, 1),
            };
            ranks.push(Rank { local, gpu: *gpu, numa: home.numa, pin, shared_by });
        }
        let all =
            machine.sockets.iter().map(|it| CpuSet::parse(it.cpus.as_deref()?)).collect::<Option<Vec<_>>>();
        let all = all.map(|it| it.iter().fold(CpuSet::default(), |sum, it| sum.union(it)));
        let mut this = Self { nodes: layout.nodes, pods: layout.pods_per_node, ranks, notes, all };
        this.say_what_is_missing(machine);
        this
    }

    fn say_what_is_missing(&mut self, machine: &Machine) {
        let names = |which: &dyn Fn(&Rank) -> bool| -> Vec<String> {
            let index = |it: &Rank| machine.gpus.get(it.gpu).map_or(0, |gpu| gpu.index);
            self.ranks.iter().filter(|it| which(it)).map(|it| format!("GPU{}", index(it))).collect()
        };
        let crowded = names(&|it| it.shared_by > 1 && matches!(it.pin, Pin::Cpus(_)));
        let by_node = names(&|it| matches!(it.pin, Pin::Node(_)));
        let unknown = names(&|it| it.pin == Pin::Unknown);
        if !crowded.is_empty() {
            self.notes.push(format!(
                "{} have fewer CPUs near them than ranks: these ranks share all of them.",
                list(&crowded)
            ));
        }
        if !by_node.is_empty() {
            self.notes.push(format!(
                "The CPU numbers of the NUMA {} of {} are not known: their ranks share all CPUs of the node. plumb topo on the machine itself, or `nvidia-smi topo -m` of it, shows them.",
                if self.nodes_of_ranks() == 1 { "node" } else { "nodes" },
                list(&by_node)
            ));
        }
        let said = unknown.len() == self.ranks.len() && !self.notes.is_empty();
        if !unknown.is_empty() && !said {
            self.notes.push(format!(
                "The CPUs near {} are not known: nothing is pinned there. plumb topo on the machine itself, or `nvidia-smi topo -m` of it, shows them.",
                list(&unknown)
            ));
        }
    }

    fn nodes_of_ranks(&self) -> usize {
        let mut all: Vec<u32> = self.ranks.iter().filter_map(|it| it.numa).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    /// The CPUs of every rank, where all are known.
    fn cpus(&self) -> Option<Vec<&CpuSet>> {
        self.ranks
            .iter()
            .map(|it| match &it.pin {
                Pin::Cpus(cpus) => Some(cpus),
                Pin::Node(_) | Pin::Unknown => None,
            })
            .collect()
    }

    /// Whether nothing is known that a launcher could use.
    pub fn is_unknown(&self) -> bool {
        self.ranks.iter().all(|it| it.pin == Pin::Unknown)
    }

    /// Ranks of all machines.
    fn all_ranks(&self) -> u64 {
        u64::from(self.nodes) * self.ranks.len() as u64
    }

    /// What to paste for a launcher; nothing where no rank can be pinned.
    pub fn blocks(&self, launcher: Launcher) -> Vec<Block> {
        match launcher {
            Launcher::Kubernetes => kubernetes::blocks(self),
            Launcher::Slurm => slurm::blocks(self),
            Launcher::Mpirun => mpirun::blocks(self),
            Launcher::Torchrun => torchrun::blocks(self),
        }
    }
}

/// What a machine says about the CPUs near a GPU.
struct Home {
    numa: Option<u32>,
    cpus: Option<CpuSet>,
}

impl Home {
    fn of(machine: &Machine, gpu: usize) -> Self {
        let socket = machine.gpus.get(gpu).and_then(|it| machine.sockets.get(machine.socket_of(it.at)?));
        Self {
            numa: socket.and_then(|it| it.numa),
            cpus: socket.and_then(|it| CpuSet::parse(it.cpus.as_deref()?)),
        }
    }
}

/// `GPU0 to GPU3`, `GPU0, GPU5`.
fn list(names: &[String]) -> String {
    match names {
        [first, .., last] if names.len() > 4 => format!("{first} to {last} ({} GPUs)", names.len()),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests;

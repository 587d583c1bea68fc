//! A request, checked, with the numbers of its hardware.

use crate::hardware::Hardware;
use crate::{Kind, Request, program};

/// What all kinds are written from. Names and the image are safe to stand anywhere; the program is not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) hardware: Hardware,
    pub(crate) nodes: u32,
    /// Of a pod.
    pub(crate) gpus: u32,
    /// Of a pod; zero where there is none or one node needs none.
    pub(crate) efa: u32,
    pub(crate) image: Option<String>,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) nccl_tests: bool,
    /// The program of a rank, as it was given.
    pub(crate) command: Vec<String>,
}

impl Plan {
    pub(crate) fn new(request: &Request) -> Result<Self, String> {
        let hardware = Hardware::of(request.machine);
        if !(1..=9999).contains(&request.nodes) {
            return Err(format!("{} nodes: ask for 1 to 9999", request.nodes));
        }
        let gpus = request.gpus.unwrap_or(hardware.gpus);
        if gpus == 0 || gpus > hardware.gpus {
            return Err(format!("{gpus} GPUs a pod: {} has {}", hardware.name, hardware.gpus));
        }
        let usual = if request.nccl_tests { "nccl-tests" } else { "training" };
        let name = label("name", request.name.as_deref().unwrap_or(usual), 50)?;
        let namespace = request.namespace.as_deref().map(|it| label("namespace", it, 63)).transpose()?;
        let zone = request.zone.as_deref().map(|it| label("zone", it, 63)).transpose()?;
        let queue = request.queue.as_deref().map(|it| queue(it, request.kind)).transpose()?;
        if request.kind == Kind::Sbatch && (namespace.is_some() || zone.is_some()) {
            return Err(
                "a script for Slurm has no namespace and no zone: name a partition as its queue".to_owned()
            );
        }
        let image = request.image.as_deref().map(|it| image(it, request.kind)).transpose()?;
        if image.is_none() && request.kind != Kind::Sbatch {
            return Err("a pod needs an image: --image REGISTRY/NAME:TAG".to_owned());
        }
        let with_mpi = matches!(request.kind, Kind::MpiJob | Kind::Sbatch);
        if request.nccl_tests && !with_mpi {
            return Err(format!(
                "nccl-tests start their ranks with MPI, which a {} does not bring: take --kind mpijob or --kind sbatch",
                request.kind.name()
            ));
        }
        let command = match (request.command.is_empty(), request.nccl_tests) {
            (true, true) => program::nccl_tests(hardware.gpu_memory),
            (true, false) => return Err("say what to run: -- train.py ...".to_owned()),
            (false, _) => request.command.clone(),
        };
        if command.iter().any(|it| it.contains('\0'))
            || command.first().is_some_and(|it| it.trim().is_empty())
        {
            return Err("the command has an empty program or a zero byte in it".to_owned());
        }
        Ok(Self {
            kind: request.kind,
            nodes: request.nodes,
            gpus,
            efa: if request.nodes > 1 { share(hardware.efa, gpus, hardware.gpus) } else { 0 },
            hardware,
            image,
            name,
            namespace,
            zone,
            queue,
            nccl_tests: request.nccl_tests,
            command,
        })
    }

    /// Whether a pod takes the machine whole.
    pub(crate) fn whole(&self) -> bool {
        self.gpus == self.hardware.gpus
    }

    /// Ranks of the job.
    pub(crate) fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus)
    }

    /// Three quarters of the host's memory in GiB, by share: the rest is for huge pages, the system and daemons.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.hardware
            .memory
            .map(|it| (it * 3 / 4 * u64::from(self.gpus) / u64::from(self.hardware.gpus)).max(1))
    }

    /// Three quarters of the CPUs, by share.
    pub(crate) fn cpus(&self) -> Option<u32> {
        self.hardware.vcpus.map(|it| (it * 3 / 4 * self.gpus / self.hardware.gpus).max(1))
    }

    /// GiB of `/dev/shm`: four a GPU, a quarter of the memory at most.
    pub(crate) fn shm(&self) -> u64 {
        let wanted = u64::from(self.gpus) * 4;
        self.memory().map_or(wanted, |it| wanted.min(it / 4).max(1))
    }

    /// The container image; a plan for pods has one.
    pub(crate) fn image(&self) -> &str {
        self.image.as_deref().unwrap_or_default()
    }

    /// The first lines of every file.
    pub(crate) fn head(&self) -> String {
        let Self { nodes, gpus, hardware, .. } = self;
        let kind = self.kind.name();
        let nodes_word = if *nodes == 1 { "node" } else { "nodes" };
        let mut text = format!(
            "# Written by plumb manifest, kind {kind}: {nodes} {nodes_word} of {}, {} ranks. Check changes with: plumb lint FILE\n",
            hardware.name,
            self.ranks()
        );
        text.push_str(&self.network());
        if !self.whole() {
            text.push_str(&format!(
                "# {gpus} of {} GPUs a pod: which NICs are near them is not guaranteed; whole machines are faster.\n",
                hardware.gpus
            ));
        }
        text
    }

    /// One line on what joins the nodes.
    fn network(&self) -> String {
        let Hardware { name, efa, infiniband, gbps, .. } = &self.hardware;
        if self.nodes == 1 {
            return "# One node: NCCL stays inside it, so no network device is asked for.\n".to_owned();
        }
        if *efa > 0 {
            return format!("# Network: EFA, {efa} x {} Gbps a node.\n", gbps / f64::from(*efa));
        }
        if *infiniband > 0 {
            return format!(
                "# Network: {infiniband} InfiniBand NICs a node, {gbps} Gbps together.{}\n",
                if self.kind == Kind::Sbatch {
                    ""
                } else {
                    " What the cluster calls them (rdma/...) is not known here: add it to\n# requests and limits of the pods."
                }
            );
        }
        format!("# Network: {name} has no EFA; NCCL runs over TCP at {gbps} Gbps a node.\n")
    }
}

/// The NICs of some of the GPUs: their share, one at least.
fn share(nics: u32, gpus: u32, all: u32) -> u32 {
    if nics == 0 { 0 } else { (nics * gpus / all).max(1) }
}

/// A name of Kubernetes: a label of DNS that begins with a letter, as services and `TrainJob` want it.
fn label(what: &str, text: &str, most: usize) -> Result<String, String> {
    let letters = text.bytes().all(|it| it == b'-' || it.is_ascii_lowercase() || it.is_ascii_digit());
    let ends = text.starts_with(|it: char| it.is_ascii_lowercase()) && !text.ends_with('-');
    if letters && ends && text.len() <= most {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{what} {text:?}: take at most {most} lowercase letters, digits and hyphens, the first a letter, the last no hyphen"
    ))
}

/// A queue of Kueue, or a partition of Slurm.
fn queue(text: &str, kind: Kind) -> Result<String, String> {
    if kind != Kind::Sbatch {
        return label("queue", text, 63);
    }
    let letters = text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it));
    if letters && text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.len() <= 63 {
        return Ok(text.to_owned());
    }
    Err(format!("queue {text:?}: take the name of a partition"))
}

/// A reference to an image. A script may also name a file for enroot.
fn image(text: &str, kind: Kind) -> Result<String, String> {
    let more: &[u8] = if kind == Kind::Sbatch { b"._/:@-#+" } else { b"._/:@-" };
    let letters = text.bytes().all(|it| it.is_ascii_alphanumeric() || more.contains(&it));
    let first = text
        .starts_with(|it: char| it.is_ascii_alphanumeric() || (kind == Kind::Sbatch && "/.".contains(it)));
    let last = text.ends_with(|it: char| it.is_ascii_alphanumeric());
    if letters && first && last && text.len() <= 500 {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no image: write REGISTRY/NAME:TAG"))
}

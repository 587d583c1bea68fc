//! A checked request with the numbers of its hardware.

use crate::hardware::Hardware;
use crate::{Kind, Request, Variable, program};

/// The input of every kind. Names and the image need no quoting; the program does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) hardware: Hardware,
    pub(crate) nodes: u32,
    /// Per pod.
    pub(crate) gpus: u32,
    /// Per pod; zero if the machine has none or the job has one node.
    pub(crate) efa: u32,
    pub(crate) image: Option<String>,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) nccl_tests: bool,
    /// The program of a rank, as it was given.
    pub(crate) command: Vec<String>,
    /// What the program needs.
    pub(crate) variables: Vec<Variable>,
}

impl Plan {
    pub(crate) fn new(request: &Request) -> Result<Self, String> {
        let hardware = Hardware::of(request.machine);
        if !(1..=9999).contains(&request.nodes) {
            return Err(format!("{} nodes: use 1 to 9999", request.nodes));
        }
        let gpus = request.gpus.unwrap_or(hardware.gpus);
        if gpus == 0 || gpus > hardware.gpus {
            return Err(format!("{gpus} GPUs per pod, but {} has {}", hardware.name, hardware.gpus));
        }
        let usual = if request.nccl_tests { "nccl-tests" } else { "training" };
        let name = label("name", request.name.as_deref().unwrap_or(usual), 50)?;
        let namespace = request.namespace.as_deref().map(|it| label("namespace", it, 63)).transpose()?;
        let zone = request.zone.as_deref().map(|it| label("zone", it, 63)).transpose()?;
        let queue = request.queue.as_deref().map(|it| queue(it, request.kind)).transpose()?;
        if request.kind == Kind::Sbatch && (namespace.is_some() || zone.is_some()) {
            return Err(
                "a Slurm script has no namespace and no zone: give a partition with --queue".to_owned()
            );
        }
        let image = request.image.as_deref().map(|it| image(it, request.kind)).transpose()?;
        if image.is_none() && request.kind != Kind::Sbatch {
            return Err("a pod needs an image: --image REGISTRY/NAME:TAG".to_owned());
        }
        let with_mpi = matches!(request.kind, Kind::MpiJob | Kind::Sbatch);
        if request.nccl_tests && !with_mpi {
            return Err(format!(
                "nccl-tests needs MPI to start its ranks, which a {} does not have: use --kind mpijob or --kind sbatch",
                request.kind.name()
            ));
        }
        let command = match (request.command.is_empty(), request.nccl_tests) {
            (true, true) => program::nccl_tests(hardware.gpu_memory),
            (true, false) => return Err("give the program to run: -- train.py ...".to_owned()),
            (false, _) => request.command.clone(),
        };
        if command.iter().any(|it| it.contains('\0'))
            || command.first().is_some_and(|it| it.trim().is_empty())
        {
            return Err("the command has an empty program or a zero byte".to_owned());
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
            variables: request.variables.clone(),
        })
    }

    /// Whether NCCL needs variables, as a sentence.
    pub(crate) fn other_variables(&self) -> &'static str {
        if self.variables.is_empty() { "No variables are needed." } else { "NCCL needs no variables." }
    }

    /// Whether a pod uses the whole machine.
    pub(crate) fn whole(&self) -> bool {
        self.gpus == self.hardware.gpus
    }

    /// Ranks of the job.
    pub(crate) fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus)
    }

    /// The pod's share of three quarters of the host memory in GiB: the rest is for huge pages, the system and daemons.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.hardware
            .memory
            .map(|it| (it * 3 / 4 * u64::from(self.gpus) / u64::from(self.hardware.gpus)).max(1))
    }

    /// The pod's share of three quarters of the CPUs.
    pub(crate) fn cpus(&self) -> Option<u32> {
        self.hardware.vcpus.map(|it| (it * 3 / 4 * self.gpus / self.hardware.gpus).max(1))
    }

    /// GiB of `/dev/shm`: four per GPU, at most a quarter of the memory.
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
        let counted = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let mut text = format!(
            "# Generated by plumb manifest, kind {kind}: {} of {}, {}. Check changes with: plumb lint FILE\n",
            counted(u64::from(*nodes), "node"),
            hardware.name,
            counted(self.ranks(), "rank")
        );
        text.push_str(&self.network());
        if !self.whole() {
            text.push_str(&format!(
                "# {gpus} of {} GPUs per pod: the nearest NICs are not guaranteed; whole machines are faster.\n",
                hardware.gpus
            ));
        }
        text
    }

    /// One line about the network between the nodes.
    fn network(&self) -> String {
        let Hardware { name, efa, infiniband, gbps, .. } = &self.hardware;
        if self.nodes == 1 {
            return "# One node: NCCL stays inside it, so the pod requests no network device.\n".to_owned();
        }
        if *efa > 0 {
            return format!("# Network: EFA, {efa} x {} Gbps per node.\n", gbps / f64::from(*efa));
        }
        if *infiniband > 0 {
            return format!(
                "# Network: {infiniband} InfiniBand NICs per node, {gbps} Gbps in total.{}\n",
                if self.kind == Kind::Sbatch {
                    ""
                } else {
                    " plumb does not know their resource name (rdma/...) in this cluster: add it to\n# requests and limits of the pods."
                }
            );
        }
        format!("# Network: {name} has no EFA; NCCL runs over TCP at {gbps} Gbps per node.\n")
    }
}

/// The share of the NICs that belongs to some of the GPUs, at least one.
fn share(nics: u32, gpus: u32, all: u32) -> u32 {
    if nics == 0 { 0 } else { (nics * gpus / all).max(1) }
}

/// A Kubernetes name: a DNS label that begins with a letter, as Services and `TrainJob` require.
fn label(what: &str, text: &str, most: usize) -> Result<String, String> {
    let letters = text.bytes().all(|it| it == b'-' || it.is_ascii_lowercase() || it.is_ascii_digit());
    let ends = text.starts_with(|it: char| it.is_ascii_lowercase()) && !text.ends_with('-');
    if letters && ends && text.len() <= most {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{what} {text:?}: use at most {most} lowercase letters, digits and hyphens, beginning with a letter and not ending with a hyphen"
    ))
}

/// A Kueue queue, or a Slurm partition.
fn queue(text: &str, kind: Kind) -> Result<String, String> {
    if kind != Kind::Sbatch {
        return label("queue", text, 63);
    }
    let letters = text.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it));
    if letters && text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.len() <= 63 {
        return Ok(text.to_owned());
    }
    Err(format!("queue {text:?}: use the name of a partition"))
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
    Err(format!("{text:?} is not an image: use REGISTRY/NAME:TAG"))
}

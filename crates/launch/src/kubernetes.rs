//! Pods: Kubeflow's `PET_` variables, and Indexed Jobs.

use crate::place::{Found, Way};
use crate::variables::Variables;
use crate::{Error, Launcher, torch};

/// Pods have an address each: one port serves all jobs.
const PORT: u16 = 29500;

/// What a pod knows of itself beside its variables.
pub(crate) struct Pod {
    /// Its host name.
    name: String,
    /// `/etc/hosts`, where the kubelet writes the pod's full name if it has a subdomain.
    hosts: String,
}

impl Pod {
    /// Of this machine.
    pub(crate) fn here(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let name = match env("HOSTNAME") {
            Some(name) if !name.trim().is_empty() => name,
            _ => read("/proc/sys/kernel/hostname"),
        };
        Self { name: name.trim().to_owned(), hosts: read("/etc/hosts") }
    }

    /// `job-0.service.space.svc.cluster.local` for the pod `job-3` in `/etc/hosts`' line
    /// `10.1.2.3 job-3.service.space.svc.cluster.local job-3`.
    fn sibling(&self, name: &str) -> Option<String> {
        let label = self.name.split('.').next()?;
        let names = self.hosts.lines().filter(|it| !it.trim_start().starts_with('#'));
        let mut names = names.flat_map(|it| it.split_whitespace().skip(1)).chain([self.name.as_str()]);
        names.find_map(|it| Some(format!("{name}.{}", it.strip_prefix(label)?.strip_prefix('.')?)))
    }
}

/// `PET_` variables where `RANK` counts pods too, and no `LOCAL_RANK` says that a process has a rank of its own.
pub(crate) fn pet_beside_rank(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let pods = variables.text("PET_NODE_RANK").is_some() && variables.text("LOCAL_RANK").is_none();
    if pods { pet(variables) } else { Ok(None) }
}

/// A pod with `PET_` variables, which torchrun would read. We are in torchrun's place: nobody else listens on
/// `PET_MASTER_PORT`, and the ranks of this pod are ours to start.
pub(crate) fn pet(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let launcher = Launcher::Pet;
    let Some(nodes) = variables.text("PET_NNODES") else { return Ok(None) };
    let (fewest, most) = nodes.split_once(':').unwrap_or((&nodes, &nodes));
    let nodes = match (fewest.parse::<usize>(), most.parse::<usize>()) {
        (Ok(fewest), Ok(most)) if fewest == most && most > 0 => most,
        _ => return Err(Error::variable("PET_NNODES", &nodes, "one number of nodes")),
    };
    let node = match (variables.number("PET_NODE_RANK")?, variables.number("JOB_COMPLETION_INDEX")?) {
        (Some(node), _) | (None, Some(node)) => node,
        (None, None) if nodes == 1 => 0,
        (None, None) => {
            return Err(Error::Missing { launcher, found: "PET_NNODES", missing: "PET_NODE_RANK" });
        }
    };
    let here = per_node(variables)?;
    let expected =
        || Error::variable("PET_NODE_RANK", &node.to_string(), format!("less than PET_NNODES, {nodes}"));
    let size = nodes.checked_mul(here).ok_or_else(expected)?;
    let rank = node.checked_mul(here).filter(|it| *it < size).ok_or_else(expected)?;
    let mut ways = vec![Way::Loopback];
    let mut identity = "pet".to_owned();
    if let Some(master) = variables.text("PET_MASTER_ADDR") {
        let host = torch::host("PET_MASTER_ADDR", &master)?;
        identity = format!("pet-{host}");
        let port = variables.port("PET_MASTER_PORT")?.unwrap_or(PORT);
        ways = vec![Way::Given(host, port)];
    }
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: Some(0),
        local_size: Some(here),
        start_here: here,
        identity,
        ways,
        advice: "set PET_MASTER_ADDR to the host of the first pod and PET_MASTER_PORT to a free port there",
    }))
}

/// `PET_NPROC_PER_NODE`: a number, or `auto` and `gpu` for one a GPU, or `cpu` for one a core. Unlike torchrun we
/// take `auto` for one where there is no GPU: a rank a core is no test of a network.
fn per_node(variables: Variables<'_>) -> Result<usize, Error> {
    let name = "PET_NPROC_PER_NODE";
    match variables.text(name).as_deref() {
        None => Ok(1),
        Some("auto" | "gpu") => Ok(gpus().max(1)),
        Some("cpu") => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        Some(text) => match variables.number(name)? {
            Some(number) if number > 0 => Ok(number),
            _ => Err(Error::variable(name, text, "a number of at least 1, auto, gpu or cpu")),
        },
    }
}

/// The GPUs whose device files are here. The driver is not asked: it would start threads, and some launchers fork.
pub fn gpus() -> usize {
    let Ok(files) = std::fs::read_dir("/dev") else { return 0 };
    let names = files.filter_map(|it| it.ok()?.file_name().into_string().ok());
    let number = |it: &str| it.strip_prefix("nvidia").is_some_and(|it| it.parse::<u32>().is_ok());
    names.filter(|it| number(it)).count()
}

/// A pod of an Indexed Job, alone or in a JobSet.
///
/// Kubernetes tells a pod its index, but neither how many there are nor where the first is. The size has to be set
/// (`PLUMB_SIZE`, `WORLD_SIZE` or `COMPLETIONS`); the first pod's name follows from our own, if the pods have a
/// headless service. In a JobSet, `JOBSET_NAME`, `REPLICATED_JOB_NAME` and `JOB_INDEX` are read where set.
pub(crate) fn indexed_job(variables: Variables<'_>, pod: &Pod) -> Result<Option<Found>, Error> {
    let launcher = Launcher::Kubernetes;
    let Some(index) = variables.number("JOB_COMPLETION_INDEX")? else { return Ok(None) };
    let completions = variables.number("COMPLETIONS")?;
    let given = variables.number("PLUMB_SIZE")?.or(variables.number("WORLD_SIZE")?).or(completions);
    let Some(size) = given else {
        let missing = "PLUMB_SIZE, the number of pods (the Job's completions),";
        return Err(Error::Missing { launcher, found: "JOB_COMPLETION_INDEX", missing });
    };
    let rank = match (variables.number("JOB_INDEX")?, completions) {
        (None | Some(0), _) => index,
        (Some(job), Some(completions)) => job.saturating_mul(completions).saturating_add(index),
        (Some(_), None) => {
            return Err(Error::Missing { launcher, found: "JOB_INDEX", missing: "COMPLETIONS" });
        }
    };
    let label = pod.name.split('.').next().unwrap_or_default();
    let first = match (variables.text("JOBSET_NAME"), variables.text("REPLICATED_JOB_NAME")) {
        (Some(set), Some(job)) => {
            let name = format!("{set}-{job}-0-0");
            Some(pod.sibling(&name).unwrap_or_else(|| format!("{name}.{set}")))
        }
        _ => label.strip_suffix(&format!("-{index}")).and_then(|it| pod.sibling(&format!("{it}-0"))),
    };
    let ways = match &first {
        Some(host) => vec![Way::At(torch::host("HOSTNAME", host)?, PORT)],
        None => Vec::new(),
    };
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: None,
        local_size: None,
        start_here: 1,
        identity: format!("kubernetes-{}", first.unwrap_or_default()),
        ways,
        advice: "give the pods a subdomain with a headless service, or set MASTER_ADDR to an address of the pod \
                 with index 0 and MASTER_PORT=29500",
    }))
}

#[cfg(test)]
impl Pod {
    /// A pod with these.
    pub(crate) fn new(name: &str, hosts: &str) -> Self {
        Self { name: name.to_owned(), hosts: hosts.to_owned() }
    }
}

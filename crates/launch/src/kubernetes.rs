//! Pods: Kubeflow's `PET_` variables, and Indexed Jobs.

use crate::identity::{Detected, RendezvousSource};
use crate::variables::Variables;
use crate::{Error, Launcher, torch};

/// Every pod has its own address, so all jobs can use the same port.
const PORT: u16 = 29500;

/// What a pod knows about itself besides its variables.
pub(crate) struct Pod {
    /// The host name.
    name: String,
    /// The text of `/etc/hosts`, where the kubelet writes the full name of a pod with a subdomain.
    hosts: String,
}

impl Pod {
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

/// `PET_` variables beside a `RANK` that counts pods: `LOCAL_RANK`, which a process with its own rank has, is not set.
pub(crate) fn pet_beside_rank(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let pods = variables.text("PET_NODE_RANK").is_some() && variables.text("LOCAL_RANK").is_none();
    if pods { pet(variables) } else { Ok(None) }
}

/// A pod with the `PET_` variables that torchrun reads. This process runs instead of torchrun: nothing else listens on
/// `PET_MASTER_PORT`, and it has to start the ranks of this pod.
pub(crate) fn pet(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::Pet;
    let Some(nodes) = variables.text("PET_NNODES") else { return Ok(None) };
    let (min, max) = nodes.split_once(':').unwrap_or((&nodes, &nodes));
    let nodes = match (min.parse::<usize>(), max.parse::<usize>()) {
        (Ok(min), Ok(max)) if min == max && max > 0 => max,
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
    let mut sources = vec![RendezvousSource::Loopback];
    let mut job_id = "pet".to_owned();
    if let Some(master) = variables.text("PET_MASTER_ADDR") {
        let host = torch::host("PET_MASTER_ADDR", &master)?;
        job_id = format!("pet-{host}");
        let port = variables.port("PET_MASTER_PORT")?.unwrap_or(PORT);
        sources = vec![RendezvousSource::Fixed { host, port }];
    }
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: Some(0),
        local_size: Some(here),
        ranks_to_start: here,
        job_id,
        sources,
        advice: "set PET_MASTER_ADDR to the host of the first pod and PET_MASTER_PORT to a free port there",
    }))
}

/// `PET_NPROC_PER_NODE`: a number, `auto` or `gpu` for one rank per GPU, `cpu` for one per core. Without GPUs `auto` is
/// one rank, unlike in torchrun: one rank per core would not test the network.
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

/// The number of NVIDIA GPUs of this host, from their device files. The driver is not called: it would start threads, and
/// some launchers fork.
pub fn gpus() -> usize {
    let Ok(files) = std::fs::read_dir("/dev") else { return 0 };
    let names = files.filter_map(|it| it.ok()?.file_name().into_string().ok());
    let number = |it: &str| it.strip_prefix("nvidia").is_some_and(|it| it.parse::<u32>().is_ok());
    names.filter(|it| number(it)).count()
}

/// A pod of an Indexed Job, alone or in a JobSet.
///
/// Kubernetes gives a pod its index, but neither the number of pods nor the address of the first. The user has to set the
/// size (`PLUMB_SIZE`, `WORLD_SIZE` or `COMPLETIONS`). The name of the first pod follows from the name of this one, if
/// the pods have a headless service. In a JobSet, `JOBSET_NAME`, `REPLICATED_JOB_NAME` and `JOB_INDEX` are read too.
pub(crate) fn indexed_job(variables: Variables<'_>, pod: &Pod) -> Result<Option<Detected>, Error> {
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
    let sources = match &first {
        Some(host) => vec![RendezvousSource::Derived { host: torch::host("HOSTNAME", host)?, port: PORT }],
        None => Vec::new(),
    };
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: None,
        local_size: None,
        ranks_to_start: 1,
        job_id: format!("kubernetes-{}", first.unwrap_or_default()),
        sources,
        advice: "give the pods a subdomain with a headless service, or set MASTER_ADDR to an address of the pod \
                 with index 0 and MASTER_PORT=29500",
    }))
}

#[cfg(test)]
impl Pod {
    pub(crate) fn new(name: &str, hosts: &str) -> Self {
        Self { name: name.to_owned(), hosts: hosts.to_owned() }
    }
}

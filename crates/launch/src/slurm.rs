//! Slurm steps.

use crate::identity::{Detected, RendezvousSource};
use crate::variables::{Variables, port_from_job_id};
use crate::{Error, Launcher, expand_hostlist};

/// The largest number of a step that srun starts. Larger ones are the batch script, the shell of `salloc` and others.
const LAST_STEP: u64 = 0xffff_ff00;

/// More nodes than any Slurm cluster has.
const MAX_NODES: usize = 1 << 16;

/// A rank of srun.
///
/// A batch script has `SLURM_PROCID=0` and the job's `SLURM_NTASKS`, but no `SLURM_STEP_ID`; the shell of `salloc`
/// has no `SLURM_PROCID`, or runs in a step with a number above [`LAST_STEP`]. None of these is a rank.
pub(crate) fn step(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::Slurm;
    let (Some(step), Some(rank)) = (variables.text("SLURM_STEP_ID"), variables.number("SLURM_PROCID")?)
    else {
        return Ok(None);
    };
    let number = step.parse::<u64>().map_err(|_| Error::variable("SLURM_STEP_ID", &step, "a number"))?;
    if number > LAST_STEP {
        return Ok(None);
    }
    let size = match variables.number("SLURM_STEP_NUM_TASKS")? {
        Some(size) => size,
        None => variables.required(launcher, "SLURM_PROCID", "SLURM_NTASKS")?,
    };
    let job = variables.text("SLURM_JOB_ID").or_else(|| variables.text("SLURM_JOBID"));
    let job = job.ok_or(Error::Missing { launcher, found: "SLURM_STEP_ID", missing: "SLURM_JOB_ID" })?;
    let job_id = format!("slurm-{job}.{step}");
    let pmix = variables
        .text("PMIX_NAMESPACE")
        .filter(|it| it.starts_with("slurm.pmix."))
        .map(RendezvousSource::Pmix);
    let mut sources: Vec<RendezvousSource> = pmix.into_iter().chain([RendezvousSource::Loopback]).collect();
    // With any other distribution rank 0 is on the first node.
    let arbitrary = variables.text("SLURM_DISTRIBUTION").is_some_and(|it| it.starts_with("arbitrary"));
    if let Some(host) = first_node(variables)?.filter(|_| !arbitrary) {
        sources.push(RendezvousSource::Derived { host, port: port_from_job_id(&job_id) });
    }
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: variables.number("SLURM_LOCALID")?,
        local_size: local_size(variables, size)?,
        ranks_to_start: 1,
        job_id,
        sources,
        advice: "SLURM_STEP_NODELIST is not set, or the distribution is arbitrary; use srun --mpi=pmix, or export \
                 MASTER_ADDR=HOST MASTER_PORT=29500 before srun, with the host of rank 0",
    }))
}

/// The first node of the step, where rank 0 runs.
fn first_node(variables: Variables<'_>) -> Result<Option<String>, Error> {
    for name in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] {
        if let Some(list) = variables.text(name) {
            let hosts = expand_hostlist(&list, MAX_NODES)
                .map_err(|why| Error::variable(name, &list, format!("hosts ({why})")))?;
            return Ok(hosts.into_iter().next());
        }
    }
    Ok(None)
}

/// The number of ranks of this node, from a list like `2(x3),1`, which stands for 2, 2, 2, 1.
fn local_size(variables: Variables<'_>, size: usize) -> Result<Option<usize>, Error> {
    if variables.number("SLURM_STEP_NUM_NODES")? == Some(1) {
        return Ok(Some(size));
    }
    let (Some(list), Some(node)) =
        (variables.text("SLURM_STEP_TASKS_PER_NODE"), variables.number("SLURM_NODEID")?)
    else {
        return Ok(None);
    };
    let invalid = || Error::variable("SLURM_STEP_TASKS_PER_NODE", &list, "numbers as in 2(x3),1");
    let mut before = 0_usize;
    for part in list.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')').ok_or_else(invalid)?),
            None => (part, "1"),
        };
        let tasks = tasks.parse::<usize>().map_err(|_| invalid())?;
        let times = times.parse::<usize>().ok().filter(|it| *it <= MAX_NODES).ok_or_else(invalid)?;
        before = before.saturating_add(times);
        if node < before {
            return Ok(Some(tasks));
        }
    }
    Ok(None)
}

//! A step of Slurm.

use crate::place::{Found, Way};
use crate::variables::{Variables, port_of};
use crate::{Error, Launcher, expand};

/// Slurm's largest real step number. Above are the batch script, the shell of `salloc` and their like.
const LAST_STEP: u64 = 0xffff_ff00;

/// More nodes than any Slurm cluster has.
const MAX_NODES: usize = 1 << 16;

/// A rank of srun.
///
/// A batch script has `SLURM_PROCID=0` and the job's `SLURM_NTASKS`, but no `SLURM_STEP_ID`; the shell of `salloc`
/// has no `SLURM_PROCID`, or runs in a step with a number above [`LAST_STEP`]. None of these is a rank.
pub(crate) fn step(variables: Variables<'_>) -> Result<Option<Found>, Error> {
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
        None => variables.needed(launcher, "SLURM_PROCID", "SLURM_NTASKS")?,
    };
    let job = variables.text("SLURM_JOB_ID").or_else(|| variables.text("SLURM_JOBID"));
    let job = job.ok_or(Error::Missing { launcher, found: "SLURM_STEP_ID", missing: "SLURM_JOB_ID" })?;
    let identity = format!("slurm-{job}.{step}");
    let pmix = variables.text("PMIX_NAMESPACE").filter(|it| it.starts_with("slurm.pmix.")).map(Way::Pmix);
    let mut ways: Vec<Way> = pmix.into_iter().chain([Way::Loopback]).collect();
    // Otherwise rank 0 is on the first node.
    let arbitrary = variables.text("SLURM_DISTRIBUTION").is_some_and(|it| it.starts_with("arbitrary"));
    if let Some(host) = first_node(variables)?.filter(|_| !arbitrary) {
        ways.push(Way::At(host, port_of(&identity)));
    }
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: variables.number("SLURM_LOCALID")?,
        local_size: local_size(variables, size)?,
        start_here: 1,
        identity,
        ways,
        advice: "SLURM_STEP_NODELIST is not set, or the distribution is arbitrary; use srun --mpi=pmix, or export \
                 MASTER_ADDR=HOST MASTER_PORT=29500 before srun, with the host of rank 0",
    }))
}

/// The first node of the step, where rank 0 runs.
fn first_node(variables: Variables<'_>) -> Result<Option<String>, Error> {
    for name in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] {
        if let Some(list) = variables.text(name) {
            let hosts = expand(&list, MAX_NODES)
                .map_err(|why| Error::variable(name, &list, format!("hosts ({why})")))?;
            return Ok(hosts.into_iter().next());
        }
    }
    Ok(None)
}

/// The ranks of this node: its place in `2(x3),1`, which is 2, 2, 2, 1.
fn local_size(variables: Variables<'_>, size: usize) -> Result<Option<usize>, Error> {
    if variables.number("SLURM_STEP_NUM_NODES")? == Some(1) {
        return Ok(Some(size));
    }
    let (Some(list), Some(node)) =
        (variables.text("SLURM_STEP_TASKS_PER_NODE"), variables.number("SLURM_NODEID")?)
    else {
        return Ok(None);
    };
    let wrong = || Error::variable("SLURM_STEP_TASKS_PER_NODE", &list, "numbers as in 2(x3),1");
    let mut before = 0_usize;
    for part in list.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')').ok_or_else(wrong)?),
            None => (part, "1"),
        };
        let tasks = tasks.parse::<usize>().map_err(|_| wrong())?;
        let times = times.parse::<usize>().ok().filter(|it| *it <= MAX_NODES).ok_or_else(wrong)?;
        before = before.saturating_add(times);
        if node < before {
            return Ok(Some(tasks));
        }
    }
    Ok(None)
}

//! Open MPI's mpirun, and process managers with PMI or PMIx.

use crate::identity::{Detected, RendezvousSource};
use crate::kvs::{Connected, Pmi, Pmix};
use crate::variables::Variables;
use crate::{Error, Launcher, slurm};

/// A rank of Open MPI's mpirun, 4 or 5. Its PMIx key-value store carries the rendezvous address between hosts.
pub(crate) fn open_mpi(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::OpenMpi;
    let Some(rank) = variables.number("OMPI_COMM_WORLD_RANK")? else { return Ok(None) };
    let size = variables.required(launcher, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?;
    let job = variables.text("PMIX_NAMESPACE").or_else(|| variables.text("OMPI_MCA_ess_base_jobid"));
    let pmix = variables.text("PMIX_RANK").and(variables.text("PMIX_NAMESPACE")).map(RendezvousSource::Pmix);
    let sources = pmix.into_iter().chain([RendezvousSource::Loopback]).collect();
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: variables.number("OMPI_COMM_WORLD_LOCAL_RANK")?,
        local_size: variables.number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
        ranks_to_start: 1,
        job_id: format!("openmpi-{}", job.unwrap_or_default()),
        sources,
        advice: "name the host of rank 0 and a free port there: \
                 mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...",
    }))
}

/// A rank of a process manager with PMI: hydra of MPICH and Intel MPI, `srun --mpi=pmi2`.
///
/// hydra passes an open connection in `PMI_FD`. With `-pmi-port` it gives its address and an id instead of the rank: rank
/// and size come over the connection then.
pub(crate) fn pmi(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::Pmi;
    if let (Some(id), Some(port), None) =
        (variables.number("PMI_ID")?, variables.text("PMI_PORT"), variables.text("PMI_RANK"))
    {
        let Connected { pmi, rank, size } = Pmi::connect(&port, id)?;
        return detected(variables, rank, size, vec![RendezvousSource::OpenStore(Box::new(pmi))]);
    }
    let Some(rank) = variables.number("PMI_RANK")? else { return Ok(None) };
    let size = variables.required(launcher, "PMI_RANK", "PMI_SIZE")?;
    let mut sources = vec![RendezvousSource::Loopback];
    if let Some(fd) = variables.number("PMI_FD")? {
        let fd =
            i32::try_from(fd).map_err(|_| Error::variable("PMI_FD", &fd.to_string(), "a file descriptor"))?;
        sources.insert(0, RendezvousSource::Pmi(fd));
    }
    detected(variables, rank, size, sources)
}

fn detected(
    variables: Variables<'_>,
    rank: usize,
    size: usize,
    sources: Vec<RendezvousSource>,
) -> Result<Option<Detected>, Error> {
    let mut found = Detected {
        launcher: Launcher::Pmi,
        rank,
        size,
        local_rank: variables.number("MPI_LOCALRANKID")?,
        local_size: variables.number("MPI_LOCALNRANKS")?,
        ranks_to_start: 1,
        job_id: format!("pmi-{}", variables.text("PMI_JOBID").unwrap_or_default()),
        sources,
        advice: "name the host of rank 0 and a free port there: \
                 mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ...",
    };
    // srun --mpi=pmi2 sets the variables of PMI and of Slurm.
    if let Some(step) = slurm::step(variables)?.filter(|it| it.rank == rank && it.size == size) {
        found.local_rank = found.local_rank.or(step.local_rank);
        found.local_size = found.local_size.or(step.local_size);
        found.job_id = step.job_id;
    }
    Ok(Some(found))
}

/// A rank of any process manager with PMIx, which tells the number of ranks.
pub(crate) fn pmix(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::Pmix;
    let Some(rank) = variables.number("PMIX_RANK")? else { return Ok(None) };
    let Some(job) = variables.text("PMIX_NAMESPACE") else {
        return Err(Error::Missing { launcher, found: "PMIX_RANK", missing: "PMIX_NAMESPACE" });
    };
    let pmix = Pmix::open(rank, &job)?;
    let size = pmix.size()?;
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: None,
        local_size: pmix.local_size(),
        ranks_to_start: 1,
        job_id: format!("pmix-{job}"),
        sources: vec![RendezvousSource::OpenStore(Box::new(pmix))],
        advice: "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
    }))
}

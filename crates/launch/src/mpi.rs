//! Open MPI's mpirun, and process managers with PMI or PMIx.

use crate::board::{Pmi, Pmix};
use crate::place::{Found, Way};
use crate::variables::Variables;
use crate::{Error, Launcher, slurm};

/// A rank of Open MPI's mpirun, 4 or 5. Its PMIx board carries the meeting point between hosts.
pub(crate) fn open_mpi(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let launcher = Launcher::OpenMpi;
    let Some(rank) = variables.number("OMPI_COMM_WORLD_RANK")? else { return Ok(None) };
    let size = variables.needed(launcher, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?;
    let job = variables.text("PMIX_NAMESPACE").or_else(|| variables.text("OMPI_MCA_ess_base_jobid"));
    let pmix = variables.text("PMIX_RANK").and(variables.text("PMIX_NAMESPACE")).map(Way::Pmix);
    let ways = pmix.into_iter().chain([Way::Loopback]).collect();
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: variables.number("OMPI_COMM_WORLD_LOCAL_RANK")?,
        local_size: variables.number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
        start_here: 1,
        identity: format!("openmpi-{}", job.unwrap_or_default()),
        ways,
        advice: "name the host of rank 0 and a free port there: \
                 mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...",
    }))
}

/// A rank of a process manager with PMI: hydra of MPICH and Intel MPI, `srun --mpi=pmi2`.
///
/// hydra passes an open connection in `PMI_FD`; with `-pmi-port` it gives its address, and an id in place of the
/// rank: rank and size come over the connection then.
pub(crate) fn pmi(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let launcher = Launcher::Pmi;
    if let (Some(id), Some(port), None) =
        (variables.number("PMI_ID")?, variables.text("PMI_PORT"), variables.text("PMI_RANK"))
    {
        let (board, rank, size) = Pmi::connect(&port, id)?;
        return described(variables, rank, size, vec![Way::Ready(Box::new(board))]);
    }
    let Some(rank) = variables.number("PMI_RANK")? else { return Ok(None) };
    let size = variables.needed(launcher, "PMI_RANK", "PMI_SIZE")?;
    let mut ways = vec![Way::Loopback];
    if let Some(fd) = variables.number("PMI_FD")? {
        let fd =
            i32::try_from(fd).map_err(|_| Error::variable("PMI_FD", &fd.to_string(), "a file descriptor"))?;
        ways.insert(0, Way::Pmi(fd));
    }
    described(variables, rank, size, ways)
}

fn described(
    variables: Variables<'_>,
    rank: usize,
    size: usize,
    ways: Vec<Way>,
) -> Result<Option<Found>, Error> {
    let mut found = Found {
        launcher: Launcher::Pmi,
        rank,
        size,
        local_rank: variables.number("MPI_LOCALRANKID")?,
        local_size: variables.number("MPI_LOCALNRANKS")?,
        start_here: 1,
        identity: format!("pmi-{}", variables.text("PMI_JOBID").unwrap_or_default()),
        ways,
        advice: "name the host of rank 0 and a free port there: \
                 mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ...",
    };
    // srun --mpi=pmi2 sets both families, about the same process.
    if let Some(step) = slurm::step(variables)?.filter(|it| it.rank == rank && it.size == size) {
        found.local_rank = found.local_rank.or(step.local_rank);
        found.local_size = found.local_size.or(step.local_size);
        found.identity = step.identity;
    }
    Ok(Some(found))
}

/// A rank of any process manager with PMIx. How many ranks there are is asked of it.
pub(crate) fn pmix(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let launcher = Launcher::Pmix;
    let Some(rank) = variables.number("PMIX_RANK")? else { return Ok(None) };
    let Some(job) = variables.text("PMIX_NAMESPACE") else {
        return Err(Error::Missing { launcher, found: "PMIX_RANK", missing: "PMIX_NAMESPACE" });
    };
    let board = Pmix::open(rank, &job)?;
    let size = board.size()?;
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: None,
        local_size: board.local_size(),
        start_here: 1,
        identity: format!("pmix-{job}"),
        ways: vec![Way::Ready(Box::new(board))],
        advice: "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
    }))
}

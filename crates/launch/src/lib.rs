//! Where ranks run: started here, or inside what torchrun, mpirun or srun started.
//!
//! [`Place::find`] reads the variables that launchers set: who am I, how many are we, where do we meet.
//! [`Place::meet`] then brings the ranks to one address and one token. [`start()`] starts ranks on this machine,
//! looks after them and leaves none behind.
//!
//! # Whose variables count
//! Launchers are started inside launchers, and the variables of the outer one stay visible. The innermost counts:
//!
//! 1. `PLUMB_RANK`, `PLUMB_SIZE`, `PLUMB_MEETING`, `PLUMB_TOKEN`: set by [`start()`], or by hand
//! 2. torchrun, known by `TORCHELASTIC_RUN_ID`
//! 3. Open MPI: `OMPI_COMM_WORLD_RANK`
//! 4. PMI of MPICH, Intel MPI and `srun --mpi=pmi2`: `PMI_RANK`, or `PMI_ID` and `PMI_PORT`
//! 5. Kubeflow's `PET_` variables beside `RANK`, where no `LOCAL_RANK` says that a process has its own
//! 6. `RANK` and `WORLD_SIZE` set by hand or by another launcher of PyTorch
//! 7. a step of Slurm: `SLURM_STEP_ID` and `SLURM_PROCID` together, with PMIx if `--mpi=pmix` was given. A batch
//!    script and the shell of `salloc` have a part of these variables, and are no rank
//! 8. any other launcher that speaks PMIx: `PMIX_RANK`, `PMIX_NAMESPACE`
//! 9. Kubeflow's `PET_` variables: `PET_NNODES`, `PET_NODE_RANK`
//! 10. a Kubernetes Indexed Job: `JOB_COMPLETION_INDEX`
//!
//! # Where ranks meet
//! In this order: `PLUMB_MEETING=host:port`; `MASTER_ADDR` and `MASTER_PORT` (one port further under torchrun,
//! whose own store listens there); the board of the process manager (PMI, PMIx); loopback, where all ranks are on
//! one machine; the first node of a Slurm step; the pod with index 0.
//!
//! # The token
//! `PLUMB_TOKEN` always counts. Else it is random where a board carries it. Where there is no board it is derived
//! from the job's identity (job and step number, run id, names): this keeps two jobs apart, but it is no secret.
//! On a network that others use, set `PLUMB_TOKEN` to a random text.

mod board;
mod error;
mod hostlist;
mod kubernetes;
mod launcher;
mod meeting;
mod mpi;
mod place;
mod slurm;
mod start;
mod torch;
mod variables;

pub use board::Board;
pub use error::Error;
pub use hostlist::expand;
pub use kubernetes::gpus;
pub use launcher::Launcher;
pub use meeting::{Listen, Meeting, Met, Point};
pub use place::Place;
pub use start::{Ending, Outcome, Part, Start, start};

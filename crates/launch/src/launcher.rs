use std::fmt;

/// The program that started a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// [`start`](crate::start()), or `PLUMB_` variables set by hand.
    Plumb,
    /// torchrun, or another launcher that sets PyTorch's `RANK` and `WORLD_SIZE`.
    Torch,
    /// mpirun of Open MPI.
    OpenMpi,
    /// mpiexec of MPICH or Intel MPI, or another process manager with PMI.
    Pmi,
    /// A process manager with PMIx.
    Pmix,
    /// srun.
    Slurm,
    /// `PET_` variables of Kubeflow.
    Pet,
    /// A Kubernetes Indexed Job.
    Kubernetes,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plumb => "plumb",
            Self::Torch => "torchrun",
            Self::OpenMpi => "Open MPI's mpirun",
            Self::Pmi => "a PMI process manager",
            Self::Pmix => "a PMIx process manager",
            Self::Slurm => "srun",
            Self::Pet => "Kubeflow",
            Self::Kubernetes => "a Kubernetes Indexed Job",
        })
    }
}

//! Finds out which rank this process is, brings the ranks of a job to one address, and starts ranks on this host and tasks
//! on others.
//!
//! 1. [`RankIdentity::detect`] reads the environment variables of launchers: rank, size, local rank, and where the
//!    rendezvous is.
//! 2. [`RankIdentity::rendezvous`] gives all ranks one address and one token. Rank 0 opens the listener; the other ranks
//!    get its [`Endpoint`] from their variables or from the process manager's [`KeyValueStore`]. Connecting to it is the
//!    caller's task.
//! 3. Without a launcher, [`start()`] runs one process per rank on this host, forwards their standard error, and ends
//!    all of them when one fails.
//!
//! ```no_run
//! use std::net::{IpAddr, Ipv4Addr, TcpListener};
//! use std::time::Duration;
//!
//! use launch::{Bootstrap, Opened, RankIdentity, Start, start};
//!
//! let Some(identity) = RankIdentity::detect(&|name| std::env::var(name).ok())? else {
//!     // Not started by a launcher: run this program once per rank.
//!     start(&Start::new(8))?;
//!     return Ok(());
//! };
//! let bootstrap = identity.rendezvous(Duration::from_secs(60), |listen| {
//!     let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
//!     let listener = TcpListener::bind((address, listen.port))?;
//!     let address = listener.local_addr()?;
//!     Ok::<_, Box<dyn std::error::Error>>(Opened { listener, address })
//! })?;
//! match bootstrap {
//!     Bootstrap::Listen { listener, token } => { /* rank 0 accepts the other ranks */ }
//!     Bootstrap::Connect(endpoint) => { /* connect to endpoint.address() */ }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tasks on other hosts
//! A [`Request`] is built first, with one [`Task`] per host; a [`Way`] shows what it would run, or runs it. The contract is
//! written at [`Way`]. The hosts come from a list ([`hosts_of_list`], [`hosts_of_file`], [`hosts_of_slurm`]) or from the way
//! itself ([`Inside::hosts`], `Kubernetes::hosts`). [`Across`] makes the tasks of a job with ranks on several hosts.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use launch::{Client, Request, Ssh, Stop, Task, Way as _, hosts_of_list};
//!
//! let hosts = hosts_of_list("node[01-16]")?;
//! let stop = Stop::on_signals()?;
//! let mut way = Ssh::new(Client::ssh())?;
//! way.place(&hosts, &stop, &mut |it| { /* it.outcome: where plumb is, or why it cannot be there */ })?;
//! let tasks = hosts.iter().map(|it| Task::plumb(it.clone(), ["node", "--format", "json"])).collect();
//! let request = Request::new("node probe", tasks, Duration::from_secs(60));
//! way.run(&request, &stop, &mut |it| { /* it.how, it.stdout */ })?;
//! let not_confirmed = way.clean();
//! # Ok::<(), launch::Error>(())
//! ```
//!
//! # Which launcher's variables are used
//! A launcher may run inside another one, whose variables stay visible. The innermost launcher is used:
//!
//! 1. `PLUMB_RANK`, `PLUMB_SIZE`, `PLUMB_RENDEZVOUS`, `PLUMB_TOKEN`: set by [`start()`], by [`Across`] (with
//!    `PLUMB_RANKS_HERE`, the number of ranks that this process starts), or by hand
//! 2. torchrun, recognised by `TORCHELASTIC_RUN_ID`
//! 3. Open MPI: `OMPI_COMM_WORLD_RANK`
//! 4. PMI of MPICH, Intel MPI and `srun --mpi=pmi2`: `PMI_RANK`, or `PMI_ID` and `PMI_PORT`
//! 5. Kubeflow's `PET_` variables beside `RANK`, if `LOCAL_RANK` is not set
//! 6. `RANK` and `WORLD_SIZE` set by hand or by another launcher of PyTorch
//! 7. a Slurm step: `SLURM_STEP_ID` and `SLURM_PROCID` together, with PMIx if `--mpi=pmix` was given. A batch
//!    script and the shell of `salloc` have only some of these variables and are not ranks
//! 8. any other launcher with PMIx: `PMIX_RANK`, `PMIX_NAMESPACE`
//! 9. Kubeflow's `PET_` variables: `PET_NNODES`, `PET_NODE_RANK`
//! 10. a Kubernetes Indexed Job: `JOB_COMPLETION_INDEX`
//!
//! # Where the rendezvous is
//! The first of these that is known: `PLUMB_RENDEZVOUS=host:port`; `MASTER_ADDR` and `MASTER_PORT` (the next port under
//! torchrun, whose own store listens on `MASTER_PORT`); the key-value store of the process manager (PMI, PMIx); loopback,
//! if all ranks are on one host; the first node of a Slurm step; the pod with index 0.
//!
//! # The token
//! `PLUMB_TOKEN` if it is set. Otherwise a random one if a key-value store carries it. Otherwise it is derived from the
//! job's identity (job and step number, run id, names): this keeps two jobs apart, but it is not a secret. On a network
//! that others use, set `PLUMB_TOKEN` to a random text.

mod across;
mod batch;
mod error;
mod host;
mod hostlist;
mod identity;
mod kubernetes;
mod kvs;
mod launcher;
mod mpi;
mod quote;
mod rendezvous;
mod request;
mod slurm;
mod start;
mod supervise;
mod torch;
mod variables;
mod way;
mod ways;

pub use across::{Across, port_was_taken};
pub use batch::BatchScript;
pub use error::Error;
pub use host::{Host, hosts_of_file, hosts_of_list, hosts_of_slurm};
pub use hostlist::expand_hostlist;
pub use identity::RankIdentity;
pub use kubernetes::gpus;
pub use kvs::KeyValueStore;
pub use launcher::Launcher;
pub use quote::quote;
pub use rendezvous::{Bootstrap, Endpoint, ListenAddress, Opened, Rendezvous};
pub use request::{Clock, Ended, How, Obstacle, ObstacleKind, Place, Placed, Program, Request, Shown, Task};
pub use start::{Exit, Failure, Outcome, Part, Start, start};
pub use way::{Stop, Way};
pub use ways::{Client, Here, Inside, Joined, Kubernetes, KubernetesOptions, Srun, Ssh};

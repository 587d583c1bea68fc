//! Variables as launchers set them, and what they mean. The recorded ones are of real launchers.

use super::*;

/// Variables, as lines of `name=value`.
fn env(lines: &str) -> impl Fn(&str) -> Option<String> {
    move |name| {
        lines.lines().rev().find_map(|it| it.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }
}

fn pod() -> Pod {
    Pod::new(
        "job-3",
        "127.0.0.1 localhost\n# no job-3.x\n10.1.2.3\tjob-3.svc.space.svc.cluster.local\tjob-3\n",
    )
}

/// The identity that these variables give, as one line, without opening a key-value store: `rank 1 of 4 (1 of 2), srun: node1:24000 slurm-1.0`.
fn describe(lines: &str) -> String {
    let env = env(lines);
    let variables = Variables(&env);
    let found = match from_plumb(variables)
        .and_then(|it| it.map_or_else(|| from_launcher(variables, &pod()), |it| Ok(Some(it))))
    {
        Ok(Some(found)) => found,
        Ok(None) => {
            return torch::rank_without_world_size(variables)
                .map_or("nothing".to_owned(), |it| format!("error: {it}"));
        }
        Err(error) => return format!("error: {error}"),
    };
    if let Err(error) = found.check() {
        return format!("error: {error}");
    }
    let number = |it: Option<usize>| it.map_or("?".to_owned(), |it| it.to_string());
    let local = format!("{} of {}", number(found.local_rank), number(found.local_size));
    let mut text = format!("rank {} of {} ({local}), {}: ", found.rank, found.size, found.launcher);
    if found.ranks_to_start > 1 {
        text += &format!("start {}, ", found.ranks_to_start);
    }
    let is_store = |it: &RendezvousSource| {
        matches!(it, RendezvousSource::Pmi(_) | RendezvousSource::Pmix(_) | RendezvousSource::OpenStore(_))
    };
    match overridden(&found, variables) {
        Ok(Some(Rendezvous::Fixed(endpoint))) => text + &format!("{} {}", endpoint.address(), endpoint.token),
        Ok(Some(Rendezvous::KeyValueStore(store))) => text + store.name(),
        Err(error) => format!("error: {error}"),
        Ok(None) if found.sources.iter().any(is_store) => {
            let names = found.sources.iter().map(|it| match it {
                RendezvousSource::Pmi(fd) => format!("PMI at {fd}"),
                RendezvousSource::Pmix(job) => format!("PMIx of {job}"),
                RendezvousSource::OpenStore(store) => store.name().to_owned(),
                RendezvousSource::Loopback => "loopback".to_owned(),
                RendezvousSource::Fixed { host, port } | RendezvousSource::Derived { host, port } => {
                    format!("{host}:{port}")
                }
            });
            text + &names.collect::<Vec<_>>().join(", ")
        }
        Ok(None) => match found.first_source(variables.text("PLUMB_TOKEN")) {
            Ok(RankIdentity { rendezvous: Rendezvous::Fixed(endpoint), .. }) => {
                text + &format!("{} {}", endpoint.address(), endpoint.token)
            }
            Ok(RankIdentity { rendezvous: Rendezvous::KeyValueStore(store), .. }) => text + store.name(),
            Err(error) => format!("error: {error}"),
        },
    }
}

#[track_caller]
fn check(lines: &str, expected: &str) {
    assert_eq!(describe(lines), expected, "\n{lines}");
}

/// A recording with other lines after it, which count before it.
macro_rules! recorded {
    ($name:literal $(, $more:literal)*) => {
        concat!(include_str!(concat!("../tests/recorded/", $name, ".env")) $(, "\n", $more)*)
    };
}

const OPEN_MPI: &str = recorded!("openmpi-4.1");
const MPICH: &str = recorded!("mpich-4.0");
const SRUN: &str = recorded!("slurm-22.05-srun");

/// Documented at pytorch.org/docs/stable/elastic/run.html.
const TORCHRUN: &str = "LOCAL_RANK=1
    RANK=9
    GROUP_RANK=1
    ROLE_RANK=9
    ROLE_NAME=default
    LOCAL_WORLD_SIZE=8
    WORLD_SIZE=16
    ROLE_WORLD_SIZE=16
    MASTER_ADDR=node0
    MASTER_PORT=29500
    TORCHELASTIC_RESTART_COUNT=2
    TORCHELASTIC_MAX_RESTARTS=3
    TORCHELASTIC_RUN_ID=none
    TORCHELASTIC_USE_AGENT_STORE=True";

#[test]
fn no_launcher() {
    check("", "nothing");
    check("HOME=/root\nWORLD_SIZE=4\nMASTER_PORT=29500\nPLUMB_SIZE=4", "nothing");
    check("RANK=\nPMI_RANK= ", "nothing");
}

#[test]
fn our_own() {
    check(
        "PLUMB_RANK=1\nPLUMB_SIZE=4\nPLUMB_RENDEZVOUS=[fd00::1]:7\nPLUMB_TOKEN=t",
        "rank 1 of 4 (? of ?), plumb: [fd00::1]:7 t",
    );
    check("PLUMB_RANK=1\nPLUMB_SIZE=4\nPLUMB_RENDEZVOUS=h:7", "rank 1 of 4 (? of ?), plumb: h:7 plumb-h:7");
    check("PLUMB_RANK=0\nPLUMB_SIZE=1\nPLUMB_TOKEN=t", "rank 0 of 1 (? of ?), plumb: 127.0.0.1:0 t");
    check(
        "PLUMB_RANK=1\nPLUMB_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=7",
        "rank 1 of 2 (? of ?), plumb: h:7 plumb-",
    );
    check(
        "PLUMB_RANK=4\nPLUMB_SIZE=8\nPLUMB_RANKS_HERE=4\nPLUMB_RENDEZVOUS=h:7\nPLUMB_TOKEN=t",
        "rank 4 of 8 (0 of 4), plumb: start 4, h:7 t",
    );
    let own = "\nPLUMB_RANK=1\nPLUMB_SIZE=4\nPLUMB_RENDEZVOUS=h:7\nPLUMB_TOKEN=t";
    check(&own.replace("RENDEZVOUS", "MEETING"), "rank 1 of 4 (? of ?), plumb: h:7 t");
    check(&format!("PLUMB_MEETING=old:1{own}"), "rank 1 of 4 (? of ?), plumb: h:7 t");
    for outer in [OPEN_MPI, MPICH, SRUN, TORCHRUN] {
        check(&(outer.to_owned() + own), "rank 1 of 4 (? of ?), plumb: h:7 t");
    }
}

#[test]
fn torchrun() {
    check(TORCHRUN, "rank 9 of 16 (1 of 8), torchrun: node0:29501 torchrun-none-2");
    let last = TORCHRUN.replace("29500", "65535");
    check(&last, "rank 9 of 16 (1 of 8), torchrun: node0:65534 torchrun-none-2");
    check(
        &(TORCHRUN.to_owned() + "\nPLUMB_RENDEZVOUS=other:5\nPLUMB_TOKEN=t"),
        "rank 9 of 16 (1 of 8), torchrun: other:5 t",
    );
    for outer in [OPEN_MPI, MPICH, SRUN, recorded!("slurm-22.05-srun-pmi2"), "PET_NNODES=2\nPET_NODE_RANK=1"]
    {
        let both = format!("{outer}\n{TORCHRUN}");
        check(&both, "rank 9 of 16 (1 of 8), torchrun: node0:29501 torchrun-none-2");
    }
}

#[test]
fn torch_variables_by_hand() {
    let hand = "RANK=1\nWORLD_SIZE=2\nMASTER_ADDR=node0\nMASTER_PORT=29500";
    check(hand, "rank 1 of 2 (? of ?), torchrun: node0:29500 torch-node0-29500");
    check(&format!("{SRUN}\n{hand}"), "rank 1 of 2 (? of ?), torchrun: node0:29500 torch-node0-29500");
    check("RANK=0\nWORLD_SIZE=1", "rank 0 of 1 (? of ?), torchrun: 127.0.0.1:0 torch");
    // A pod's variables, seen by ranks that mpirun starts in the pod.
    check(
        recorded!("openmpi-4.1", "RANK=0", "WORLD_SIZE=1"),
        "rank 1 of 3 (1 of 3), Open MPI's mpirun: PMIx of 1506803713, loopback",
    );
}

#[test]
fn open_mpi() {
    check(
        recorded!("openmpi-5.0"),
        "rank 1 of 3 (2 of 3), Open MPI's mpirun: PMIx of prterun-head-15181@1, loopback",
    );
    check(OPEN_MPI, "rank 1 of 3 (1 of 3), Open MPI's mpirun: PMIx of 1506803713, loopback");
    check(
        recorded!("openmpi-4.1", "MASTER_ADDR=node0", "MASTER_PORT=29500"),
        "rank 1 of 3 (1 of 3), Open MPI's mpirun: node0:29500 openmpi-1506803713",
    );
    check(
        recorded!("openmpi-4.1", "PMIX_RANK="),
        "rank 1 of 3 (1 of 3), Open MPI's mpirun: 127.0.0.1:22702 openmpi-1506803713",
    );
    check(
        recorded!("openmpi-4.1", "PMIX_RANK=", "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
        "error: no rendezvous address for the ranks of Open MPI's mpirun: name the host of rank 0 and a free port there: \
         mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...",
    );
    check(
        &format!("{SRUN}\n{OPEN_MPI}"),
        "rank 1 of 3 (1 of 3), Open MPI's mpirun: PMIx of 1506803713, loopback",
    );
}

#[test]
fn pmi() {
    check(recorded!("intel-mpi-2021.19"), "rank 1 of 3 (1 of 3), a PMI process manager: PMI at 11, loopback");
    check(MPICH, "rank 1 of 3 (1 of 3), a PMI process manager: PMI at 8, loopback");
    check(
        recorded!("mpich-4.0", "PLUMB_RENDEZVOUS=node0:7"),
        "rank 1 of 3 (1 of 3), a PMI process manager: node0:7 pmi-",
    );
    check(
        recorded!("slurm-22.05-srun-pmi2"),
        "rank 1 of 3 (1 of 2), a PMI process manager: PMI at 13, loopback",
    );
    check(
        recorded!("mpich-4.0", "PMI_FD=", "MPI_LOCALNRANKS=1", "MPI_LOCALRANKID=0"),
        "error: no rendezvous address for the ranks of a PMI process manager: name the host of rank 0 and a free port there: \
         mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ...",
    );
}

#[test]
fn slurm() {
    check(SRUN, "rank 1 of 3 (1 of 2), srun: n1:23492 slurm-1.0");
    check(recorded!("slurm-22.05-sbatch-srun"), "rank 1 of 3 (1 of 2), srun: n1:25431 slurm-4.0");
    check(
        recorded!("slurm-22.05-srun", "SLURM_STEP_NUM_NODES=1"),
        "rank 1 of 3 (1 of 3), srun: 127.0.0.1:23492 slurm-1.0",
    );
    check(
        recorded!("slurm-22.05-srun-pmix"),
        "rank 1 of 3 (1 of 2), srun: PMIx of slurm.pmix.2.0, loopback, n1:28001",
    );
    check(
        recorded!("slurm-22.05-srun", "SLURM_STEP_TASKS_PER_NODE=1(x2),2(x5),1", "SLURM_NODEID=4"),
        "rank 1 of 3 (1 of 2), srun: n1:23492 slurm-1.0",
    );
    check(
        recorded!(
            "slurm-22.05-srun",
            "MASTER_ADDR=10.0.0.1",
            "MASTER_PORT=29500",
            "WORLD_SIZE=3",
            "PLUMB_TOKEN=t"
        ),
        "rank 1 of 3 (1 of 2), srun: 10.0.0.1:29500 t",
    );
}

#[test]
fn shells_of_slurm_are_not_ranks() {
    check(recorded!("slurm-22.05-sbatch"), "nothing");
    check(recorded!("slurm-22.05-salloc"), "nothing");
    // The step that salloc's shell runs in with LaunchParameters=use_interactive_step.
    check(recorded!("slurm-22.05-srun", "SLURM_STEP_ID=4294967290"), "nothing");
}

#[test]
fn pet() {
    let pods = "PET_NNODES=2\nPET_NODE_RANK=1\nPET_MASTER_ADDR=job-node-0-0.job\nPET_MASTER_PORT=29400";
    check(pods, "rank 1 of 2 (0 of 1), Kubeflow: job-node-0-0.job:29400 pet-job-node-0-0.job");
    check(
        &format!("{pods}\nPET_NPROC_PER_NODE=4\nJOB_COMPLETION_INDEX=1"),
        "rank 4 of 8 (0 of 4), Kubeflow: start 4, job-node-0-0.job:29400 pet-job-node-0-0.job",
    );
    // PyTorchJob counts pods in RANK and WORLD_SIZE.
    check(
        &format!("{pods}\nRANK=1\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=1\nPET_NPROC_PER_NODE=4"),
        "rank 4 of 8 (0 of 4), Kubeflow: start 4, job-node-0-0.job:29400 pet-job-node-0-0.job",
    );
    check(
        "PET_NNODES=2:2\nPET_NODE_RANK=0\nPET_MASTER_ADDR=m",
        "rank 0 of 2 (0 of 1), Kubeflow: m:29500 pet-m",
    );
    check(
        "PET_NNODES=1\nPET_NPROC_PER_NODE=2",
        "rank 0 of 2 (0 of 2), Kubeflow: start 2, 127.0.0.1:27495 pet",
    );
    check("PET_NNODES=1:4\nPET_NODE_RANK=0", "error: PET_NNODES is \"1:4\": expected one number of nodes");
    check("PET_NNODES=2", "error: PET_NNODES is set but PET_NODE_RANK is not (Kubeflow needs both)");
    check("PET_NNODES=2\nPET_NODE_RANK=2", "error: PET_NODE_RANK is \"2\": expected less than PET_NNODES, 2");
    check(
        "PET_NNODES=2\nPET_NODE_RANK=1\nPET_NPROC_PER_NODE=0",
        "error: PET_NPROC_PER_NODE is \"0\": expected a number of at least 1, auto, gpu or cpu",
    );
}

#[test]
fn indexed_job() {
    let first = "job-0.svc.space.svc.cluster.local";
    check(
        "JOB_COMPLETION_INDEX=3\nPLUMB_SIZE=4",
        &format!("rank 3 of 4 (? of ?), a Kubernetes Indexed Job: {first}:29500 kubernetes-{first}"),
    );
    check(
        "JOB_COMPLETION_INDEX=3\nCOMPLETIONS=4\nMASTER_ADDR=m\nMASTER_PORT=7\nPLUMB_TOKEN=t",
        "rank 3 of 4 (? of ?), a Kubernetes Indexed Job: m:7 t",
    );
    check(
        "JOB_COMPLETION_INDEX=1\nWORLD_SIZE=8\nCOMPLETIONS=4\nJOBSET_NAME=s\nREPLICATED_JOB_NAME=w\nJOB_INDEX=1\nPLUMB_TOKEN=t",
        "rank 5 of 8 (? of ?), a Kubernetes Indexed Job: s-w-0-0.svc.space.svc.cluster.local:29500 t",
    );
    check(
        "JOB_COMPLETION_INDEX=3",
        "error: JOB_COMPLETION_INDEX is set but PLUMB_SIZE, the number of pods (the Job's completions), is not \
         (a Kubernetes Indexed Job needs both)",
    );
    // Another host name: the name of the first pod does not follow from it.
    check(
        "JOB_COMPLETION_INDEX=2\nPLUMB_SIZE=4",
        "error: no rendezvous address for the ranks of a Kubernetes Indexed Job: give the pods a subdomain with a headless \
         service, or set MASTER_ADDR to an address of the pod with index 0 and MASTER_PORT=29500",
    );
}

#[test]
fn a_launcher_with_a_variable_missing() {
    check("PLUMB_RANK=1", "error: PLUMB_RANK is set but PLUMB_SIZE is not (plumb needs both)");
    check(
        "PLUMB_RANK=1\nPLUMB_SIZE=2",
        "error: no rendezvous address for the ranks of plumb: set PLUMB_RENDEZVOUS=HOST:PORT, an address of rank 0",
    );
    check("RANK=1", "error: RANK is set but WORLD_SIZE is not (torchrun needs both)");
    check(
        "RANK=1\nJOB_COMPLETION_INDEX=0\nPLUMB_SIZE=1\n",
        "rank 0 of 1 (? of ?), a Kubernetes Indexed Job: 127.0.0.1:0 kubernetes-",
    );
    check(
        "OMPI_COMM_WORLD_RANK=1",
        "error: OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not (Open MPI's mpirun needs both)",
    );
    check("PMI_RANK=1", "error: PMI_RANK is set but PMI_SIZE is not (a PMI process manager needs both)");
    check(
        "PMIX_RANK=1",
        "error: PMIX_RANK is set but PMIX_NAMESPACE is not (a PMIx process manager needs both)",
    );
    check(
        "TORCHELASTIC_RUN_ID=x\nRANK=1\nWORLD_SIZE=2\nMASTER_ADDR=h",
        "error: TORCHELASTIC_RUN_ID is set but MASTER_PORT is not (torchrun needs both)",
    );
    check(
        "RANK=1\nWORLD_SIZE=2\nMASTER_PORT=1",
        "error: no rendezvous address for the ranks of torchrun: RANK and WORLD_SIZE are set; set MASTER_ADDR to the host of \
         rank 0 and MASTER_PORT to a free port there",
    );
}

#[test]
fn invalid_values() {
    check("RANK=x\nWORLD_SIZE=2", "error: RANK is \"x\": expected a number from 0 to 1048576");
    check("PLUMB_RANK=-1", "error: PLUMB_RANK is \"-1\": expected a number from 0 to 1048576");
    check(
        recorded!("mpich-4.0", "PMI_SIZE=1e3"),
        "error: PMI_SIZE is \"1e3\": expected a number from 0 to 1048576",
    );
    check(
        "RANK=2\nWORLD_SIZE=2",
        "error: the rank that torchrun gives is \"2\": expected less than the number of ranks, 2",
    );
    check(
        "RANK=0\nWORLD_SIZE=0",
        "error: the number of ranks that torchrun gives is \"0\": expected 1 to 1048576",
    );
    check(
        "RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=1",
        "error: the local rank that torchrun gives is \"1\": expected less than the number of local ranks, 1",
    );
    check(
        "PLUMB_RANK=0\nPLUMB_SIZE=2\nPLUMB_RENDEZVOUS=nowhere",
        "error: PLUMB_RENDEZVOUS is \"nowhere\": expected HOST:PORT",
    );
    check(
        "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a b\nMASTER_PORT=1",
        "error: MASTER_ADDR is \"a b\": expected a host name or an address",
    );
    check(
        "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=70000",
        "error: MASTER_PORT is \"70000\": expected a port from 1 to 65535",
    );
    check(
        recorded!("slurm-22.05-srun", "SLURM_STEP_NODELIST=n[1-"),
        "error: SLURM_STEP_NODELIST is \"n[1-\": expected hosts (a bracket is not closed)",
    );
    check(
        recorded!("slurm-22.05-srun", "SLURM_STEP_TASKS_PER_NODE=2(x"),
        "error: SLURM_STEP_TASKS_PER_NODE is \"2(x\": expected numbers as in 2(x3),1",
    );
    check(
        "PLUMB_RANK=0\nPLUMB_SIZE=2\nPLUMB_RENDEZVOUS=fd:x",
        "error: PLUMB_RENDEZVOUS is \"fd:x\": expected HOST:PORT",
    );
    check(
        "PLUMB_RANK=0\nPLUMB_SIZE=2\nPLUMB_MEETING=nowhere",
        "error: PLUMB_MEETING is \"nowhere\": expected HOST:PORT",
    );
}

proptest::proptest! {
    #[test]
    fn no_variable_breaks_it(
        names in proptest::collection::vec(0_usize..40, 0..10),
        values in proptest::collection::vec("[0-9]{1,3}|[a-z\\[\\],:()-]{0,8}|.{0,8}", 10),
    ) {
        const NAMES: [&str; 41] = [
            "PLUMB_RANK", "PLUMB_SIZE", "PLUMB_RENDEZVOUS", "PLUMB_TOKEN", "PLUMB_LOCAL_RANK", "PLUMB_LOCAL_SIZE", "PLUMB_RANKS_HERE", "RANK",
            "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_RESTART_COUNT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID",
            "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_LOCALID", "SLURM_NODEID",
            "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "PET_NNODES", "PET_NODE_RANK",
            "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT", "JOB_COMPLETION_INDEX", "COMPLETIONS", "JOB_INDEX",
        ];
        let lines: Vec<_> = names.iter().zip(&values).map(|(name, it)| format!("{}={it}", NAMES[*name])).collect();
        describe(&lines.join("\n"));
    }
}

//! The peers: their installation and their best settings.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::engine::Engine;

/// What `benches/peers/install.sh` installed.
pub(crate) struct Peers {
    folder: PathBuf,
    script: PathBuf,
    /// Name and version of each.
    pub(crate) versions: Vec<(String, String)>,
}

/// Installs what is missing. Everything is kept in `target/peers`.
#[expect(clippy::disallowed_methods, reason = "how long a download takes is not known")]
pub(crate) fn install(root: &Path) -> io::Result<Peers> {
    let folder = root.join("target/peers");
    let done =
        Command::new(root.join("benches/peers/install.sh")).arg(&folder).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        return Err(io::Error::other("benches/peers/install.sh failed"));
    }
    let text = String::from_utf8_lossy(&done.stdout);
    let versions = text.lines().filter_map(|it| it.split_once('\t'));
    Ok(Peers {
        folder,
        script: root.join("benches/peers/allreduce.py"),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).collect(),
    })
}

impl Peers {
    /// Shared memory, one core for each of 2 ranks.
    pub(crate) fn shared(&self) -> Vec<Engine> {
        vec![
            self.openmpi("Open MPI, vader", "2", "--bind-to core --mca pml ob1 --mca btl vader,self"),
            self.openmpi("Open MPI, UCX", "2", &format!("--bind-to core {UCX}")).with("UCX_TLS", "sm,self"),
            self.mpich("MPICH", "-bind-to core -np 2"),
            self.impi("Intel MPI", "2").with("I_MPI_FABRICS", "shm"),
            self.gloo(),
        ]
    }

    /// Shared memory, 4 ranks on fewer cores: waiting ranks should yield, so each peer is configured to do so. MPICH cannot; fewer polls
    /// before it yields made it slower.
    pub(crate) fn oversubscribed(&self) -> Vec<Engine> {
        // Binding makes it a little faster up to 1 MiB, and not slower above.
        let share =
            "--oversubscribe --map-by core --bind-to core:overload-allowed --mca mpi_yield_when_idle 1";
        vec![
            self.openmpi("Open MPI, vader", "4", &format!("{share} --mca pml ob1 --mca btl vader,self")),
            self.openmpi("Open MPI, UCX", "4", &format!("{share} {UCX}")).with("UCX_TLS", "sm,self"),
            self.mpich("MPICH", "-np 4"),
            self.impi("Intel MPI, wait mode", "4").with("I_MPI_FABRICS", "shm").with("I_MPI_WAIT_MODE", "1"),
            self.impi("Intel MPI, yield", "4")
                .with("I_MPI_FABRICS", "shm")
                .with("I_MPI_THREAD_YIELD", "3")
                .with("I_MPI_PIN", "0"),
            self.gloo(),
        ]
    }

    /// TCP on loopback, one core for each of 2 ranks.
    pub(crate) fn network(&self) -> Vec<Engine> {
        let tcp = "--bind-to core --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo";
        vec![
            self.openmpi("Open MPI, TCP", "2", tcp),
            self.openmpi("Open MPI, UCX", "2", &format!("--bind-to core {UCX}"))
                .with("UCX_TLS", "tcp,self")
                .with("UCX_NET_DEVICES", "lo"),
            self.mpich("MPICH", "-bind-to core -np 2")
                .with("MPIR_CVAR_NOLOCAL", "1")
                .with("UCX_TLS", "tcp,self")
                .with("UCX_NET_DEVICES", "lo"),
            // Without the last line its collectives use shared memory whatever the fabric is.
            self.impi("Intel MPI", "2")
                .with("I_MPI_FABRICS", "ofi")
                .with("FI_PROVIDER", "tcp")
                .with("FI_TCP_IFACE", "lo")
                .with("I_MPI_COLL_INTRANODE", "pt2pt"),
            self.gloo(),
        ]
    }

    fn openmpi(&self, name: &str, ranks: &str, options: &str) -> Engine {
        let command = format!("mpirun.openmpi --allow-run-as-root {options} -np {ranks}");
        self.launched(name, &command, "allreduce-openmpi")
    }

    fn mpich(&self, name: &str, options: &str) -> Engine {
        self.launched(name, &format!("mpirun.mpich {options}"), "allreduce-mpich")
    }

    fn impi(&self, name: &str, ranks: &str) -> Engine {
        let root = self.folder.join("impi");
        let mut engine = self.launched(name, &format!("mpiexec -n {ranks}"), "allreduce-impi");
        if let Some(program) = engine.command.first_mut() {
            *program = text(&root.join("bin/mpiexec.hydra"));
        }
        engine.with("I_MPI_ROOT", &text(&root))
    }

    /// Its ranks are not bound to cores: its own threads need one too, and it was slower when they were.
    fn gloo(&self) -> Engine {
        let torch = self.folder.join("torch");
        let path = std::fs::read_to_string(torch.join("library-path")).unwrap_or_default();
        let engine = Engine {
            name: "gloo".into(),
            own: false,
            command: vec![text(&torch.join("bin/python")), text(&self.script)],
            environment: Vec::new(),
            launched: false,
        };
        engine.with("LD_LIBRARY_PATH", path.trim()).with("GLOO_SOCKET_IFNAME", "lo")
    }

    fn launched(&self, name: &str, command: &str, program: &str) -> Engine {
        let mut command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        command.push(text(&self.folder.join(program)));
        Engine { name: name.into(), own: false, command, environment: Vec::new(), launched: true }
    }
}

/// Open MPI over UCX, also where UCX finds no network that Open MPI thinks worth it.
const UCX: &str = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any";

impl Engine {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

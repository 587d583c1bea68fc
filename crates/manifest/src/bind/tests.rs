use fabric::machine::{Gpu, Place, Socket};
use fabric::{CpuSet, Layout, Machine, catalogue};

use super::{Binding, Launcher, Pin};

fn of(name: &str, pods: &str, nodes: u32) -> Binding {
    let machine = catalogue::machine(name).unwrap();
    let layout = if pods.is_empty() { Layout::whole(&machine) } else { Layout::parse(pods).unwrap() };
    Binding::new(&machine, &layout.on(nodes))
}

fn pins(binding: &Binding) -> String {
    let pin = |it: &super::Rank| match &it.pin {
        Pin::Cpus(cpus) => cpus.to_string(),
        Pin::Node(node) => format!("node {node}"),
        Pin::Unknown => "?".to_owned(),
    };
    binding.ranks.iter().map(pin).collect::<Vec<_>>().join(" ")
}

fn text(binding: &Binding, launcher: Launcher) -> String {
    let blocks = binding.blocks(launcher);
    blocks.iter().flat_map(|it| [it.title.as_ref(), ":\n", it.text.as_ref()]).collect()
}

/// A machine with one GPU per entry: its NUMA node and the CPUs of that.
fn machine(gpus: &[(Option<u32>, Option<&str>)]) -> Machine {
    let socket = |it: &(Option<u32>, Option<&str>)| Socket {
        numa: it.0,
        cpus: it.1.map(Into::into),
        ..Socket::default()
    };
    let gpu = |at: usize| Gpu {
        index: u32::try_from(at).unwrap(),
        at: Place::Socket(at),
        bus: None,
        link: None,
        model: None,
        compute: None,
        gpudirect: None,
        rank: None,
        c2c: None,
    };
    Machine {
        sockets: gpus.iter().map(socket).collect(),
        gpus: (0..gpus.len()).map(gpu).collect(),
        ..Machine::default()
    }
}

fn whole(machine: &Machine) -> Binding {
    Binding::new(machine, &Layout::whole(machine))
}

#[test]
fn ranks_share_the_cores_of_their_node() {
    assert_eq!(
        pins(&of("p4d.24xlarge", "", 1)),
        "0-5,48-53 6-11,54-59 12-17,60-65 18-23,66-71 24-29,72-77 30-35,78-83 36-41,84-89 42-47,90-95"
    );
    // Four NUMA nodes per socket, and GPUs not in the order of nodes.
    let a100 = of("dgx-a100", "", 1);
    assert_eq!(
        pins(&a100),
        "48-55,176-183 56-63,184-191 16-23,144-151 24-31,152-159 112-119,240-247 120-127,248-255 80-87,208-215 88-95,216-223"
    );
    assert_eq!(a100.ranks.iter().map(|it| it.numa.unwrap()).collect::<Vec<_>>(), [3, 3, 1, 1, 7, 7, 5, 5]);
    // Half of the GPUs: those of the first node, which share its cores.
    assert_eq!(pins(&of("p4d.24xlarge", "1x2", 1)), "0-11,48-59 12-23,60-71");
    assert!(a100.notes.is_empty() && of("p4d.24xlarge", "", 4).notes.is_empty());
}

#[test]
fn no_cpu_has_two_ranks_on_any_machine() {
    for model in catalogue::all() {
        let binding = of(model.name, "", 1);
        assert_eq!(binding.ranks.len(), model.gpus as usize, "{}", model.name);
        let sets: Vec<&CpuSet> = binding
            .ranks
            .iter()
            .filter_map(|it| match &it.pin {
                Pin::Cpus(cpus) => Some(cpus),
                _ => None,
            })
            .collect();
        for (at, a) in sets.iter().enumerate() {
            assert!(sets.iter().skip(at + 1).all(|b| !a.overlaps(b)), "{}", model.name);
        }
        let told = sets.len() == binding.ranks.len() || !binding.notes.is_empty();
        assert!(told, "{}: {}", model.name, pins(&binding));
    }
}

#[test]
fn what_is_not_known_is_said() {
    let p5en = of("p5en.48xlarge", "", 1);
    assert_eq!(pins(&p5en), "node 0 node 0 node 0 node 0 node 1 node 1 node 1 node 1");
    assert!(
        p5en.notes[0].starts_with("The CPU numbers of the NUMA nodes of GPU0 to GPU7"),
        "{:?}",
        p5en.notes
    );
    let nothing = whole(&machine(&[(None, None), (None, None)]));
    assert!(nothing.is_unknown());
    assert!(nothing.notes[0].starts_with("The CPUs near GPU0, GPU1 are not known"), "{:?}", nothing.notes);
    assert!(text(&nothing, Launcher::Slurm).is_empty() && text(&nothing, Launcher::Mpirun).is_empty());
    assert!(text(&nothing, Launcher::Torchrun).contains("--numa-binding=exclusive"));

    // One that is known does not hide another that is not.
    let mixed = whole(&machine(&[(Some(0), Some("0-3")), (None, None)]));
    assert_eq!(pins(&mixed), "0-3 ?");
    assert!(text(&mixed, Launcher::Slurm).is_empty());
    assert!(text(&mixed, Launcher::Torchrun).contains("\n1) cpus=$(cat /sys/devices/system/cpu/online) ;;"));

    // Two sockets that claim the same CPUs share them; two that overlap are not believed.
    let same = whole(&machine(&[(Some(0), Some("0-7")), (Some(1), Some("0-7"))]));
    assert_eq!(pins(&same), "0-3 4-7");
    let crossing = whole(&machine(&[(Some(0), Some("0-7")), (Some(1), Some("4-9"))]));
    assert_eq!(pins(&crossing), "? ?");
    assert!(crossing.notes[0].contains("overlap"), "{:?}", crossing.notes);
    let crowded = whole(&machine(&[(Some(0), Some("3")), (Some(0), Some("3"))]));
    assert_eq!(pins(&crowded), "3 3");
    assert!(crowded.notes[0].contains("fewer CPUs"), "{:?}", crowded.notes);
}

#[test]
fn each_launcher_gets_what_it_takes() {
    let p4d = of("p4d.24xlarge", "", 2);
    let slurm = text(&p4d, Launcher::Slurm);
    assert!(
        slurm.contains("srun --cpu-bind=mask_cpu:\\\n0x3f00000000003f,\\\n0xfc0000000000fc0,\\\n"),
        "{slurm}"
    );
    assert!(slurm.contains("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"), "{slurm}");
    let slurm = text(&of("p5en.48xlarge", "", 1), Launcher::Slurm);
    assert!(slurm.contains("--cpu-bind=map_ldom:0,0,0,0,1,1,1,1 "), "{slurm}");
    let mpirun = text(&p4d, Launcher::Mpirun);
    assert!(
        mpirun.contains("mpirun -np 16 --hostfile hosts --map-by ppr:8:node --bind-to none ./bind.sh"),
        "{mpirun}"
    );
    assert!(mpirun.contains("case $OMPI_COMM_WORLD_LOCAL_RANK in\n0) cpus=0-5,48-53 ;;\n"), "{mpirun}");
    let torchrun = text(&p4d, Launcher::Torchrun);
    assert!(torchrun.contains("--nnodes=2"), "{torchrun}");
    assert!(torchrun.contains("--no-python ./bind.sh python -u train.py"), "{torchrun}");
    for launcher in Launcher::ALL {
        assert_eq!(Launcher::find(launcher.name()), Some(launcher));
    }
    assert_eq!(Launcher::find("pbs"), None);
}

#[test]
fn kubernetes_pins_containers() {
    let whole = text(&of("p4d.24xlarge", "", 1), Launcher::Kubernetes);
    assert!(whole.contains("topologyManagerPolicy: best-effort\n"), "{whole}");
    assert!(whole.contains("reservedSystemCPUs: \"0,48\"\n"), "{whole}");
    assert!(whole.contains("cpu: \"92\"\n") && whole.contains("nvidia.com/gpu: 8\n"), "{whole}");
    assert!(whole.contains("bind.sh"), "{whole}");
    let one = text(&of("p4d.24xlarge", "8x1", 1), Launcher::Kubernetes);
    assert!(one.contains("topologyManagerPolicy: single-numa-node\n"), "{one}");
    assert!(one.contains("cpu: \"10\"\n") && one.contains("nvidia.com/gpu: 1\n"), "{one}");
    // Which GPU a pod gets is not known, so no rank is pinned in it.
    assert!(!one.contains("bind.sh"), "{one}");
    let unknown = text(&of("p5en.48xlarge", "", 1), Launcher::Kubernetes);
    assert!(unknown.contains("cpu: CPUS  # a whole number\n"), "{unknown}");
}

/// The script as a shell runs it, on the CPUs that this test may use.
#[test]
fn the_script_pins() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|it| it.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let last = CpuSet::parse(allowed).unwrap().iter().last().unwrap().to_string();
    let binding = whole(&machine(&[(Some(0), Some(&last)), (Some(0), None), (None, None)]));
    let script = super::wrapper::script(&binding, "LOCAL_RANK");
    let folder = testbed::Folder::new("bind");
    let run = |rank: &str| {
        let script = format!("{script}exec ./bind.sh sh -c 'taskset -cp $$'");
        let mut shell = testbed::program("sh");
        shell.arg("-c").arg(script).current_dir(folder.path()).env("LOCAL_RANK", rank);
        let output = testbed::output(&mut shell);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let cpus = text.rsplit(": ").next().unwrap_or_default().trim().to_owned();
        (output.status.code(), cpus, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run("0").1, last);
    let node = std::fs::read_to_string("/sys/devices/system/node/node0/cpulist").unwrap();
    assert_eq!(CpuSet::parse(&run("1").1), CpuSet::parse(&node));
    assert_eq!(run("2").0, Some(0));
    let (code, _, said) = run("3");
    assert_eq!((code, &*said), (Some(1), "bind.sh: no CPUs for local rank '3'\n"));
}

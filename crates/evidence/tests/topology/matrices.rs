//! `nvidia-smi topo -m`, as it is printed and as people paste it.

use evidence::topology::{self, Kind};

use super::{case, data, each, matrix, read, trouble};

#[test]
fn the_matrices_of_the_cases() {
    for (name, gpus, sockets, links, cpus) in [
        ("g6e-topo", 4, 1, None, "0-47"),
        ("p4d-topo", 8, 2, Some(12), "0-23,48-71"),
        ("p5-topo", 8, 2, Some(18), "0-47,96-143"),
        ("h200-topo", 1, 1, None, "0-15"),
    ] {
        let it = read(case(&format!("{name}/topo.txt")));
        let machine = &it.machine;
        assert_eq!(
            (it.kind, machine.gpus.len(), machine.sockets.len()),
            (Kind::Matrix, gpus, sockets),
            "{name}"
        );
        assert_eq!(machine.sockets[0].cpus.as_deref(), Some(cpus), "{name}");
        assert_eq!(machine.sockets[0].numa, Some(0), "{name}");
        assert!(it.notes.is_empty(), "{name}: {:?}", it.notes);
        assert_eq!(machine.has_nvswitch(), links.is_some(), "{name}");
        assert!(machine.nvlinks.iter().all(|it| Some(it.count) == links), "{name}");
        let socket = |gpu: usize| machine.socket_of(machine.gpus[gpu].at);
        assert_eq!((socket(0), socket(gpus - 1)), (Some(0), Some(sockets - 1)), "{name}");
    }
}

#[test]
fn a_hybrid_cube_mesh() {
    let it = read(data("dgx-1-v100.txt"));
    assert!(!it.machine.has_nvswitch());
    assert_eq!(it.machine.nvlinks.iter().filter(|it| it.from == 0).map(|it| it.count).sum::<u32>(), 6);
    assert_eq!(it.machine.nics.len(), 4);
    assert_eq!(&*it.machine.nics[0].name, "mlx5_0");
    assert_eq!(it.notes, Vec::<String>::new());
    // GPU0, GPU1 and mlx5_0 are below one switch, GPU0 and GPU2 are not.
    let cells = matrix(&it.machine);
    assert_eq!((&*cells[0][8], &*cells[1][8], &*cells[2][8], &*cells[0][10]), ("PIX", "PIX", "PHB", "SYS"));
}

#[test]
fn nics_with_a_legend() {
    let it = read(data("dgx-h100.txt"));
    assert_eq!((it.machine.gpus.len(), it.machine.nics.len()), (8, 10));
    assert_eq!((&*it.machine.nics[0].name, it.machine.nics[9].index), ("mlx5_0", 9));
    assert!(it.machine.has_nvswitch());
    let cells = matrix(&it.machine);
    assert_eq!((&*cells[0][8], &*cells[0][9], &*cells[0][17]), ("PXB", "PHB", "SYS"));
}

#[test]
fn noise_around_a_matrix() {
    let text = String::from_utf8(case("p4d-topo/topo.txt")).expect("text");
    let plain = read(&text).machine;
    let fenced = format!("Here it is:\n```\n$ kubectl exec -it p -- nvidia-smi topo -m\n{text}```\nthanks\n");
    assert_eq!(read(&fenced).machine, plain);
    assert_eq!(read(&fenced).line, 5);
    let labelled = each(text.lines(), |it| format!("[1,0]<stdout>:{it}\r\n"));
    assert_eq!(read(labelled).machine, plain);
    let json = each(text.lines(), |it| format!("{{\"log\":\"{it}\\n\",\"stream\":\"stdout\"}}\n"));
    assert_eq!(read(json).machine, plain);
    let twice = read(format!("{text}\n{text}"));
    assert_eq!(twice.machine, plain);
    assert!(twice.notes[0].contains("once more (from line 23)"), "{:?}", twice.notes);
    let other = read(format!("{text}\n{}", String::from_utf8(case("p5-topo/topo.txt")).expect("text")));
    assert_eq!(other.machine, plain);
    assert!(other.notes[0].contains("Another matrix"), "{:?}", other.notes);
}

/// Ways in which people paste a matrix, applied to every line.
pub(super) fn pastes(text: &str) -> Vec<(&'static str, String)> {
    let cells = |it: &str| it.split('\t').map(str::trim).collect::<Vec<_>>().join(" | ");
    let all = |line: &dyn Fn(&str) -> String| each(text.lines(), |it| format!("{}\n", line(it)));
    vec![
        ("blanks for tabs", all(&|it| it.replace('\t', "    "))),
        ("one blank", all(&|it| it.split_whitespace().collect::<Vec<_>>().join(" "))),
        ("comment", all(&|it| format!("# {it}"))),
        ("slashes", all(&|it| format!("// {it}"))),
        ("quote", all(&|it| format!("> {it}"))),
        ("table", all(&|it| format!("| {} |", cells(it)))),
        ("time", all(&|it| format!("2024-05-01T10:00:00.123456Z {it}"))),
        ("log", all(&|it| format!("[2024-05-01 10:00:00,123] [INFO] topo: {it}"))),
        ("srun", all(&|it| format!("0: {it}"))),
        ("pod", all(&|it| format!("[pod/worker-0/main] {it}"))),
        ("lost escape", text.replacen("GPU0", "[4mGPU0", 1).replacen("GPU NUMA ID", "GPU NUMA ID[0m", 1)),
        (
            "escape",
            text.replacen("GPU0", "\u{1b}[4mGPU0", 1).replacen("GPU NUMA ID", "GPU NUMA ID\u{1b}[0m", 1),
        ),
        (
            "written escape",
            all(&|it| format!("{:?}", format!("\u{1b}[4m{it}\u{1b}[0m")).replace("u{1b}", "x1b")),
        ),
        ("one line", text.replace('\t', "\\t").replace('\n', "\\n")),
        ("html", text.replace('\n', "<br>")),
        (
            "small letters",
            all(&|it| {
                if it.contains('=') { it.to_owned() } else { it.replace("NV", "nv").replace("SYS", "sys") }
            }),
        ),
    ]
}

#[test]
fn matrices_as_people_paste_them() {
    for text in
        [case("p4d-topo/topo.txt"), case("p5-topo/topo.txt"), data("dgx-h100.txt"), data("dgx-1-v100.txt")]
    {
        let text = String::from_utf8(text).expect("text");
        let plain = read(&text);
        for (how, pasted) in pastes(&text) {
            let found =
                topology::read(pasted.as_bytes()).unwrap_or_else(|it| panic!("{how}: {it}\n{pasted}"));
            assert_eq!(found.machine, plain.machine, "{how}");
            assert_eq!(found.notes, plain.notes, "{how}");
        }
    }
}

#[test]
fn grids_and_elisions() {
    let grid = "+------+------+------+-----+--------------+\n\
                |      | GPU0 | GPU1 | HSN | CPU Affinity |\n\
                +------+------+------+-----+--------------+\n\
                | GPU0 | X    | NV12 | SYS | 48-63        |\n\
                +------+------+------+-----+--------------+\n\
                | GPU1 | NV12 | X    | SYS | 48-63        |\n";
    assert_eq!(read(grid).machine.nics[0].name, "HSN".into());
    // The rest follows: one GPU with 7 x 18 links has them at switches.
    let eight = "#      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7\n\
                 # GPU0   X   NV18  NV18  NV18  NV18  NV18  NV18  NV18\n\
                 # GPU1 NV18   X    NV18  NV18  NV18  NV18  NV18  NV18\n# ...\n# NV18 = 18 links\n";
    let it = read(eight);
    assert_eq!((it.machine.gpus.len(), it.machine.has_nvswitch()), (8, true));
    assert!(
        it.notes.iter().any(|it| it.contains("GPU2, GPU3"))
            && it.notes.iter().any(|it| it.contains("NVSwitches")),
        "{:?}",
        it.notes
    );
    let short =
        "      GPU0 GPU1 ... GPU7\nGPU0  X NV18 ... NV18\nGPU1 NV18 X ... NV18\nGPU7 NV18 NV18 ... X\n";
    assert!(trouble(short).text.contains("GPU0 to GPU2"), "{}", trouble(short));
    let wrapped = "\tGPU0\tGPU1\tNIC0\tNIC1\n\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\n\tSYS\t0-3\t0\nGPU1\tNV4\t X \tSYS\n\tPIX\t4-7\t1\n";
    let it = read(wrapped);
    assert_eq!((it.machine.sockets.len(), it.machine.nics.len(), it.machine.bridges.len()), (2, 2, 2));
    let remark = "        GPU0    GPU1\nGPU0     X      NV4     <- NVLink\nGPU1    NV4      X\n";
    assert_eq!(read(remark).machine.nvlinks[0].count, 4);
    let cpu = "GPU0 GPU1 CPU\nGPU0 X NV1 PHB\nGPU1 NV1 X PHB\nCPU PHB PHB X\n";
    assert_eq!(read(cpu).machine.gpus.len(), 2);
}

#[test]
fn rows_and_columns_that_are_missing() {
    let text = String::from_utf8(data("dgx-1-v100.txt")).expect("text");
    let plain = read(&text).machine;
    let without =
        |name: &str| text.lines().filter(|it| !it.starts_with(name)).collect::<Vec<_>>().join("\n") + "\n";
    let it = read(without("GPU7"));
    assert_eq!(matrix(&it.machine), matrix(&plain));
    assert!(it.notes.iter().any(|it| it.starts_with("The row of GPU7 is missing")), "{:?}", it.notes);
    let headless = without("\tGPU0");
    let it = read(&headless);
    assert_eq!(matrix(&it.machine), matrix(&plain));
    assert!(it.notes[0].contains("The header is missing"), "{:?}", it.notes);
    let both = text
        .lines()
        .filter(|it| !it.starts_with("GPU6") && !it.starts_with("GPU7"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(trouble(&both).text.contains("from GPU6 to GPU7"), "{}", trouble(&both));
}

#[test]
fn a_matrix_that_hides_nvlink() {
    let legend = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n  PIX  = Connection traversing at most a single PCIe bridge\n";
    let rows = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n";
    let hidden = |text: String| read(text).machine.hidden.nvlink;
    assert!(hidden(format!("{rows}{legend}")));
    assert!(hidden(format!("$ nvidia-smi topo -mp\n{rows}")));
    assert!(!hidden(format!("$ nvidia-smi topo -m\n{rows}")));
    assert!(!hidden(format!("{rows}{legend}  NV#  = Connection traversing a bonded set of # NVLinks\n")));
    // One with NVLink says more.
    let nvlink = rows.replace("SYS", "NV4");
    let both = read(format!("nvidia-smi topo -mp\n{rows}\nnvidia-smi topo -m\n{nvlink}"));
    assert_eq!((both.machine.hidden.nvlink, both.machine.nvlinks.len()), (false, 2));
    let of_case = |text: String| evidence::read_texts([("a.txt", text.as_bytes())]).matrices[0].hides_nvlink;
    assert!(of_case(format!("{rows}{legend}")));
    assert!(!of_case(format!("{rows}{legend}  NV#  = Connection traversing a bonded set of # NVLinks\n")));
}

#[test]
fn peers_beside_a_matrix_are_a_note() {
    let it = read(
        "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n\n \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n",
    );
    assert_eq!(it.machine.gpus.len(), 2);
    assert!(it.notes[0].contains("CNS (chipset not supported) for GPU0 and GPU1"), "{:?}", it.notes);
}

#[test]
fn numa_nodes_count_before_paths() {
    // Four NUMA nodes in one socket, and one node whose devices nvidia-smi calls far.
    let text = "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tSYS\tSYS\t0-15\t3\nGPU1\tSYS\t X \tSYS\tPHB\t16-31\t1\nGPU2\tSYS\tSYS\t X \tSYS\t16-31\t1\nNIC0\tSYS\tPHB\tSYS\t X\n";
    let it = read(text);
    assert_eq!(it.machine.sockets.iter().map(|it| it.numa).collect::<Vec<_>>(), [Some(3), Some(1)]);
    assert!(it.notes.iter().any(|it| it.contains("GPU1 to GPU2 is SYS")), "{:?}", it.notes);
    // A virtual machine with one node: SYS between any two devices says nothing.
    let flat = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tSYS\t0-7\t0\nGPU1\tSYS\t X \tSYS\t0-7\t0\nNIC0\tSYS\tSYS\t X\n";
    assert_eq!(read(flat).machine.sockets.len(), 1);
    // Grace: nodes of GPU memory beside its own.
    let grace = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV6\t0-71\t0,2-9\t2\nGPU1\tNV6\t X \t72-143\t1,10-17\t10\n";
    assert_eq!(read(grace).machine.sockets.iter().map(|it| it.numa).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn old_names() {
    let it = read(
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X\tSOC\tPSB\t0-9\nGPU1\tSOC\t X\tSOC\t10-19\nmlx5_0\tPSB\tSOC\t X\n",
    );
    assert_eq!(matrix(&it.machine), [["X", "SYS", "PIX"], ["SYS", "X", "SYS"], ["PIX", "SYS", "X"]]);
    assert_eq!(it.machine.sockets[1].cpus.as_deref(), Some("10-19"));
    assert!(it.machine.unknown.iter().any(|it| it.contains("CPU affinity")));
}

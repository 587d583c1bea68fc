//! Topologies of every kind, read from recordings, and read from what is cut, odd or hostile.

use std::fmt::Write as _;

use evidence::topology::{self, Kind, Topology, Trouble};
use fabric::Machine;
use fabric::machine::{NicKind, NvEnd, Place};
use proptest::prelude::*;

fn case(name: &str) -> Vec<u8> {
    let path = format!("{}/../../cases/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|it| panic!("{path}: {it}"))
}

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/topology/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|it| panic!("{path}: {it}"))
}

fn read(text: impl AsRef<[u8]>) -> Topology {
    topology::read(text.as_ref()).unwrap_or_else(|it| panic!("{it}"))
}

fn each<T>(all: impl Iterator<Item = T>, line: impl Fn(T) -> String) -> String {
    all.map(line).collect::<Vec<_>>().concat()
}

fn trouble(text: impl AsRef<[u8]>) -> Trouble {
    topology::read(text.as_ref()).expect_err("trouble")
}

/// The word of the matrix for two devices of a machine. `PHB` stands for `NODE` too.
fn path(machine: &Machine, a: Place, b: Place) -> &'static str {
    let (above_a, above_b) = (machine.bridges_above(a), machine.bridges_above(b));
    match above_a.iter().find(|it| above_b.contains(it)) {
        Some(common) if above_a.first() == Some(common) && above_b.first() == Some(common) => "PIX",
        Some(_) => "PXB",
        None if machine.socket_of(a) == machine.socket_of(b) => "PHB",
        None => "SYS",
    }
}

/// The matrix of a machine: GPUs by index, then NICs.
fn matrix(machine: &Machine) -> Vec<Vec<String>> {
    let mut gpus: Vec<usize> = (0..machine.gpus.len()).collect();
    gpus.sort_by_key(|it| machine.gpus[*it].index);
    let places: Vec<(Option<usize>, Place)> = gpus
        .iter()
        .map(|it| (Some(*it), machine.gpus[*it].at))
        .chain(machine.nics.iter().map(|it| (None, it.at)))
        .collect();
    let links = |from: usize, to: NvEnd| {
        machine.nvlinks.iter().filter(|it| it.from == from && it.to == to).map(|it| it.count).sum::<u32>()
    };
    let cell = |a: usize, b: usize| {
        if a == b {
            return "X".to_owned();
        }
        if let (Some(a), Some(b)) = (places[a].0, places[b].0) {
            let direct = links(a, NvEnd::Gpu(b));
            let n = if direct > 0 { direct } else { links(a, NvEnd::Switch).min(links(b, NvEnd::Switch)) };
            if n > 0 {
                return format!("NV{n}");
            }
        }
        path(machine, places[a].1, places[b].1).to_owned()
    };
    (0..places.len()).map(|a| (0..places.len()).map(|b| cell(a, b)).collect()).collect()
}

/// A matrix as `nvidia-smi` prints it.
fn print(cells: &[Vec<String>], n_gpus: usize, numa: &[usize]) -> String {
    let name = |it: usize| if it < n_gpus { format!("GPU{it}") } else { format!("NIC{}", it - n_gpus) };
    let mut text = String::new();
    for it in 0..cells.len() {
        let _ = write!(text, "\t{}", name(it));
    }
    text.push_str("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for (at, row) in cells.iter().enumerate() {
        let _ = write!(text, "{}", name(at));
        for cell in row {
            let _ = write!(text, "\t{}", if cell == "X" { " X " } else { cell });
        }
        if at < n_gpus {
            let _ = write!(text, "\t{0}-{0}\t{0}\t\tN/A", numa[at]);
        }
        text.push('\n');
    }
    if cells.len() > n_gpus {
        text.push_str("\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n");
        for it in n_gpus..cells.len() {
            let _ = writeln!(text, "  NIC{0}: mlx5_{0}", it - n_gpus);
        }
    }
    text
}

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
fn pastes(text: &str) -> Vec<(&'static str, String)> {
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

/// As clouds ship it for virtual machines.
#[test]
fn xml_with_class_codes_only() {
    let device = |bus: &str, class: &str| {
        format!("<pci busid=\"{bus}\" class=\"{class}\" link_speed=\"16 GT/s\" link_width=\"16\"/>")
    };
    let text = format!(
        "<!-- a VM -->\n<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\">\n\
         <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n{}{}</pci></cpu>\n\
         <cpu numaid=\"1\" affinity=\"ff00\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\" modelid=\"49\">{}{}{}{}</cpu></system>\n",
        device("0002:00:00.0", "0x030200"),
        device("0102:00:00.0", "0x020700"),
        device("0001:00:00.0", "0x030000"),
        device("0101:00:00.0", "0x020000").replace("class", "vendor=\"0x1d0f\" class"),
        device("0100:00:00.0", "0x010802"),
        "<pci busid=\"0200:00:00.0\"/>",
    );
    let it = read(text);
    let machine = &it.machine;
    assert_eq!(machine.gpus.iter().map(|it| it.index).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(
        machine.nics.iter().map(|it| (&*it.name, it.kind)).collect::<Vec<_>>(),
        [("NIC0", NicKind::Efa), ("NIC1", NicKind::InfiniBand)]
    );
    assert_eq!((machine.nics[1].at, machine.gpus[0].at), (Place::Bridge(0), Place::Bridge(0)));
    assert!(machine.hidden.nvlink && machine.nvlinks.is_empty());
    assert!(it.notes.iter().any(|it| it.contains("1 PCI device without a class")), "{:?}", it.notes);
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

#[test]
fn troubles_name_the_line() {
    for (text, line, says) in [
        ("\tGPU0\tGPU1\tGPU2\nGPU0\t X\tNV4\tNV4\n", 1, "no row shows the path from GPU1 to GPU2"),
        ("\tGPU0\tGPU1\tGPU2\nhello\n", 1, "GPU0, GPU1, GPU2, but the rows below it are missing"),
        (
            "\tGPU0\tGPU1\nGPU0\t X\tNV4\nGPU1\tSYS\t X\n",
            2,
            "GPU0 to GPU1 is NV4 in the row of GPU0 and SYS in the row of GPU1 (line 3)",
        ),
        ("\tGPU0\tGPU1\nGPU0\t X FOO\nGPU1\tSYS\t X\n", 2, "1 of 2 paths, then `FOO`"),
        ("\tGPU0\tGPU1\nGPU0\t X SYS SYS SYS\nGPU1\tSYS\t X\n", 2, "has 4 paths, the header 2 columns"),
        ("\tGPU0\tGPU1\nGPU0\tSYS\tSYS\nGPU1\tSYS\t X\n", 2, "`X` means the device itself"),
        ("\tGPU0\tGPU1\nGPU0\t X\tSYS\nGPU1\tSYS\t X\nGPU1\tPIX\t X\n", 4, "GPU1 has a second row"),
        ("GPU0\t X\tSYS\nGPU2\tSYS\t X\tSYS\n", 1, "without the header"),
        (" \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n", 1, "GNS (GPU not supported) for GPU0 and GPU1"),
        (
            "<system version=\"1\"><cpu numaid=\"0\">\n<pci busid=\"0000:00:16.0\"/><pci busid=\"0000:00:17.0\"/></cpu></system>",
            1,
            "2 PCI devices by bus id, without their class",
        ),
        ("\n<system version=\"1\">\n<cpu>\n", 2, "is never closed"),
        ("<system version=\"1\">\n<cpu></gpu>\n</system>\n", 2, "not XML"),
        ("<system version=\"1\"></system>", 1, "neither a GPU nor a NIC"),
        (
            "a:1:1 [0] NCCL INFO === System : maxBw 1 totalBw 2 ===\na:1:1 [0] NCCL INFO CPU/0 (1/1/2)\n",
            1,
            "is cut",
        ),
    ] {
        let it = trouble(text);
        assert_eq!(it.line, Some(line), "{it}");
        assert!(it.text.contains(says), "{it}");
    }
    assert_eq!(trouble("").line, None);
    assert!(trouble("hello\n").text.contains("nvidia-smi topo -m"));
}

#[test]
fn a_contradiction_is_said() {
    let it = read("\tGPU0\tGPU1\tGPU2\nGPU0\t X\tPIX\tSYS\nGPU1\tPIX\t X\tPIX\nGPU2\tSYS\tPIX\t X\n");
    assert!(it.notes.iter().any(|it| it.contains("GPU0 to GPU2 is SYS")), "{:?}", it.notes);
}

#[test]
fn nic_rows_may_be_missing() {
    let text = String::from_utf8(data("dgx-h100.txt")).expect("text");
    let cut = text.split("NIC0\tPXB").next().expect("part");
    let it = read(cut);
    assert!(it.notes.iter().any(|it| it.contains("NIC0, NIC1")), "{:?}", it.notes);
    assert_eq!(it.machine.nics.len(), 10);
}

#[test]
fn too_many_gpus() {
    let header = each(0..10_000, |it| format!("\tGPU{it}"));
    assert_eq!(trouble(header + "\n").text, "10,000 GPUs in one machine; at most 1,024 are read");
    let gpus = "<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"90\"/></pci>".repeat(10_000);
    let text = format!("<system version=\"1\"><cpu numaid=\"0\">{gpus}</cpu></system>");
    assert_eq!(trouble(text).text, "10,000 GPUs in one machine; at most 1,024 are read");
}

#[test]
fn bombs() {
    let laughs =
        "<!DOCTYPE s [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><system><cpu x=\"&b;\"/></system>";
    assert!(trouble(laughs).text.contains("not XML"), "{}", trouble(laughs));
    let deep = format!("<system>{}{}</system>", "<pci>".repeat(100_000), "</pci>".repeat(100_000));
    assert!(trouble(&deep).text.contains("neither"), "{}", trouble(&deep));
    let deep =
        format!("<system><cpu>{}<gpu/>{}</cpu></system>", "<pci>".repeat(100_000), "</pci>".repeat(100_000));
    assert!(trouble(&deep).text.contains("4,096 PCI bridges"), "{}", trouble(&deep));
    let wide = format!("<system><cpu>{}</cpu></system>", "<pci/>".repeat(300_000));
    assert!(trouble(&wide).text.contains("200,000 tags"), "{}", trouble(&wide));
    let long =
        format!("<system><cpu numaid=\"{}\"><pci><gpu dev=\"3\"/></pci></cpu></system>", "9".repeat(1 << 20));
    assert_eq!(read(long).machine.gpus[0].index, 3);
}

#[test]
fn xml_that_nccl_reads() {
    for (name, gpus, nics, bridges, sockets, compute, links) in [
        ("p4d", 8, 4, 4, 2, 80, 12),
        ("p5", 8, 8, 8, 2, 90, 18),
        ("g6e12", 4, 1, 0, 1, 89, 0),
        ("dgxh100", 8, 8, 4, 2, 90, 18),
        ("pcie8", 8, 2, 2, 2, 90, 0),
    ] {
        let it = read(case(&format!("oracle-{name}/{name}.xml")));
        let machine = &it.machine;
        assert_eq!((it.kind, &it.notes), (Kind::TopologyXml, &Vec::new()), "{name}");
        let sizes = (machine.gpus.len(), machine.nics.len(), machine.bridges.len(), machine.sockets.len());
        assert_eq!(sizes, (gpus, nics, bridges, sockets), "{name}");
        assert!(machine.gpus.iter().all(|it| it.compute == Some(compute) && it.link.is_some()), "{name}");
        assert_eq!(machine.nvlinks.first().map_or(0, |it| it.count), links, "{name}");
        assert_eq!(machine.sockets[0].cpus.as_deref(), Some("0-15"), "{name}");
        assert_eq!(machine.nics[0].kind, NicKind::Efa, "{name}");
    }
    let p4d = read(case("oracle-p4d/p4d.xml")).machine;
    assert_eq!(p4d.gpus[0].link.expect("link").to_string(), "Gen3 x16");
    assert_eq!(p4d.sockets[0].model, Some((6, 85)));
    let cells = matrix(&p4d);
    assert_eq!((&*cells[0][1], &*cells[0][8], &*cells[0][9], &*cells[0][10]), ("NV12", "PIX", "PHB", "SYS"));
}

#[test]
fn a_dump_of_two_hosts() {
    let it = read(data("two-hosts.xml"));
    let machine = &it.machine;
    assert_eq!((machine.sockets.len(), machine.gpus.len(), machine.nics.len()), (1, 1, 2));
    let gpu = &machine.gpus[0];
    assert_eq!(
        (gpu.c2c, gpu.compute, gpu.rank, gpu.gpudirect),
        (Some(450.0), Some(100), Some(0), Some(true))
    );
    assert_eq!(gpu.bus.expect("bus").to_string(), "0009:01:00.0");
    assert_eq!(machine.nics[0].rate.expect("rate").to_string(), "400 Gbps");
    assert_eq!((machine.nics[0].link, machine.nics[1].at), (None, Place::Socket(0)));
    assert_eq!((machine.nics[1].kind, machine.nics[1].bus), (NicKind::Ethernet, None));
    assert!(it.notes[0].contains("2 hosts"), "{:?}", it.notes);
    assert!(it.notes[1].contains("Line 7") && it.notes[1].contains("0042:01:00.0"), "{:?}", it.notes);
}

#[test]
fn graphs_of_a_dump() {
    let it = read(data("graphs.xml"));
    assert_eq!(
        (it.kind, it.graphs.len(), it.machine.gpus.len(), it.machine.nics.len()),
        (Kind::GraphXml, 2, 2, 2)
    );
    let ring = &it.graphs[0];
    assert_eq!((ring.pattern, ring.n_channels, &*ring.type_intra, ring.same_channels), (4, 2, "NVL", false));
    assert_eq!((&*ring.channels[1].gpus, ring.channels[1].net_out), (&[1, 0][..], Some(1)));
}

#[test]
fn a_log_shows_what_the_xml_has() {
    let log = read(data("p5-2x8.log"));
    let xml = read(case("oracle-p5/p5.xml"));
    assert_eq!((log.kind, log.line, &log.notes), (Kind::Log, 10, &Vec::new()));
    assert_eq!(matrix(&log.machine), matrix(&xml.machine));
    assert_eq!(log.machine.nvlinks, xml.machine.nvlinks);
    for (a, b) in log.machine.gpus.iter().zip(&xml.machine.gpus) {
        assert_eq!((a.bus, a.link, a.compute, a.index), (b.bus, b.link, b.compute, b.index));
    }
    for (a, b) in log.machine.nics.iter().zip(&xml.machine.nics) {
        assert_eq!((a.bus, a.link, &a.name, a.index, a.kind), (b.bus, b.link, &b.name, b.index, b.kind));
        assert_eq!(a.rate.expect("rate").to_string(), "400 Gbps");
        assert_eq!(a.gpudirect, Some(true));
    }
    // NCCL's own types of the paths between NICs and GPUs are those of the machine that was read.
    let mut compared = 0;
    for (at, nic) in log.machine.nics.iter().enumerate() {
        for gpu in &log.machine.gpus {
            let to = format!("GPU/0-{:x}", gpu.bus.expect("bus").0);
            let from = format!("NET/0-{at}");
            let said = log.paths.iter().find(|it| *it.from == *from && *it.to == *to).expect("path");
            assert_eq!(&*said.kind, path(&log.machine, nic.at, gpu.at), "{from} {to}");
            compared += 1;
        }
    }
    assert_eq!(compared, 64);
    let ring = &log.graphs[0];
    assert_eq!((ring.pattern, ring.n_channels as usize, ring.channels.len()), (4, 8, 8));
    assert_eq!((ring.channels[0].net_in, ring.channels[0].gpus.len()), (Some(0), 8));
    assert_eq!((ring.speed_intra, &*ring.type_inter), (48.0, "PIX"));
}

#[test]
fn a_log_of_one_node() {
    let log = read(data("p4d-1x4.log"));
    assert_eq!((log.machine.gpus.len(), log.machine.nics.len(), log.machine.sockets.len()), (4, 4, 2));
    assert_eq!(log.machine.sockets[0].model, Some((6, 0x55)));
    assert_eq!(log.machine.gpus[0].compute, Some(80));
    assert_eq!(log.graphs[0].channels[0].gpus, [0, 1, 2, 3]);
    let job = read(case("graph-tuning/job.log"));
    assert_eq!((job.line, job.machine.name.as_deref()), (107, Some("node-3")));
    assert_eq!((&*job.machine.nics[0].name, job.machine.nics[0].bus), ("eth0", None));
    assert_eq!((job.machine.sockets[0].numa, job.machine.gpus[0].rank), (None, Some(3)));
    assert_eq!(job.graphs.len(), 2);
}

#[test]
fn an_old_log() {
    let text = "a:1:2 [0] NCCL INFO === System : maxWidth 42.0 totalWidth 252.0 ===\n\
                a:1:2 [0] NCCL INFO CPU/FFFFFFFFFFFFFFFF (1/2/-1)\n\
                b:1:2 [0] NCCL INFO + PCI[24.0] - GPU/9000 (7)\n\
                a:1:2 [0] NCCL INFO + PCI[24.0] - PCI/C000\n\
                a:1:2 [0] NCCL INFO               + PCI[24.0] - GPU/E000 (0)\n\
                a:1:2 [0] NCCL INFO                             + NVL[252.0] - NVS/0\n\
                a:1:2 [0] NCCL INFO               + PCI[24.0] - NIC/D000\n\
                a:1:2 [0] NCCL INFO                             + NET[25.0] - NET/0 (0/1/25.000000)\n\
                a:1:2 [0] NCCL INFO ==========================================\n\
                a:1:2 [0] NCCL INFO GPU/E000 :GPU/E000 (0/5000.000000/LOC) NET/0 (3/24.0/PI\n\
                a:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, speed 24.000000/24.000000, type LOC/PIX, sameChannels 1\n\
                a:1:2 [0] NCCL INFO  0 : NET/0 GPU/0 NET/0\n";
    let it = read(text);
    assert_eq!((it.machine.gpus.len(), it.machine.nics.len(), it.machine.bridges.len()), (1, 1, 1));
    assert_eq!((it.machine.sockets[0].numa, it.machine.nvlinks[0].count), (None, 12));
    assert_eq!(
        (it.paths.len(), &*it.graphs[0].channels[0].gpus, it.graphs[0].speed_intra),
        (1, &[0][..], 24.0)
    );
}

#[test]
fn a_case_has_a_topology() {
    let (p4d, p5) = (case("p4d-topo/topo.txt"), case("oracle-p5/p5.xml"));
    let of = |name: &str, text: &[u8]| topology::of_case(&evidence::read_texts([(name, text)]));
    assert_eq!(of("topo.txt", &p4d), Some(read(&p4d)));
    assert_eq!(of("p5.xml", &p5).map(|it| it.machine), Some(read(&p5).machine));
    let legend = data("dgx-h100.txt");
    assert_eq!(of("topo.txt", &legend), Some(read(&legend)));
    assert_eq!(of("a.log", b"nothing\n"), None);
}

/// A machine of up to two sockets, each with switches of devices, some of them below a switch above.
fn any_matrix() -> impl Strategy<Value = (Vec<Vec<String>>, usize, Vec<usize>)> {
    // For each device: socket, upper switch, lower switch, whether it is a GPU.
    let device = (0..2_usize, 0..3_usize, 0..3_usize, any::<bool>());
    let nvlink = prop_oneof![Just(0_u32), Just(2), Just(12), Just(18)];
    (proptest::collection::vec(device, 1..12), nvlink).prop_map(|(mut devices, nvlink)| {
        devices.sort_by_key(|it| !it.3);
        devices[0].3 = true;
        let gpus = devices.iter().filter(|it| it.3).count();
        let cell = |a: usize, b: usize| {
            let (x, y) = (devices[a], devices[b]);
            if a == b {
                "X".to_owned()
            } else if x.3 && y.3 && nvlink > 0 {
                format!("NV{nvlink}")
            } else if x.0 != y.0 {
                "SYS".to_owned()
            } else if x.1 != y.1 || x.1 == 0 {
                // The upper switch 0 stands for none.
                "PHB".to_owned()
            } else if x.2 != y.2 {
                "PXB".to_owned()
            } else {
                "PIX".to_owned()
            }
        };
        let n = devices.len();
        let cells = (0..n).map(|a| (0..n).map(|b| cell(a, b)).collect()).collect();
        (cells, gpus, devices.iter().map(|it| it.0).collect())
    })
}

/// What a matrix shows of PCI Express and NVLink.
fn check_same(text: &str, cells: &[Vec<String>]) {
    let it = read(text);
    assert_eq!(matrix(&it.machine), cells, "{text}");
    assert!(!it.notes.iter().any(|it| it.contains("contradict")), "{:?}", it.notes);
}

proptest! {
    #[test]
    fn a_matrix_is_read_as_it_was((cells, gpus, numa) in any_matrix()) {
        check_same(&print(&cells, gpus, &numa), &cells);
    }

    #[test]
    fn a_cut_matrix_is_never_another((cells, gpus, numa) in any_matrix(), at in 0.0..1.0_f64) {
        let text = print(&cells, gpus, &numa);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short text")]
        let cut = &text[..(text.len() as f64 * at) as usize];
        if let Ok(it) = topology::read(cut.as_bytes()) {
            let read = matrix(&it.machine);
            let noted = it.notes.iter().any(|it| it.contains("missing") || it.contains("cut"));
            prop_assert_eq!(it.machine.gpus.len(), gpus, "{}", cut);
            prop_assert!(noted || read == cells, "{}", cut);
            let joined = |cells: &[Vec<String>]| cells.iter().take(gpus).map(|it| it[..gpus].to_vec()).collect::<Vec<_>>();
            prop_assert_eq!(joined(&read), joined(&cells), "{}", cut);
        }
    }

    #[test]
    fn a_shuffled_matrix_is_the_same((cells, gpus, numa) in any_matrix(), seed in any::<u64>()) {
        let text = print(&cells, gpus, &numa);
        let (header, rest) = text.split_once('\n').expect("a header");
        let (rows, legend) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let mut rows: Vec<&str> = rows.lines().collect();
        let n = rows.len() as u64;
        rows.sort_by_key(|it| (seed ^ it.len() as u64).wrapping_mul(it.bytes().map(u64::from).sum::<u64>() | 1) % (n * 7 + 1));
        check_same(&format!("{header}\n{}\n\n{legend}", rows.join("\n")), &cells);
    }

    #[test]
    fn a_pasted_matrix_is_the_same((cells, gpus, numa) in any_matrix(), how in 0..16_usize) {
        let text = print(&cells, gpus, &numa);
        let pastes = pastes(&text);
        check_same(&pastes[how % pastes.len()].1, &cells);
    }

    /// Rows of two machines in one text: the first machine, or an error, or a note.
    #[test]
    fn mixed_matrices_are_said((one, gpus, numa) in any_matrix(), (two, more, places) in any_matrix(), at in any::<prop::sample::Index>()) {
        let (first, second) = (print(&one, gpus, &numa), print(&two, more, &places));
        let mut lines: Vec<&str> = first.lines().collect();
        let from = at.index(lines.len());
        lines.splice(from..from, second.lines());
        let text = lines.join("\n") + "\n";
        if let Ok(it) = topology::read(text.as_bytes()) {
            prop_assert!(matrix(&it.machine) == one || !it.notes.is_empty(), "{}", text);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = topology::read(&bytes);
    }

    #[test]
    fn no_spoilt_text_panics(kind in 0..7_usize, at in any::<prop::sample::Index>(), with in "[ -~\n\t]{0,12}", length in 0..40_usize) {
        let name = ["dgx-1-v100.txt", "dgx-h100.txt", "graphs.xml", "two-hosts.xml", "p4d-1x4.log", "p5-2x8.log", "graphs.xml"][kind];
        let mut text = data(name);
        let from = at.index(text.len());
        let to = (from + length).min(text.len());
        text.splice(from..to, with.bytes());
        let _ = topology::read(&text);
        let _ = topology::of_case(&evidence::read_texts([(name, &*text)]));
    }
}

//! `plumb topo --bind`, `--write-topo-file` and `--write-cluster`, as a person runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Answer, check_schema, command, finish, folder, plumb, root};

#[track_caller]
fn topo(arguments: &str) -> Answer {
    plumb(["topo"].into_iter().chain(arguments.split(' ')))
}

const DGX: &str = "crates/evidence/tests/data/topology/dgx-h100.txt";

#[test]
fn every_launcher_has_an_answer_that_fits_a_screen() {
    for launcher in ["slurm", "mpirun", "torchrun", "k8s"] {
        for machine in [
            "--instance p4d.24xlarge --nodes 4",
            "--instance p5en.48xlarge",
            "--instance g6e.12xlarge",
            "--instance p4d.24xlarge --pods 8x1",
            DGX,
            "cases/h200-topo/topo.txt",
        ] {
            let mut command = command(["topo", "--bind", launcher].into_iter().chain(machine.split(' ')));
            command.env("COLUMNS", "80");
            let answer = finish(command);
            assert_eq!(answer.code, Some(0), "{launcher} {machine}: {answer:?}");
            let lines: Vec<&str> = answer.stdout.lines().collect();
            assert!(lines.len() <= 60, "{launcher} {machine}:\n{}", answer.stdout);
            // What is to be pasted is not wrapped.
            let pasted = |it: &str| it.contains("run ") || it.starts_with("0x") || it.contains("echo ");
            assert!(
                lines.iter().all(|it| pasted(it) || it.chars().count() <= 80),
                "{launcher} {machine}:\n{}",
                answer.stdout
            );
        }
    }
    let answer = topo("--bind pbs --instance p5.48xlarge");
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("slurm, mpirun, torchrun, k8s"), "{answer:?}");
    assert_eq!(topo("--bind slurm --decide --instance p5.48xlarge").code, Some(2));
}

#[test]
fn nics_are_named_and_not_set() {
    let answer = topo(&format!("{DGX} --bind slurm")).stdout;
    assert!(answer.contains("  0     0    0     0-13,112-125    mlx5_0       PXB\n"), "{answer}");
    assert!(answer.contains("Do not set NCCL_IB_HCA per rank"), "{answer}");
    let answer = topo("--instance p5.48xlarge --bind slurm --format json").json();
    assert_eq!(answer["ranks"][7]["nics"].as_array().unwrap().len(), 4);
    assert_eq!(answer["ranks"][7]["nics"][0], "rdmap198s0");
    assert_eq!(answer["ranks"][7]["cpus"], "84-95,180-191");
    assert!(
        topo("--instance p5en.48xlarge --bind slurm").stdout.contains("are not known: their ranks share")
    );
}

#[test]
fn the_json_is_as_its_schema_says() {
    let folder = folder("written-json");
    let file = |name: &str| folder.join(name).display().to_string();
    for (name, arguments) in [
        ("bind.schema.json", "--bind slurm --instance p5.48xlarge --nodes 2".to_owned()),
        ("bind.schema.json", "--bind k8s --instance p5en.48xlarge".to_owned()),
        ("bind.schema.json", format!("--bind torchrun {DGX}")),
        ("written.schema.json", format!("cases/oracle-p5/p5.xml --write-topo-file {}", file("p5.xml"))),
        ("written.schema.json", format!("--instance p5.48xlarge --write-cluster {}", file("p5.toml"))),
    ] {
        let answer = topo(&format!("{arguments} --format json"));
        assert_eq!(answer.code, Some(0), "{answer:?}");
        check_schema(name, &answer.json());
    }
}

/// The topology XML of every machine that NCCL was asked about.
fn machines() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Of its own machine; other folders have those of several.
        let xml = name.strip_prefix("oracle-").map(|machine| path.join(format!("{machine}.xml")));
        all.extend(xml.filter(|it| it.is_file()));
    }
    assert!(all.len() >= 20, "{all:?}");
    all.sort();
    all
}

/// What NCCL would decide, in its own lines.
fn lines(xml: &Path) -> String {
    let answer = plumb(["topo", "--lines", "--nodes", "2", "--nccl", "2.28.9", xml.to_str().unwrap()]);
    assert_eq!(answer.code, Some(0), "{}: {answer:?}", xml.display());
    answer.stdout
}

#[test]
fn a_written_topology_decides_as_the_original() {
    let folder = folder("written-topology");
    for xml in machines() {
        let written = folder.join(xml.file_name().unwrap());
        let write = |from: &Path, to: &Path| {
            let answer = plumb(["topo", from.to_str().unwrap(), "--write-topo-file", to.to_str().unwrap()]);
            assert_eq!(answer.code, Some(0), "{answer:?}");
            answer.stdout
        };
        write(&xml, &written);
        assert_eq!(lines(&written), lines(&xml), "{}", xml.display());
        let again = folder.join("again.xml");
        write(&written, &again);
        assert_eq!(fs::read_to_string(&again).unwrap(), fs::read_to_string(&written).unwrap());
    }
    // The tree that NCCL printed in a log has the bus ids too.
    let log = folder.join("log.xml");
    let answer = topo(&format!("cases/graph-tuning/job.log --write-topo-file {}", log.display()));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(fs::read_to_string(log).unwrap().contains("<gpu dev=\"0\""), "{answer:?}");
}

#[test]
fn a_topology_needs_bus_ids() {
    let folder = folder("no-bus-ids");
    let file = folder.join("topo.xml");
    for machine in ["--instance p5.48xlarge", DGX] {
        let answer = topo(&format!("{machine} --write-topo-file {}", file.display()));
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains("machine itself"), "{answer:?}");
        assert!(!file.exists());
    }
    // Of a p4d they are published, and the same everywhere.
    let answer = topo(&format!("--instance p4d.24xlarge --write-topo-file {}", file.display()));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stdout.contains("8 GPUs, 4 NICs, 4 PCIe switches on 2 NUMA nodes"), "{answer:?}");
    assert!(answer.stdout.contains("aws-ofi-nccl gives NCCL a file of its own"), "{answer:?}");
    assert!(fs::read_to_string(&file).unwrap().starts_with("<system version=\"1\" name=\"p4d.24xlarge\">"));
}

#[test]
fn an_input_is_not_overwritten() {
    let folder = folder("overwrite");
    let input = folder.join("machine.xml");
    let text = fs::read(root().join("cases/oracle-p4d/p4d.xml")).unwrap();
    for flag in ["--write-topo-file", "--write-cluster"] {
        fs::write(&input, &text).unwrap();
        let answer = topo(&format!("{} --gpu A100 {flag} {}", input.display(), input.display()));
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains("does not overwrite its input"), "{answer:?}");
        assert_eq!(fs::read(&input).unwrap(), text);
    }
}

#[test]
fn a_cluster_file_gives_the_same_answer() {
    let folder = folder("written-cluster");
    let file = folder.join("cluster.toml");
    for (machine, notes) in [
        ("--instance p5.48xlarge --nodes 4".to_owned(), 0),
        ("--instance p4d.24xlarge --pods 8x1".to_owned(), 0),
        ("--instance g6e.12xlarge --nodes 2".to_owned(), 0),
        ("cases/oracle-hgxh100/hgxh100.xml --gpu H100 --nodes 2".to_owned(), 0),
        ("cases/oracle-nvl4/nvl4.xml --gpu A100".to_owned(), 0),
        ("cases/p5-topo/topo.txt --gpu H100".to_owned(), 0),
        ("cases/p4d-topo/topo.txt --gpu A100-SXM4-40GB".to_owned(), 0),
    ] {
        let written = topo(&format!("{machine} --write-cluster {}", file.display()));
        assert_eq!(written.code, Some(0), "{machine}: {written:?}");
        assert_eq!(written.stdout.matches("  note").count(), notes, "{machine}: {}", written.stdout);
        let described = topo(&format!("{machine} --format json")).json();
        let read = topo(&format!("--cluster {} --format json", file.display())).json();
        assert!(described["normal"].as_array().is_some_and(|it| !it.is_empty()), "{machine}");
        assert_eq!(read["normal"], described["normal"], "{machine}: {}", fs::read_to_string(&file).unwrap());
    }
    // A matrix names neither the GPUs nor the rate of its NICs.
    let answer = topo(&format!("{DGX} --write-cluster {}", file.display()));
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("give it with --gpu"), "{answer:?}");
    let answer = topo(&format!("{DGX} --gpu H100 --write-cluster {}", file.display()));
    assert!(answer.stdout.contains("The rate of the NICs is not known"), "{answer:?}");
    let answer =
        topo(&format!("{DGX} --gpu H100 --nic-gbps 400 --nodes 4 --write-cluster {}", file.display()));
    assert!(
        answer.stdout.starts_with(&format!("{}: 4 machines, 8 GPUs each\n", file.display())),
        "{answer:?}"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("inter = { kind = \"infiniband\", nics = 10, gbps = 400.0 }\n"), "{text}");
    assert_eq!(topo(&format!("--cluster {}", file.display())).code, Some(0));
}

/// A graph has the order of GPUs and nothing else.
#[test]
fn a_graph_cannot_be_pinned() {
    let path = folder("bind-graph").join("graph.xml");
    let graph = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"12\" speedinter=\"12\" \
                 latencyinter=\"0\" typeintra=\"SYS\" typeinter=\"PIX\" samechannels=\"1\"><channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel></graph></graphs>";
    fs::write(&path, graph).unwrap();
    for launcher in ["slurm", "mpirun", "torchrun", "k8s"] {
        let answer = topo(&format!("{} --bind {launcher}", path.display()));
        assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{answer:?}");
        assert!(answer.stderr.contains("neither CPUs nor NUMA nodes nor NICs"), "{answer:?}");
    }
}

/// `-` is standard output.
#[test]
fn a_file_for_the_next_program() {
    let folder = folder("written-to-stdout");
    let write = |arguments: &str| {
        let mut command = command(["topo"].into_iter().chain(arguments.split(' ')));
        command.current_dir(&folder);
        finish(command)
    };
    let answer = write("--instance p4d.24xlarge --write-topo-file -");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(
        answer.stdout.starts_with('<') && answer.stdout.trim_end().ends_with("</system>"),
        "{}",
        answer.stdout
    );
    assert!(answer.stderr.contains("note: "), "{answer:?}");
    let answer = write("--instance p4d.24xlarge --write-cluster -");
    assert!(answer.stdout.starts_with("[cluster]\n"), "{answer:?}");
    let answer = write("--instance p4d.24xlarge --write-cluster - --format json");
    assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{answer:?}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

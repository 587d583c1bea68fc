//! `plumb topo --decide`, `--what-if` and `--check`, as a person runs them.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::io::Read as _;
use std::path::PathBuf;

use common::{Answer, check_schema, command, finish, folder, plumb, root};

#[track_caller]
fn topo(arguments: &str) -> Answer {
    plumb(["topo"].into_iter().chain(arguments.split(' ')))
}

/// A screen of a terminal.
#[test]
fn the_first_screen_fits_a_terminal() {
    for machine in [
        "--instance p5.48xlarge --nodes 4",
        "--instance p5en.48xlarge --nodes 16",
        "--instance p4d.24xlarge --nodes 2",
        "--instance p6-b200.48xlarge --nodes 3",
        "--instance g6e.12xlarge --nodes 4",
        "--instance g6e.12xlarge",
        "--instance dgx-h100 --nodes 2 --env NCCL_CROSS_NIC=1 --env NCCL_IB_HCA=mlx5",
        "--instance dgx-a100 --nodes 100",
        "--instance p5.48xlarge --pods 1x1",
        "--instance gb200-nvl72 --nodes 36",
    ] {
        let mut command = command(["topo", "--decide"].into_iter().chain(machine.split(' ')));
        command.env("COLUMNS", "80");
        let answer = finish(command);
        assert_eq!(answer.code, Some(0), "{machine}: {answer:?}");
        assert!(answer.stdout.lines().count() <= 24, "{machine}:\n{}", answer.stdout);
        assert!(answer.stdout.lines().all(|it| it.chars().count() <= 80), "{machine}:\n{}", answer.stdout);
        assert!(answer.stdout.contains("channels"), "{machine}:\n{}", answer.stdout);
    }
}

#[test]
fn the_json_is_as_its_schema_says() {
    for (name, arguments) in [
        ("decide.schema.json", "--decide --instance p5.48xlarge --nodes 4"),
        ("decide.schema.json", "--decide --instance dgx-h100 --nodes 2 --env NCCL_NO_SUCH=1 --rank 9"),
        ("decide.schema.json", "--decide --instance g6e.12xlarge"),
        ("decide.schema.json", "--decide --instance g5.xlarge"),
        ("decide.schema.json", "--what-if NCCL_MAX_NCHANNELS=4 --instance p4d.24xlarge --nodes 2"),
        ("decide.schema.json", "--what-if NCCL_PROTO=^ --instance dgx-h100"),
        ("check.schema.json", "--check cases/graph-tuning/job.log"),
        ("check.schema.json", "--check cases/warn-only/job.log"),
    ] {
        let answer = topo(&format!("{arguments} --format json")).json();
        check_schema(name, &answer);
    }
}

#[test]
fn the_lines_are_those_of_a_rank() {
    let lines =
        |arguments: &str| topo(&format!("--lines --instance p5.48xlarge --nodes 2 {arguments}")).stdout;
    let first = lines("--nccl 2.28.9");
    assert!(first.starts_with("Pattern 4, crossNic 2, nChannels 8, bw 48.000000/48.000000"), "{first}");
    assert!(first.contains("\nChannel 00/16 :  0  7  6"), "{first}");
    assert!(first.contains("\nRing 00 : 8 -> 0 -> 7\n"), "{first}");
    assert!(first.contains("\n    AllReduce |"), "{first}");
    let ninth = lines("--nccl 2.28.9 --rank 9");
    assert!(ninth.contains("\nRing 00 : 1 -> 9 -> 10\n") && !ninth.contains("AllReduce"), "{ninth}");
    assert!(topo("--lines --instance p5.48xlarge --rank 8").stderr.contains("there is no rank 8"));
}

#[test]
fn a_setting_makes_a_difference() {
    let what_if = |arguments: &str| topo(&format!("--instance dgx-h100 --nodes 2 --what-if {arguments}"));
    let answer = what_if("NCCL_MAX_NCHANNELS=4");
    assert!(answer.stdout.contains("channels       now   16\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("then  4\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("\n  expected       now   all_reduce "), "{}", answer.stdout);
    let answer = what_if("NCCL_DEBUG=WARN");
    assert!(answer.stdout.starts_with("NCCL_DEBUG=WARN changes nothing\n"), "{}", answer.stdout);
    let answer = what_if("NCCL_GRAPH_FILE=rings.xml");
    let head = "plumb does not know what NCCL_GRAPH_FILE=rings.xml changes\n";
    assert!(answer.stdout.starts_with(head), "{}", answer.stdout);
    assert!(
        answer.stdout.contains("NCCL_GRAPH_FILE can change what NCCL decides, and is not modelled"),
        "{answer:?}"
    );
    let answer = what_if("NCCL_ALGO=Ring --what-if NCCL_PROTO=Simple");
    assert!(answer.stdout.contains("Ring Simple for every size"), "{}", answer.stdout);
    let answer = what_if("NCCL_ALGO=Rink");
    assert!(answer.stdout.starts_with("NCCL would not run with NCCL_ALGO=Rink\n"), "{answer:?}");
}

/// A recording, unpacked.
fn recording(name: &str) -> String {
    let bytes = std::fs::read(root().join("cases").join(name)).expect("a recording");
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log");
    text
}

/// A file in a folder of its own.
fn put(name: &str, text: &str) -> PathBuf {
    let path = folder(&format!("topo-decide-{name}")).join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path
}

/// From what a log itself says: machine, release, variables.
#[test]
fn logs_are_as_predicted() {
    for (log, least) in [
        ("cases/oracle-p5/2x8.log.gz", 600),
        ("cases/oracle-p5/2x8-2.18.6.log.gz", 600),
        ("cases/oracle-p5/2x8-2.23.4.log.gz", 600),
        ("cases/oracle-p5/2x8-2.30.7.log.gz", 600),
        ("cases/oracle-p4d/2x8-2.21.5.log.gz", 400),
        ("cases/oracle-dgxh100/2x8.log.gz", 600),
        ("cases/oracle-g6e12/4x4.log.gz", 100),
        ("cases/oracle-g6e12/2x4-sys.log.gz", 80),
        // NCCL counts one machine as two nodes, and each prints its own GPUs.
        ("cases/oracle-pcie8/1x8.log.gz", 100),
        // NVLink domains of several machines.
        ("cases/oracle-gb200two/2.28.9/4x4.log.gz", 300),
        ("cases/oracle-gb200/2.25.1/2x4.sweep.gz", 200),
        ("cases/graph-tuning/job.log", 70),
        ("cases/g6e-4x4-efa/rank0.log", 10),
        ("cases/p4d-4-pods/rank0.log", 5),
    ] {
        let answer = topo(&format!("--check {log} --format json"));
        let json = answer.json();
        assert_eq!(json["verdict"], "same", "{log}: {:#}", json["differences"]);
        assert_eq!(answer.code, Some(0), "{log}");
        assert!(json["compared"].as_u64() >= Some(least), "{log}: {}", json["compared"]);
    }
}

#[test]
fn a_line_that_differs_is_shown() {
    let log = recording("oracle-p5/2x8.log.gz");
    let told = "Ring 03 : 7 -> 0 -> 1";
    assert_eq!(log.matches(told).count(), 1);
    let path = put("other-ring.log", &log.replace(told, "Ring 03 : 7 -> 0 -> 2"));
    let answer = plumb(["topo".as_ref(), "--check".as_ref(), path.as_os_str()]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stdout.starts_with("NCCL decided otherwise than predicted: 1 of "), "{}", answer.stdout);
    assert!(answer.stdout.contains("NCCL       Ring 03 : 7 -> 0 -> 2\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("predicted  Ring 03 : 7 -> 0 -> 1\n"), "{}", answer.stdout);
    // A variable that the log does not name, but that was in effect.
    let path = put("fewer.log", &log);
    let answer = plumb([
        "topo".as_ref(),
        "--check".as_ref(),
        path.as_os_str(),
        "--env".as_ref(),
        "NCCL_MAX_NCHANNELS=4".as_ref(),
    ]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.stdout.contains("coll channels"), "{}", answer.stdout);
}

#[test]
fn a_log_without_enough_says_what_is_missing() {
    let answer = topo("--check cases/warn-only/job.log");
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stdout.starts_with("not enough in the log"), "{}", answer.stdout);
    assert!(answer.stdout.contains("NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING"), "{}", answer.stdout);
    let answer = topo("--check cases/healthy-2-nodes");
    assert_eq!(answer.code, Some(2), "{answer:?}");
    // Without the lines of GRAPH, and with a machine that is given.
    let graph = ["=== System", "Pattern", " : NET/", "Ring ", "Tree "];
    let log = recording("oracle-p5/2x8.log.gz");
    let kept: Vec<&str> = log.lines().filter(|line| !graph.iter().any(|it| line.contains(it))).collect();
    let path = put("init-only.log", &kept.join("\n"));
    let check = |more: &[&str]| {
        let arguments = ["topo".as_ref(), "--check".as_ref(), path.as_os_str()];
        plumb(arguments.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let answer = check(&[]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stdout.contains("or give it with --xml FILE"), "{}", answer.stdout);
    let answer = check(&["--xml", "cases/no-such.xml"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("cases/no-such.xml"), "{answer:?}");
}

/// What a log lacks is tried: a value with which every line is as predicted counts, and the answer names it.
#[test]
fn what_a_log_does_not_state_is_tried() {
    let check = |name: &str, log: &str, left_out: &[&str]| {
        let kept: Vec<&str> =
            log.lines().filter(|line| !left_out.iter().any(|it| line.contains(it))).collect();
        let path = put(name, &kept.join("\n"));
        plumb(["topo".as_ref(), "--check".as_ref(), path.as_os_str()])
    };
    let words = |it: &Answer| it.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let log = recording("oracle-hgxh100/2.28.9/2x8-max-channels-4.log.gz");
    let answer = check("no-release.log", &log, &["NCCL version "]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(
        words(&answer).contains("The log does not name the release of NCCL; its lines fit 2."),
        "{answer:?}"
    );
    let environment = ["set by environment"];
    let answer = check("no-environment.log", &log, &environment);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let head = "NCCL decided as predicted if NCCL_MAX_NCHANNELS=4 was set: ";
    assert!(answer.stdout.starts_with(head), "{}", answer.stdout);
    // Nothing that was tried explains this line.
    let odd = log.replace("Ring 03 : 7 -> 0 -> 1", "Ring 03 : 7 -> 0 -> 2");
    assert_ne!(odd, log);
    let answer = check("nothing-fits.log", &odd, &environment);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let said = "Not in the log, and no value that plumb tried fits: the environment (subsystem ENV)";
    assert!(words(&answer).contains(said), "{}", answer.stdout);
    // Too little to tell the release.
    let graph = ["NCCL version ", "=== System", "Pattern", " : NET/", "|"];
    let answer = check("too-little.log", &log, &graph);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(words(&answer).contains("missing the release of NCCL"), "{}", answer.stdout);
}

/// Rings and rates that a source does not show are not invented.
#[test]
fn a_matrix_needs_models_and_rates() {
    let matrix = "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV18\tPIX\tSYS\nGPU1\tNV18\t X \tSYS\tPIX\n\
                  NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";
    let path = put("matrix.txt", matrix);
    let decide = |more: &str| {
        let all = ["topo", "--decide", "--nodes", "2"]
            .into_iter()
            .chain(more.split(' ').filter(|it| !it.is_empty()));
        plumb(all.map(AsRef::as_ref).chain([path.as_os_str()]))
    };
    let answer = decide("--gpu H100");
    assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{answer:?}");
    assert!(answer.stderr.contains("the rate of the NICs is not in this source"), "{answer:?}");
    let answer = decide("--nic-gbps 400");
    assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{answer:?}");
    assert!(answer.stderr.contains("add --gpu MODEL"), "{answer:?}");
    let answer = decide("--nic-gbps 400 --gpu H100");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stdout.starts_with("2 x the machine of matrix.txt: "), "{}", answer.stdout);
    assert!(answer.stdout.contains("48 of 50 GB/s"), "{}", answer.stdout);
}

/// Each rank counts where its lines place it; without them there is no difference.
#[test]
fn uneven_nodes_are_compared_if_all_ranks_are_in_the_log() {
    let answer = topo("--check cases/oracle-pcie8/2.30.7/1+8.uneven.gz");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    // The log of one rank of a node of one GPU beside one of eight.
    let log = recording("oracle-pcie8/2.30.7/1+8.uneven.gz");
    let thread = log.split(" NCCL INFO").next().unwrap();
    let own: Vec<&str> = log.lines().filter(|it| it.starts_with(thread)).collect();
    let path = put("one-of-uneven.log", &own.join("\n"));
    let answer = plumb(["topo".as_ref(), "--check".as_ref(), path.as_os_str()]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stdout.contains("where each rank is"), "{}", answer.stdout);
}

#[test]
fn every_communicator_is_compared() {
    let (large, small) = (recording("oracle-p5/2x8.log.gz"), recording("oracle-p5/1x4.log.gz"));
    let told = "Ring 03 : 3 -> 0 -> 1";
    assert_eq!(small.matches(told).count(), 1);
    let check = |small: &str| {
        let path = put("two.log", &format!("{large}{}", small.replace("vm:", "other:")));
        plumb(["topo".as_ref(), "--check".as_ref(), path.as_os_str(), "--format".as_ref(), "json".as_ref()])
    };
    let json = check(&small).json();
    let verdicts = |json: &serde_json::Value| -> Vec<(u64, String)> {
        let all = json["communicators"].as_array().unwrap().iter();
        all.map(|it| (it["ranks"].as_u64().unwrap(), it["verdict"].as_str().unwrap().to_owned())).collect()
    };
    assert_eq!(
        verdicts(&json),
        [(16, "same".to_owned()), (4, "same".to_owned())],
        "{:#}",
        json["differences"]
    );
    assert_eq!(json["verdict"], "same");
    let json = check(&small.replace(told, "Ring 03 : 3 -> 0 -> 2")).json();
    assert_eq!(verdicts(&json), [(16, "same".to_owned()), (4, "different".to_owned())]);
    assert_eq!((&json["verdict"], json["different"].as_u64()), (&"different".into(), Some(1)));
}

#[test]
fn hopeless_questions_are_refused() {
    for (arguments, said) in [
        ("--decide --instance p5.49xlarge", "p5.48xlarge"),
        ("--decide --instance p4d.24xlarge --pods 3x4", "12"),
        ("--decide --instance p4d.24xlarge --nodes 1000000", "at most"),
        ("--decide --instance p4d.24xlarge --pods 8x1 --nics-per-pod 0", "no NIC"),
        ("--decide --instance p4d.24xlarge --env NCCL_ALGO=Rink", "Rink"),
        ("--decide --instance p4d.24xlarge --svg x.svg", "--svg"),
        ("--decide docs/json.md", "docs/json.md"),
        ("--xml x.xml", "--check"),
    ] {
        let answer = topo(arguments);
        assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{arguments}: {answer:?}");
        assert!(answer.stderr.contains(said), "{arguments}: {}", answer.stderr);
    }
    let path = put("cut.xml", "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0\"");
    let answer = plumb(["topo".as_ref(), "--decide".as_ref(), path.as_os_str()]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("cut.xml"), "{answer:?}");
}

/// The trays of an NVL72 are one node to NCCL, unless a variable says otherwise; several racks are as many nodes.
#[test]
fn an_nvlink_domain_is_one_node() {
    let head = |job: &str| {
        let answer = topo(&format!("--instance gb200-nvl72 --nccl 2.28.9 --decide {job}"));
        assert_eq!(answer.code, Some(0), "{answer:?}");
        answer.stdout.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(head("--nodes 18"), "NCCL 2.28.9, 72 ranks on 18 machines, one node to NCCL (NVLink domain)");
    let two = head("--nodes 36");
    assert!(two.contains("144 ranks on 36 machines, 2 nodes to NCCL (NVLink domains)"), "{two}");
    let off = head("--nodes 18 --env NCCL_MNNVL_ENABLE=0");
    assert!(off.contains("72 ranks on 18 nodes, network IB"), "{off}");
}

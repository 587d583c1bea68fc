//! Descriptions of machines that are cut, forged, far too large or no descriptions at all.
//!
//! Each gets a message that names the file, and the line where there is one, and exit code 2; nothing panics, and time
//! and memory have a bound. What is odd but can be read is read, and said.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use common::{Answer, finish, folder, root};

/// Runs `plumb` with at most 1 GiB of memory.
#[track_caller]
fn bounded<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Answer {
    shell("ulimit -v 1048576; exec \"$plumb\" \"$@\"", arguments)
}

/// Runs a shell script in which `$plumb` is the program.
#[track_caller]
fn shell<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) -> Answer {
    let mut command = testbed::program("/bin/sh");
    command.args(["-c", script, "sh"]).args(arguments).current_dir(root()).env_clear();
    command.env("plumb", env!("CARGO_BIN_EXE_plumb")).env("PATH", "/usr/bin:/bin").env("COLUMNS", "100");
    finish(command)
}

/// A folder with descriptions.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        Self(folder(&format!("topo-{test}")))
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file can be written");
        path
    }

    #[track_caller]
    fn topo(&self, name: &str, bytes: impl AsRef<[u8]>) -> Answer {
        topo(&self.put(name, bytes), &[])
    }

    /// The file is refused: with its name and line, and what is said of it.
    #[track_caller]
    fn refused(&self, name: &str, bytes: impl AsRef<[u8]>, said: &str) {
        refused(&self.topo(name, bytes), name, said);
    }
}

#[track_caller]
fn topo(path: &Path, options: &[&str]) -> Answer {
    let arguments = [OsStr::new("topo"), path.as_os_str()];
    bounded(arguments.into_iter().chain(options.iter().map(OsStr::new)))
}

/// Exit code 2, nothing on standard output, and one error that holds both texts.
#[track_caller]
fn refused(answer: &Answer, name: &str, said: &str) {
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{name}: {answer:?}");
    assert!(answer.stderr.starts_with("error: "), "{name}: {answer:?}");
    assert!(answer.stderr.contains(name), "the message does not name {name}: {}", answer.stderr);
    assert!(answer.stderr.contains(said), "{name}: {}", answer.stderr);
}

/// The first line of `nvidia-smi topo -m`.
fn header(gpus: usize) -> String {
    let mut text = String::new();
    (0..gpus).for_each(|it| text += &format!("\tGPU{it}"));
    text + "\tCPU Affinity\tNUMA Affinity\n"
}

/// `nvidia-smi topo -m` of `n` GPUs with one path between all of them.
fn matrix(n: usize, path: &str) -> String {
    let mut text = header(n);
    for row in 0..n {
        let _ = write!(text, "GPU{row}");
        (0..n).for_each(|it| text += &format!("\t{}", if it == row { " X " } else { path }));
        text += "\t0-1\t0\n";
    }
    text
}

/// A topology XML with this inside its one CPU.
fn xml(inside: &str) -> String {
    format!(
        "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\">\n{inside}</cpu>\n</system>\n"
    )
}

/// A GPU at `0000:NN:00.0` with this inside.
fn gpu(number: usize, inside: &str) -> String {
    format!(
        "<pci busid=\"0000:{number:02x}:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\
         <gpu dev=\"{number}\" sm=\"90\" rank=\"{number}\" gdr=\"1\">{inside}</gpu></pci>\n"
    )
}

fn recording(path: &str) -> String {
    fs::read_to_string(root().join("cases").join(path)).expect("the recording is there")
}

fn unpacked(path: &str) -> String {
    let file = fs::File::open(root().join("cases").join(path)).expect("the recording is there");
    std::io::read_to_string(flate2::read::GzDecoder::new(file)).expect("a log")
}

#[test]
fn a_matrix_with_something_missing() {
    let scratch = Scratch::new("matrix-missing");
    let whole = recording("p4d-topo/topo.txt");
    let without =
        |what: &str| whole.lines().filter(|it| !it.starts_with(what)).collect::<Vec<_>>().join("\n");
    let headless: Vec<&str> = whole.lines().filter(|it| !it.contains("CPU Affinity")).collect();
    for (name, text, note) in [
        ("row.txt", without("GPU3"), "The row of GPU3 is missing"),
        ("header.txt", headless.join("\n"), "The header is missing"),
    ] {
        let answer = scratch.topo(name, text);
        assert!(answer.code == Some(0) && answer.stdout.contains("8 GPUs, NVSwitch"), "{answer:?}");
        assert!(answer.stdout.contains(note), "{answer:?}");
    }
    let pcie = matrix(4, "PHB");
    let half: Vec<&str> = pcie.lines().take(3).collect();
    scratch.refused(
        "half.txt",
        half.join("\n"),
        "half.txt:1: the matrix is cut: no row shows the path from GPU2 to GPU3",
    );
    let asymmetric = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-1\nGPU1\tSYS\t X \t0-1\n";
    scratch.refused("cells.txt", asymmetric, "cells.txt:2: GPU0 to GPU1 is NV4");
}

/// Wherever a paste ends, a machine comes out whole or not at all.
#[test]
fn a_matrix_cut_anywhere() {
    let scratch = Scratch::new("matrix-cut");
    for recording in ["p4d-topo/topo.txt", "p5-topo/topo.txt"].map(recording) {
        let gpus = recording.matches("\nGPU").count();
        // A prime, so that each column is cut once.
        for length in (0..recording.len()).step_by(53) {
            let answer = scratch.topo("cut.txt", &recording[..length]);
            match answer.code {
                Some(0) => assert!(answer.stdout.contains(&format!("{gpus} GPUs")), "{length}: {answer:?}"),
                _ => refused(&answer, "cut.txt", ""),
            }
        }
    }
}

#[test]
fn more_gpus_than_a_machine_has() {
    let scratch = Scratch::new("matrix-large");
    let nodes = matrix(300, "SYS").replace("\t0-1\t0", "").replace("\tCPU Affinity\tNUMA Affinity", "");
    scratch.refused("nodes.txt", nodes, "300 sockets");
    scratch.refused("links.txt", matrix(1000, "NV18"), "1000 GPUs");
    scratch.refused("switches.txt", matrix(400, "PIX"), "400 GPUs");
    let mut text = header(10_000);
    for row in 0..20 {
        let _ = writeln!(text, "GPU{row}{}", "\tSYS".repeat(10_000));
    }
    scratch.refused("thousands.txt", text, "thousands.txt:1: 10,000 GPUs in one machine");
    let gpus: String = (0..10_000).map(|it| gpu(it % 256, "")).collect();
    scratch.refused("thousands.xml", xml(&gpus), "thousands.xml:1: 10,000 GPUs in one machine");
    // As many as can be.
    let answer = scratch.topo("many.txt", matrix(64, "NV18"));
    assert!(answer.code == Some(0) && answer.stdout.contains("64 GPUs"), "{answer:?}");
}

#[test]
fn xml_that_explodes() {
    let scratch = Scratch::new("xml-bombs");
    let mut laughs = "<?xml version=\"1.0\"?>\n<!DOCTYPE lolz [\n<!ENTITY lol0 \"lol\">\n".to_owned();
    for n in 1..10 {
        let _ = writeln!(laughs, "<!ENTITY lol{n} \"{}\">", format!("&lol{};", n - 1).repeat(10));
    }
    laughs += "]>\n<system version=\"1\">&lol9;</system>\n";
    scratch.refused("laughs.xml", laughs, "laughs.xml:14: ");
    let reader =
        "<!DOCTYPE s [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>\n<system version=\"1\">&x;</system>\n";
    scratch.refused("reader.xml", reader, "reader.xml:2: ");
    let deep = "<pci busid=\"0000:01:00.0\" class=\"0x060400\">".repeat(100_000);
    scratch.refused("deep-open.xml", format!("<system version=\"1\">{deep}"), "deep-open.xml:1: ");
    scratch.refused("deep.xml", xml(&format!("{deep}{}", "</pci>".repeat(100_000))), "deep.xml:1: ");
    for (name, tag) in [
        ("bridges.xml", "<pci busid=\"0000:01:00.0\"/>\n"),
        ("nets.xml", "<net name=\"a\" dev=\"1\"/>"),
        ("nothings.xml", "<x/>"),
    ] {
        scratch.refused(name, xml(&tag.repeat(1_000_000)), &format!("{name}:1: "));
    }
    let attributes: String = (0..200_000).fold(String::new(), |text, it| text + &format!("a{it}=\"1\" "));
    scratch.refused(
        "attributes.xml",
        xml(&format!("<pci {attributes}/>")),
        "attributes.xml:3: more than 256 attributes",
    );
    scratch.refused("long.xml", xml(&"<pci class=\"0x060400\"/>".repeat(3_000_000)), "long.xml:1: ");
}

#[test]
fn xml_cut_anywhere() {
    let scratch = Scratch::new("xml-cut");
    let whole = recording("oracle-g6e12/g6e12.xml");
    let end = whole.find("</system>").expect("an end");
    for length in (0..end).step_by(whole.len() / 40) {
        refused(&scratch.topo("cut.xml", &whole[..length]), "cut.xml", "");
    }
    refused(&scratch.topo("cut.xml", &whole[..end / 2]), "cut.xml:1: the XML is cut", "");
    // And with its end, but not what stands before it.
    for length in (30..end).step_by(whole.len() / 20) {
        let answer = scratch.topo("holed.xml", format!("{}</system>", &whole[..length]));
        assert!(answer.code == Some(2), "{length}: {answer:?}");
    }
}

/// What contradicts itself is left out and said, or refused.
#[test]
fn xml_that_cannot_be() {
    let scratch = Scratch::new("xml-wrong");
    let pair = |inside: &str| xml(&format!("{}{}", gpu(1, inside), gpu(2, "")));
    let to = |bus: &str| pair(&format!("<nvlink target=\"{bus}\" count=\"4\" tclass=\"0x030200\"/>"));
    for (name, bus) in [("itself.xml", "0000:01:00.0"), ("nobody.xml", "0000:09:00.0"), ("word.xml", "next")]
    {
        let answer = scratch.topo(name, to(bus));
        let what = if name == "itself.xml" { "the GPU itself" } else { "not a GPU of this machine" };
        let note = format!("Line 3: an NVLink goes to {bus}, which is {what}");
        assert!(answer.code == Some(0) && answer.stdout.contains(&note), "{answer:?}");
        assert!(answer.stdout.contains("2 GPUs without NVLink"), "{answer:?}");
    }
    let switch = |bus: usize, target: usize, below: &str| {
        format!(
            "<pci busid=\"0000:{bus:02x}:00.0\" class=\"0x060400\"><pcilink target=\"0000:{target:02x}:00.0\"/>{below}</pci>\n"
        )
    };
    let circle = format!("{}{}", switch(0x10, 0x11, &gpu(1, "")), switch(0x11, 0x10, &gpu(2, "")));
    for (name, inside) in
        [("circle.xml", circle), ("own-tail.xml", switch(0x10, 0x10, &(gpu(1, "") + &gpu(2, ""))))]
    {
        let answer = scratch.topo(name, xml(&inside));
        assert!(answer.code == Some(0) && answer.stdout.contains("2 GPUs"), "{answer:?}");
    }
    let words = "<pci busid=\"hello\" class=\"GPU\" link_speed=\"fast\" link_width=\"-1\"><gpu dev=\"first\" sm=\"new\" rank=\"-\" gdr=\"maybe\"/></pci>\n\
                 <nic><net name=\"\" dev=\"x\" speed=\"fast\" port=\"-1\" latency=\"nan\"/></nic>\n";
    let answer = scratch.topo("words.xml", xml(words));
    assert!(answer.code == Some(0) && answer.stdout.contains("not known:"), "{answer:?}");
    assert!(answer.stdout.contains("The rate of some NICs is missing."), "{answer:?}");
    let speeds = ["nan", "inf", "-400000", "1e308", "0", "99999999999999999999"];
    let nets = speeds
        .map(|it| format!("<net name=\"a{it}\" dev=\"0\" speed=\"{it}\" latency=\"{it}\"/>\n"))
        .concat();
    let answer = scratch.topo("speeds.xml", xml(&format!("{}{}<nic>{nets}</nic>", gpu(1, ""), gpu(2, ""))));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(!answer.stdout.contains("inf") || answer.stdout.contains("ainf"), "{answer:?}");
    let net = "<nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\"/></nic>\n";
    scratch.refused("no-gpu.xml", xml(net), "no GPU found");
    let all = "<nvlink target=\"0000:03:00.0\" count=\"4294967295\" tclass=\"0x068000\"/>";
    let answer = scratch.topo("links.xml", xml(&format!("{}{}", gpu(1, all), gpu(2, all))));
    assert!(answer.code == Some(0) && !answer.stdout.contains("normal all_reduce"), "{answer:?}");
    scratch.refused("empty.xml", xml(""), "empty.xml:1: ");
    scratch.refused("closed.xml", "<system version=\"1\"/>", "closed.xml:1: ");
    scratch.refused(
        "other.xml",
        "<cpu numaid=\"0\"><pci busid=\"0000:01:00.0\"/></cpu>",
        "no topology in it",
    );
}

/// Ranks write into one file at once.
#[test]
fn a_log_of_two_ranks_at_once() {
    let scratch = Scratch::new("log-interleaved");
    let log = unpacked("oracle-p5/2x8.log.gz");
    let process = |line: &str| line.split(':').nth(1).map(str::to_owned);
    let trees: Vec<_> = log.lines().filter(|it| it.contains("=== System")).filter_map(process).collect();
    let trees = &trees;
    let of = |rank: usize| log.lines().filter(move |it| process(it).as_ref() == trees.get(rank));
    let mixed: Vec<String> = of(0).zip(of(1)).map(|(a, b)| format!("{a}\n{b}\n")).collect();
    let answer = |name: &str, text: &str| scratch.topo(name, text).stdout;
    let drawn = |text: &str| text.split_once("NUMA 0").map(|it| it.1.to_owned());
    assert_eq!(drawn(&answer("mixed.log", &mixed.concat())), drawn(&answer("whole.log", &log)));
    // Cut before, in and after the tree: whole or not at all.
    for part in 1..40 {
        let text = mixed.concat();
        let cut = text.get(..text.len() / 40 * part).expect("ASCII");
        let answer = scratch.topo("cut.log", cut);
        match answer.code {
            Some(0) => assert!(answer.stdout.contains("8 GPUs"), "{part}: {answer:?}"),
            _ => refused(&answer, "cut.log", ""),
        }
    }
}

#[test]
fn files_that_describe_nothing() {
    let scratch = Scratch::new("nothing");
    let text = recording("p4d-topo/topo.txt");
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(text.bytes().flat_map(|it| [it, 0])).collect();
    let noise: Vec<u8> =
        (0..200_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let answer = scratch.topo("utf16.txt", utf16);
    assert!(answer.code == Some(0) && answer.stdout.contains("8 GPUs"), "{answer:?}");
    for (name, bytes) in [
        ("empty.txt", Vec::new()),
        ("blank.txt", b" \n\t\n\r\n".to_vec()),
        ("noise.bin", noise),
        ("zeros.bin", vec![0; 1 << 20]),
        ("prose.txt", b"It was a dark and stormy night.\n".repeat(1000)),
        ("line.txt", vec![b'x'; 50 << 20]),
        ("empty.gz", b"\x1f\x8b".to_vec()),
        ("broken.zst", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff".to_vec()),
    ] {
        scratch.refused(name, bytes, "");
    }
    refused(&topo(&scratch.0, &[]), "topo-nothing", "folder");
    refused(&topo(&scratch.0.join("missing.txt"), &[]), "missing.txt", "");
    let secret = scratch.put("secret.txt", &text);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    let answer = topo(&secret, &[]);
    // Permissions do not bind root.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        refused(&answer, "secret.txt", "");
    }
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A text that mentions a machine describes none; one that says what its machine is does.
#[test]
fn a_machine_that_is_merely_mentioned() {
    let scratch = Scratch::new("mentioned");
    for options in [&[][..], &["--decide"], &["--lines"]] {
        let readme = topo(Path::new("README.md"), options);
        refused(&readme, "README.md: no topology in it", "add --instance p4d.24xlarge");
    }
    scratch.refused("notes.txt", "We bought p5.48xlarge capacity.\n", "It mentions p5.48xlarge");
    for text in [
        "node.kubernetes.io/instance-type=p5.48xlarge\n",
        "{\"instanceType\" : \"p5.48xlarge\"}\n",
        "p5.48xlarge\n",
    ] {
        let answer = scratch.topo("node.txt", text);
        assert!(answer.code == Some(0) && answer.stdout.starts_with("p5.48xlarge: 8 x H100"), "{answer:?}");
    }
}

/// What clouds ship: class codes without models and NVLink, completed by a flag; bus ids alone; graphs without wiring; P2P.
#[test]
fn descriptions_that_say_little() {
    let scratch = Scratch::new("little");
    let device = |bus: usize, class: &str| {
        format!(
            "<pci busid=\"{bus:04x}:00:00.0\" class=\"{class}\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
        )
    };
    let devices: String = (1..9).map(|it| device(it, "0x030200") + &device(it + 256, "0x020700")).collect();
    let path = scratch.put("classes.xml", xml(&devices));
    let alone = topo(&path, &[]);
    assert!(alone.stdout.contains("8 GPUs, NVLink not shown; 8 x InfiniBand"), "{alone:?}");
    assert!(
        !alone.stdout.contains("normal all_reduce") && !alone.stdout.contains("without NVLink"),
        "{alone:?}"
    );
    refused(&topo(&path, &["--decide"]), "classes.xml", "add --instance NAME or --gpu MODEL");
    let named = topo(&path, &["--instance", "Standard_ND96asr_v4"]);
    assert!(
        named.stdout.contains("8 x A100-SXM4-40GB, NVSwitch") && named.stdout.contains("normal all_reduce"),
        "{named:?}"
    );
    let model = topo(&path, &["--gpu", "A100", "--nodes", "2"]);
    assert!(
        model.stdout.contains("12 links each")
            && model.stdout.contains("NET/IB")
            && !model.stdout.contains("NET/Socket"),
        "{model:?}"
    );
    let numbers: Vec<String> = (0..9).map(|it| format!("<pci busid=\"0000:00:1{it}.0\"/>")).collect();
    let numbers = numbers.join("\n");
    let path = scratch.put("numbers.xml", xml(&numbers));
    refused(&topo(&path, &[]), "numbers.xml:1: the XML lists 9 PCI devices by bus id", "--instance");
    let named = topo(&path, &["--instance", "g5.48xlarge"]);
    assert!(named.code == Some(0) && named.stdout.contains("numbers.xml:1: the XML lists 9"), "{named:?}");
    let graph = topo(Path::new("crates/evidence/tests/data/topology/graphs.xml"), &[]);
    assert!(
        graph.stdout.contains("wiring not known") && graph.stdout.contains("what NCCL's search found"),
        "{graph:?}"
    );
    assert!(!graph.stdout.contains("socket 0") && !graph.stdout.contains("PHB"), "{graph:?}");
    scratch.refused("p2p.txt", " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "not how they are wired");
}

#[test]
fn a_pipe_and_packed_files_are_read() {
    let scratch = Scratch::new("packed");
    let path = scratch.put("topo.txt", recording("p4d-topo/topo.txt"));
    let plain = topo(&path, &[]).stdout;
    let same = |answer: &Answer, name: &str| {
        assert_eq!(answer.code, Some(0), "{name}: {answer:?}");
        let drawn = |text: &str| text.split_once("(nvidia-smi").map(|it| it.1.to_owned());
        assert_eq!(drawn(&answer.stdout), drawn(&plain), "{name}");
    };
    same(&shell("\"$plumb\" topo - < \"$1\"", [&path]), "standard input");
    same(&shell("cat \"$1\" | \"$plumb\" topo -", [&path]), "a pipe");
    same(&shell("gzip -c \"$1\" | \"$plumb\" topo -", [&path]), "a packed pipe");
    let zst = ruzstd::encoding::compress_to_vec(
        recording("p4d-topo/topo.txt").as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    same(&scratch.topo("topo.txt.zst", zst), "zst");
    let answer = shell("\"$plumb\" topo - </dev/null", [""]);
    refused(&answer, "standard input", "");
    refused(&bounded(["topo", "/dev/zero"]), "/dev/zero", "");
    refused(&bounded(["expect", "all_reduce", "--cluster", "/dev/zero"]), "/dev/zero", "longer than");
}

/// Names come from files: they must neither command the terminal nor become part of the picture's code.
#[test]
fn names_that_are_commands() {
    let scratch = Scratch::new("names");
    let table = |name: &str| {
        format!(
            "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tSYS\tPIX\t0-1\nGPU1\tSYS\t X \tSYS\t0-1\nNIC0\tPIX\tSYS\t X \n\n\
             NIC Legend:\n\n  NIC0: {name}\n"
        )
    };
    let escaped = |name: &str| name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let net = |name: &str| {
        let name = escaped(name);
        xml(&format!(
            "{}{}<nic><net name=\"{name}\" dev=\"0\" speed=\"400000\"/></nic>",
            gpu(1, ""),
            gpu(2, "")
        ))
    };
    let long = "long".repeat(25_000);
    let names = [
        "\u{202e}gnp\u{2066}.exe",
        "</svg><script>alert(1)</script>",
        "a\u{1b}]0;b\u{7}\u{9b}31mc",
        "\"/><image href=\"x\"",
        "&lt;&#27;",
        &long,
    ];
    for (number, name) in names.into_iter().enumerate() {
        for (kind, text) in [("txt", table(name)), ("xml", net(name))] {
            let path = scratch.put(&format!("{number}.{kind}"), text);
            let picture = scratch.0.join("out.svg");
            let _ = fs::remove_file(&picture);
            let options = ["--color", "never", "--svg", picture.to_str().unwrap()];
            let answer = topo(&path, &options);
            let control = |it: char| it.is_control() && it != '\n';
            assert!(
                !answer.stdout.contains(control) && !answer.stderr.contains(control),
                "{name:?}: {answer:?}"
            );
            if answer.code != Some(0) {
                refused(&answer, &format!("{number}.{kind}:"), "");
                continue;
            }
            assert!(answer.stdout.lines().all(|it| it.chars().count() <= 100), "{name:?}: {answer:?}");
            let svg = fs::read_to_string(&picture).unwrap();
            assert!(!svg.contains(control) && !svg.contains("<script") && !svg.contains("<image"), "{svg}");
            assert!(!format!("{svg}{}", answer.stdout).contains(['\u{202e}', '\u{2066}']), "{svg}");
            assert!(svg.matches("<svg").count() == 1 && svg.ends_with("</svg>\n"), "{svg}");
            assert!(svg.len() < 3 * long.len(), "{} bytes", svg.len());
            assert!(topo(&path, &["--format", "json"]).json().is_object());
        }
    }
}

#[test]
fn a_picture_that_cannot_be_written() {
    let nowhere = Scratch::new("picture").0.join("missing/out.svg");
    let answer = bounded(["topo", "--instance", "p5.48xlarge", "--svg", nowhere.to_str().unwrap()]);
    refused(&answer, "missing/out.svg", "");
    refused(&bounded(["topo", "--instance", "p5.48xlarge", "--svg", "/dev/full"]), "/dev/full", "space");
}

/// A log shows a ring, and only the channels that it names.
#[test]
fn channels_that_are_not_there() {
    let log = "cases/g6e-4x4-efa/rank0.log";
    refused(&bounded(["topo", log, "--channel", "999"]), log, "there is no channel 999: they go from 0 to 1");
    refused(&bounded(["topo", log, "--channel", "999", "--tree"]), log, "channel 999");
    refused(
        &bounded(["topo", "cases/p4d-topo/topo.txt", "--channel", "0"]),
        "p4d-topo/topo.txt",
        "communicator",
    );
    for option in ["--channel=0", "--tree"] {
        refused(&bounded(["topo", "--instance", "p5.48xlarge", option]), "--channel", "FILE");
    }
}

/// Arguments that no job has: usage, exit code 2, and the argument is named.
#[test]
fn arguments_that_cannot_be() {
    for (arguments, named) in [
        ("topo --pods=0x8", "at least one node, one pod and one GPU"),
        ("topo --pods=8x0", "at least one node, one pod and one GPU"),
        ("topo --pods=999999999x999999999", "999999998000000001 GPUs"),
        ("topo --pods=4294967295x4294967295", "GPUs"),
        ("topo --pods=4294967296x1", "--pods"),
        ("topo --pods=-1x8", "--pods"),
        ("topo --pods=8", "--pods"),
        ("topo --nodes=0", "--nodes"),
        ("topo --nodes=1000001", "--nodes"),
        ("topo --nodes=-1", "--nodes"),
        ("topo --nics-per-pod=4294967295", "4294967295 NICs"),
        ("topo --env=NCCL_P2P_LEVEL", "NAME=VALUE"),
        ("topo --env==SYS", "NAME=VALUE"),
        ("topo --nccl=1", "--nccl"),
        ("topo --nccl=", "--nccl"),
        ("topo --nccl=4294967296.1", "--nccl"),
        ("topo --channel=-1", "--channel"),
        ("topo --gpu=TPU", "TPU"),
        ("topo --collective=all_redude", "all_redude"),
        ("topo --format=yaml", "yaml"),
        ("expect all_reduce --pods=0x8", "at least one node, one pod and one GPU"),
        ("expect all_reduce --pods=8x0", "at least one node, one pod and one GPU"),
        ("expect all_reduce --pods=999999999x999999999", "do not fit"),
        ("expect all_reduce --nodes=0", "--nodes"),
        ("expect all_reduce --nccl=1", "--nccl"),
        ("expect all_reduce --env=NCCL_P2P_DISABLE", "NAME=VALUE"),
        ("expect all_reduce --size=-1", "--size"),
        ("expect all_reduce --size=0", "at least 1 byte"),
        ("expect all_reduce --size=8E", "--size"),
        ("expect all_reduce --size=1024T", "too large"),
        ("expect all_reduce --size=18446744073709551615T", "too large"),
        ("expect all_reduce --size=", "--size"),
        ("expect all_reduce --measured=nan", "--measured"),
        ("expect all_reduce --measured=inf", "--measured"),
        ("expect all_reduce --measured=-1", "--measured"),
        ("expect all_reduce --measured=1e400", "--measured"),
        ("expect all_reduce --measured=1e300", "--measured"),
        ("topo --gpu=\u{1b}[31mH100", "plumb knows no GPU `H100`"),
        ("topo --svg=/missing/\u{1b}[31m.svg", "/missing/[31m.svg"),
        ("expect all_reduce --measured=437Gbps", "--measured"),
        ("expect all_reduce --pods=1x1", "at least two ranks"),
        ("expect", "COLLECTIVE"),
    ] {
        let answer = bounded(arguments.split(' ').chain(["--instance", "p5.48xlarge"]));
        refused(&answer, named, "");
    }
}

/// Arguments at the edge of what can be have an answer of numbers that can be.
#[test]
fn arguments_at_the_edge() {
    for arguments in [
        "--nodes=1000000",
        "--size=1",
        "--size=16T --nodes=1000000",
        "--size=1023T --pods=8x1",
        "--nccl=2.3",
        "--nccl=99.9",
        "--nccl=65535.65535.65535",
        "--env=NCCL_P2P_LEVEL=no-level",
        "--env=NCCL_P2P_DISABLE=99999999999999999999",
    ] {
        for collective in ["all_reduce", "all_gather", "alltoall", "sendrecv", "gather"] {
            let start = ["expect", collective, "--instance", "p5.48xlarge", "--format", "json"];
            let answer = bounded(start.into_iter().chain(arguments.split(' ')));
            assert_eq!(answer.code, Some(0), "{arguments}: {answer:?}");
            let json = answer.json();
            let number = |key: &str| json[key].as_f64().unwrap_or_else(|| panic!("{key}: {json}"));
            let (low, expected, high) = (number("low_GBps"), number("expected_GBps"), number("high_GBps"));
            assert!(0.0 < low && low <= expected && expected <= high && high < 2000.0, "{arguments}: {json}");
            assert!(number("time_us") > 0.0, "{arguments}: {json}");
        }
    }
    let start = ["topo", "--instance", "p5.48xlarge", "--nodes", "1000000"];
    let answer = bounded(start.into_iter().chain(["--pods", "8x1", "--svg", "/dev/null"]));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for (measured, verdict) in [("0", "low"), ("1e-300", "low"), ("1e6", "too_good")] {
        let start =
            ["expect", "all_reduce", "--instance", "p5.48xlarge", "--format", "json", "--measured", measured];
        let answer = bounded(start);
        assert_eq!((answer.code, answer.json()["verdict"].as_str()), (Some(1), Some(verdict)), "{answer:?}");
    }
}

#[test]
fn clusters_that_cannot_be() {
    let scratch = Scratch::new("clusters");
    let h100 = "[cluster]\ngpu = \"H100\"\ngpus_per_node = 8\nnodes = 2\n";
    let inter = |nics: &str, gbps: &str| {
        format!("{h100}inter = {{ kind = \"efa\", nics = {nics}, gbps = {gbps} }}\n")
    };
    let gpus = |gpu: &str, count: &str| format!("[cluster]\ngpu = \"{gpu}\"\ngpus_per_node = {count}\n");
    let p5 = |more: &str| format!("[cluster]\ninstance = \"p5.48xlarge\"\n{more}\n");
    for (text, said) in [
        (String::new(), "cluster"),
        ("hello world".to_owned(), "line 1"),
        ("[cluster]\n".to_owned(), "`instance`"),
        ("[job]\ninstance = \"p5.48xlarge\"\n".to_owned(), "`cluster`"),
        (p5("colour = \"red\""), "line 3"),
        (p5("nodes = -1"), "line 3"),
        (p5("nodes = 0"), "node"),
        (p5("nodes = 1.5"), "line 3"),
        (p5("nodes = 4294967295"), ""),
        (p5("nodes = 99999999999999999999"), "line 3"),
        (p5("pods = \"0x8\""), "pod"),
        (p5("pods = \"9x1\""), "GPUs"),
        (p5("pods = \"eight\""), "`pods`"),
        (p5("pods = 8"), "line 3"),
        (p5("gpu = \"H100\""), "both"),
        (p5("gpus_per_node = 8"), "`gpus_per_node`"),
        ("[cluster]\ninstance = \"p5.48xlarg\"\n".to_owned(), "did you mean p5.48xlarge"),
        (gpus("TPU", "8"), "`TPU`"),
        (gpus("H100", "0"), "`gpus_per_node`"),
        (gpus("H100", "-1"), "line 3"),
        (gpus("H100", "4294967295"), "4294967295 GPUs"),
        (gpus("V100", "4294967295"), "4294967295 GPUs"),
        (gpus("H100", "8") + "intra = \"string\"", "string"),
        (gpus("H100", "8") + "intra = \"nvlink9\"", "NVLink 4"),
        (inter("4294967295", "400"), "4294967295 NICs"),
        (inter("4294967296", "400"), "line 5"),
        (inter("-1", "400"), "line 5"),
        (inter("8", "nan"), "not a NIC rate"),
        (inter("8", "inf"), "not a NIC rate"),
        (inter("8", "-inf"), "not a NIC rate"),
        (inter("8", "-1"), "not a NIC rate"),
        (inter("8", "0"), "not a NIC rate"),
        (inter("8", "1e308"), "1e308 is not a NIC rate"),
        (inter("8", "1e-308"), "not a NIC rate"),
        (inter("8", "\"400\""), "line 5"),
        ("[".repeat(100_000), "line 1"),
        (format!("a = {}", "[".repeat(500_000)), "line 1"),
        ("x".repeat(2 << 20), "longer than"),
    ] {
        let path = scratch.put("cluster.toml", &text);
        let path = path.to_str().unwrap();
        for command in [&["expect", "all_reduce", "--cluster", path][..], &["topo", "--cluster", path]] {
            let answer = bounded(command);
            assert!(answer.stderr.len() < 1000 || text.len() > 1000, "{text}: {answer:?}");
            refused(&answer, "cluster.toml", said);
        }
    }
    // No NIC: nothing joins the nodes.
    let path = scratch.put("cluster.toml", inter("0", "400"));
    refused(
        &bounded(["expect", "all_reduce", "--cluster", path.to_str().unwrap()]),
        "cluster.toml",
        "network",
    );
    for bytes in [b"\xff\xfe[\0".to_vec(), vec![0; 4096], b"[cluster]\ninstance = \"\xff\"".to_vec()] {
        let path = scratch.put("cluster.toml", bytes);
        refused(&bounded(["expect", "all_reduce", "--cluster", path.to_str().unwrap()]), "cluster.toml", "");
    }
    for path in [scratch.0.clone(), scratch.0.join("missing.toml")] {
        let path = path.to_str().unwrap();
        refused(&bounded(["expect", "all_reduce", "--cluster", path]), path, "");
    }
}

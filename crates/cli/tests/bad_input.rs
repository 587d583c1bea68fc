//! Inputs that no one would give on purpose, and that everyone gives once.
//!
//! What could be read is reported, what could not is named, nothing panics, and nothing that was not understood
//! is called ok.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use common::{Answer, command, finish, folder, plumb, root};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use testbed::{LIMIT, Running};

/// A log with nothing wrong.
fn healthy() -> Vec<u8> {
    fs::read(root().join("cases/healthy-2-nodes/job.log")).expect("the recording is there")
}

/// A log with one error.
fn failed() -> Vec<u8> {
    fs::read(root().join("cases/duplicate-gpu/job.log")).expect("the recording is there")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("a file can be written");
    path
}

fn doctor(path: &Path) -> Answer {
    plumb([Path::new("doctor"), path])
}

fn json(paths: &[&Path]) -> (Answer, Value) {
    let options = ["doctor", "--format", "json"].map(Path::new);
    let answer = plumb(options.iter().chain(paths));
    let json = answer.json();
    (answer, json)
}

/// Nothing could be read or understood: exit code 2, the file is named, and no `ok`.
#[track_caller]
fn check_nothing(path: &Path, answer: &Answer) {
    let name = path.file_name().and_then(|it| it.to_str()).expect("a name");
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains(name), "the message does not name {name}: {}", answer.stderr);
    assert!(!answer.stdout.starts_with("ok"), "{}", answer.stdout);
    assert!(!answer.stdout.lines().any(|it| it.trim_start().starts_with("ok ")), "{}", answer.stdout);
}

/// The error of [`failed`] is reported.
#[track_caller]
fn check_failed(answer: &Answer) {
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stdout.contains("error[duplicate-gpu]"), "{answer:?}");
}

#[test]
fn an_empty_file() {
    let path = write(&folder("empty"), "empty.log", b"");
    check_nothing(&path, &doctor(&path));
}

#[test]
fn blank_lines_alone() {
    let path = write(&folder("blank"), "blank.log", b"\n \n\t\n\r\n\n");
    check_nothing(&path, &doctor(&path));
}

#[test]
fn bytes_that_are_no_text() {
    let folder = folder("binary");
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0\0\0\x01\0\x08\x06\0\0\0".to_vec();
    png.extend((0..200_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]));
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0\x01\0\0\0".to_vec();
    elf.extend_from_slice(&png);
    for (name, bytes) in [
        ("nuls.log", vec![0; 1 << 20]),
        ("latin1.log", b"caf\xe9 \xff\xfe\xfd\n\xc3\x28\n\xf0\x28\x8c\x28\n".to_vec()),
        ("picture.png", png),
        ("program", elf),
    ] {
        let path = write(&folder, name, &bytes);
        check_nothing(&path, &doctor(&path));
    }
}

/// UTF-16 as PowerShell writes it, and a log that was truncated while its program kept writing at the old position.
#[test]
fn text_of_another_form_is_read() {
    let folder = folder("other-text");
    let utf16: Vec<u8> = failed().into_iter().flat_map(|it| [it, 0]).collect();
    for (name, bytes) in [
        ("marked.log", [&b"\xff\xfe"[..], &utf16].concat()),
        ("unmarked.log", utf16),
        ("rotated.log", [&vec![0; 70_000][..], &failed()].concat()),
    ] {
        check_failed(&doctor(&write(&folder, name, &bytes)));
    }
}

#[test]
fn prose_is_not_ok() {
    let path =
        write(&folder("prose"), "prose.txt", b"It was a dark and stormy night.\n".repeat(1000).as_slice());
    check_nothing(&path, &doctor(&path));
}

/// A core dump or a library holds texts of messages that nobody printed.
#[test]
fn a_program_beside_a_good_log_is_no_evidence() {
    let folder = folder("program-beside");
    write(&folder, "job.log", &healthy());
    fs::copy(env!("CARGO_BIN_EXE_plumb"), folder.join("core.4711")).unwrap();
    let (answer, json) = json(&[&folder]);
    assert_eq!((answer.code, &json["findings"]), (Some(0), &Value::Array(Vec::new())), "{}", answer.stderr);
}

/// A large file is read in several parts at a time: all of them are parts of a core dump.
#[test]
fn a_large_core_dump_is_no_evidence() {
    let folder = folder("core-dump");
    write(&folder, "job.log", &healthy());
    let mut core = File::create(folder.join("core.4711")).unwrap();
    core.write_all(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0>\0\x01\0\0\0").unwrap();
    // Holes, as core dumps have them, and what the process was about to print.
    core.seek(SeekFrom::Start(45 << 20)).unwrap();
    core.write_all(b"\n").unwrap();
    core.write_all(&failed()).unwrap();
    core.set_len(48 << 20).unwrap();
    drop(core);
    let (answer, json) = json(&[&folder]);
    assert_eq!((answer.code, &json["findings"]), (Some(0), &Value::Array(Vec::new())), "{}", answer.stderr);
    assert!(answer.stderr.contains("core.4711"), "{}", answer.stderr);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn noise_beside_a_log_changes_nothing() {
    let folder = folder("noise-beside");
    let log = write(&folder, "job.log", &failed());
    let (_, alone) = json(&[&log]);
    write(
        &folder,
        "noise.bin",
        &(0..100_000_u32).map(|it| (it.wrapping_mul(40_503) >> 7).to_le_bytes()[0]).collect::<Vec<_>>(),
    );
    let (answer, beside) = json(&[&folder]);
    assert_eq!(answer.code, Some(1));
    assert_eq!(beside["findings"], alone["findings"]);
    assert_eq!(beside["inputs"].as_array().unwrap().len(), 2);
    assert_eq!(beside["inputs"][1]["understood"], 0);
}

/// The most memory a process has used so far, in KiB.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Runs to the end, the limit or 1 GiB; returns also the most memory it used, in KiB.
#[track_caller]
fn measured(mut command: Command) -> (Answer, u64) {
    let running = Running::start(&mut command);
    let mut peak = 0;
    running.until("it ends", || {
        peak = peak_memory(running.pid()).unwrap_or(0).max(peak);
        assert!(peak <= 1 << 20, "{command:?} uses {peak} KiB");
        running.has_ended()
    });
    let output = running.finish(LIMIT);
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let answer =
        Answer { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert!(!answer.stderr.contains("panicked"), "{}", answer.stderr);
    (answer, peak)
}

#[test]
fn a_line_of_100_megabytes() {
    let folder = folder("long-line");
    let path = folder.join("long.log");
    let mut file = File::create(&path).unwrap();
    let part = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        file.write_all(&part).unwrap();
    }
    drop(file);
    let (answer, peak) = measured(command([Path::new("doctor"), &path]));
    check_nothing(&path, &answer);
    assert!((1..200 * 1024).contains(&peak), "{peak} KiB");

    // And what stands around such a line is read.
    let log = failed();
    let middle = log.len() / 2;
    let cut = middle + log[middle..].iter().position(|it| *it == b'\n').unwrap() + 1;
    let mut file = File::create(&path).unwrap();
    file.write_all(&log[..cut]).unwrap();
    for _ in 0..100 {
        file.write_all(&part).unwrap();
    }
    file.write_all(b"\n").unwrap();
    file.write_all(&log[cut..]).unwrap();
    drop(file);
    let (answer, peak) = measured(command([Path::new("doctor"), &path]));
    check_failed(&answer);
    assert!((1..200 * 1024).contains(&peak), "{peak} KiB");
    fs::remove_file(&path).unwrap();
}

/// One damaged line must not allocate memory in proportion to a number on it.
#[test]
fn numbers_that_cannot_be() {
    let folder = folder("numbers");
    let head = "n0:1:1 [0] NCCL INFO";
    let comm = "cudaDev 0 nvmlDev 0 busId 60 commId 0x2 - Init START";
    for (name, text) in [
        ("ranks.log", format!("{head} ncclCommInitRank comm 0x1 rank 0 nranks 4294967295 {comm}\n")),
        ("rank.log", format!("{head} ncclCommInitRank comm 0x1 rank 4294967295 nranks 2 {comm}\n{head} Channel 00/0 : 3[0] -> 0[0] [send] via NET/Socket/0\n")),
        ("nodes.log", format!("{head} comm 0x1 rank 0 nRanks 4 nNodes 4294967295 localRanks 4294967295 localRank 0 MNNVL 0\n{head} Using network Socket\n")),
        ("channel.log", format!("{head} Channel 4294967295/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n")),
        ("store.log", "[rank0]: torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 1/4294967295 clients joined.\n".to_owned()),
        ("barrier.log", "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank 0, for key: store_based_barrier_key:1 (world_size=4294967295, num_workers_joined=1, timeout=0:10:00 error=wait timeout)\n".to_owned()),
        // Later channels first.
        ("rings.log", format!("{head} Channel 03/04 : 0 1\n{head} Channel 00/04 : 0 1\n{head} ncclCommInitRank comm 0x1 rank 0 nranks 2 {comm}\n")),
        // Everyone is their own parent.
        ("trees.log", format!("{head} Trees [0] 0/0/0->0->0 [1] 1/0/1->1->1\n{head} ncclCommInitRank comm 0x1 rank 0 nranks 2 {comm}\n")),
        (
            "watchdog.log",
            "[rank1]:[E1129 11:56:57.6 x] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18446744073709551615, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=18446744073709551615) ran for 18446744073709551615 milliseconds before timing out.\n\
             [rank1]:[E1129 11:56:57.6 x] failure detected by watchdog at work sequence id: 18446744073709551615 PG status: last enqueued work: 18446744073709551615, last completed work: 18446744073709551614\n"
                .to_owned(),
        ),
    ] {
        let path = write(&folder, name, text.as_bytes());
        let (answer, peak) = measured(command([Path::new("doctor"), &path]));
        assert!(answer.code.is_some_and(|it| it <= 2), "{name}: {answer:?}");
        assert!(peak < 200 * 1024, "{name}: {peak} KiB");
    }
}

/// A whole log on one line, as in a JSON of a log collector, must not take longer than its length explains.
#[test]
fn one_line_that_says_the_same_ten_thousand_times() {
    let folder = folder("repeated");
    for (name, text) in [
        ("assignments.log", "NCCL_DEBUG="),
        ("peers.log", "Connection closed by remote peer "),
        ("duplicate.log", "Duplicate GPU detected : rank "),
        ("watchdog.log", "Watchdog caught collective operation timeout: WorkNCCL("),
        ("brackets.log", "[rank"),
        ("anchors.log", "NCCL INFO "),
    ] {
        let line = text.repeat(60_000 / text.len());
        let path = write(&folder, name, format!("{line}\n").repeat(20).as_bytes());
        let (answer, _) = measured(command([Path::new("doctor"), &path]));
        assert!(answer.code.is_some(), "{name}: {answer:?}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn half_of_a_gzip() {
    // Enough that the first half holds the error.
    let mut log = failed();
    for line in 0..20_000_u32 {
        writeln!(log, "step {line} loss {}", line.wrapping_mul(2_654_435_761)).unwrap();
    }
    let whole = gzip(&log);
    let path = write(&folder("half-gzip"), "half.log.gz", &whole[..whole.len() / 2]);
    let answer = doctor(&path);
    check_failed(&answer);
    assert!(answer.stderr.contains("half.log.gz"), "{}", answer.stderr);
    let (_, json) = json(&[&path]);
    assert!(json["inputs"][0]["problem"].is_string(), "{}", json["inputs"]);
    // All that could be read was read.
    assert!(json["inputs"][0]["lines"].as_u64().unwrap() > 5_000, "{}", json["inputs"]);
}

#[test]
fn half_of_a_zstd() {
    let mut log = failed();
    for line in 0..200_000_u32 {
        writeln!(log, "step {line} loss {}", line.wrapping_mul(2_654_435_761)).unwrap();
    }
    let whole = zstd(&log);
    let path = write(&folder("half-zstd"), "half.log.zst", &whole[..whole.len() / 2]);
    let answer = doctor(&path);
    check_failed(&answer);
    assert!(answer.stderr.contains("half.log.zst"), "{}", answer.stderr);
}

#[test]
fn broken_and_empty_archives() {
    let folder = folder("broken-archives");
    let mut zst = zstd(&healthy());
    zst[4..40].fill(0xff);
    for (name, bytes) in [
        ("broken.zst", zst),
        ("magic-only.zst", b"\x28\xb5\x2f\xfd".to_vec()),
        ("nothing.gz", gzip(b"")),
        ("nothing.zst", zstd(b"")),
        ("magic-only.gz", b"\x1f\x8b".to_vec()),
        ("broken.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage that is no deflate stream".to_vec()),
    ] {
        let path = write(&folder, name, &bytes);
        check_nothing(&path, &doctor(&path));
    }
}

#[test]
fn garbage_after_a_gzip() {
    let mut bytes = gzip(&failed());
    bytes.extend_from_slice(b"garbage");
    let path = write(&folder("gzip-garbage"), "tail.log.gz", &bytes);
    let answer = doctor(&path);
    check_failed(&answer);
    assert!(answer.stderr.contains("tail.log.gz"), "{}", answer.stderr);
}

#[test]
fn paths_that_lead_nowhere() {
    let folder = folder("nowhere");
    let file = write(&folder, "job.log", &healthy());
    symlink(folder.join("gone"), folder.join("dangling.log")).unwrap();
    symlink(folder.join("b.log"), folder.join("a.log")).unwrap();
    symlink(folder.join("a.log"), folder.join("b.log")).unwrap();
    for path in
        [folder.join("missing.log"), file.join("inside"), folder.join("dangling.log"), folder.join("a.log")]
    {
        check_nothing(&path, &doctor(&path));
    }
}

#[test]
fn what_may_not_be_read() {
    let folder = folder("forbidden");
    let path = write(&folder, "secret.log", &healthy());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    // Permissions do not bind root: there it is an ordinary log.
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let answer = doctor(&path);
    if root {
        assert_eq!(answer.code, Some(0), "{answer:?}");
    } else {
        check_nothing(&path, &answer);
    }
}

/// What cannot be read is named, and does not stop what can.
#[test]
fn a_missing_file_beside_a_good_one() {
    let folder = folder("missing-beside");
    let log = write(&folder, "job.log", &failed());
    let (answer, json) = json(&[&folder.join("missing.log"), &log]);
    assert!(answer.stderr.contains("missing.log"), "{}", answer.stderr);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    // Line numbers of the good one are not shifted by the missing one.
    let shown = &json["findings"][0]["evidence"][0];
    let line = usize::try_from(shown["line"].as_u64().unwrap()).unwrap();
    let text = String::from_utf8(failed()).unwrap();
    assert_eq!(shown["text"].as_str().unwrap(), text.lines().nth(line - 1).unwrap());
}

#[test]
fn a_fifo_that_closes_in_the_middle_of_a_line() {
    let folder = folder("fifo");
    let path = folder.join("pipe");
    assert!(testbed::output(testbed::program("mkfifo").arg(&path)).status.success());
    let mut log = failed();
    log.truncate(log.len() - 7);
    let writer = {
        let path = path.clone();
        thread::spawn(move || File::options().write(true).open(path)?.write_all(&log))
    };
    let answer = doctor(&path);
    writer.join().unwrap().unwrap();
    check_failed(&answer);
}

/// Runs a shell script in which `$plumb` is the program and `$1` a path.
fn shell(script: &str, path: &Path) -> Answer {
    let mut command = testbed::program("/bin/sh");
    command.args(["-c", script, "sh"]).arg(path).current_dir(root()).env_clear();
    command.env("plumb", env!("CARGO_BIN_EXE_plumb")).env("PATH", "/usr/bin:/bin");
    finish(command)
}

#[test]
fn standard_input_that_is_closed_or_empty() {
    for script in [
        "\"$plumb\" doctor - <&-",
        "\"$plumb\" doctor <&-",
        "\"$plumb\" doctor </dev/null",
        ": | \"$plumb\" doctor",
    ] {
        let answer = shell(script, Path::new("-"));
        check_nothing(Path::new("standard input"), &answer);
    }
}

#[test]
fn standard_output_that_closes() {
    let path = write(&folder("closed-output"), "job.log", &healthy());
    // `head` ends after one line; the exit code is that of plumb.
    let script = "{ \"$plumb\" doctor --matrix \"$1\"; echo $? >&2; } | head -n 1";
    let answer = shell(script, &path);
    assert_eq!((answer.stderr.as_str(), answer.stdout.lines().count()), ("0\n", 1), "{answer:?}");
    // The reader is gone before the first byte, and the answer is larger than a pipe.
    for command in [
        "doctor --format json --matrix cases/healthy-40-nodes/job.log",
        "rules --format json",
        "man",
        "completions bash",
    ] {
        let script = format!("{{ sleep 0.3; \"$plumb\" {command}; echo $? >&2; }} | true");
        let answer = shell(&script, &path);
        assert_eq!(answer.stderr, "0\n", "{command}");
    }
    let answer = shell("\"$plumb\" doctor \"$1\" >&-", &path);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
}

/// A full disk is an error, and no answer is lost without a word.
#[test]
fn a_full_disk() {
    let path = write(&folder("full-disk"), "job.log", &healthy());
    let answer = shell("\"$plumb\" doctor \"$1\" >/dev/full", &path);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("space"), "{answer:?}");
    let answer = shell("\"$plumb\" doctor \"$1\" --format json --output /dev/full", &path);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("/dev/full"), "the message does not name the file: {}", answer.stderr);
}

#[test]
fn outputs_that_cannot_be() {
    let folder = folder("outputs");
    let log = write(&folder, "job.log", &healthy());
    let log = log.to_str().unwrap();
    let missing = folder.join("missing/answer.json");
    let answer = plumb(["doctor", log, "--format", "json", "--output", missing.to_str().unwrap()]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("missing/answer.json"), "{}", answer.stderr);

    let answer = plumb(["doctor", log, "--format", "json", "--output", "a", "--output", "b"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{answer:?}");
    assert!(answer.stderr.contains("--output"), "{}", answer.stderr);

    let answer = plumb(["doctor", log, "--format", "json", "--format", "text"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{answer:?}");
    assert!(answer.stderr.contains("--format"), "{}", answer.stderr);

    // And what can be: one to a file, one to standard output.
    let file = folder.join("answer.json");
    let answer = plumb(["doctor", log, "-f", "json", "-o", file.to_str().unwrap(), "-f", "text"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stdout.contains("NCCL 2.28.9"), "{}", answer.stdout);
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(written["schema"], "plumb.doctor/2");
}

#[test]
fn unknown_arguments() {
    for arguments in
        [&["doctor", "--format", "yaml"][..], &["doctor", "--nothing"], &["nothing"], &["explain"]]
    {
        let answer = plumb(arguments);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{arguments:?}: {answer:?}");
    }
}

/// The answer without what a name or a line end may change.
fn answer_of(path: &Path) -> Value {
    let (_, mut json) = json(&[path]);
    for input in json["inputs"].as_array_mut().expect("inputs") {
        input["file"] = Value::Null;
    }
    let text = json.to_string().replace(path.to_str().expect("UTF-8"), "FILE");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn line_ends_of_other_systems() {
    let folder = folder("line-ends");
    for (name, log) in [("healthy", healthy()), ("failed", failed())] {
        let plain = write(&folder, name, &log);
        let crlf = String::from_utf8(log.clone()).unwrap().replace('\n', "\r\n");
        let crlf = write(&folder, &format!("{name}-crlf"), crlf.as_bytes());
        assert_eq!(answer_of(&plain), answer_of(&crlf));
        let unended = write(&folder, &format!("{name}-unended"), log.trim_ascii_end());
        assert_eq!(answer_of(&plain), answer_of(&unended));
    }
}

#[test]
fn a_byte_order_mark() {
    let folder = folder("bom");
    let marked = |bytes: &[u8]| [&b"\xef\xbb\xbf"[..], bytes].concat();
    // The first line counts: of a log, of a manifest, of a table.
    let log = b"node-0:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n".to_vec();
    let pod = fs::read(root().join("cases/p4d-pod-spec/pod.yaml")).unwrap();
    let topo = fs::read(root().join("cases/p5-topo/topo.txt")).unwrap();
    for (name, bytes) in [("failed", failed()), ("line", log), ("pod", pod), ("topo", topo)] {
        let plain = answer_of(&write(&folder, name, &bytes));
        let with = answer_of(&write(&folder, &format!("{name}-bom"), &marked(&bytes)));
        assert_eq!(
            plain["findings"].as_array().unwrap().len(),
            with["findings"].as_array().unwrap().len(),
            "{name}"
        );
        for key in ["verdict", "checks"] {
            assert_eq!(
                plain[key].to_string(),
                with[key].to_string().replace('\u{feff}', ""),
                "{name}: {key}"
            );
        }
        assert_eq!(plain["inputs"], with["inputs"], "{name}");
        assert_eq!(plain["facts"]["job"], with["facts"]["job"], "{name}");
    }
}

#[test]
fn folders_that_lead_in_a_circle() {
    let folder = folder("circle");
    fs::create_dir(folder.join("deep")).unwrap();
    write(&folder.join("deep"), "job.log", &failed());
    symlink(&folder, folder.join("deep/again")).unwrap();
    symlink("self.log", folder.join("self.log")).unwrap();
    let (answer, json) = json(&[&folder]);
    assert_eq!(answer.code, Some(1));
    assert_eq!(json["inputs"].as_array().unwrap().len(), 1, "{}", json["inputs"]);
    assert!(answer.stderr.contains("self.log"), "{}", answer.stderr);
}

/// A folder holds more than logs: each log counts once, and what is not a file is not waited for.
#[test]
fn a_folder_with_links_pipes_and_reports() {
    let folder = folder("links");
    let log = write(&folder, "job.log", &failed());
    let alone = answer_of(&log);
    fs::hard_link(&log, folder.join("hard.log")).unwrap();
    symlink("job.log", folder.join("soft.log")).unwrap();
    symlink("gone", folder.join("dangling.log")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        folder.join("pipe"),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    for format in ["text", "json", "sarif", "junit"] {
        let report =
            finish(command(["doctor", "--format", format].map(Path::new).into_iter().chain([&*log])));
        write(&folder, &format!("report.{format}"), report.stdout.as_bytes());
    }
    let (answer, json) = json(&[&folder]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(json["findings"].as_array().unwrap().len(), alone["findings"].as_array().unwrap().len());
    for name in ["dangling.log", "pipe", "report.text", "report.json", "report.sarif", "report.junit"] {
        let line = answer.stderr.lines().find(|it| it.contains(name)).expect(name);
        assert!(line.starts_with("note: ") && line.ends_with("left out"), "{line}");
    }
    // The first name of the log, and the reports.
    assert_eq!(json["inputs"].as_array().unwrap().len(), 5, "{}", json["inputs"]);
}

#[test]
fn a_missing_file_is_reported_once_and_alone() {
    let answer = doctor(&folder("once").join("missing.log"));
    assert_eq!((answer.code, &*answer.stdout), (Some(2), ""));
    assert_eq!(answer.stderr.matches("missing.log").count(), 1, "{}", answer.stderr);
}

#[test]
fn number_signs_are_not_a_table() {
    let path = write(&folder("number-signs"), "notes.txt", b"#\n# a script\n#\n");
    check_nothing(&path, &doctor(&path));
}

#[test]
fn an_empty_folder() {
    let folder = folder("empty-folder");
    check_nothing(&folder, &doctor(&folder));
}

#[test]
fn two_thousand_files() {
    let folder = folder("many");
    let ranks = 2000;
    for rank in 0..ranks {
        let place = folder.join(format!("{:02}/{:02}", rank / 100, rank % 10));
        fs::create_dir_all(&place).unwrap();
        let mut text = String::new();
        let head = format!("node-{rank}:{rank}:7 [0] NCCL INFO");
        let comm = format!(
            "comm 0x5{rank:04x} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 60 commId 0xabc"
        );
        let _ = writeln!(text, "{head} NCCL version 2.28.9+cuda13.0");
        let _ = writeln!(text, "{head} Using network Socket");
        let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} - Init START");
        let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} - Init COMPLETE");
        fs::write(place.join(format!("rank-{rank}.log")), text).unwrap();
    }
    let (answer, json) = json(&[&folder]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let inputs = json["inputs"].as_array().unwrap();
    assert_eq!((inputs.len(), &json["facts"]["job"]["ranks_seen"]), (ranks, &Value::from(ranks)));
    let names: Vec<&str> = inputs.iter().filter_map(|it| it["file"].as_str()).collect();
    assert!(names.is_sorted(), "files are read in the order of their names");
    let again = self::json(&[&folder]).0.stdout;
    assert_eq!(answer.stdout, again, "the same input gives the same output");
}

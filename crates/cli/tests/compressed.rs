//! A compressed, piped or large recording gives the same answer as the plain file, but for its name.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{command, files, finish, folder, root, tar};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// A large log, one with an error, a table, and a document that is known by its first lines.
const RECORDINGS: [&str; 5] = ["healthy-40-nodes", "rank-dies", "g6e-topo", "p4d-pod-spec", "trainer-log"];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The answer, with the name of the one input replaced.
#[track_caller]
fn answer(command: Command) -> Value {
    let answer = finish(command);
    assert_eq!(answer.stderr, "");
    let mut json = answer.json();
    let name = json["inputs"][0]["file"].as_str().expect("an input").to_owned();
    rename(&mut json, &name);
    json["exit code"] = Value::from(answer.code);
    json
}

fn rename(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if text == name => "FILE".clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(|it| rename(it, name)),
        Value::Object(map) => map.values_mut().for_each(|it| rename(it, name)),
        _ => {}
    }
}

fn doctor(path: &Path) -> Command {
    command(["doctor", "--format", "json", "--matrix"].map(Path::new).into_iter().chain([path]))
}

/// The only file of a recording, and what is in it.
fn recording(name: &str) -> (PathBuf, Vec<u8>) {
    let files = files(name);
    let [file] = files.as_slice() else { panic!("{name} has several files") };
    let path = root().join(file);
    let bytes = fs::read(&path).expect("the recording can be read");
    (path, bytes)
}

/// A place within a line, so that parts do not end where lines do.
fn parts(bytes: &[u8]) -> [&[u8]; 3] {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    [first, second, third]
}

#[test]
fn compressed_is_the_same() {
    let folder = folder("compressed");
    for name in RECORDINGS {
        let (path, bytes) = recording(name);
        let want = answer(doctor(&path));
        let in_parts = |compress: fn(&[u8]) -> Vec<u8>| parts(&bytes).map(compress).concat();
        for (ending, compressed) in [
            ("gz", gzip(&bytes)),
            ("members.gz", in_parts(gzip)),
            ("zst", zstd(&bytes)),
            ("frames.zst", in_parts(zstd)),
            ("tar", tar("logs/0.go", &bytes)),
            ("tgz", gzip(&tar("logs/0.go", &bytes))),
            // The content tells what it is, not the name.
            ("log", in_parts(gzip)),
        ] {
            let path = folder.join(format!("{name}.{ending}"));
            fs::write(&path, compressed).unwrap();
            assert_eq!(answer(doctor(&path)), want, "{}", path.display());
        }
    }
}

#[test]
fn xz_is_read() {
    // node-a:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000
    let xz = b"\xfd\x37\x7a\x58\x5a\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\xe0\x00\x68\x00\x66\x5d\x00\x37\x1b\xc8\xb0\x53\xd6\xbd\xd4\xbb\xfc\x8d\xe9\x2c\x1c\xdf\xae\x45\xb5\x8b\x62\x36\xf0\xf5\xab\x70\x9b\x21\x3e\x1f\x8e\x9f\x91\x2c\x0f\x8b\x6f\x2b\x44\xcc\xcb\xdb\x50\x92\x52\x6b\x7b\x8d\x3a\x92\x93\x75\xc2\x3b\x7e\xfc\x66\x1f\x77\xb0\xd8\x4f\x1a\x2d\xde\x6b\xd0\xd8\x7b\x06\x5d\xbc\xf5\x3d\x6c\xd3\x60\x64\xb2\xe9\x3d\x3c\xd6\xdd\xd4\x5f\xbc\x47\xfb\x66\x7d\x9f\x64\x34\x2c\xd4\xd7\xf4\xc8\xce\x6b\x80\x00\x00\x00\x00\x23\xcc\x74\x72\x00\x01\x7e\x69\xaf\x38\x54\xa5\x90\x42\x99\x0d\x01\x00\x00\x00\x00\x01\x59\x5a";
    let path = folder("xz").join("log.xz");
    fs::write(&path, xz).unwrap();
    assert_eq!(answer(doctor(&path))["findings"][0]["id"], "duplicate-gpu");
}

#[test]
fn piped_is_the_same() {
    let folder = folder("piped");
    for name in RECORDINGS {
        let (path, bytes) = recording(name);
        let want = answer(doctor(&path));
        for (ending, piped) in [("log", bytes.clone()), ("gz", gzip(&bytes)), ("zst", zstd(&bytes))] {
            let path = folder.join(format!("{name}.{ending}"));
            fs::write(&path, piped).unwrap();
            let mut named = doctor(Path::new("-"));
            named.stdin(File::open(&path).unwrap());
            assert_eq!(answer(named), want, "{}", path.display());
            // Without a path, what is piped in is read.
            let mut unnamed = command(["doctor", "--format", "json", "--matrix"]);
            unnamed.stdin(File::open(&path).unwrap());
            assert_eq!(answer(unnamed), want, "{}", path.display());
        }
    }
}

/// A large file is read in several parts at a time, a pipe in one.
#[test]
fn a_large_file_is_the_same_piped() {
    let folder = folder("large");
    let filler = format!("{}\n", "x".repeat(60_000)).repeat(100);
    for name in ["rank-dies", "split-communicators", "healthy-8-nodes"] {
        let (_, bytes) = recording(name);
        let lines: Vec<&[u8]> = bytes.split_inclusive(|it| *it == b'\n').collect();
        // What matters stands everywhere in it.
        let parts = lines.chunks(lines.len().div_ceil(8)).map(<[&[u8]]>::concat);
        let large = parts.flat_map(|it| [it, filler.clone().into_bytes()]).collect::<Vec<_>>().concat();
        assert!(large.len() > 40_000_000);
        let path = folder.join(format!("{name}.log"));
        fs::write(&path, large).unwrap();
        let mut piped = doctor(Path::new("-"));
        piped.stdin(File::open(&path).unwrap());
        assert_eq!(answer(doctor(&path)), answer(piped), "{name}");
        fs::remove_file(&path).unwrap();
    }
}

/// `cat job.log | plumb doctor`: a pipe hands out little at a time.
#[test]
fn a_slow_pipe_is_the_same() {
    let (path, bytes) = recording("p4d-pod-spec");
    let want = answer(doctor(&path));
    let mut slow = doctor(Path::new("-"));
    let (read, mut write) = std::io::pipe().unwrap();
    slow.stdin(read);
    let writer = std::thread::spawn(move || {
        for part in bytes.chunks(700) {
            write.write_all(part)?;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::io::Result::Ok(())
    });
    assert_eq!(answer(slow), want);
    writer.join().unwrap().unwrap();
}

/// `data/frames.zst` is the log of `duplicate-gpu`, made with zstd 1.5.4: a frame with `-19 --ultra`, a
/// skippable frame as pzstd and the seekable format write them, and a frame with a checksum.
#[test]
fn frames_of_the_reference_encoder() {
    let (path, _) = recording("duplicate-gpu");
    let want = answer(doctor(&path));
    let frames = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/frames.zst");
    assert_eq!(answer(doctor(&frames)), want);
}

/// pzstd begins every file with a skippable frame.
#[test]
fn a_skippable_frame_at_the_beginning() {
    let (path, bytes) = recording("duplicate-gpu");
    let want = answer(doctor(&path));
    let skipped = b"\x50\x2a\x4d\x18\x04\0\0\0size";
    let file = folder("skippable").join("job.log.zst");
    fs::write(&file, [&skipped[..], &zstd(&bytes)].concat()).unwrap();
    assert_eq!(answer(doctor(&file)), want);
}

/// The rules about NCCL's decisions need lines that are in no fact: of files they are read again, of standard input they are kept.
#[test]
fn decisions_are_judged_in_every_form() {
    let packed = fs::read(root().join("cases/oracle-hgxnarrow/2.28.9/2x8.log.gz")).expect("a recording");
    let mut log = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut log).expect("a packed log");
    let folder = folder("compressed-decisions");
    let judged = |command: Command| {
        let json = finish(command).json();
        let found = json["findings"].as_array().expect("findings").clone();
        found.iter().any(|it| it["id"] == "nic-without-ring")
    };
    for (name, bytes) in [
        ("0.log", log.clone()),
        ("0.log.gz", packed.clone()),
        ("0.log.zst", zstd(&log)),
        ("0.tar", tar("logs/0.go", &log)),
        ("0.tar.gz", gzip(&tar("logs/0.go", &packed))),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file can be written");
        assert!(judged(doctor(&path)), "{name}");
        let mut check = command(["topo", "--check"].map(Path::new).into_iter().chain([path.as_path()]));
        check.env("COLUMNS", "100");
        assert_eq!(finish(check).code, Some(0), "{name}");
    }
    for name in ["0.log", "0.log.gz"] {
        let mut piped = doctor(Path::new("-"));
        piped.stdin(File::open(folder.join(name)).expect("the file"));
        assert!(judged(piped), "{name} on standard input");
    }
}

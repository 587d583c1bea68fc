//! A compressed, piped or large recording gives the same answer as the plain file, but for its name.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{command, files, finish, folder, root};
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

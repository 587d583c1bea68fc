//! What holds for any input: nothing panics, and how a file is cut up for reading changes nothing.
//!
//! The inputs are windows of the recordings under `cases/`, mixed, cut and repeated. More of them:
//! `PROPTEST_CASES=10000 cargo test -p evidence --test properties`.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use evidence::prefix::{self, Anchor};
use evidence::{Case, CaseBuilder, Chunks, Reader, Spot, nccl, read_lines, read_texts, signals, strip};
use fabric::{P2pKind, Transport};
use proptest::prelude::*;
use proptest::sample::Index;

/// All texts of all recordings, sorted by name.
fn recordings() -> &'static [(String, Vec<u8>)] {
    static ALL: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases"), &mut all);
        all.sort();
        assert!(all.len() > 60, "the recordings stand under cases/: {}", all.len());
        all
    })
}

fn read_folder(folder: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("the recordings are there") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            read_folder(&path, all);
        } else if !path.ends_with("README.md") && path.extension().is_none_or(|it| it != "py" && it != "gz") {
            all.push((path.display().to_string(), fs::read(&path).expect("a recording can be read")));
        }
    }
}

/// Some lines of a recording.
fn window() -> impl Strategy<Value = Vec<Vec<u8>>> {
    (any::<Index>(), any::<Index>(), 1..200_usize).prop_map(|(file, start, length)| {
        let (_, bytes) = file.get(recordings());
        let lines: Vec<Vec<u8>> = bytes.split(|it| *it == b'\n').map(<[u8]>::to_vec).collect();
        lines.into_iter().skip(start.index(bytes.split(|it| *it == b'\n').count())).take(length).collect()
    })
}

/// What may happen to a log on its way.
#[derive(Debug, Clone)]
enum Edit {
    Repeat(Index, u8),
    Cut(Index, Index),
    Swap(Index, Index),
    Remove(Index),
    Blank(Index),
    Byte(Index, Index, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let line = any::<Index>;
    prop_oneof![
        // Not more: of a thread that says the same more than 64 times, equal parts are joined to spare memory, and
        // which of the equal lines is quoted then depends on how many the reader of a region has seen.
        (line(), 1..8_u8).prop_map(|(at, times)| Edit::Repeat(at, times)),
        (line(), line()).prop_map(|(at, end)| Edit::Cut(at, end)),
        (line(), line()).prop_map(|(a, b)| Edit::Swap(a, b)),
        line().prop_map(Edit::Remove),
        line().prop_map(Edit::Blank),
        (line(), line(), any::<u8>()).prop_map(|(at, column, byte)| Edit::Byte(at, column, byte)),
    ]
}

fn apply(lines: &mut Vec<Vec<u8>>, edit: &Edit) {
    if lines.is_empty() {
        return;
    }
    let n = lines.len();
    match edit {
        Edit::Repeat(at, times) => {
            let line = lines[at.index(n)].clone();
            lines.splice(at.index(n)..at.index(n), std::iter::repeat_n(line, usize::from(*times)));
        }
        Edit::Cut(at, end) => {
            let line = &mut lines[at.index(n)];
            let length = end.index(line.len() + 1);
            line.truncate(length);
        }
        Edit::Swap(a, b) => lines.swap(a.index(n), b.index(n)),
        Edit::Remove(at) => drop(lines.remove(at.index(n))),
        Edit::Blank(at) => lines.insert(at.index(n), Vec::new()),
        Edit::Byte(at, column, byte) => {
            let line = &mut lines[at.index(n)];
            let length = line.len();
            // A line end would make it another file, which is as good, but harder to read.
            if length > 0 && *byte != b'\n' {
                line[column.index(length)] = *byte;
            }
        }
    }
}

/// A log that could have been. What fails is shown as text.
#[derive(Clone)]
struct Log(Vec<u8>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", String::from_utf8_lossy(&self.0))
    }
}

/// Windows of recordings, mixed line by line, and edited.
fn log() -> impl Strategy<Value = Log> {
    log_of(1..3, edit().boxed())
}

/// The same with the lines of each thread in their order, as a log has them. Out of order, nothing shows which communicator
/// a line belongs to, and a guess may depend on where a file is cut.
fn log_in_order() -> impl Strategy<Value = Log> {
    log_of(1..2, edit().prop_filter("lines keep their order", |it| !matches!(it, Edit::Swap(..))).boxed())
}

fn log_of(windows: std::ops::Range<usize>, edit: BoxedStrategy<Edit>) -> impl Strategy<Value = Log> {
    let mixed = prop::collection::vec(window(), windows).prop_flat_map(|windows| {
        let n: usize = windows.iter().map(Vec::len).sum();
        (Just(windows), prop::collection::vec(any::<bool>(), n))
    });
    (mixed, prop::collection::vec(edit, 0..6), any::<bool>()).prop_map(|((windows, turns), edits, ended)| {
        let mut sources: Vec<_> = windows.into_iter().map(Vec::into_iter).collect();
        let mut lines = Vec::new();
        for turn in turns {
            let at = usize::from(turn).min(sources.len() - 1);
            lines.extend(sources[at].next());
        }
        lines.extend(sources.into_iter().flatten());
        for it in &edits {
            apply(&mut lines, it);
        }
        let mut bytes = lines.join(&b'\n');
        if ended {
            bytes.push(b'\n');
        }
        Log(bytes)
    })
}

/// Whether the first bytes decide what a file is: it is a document, or may not be text at all.
///
/// A region inside a document looks like any other text, and a few bytes do not show what a file is.
/// Neither happens: only files of 32 MiB and more are cut into regions, and no document is as large; and a first
/// chunk has 1 MiB or the whole file. So the properties below leave such files out.
fn needs_its_beginning(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let head = &bytes[..bytes.len().min(4096)];
    let manifest = |line: &[u8]| line.starts_with(b"apiVersion:") || line.starts_with(b"kind: ");
    let binary = |it: &u8| it.is_ascii_control() && !it.is_ascii_whitespace() && *it != 0x1b;
    matches!(head.trim_ascii_start().first(), Some(b'<' | b'{'))
        || head.split(|it| *it == b'\n').any(manifest)
        || head.iter().any(binary)
        || head.windows(11).any(|it| it == b"Job summary")
        || evidence::recorder::is_whole(bytes)
        || evidence::is_broken(bytes)
}

/// A few lines of one length at the beginning look as if they had been wrapped.
fn seems_broken(bytes: &[u8], chunk: usize) -> bool {
    let first = Chunks::new(bytes, chunk).next_chunk(Vec::new()).expect("memory can be read");
    first.is_some_and(|it| evidence::is_broken(it.bytes()))
}

/// A chunk that holds most windows whole, and is quick to make.
const CHUNK: usize = 16 * 1024;

/// Reads one file as `plumb` reads a large one: in regions that end at line ends, in chunks.
fn read_in_regions(bytes: &[u8], cuts: &[usize], chunk: usize) -> Case {
    let mut builder = CaseBuilder::default();
    let file = builder.begin_file("log");
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let mut start = 0;
    for (region, end) in (0..).zip(ends) {
        let mut reader = Reader::new(region);
        let mut chunks = Chunks::new(&bytes[start..end], chunk);
        if start == 0 {
            read_lines(&mut reader, &mut chunks).expect("memory can be read");
        } else {
            let mut spare = Vec::new();
            while let Some(chunk) = chunks.next_chunk(spare).expect("memory can be read") {
                reader.feed(chunk.bytes(), false);
                spare = chunk.recycle();
            }
        }
        builder.absorb(file, reader.finish());
        start = end;
    }
    builder.end_file(file, None);
    builder.finish()
}

/// Everything a case holds, in lines of text; file and line stand for the region of every spot.
fn described(case: &Case) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, text: String| lines.push(format!("{what}: {}", located(case, &text)));
    for it in &case.sources.files {
        add("file", format!("{it:?}"));
    }
    for it in &case.processes {
        add("process", format!("{it:?}"));
    }
    for it in &case.communicators {
        for (rank, member) in &it.members {
            add("member", format!("{} of {}: {member:?}", rank, it.name));
        }
        add("communicator", format!("{} {:?} {:?} {:?}", it.name, it.n_ranks, it.parent, it.color));
    }
    for it in &case.sightings {
        let (name, process) = (it.signal.name, &it.process);
        let rest = (&it.captures, &it.quote, it.count, it.rank, &it.time, it.warning);
        add("sighting", format!("{name} {process:?} {rest:?}"));
    }
    add("tests", format!("{:?}", case.tests));
    add("matrices", format!("{:?}", case.matrices));
    add("xml", format!("{:?}", case.xml));
    add("manifests", format!("{:?}", case.manifests));
    add("training", format!("{:?}", case.training));
    add("protocols", format!("{:?}", case.protocols));
    add("banners", format!("{:?}", case.banners));
    lines
}

/// Writes `log:12` for `Spot { region: 1, line: 2 }`.
fn located(case: &Case, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("Spot { region: ") {
        let (numbers, after) = after.split_once(" }").expect("a spot ends");
        let (region, line) = numbers.split_once(", line: ").expect("a spot has a line");
        let spot = Spot { region: region.parse().expect("a number"), line: line.parse().expect("a number") };
        let (file, line) = case.sources.locate(spot);
        let _ = write!(out, "{before}{file}:{line}");
        rest = after;
    }
    out + rest
}

#[track_caller]
fn check_same(whole: &Case, parts: &Case) {
    let (whole, parts) = (described(whole), described(parts));
    if whole != parts {
        let only = |a: &[String], b: &[String]| {
            a.iter().filter(|it| !b.contains(it)).cloned().collect::<Vec<_>>().join("\n")
        };
        panic!("only when read whole:\n{}\nonly in parts:\n{}", only(&whole, &parts), only(&parts, &whole));
    }
}

/// Where lines end.
fn line_ends(bytes: &[u8]) -> Vec<usize> {
    bytes.iter().enumerate().filter(|it| *it.1 == b'\n').map(|it| it.0 + 1).collect()
}

/// Ends of lines, chosen by `picks`, sorted, each once.
fn cuts(bytes: &[u8], picks: &[Index]) -> Vec<usize> {
    let ends = line_ends(bytes);
    let mut cuts: Vec<usize> = picks.iter().filter(|_| !ends.is_empty()).map(|it| *it.get(&ends)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|it| *it < bytes.len());
    cuts
}

fn whole(bytes: &[u8]) -> Case {
    read_texts([("log", bytes)])
}

fn config() -> ProptestConfig {
    // What fails is shown with its input; it belongs into a test of its own, not into a file of seeds.
    ProptestConfig { failure_persistence: None, max_global_rejects: 1_000_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        whole(&bytes);
    }

    /// Random bytes hardly ever look like anything: these do.
    #[test]
    fn any_log_is_read(Log(bytes) in log()) {
        let case = whole(&bytes);
        let tally = case.sources.tally();
        let lines = line_ends(&bytes).len() + usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"));
        prop_assert_eq!(tally.lines, lines as u64);
        prop_assert!(tally.understood() + tally.blank <= tally.lines);
    }

    #[test]
    fn regions_change_nothing(Log(bytes) in log_in_order(), picks in prop::collection::vec(any::<Index>(), 1..4)) {
        let cuts = cuts(&bytes, &picks);
        prop_assume!(!needs_its_beginning(&bytes) && !seems_broken(&bytes[..*cuts.first().unwrap_or(&0)], CHUNK));
        check_same(&whole(&bytes), &read_in_regions(&bytes, &cuts, CHUNK));
    }

    #[test]
    fn chunks_change_nothing(Log(bytes) in log(), size in prop_oneof![1..200_usize, 1..100_000_usize]) {
        prop_assume!(!needs_its_beginning(&bytes) && !seems_broken(&bytes, size));
        check_same(&whole(&bytes), &read_in_regions(&bytes, &[], size));
    }

    #[test]
    fn files_are_told_apart(Log(first) in log(), Log(second) in log()) {
        // The order of files is the order of what they say.
        let case = read_texts([("a", first.as_slice()), ("b", second.as_slice())]);
        let places: Vec<(&str, u64)> = case.sightings.iter().map(|it| case.locate(&it.quote)).collect();
        prop_assert!(places.is_sorted(), "{:?}", places);
    }

    #[test]
    fn lines_are_taken_apart(file in any::<Index>(), at in any::<Index>(), edits in prop::collection::vec(edit(), 0..8)) {
        let (_, bytes) = file.get(recordings());
        let lines: Vec<&[u8]> = bytes.split(|it| *it == b'\n').collect();
        let mut lines = vec![at.get(&lines).to_vec()];
        for it in &edits {
            apply(&mut lines, it);
        }
        for line in &lines {
            prefix::time(line);
            prefix::thread(line);
            nccl::parse(line);
            nccl::describe(line);
            signals::book().find(line);
            signals::book().find_cut(line, true);
            signals::book().find_cut(line, false);
            let bare = strip::bare(line);
            prop_assert!(line.ends_with(bare));
            prop_assert_eq!(strip::bare(bare), bare);
            if let Some(it) = Anchor::default().split(line) {
                prop_assert!(line.ends_with(it.message));
                prefix::time(it.before);
                if let Some(thread) = prefix::thread(it.thread) {
                    prop_assert!(it.thread.starts_with(thread.host.as_bytes()));
                }
                nccl::parse(it.message);
                nccl::describe(it.message);
            }
        }
    }

    #[test]
    fn a_transport_is_read_as_it_is_written(transport in transport()) {
        prop_assert_eq!(nccl::transport(&transport.to_string()), Some(transport));
    }
}

fn transport() -> impl Strategy<Value = Transport> {
    let kind = prop_oneof![
        Just(P2pKind::DirectPointer),
        Just(P2pKind::Ipc),
        Just(P2pKind::Cumem),
        Just(P2pKind::Mnnvl),
        Just(P2pKind::Indirect),
    ];
    // Names that networks have given themselves, and others like them.
    let network = "[A-Za-z][A-Za-z0-9 _-]{0,20}[A-Za-z0-9]";
    prop_oneof![
        (kind, any::<bool>()).prop_map(|(kind, read)| Transport::P2p { kind, read }),
        Just(Transport::Shm),
        (network, any::<u32>(), any::<bool>(), any::<Option<u32>>()).prop_map(
            |(network, device, gpudirect, through)| {
                Transport::Net { network: network.into(), device, gpudirect, through }
            }
        ),
        (network, any::<u32>(), any::<bool>()).prop_map(|(network, device, gpudirect)| Transport::CollNet {
            network: network.into(),
            device,
            gpudirect
        }),
    ]
}

/// What a program wrote is read line by line, as it is.
#[test]
fn recordings_are_not_mended() {
    let broken: Vec<_> =
        recordings().iter().filter(|it| evidence::is_broken(&it.1)).map(|it| &it.0).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// Every recording, cut everywhere at once, and at single places, which show where it matters.
#[test]
fn recordings_can_be_cut_anywhere() {
    for (name, bytes) in recordings().iter().filter(|it| !needs_its_beginning(&it.1)) {
        let all = whole(bytes);
        let (ends, want) = (line_ends(bytes), described(&all));
        for line in (0..ends.len()).step_by(ends.len().div_ceil(25).max(1)) {
            let parts = read_in_regions(bytes, &ends[line..=line], CHUNK);
            let got = described(&parts);
            let other = got.iter().zip(&want).find(|(a, b)| a != b);
            assert!(got == want, "{name} cut after line {}: {other:?}", line + 1);
        }
        check_same(&all, &read_in_regions(bytes, &ends[..ends.len().saturating_sub(1)], CHUNK));
    }
}

/// Dumps and answers with a byte that is wrong, and cut short: read or refused, and never a panic.
#[test]
fn broken_dumps_are_read_or_refused() {
    let mut seen = 0;
    for (name, bytes) in recordings().iter().filter(|it| evidence::recorder::is_whole(&it.1)) {
        seen += 1;
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(5)) {
            let mut broken = bytes.clone();
            broken[at] ^= 0xa5;
            read_texts([(name.as_str(), broken.as_slice()), (name.as_str(), &bytes[..at])]);
        }
    }
    assert!(seen > 50, "{seen} dumps and answers");
}

/// Whole, and cut after every line.
#[track_caller]
fn check_cuts(text: &[u8]) -> Case {
    let all = whole(text);
    for cut in text.iter().enumerate().filter(|it| *it.1 == b'\n' && it.0 + 1 < text.len()).map(|it| it.0 + 1)
    {
        check_same(&all, &read_in_regions(text, &[cut], CHUNK));
    }
    all
}

#[test]
fn a_blank_line_ends_a_table_wherever_it_is_cut() {
    let table = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";
    for between in
        ["\n", "step 1: loss 2\n\n", "{'loss': 1.0}\n\n", "n0:1:2 [0] NCCL INFO Using network Socket\n\n"]
    {
        let case = check_cuts(format!("{table}{between}GPU1\tNV12\t X \n").as_bytes());
        assert_eq!(case.matrices[0].rows.len(), 2, "{between:?}");
    }
}

/// NCCL frees a communicator, and the next one stands at the same address.
#[test]
fn an_address_that_is_used_again_is_another_communicator() {
    let head = "n0:1:1 [0] NCCL INFO";
    let mut text = String::new();
    for id in ["0xa1", "0xa2"] {
        let comm = "comm 0x5000 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60";
        let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} commId {id} - Init START");
        let _ = writeln!(text, "{head} Using network Socket");
        let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} commId {id} - Init COMPLETE");
        let _ = writeln!(text, "{head} {comm} - Destroy COMPLETE");
    }
    let case = check_cuts(text.as_bytes());
    assert_eq!(case.communicators.len(), 2);
    for (it, first) in case.communicators.iter().zip([1, 5]) {
        let facts = &it.members[&0].facts;
        let lines =
            [&facts.start, &facts.complete, &facts.end].map(|it| it.as_ref().map(|it| case.locate(it).1));
        assert_eq!(lines, [Some(first), Some(first + 2), Some(first + 3)], "{}", it.name);
        assert!(facts.network.is_some(), "{}", it.name);
    }
}

/// Training with several kinds of parallelism has dozens in each process, made by one thread.
#[test]
fn each_of_many_communicators_keeps_its_connections() {
    for n in [10, 40, 200] {
        let mut text = String::new();
        let head = "n0:1:1 [0] NCCL INFO";
        for i in 0..n {
            let comm = format!(
                "comm {:#x} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId {:#x}",
                0x1000 + i,
                0xabc_0000 + i
            );
            let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} - Init START");
            let _ = writeln!(text, "{head} ncclCommInitRankConfig {comm} - Init COMPLETE");
            let _ = writeln!(text, "{head} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0");
            let _ = writeln!(text, "{head} Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0");
            let _ = writeln!(text, "{head} Connected all rings, use ring PXN 0 GDR 0");
        }
        let case = whole(text.as_bytes());
        let with = case.communicators.iter().filter(|it| it.links().count() == 2).count();
        assert_eq!((case.communicators.len(), with), (n, n));
        // In two halves, between two communicators.
        let middle = text.lines().take(n / 2 * 5).map(|it| it.len() + 1).sum();
        check_same(&case, &read_in_regions(text.as_bytes(), &[middle], CHUNK));
    }
}

#[test]
fn a_way_that_is_no_text_is_the_same_way_again() {
    let line = b"n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket\xff/0\n";
    let case = check_cuts(&line.repeat(3));
    let links: Vec<u32> = case.communicators[0].links().map(|it| it.1.count).collect();
    assert_eq!(links, [3]);
}

//! Lines that NCCL did not write: tables, training logs, manifests, documents.
//!
//! A reader of one region cannot know what came before it, so it only
//! recognises such lines and passes them on; `Blocks` puts them together in
//! the order of the input.

mod manifest;
mod nccl_tests;
mod protocols;
mod topology_matrix;
mod topology_xml;
mod training;

pub use manifest::Manifest;
pub use nccl_tests::{Device, NcclTests, Row, Timing};
pub use protocols::Protocols;
pub use topology_matrix::{GpuPath, LegendEntry, MatrixRow, TopologyMatrix};
pub use topology_xml::{TopologyXml, XmlGpu, XmlNet};
pub use training::{Memory, Training};

use crate::scan::number;
use crate::source::{Distinct, Kind, Quote, Spot};

/// A line for the builder.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) what: What,
    pub(crate) quote: Quote,
}

/// What a line was recognised as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A line of an nccl-tests table: header, device, row or footer.
    NcclTests,
    /// A row of `nvidia-smi topo -m`.
    TopologyMatrix,
    /// A row of NCCL's Func/Proto/Algo matrix.
    Protocols,
    /// A line of a trainer or of DeepSpeed.
    Training,
    /// A line of a Kubernetes manifest.
    Manifest,
    /// A tag of NCCL's topology XML.
    TopologyXml,
    /// Raw NCCL banner: `NCCL version 2.21.5+cuda12.4`.
    Banner,
    /// A blank line: it ends tables.
    Blank,
    /// A whole JSON document of nccl-tests, on one or many lines: its text so far.
    Json,
}

/// Recognises lines.
#[derive(Debug)]
pub(crate) struct Classifier {
    document: Option<Document>,
    /// The last line was part of a table: a blank line matters.
    table: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Manifest,
    Xml,
    Json,
}

impl Classifier {
    /// `beginning` is what a file begins with.
    pub(crate) fn new(beginning: &[u8]) -> Self {
        Self { document: document(beginning), table: false }
    }

    /// For a region that begins inside a file, where a table may already have begun.
    pub(crate) fn inside() -> Self {
        Self { document: None, table: true }
    }

    pub(crate) fn blank(&mut self, spot: Spot, out: &mut Vec<Plain>) {
        if self.table {
            self.table = false;
            out.push(Plain { what: What::Blank, quote: Quote::new(spot, b"") });
        }
    }

    /// Recognises a line and passes it on: to `loose` where order does not matter, else to `out`.
    pub(crate) fn classify(
        &mut self,
        line: &[u8],
        spot: Spot,
        loose: &mut Loose,
        out: &mut Vec<Plain>,
    ) -> Option<Kind> {
        let (what, kind) = match self.document {
            Some(Document::Manifest) => (What::Manifest, Kind::Manifest),
            Some(Document::Xml) => (What::TopologyXml, Kind::TopologyXml),
            Some(Document::Json) => (What::Json, Kind::NcclTests),
            None => {
                let inner = strip_label(line);
                if topology_matrix::is_row(inner) {
                    (What::TopologyMatrix, Kind::TopologyMatrix)
                } else if nccl_tests::is_line(inner) {
                    (What::NcclTests, Kind::NcclTests)
                } else if protocols::is_row(inner) {
                    (What::Protocols, Kind::NcclLog)
                } else if training::is_line(inner) {
                    (What::Training, Kind::TrainingLog)
                } else if inner.starts_with(b"NCCL version ") {
                    (What::Banner, Kind::NcclLog)
                } else if inner.starts_with(b"<system")
                    || inner.starts_with(b"<cpu ")
                    || topology_xml::is_tag(inner)
                {
                    (What::TopologyXml, Kind::TopologyXml)
                } else {
                    return None;
                }
            }
        };
        match what {
            What::Protocols => loose.protocols.take(&Quote::new(spot, line)),
            What::Training => loose.training.take(line, || Quote::new(spot, line)),
            What::Banner => {
                loose.banners.note(String::from_utf8_lossy(line).trim().into(), || Quote::new(spot, line));
            }
            // A JSON document may be one long line; everything else is short.
            What::Json => {
                out.push(Plain { what, quote: Quote { spot, text: String::from_utf8_lossy(line).into() } });
            }
            _ => out.push(Plain { what, quote: Quote::new(spot, line) }),
        }
        self.table |= what == What::TopologyMatrix;
        Some(kind)
    }
}

/// What single lines say, in any order.
#[derive(Debug, Default)]
pub(crate) struct Loose {
    pub(crate) protocols: Protocols,
    pub(crate) training: Training,
    pub(crate) banners: Distinct<Box<str>>,
}

impl Loose {
    pub(crate) fn merge(&mut self, later: Self) {
        self.protocols.merge(later.protocols);
        self.training.merge(later.training);
        self.banners.merge(later.banners);
    }
}

/// The kind of a file by its beginning.
fn document(bytes: &[u8]) -> Option<Document> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
    let inner = head.trim_ascii_start();
    if inner.starts_with(b"<system") || inner.starts_with(b"<?xml") {
        return Some(Document::Xml);
    }
    if inner.starts_with(b"{")
        && (memchr::memmem::find(head, b"\"nccl_version\"").is_some()
            || memchr::memmem::find(head, b"\"start_time\"").is_some())
    {
        return Some(Document::Json);
    }
    let manifest = head
        .split(|it| *it == b'\n')
        .take(40)
        .any(|line| line.starts_with(b"apiVersion:") || line.starts_with(b"kind: "));
    manifest.then_some(Document::Manifest)
}

/// The line itself, without colour codes and without the JSON that container runtimes write around it:
/// `{"log":"node:1:2 [0] NCCL INFO x\n","stream":"stdout","time":"..."}`
pub(crate) fn unwrap(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let json = line.strip_prefix(b"{\"log\":\"");
    let mut rest = json.unwrap_or(line).iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' if json.is_some() => break,
            b'\\' if json.is_some() => match rest.next() {
                Some(b'n' | b'r') => {}
                Some(b't') => out.push(b'\t'),
                Some(b'u') => {
                    // Only control characters are written like this, usually colour codes.
                    let code: Vec<u8> = rest.by_ref().take(4).collect();
                    if code == b"001b" {
                        skip_colour(&mut rest);
                    } else {
                        out.push(b' ');
                    }
                }
                Some(other) => out.push(other),
                None => break,
            },
            0x1b => skip_colour(&mut rest),
            other => out.push(other),
        }
    }
    out
}

/// After ESC: `[36m`
fn skip_colour(rest: &mut impl Iterator<Item = u8>) {
    if rest.next() == Some(b'[') {
        let _ = rest.find(u8::is_ascii_alphabetic);
    }
}

/// Drops what launchers put before a line: `[1,0]<stdout>:`, `[rank0]: `, `0: `.
pub(crate) fn strip_label(line: &[u8]) -> &[u8] {
    let start = line.trim_ascii_start();
    // `[1,0]<stdout>:`, and with Open MPI's timestamps `Sun Nov 15 02:56:23 2026[1,0]<stdout>:`
    let window = start.get(..start.len().min(80)).unwrap_or_default();
    if let Some(at) = memchr::memmem::find(window, b"]<std")
        && let Some(colon) = start.get(at..).and_then(|it| memchr::memchr(b':', it))
    {
        return start.get(at + colon + 1..).unwrap_or_default();
    }
    // kubectl --timestamps: `2025-01-02T03:04:05.123456789Z text`
    if start.first().is_some_and(u8::is_ascii_digit)
        && start.get(10) == Some(&b'T')
        && let Some(end) = memchr::memmem::find(start.get(..start.len().min(40)).unwrap_or_default(), b"Z ")
    {
        return start.get(end + 2..).unwrap_or_default();
    }
    if let Some(rest) = start.strip_prefix(b"[pod/") {
        // kubectl --prefix: `[pod/NAME/CONTAINER] text`
        if let Some(end) = memchr::memmem::find(rest.get(..rest.len().min(300)).unwrap_or_default(), b"] ") {
            return strip_label(rest.get(end + 2..).unwrap_or_default());
        }
    }
    if let Some(rest) = start.strip_prefix(b"[") {
        if (rest.starts_with(b"rank") || rest.starts_with(b"default"))
            && let Some(at) = memchr::memmem::find(window, b"]:")
        {
            let inner = rest.get(at + 2..).unwrap_or_default();
            return inner.strip_prefix(b" ").unwrap_or(inner);
        }
        return line;
    }
    // srun --label: `0: text`
    if let Some((_, rest)) = number(start)
        && let Some(rest) = rest.strip_prefix(b": ")
    {
        return rest;
    }
    line
}

/// The rank a launcher or PyTorch puts before a line.
pub(crate) fn rank_label(line: &[u8]) -> Option<u32> {
    let window = line.get(..line.len().min(200)).unwrap_or_default();
    for (key, end) in [(&b"[rank"[..], b']'), (b"[Rank ", b']'), (b"[trainer", b']')] {
        if let Some(at) = memchr::memmem::find(window, key)
            && let Some((rank, rest)) = number(window.get(at + key.len()..)?)
            && (rest.first() == Some(&end) || rest.first() == Some(&b'|'))
        {
            return Some(rank);
        }
    }
    // `[1,3]<stdout>:`
    let at = memchr::memmem::find(window, b"]<std")?;
    let comma = memchr::memrchr(b',', window.get(..at)?)?;
    let (rank, rest) = number(window.get(comma + 1..at)?)?;
    rest.is_empty().then_some(rank)
}

/// Tables and documents, put together.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each kind of table, none excludes another")]
pub(crate) struct Blocks {
    pub(crate) tests: Vec<NcclTests>,
    pub(crate) matrices: Vec<TopologyMatrix>,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) xml: Vec<TopologyXml>,
    json: Option<(String, Quote)>,
    /// The table or document that the next line may belong to.
    tests_open: bool,
    matrix_open: bool,
    manifest_open: bool,
    xml_open: bool,
}

impl Blocks {
    const JSON_LIMIT: usize = 16 * 1024 * 1024;

    pub(crate) fn take(&mut self, line: Plain) {
        let Plain { what, quote } = line;
        match what {
            What::NcclTests => nccl_tests::take(&mut self.tests, &mut self.tests_open, &quote),
            What::TopologyMatrix => topology_matrix::take(&mut self.matrices, &mut self.matrix_open, quote),
            What::Manifest => manifest::take(&mut self.manifests, &mut self.manifest_open, &quote),
            What::TopologyXml => topology_xml::take(&mut self.xml, &mut self.xml_open, &quote),
            // These are read as they come.
            What::Protocols | What::Training | What::Banner => {}
            What::Blank => self.matrix_open = false,
            What::Json => {
                let (text, _) = self.json.get_or_insert_with(|| (String::new(), quote.clone()));
                if text.len() < Self::JSON_LIMIT {
                    text.push_str(&quote.text);
                    text.push('\n');
                }
            }
        }
    }

    /// The end of a file ends every table. Returns a problem with the file, if one shows now.
    pub(crate) fn end_file(&mut self) -> Option<Box<str>> {
        (self.tests_open, self.matrix_open, self.manifest_open, self.xml_open) = (false, false, false, false);
        let (text, quote) = self.json.take()?;
        match nccl_tests::from_json(&text, &quote) {
            Ok(tests) => {
                self.tests.push(tests);
                None
            }
            Err(error) => Some(format!("not a JSON document of nccl-tests: {error}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{rank_label, strip_label};

    #[test]
    fn labels_are_dropped() {
        for (line, want) in [
            ("[1,0]<stdout>:   8  2", "   8  2"),
            ("        [1,0]<stdout>:   8  2", "   8  2"),
            ("[rank0]: x", "x"),
            ("0: x", "x"),
            ("x", "x"),
            ("[pod/a-0/trainer] x", "x"),
            ("2025-01-02T03:04:05.12Z x", "x"),
            ("[0] x", "[0] x"),
        ] {
            assert_eq!(strip_label(line.as_bytes()), want.as_bytes(), "{line}");
        }
    }

    #[test]
    fn wrappings_are_taken_off() {
        for (line, want) in [
            ("{\"log\":\"a \\\"b\\\" \\u001b[36mc\\n\",\"stream\":\"stderr\"}", "a \"b\" c"),
            ("\u{1b}[36mnode-0\u{1b}[0m:1", "node-0:1"),
            ("{\"log\":\"cut", "cut"),
        ] {
            assert_eq!(super::unwrap(line.as_bytes()), want.as_bytes(), "{line}");
        }
    }

    #[test]
    fn ranks_are_read() {
        for (line, want) in [
            ("[rank7]:[E1129 x", Some(7)),
            ("[1,13]<stdout>:x", Some(13)),
            ("[E x] [Rank 1] NCCL watchdog", Some(1)),
            ("[trainer0|0]:x", Some(0)),
            ("rank 3", None),
        ] {
            assert_eq!(rank_label(line.as_bytes()), want, "{line}");
        }
    }
}

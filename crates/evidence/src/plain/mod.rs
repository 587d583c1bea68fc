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
pub use nccl_tests::{Device, NcclTests, Row, Sizes, Step, Timing};
pub use protocols::Protocols;
pub use topology_matrix::{GpuPath, LegendEntry, MatrixRow, TopologyMatrix};
pub(crate) use topology_matrix::{Heading, UNKNOWN_PATH, is_device as is_matrix_device};
pub use topology_xml::{TopologyXml, XmlGpu, XmlNet};
pub use training::{Bar, Bars, EPOCH, Memory, State, StepTimes, Steps, Track, Training, Updates};

use crate::scan::number;
use crate::source::{Distinct, Kind, Quote, Spot};
use crate::strip;

/// A line for the builder.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) what: What,
    pub(crate) quote: Quote,
    /// How long the label is that a launcher or a collector put before the line.
    pub(crate) label: usize,
}

impl Plain {
    fn new(what: What, quote: Quote, label: usize) -> Self {
        Self { what, quote, label }
    }

    /// The line without its label.
    fn inner(&self) -> &str {
        self.quote.text.get(self.label..).unwrap_or(&self.quote.text)
    }
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
    /// A line of a JSON document of nccl-tests.
    Json,
    /// A line of the file with the state of the Trainer.
    State,
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
    State,
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
            out.push(Plain::new(What::Blank, Quote::new(spot, b""), 0));
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
        let (what, kind, inner) = match self.document {
            Some(Document::Manifest) => (What::Manifest, Kind::Manifest, line),
            Some(Document::Xml) => (What::TopologyXml, Kind::TopologyXml, line),
            Some(Document::Json) => (What::Json, Kind::NcclTests, line),
            Some(Document::State) => (What::State, Kind::TrainingLog, line),
            None => recognise(line)?,
        };
        let label = line.len() - inner.len();
        match what {
            What::Protocols => loose.protocols.take(&Quote::new(spot, inner)),
            What::Training => {
                let before = line.get(..label).unwrap_or_default();
                loose.training.take(inner, before, || Quote::new(spot, line));
            }
            What::Banner => {
                loose.banners.note(String::from_utf8_lossy(inner).trim().into(), || Quote::new(spot, line));
            }
            // A JSON document may be one long line; everything else is short.
            What::Json | What::State => {
                let quote = Quote { spot, text: String::from_utf8_lossy(line).into() };
                out.push(Plain::new(what, quote, 0));
            }
            _ => out.push(Plain::new(what, Quote::new(spot, line), label)),
        }
        self.table |= what == What::TopologyMatrix;
        Some(kind)
    }
}

/// What a line is, and the line without its labels. A line that is something as it stands has no label.
fn recognise(line: &[u8]) -> Option<(What, Kind, &[u8])> {
    let form = |inner| form(inner).map(|(what, kind)| (what, kind, inner));
    form(line).or_else(|| strip::layers(line).find_map(form))
}

/// What a line without labels is.
fn form(line: &[u8]) -> Option<(What, Kind)> {
    if topology_matrix::is_row(line) {
        Some((What::TopologyMatrix, Kind::TopologyMatrix))
    } else if nccl_tests::is_line(line) {
        Some((What::NcclTests, Kind::NcclTests))
    } else if protocols::is_row(line) {
        Some((What::Protocols, Kind::NcclLog))
    } else if training::is_line(line) {
        Some((What::Training, Kind::TrainingLog))
    } else if line.starts_with(b"NCCL version ") {
        Some((What::Banner, Kind::NcclLog))
    } else if line.starts_with(b"<system") || line.starts_with(b"<cpu ") || topology_xml::is_tag(line) {
        Some((What::TopologyXml, Kind::TopologyXml))
    } else {
        None
    }
}

/// Whether a line is one of a table or a document, or a known one of a trainer.
pub(crate) fn is_structured(line: &[u8]) -> bool {
    recognise(line).is_some()
}

/// Whether a line belongs to a table or a document.
pub(crate) fn is_tabular(line: &[u8]) -> bool {
    recognise(line).is_some_and(|it| it.0 != What::Training)
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

/// Whether a file begins as the state of a Trainer does, which is one document.
pub fn is_trainer_state(beginning: &[u8]) -> bool {
    let head = beginning.get(..beginning.len().min(4096)).unwrap_or_default();
    let has = |part: &[u8]| memchr::memmem::find(head, part).is_some();
    head.trim_ascii_start().starts_with(b"{") && has(b"\"log_history\"") && has(b"\"global_step\"")
}

/// The kind of a file by its beginning.
fn document(bytes: &[u8]) -> Option<Document> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
    let inner = head.trim_ascii_start();
    if inner.starts_with(b"<system") || inner.starts_with(b"<?xml") {
        return Some(Document::Xml);
    }
    let has = |part: &[u8]| memchr::memmem::find(head, part).is_some();
    if is_trainer_state(bytes) {
        return Some(Document::State);
    }
    if inner.starts_with(b"{") && (has(b"\"nccl_version\"") || has(b"\"start_time\"")) {
        return Some(Document::Json);
    }
    let manifest = head
        .split(|it| *it == b'\n')
        .take(40)
        .any(|line| line.starts_with(b"apiVersion:") || line.starts_with(b"kind: "));
    manifest.then_some(Document::Manifest)
}

/// The rank a launcher or PyTorch puts before a line.
pub(crate) fn rank_label(line: &[u8]) -> Option<u32> {
    let window = line.get(..line.len().min(200)).unwrap_or_default();
    memchr::memchr(b'[', window)?;
    for (key, end) in [(&b"[rank"[..], b']'), (b"[Rank ", b']'), (b"[trainer", b']'), (b"[1,mpirank:", b',')]
    {
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
    state: Option<(String, Quote)>,
    /// States of the Trainer, one for each file.
    pub(crate) states: Vec<(State, Quote)>,
    /// The table or document that the next line may belong to.
    tests_open: bool,
    matrix_open: bool,
    manifest_open: bool,
    xml_open: bool,
}

impl Blocks {
    const JSON_LIMIT: usize = 16 * 1024 * 1024;

    pub(crate) fn take(&mut self, line: &Plain) {
        let (inner, quote) = (line.inner(), &line.quote);
        match line.what {
            What::NcclTests => nccl_tests::take(&mut self.tests, &mut self.tests_open, inner, quote),
            What::TopologyMatrix => {
                topology_matrix::take(&mut self.matrices, &mut self.matrix_open, inner, quote);
            }
            What::Manifest => manifest::take(&mut self.manifests, &mut self.manifest_open, quote),
            What::TopologyXml => topology_xml::take(&mut self.xml, &mut self.xml_open, inner, quote),
            // These are read as they come.
            What::Protocols | What::Training | What::Banner => {}
            What::Blank => self.matrix_open = false,
            What::Json | What::State => {
                let document = if line.what == What::Json { &mut self.json } else { &mut self.state };
                let (text, _) = document.get_or_insert_with(|| (String::new(), quote.clone()));
                if text.len() < Self::JSON_LIMIT {
                    text.push_str(&quote.text);
                    text.push('\n');
                }
            }
        }
    }

    /// Whether the file has a run of nccl-tests.
    pub(crate) fn has_tests(&self) -> bool {
        self.tests_open || self.json.is_some()
    }

    /// The end of a file ends every table. Returns a problem with the file, if one shows now.
    pub(crate) fn end_file(&mut self) -> Option<Box<str>> {
        (self.tests_open, self.matrix_open, self.manifest_open, self.xml_open) = (false, false, false, false);
        if let Some((text, quote)) = self.state.take() {
            match State::read(&text) {
                Ok(state) => self.states.push((state, quote)),
                Err(error) => return Some(format!("not the state of a Trainer: {error}").into()),
            }
        }
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
    use super::rank_label;

    #[test]
    fn ranks_are_read() {
        for (line, want) in [
            ("[rank7]:[E1129 x", Some(7)),
            ("[1,13]<stdout>:x", Some(13)),
            ("[E x] [Rank 1] NCCL watchdog", Some(1)),
            ("[trainer0|0]:x", Some(0)),
            ("[1,mpirank:3,algo-1]<stderr>:x", Some(3)),
            ("rank 3", None),
        ] {
            assert_eq!(rank_label(line.as_bytes()), want, "{line}");
        }
    }
}

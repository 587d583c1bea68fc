//! What knows more about a hang than a log: dumps of PyTorch's Flight Recorder and answers of NCCL's RAS service.
//!
//! Both are whole files. A dump is a pickle or JSON, an answer is text or JSON; each is recognised by its beginning, kept
//! until its end and parsed then. Nothing of a pickle is run.

mod flight;
mod json;
mod pickle;
mod ras;
mod tree;

pub use flight::{Call, FlightDump, Frame, ProcessGroup};
pub use ras::{RasCommunicator, RasCounts, RasGroup, RasRank, RasStatus};

use crate::source::{Kind, Spot};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    FlightPickle,
    FlightJson,
    RasJson,
    RasText,
}

/// What was read from a file.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) dump: Option<FlightDump>,
    pub(crate) statuses: Vec<RasStatus>,
    pub(crate) problem: Option<Box<str>>,
}

/// The largest file that is kept: the dump of a full buffer has about 2 MB.
pub(crate) const LIMIT: usize = 64 << 20;

/// What a file is, by its beginning; `None` for any other file.
pub(crate) fn format(bytes: &[u8]) -> Option<Format> {
    let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|it| memchr::memmem::find(head, it.as_bytes()).is_some());
    if pickle::begins(head) {
        let words = ["pg_config", "pg_status", "collective_seq_id", "profiling_name"];
        return has(&words).then_some(Format::FlightPickle);
    }
    let text = without_answer(head);
    if text.starts_with(b"{") {
        if has(&["\"communicators_count\""]) {
            return Some(Format::RasJson);
        }
        return has(&["\"pg_config\"", "\"pg_status\"", "\"collective_seq_id\""])
            .then_some(Format::FlightJson);
    }
    let ras = has(&["Job summary\n===", "Job summary\r\n==="]) && !has(&[" NCCL INFO ", " NCCL WARN "]);
    ras.then_some(Format::RasText)
}

/// Whether a file that begins so is read as a whole.
pub fn is_whole(beginning: &[u8]) -> bool {
    format(beginning).is_some()
}

/// RAS answers `OK` to `set format json`.
fn without_answer(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    bytes.strip_prefix(b"OK").map_or(bytes, <[u8]>::trim_ascii_start)
}

/// Parses a whole file.
pub(crate) fn parse(format: Format, bytes: &[u8], spot: Spot) -> Recorded {
    let result = match format {
        Format::FlightPickle => pickle::parse(bytes)
            .and_then(|(tree, top)| flight::read(tree.value(top), spot))
            .map(|it| Recorded { dump: Some(it), ..Recorded::default() }),
        Format::FlightJson => json::parse(without_answer(bytes))
            .and_then(|(tree, top)| flight::read(tree.value(top), spot))
            .map(|it| Recorded { dump: Some(it), ..Recorded::default() }),
        Format::RasJson => json::parse(without_answer(bytes))
            .map(|(tree, top)| ras::from_json(tree.value(top), spot))
            .map(|it| Recorded { statuses: vec![it], ..Recorded::default() }),
        Format::RasText => Ok(Recorded { statuses: ras::from_text(bytes, spot), ..Recorded::default() }),
    };
    result.unwrap_or_else(|error| {
        let what = if format.kind() == Kind::FlightRecorder { "Flight Recorder dump" } else { "RAS status" };
        Recorded { problem: Some(format!("not a readable {what}: {error}").into()), ..Recorded::default() }
    })
}

impl Format {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::FlightPickle | Self::FlightJson => Kind::FlightRecorder,
            Self::RasJson | Self::RasText => Kind::Ras,
        }
    }
}

/// The rank in the name of a dump: PyTorch writes `nccl_trace_rank_3`, and the dump itself does not name its rank.
pub(crate) fn rank_of_file(name: &str) -> Option<u32> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.split('.').next().unwrap_or(name);
    let digits = name.len() - name.trim_end_matches(|it: char| it.is_ascii_digit()).len();
    name.get(name.len() - digits..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Format, format, rank_of_file};

    #[test]
    fn files_are_known_by_their_beginning() {
        let pickle = b"\x80\x02}q\x00(X\x09\x00\x00\x00pg_configq\x01";
        assert_eq!(format(pickle), Some(Format::FlightPickle));
        assert_eq!(format(b"{\"comm_lib_version\":\"\",\"pg_config\":{}}"), Some(Format::FlightJson));
        assert_eq!(format(b"OK\n{\n  \"communicators_count\": 1"), Some(Format::RasJson));
        assert_eq!(format(b"NCCL version 2.28.9\n\nJob summary\n===========\n"), Some(Format::RasText));
        for other in [
            &b"\x80\x02}q\x00X\x05\x00\x00\x00model"[..],
            b"{\"nccl_version\": 1}",
            b"Job summary: ok\n",
            b"",
        ] {
            assert_eq!(format(other), None);
        }
    }

    #[test]
    fn names_of_files_have_the_rank() {
        for (name, rank) in [
            ("/tmp/nccl_trace_rank_12", Some(12)),
            ("dump/nccl_trace_rank_3.json", Some(3)),
            ("trace", None),
            ("rank_99999999999", None),
        ] {
            assert_eq!(rank_of_file(name), rank, "{name}");
        }
    }
}

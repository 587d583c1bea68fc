//! PyTorch's Flight Recorder: the last collectives that a rank called, with their sizes, types and state.
//!
//! Source of the fields: PyTorch `torch/csrc/distributed/c10d/FlightRecorder.hpp`, versions 2.0 to 2.10 of the format.

use super::tree::Value;
use crate::source::{Quote, Spot};

/// The dump of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightDump {
    /// Its rank, by the name of the file.
    pub rank: Option<u32>,
    /// The process groups that it is in.
    pub groups: Vec<ProcessGroup>,
    /// What it called, oldest first.
    pub calls: Vec<Call>,
    /// The file, and in words what it holds.
    pub quote: Quote,
}

/// A process group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The same on all ranks.
    pub name: Box<str>,
    /// `default_pg`; empty where nobody gave one.
    pub description: Box<str>,
    /// Its ranks, as numbers of the whole job.
    pub ranks: Vec<u32>,
}

/// A call of a collective, a send or a receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The name of its process group.
    pub group: Box<str>,
    /// Counts the collectives of the group, from 1; for a send or a receive, those of its pair.
    pub sequence: u64,
    /// A send or a receive.
    pub point_to_point: bool,
    /// `all_reduce`, `send 0->1`
    pub operation: Box<str>,
    /// How many elements it gives and takes.
    pub input_elements: Option<u64>,
    /// How many elements it produces.
    pub output_elements: Option<u64>,
    /// `Float`
    pub types: Box<str>,
    /// It had not finished when the dump was written.
    pub waiting: bool,
    /// The line of the program that made the call.
    pub frame: Option<Frame>,
}

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its file.
    pub file: Box<str>,
    /// Its number.
    pub line: i64,
    /// The function.
    pub function: Box<str>,
}

/// More calls and ranks than a dump has.
const CALL_LIMIT: usize = 200_000;
const RANK_LIMIT: usize = 1_000_000;

pub(super) fn read(value: Value<'_>, spot: Spot) -> Result<FlightDump, String> {
    if !value.is_map() {
        return Err("is not a dict".to_owned());
    }
    let config = value.get("pg_config");
    let groups: Vec<ProcessGroup> = config
        .iter()
        .flat_map(|it| it.pairs())
        .map(|(name, it)| ProcessGroup {
            name: name.text().unwrap_or_default().into(),
            description: description(it.get("desc")),
            ranks: ranks(it.get("ranks").and_then(Value::text).unwrap_or_default()),
        })
        .collect();
    let status = value.get("pg_status");
    let enqueued = |id: i64| {
        let found = status?.get(&id.to_string())?;
        found.get("last_enqueued_collective")?.integer()
    };
    let entries = value.get("entries");
    let entries = entries.iter().flat_map(|it| it.items()).take(CALL_LIMIT);
    let calls: Vec<Call> = entries.map(|it| call(it, &enqueued)).collect();
    let text = match calls.last() {
        Some(last) => format!("Flight Recorder, last call: {}", last.describe()),
        None => "Flight Recorder, no calls".to_owned(),
    };
    let quote = Quote::new(spot, text.as_bytes());
    Ok(FlightDump { rank: None, groups, calls, quote })
}

fn call(it: Value<'_>, enqueued: &impl Fn(i64) -> Option<i64>) -> Call {
    let integer = |name: &str| it.get(name).and_then(Value::integer);
    let text = |name: &str| it.get(name).and_then(Value::text).unwrap_or_default();
    let number = |name: &str| integer(name).and_then(|it| u64::try_from(it).ok());
    let point_to_point = it.get("is_p2p").and_then(Value::bool).unwrap_or_default();
    // Before version 2.2 there was one number for both.
    let own = if point_to_point { "p2p_seq_id" } else { "collective_seq_id" };
    let sequence = number(own).or_else(|| number("seq_id")).unwrap_or_default();
    let group = it.get("process_group").and_then(|it| it.items().next()).and_then(Value::text);
    let id = integer("pg_id").unwrap_or(-1);
    // A call that is still on its way to the GPU has no event yet, which PyTorch takes for `completed`.
    let before_launch =
        !point_to_point && enqueued(id).is_some_and(|last| i64::try_from(sequence).is_ok_and(|it| it > last));
    let types: Vec<&str> =
        it.get("input_dtypes").iter().flat_map(|it| it.items()).take(8).filter_map(Value::text).collect();
    Call {
        group: group.map_or_else(|| id.to_string().into(), Into::into),
        sequence,
        point_to_point,
        operation: text("profiling_name").trim_start_matches("nccl:").into(),
        input_elements: elements(it.get("input_sizes")),
        output_elements: elements(it.get("output_sizes")),
        types: joined(&types),
        waiting: text("state") != "completed" || before_launch,
        frame: frame(it.get("frames")),
    }
}

impl Call {
    /// `all_reduce number 4 (65536 elements of Float)`
    pub fn describe(&self) -> String {
        let size = match (self.input_elements, &*self.types) {
            (Some(n), "") => format!(" ({n} elements)"),
            (Some(n), types) => format!(" ({n} elements of {types})"),
            (None, _) => String::new(),
        };
        format!("{} number {}{size}", self.operation, self.sequence)
    }
}

fn description(value: Option<Value<'_>>) -> Box<str> {
    let text = value.and_then(Value::text).unwrap_or_default();
    if text == "undefined" { Box::default() } else { text.into() }
}

/// Different types, in their order.
fn joined(types: &[&str]) -> Box<str> {
    let mut kept: Vec<&str> = Vec::new();
    for it in types {
        if !kept.contains(it) {
            kept.push(it);
        }
    }
    kept.join(", ").into()
}

/// `[[4, 256], [8]]` has 1032.
fn elements(sizes: Option<Value<'_>>) -> Option<u64> {
    let mut sum: u64 = 0;
    for shape in sizes?.items() {
        let mut product: u64 = 1;
        for it in shape.items() {
            product = product.checked_mul(u64::try_from(it.integer()?).ok()?)?;
        }
        sum = sum.checked_add(product)?;
    }
    Some(sum)
}

/// `[0, 1, 2, 3]`
fn ranks(text: &str) -> Vec<u32> {
    let numbers = text.split(|it: char| !it.is_ascii_digit());
    numbers.filter_map(|it| it.parse().ok()).take(RANK_LIMIT).collect()
}

/// The innermost line that is not PyTorch's own.
fn frame(frames: Option<Value<'_>>) -> Option<Frame> {
    let all: Vec<Frame> = frames?
        .items()
        .take(256)
        .map(|it| Frame {
            file: it.get("filename").and_then(Value::text).unwrap_or_default().into(),
            line: it.get("line").and_then(Value::integer).unwrap_or_default(),
            function: it.get("name").and_then(Value::text).unwrap_or_default().into(),
        })
        .collect();
    let own = all.iter().position(|it| !it.file.contains("/torch/"));
    all.into_iter().nth(own.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::read;
    use crate::source::Spot;

    #[test]
    fn a_dump_is_read() {
        let text = br#"{"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": {"last_enqueued_collective": "3"}},
            "entries": [
              {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 3, "profiling_name": "nccl:all_reduce",
               "input_sizes": [[4, 256], [8]], "input_dtypes": ["Float", "Float"], "output_sizes": [[4, 256]], "state": "scheduled",
               "frames": [{"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 1}, {"name": "f", "filename": "a.py", "line": 7}]},
              {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 4, "profiling_name": "nccl:all_reduce", "state": "completed"}]}"#;
        let (tree, top) = json::parse(text).unwrap();
        let dump = read(tree.value(top), Spot { region: 0, line: 0 }).unwrap();
        assert_eq!(dump.groups[0].ranks, [0, 1]);
        let call = &dump.calls[0];
        assert_eq!(call.describe(), "all_reduce number 3 (1032 elements of Float)");
        assert_eq!(call.frame.as_ref().map(|it| (&*it.file, it.line)), Some(("a.py", 7)));
        assert!(call.waiting && dump.calls[1].waiting, "number 4 was not enqueued yet");
    }

    #[test]
    fn anything_else_gives_nothing_or_an_error() {
        for (text, ok) in [("[]", false), ("{}", true), ("{\"entries\": [1, null, {}]}", true)] {
            let (tree, top) = json::parse(text.as_bytes()).unwrap();
            assert_eq!(read(tree.value(top), Spot { region: 0, line: 0 }).is_ok(), ok, "{text}");
        }
    }
}

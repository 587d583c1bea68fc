//! nccl-tests: its tables of every age, and its JSON.
//!
//! ```text
//! # nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
//! #  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
//! #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
//!         1024           256     float     sum      -1    28.72    0.04    0.07      0    27.37    0.04    0.07      0
//! # Out of bounds values : 0 OK
//! # Avg bus bandwidth    : 3.34
//! ```

use fabric::{Collective, Version};
use serde_json::Value;

use crate::scan::word_after;
use crate::source::Quote;

/// One run of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct NcclTests {
    /// `all_reduce_perf`, where the output names it.
    pub program: Option<Box<str>>,
    /// The GPUs.
    pub devices: Vec<Device>,
    /// GPUs that each thread uses (`nGpus`).
    pub n_gpus: Option<u32>,
    /// The release of the NCCL library that ran, where the header states it.
    pub nccl: Option<Version>,
    /// Whether the output reaches the head of its table: by then all ranks are connected.
    pub table: bool,
    /// The sizes that the header announces.
    pub sizes: Option<Sizes>,
    /// The measurements.
    pub rows: Vec<Row>,
    /// `# Avg bus bandwidth`, in GB/s.
    pub average_bus_bandwidth: Option<f64>,
    /// `# Out of bounds values`
    pub out_of_bounds: Option<u64>,
    /// The first line.
    pub quote: Quote,
    /// Rows beyond what is kept.
    pub dropped: u64,
}

/// Sizes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The first, in bytes.
    pub min: u64,
    /// None is larger.
    pub max: u64,
    /// From one to the next.
    pub step: Step,
}

/// From one size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Times this.
    Factor(u64),
    /// Plus so many bytes.
    Bytes(u64),
}

impl Sizes {
    /// Whether a row of this size is the last one. Sizes that the ranks do not divide are rounded down by a little.
    fn is_last(self, size: u64) -> bool {
        let Self { min, max, step } = self;
        match step {
            Step::Factor(by) if by > 1 && min > 0 => {
                let mut last = min;
                while let Some(next) = last.checked_mul(by).filter(|it| *it <= max) {
                    last = next;
                }
                size > last / by
            }
            Step::Bytes(by) if by > 0 && max >= min => {
                let last = max - (max - min) % by;
                size > last.saturating_sub(by)
            }
            Step::Factor(_) | Step::Bytes(_) => true,
        }
    }
}

/// A GPU of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The rank.
    pub rank: u32,
    /// The process.
    pub pid: u32,
    /// The host.
    pub host: Box<str>,
    /// The CUDA device.
    pub device: u32,
    /// The model.
    pub name: Box<str>,
}

/// One size.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bytes.
    pub size: u64,
    /// Elements.
    pub count: u64,
    /// The element type.
    pub datatype: Box<str>,
    /// Out of place.
    pub out_of_place: Option<Timing>,
    /// In place.
    pub in_place: Option<Timing>,
    /// The line.
    pub quote: Quote,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Microseconds.
    pub time: f64,
    /// GB/s of the algorithm.
    pub algbw: f64,
    /// GB/s of the bus.
    pub busbw: f64,
    /// Wrong elements, where they were counted.
    pub wrong: Option<f64>,
}

impl NcclTests {
    /// Whether the run checked its results and some are wrong. Old releases print an error of rounding where new ones count wrong
    /// elements: their last line decides.
    pub fn is_wrong(&self) -> bool {
        let timings = || self.rows.iter().flat_map(|it| [it.out_of_place, it.in_place]).flatten();
        self.out_of_bounds
            .map_or_else(|| timings().filter_map(|it| it.wrong).any(|it| it >= 1.0), |it| it > 0)
    }

    /// Whether it ran to its end: it prints an average, or whole rows of all sizes that it announced.
    pub fn has_ended(&self) -> bool {
        let whole = |row: &Row| {
            let columns = |it: &Row| {
                let wrong = |it: Option<Timing>| it.and_then(|it| it.wrong).is_some();
                (wrong(it.out_of_place), it.in_place.is_some(), wrong(it.in_place))
            };
            match &self.rows[..] {
                [first, _, ..] => columns(first) == columns(row),
                _ => row.in_place.is_some(),
            }
        };
        let last = self.rows.last().zip(self.sizes);
        self.average_bus_bandwidth.is_some()
            || last.is_some_and(|(row, it)| it.is_last(row.size) && whole(row))
    }

    /// What was run: as the output names it, or as its columns show. The factor between the two bandwidths tells an all-reduce from a
    /// reduce-scatter by the number of ranks.
    pub fn collective(&self) -> Option<Collective> {
        let named = self.program.as_deref().and_then(|it| it.rsplit('/').next()?.parse().ok());
        named.or_else(|| {
            let ranks = u32::try_from(self.devices.len()).ok()?;
            let fast = |it: &Row| it.out_of_place.or(it.in_place).filter(|it| it.algbw > 1.0);
            let (row, timing) = self.rows.iter().find_map(|it| Some((it, fast(it)?)))?;
            let mut words = row.quote.text.split_whitespace().skip(3);
            let (operation, root) = (words.next()?, words.next()?);
            let fits =
                |it: &Collective| (timing.busbw / timing.algbw / it.bus_factor(ranks) - 1.0).abs() < 0.02;
            let sums = operation == "sum" && root == "-1";
            [Collective::AllReduce, Collective::ReduceScatter].into_iter().find(|it| sums && fits(it))
        })
    }
}

const ROW_LIMIT: usize = 100_000;

pub(super) fn is_line(line: &[u8]) -> bool {
    let inner = line.trim_ascii_start();
    match inner.first() {
        Some(b'#') => {
            let rest = inner.get(1..).unwrap_or_default().trim_ascii_start();
            rest.is_empty() || HEADERS.iter().any(|it| rest.starts_with(it.as_bytes()))
        }
        Some(b'0'..=b'9') => row(inner).is_some(),
        Some(b'n') => inner.starts_with(b"nThread ") && memchr::memmem::find(inner, b" nGpus ").is_some(),
        Some(b'R') => inner.starts_with(b"Rank ") && memchr::memmem::find(inner, b" Pid ").is_some(),
        Some(b'U') => inner.starts_with(b"Using devices"),
        Some(b'B') => inner.starts_with(b"Blocking Enabled: wait"),
        _ => false,
    }
}

static HEADERS: &[&str] = &[
    "nThread ",
    "Rank ",
    "Using devices",
    "size ",
    "(B)",
    "out-of-place",
    "in-place",
    "Out of bounds values",
    "Avg bus bandwidth",
    "nccl-tests version",
    "Collective test starting",
    "Collective test concluded",
    "Reducing maxBytes",
    "GPU memory usage",
    "error:",
    "Testing ",
    "Blocking Enabled",
    "Stats",
    "Command",
    "warmup",
];

pub(super) fn take(tests: &mut Vec<NcclTests>, open: &mut bool, line: &str, quote: &Quote) {
    let inner = line.trim_start().trim_start_matches('#').trim_start();
    // A new header begins a new run.
    let header = inner.starts_with("nThread ") || inner.starts_with("nccl-tests version");
    let begun = tests
        .last()
        .is_some_and(|it| !it.rows.is_empty() || it.average_bus_bandwidth.is_some() || it.n_gpus.is_some());
    // A `#` alone belongs to a table, and begins none.
    if !*open && inner.is_empty() {
        return;
    }
    if !*open || (header && begun) {
        tests.push(NcclTests {
            program: None,
            devices: Vec::new(),
            n_gpus: None,
            nccl: None,
            table: false,
            sizes: None,
            rows: Vec::new(),
            average_bus_bandwidth: None,
            out_of_bounds: None,
            quote: quote.clone(),
            dropped: 0,
        });
        *open = true;
    }
    let Some(run) = tests.last_mut() else { return };
    if header {
        run.n_gpus = word_after(inner, "nGpus ").and_then(|it| it.parse().ok()).or(run.n_gpus);
        run.nccl = word_after(inner, "nccl-library=").and_then(release).or(run.nccl);
        run.sizes = sizes(inner).or(run.sizes);
    } else if let Some(rest) = inner.strip_prefix("Reducing maxBytes to ") {
        let max = rest.split_whitespace().next().and_then(|it| it.parse().ok());
        run.sizes = run.sizes.map(|it| Sizes { max: max.unwrap_or(it.max), ..it });
    } else if let Some(rest) = inner.strip_prefix("Collective test starting: ") {
        run.program = Some(rest.trim().into());
    } else if inner.starts_with("Rank ") {
        if run.devices.len() < ROW_LIMIT {
            run.devices.extend(device(inner));
        }
    } else if inner.starts_with("size ") {
        run.table = true;
    } else if inner.starts_with("Out of bounds values") {
        run.out_of_bounds = word_after(inner, ": ").and_then(|it| it.parse().ok());
    } else if inner.starts_with("Avg bus bandwidth") {
        run.average_bus_bandwidth = word_after(inner, ": ").and_then(|it| it.parse().ok());
    } else if let Some((size, count, datatype, out_of_place, in_place)) = row(line.trim_start().as_bytes()) {
        run.table = true;
        if run.rows.len() < ROW_LIMIT {
            run.rows.push(Row { size, count, datatype, out_of_place, in_place, quote: quote.clone() });
        } else {
            run.dropped += 1;
        }
    }
}

/// `minBytes 8 maxBytes 134217728 step: 2(factor)`, or `step: 1048576(bytes)`.
fn sizes(header: &str) -> Option<Sizes> {
    let (by, unit) = word_after(header, "step: ")?.split_once('(')?;
    let by = by.parse().ok()?;
    Some(Sizes {
        min: word_after(header, "minBytes ")?.parse().ok()?,
        max: word_after(header, "maxBytes ")?.parse().ok()?,
        step: if unit.starts_with("factor") { Step::Factor(by) } else { Step::Bytes(by) },
    })
}

/// NCCL's number for a release (`NCCL_VERSION` in nccl.h): 22807 is 2.28.7, and up to 2.8 three digits follow the first: 2708 is 2.7.8.
fn release(number: &str) -> Option<Version> {
    let number: u32 = number.parse().ok()?;
    let part = |it: u32| u16::try_from(it).ok();
    let scale = if number < 10_000 { 1000 } else { 10_000 };
    (number >= 1000).then_some(())?;
    Some(Version::new(part(number / scale)?, part(number % scale / 100)?, part(number % 100)?))
}

/// `Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3`
fn device(line: &str) -> Option<Device> {
    let name = line.split_once(']').map_or("", |it| it.1);
    Some(Device {
        rank: word_after(line, "Rank ")?.parse().ok()?,
        pid: word_after(line, "Pid ")?.parse().ok()?,
        host: word_after(line, " on ")?.into(),
        device: word_after(line, "device ")?.parse().ok()?,
        name: name.trim().into(),
    })
}

type ParsedRow = (u64, u64, Box<str>, Option<Timing>, Option<Timing>);

/// A row of any table: `size count type [redop] [root] (time algbw busbw wrong) x 2 [...]`.
fn row(line: &[u8]) -> Option<ParsedRow> {
    let text = str::from_utf8(line.get(..line.len().min(400))?).ok()?;
    let mut words = text.split_ascii_whitespace();
    let size = words.next()?.parse().ok()?;
    let count = words.next()?.parse().ok()?;
    let datatype = words.next()?;
    if !TYPES.contains(&datatype) {
        return None;
    }
    let rest: Vec<&str> = words.collect();
    // The operation and the root are words or whole numbers; the times begin after them.
    let mut start = 0;
    if rest.get(start).is_some_and(|it| it.starts_with(|c: char| c.is_ascii_alphabetic()) && *it != "N/A") {
        start += 1;
    }
    let left = rest.len() - start;
    if rest.get(start).is_some_and(|it| it.parse::<i32>().is_ok() || *it == "none") && left % 4 == 1 {
        start += 1;
    }
    let timing = |from: usize| -> Option<Timing> {
        Some(Timing {
            time: rest.get(from)?.parse().ok()?,
            algbw: rest.get(from + 1)?.parse().ok()?,
            busbw: rest.get(from + 2)?.parse().ok()?,
            wrong: rest.get(from + 3).and_then(|it| it.parse().ok()),
        })
    };
    let out_of_place = timing(start);
    let in_place = timing(start + 4);
    (out_of_place.is_some()).then(|| (size, count, datatype.into(), out_of_place, in_place))
}

static TYPES: &[&str] = &[
    "int8", "char", "uint8", "int32", "int", "uint32", "int64", "uint64", "half", "float16", "bfloat16",
    "float", "double", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2",
];

/// Reads the document written by `-J`.
pub(super) fn from_json(text: &str, quote: &Quote) -> Result<NcclTests, serde_json::Error> {
    let value: Value = serde_json::from_str(text)?;
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str().and_then(|it| it.parse().ok()));
    let whole = |value: &Value| value.as_u64().or_else(|| value.as_str().and_then(|it| it.parse().ok()));
    let timing = |value: &Value| {
        Some(Timing {
            time: number(&value["time"]).or_else(|| number(&value["cpu_time"]))?,
            algbw: number(&value["alg_bw"])?,
            busbw: number(&value["bus_bw"])?,
            wrong: number(&value["nwrong"]),
        })
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let devices = list(&value["config"]["devices"]);
    let devices = devices.iter().filter_map(|it| {
        Some(Device {
            rank: u32::try_from(whole(&it["rank"])?).ok()?,
            pid: u32::try_from(whole(&it["pid"])?).ok()?,
            host: it["hostname"].as_str()?.into(),
            device: u32::try_from(whole(&it["device"])?).ok()?,
            name: it["device_info"].as_str().unwrap_or_default().into(),
        })
    });
    let rows = list(&value["results"]);
    let rows = rows.iter().take(ROW_LIMIT).filter_map(|it| {
        Some(Row {
            size: whole(&it["size"])?,
            count: whole(&it["count"])?,
            datatype: it["type"].as_str().unwrap_or_default().into(),
            out_of_place: timing(&it["out_of_place"]),
            in_place: timing(&it["in_place"]),
            quote: Quote { spot: quote.spot, text: format!("size {}", it["size"]).into() },
        })
    });
    Ok(NcclTests {
        program: value["args"][0].as_str().map(|it| it.rsplit('/').next().unwrap_or(it).into()),
        devices: devices.collect(),
        n_gpus: whole(&value["config"]["ngpus"]).and_then(|it| u32::try_from(it).ok()),
        nccl: value["nccl_version"].as_str().and_then(Version::parse),
        table: value["results"].is_array(),
        sizes: None,
        rows: rows.collect(),
        average_bus_bandwidth: number(&value["average_bus_bandwidth"]["bandwidth"]),
        out_of_bounds: whole(&value["out_of_bounds"]["count"]),
        quote: Quote { spot: quote.spot, text: "JSON of nccl-tests".into() },
        dropped: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::{from_json, is_line, release, row, sizes};
    use crate::source::{Quote, Spot};

    #[test]
    fn rows_of_every_age() {
        for (line, busbw) in [
            ("1048576 262144 float sum -1 121.8 8.61 16.14 0 126.6 8.28 15.53 0", 16.14),
            ("8388608 262144 float 1209.9 6.93 6.07 0e+00 1223.4 6.86 6.00 0e+00", 6.07),
            ("8 2 float 0 45.82 0.00 0.00 N/A 38.17 0.00 0.00 N/A", 0.0),
            ("1073741824 33554432 float none -1 172290 6.23 5.45 0 177817 6.04 5.28 0", 5.45),
            ("8 2 float sum 0 45.82 0.00 0.25 N/A 38.17 0.00 0.00 N/A", 0.25),
        ] {
            let it = row(line.as_bytes()).expect(line);
            let timing = it.3.expect(line);
            assert!((timing.busbw - busbw).abs() < 1e-9, "{line}: {timing:?}");
            assert!(it.4.is_some(), "{line}");
        }
    }

    #[test]
    fn the_last_size() {
        let head = "nThread 1 nGpus 1 minBytes 8 maxBytes 1000 step: ";
        for (step, size, last) in [
            ("2(factor)", 512, true),
            ("2(factor)", 504, true),
            ("2(factor)", 256, false),
            ("100(bytes)", 908, true),
            ("100(bytes)", 808, false),
            ("0(bytes)", 8, true),
        ] {
            let sizes = sizes(&format!("{head}{step} warmup iters: 5")).expect(step);
            assert_eq!(sizes.is_last(size), last, "{step} {size}");
        }
        assert_eq!(sizes("nThread 1 nGpus 1"), None);
    }

    #[test]
    fn releases_by_their_number() {
        let shown = |it: &str| release(it).map(|it| it.to_string());
        assert_eq!(shown("22807").as_deref(), Some("2.28.7"));
        assert_eq!(shown("2708").as_deref(), Some("2.7.8"));
        assert_eq!((shown("0"), shown("x"), shown("99999999999")), (None, None, None));
    }

    #[test]
    fn other_lines_are_no_rows() {
        for line in
            ["12 monkeys", "1 2 3 4 5 6 7 8 9", "  4 GPUs float", "# comment of a script", "2024 10 float"]
        {
            assert!(!is_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn json() {
        let text = r#"{"version":3,"start_time":"x","args":["./all_reduce_perf","-b","8"],"nccl_version":"2.28.9","config":{"ngpus":1,
            "devices":[{"rank":0,"group":0,"pid":12,"hostname":"n1","device":0,"device_hex":"0x8d","device_info":"NVIDIA H100"}]},
            "results":[{"size":8,"count":2,"type":"float","redop":"sum","root":"-1",
              "out_of_place":{"time":12.5,"alg_bw":0.1,"bus_bw":0.2,"nwrong":"0"},"in_place":null}],
            "out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":0.2,"okay":"true"}}"#;
        let quote = Quote { spot: Spot { region: 0, line: 0 }, text: "".into() };
        let run = from_json(text, &quote).unwrap();
        assert_eq!(run.program.as_deref(), Some("all_reduce_perf"));
        assert_eq!((run.rows.len(), run.devices.len()), (1, 1));
        assert_eq!(run.nccl.map(|it| it.to_string()).as_deref(), Some("2.28.9"));
        assert_eq!(run.average_bus_bandwidth, Some(0.2));
        assert!(from_json("{", &quote).is_err());
    }
}

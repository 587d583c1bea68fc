//! A record read from JSON: plumb's own, or the file that nccl-tests writes with `-J`.

use serde_json::Value;

use crate::record::{Config, Measure, Record, Row};
use crate::statistics::{median, quantile};

/// More results than anyone compares.
const MOST: usize = 20_000;

/// Reads a record; the error says what is wrong with the text.
pub fn read(text: &str) -> Result<Record, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    match value["schema"].as_str() {
        _ if value["results"].as_array().is_some_and(|it| it.len() > MOST) => {
            Err(format!("has more than {MOST} results"))
        }
        Some("plumb.bench/1") => {
            serde_json::from_value(value).map_err(|error| format!("is damaged: {error}"))
        }
        Some(other) if other.starts_with("plumb.bench/") => {
            Err(format!("has the schema {other}, which is newer than this plumb"))
        }
        Some(other) => Err(format!("has the schema {other}: give the JSON of plumb bench")),
        None if value["results"].is_array() => nccl_tests(&value),
        None => Err("is not a result: give the JSON of plumb bench, or that of nccl-tests -J".to_owned()),
    }
}

/// The JSON of nccl-tests.
fn nccl_tests(value: &Value) -> Result<Record, String> {
    let program = value["args"][0].as_str().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let number = |it: &Value| it.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
    let times = |it: &Value| it.as_array().map(|it| it.iter().filter_map(number).collect::<Vec<f64>>());
    let measure = |row: &Value, name: &str| {
        let it = &row[name];
        let time = number(&it["time"]).or_else(|| number(&it["cpu_time"]))?;
        let samples = times(&row[format!("{name}_per_iter")]["times_us"]).unwrap_or_else(|| vec![time]);
        Some(Measure {
            time_us: time,
            algorithm_bandwidth: number(&it["alg_bw"]).unwrap_or_default(),
            bus_bandwidth: number(&it["bus_bw"]).unwrap_or_default(),
            wrong: None,
            iterations: 0,
            median_us: median(&samples),
            p10_us: quantile(&samples, 0.1),
            p99_us: quantile(&samples, 0.99),
            samples_us: samples,
            longest_us: Vec::new(),
            ranks_us: Vec::new(),
            slowest_rank: None,
            slowest_lag_percent: 0.0,
            repeats_us: Vec::new(),
        })
    };
    let row = |it: &Value| {
        let root = it["root"].as_str().and_then(|it| it.trim().parse().ok());
        Some(Row {
            bytes: it["size"].as_u64()?,
            count: it["count"].as_u64()?,
            data_type: it["type"].as_str()?.chars().take(20).collect(),
            operation: it["redop"]
                .as_str()
                .filter(|it| *it != "none")
                .map(|it| it.chars().take(20).collect()),
            root,
            cycle: 0,
            time: 0,
            out_of_place: measure(it, "out_of_place"),
            in_place: measure(it, "in_place"),
            expected: None,
        })
    };
    let rows = value["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let results: Option<Vec<Row>> = rows.iter().map(row).collect();
    let collective: fabric::Collective =
        program.parse().map_err(|_| "does not say which collective it is of".to_owned())?;
    let mut record = Record::begun(collective, Config::default(), None, "", &[]);
    record.results = results.ok_or("has a row without its size, count or type")?;
    record.ranks = value["config"]["devices"].as_array().map_or(0, Vec::len);
    Ok(record)
}

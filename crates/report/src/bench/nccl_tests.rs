//! The JSON that nccl-tests writes with `-J`, in its shape: version 3. The environment, which it dumps whole, is left out.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::time::date;
use bench::Record;
use bench::record::{Measure, Row};

/// Writes it.
pub fn nccl_tests(bench: &Record, arguments: &[String], out: &mut impl Write) -> io::Result<()> {
    let config = &bench.config;
    // nccl-tests writes booleans as strings.
    let word = |it: bool| if it { "true" } else { "false" };
    let devices: Vec<Value> = bench
        .devices
        .iter()
        .map(|it| {
            json!({
                "rank": it.rank, "group": 0, "pid": it.pid, "hostname": it.host, "device": it.device,
                "device_hex": it.bus, "device_info": it.name,
            })
        })
        .collect();
    let mut configuration = json!({
        "nthreads": 1, "ngpus": 1, "minimum_bytes": config.minimum_bytes, "maximum_bytes": config.maximum_bytes,
        "warmup_iters": config.warm_up, "iterations": config.iterations.unwrap_or(bench::LEAST_ITERATIONS),
        "aggregated_iterations": config.aggregate, "validation": config.check, "graph": 0,
        "blocking_collectives": word(config.blocking), "per_iter_timing": word(config.per_iteration),
        "per_iter_skip": config.skip, "parallel_init": "false", "devices": devices,
    });
    match config.step_factor {
        Some(it) => configuration["step_factor"] = it.into(),
        None => configuration["step_bytes"] = config.step_bytes.into(),
    }
    let results: Vec<Value> =
        bench.results.iter().map(|it| row(it, config.per_iteration, config.skip)).collect();
    let wrong = bench.wrong.unwrap_or_default();
    let all = json!({
        "version": 3, "start_time": date(bench.started), "args": arguments, "env": [],
        "nccl_version": release(&bench.version), "config": configuration, "results": results,
        "out_of_bounds": { "count": wrong, "okay": word(wrong == 0) },
        "average_bus_bandwidth": { "bandwidth": bench.average, "okay": "unchecked" },
        "errors": [], "end_time": date(bench.ended),
    });
    crate::json::write_json(&all, out)
}

fn row(row: &Row, per_iteration: bool, skip: usize) -> Value {
    let measure = |it: &Measure| {
        json!({
            "time": it.time_us, "alg_bw": it.algorithm_bandwidth, "bus_bw": it.bus_bandwidth, "nwrong": it.wrong,
        })
    };
    let iterations = row.out_of_place.as_ref().or(row.in_place.as_ref()).map_or(0, |it| it.iterations);
    let mut all = json!({
        "size": row.bytes, "count": row.count, "type": row.data_type,
        "redop": row.operation.as_deref().unwrap_or("none"),
        "root": row.root.map_or_else(|| "-1".to_owned(), |it| it.to_string()),
        "out_of_place": row.out_of_place.as_ref().map(measure), "in_place": row.in_place.as_ref().map(measure),
        "actual_iterations": iterations, "experiment_name": "",
    });
    if per_iteration {
        for (name, it) in [("out_of_place_per_iter", &row.out_of_place), ("in_place_per_iter", &row.in_place)]
        {
            if let Some(it) = it {
                all[name] = per_iteration_of(it, skip);
            }
        }
    }
    all
}

fn per_iteration_of(measure: &Measure, skip: usize) -> Value {
    use bench::statistics::{mean, nearest_rank, quantile, variation};
    let times = measure.longest_us.get(skip..).unwrap_or_default();
    json!({
        "skipped_iterations": skip, "min_us": quantile(times, 0.0), "max_us": quantile(times, 1.0),
        "avg_us": mean(times), "p50_us": nearest_rank(times, 50), "p95_us": nearest_rank(times, 95),
        "p99_us": nearest_rank(times, 99), "stdev_us": variation(times) / 100.0 * mean(times),
        "cv_pct": variation(times), "times_us": measure.longest_us,
    })
}

/// `NCCL 2.28.9` as NCCL counts: 22809. 0 where it is not NCCL.
fn release(version: &str) -> u32 {
    let Some(text) = version.strip_prefix("NCCL ") else { return 0 };
    let mut parts = text.split(|it: char| !it.is_ascii_digit()).map_while(|it| it.parse::<u32>().ok());
    let mut next = || parts.next().unwrap_or_default().min(9999);
    let (major, minor, patch) = (next(), next(), next());
    major * 10_000 + minor * 100 + patch
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn releases_as_nccl_counts() {
        assert_eq!(
            [release("NCCL 2.28.9"), release("NCCL 2.27.3+cuda12"), release("plumb 0.1.0")],
            [22809, 22703, 0]
        );
    }
}

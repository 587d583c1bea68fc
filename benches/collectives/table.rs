//! Tables for people and JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::case::Target;
use crate::figures::{Figures, Row, Times};
use crate::limits::SWAPPED;

/// The machine and the versions, in a sentence or two.
pub(crate) fn machine(versions: &[(String, String)]) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|it| it.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".into());
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kib: f64 = memory.trim_end_matches("kB").trim().parse().unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // A virtual machine's model name may not tell one processor from another; its caches do.
    let cache =
        |level: u32| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{level}/size")).trim().to_owned();
    let peers: Vec<_> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!(
        "{cores} cores of {model} (L2 {}, L3 {}), {:.0} GiB, Linux {}; plumb {}; {}.",
        cache(2),
        cache(3),
        kib / 1024.0 / 1024.0,
        read("/proc/sys/kernel/osrelease").trim(),
        env!("CARGO_PKG_VERSION"),
        peers.join(", ")
    )
}

/// All tables of a case.
pub(crate) fn markdown(figures: &Figures) -> String {
    let mut out = format!("### {}\n\n", figures.case.title);
    for comparison in &figures.case.comparisons {
        compare(&mut out, comparison.title, &figures.rows(comparison), figures.case.memory);
    }
    everyone(&mut out, figures);
    limits(&mut out, figures);
    let (others, stolen) = (figures.load.others() * 100.0, figures.load.stolen() * 100.0);
    let _ = writeln!(
        out,
        "Meanwhile other processes used {others:.0} % of the processors and the hypervisor took {stolen:.0} %."
    );
    for failure in &figures.failures {
        let _ = writeln!(out, "\nFailed: {failure}");
    }
    out
}

fn compare(out: &mut String, title: &str, rows: &[Row], memory: bool) {
    let bound = if memory { " of the bound |" } else { "" };
    let _ = writeln!(
        out,
        "| {title} | plumb | p10 | best peer | p10 | | time | speed | bus bandwidth |{bound} target | |"
    );
    let _ = writeln!(
        out,
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |{} --- | --- |",
        if memory { " --- |" } else { "" }
    );
    for row in rows {
        let share = row.of_bound.map_or(String::new(), |it| format!("{:.0} %", it * 100.0));
        let share = if memory { format!(" {share} |") } else { String::new() };
        let target = match row.target {
            Some(Target::Time(most)) => format!("time at most {most:.1}"),
            Some(Target::Speed(least)) => format!("speed at least {least:.1}"),
            Some(Target::Bound(least)) => format!("{:.0} % of the bound", least * 100.0),
            None => String::new(),
        };
        let verdict = match row.met() {
            Some(true) => "met",
            Some(false) => "not met",
            None => "",
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} GB/s |{share} {target} | {verdict} |",
            size(row.bytes),
            time(row.own.0),
            time(row.own.1),
            time(row.peer.0),
            time(row.peer.1),
            row.peer_name,
            row.own.0 / row.peer.0,
            row.peer.0 / row.own.0,
            row.bus_bandwidth / 1e9,
        );
    }
    out.push('\n');
}

/// The median and tenth percentile of everyone at every size.
fn everyone(out: &mut String, figures: &Figures) {
    let _ = write!(out, "| median, p10 |");
    for engine in &figures.case.engines {
        let _ = write!(out, " {} |", engine.name);
    }
    let _ = writeln!(out, "\n| --- |{}", " --- |".repeat(figures.case.engines.len()));
    for bytes in &figures.sizes {
        let _ = write!(out, "| {} |", size(*bytes));
        for place in 0..figures.case.engines.len() {
            match figures.times(place, *bytes).and_then(Times::pair) {
                Some((median, p10)) => {
                    let _ = write!(out, " {}, {} |", time(median), time(p10));
                }
                None => out.push_str(" failed |"),
            }
        }
        out.push('\n');
    }
    out.push('\n');
}

fn limits(out: &mut String, figures: &Figures) {
    let limits = &figures.limits;
    let all = format!("copy past the caches, {} threads", limits.threads);
    let [small, large] = SWAPPED;
    let small = format!("{} both ways at once over TCP, bare", size(small));
    let large = format!("{} both ways at once over TCP, twice, bare", size(large / 2));
    let rows = [
        ("copy past the caches, 1 thread", &limits.copy_one, rate as fn(f64) -> String),
        (&all, &limits.copy_all, rate),
        ("one word to another core, polling", &limits.hop, time),
        ("8 B one way over TCP, polling", &limits.tcp, time),
        (&small, &limits.swap_small, time),
        (&large, &limits.swap_large, time),
    ];
    let _ = writeln!(out, "| limit of the machine | median | p10 |\n| --- | --- | --- |");
    for (name, times, format) in rows {
        if let Some((median, p10)) = times.pair() {
            let _ = writeln!(out, "| {name} | {} | {} |", format(median), format(p10));
        }
    }
    out.push('\n');
}

/// Every figure.
pub(crate) fn json(versions: &[(String, String)], results: &[Figures]) -> Value {
    let peers: Vec<_> = versions.iter().map(|(name, it)| json!({"name": name, "version": it})).collect();
    let cases: Vec<_> = results.iter().map(case).collect();
    json!({ "machine": machine(versions), "peers": peers, "cases": cases })
}

fn case(figures: &Figures) -> Value {
    let mut engines = Vec::new();
    for (place, engine) in figures.case.engines.iter().enumerate() {
        for bytes in &figures.sizes {
            let Some(times) = figures.times(place, *bytes) else { continue };
            engines.push(json!({
                "engine": engine.name, "own": engine.own, "bytes": bytes, "batches": times.count(),
                "median_s": times.quantile(0.5), "p10_s": times.quantile(0.1), "p90_s": times.quantile(0.9),
            }));
        }
    }
    let mut comparisons = Vec::new();
    for comparison in &figures.case.comparisons {
        for row in figures.rows(comparison) {
            comparisons.push(json!({
                "of": comparison.title, "bytes": row.bytes, "best_peer": row.peer_name,
                "time_ratio": row.own.0 / row.peer.0, "time_ratio_p10": row.own.1 / row.peer.1,
                "of_bound": row.of_bound, "met": row.met(),
            }));
        }
    }
    let limit = |it: &Times| json!({"median": it.quantile(0.5), "p10": it.quantile(0.1)});
    json!({
        "case": figures.case.name, "ranks": figures.case.ranks,
        "results": engines, "comparisons": comparisons,
        "limits": {
            "copy_one_s_per_byte": limit(&figures.limits.copy_one),
            "copy_all_s_per_byte": limit(&figures.limits.copy_all),
            "hop_s": limit(&figures.limits.hop), "tcp_s": limit(&figures.limits.tcp),
            "tcp_swap_512_s": limit(&figures.limits.swap_small), "tcp_swap_1m_s": limit(&figures.limits.swap_large),
        },
        "others": figures.load.others(), "stolen": figures.load.stolen(), "failures": figures.failures,
    })
}

/// `8 B`, `32 KiB`.
fn size(bytes: usize) -> String {
    match bytes {
        it if it >= 1 << 20 => format!("{} MiB", it >> 20),
        it if it >= 1 << 10 => format!("{} KiB", it >> 10),
        it => format!("{it} B"),
    }
}

/// Seconds a byte as a rate: `17.6 GB/s`.
fn rate(seconds: f64) -> String {
    format!("{:.1} GB/s", 1e-9 / seconds)
}

/// Three digits: `0.24 us`, `13.8 ms`.
fn time(seconds: f64) -> String {
    let (value, unit) = if seconds < 1e-3 { (seconds * 1e6, "us") } else { (seconds * 1e3, "ms") };
    match value {
        it if it < 10.0 => format!("{it:.2} {unit}"),
        it if it < 100.0 => format!("{it:.1} {unit}"),
        it => format!("{it:.0} {unit}"),
    }
}

//! How far the model is from published measurements: `cargo run -p forecast --example accuracy > docs/accuracy.md`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use fabric::{Collective, Settings};
use forecast::Cluster;
use serde::Deserialize;

/// One published measurement.
#[derive(Debug, Deserialize)]
struct Point {
    source: String,
    cluster: String,
    collective: String,
    bytes: u64,
    #[serde(rename = "busbw_GBps")]
    measured: f64,
    url: String,
    /// Why it should be found low, where its authors or its settings say so.
    note: Option<String>,
}

/// What became of it.
struct Outcome {
    point: Point,
    normal: forecast::Normal,
}

impl Outcome {
    fn is_inside(&self) -> bool {
        (self.normal.low..=self.normal.high).contains(&self.point.measured)
    }

    fn error(&self) -> f64 {
        (self.normal.expected / self.point.measured - 1.0).abs()
    }

    fn width(&self) -> f64 {
        self.normal.high / self.normal.low
    }
}

/// Figures of a set of outcomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Score {
    /// How many.
    pub(crate) n: usize,
    /// How many lie in their interval.
    pub(crate) inside: usize,
    /// The mean of high over low.
    pub(crate) width: f64,
    /// The median of the relative error of what is expected.
    pub(crate) error: f64,
}

fn score<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Score {
    let all: Vec<&Outcome> = outcomes.collect();
    let mut errors: Vec<f64> = all.iter().map(|it| it.error()).collect();
    errors.sort_by(f64::total_cmp);
    let n = all.len();
    #[allow(clippy::cast_precision_loss, reason = "a few hundred points")]
    let width = all.iter().map(|it| it.width()).sum::<f64>() / n.max(1) as f64;
    Score {
        n,
        inside: all.iter().filter(|it| it.is_inside()).count(),
        width,
        error: errors.get(n / 2).copied().unwrap_or(f64::NAN),
    }
}

fn cluster(text: &str) -> Cluster {
    let file = job::cluster_file::read(text, "cluster.toml").expect("a cluster file");
    Cluster::of_layout(&file.machine.machine.value, &file.layout.value, &Settings::default())
        .expect("a cluster")
}

fn outcomes() -> Vec<Outcome> {
    let lines = include_str!("../tests/data/collectives.jsonl").lines();
    lines
        .map(|line| {
            let point: Point = serde_json::from_str(line).expect("a measurement");
            let collective: Collective = point.collective.parse().expect("a collective");
            let cluster = cluster(&point.cluster);
            let normal = forecast::normal(collective, &cluster, point.bytes).expect("two ranks");
            Outcome { point, normal }
        })
        .collect()
}

/// All points together.
#[allow(dead_code, reason = "the test of the model asks for it")]
pub(crate) fn total() -> Score {
    score(outcomes().iter())
}

/// The page.
pub(crate) fn page() -> String {
    let all = outcomes();
    let mut sources: Vec<&str> = Vec::new();
    for it in &all {
        if !sources.contains(&it.point.source.as_str()) {
            sources.push(&it.point.source);
        }
    }
    let mut out = String::from(
        "# How accurate is `plumb expect`?\n\n\
         Published measurements of collectives of at least 1 MiB, against the interval that plumb calls normal. This page is made by\n\
         `cargo run -p forecast --example accuracy > docs/accuracy.md`; a test keeps it true. Error is that of the expected bus\n\
         bandwidth, as a median; width is the highest normal bandwidth over the lowest, as a mean.\n\n\
         | source | points | inside | width | error | |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let row = |out: &mut String, name: &str, score: Score, note: &str| {
        let (width, error) = (score.width, 100.0 * score.error);
        let _ =
            writeln!(out, "| {name} | {} | {} | {width:.2} | {error:.0} % | {note} |", score.n, score.inside);
    };
    for source in &sources {
        let of_source = || all.iter().filter(|it| it.point.source == *source);
        let mut notes: Vec<&str> = of_source().filter_map(|it| it.point.note.as_deref()).collect();
        notes.dedup();
        row(&mut out, source, score(of_source()), &notes.join(", "));
    }
    row(&mut out, "**all**", score(all.iter()), "");
    row(
        &mut out,
        "all without those remarked on",
        score(all.iter().filter(|it| it.point.note.is_none())),
        "",
    );
    let low = all.iter().filter(|it| it.point.note.is_some() && it.point.measured < it.normal.low).count();
    let remarked = all.iter().filter(|it| it.point.note.is_some()).count();
    let _ = write!(
        out,
        "\nOf the {remarked} points that were reported as slow, or made with old software or with NVLS switched off, {low} are called low.\n\n\
         ## Outside their interval\n\n\
         | source | collective | ranks and bytes | measured | normal | |\n| --- | --- | --- | --- | --- | --- |\n"
    );
    for it in all.iter().filter(|it| !it.is_inside()) {
        let cluster = cluster(&it.point.cluster);
        let _ = writeln!(
            out,
            "| {} | {} | {}, {} MiB | {} | {:.1} to {:.1} | {} |",
            it.point.source,
            it.point.collective,
            cluster.nodes * cluster.pods * cluster.gpus,
            it.point.bytes >> 20,
            it.point.measured,
            it.normal.low,
            it.normal.high,
            it.point.note.as_deref().unwrap_or_default()
        );
    }
    out.push_str(
        "\n## The model\n\n\
         Time is launch + steps + filling the pipeline + bytes over the slowest link, for each algorithm NCCL could use; the fastest counts.\n\
         Link bandwidths are NCCL's own (`crates/fabric/data/links.json`); latencies, and the share of a link that collectives reach, are these\n\
         constants. No constant belongs to one publication. Where the source says \"not measured here\", plumb says so in its answer and widens the interval.\n\n\
         | constant | value | meaning | source |\n| --- | --- | --- | --- |\n",
    );
    for (name, it) in forecast::constants::all() {
        let _ = writeln!(out, "| `{name}` | {} | {} | {} |", it.value, it.meaning, it.source);
    }
    out.push_str("\n## Sources\n\n");
    for source in &sources {
        let mut urls: Vec<&str> =
            all.iter().filter(|it| it.point.source == *source).map(|it| it.point.url.as_str()).collect();
        urls.dedup();
        let _ = writeln!(out, "- {source}: {}", urls.join(", "));
    }
    out
}

#[allow(dead_code, reason = "the test of the model takes the rest of this file")]
fn main() -> io::Result<()> {
    io::stdout().lock().write_all(page().as_bytes())
}

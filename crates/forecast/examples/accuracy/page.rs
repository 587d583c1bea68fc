//! `docs/accuracy.md`.

use std::fmt::Write as _;

use forecast::{Model, Normal, Verdict, constants, verdict};

use super::fit;
use super::points::Asked;

/// What a model says of one measurement.
struct Outcome<'a> {
    asked: &'a Asked<'a>,
    normal: Normal,
    too_good: bool,
}

impl<'a> Outcome<'a> {
    fn new(asked: &'a Asked<'a>, model: &Model) -> Self {
        let normal = asked.normal(model);
        let too_good = verdict(asked.point.measured, &normal) == Verdict::TooGood;
        Self { asked, normal, too_good }
    }

    fn is_inside(&self) -> bool {
        (self.normal.low..=self.normal.high).contains(&self.asked.point.measured)
    }

    fn error(&self) -> f64 {
        (self.normal.expected / self.asked.point.measured - 1.0).abs()
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
    /// How many are said to be too good to be true.
    pub(crate) too_good: usize,
}

fn score<'a>(outcomes: impl Iterator<Item = &'a Outcome<'a>>) -> Score {
    let all: Vec<&Outcome<'_>> = outcomes.collect();
    let mut errors: Vec<f64> = all.iter().map(|it| it.error()).collect();
    errors.sort_by(f64::total_cmp);
    let n = all.len();
    #[allow(clippy::cast_precision_loss, reason = "a few hundred points")]
    let width = all.iter().map(|it| it.normal.high / it.normal.low).sum::<f64>() / n.max(1) as f64;
    Score {
        n,
        inside: all.iter().filter(|it| it.is_inside()).count(),
        width,
        error: errors.get(n / 2).copied().unwrap_or(f64::NAN),
        too_good: all.iter().filter(|it| it.too_good).count(),
    }
}

fn source_names<'a>(asked: &'a [Asked<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for it in asked {
        if !names.contains(&it.point.source.as_str()) {
            names.push(&it.point.source);
        }
    }
    names
}

/// With the published constants.
fn fitted<'a>(asked: &'a [Asked<'a>]) -> Vec<Outcome<'a>> {
    asked.iter().map(|it| Outcome::new(it, Model::published())).collect()
}

/// Each publication with constants that were fitted without it.
fn left_out<'a>(asked: &'a [Asked<'a>]) -> Vec<Outcome<'a>> {
    let of_source = |source: &&'a str| {
        let model = fit::without(asked, source);
        let here = asked.iter().filter(|it| it.point.source == *source);
        here.map(|it| Outcome::new(it, &model)).collect::<Vec<_>>()
    };
    source_names(asked).iter().flat_map(of_source).collect()
}

/// The figures of all points that are not remarked on: with the published constants, and left out.
#[allow(dead_code, reason = "the test of the model asks for it")]
pub(crate) fn totals(asked: &[Asked<'_>]) -> (Score, Score) {
    totals_of(&fitted(asked), &left_out(asked))
}

fn totals_of(fitted: &[Outcome<'_>], left_out: &[Outcome<'_>]) -> (Score, Score) {
    let healthy = |it: &&Outcome<'_>| it.asked.point.note.is_none();
    (score(fitted.iter().filter(healthy)), score(left_out.iter().filter(healthy)))
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred points")]
fn percent(score: Score) -> f64 {
    100.0 * score.inside as f64 / score.n.max(1) as f64
}

/// Publications that were compared once, before any constant was fitted to them.
const UNSEEN: &str = "\
Publications that nobody had fitted anything to, each compared once:\n\n\
- 12 publications, 109 measurements: 65 inside (60 %), with the constants of that time. They are part of the table now.\n\
- 20 publications, 305 measurements without those reported as slow: 237 inside (78 %), 1.76 wide. All but 22 are part of the table now.\n\
- 40 publications, 3,306 measurements, not sorted by whether their authors call them slow, about a third of them over Slingshot but\n  \
described as InfiniBand: 1,471 inside (44 %, 55 % as a mean over publications), 1.63 wide, when they were first compared. With the\n  \
constants of this page 1,827 (55 %, 60 % as a mean over publications), 2.08 wide: EFA from its second generation on 183 of 193; one node with\n  \
A100 150 of 162, Hopper 239 of 332, Blackwell 417 of 480; up to eight nodes over InfiniBand 186 of 548, more 187 of 529; sends between\n  \
pairs over InfiniBand 100 of 309; TCP 85 of 176; through host memory 6 of 120. With Slingshot, TCP, missing GPUDirect and releases named as\n  \
their publications do, 2,372 of 3,446 (69 %, 65 % as a mean over publications), 2.3 wide: InfiniBand and RoCE up to eight nodes 158 of\n  \
231, more 103 of 120, Slingshot 545 of 739; 904 of 1,292 from 1 to 16 MiB. Nothing was fitted to them.\n";

/// The page.
pub(crate) fn page(asked: &[Asked<'_>]) -> String {
    let (all, out_of_sample) = (fitted(asked), left_out(asked));
    let (fit, left) = totals_of(&all, &out_of_sample);
    let mut out = format!(
        "# How accurate is `plumb expect`?\n\n\
         **{} of {} published measurements ({:.0} %) lie in the interval that plumb calls normal if it is made without their publication**:\n\
         constants fitted, and publications counted, from all others. The intervals are {:.2} wide on average (highest over lowest). With\n\
         constants from all publications {} lie inside ({:.0} %), {:.2} wide.\n\n{UNSEEN}\n\
         Measurements are of collectives of at least 1 MiB; those that their authors report as slow, or that were made with old software or\n\
         settings that slow NCCL down, are remarked on in the table and not counted here. Most publications state neither the release of NCCL nor that of its plugins:\n\
         intervals cover what releases from 2.18 on choose; a stated release counts. This page is made by\n\
         `cargo run -p forecast --example accuracy > docs/accuracy.md`; a test keeps it true.\n\n\
         - **inside**: how many lie in their interval. **width**: the highest normal bandwidth over the lowest, as a mean. **error**: of\n  \
         the expected bus bandwidth, as a median.\n\
         - **left out**: the same, after fitting the constants and counting the publications of each regime without this publication.\n\n\
         | source | points | inside | width | error | left out: inside | width | error | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        left.inside,
        left.n,
        percent(left),
        left.width,
        fit.inside,
        percent(fit),
        fit.width,
    );
    let row = |out: &mut String, name: &str, fit: Score, left: Score, note: &str| {
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {:.2} | {:.0} % | {} | {:.2} | {:.0} % | {note} |",
            fit.n,
            fit.inside,
            fit.width,
            100.0 * fit.error,
            left.inside,
            left.width,
            100.0 * left.error
        );
    };
    let sources = source_names(asked);
    for source in &sources {
        let of_source = |it: &&Outcome<'_>| it.asked.point.source == *source;
        let mut notes: Vec<&str> =
            all.iter().filter(of_source).filter_map(|it| it.asked.point.note.as_deref()).collect();
        notes.dedup();
        let (fit, left) =
            (score(all.iter().filter(of_source)), score(out_of_sample.iter().filter(of_source)));
        row(&mut out, source, fit, left, &notes.join(", "));
    }
    row(&mut out, "**all**", score(all.iter()), score(out_of_sample.iter()), "");
    row(&mut out, "all without those remarked on", fit, left, "");
    let remarked = || all.iter().filter(|it| it.asked.point.note.is_some());
    let low = remarked().filter(|it| it.asked.point.measured < it.normal.low).count();
    let _ = write!(
        out,
        "\nOf {} points that were reported as slow, or made with old software or with settings that slow NCCL down, {low} are called low.\n\
         {} of all {} points are called too good to be true, {} with constants that were fitted without them.\n\n\
         ## Outside their interval\n\n\
         | source | collective | ranks and bytes | measured | normal | |\n| --- | --- | --- | --- | --- | --- |\n",
        remarked().count(),
        score(all.iter()).too_good,
        all.len(),
        score(out_of_sample.iter()).too_good
    );
    for it in all.iter().filter(|it| !it.is_inside()) {
        let (point, cluster) = (it.asked.point, it.asked.cluster);
        let _ = writeln!(
            out,
            "| {} | {} | {}, {} MiB | {} | {:.1} to {:.1} | {} |",
            point.source,
            it.asked.collective,
            cluster.nodes * cluster.pods * cluster.gpus,
            point.bytes >> 20,
            point.measured,
            it.normal.low,
            it.normal.high,
            point.note.as_deref().unwrap_or_default()
        );
    }
    out.push_str(
        "\n## The model\n\n\
         NCCL's algorithm, protocol and channels for a size are predicted (`crates/nccl`) for each release that is possible; where they\n\
         cannot be, the fastest counts. The GPUs take launch + steps + filling the pipeline + bytes over the slowest link; the host starts\n\
         calls meanwhile, and the longer of the two counts. Link bandwidths are NCCL's own (`crates/fabric/data/links.json`); latencies,\n\
         and the share of a link that collectives reach, are these constants. Those with bounds are fitted to all points above that are\n\
         not remarked on. Spreads began as those with which nine of ten points, each predicted without its publication, lie in intervals\n\
         as narrow as possible (`-- spreads`); most are wider, as publications compared before any fit lay outside more often.\n\n\
         | constant | value | bounds | meaning | source |\n| --- | --- | --- | --- | --- |\n",
    );
    for (name, it) in constants::all() {
        let bounds = it.fit.map_or_else(String::new, |(low, high)| format!("{low} to {high}"));
        let _ = writeln!(out, "| `{name}` | {} | {bounds} | {} | {} |", it.value, it.meaning, it.source);
    }
    out.push_str(
        "\n## Regimes\n\n\
         How many publications measured machines and networks of a kind, without those remarked on. plumb calls a number calibrated where\n\
         there is at least one, and widens the interval where there is only one or none. `many` are more than eight nodes.\n\n\
         | regime | publications |\n| --- | --- |\n",
    );
    for (regime, count) in constants::sources() {
        let _ = writeln!(out, "| {regime} | {count} |");
    }
    out.push_str("\n## Sources\n\n");
    for source in &sources {
        let mut urls: Vec<&str> =
            asked.iter().filter(|it| it.point.source == *source).map(|it| it.point.url.as_str()).collect();
        urls.dedup();
        let _ = writeln!(out, "- {source}: {}", urls.join(", "));
    }
    out
}

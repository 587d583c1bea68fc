//! Published measurements, and what a model makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fabric::{Collective, Settings, Version};
use forecast::{Cluster, Model, Normal, Shape};
use serde::Deserialize;

/// One published measurement.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Point {
    pub(crate) source: String,
    cluster: String,
    collective: String,
    pub(crate) bytes: u64,
    #[serde(rename = "busbw_GBps")]
    pub(crate) measured: f64,
    pub(crate) url: String,
    /// Why it should be found low, where its authors or its settings say so.
    pub(crate) note: Option<String>,
    /// The release of NCCL, where it is stated.
    nccl: Option<String>,
    /// The release of aws-ofi-nccl, where it is stated.
    plugin: Option<String>,
}

/// A cluster file, and the releases of NCCL and aws-ofi-nccl.
type Text<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

impl Point {
    fn text(&self) -> Text<'_> {
        (&self.cluster, self.nccl.as_deref(), self.plugin.as_deref())
    }
}

/// All measurements, with the clusters they were made on.
pub(crate) struct Points {
    pub(crate) all: Vec<Point>,
    /// By the first point on each.
    clusters: BTreeMap<usize, Cluster>,
    cluster_of: Vec<usize>,
}

/// One measurement, ready to be compared with models.
pub(crate) struct Asked<'a> {
    pub(crate) point: &'a Point,
    pub(crate) cluster: &'a Cluster,
    pub(crate) collective: Collective,
    shape: Shape<'a>,
}

impl Points {
    /// Those of the repository.
    pub(crate) fn read() -> Self {
        Self::of(include_str!("../../tests/data/collectives.jsonl"))
    }

    /// One measurement a line.
    pub(crate) fn of(text: &str) -> Self {
        let all: Vec<Point> =
            text.lines().map(|it| serde_json::from_str(it).expect("a measurement")).collect();
        let mut first: BTreeMap<Text<'_>, usize> = BTreeMap::new();
        let cluster_of = (0..).zip(&all).map(|(at, it)| *first.entry(it.text()).or_insert(at)).collect();
        let clusters = first.iter().map(|(text, at)| (*at, cluster(*text))).collect();
        Self { all, clusters, cluster_of }
    }

    pub(crate) fn asked<'a>(&'a self) -> Vec<Asked<'a>> {
        let shapes: BTreeMap<usize, Shape<'a>> =
            self.clusters.iter().map(|(at, it)| (*at, Shape::new(it))).collect();
        let asked = |(point, cluster): (&'a Point, &usize)| Asked {
            point,
            cluster: &self.clusters[cluster],
            collective: point.collective.parse().expect("a collective"),
            shape: shapes[cluster].clone(),
        };
        self.all.iter().zip(&self.cluster_of).map(asked).collect()
    }
}

impl Asked<'_> {
    pub(crate) fn normal(&self, model: &Model) -> Normal {
        model.normal(self.collective, &self.shape, self.point.bytes).expect("two ranks")
    }

    pub(crate) fn regime(&self) -> String {
        Model::regime(self.collective, &self.shape)
    }
}

/// How many publications measured each regime. What was reported as slow says nothing about what is normal.
pub(crate) fn sources<'a>(asked: impl Iterator<Item = &'a Asked<'a>>) -> BTreeMap<String, usize> {
    let mut regimes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for it in asked.filter(|it| it.point.note.is_none()) {
        regimes.entry(it.regime()).or_default().insert(&it.point.source);
    }
    regimes.into_iter().map(|(regime, sources)| (regime, sources.len())).collect()
}

fn cluster((text, nccl, plugin): Text<'_>) -> Cluster {
    let release = |text: &str| Version::parse(text).expect("a release");
    let file = job::cluster_file::read(text, "cluster.toml").expect("a cluster file");
    Cluster::of_layout(&file.machine.machine.value, &file.layout.value, &Settings::default())
        .expect("a cluster")
        .of_release(nccl.map(release), plugin.map(release))
}

/// What is expected of each measurement, as a table with tabulators.
pub(crate) fn table(asked: &[Asked<'_>], model: &Model) -> String {
    let mut out = String::from(
        "source\tregime\tcollective\tnodes\tranks\tMiB\tmeasured\texpected\tlow\thigh\terror\tlatency\talgorithms\n",
    );
    for it in asked {
        let normal = it.normal(model);
        let (point, cluster) = (it.point, it.cluster);
        let algorithms: Vec<String> = normal
            .possible
            .iter()
            .map(|it| format!("{}/{}:{:.0}", it.algorithm.name(), it.protocol.name(), it.bandwidth))
            .collect();
        let _ = writeln!(
            out,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.1}\t{:.1}\t{:.1}\t{:+.3}\t{:.2}\t{}",
            point.source,
            it.regime(),
            it.collective,
            cluster.nodes,
            cluster.nodes * cluster.pods * cluster.gpus,
            point.bytes >> 20,
            point.measured,
            normal.expected,
            normal.low,
            normal.high,
            (normal.expected / point.measured).ln(),
            normal.overhead / normal.time,
            algorithms.join(","),
        );
    }
    out
}

//! What nccl-tests measured, compared with what is normal.

use evidence::plain::{NcclTests, Row};
use evidence::{Missing, Source};
use fabric::{Collective, gpu};
use forecast::{Cluster, Judgement, Normal, Verdict, judge, normal};
use job::inside::hgx_machine;
use job::size::NodeLayout;
use nccl::Settings;

use crate::expected::Expected;

use crate::Log;

/// Below this size latency matters, and it differs between hosts more than bandwidth does.
const SMALLEST: u64 = 64 << 20;

/// The largest sizes of a run, judged.
pub(crate) struct Measured<'a> {
    /// What was run.
    pub(crate) collective: Collective,
    /// On what.
    pub(crate) cluster: Cluster,
    /// The largest size and the one before it, largest first.
    pub(crate) rows: Vec<Judged<'a>>,
}

/// One size.
pub(crate) struct Judged<'a> {
    pub(crate) row: &'a Row,
    /// The bus bandwidth in GB/s: of the two measurements of a row the one that is closer to normal.
    pub(crate) rate: f64,
    pub(crate) normal: Normal,
    pub(crate) judgement: Judgement,
}

impl Measured<'_> {
    /// What the sizes agree on.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdicts = self.rows.iter().map(|it| it.judgement.verdict);
        match verdicts.next() {
            Some(first) if verdicts.all(|it| it == first) => first,
            _ => Verdict::Normal,
        }
    }
}

/// The runs that can be judged: machine, ranks and collective are known, and sizes are large.
pub(crate) fn measured(log: &Log) -> Result<Vec<Measured<'_>>, Missing> {
    if log.case.tests.is_empty() {
        return Err(Missing(Source::NcclTests));
    }
    let expected = log.expected();
    let judged: Vec<_> = log.case.tests.iter().filter_map(|it| of_run(it, log, expected)).collect();
    if judged.is_empty() && expected.is_none() { Err(Missing(Source::Instance)) } else { Ok(judged) }
}

fn of_run<'a>(run: &'a NcclTests, log: &Log, expected: Option<&Expected>) -> Option<Measured<'a>> {
    let layout = NodeLayout::of_test(run).or_else(|| log.job.size.reported_layout());
    let NodeLayout { ranks, nodes, ranks_per_node: local } = layout.filter(NodeLayout::is_even)?;
    let cluster = match expected {
        Some(it) => it.cluster(nodes, local).filter(|_| same_model(run, it))?,
        None => hgx_cluster(run, log).filter(|_| nodes == 1 && local == 8)?,
    };
    let mut rows: Vec<&Row> = run.rows.iter().filter(|it| it.size >= SMALLEST).collect();
    rows.sort_by_key(|it| std::cmp::Reverse(it.size));
    rows.dedup_by_key(|it| it.size);
    rows.truncate(2);
    let collective = collective(run, rows.first()?, ranks)?;
    let rows = rows.into_iter().filter_map(|row| judged(row, collective, &cluster)).collect::<Vec<_>>();
    (!rows.is_empty()).then_some(Measured { collective, cluster, rows })
}

fn judged<'a>(row: &'a Row, collective: Collective, cluster: &Cluster) -> Option<Judged<'a>> {
    let normal = normal(collective, cluster, row.size)?;
    let rates = [row.out_of_place, row.in_place];
    let rates = || rates.iter().flatten().map(|it| it.busbw).filter(|it| *it > 0.0);
    let near = |it: &f64| (it / normal.expected).ln().abs();
    let rate = rates().min_by(|a, b| near(a).total_cmp(&near(b)))?;
    let judgement = judge(collective, cluster, row.size, rate, &normal);
    Some(Judged { row, rate, normal, judgement })
}

/// What was run: as the output names it, or as its columns show. The factor between the two bandwidths must match
/// the number of ranks: a list of ranks can be cut.
fn collective(run: &NcclTests, row: &Row, ranks: u32) -> Option<Collective> {
    let timing = row.out_of_place.or(row.in_place).filter(|it| it.algbw > 1.0)?;
    let fits = |it: Collective| (timing.busbw / timing.algbw / it.bus_factor(ranks) - 1.0).abs() < 0.02;
    let named = run.program.as_deref().and_then(|it| it.rsplit('/').next()?.parse::<Collective>().ok());
    let shown = || {
        let mut words = row.quote.text.split_whitespace().skip(3);
        let (redop, root) = (words.next()?, words.next()?);
        let sums = redop == "sum" && root == "-1";
        [Collective::AllReduce, Collective::ReduceScatter].into_iter().find(|it| sums && fits(*it))
    };
    named.or_else(shown).filter(|it| fits(*it))
}

/// Whether the GPUs of the run are those of the machine, as far as both are known.
fn same_model(run: &NcclTests, expected: &Expected) -> bool {
    let here = run.devices.iter().find_map(|it| gpu::find(&it.name));
    let there = expected.machine.gpus.first().and_then(|it| gpu::find(it.model.as_deref()?));
    // Without the model of the GPUs no bandwidth is known.
    there.is_some() && here.is_none_or(|here| there.is_some_and(|it| it.family == here.family))
}

/// One machine of eight GPUs, limited by the hardware alone.
fn hgx_cluster(run: &NcclTests, log: &Log) -> Option<Cluster> {
    let settings =
        log.job.releases.nccl.as_ref().map_or_else(Settings::default, |it| Settings::new(it.value));
    Cluster::of_machine(&hgx_machine(run)?, 1, &settings).ok()
}

/// `1 GiB`, `96 MiB`
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

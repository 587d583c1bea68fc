//! Runs of nccl-tests on many machines, judged as a fleet: for `plumb validate --replay` and `plumb doctor`.

use evidence::Case;
use evidence::plain::NcclTests;
use fabric::{Machine, Settings};
use forecast::Cluster;
use job::Job;
use job::inside::hgx_machine;
use report::{Normal, Validate};
use validate::replay::{Replay, Set};

/// The fleet of a folder of runs; none where the runs are few, or of one job.
pub fn of_case(case: &Case, job: &Job) -> Option<Validate> {
    let replay = Replay::new(case);
    replay.is_fleet().then(|| judged(&replay, case, job, None))
}

/// The runs, judged against each other, with what is normal for their machines, and with what all together must reach, in GB/s.
pub fn judged(replay: &Replay, case: &Case, job: &Job, least: Option<f64>) -> Validate {
    let machine = job.machines.first().map(|it| &it.value);
    Validate::replayed(replay, case.sources.files.len(), least, |set| normal(set, machine, &case.tests))
}

/// The bandwidth that is normal for runs of one kind: on the machine that a flag or a log names, or inside eight GPUs that are sold only
/// with an `NVSwitch`.
fn normal(set: &Set, named: Option<&Machine>, tests: &[NcclTests]) -> Option<Normal> {
    // Where every run failed there is no size.
    let collective = set.collective.filter(|_| set.bytes > 0)?;
    let same_gpu = |it: &&Machine| {
        let here = fabric::gpu::find(&set.gpu);
        let there = it.gpus.first().and_then(|it| fabric::gpu::find(it.model.as_deref()?));
        here.is_some() && here.map(|it| &it.family) == there.map(|it| &it.family)
    };
    let unnamed = || {
        let like =
            |it: &&NcclTests| it.devices.len() == 8 && it.devices.iter().all(|it| *it.name == *set.gpu);
        (set.hosts == 1 && set.gpus == 8).then(|| tests.iter().find(like).and_then(hgx_machine)).flatten()
    };
    let machine = named.filter(same_gpu).cloned().or_else(unnamed)?;
    let settings = set.nccl.map_or_else(Settings::default, Settings::new);
    let (nodes, gpus) = (u32::try_from(set.hosts).ok()?, u32::try_from(set.gpus).ok()?);
    let cluster = Cluster::of_machine(&machine, nodes, &settings).ok()?.with_pods(1, gpus).ok()?;
    let normal = forecast::normal(collective, &cluster.of_release(set.nccl, None), set.bytes)?;
    let name = machine.name.clone().unwrap_or_else(|| format!("8 x {}", set.gpu).into());
    Some(Normal { machine: name.to_string(), low: normal.low, expected: normal.expected, high: normal.high })
}

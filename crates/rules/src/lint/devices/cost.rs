//! The bandwidth that a job loses on a machine, in a sentence with numbers.

use std::collections::BTreeMap;

use fabric::catalogue::Model;
use forecast::Cluster;
use nccl::{Decisions, Layout, Loss, Settings};

use crate::expected;
use crate::training::{How, Slower};

/// A job of this many machines that is slower than it could be.
pub(super) fn slower(machine: &'static Model, nodes: u64, how: How) -> Option<Slower> {
    Some(Slower { machine: machine.name, nodes: u32::try_from(nodes).ok()?, how })
}

/// Machines of this type with all GPUs in use.
fn cluster(instance: &Model, nodes: u64) -> Option<Cluster> {
    let machine = instance.machine();
    let nodes = u32::try_from(nodes.clamp(1, 1 << 16)).ok()?;
    Cluster::of_machine(&machine, nodes, &Settings::default()).ok()
}

/// Sentences computed so far: the jobs of one submission are similar, and a forecast takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct Costs(BTreeMap<Question, Option<String>>);

/// The layout that is compared with the best use of these machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    OverTcp { machine: &'static str, nodes: u64 },
    WithNics { machine: &'static str, nodes: u64, nics: u64 },
    InPods { machine: &'static str, pods: u64, gpus: u64, nics: Option<u64> },
}

impl Costs {
    fn answer(&mut self, question: Question, make: impl FnOnce() -> Option<String>) -> Option<String> {
        self.0.entry(question).or_insert_with(make).clone()
    }

    /// Over TCP instead of EFA.
    pub(super) fn over_tcp(&mut self, machine: &Model, nodes: u64) -> Option<String> {
        self.answer(Question::OverTcp { machine: machine.name, nodes }, || over_tcp(machine, nodes))
    }

    /// With only some of its EFA interfaces.
    pub(super) fn with_nics(&mut self, machine: &Model, nodes: u64, nics: u64) -> Option<String> {
        let question = Question::WithNics { machine: machine.name, nodes, nics };
        self.answer(question, || with_nics(machine, nodes, nics))
    }

    /// Several pods per machine instead of one.
    pub(super) fn in_pods(
        &mut self,
        machine: &Model,
        pods: u64,
        gpus: u64,
        nics: Option<u64>,
    ) -> Option<String> {
        let question = Question::InPods { machine: machine.name, pods, gpus, nics };
        self.answer(question, || in_pods(machine, pods, gpus, nics))
    }
}

fn over_tcp(instance: &Model, nodes: u64) -> Option<String> {
    let best = cluster(instance, nodes.max(2))?;
    Some(expected::loss(&best, &expected::over_tcp(&best))?.sentence)
}

fn with_nics(instance: &Model, nodes: u64, nics: u64) -> Option<String> {
    let best = cluster(instance, nodes.max(2))?;
    let fewer = expected::with_nics(u32::try_from(nics).ok()?)(&best);
    Some(expected::loss(&best, &fewer)?.sentence)
}

fn in_pods(instance: &Model, pods: u64, gpus: u64, nics: Option<u64>) -> Option<String> {
    let gpus = u32::try_from(gpus).ok()?;
    let fit = instance.gpus.checked_div(gpus)?;
    let here = u32::try_from(pods).unwrap_or(u32::MAX).min(fit);
    let together =
        cluster(instance, pods.div_ceil(u64::from(here.max(1))))?.with_pods(1, here * gpus).ok()?;
    let apart = together.clone().with_pods(here, gpus).ok()?;
    let loss = expected::loss(&together, &apart)?.sentence;
    let machine = job::machine::seen_by_nccl(&instance.machine());
    // NICs that the plugin groups are one device, and a part of a group has no known bandwidth.
    let nics = nics.and_then(|it| u32::try_from(it).ok()).filter(|it| {
        machine.nics.len() == instance.efa_nics() as usize && it.saturating_mul(here) <= instance.efa_nics()
    });
    let layout = Layout { nics_per_pod: nics, ..Layout::new(here, gpus) };
    let job = Decisions::new(&machine, &Settings::default(), &layout).ok();
    let network = job.and_then(|it| it.losses().into_iter().find(|it| matches!(it, Loss::Network { .. })));
    Some(match network {
        Some(network) => format!("With {here} pods on one machine, {network}. {loss}"),
        None => loss,
    })
}

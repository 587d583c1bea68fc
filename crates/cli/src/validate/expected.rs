//! What machines should reach, where their type is known.

use ::validate::Step;
use ::validate::live::{Engine, Size};
use fabric::Collective;
use nccl::Settings;

use super::args::Validate;
use crate::args::Machines;
use crate::{complain, expect};

/// The lowest normal bus bandwidths, in GB/s.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) local: Option<f64>,
    pub(super) all: Option<f64>,
    pub(super) machine: Option<String>,
}

/// For this many machines with this many GPUs each.
pub(super) fn of(args: &Validate, engine: Engine, machines: usize, gpus: usize) -> Expected {
    let Some(model) = args.instance else { return Expected::default() };
    if engine == Engine::Host {
        complain("note: no expected bandwidth: plumb models NCCL on GPUs, not the host-memory engine");
        return Expected::default();
    }
    let normal = |nodes: usize, step: &Step| {
        let machines = Machines {
            instance: Some(model),
            cluster: None,
            nodes: u32::try_from(nodes).ok(),
            pods: u32::try_from(gpus).ok().map(|it| (1, it)),
        };
        let cluster = match expect::cluster(&machines, &Settings::new(Settings::NEWEST)) {
            Ok(it) => it,
            Err(reason) => {
                complain(&format!("note: no expected bandwidth: {}", reason.0));
                return None;
            }
        };
        let bytes = Size::of(engine, step, None).bytes;
        Some((forecast::normal(Collective::AllReduce, &cluster, bytes)?.low, cluster.machine))
    };
    // One GPU alone sends nothing.
    let local = (gpus > 1).then(|| normal(1, &Step::Local(Vec::new()))).flatten();
    let all = normal(machines, &Step::All(Vec::new()));
    let machine = local.as_ref().or(all.as_ref()).map(|it| it.1.clone());
    Expected { local: local.map(|it| it.0), all: all.map(|it| it.0), machine }
}

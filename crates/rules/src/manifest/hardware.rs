//! What of a machine stands in a manifest.

use fabric::machine::{Maker, NicKind};
use fabric::{catalogue, gpu, instance};

/// A machine, as far as a manifest needs it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hardware {
    /// `p5.48xlarge`
    pub(super) name: &'static str,
    /// Whether it is an instance type of AWS.
    pub(super) aws: bool,
    pub(super) gpus: u32,
    /// EFA interfaces.
    pub(super) efa: u32,
    /// Other fast NICs.
    pub(super) infiniband: u32,
    /// All NICs together.
    pub(super) gbps: f64,
    /// GiB of the host.
    pub(super) memory: Option<u64>,
    pub(super) vcpus: Option<u32>,
    /// GiB of a GPU.
    pub(super) gpu_memory: Option<f64>,
    /// Whether its CPU is an Arm.
    pub(super) arm: bool,
    /// How many such machines NVLink joins, where it reaches beyond one.
    pub(super) domain: Option<u32>,
}

impl Hardware {
    pub(super) fn find(name: &str) -> Result<Self, String> {
        let found = catalogue::find(name).map(|it| (it.name, it.machine()));
        let Some((known, machine)) = found else {
            let near = catalogue::suggest(name);
            let hint =
                if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
            return Err(format!("no machine is called {name:?}{hint}"));
        };
        let instance = instance::find(known);
        let model = machine.gpus.first().and_then(|it| gpu::find(it.model.as_deref()?));
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        let fast = |it: NicKind| matches!(it, NicKind::InfiniBand | NicKind::Roce);
        let rates = machine.nics.iter().filter_map(|it| it.rate);
        let arm = machine.sockets.iter().any(|it| it.maker == Maker::Arm);
        Ok(Self {
            name: known,
            aws: instance.is_some(),
            gpus: count(machine.gpus.len()),
            efa: instance.map_or(0, |it| it.nics),
            infiniband: count(machine.nics.iter().filter(|it| fast(it.kind)).count()),
            gbps: rates.map(|it| it.0).sum(),
            memory: instance.map(|it| whole(it.mem_gib.0)),
            vcpus: instance.map(|it| it.vcpus),
            gpu_memory: model.and_then(|it| it.memory).map(|it| it.0),
            arm,
            domain: catalogue::wiring(known).and_then(|it| it.domain),
        })
    }
}

/// Without what is behind the point.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of memory are small and positive"
)]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::Hardware;

    #[test]
    fn counts_are_those_of_the_catalogue() {
        let p5 = Hardware::find("ml.P5.48xlarge").unwrap();
        assert_eq!(
            (p5.name, p5.gpus, p5.efa, p5.memory, p5.vcpus),
            ("p5.48xlarge", 8, 32, Some(2048), Some(192))
        );
        let small = Hardware::find("g5.xlarge").unwrap();
        assert_eq!((small.efa, small.gpus, small.gbps), (0, 1, 2.5));
        let dgx = Hardware::find("DGX H100").unwrap();
        assert_eq!((dgx.aws, dgx.efa, dgx.infiniband, dgx.memory), (false, 0, 8, None));
        let grace = Hardware::find("p6e-gb200.36xlarge").unwrap();
        assert_eq!((grace.arm, grace.domain, grace.efa), (true, Some(18), 4));
    }

    #[test]
    fn a_wrong_name_is_answered_with_near_ones() {
        let error = Hardware::find("p4d.48xlarge").unwrap_err();
        assert!(
            error.starts_with("no machine is called \"p4d.48xlarge\"; did you mean p4d.24xlarge"),
            "{error}"
        );
        assert_eq!(Hardware::find("moon\n").unwrap_err(), "no machine is called \"moon\\n\"");
    }
}

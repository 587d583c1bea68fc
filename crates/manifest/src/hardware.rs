//! The hardware facts that a manifest needs.

use fabric::catalogue::Model;
use fabric::machine::{Maker, NicKind};

/// The hardware of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hardware {
    /// `p5.48xlarge`
    pub(crate) name: &'static str,
    /// Whether it is an instance type of AWS.
    pub(crate) aws: bool,
    pub(crate) gpus: u32,
    /// EFA interfaces.
    pub(crate) efa: u32,
    /// Other fast NICs.
    pub(crate) infiniband: u32,
    /// All NICs together.
    pub(crate) gbps: f64,
    /// Host memory in GiB.
    pub(crate) memory: Option<u64>,
    pub(crate) vcpus: Option<u32>,
    /// Memory of a GPU in GiB.
    pub(crate) gpu_memory: Option<f64>,
    /// Whether its CPU is an Arm.
    pub(crate) arm: bool,
    /// Machines per NVLink domain, if NVLink reaches beyond one.
    pub(crate) domain: Option<u32>,
}

impl Hardware {
    pub(crate) fn of(model: &'static Model) -> Self {
        let fast = matches!(model.network, NicKind::InfiniBand | NicKind::Roce);
        Self {
            name: model.name,
            aws: model.instance.is_some(),
            gpus: model.gpus,
            efa: model.efa_nics(),
            infiniband: if fast { model.nics } else { 0 },
            gbps: model.bandwidth.0,
            memory: model.instance.map(|it| whole(it.mem_gib.0)),
            vcpus: model.instance.map(|it| it.vcpus),
            gpu_memory: model.gpu.memory.map(|it| it.0),
            arm: model.cpu() == Maker::Arm,
            domain: (model.domain > 1).then_some(model.domain),
        }
    }
}

/// The integer part.
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
    use fabric::catalogue;

    use super::Hardware;

    #[test]
    fn counts_are_those_of_the_catalogue() {
        let hardware = |name| Hardware::of(catalogue::find(name).unwrap());
        let p5 = hardware("p5.48xlarge");
        assert_eq!((p5.gpus, p5.efa, p5.memory, p5.vcpus), (8, 32, Some(2048), Some(192)));
        let small = hardware("g5.xlarge");
        assert_eq!((small.efa, small.gpus, small.gbps), (0, 1, 2.5));
        let dgx = hardware("dgx-h100");
        assert_eq!((dgx.aws, dgx.efa, dgx.infiniband, dgx.memory), (false, 0, 8, None));
        let grace = hardware("p6e-gb200.36xlarge");
        assert_eq!((grace.arm, grace.domain, grace.efa), (true, Some(18), 4));
    }
}

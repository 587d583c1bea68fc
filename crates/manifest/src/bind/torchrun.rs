//! `torchrun`: its own option since PyTorch 2.9, a script that pins with any release.
//!
//! `--numa-binding=exclusive` reads the GPU's NUMA node in sysfs and divides its cores among the GPUs there, and fails without the
//! program `numactl` (pytorch torch/numa/binding.py, `_exclusive_get_logical_cpus_to_bind_to` and `_raise_if_binding_invalid`).

use super::{Binding, Block, wrapper};

pub(super) fn blocks(binding: &Binding) -> Vec<Block> {
    let several = if binding.nodes > 1 {
        format!(" --nnodes={} --rdzv-backend=c10d --rdzv-endpoint=FIRST_NODE:29500", binding.nodes)
    } else {
        " --standalone".to_owned()
    };
    let start = format!("torchrun{several} --nproc-per-node={}", binding.ranks.len());
    let own = Block {
        title: "PyTorch 2.9 and newer, where numactl is installed".to_owned(),
        text: format!("{start} --numa-binding=exclusive train.py\n"),
    };
    if binding.is_unknown() {
        return vec![own];
    }
    let script = Block {
        title: "any PyTorch".to_owned(),
        text: format!(
            "{}{start} --no-python ./{} python -u train.py\n",
            wrapper::script(binding, "LOCAL_RANK"),
            wrapper::NAME
        ),
    };
    vec![own, script]
}

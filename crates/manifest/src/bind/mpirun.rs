//! `mpirun` of Open MPI 4 and 5, with a script that pins.
//!
//! Not a rankfile: it takes Linux' CPU numbers in Open MPI 4 only (`--mca rmaps_rank_file_physical 1`), in 5 the logical numbers of
//! hwloc, which depend on the machine. Not `--map-by numa --bind-to numa` either: it takes NUMA nodes in their order, and GPUs may be in
//! another one.

use super::{Binding, Block, wrapper};

pub(super) fn blocks(binding: &Binding) -> Vec<Block> {
    if binding.is_unknown() {
        return Vec::new();
    }
    let hosts = if binding.nodes > 1 { " --hostfile hosts" } else { "" };
    let text = format!(
        "{}mpirun -np {}{hosts} --map-by ppr:{}:node --bind-to none ./{} python train.py\n",
        wrapper::script(binding, "OMPI_COMM_WORLD_LOCAL_RANK"),
        binding.all_ranks(),
        binding.ranks.len(),
        wrapper::NAME
    );
    vec![Block { title: "Open MPI 4 and 5".to_owned(), text }]
}

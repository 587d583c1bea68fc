//! `srun --cpu-bind`, which needs the plugin task/affinity.
//!
//! `mask_cpu` and `map_ldom` list one entry per task of a node, in the order of local task ids, in Linux' numbers of CPUs and NUMA
//! nodes (Slurm src/plugins/task/affinity/affinity.c, `get_cpuset`). They count only where the job has whole nodes (srun(1),
//! `--cpu-bind`).

use super::{Binding, Block};

pub(super) fn blocks(binding: &Binding) -> Vec<Block> {
    let ranks = binding.ranks.len();
    let mut text = format!(
        "#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={ranks}\n#SBATCH --gpus-per-node={ranks}\n#SBATCH --exclusive\n",
        binding.nodes
    );
    let nodes: Option<Vec<String>> = binding.ranks.iter().map(|it| Some(it.numa?.to_string())).collect();
    let bind = match (binding.cpus(), nodes) {
        // A line ends inside the list: the next one begins at the margin, so that the shell joins them without a space.
        (Some(cpus), _) => {
            let masks: Vec<String> = cpus.iter().map(|it| it.mask()).collect();
            format!("mask_cpu:\\\n{}", masks.join(",\\\n"))
        }
        (None, Some(nodes)) => format!("map_ldom:{}", nodes.join(",")),
        (None, None) => return Vec::new(),
    };
    text.push_str(&format!("srun --cpu-bind={bind} python train.py\n"));
    vec![Block { title: "batch script; Slurm needs TaskPlugin=task/affinity".to_owned(), text }]
}

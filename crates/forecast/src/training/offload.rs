//! States in the memory of the host: copies over PCI Express, and the optimizer on the CPU.

use super::constants::Constants;
use super::hardware::Cluster;
use super::run::{Framework, Run};

/// What offloading costs one rank, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Offloaded {
    /// Copies for each micro-batch: parameters to the GPU for both passes, gradients to the host.
    pub(crate) copies: f64,
    /// Copies once a step.
    pub(crate) once: f64,
    /// The optimizer.
    pub(crate) optimizer: f64,
}

/// CPU threads of a rank. torchrun sets one thread for each of several processes; a single process takes all CPUs of its pod.
pub(crate) fn threads(cluster: &Cluster, run: &Run) -> f64 {
    let all = f64::from(cluster.cpus.unwrap_or(96)) / f64::from(cluster.pods);
    match run.omp_threads {
        Some(threads) => f64::from(threads.max(1)),
        None if cluster.gpus > 1 => 1.0,
        // Two hardware threads of a core share its units.
        None => (all / 2.0).max(1.0),
    }
}

/// For a rank that owns this many parameters.
pub(crate) fn offloaded(constants: &Constants, cluster: &Cluster, run: &Run, parameters: f64) -> Offloaded {
    let offload = &constants.offload;
    let link = cluster.host_link.0 * 1e9 * offload.pci;
    let mut costs = Offloaded::default();
    if run.offload.params {
        costs.copies += 2.0 * 2.0 * parameters / link;
    }
    if run.offload.optimizer {
        if run.offloads_gradients() {
            costs.copies += 2.0 * parameters / link;
        } else {
            // Megatron adds up in FP32, ZeRO-1 in the precision of the model.
            let bytes = if run.framework == Framework::Megatron { 4.0 } else { 2.0 };
            costs.once += bytes * parameters / link;
        }
        let rate = offload.cpu_adam * 1e6 * threads(cluster, run).min(offload.threads);
        costs.optimizer = parameters / rate;
        if !run.offload.params {
            costs.once += 2.0 * parameters / link;
        }
    }
    costs
}

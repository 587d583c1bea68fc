//! A prediction in NCCL's own words.

use nccl::Prediction;

/// What a rank prints about its decisions, in the order in which it prints it.
pub fn lines(prediction: &Prediction, rank: u64) -> Vec<String> {
    let number = usize::try_from(rank).unwrap_or(usize::MAX);
    let communicator = &prediction.communicator;
    if number >= communicator.n_ranks {
        return Vec::new();
    }
    let mut lines = communicator.graph_lines(number);
    lines.extend(communicator.tree_lines(number));
    if rank == 0 {
        lines.extend(communicator.ring_lists());
    }
    lines.extend(communicator.ring_lines(number));
    lines.push(communicator.trees_line(number));
    if communicator.node_of_rank.get(number) == Some(&0) {
        lines.extend(communicator.nvls_head_lines());
    }
    if let Some(p2p) = prediction.p2p_of(rank) {
        lines.push(format!("P2P Chunksize set to {}", p2p.chunk));
    }
    if rank == 0 {
        lines.extend(prediction.tuning.lines());
    }
    lines.push(format!("threadThresholds {}", prediction.tuning.thresholds()));
    lines.extend(prediction.channels_line(rank));
    lines
}

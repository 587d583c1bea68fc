//! In which order the stages of a pipeline work on micro-batches: 1F1B, and interleaved stages.

use crate::training::run::Run;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Backward,
}

/// A pass of one micro-batch through one piece of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) pass: Pass,
    pub(super) micro_batch: u32,
    pub(super) piece: u32,
}

/// When a task runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scheduled {
    pub(super) task: Task,
    pub(super) start: f64,
    pub(super) end: f64,
}

/// The tasks of every stage with their times. `length` says how long a pass takes, by stage and direction.
pub(super) fn schedule(
    run: &Run,
    micro_batches: u32,
    length: impl Fn(u32, bool) -> f64,
) -> Vec<Vec<Scheduled>> {
    let orders: Vec<Vec<Task>> =
        (0..run.pp).map(|stage| order(stage, run.pp, run.vpp, micro_batches)).collect();
    let mut done = Done::new(run, micro_batches);
    let mut found: Vec<Vec<Scheduled>> = orders.iter().map(|it| Vec::with_capacity(it.len())).collect();
    loop {
        let mut progress = false;
        for (stage, (order, found)) in (0..).zip(orders.iter().zip(&mut found)) {
            while let Some(task) = order.get(found.len()) {
                let Some(ready) = done.ready(stage, *task) else { break };
                let start = found.last().map_or(0.0, |it: &Scheduled| it.end).max(ready);
                let end = start + length(stage, task.pass == Pass::Backward);
                done.finish(stage, *task, end);
                found.push(Scheduled { task: *task, start, end });
                progress = true;
            }
        }
        if !progress {
            return found;
        }
    }
}

/// The order in which a stage takes its tasks: some forward passes, then one forward and one backward in turns, then the remaining
/// backward passes. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", section 2.2.
fn order(stage: u32, stages: u32, pieces: u32, micro_batches: u32) -> Vec<Task> {
    let all = micro_batches.saturating_mul(pieces);
    let behind = stages.saturating_sub(stage + 1);
    // Interleaved stages begin with one round of all pieces but the last.
    let first = if pieces == 1 { behind } else { 2 * behind + (pieces - 1) * stages };
    let first = first.min(all);
    let task = |number: u32, pass: Pass| {
        // Pieces change after every `stages` micro-batches.
        let round = stages.saturating_mul(pieces).max(1);
        let (group, inside) = (number / round, number % round);
        let piece = inside / stages.max(1);
        let micro_batch = if pieces == 1 { number } else { group * stages + inside % stages };
        let piece = match pass {
            _ if pieces == 1 => 0,
            Pass::Forward => piece,
            Pass::Backward => pieces - 1 - piece,
        };
        Task { pass, micro_batch, piece }
    };
    let mut tasks: Vec<Task> = (0..first).map(|it| task(it, Pass::Forward)).collect();
    for number in first..all {
        tasks.push(task(number, Pass::Forward));
        tasks.push(task(number - first, Pass::Backward));
    }
    tasks.extend((all - first..all).map(|it| task(it, Pass::Backward)));
    tasks
}

/// When the passes that others wait for ended.
struct Done {
    stages: u32,
    pieces: u32,
    micro_batches: u32,
    ends: Vec<f64>,
}

impl Done {
    fn new(run: &Run, micro_batches: u32) -> Self {
        let count = 2 * u64::from(run.pp) * u64::from(run.vpp) * u64::from(micro_batches);
        let ends = vec![f64::NAN; usize::try_from(count).unwrap_or(0)];
        Self { stages: run.pp, pieces: run.vpp, micro_batches, ends }
    }

    fn at(&self, stage: u32, task: Task) -> usize {
        let direction = usize::from(task.pass == Pass::Backward);
        let place =
            (stage as usize * self.pieces as usize + task.piece as usize) * self.micro_batches as usize;
        2 * (place + task.micro_batch as usize) + direction
    }

    fn finish(&mut self, stage: u32, task: Task, end: f64) {
        let at = self.at(stage, task);
        if let Some(slot) = self.ends.get_mut(at) {
            *slot = end;
        }
    }

    /// When everything that a task needs is there; none if something is still to be done.
    fn ready(&self, stage: u32, task: Task) -> Option<f64> {
        let (last_stage, last_piece) = (self.stages - 1, self.pieces - 1);
        let before = match task.pass {
            Pass::Forward if stage > 0 => Some((stage - 1, task)),
            Pass::Forward if task.piece > 0 => Some((last_stage, Task { piece: task.piece - 1, ..task })),
            Pass::Forward => None,
            Pass::Backward if stage < last_stage => Some((stage + 1, task)),
            Pass::Backward if task.piece < last_piece => Some((0, Task { piece: task.piece + 1, ..task })),
            Pass::Backward => Some((stage, Task { pass: Pass::Forward, ..task })),
        };
        let Some((stage, task)) = before else { return Some(0.0) };
        self.ends.get(self.at(stage, task)).copied().filter(|it| !it.is_nan())
    }
}

#[cfg(test)]
mod tests {
    use super::{Pass, order};

    fn letters(stage: u32, stages: u32, pieces: u32, micro_batches: u32) -> String {
        let words = order(stage, stages, pieces, micro_batches).into_iter().map(|it| {
            let letter = if it.pass == Pass::Forward { 'F' } else { 'B' };
            let piece = if pieces > 1 { format!(".{}", it.piece) } else { String::new() };
            format!("{letter}{}{piece}", it.micro_batch)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_forward_one_backward() {
        assert_eq!(letters(0, 3, 1, 4), "F0 F1 F2 B0 F3 B1 B2 B3");
        assert_eq!(letters(2, 3, 1, 4), "F0 B0 F1 B1 F2 B2 F3 B3");
        assert_eq!(letters(0, 4, 1, 2), "F0 F1 B0 B1");
    }

    #[test]
    fn interleaved_stages_change_pieces() {
        assert_eq!(
            letters(1, 2, 2, 4),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"
        );
        assert!(letters(0, 2, 2, 2).starts_with("F0.0 F1.0 F0.1 F1.1 B"));
    }
}

//! All layouts of a job: what may vary, by framework.

use std::fmt;

use super::fixed::{Axis, Fixed, RECOMPUTE};
use crate::training::{
    Broken, Calibration, Framework, Job, Offload, Predictor, Recompute, Run, pipeline_layout,
};

/// More cells than this are not searched: no cluster has so many divisors.
const MOST_CELLS: usize = 1_000_000;
/// A layout is not searched if its shorter stages wait for more than one part in this many of the time: other numbers of stages
/// waste less.
const LEAST_IDLE: u64 = 16;

/// Tokens of a sequence that a rank of context parallelism keeps at least, unless `cp` is fixed: published recipes split sequences of 8,192
/// tokens in two and shorter ones not at all (Megatron-Bridge, performance summary; its performance guide says that context
/// parallelism is for sequences whose activations do not fit).
const LEAST_TOKENS: u32 = 4096;

/// All layouts that are possible, in cells.
#[derive(Debug, Clone)]
pub struct Space<'a> {
    job: &'a Job,
    /// What no layout changes, with one rank of everything.
    base: Run,
    fixed: Fixed,
    /// `ZeRO` and offloading.
    states: Vec<State>,
    recompute: Vec<Recompute>,
    cells: Vec<Cell>,
}

/// The layouts of one (tp, pp, cp, ep).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Tensor parallelism.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Data parallelism.
    pub dp: u32,
    /// How many layouts it has.
    pub layouts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    zero: u32,
    offload: Offload,
}

/// Why there is no layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Empty(String);

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Empty {}

/// The divisors of a number, ascending; none of 0.
fn divisors(number: u32) -> Vec<u32> {
    let small = (1..=number.isqrt()).filter(|it| number.is_multiple_of(*it));
    let mut all: Vec<u32> = small.flat_map(|it| [it, number / it]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What a framework can be asked for in its settings.
#[derive(Debug, Clone, Copy)]
struct Features {
    /// Ways to split a model or a sequence; expert parallelism has every framework.
    splits: &'static [Axis],
    zero: &'static [u32],
    offload: Offloads,
}

/// What can rest in the memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offloads {
    Nothing,
    Optimizer,
    /// Parameters, the optimizer, or both.
    Each,
    /// Parameters and optimizer together.
    Together,
}

impl Features {
    fn of(framework: Framework) -> Self {
        match framework {
            // The distributed optimizer is ZeRO-1; --optimizer-cpu-offload needs it.
            Framework::Megatron => {
                Self { splits: &[Axis::Tp, Axis::Pp, Axis::Cp], zero: &[0, 1], offload: Offloads::Optimizer }
            }
            // A model must be written for its pipeline; ZeRO is what its JSON sets.
            Framework::DeepSpeed => Self { splits: &[], zero: &[0, 1, 2, 3], offload: Offloads::Each },
            // PyTorch's own trainer (torchtitan) joins FSDP with tensor and context parallelism. CPU offloading moves
            // parameters, gradients and optimizer.
            Framework::Fsdp => {
                Self { splits: &[Axis::Tp, Axis::Cp], zero: &[2, 3], offload: Offloads::Together }
            }
            Framework::Ddp => Self { splits: &[], zero: &[0], offload: Offloads::Nothing },
        }
    }
}

impl<'a> Space<'a> {
    /// All layouts of a job: tp, pp, vpp, cp, ep, dp, `ZeRO`, offloading, micro-batch and recomputation as far as its framework has them.
    /// Sequence, batch, precision and the rest are those of the job. `sequence_parallel` is the job's, where it says one.
    pub fn new(job: &'a Job, fixed: &Fixed, sequence_parallel: Option<bool>) -> Result<Self, Empty> {
        let features = Features::of(job.run.framework);
        let base = Run {
            tp: 1,
            pp: 1,
            vpp: 1,
            cp: 1,
            ep: 1,
            etp: 1,
            zero: 0,
            offload: Offload::default(),
            micro_batch: 1,
            recompute: Recompute::None,
            // Norms are split over the ranks of tensor parallelism unless the job says otherwise: less memory, the same traffic.
            sequence_parallel: sequence_parallel
                .unwrap_or(matches!(job.run.framework, Framework::Megatron | Framework::Fsdp)),
            ..job.run.settled(&job.cluster.gpu)
        };
        let recompute =
            RECOMPUTE.into_iter().zip(0..).filter(|(it, number)| match fixed.values(Axis::Recompute) {
                Some(values) => values.contains(number),
                // Flash attention keeps no scores: selective recomputation has nothing to do.
                None => *it != Recompute::Selective || !base.flash_attention,
            });
        let mut space = Self {
            job,
            base,
            fixed: fixed.clone(),
            states: states(features, fixed),
            recompute: recompute.map(|it| it.0).collect(),
            cells: Vec::new(),
        };
        let calibration = Calibration::published();
        let predictor = Predictor::new(&calibration, &job.model, &job.cluster);
        // Numbers that no layout can mend.
        if let Err(broken @ (Broken::Zero(_) | Broken::Exceeds { .. })) = predictor.step(&base) {
            return Err(Empty(broken.to_string()));
        }
        space.cells = space.all_cells(features, &predictor)?;
        if space.cells.is_empty() {
            return Err(space.empty(&predictor));
        }
        Ok(space)
    }

    /// The job.
    pub fn job(&self) -> &'a Job {
        self.job
    }

    /// What can be searched apart.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// How many layouts there are.
    pub fn layouts(&self) -> u64 {
        self.cells.iter().map(|it| it.layouts).sum()
    }

    /// Runs `each` for every layout of a cell, always in the same order.
    pub fn each(&self, cell: &Cell, mut each: impl FnMut(&Run)) {
        let tensor = cell.tp > 1;
        let sequence =
            |value: bool| self.fixed.values(Axis::SequenceParallel).map_or(value, |it| it.contains(&1));
        let mut run = Run { tp: cell.tp, pp: cell.pp, cp: cell.cp, ep: cell.ep, ..self.base };
        run.sequence_parallel = tensor && sequence(self.base.sequence_parallel);
        for vpp in self.pieces(cell.pp) {
            for micro_batch in self.micro_batches(cell, vpp) {
                for state in self.states(cell) {
                    for recompute in &self.recompute {
                        run.vpp = vpp;
                        run.micro_batch = micro_batch;
                        run.zero = state.zero;
                        run.offload = state.offload;
                        run.recompute = *recompute;
                        each(&run);
                    }
                }
            }
        }
    }

    fn all_cells(&self, features: Features, predictor: &Predictor<'_>) -> Result<Vec<Cell>, Empty> {
        let (model, ranks) = (&self.job.model, self.job.cluster.ranks());
        let axis = |axis: Axis, all: Vec<u32>| match self.fixed.values(axis) {
            Some(values) => values.to_vec(),
            None if axis == Axis::Ep || features.splits.contains(&axis) => all,
            None => vec![1],
        };
        let dividing = |numbers: Vec<u32>| {
            let divides = |it: &u32| ranks.is_multiple_of(u64::from(*it));
            numbers.into_iter().filter(divides).collect::<Vec<_>>()
        };
        let tp = axis(Axis::Tp, dividing(divisors(model.heads)));
        let stages = (1..=model.layers.min(65_536)).filter(|it| self.can_have_stages(*it));
        let pp = axis(Axis::Pp, dividing(stages.collect()));
        // A rank works on two pieces of a sequence, one from its beginning and one from its end.
        let mut parts = dividing(divisors(self.base.seq / 2));
        parts.retain(|it| *it == 1 || self.base.seq / it >= LEAST_TOKENS);
        let cp = axis(Axis::Cp, parts);
        let experts = model.experts.map_or(1, |it| it.count);
        let ep = axis(Axis::Ep, divisors(experts));
        let mut cells = Vec::new();
        for ((tp, pp), cp) in tp
            .iter()
            .flat_map(|tp| pp.iter().map(move |pp| (*tp, *pp)))
            .flat_map(|it| cp.iter().map(move |cp| (it, *cp)))
        {
            let of_model = (u64::from(tp) * u64::from(pp)).saturating_mul(cp.into());
            let Ok(dp) = u32::try_from(ranks / of_model.max(1)) else { continue };
            if !self.fixed.allows(Axis::Dp, dp) {
                continue;
            }
            for ep in &ep {
                let run = Run { tp, pp, cp, ep: *ep, ..self.base };
                // Experts are split over tensor parallelism too, so that their groups divide the other ranks of a stage.
                let of_stage = u64::from(dp) * u64::from(cp);
                if !of_stage.is_multiple_of(u64::from(*ep)) || predictor.step(&run).is_err() {
                    continue;
                }
                let mut cell = Cell { tp, pp, cp, ep: *ep, dp, layouts: 0 };
                cell.layouts = self.count(&cell);
                if cell.layouts > 0 {
                    cells.push(cell);
                }
                if cells.len() > MOST_CELLS {
                    return Err(Empty(
                        "there are more than a million ways to choose tp, pp, cp and ep: fix some of them"
                            .to_owned(),
                    ));
                }
            }
        }
        Ok(cells)
    }

    /// Whether layers can be split so: into stages of equal length, of equal length with embedding and head counted as a layer each, or
    /// of lengths so similar that the shorter ones hardly wait, if stages align with nodes.
    fn can_have_stages(&self, pp: u32) -> bool {
        let (layers, node) = (self.job.model.layers, self.job.cluster.gpus_there);
        let hardly_waits = || {
            let most = u64::from(layers.div_ceil(pp)) * u64::from(pp);
            (most - u64::from(layers)) * LEAST_IDLE <= most
        };
        let aligned = node.is_multiple_of(pp) || pp.is_multiple_of(node);
        let megatron = self.job.run.framework == Framework::Megatron;
        self.stage_length(pp).is_some()
            || (megatron && aligned && pipeline_layout(layers, pp).is_some() && hardly_waits())
    }

    /// Layers of a stage, with embedding and head where they count; none if stages cannot be equal.
    fn stage_length(&self, pp: u32) -> Option<u32> {
        let layers = self.job.model.layers;
        if layers.is_multiple_of(pp) {
            return Some(layers / pp);
        }
        let more = layers.saturating_add(2);
        (self.job.run.framework == Framework::Megatron && pp > 1 && more.is_multiple_of(pp))
            .then(|| more / pp)
    }

    /// Pieces of the model that a stage may hold.
    fn pieces(&self, pp: u32) -> Vec<u32> {
        match (self.fixed.values(Axis::Vpp), self.stage_length(pp)) {
            (Some(values), _) => values.to_vec(),
            (None, Some(length)) if pp > 1 => divisors(length),
            _ => vec![1],
        }
    }

    /// Sizes of micro-batches, ascending, with which a schedule has whole rounds: interleaved stages take as many micro-batches at a
    /// time as there are stages.
    pub(super) fn micro_batches(&self, cell: &Cell, vpp: u32) -> impl Iterator<Item = u32> + use<'_> {
        let each = self.base.global_batch / cell.dp.max(1);
        let stages = cell.pp;
        let whole = move |it: &u32| vpp == 1 || (each / it).is_multiple_of(stages);
        divisors(each).into_iter().filter(|it| self.fixed.allows(Axis::MicroBatch, *it)).filter(whole)
    }

    fn states(&self, cell: &Cell) -> impl Iterator<Item = State> + '_ {
        // With nothing to share, all stages of ZeRO are the same: the first that can offload so counts.
        let alone = cell.dp == 1 && cell.cp == 1;
        let first = move |it: &State| {
            self.states.iter().filter(|other| other.offload == it.offload).all(|other| other.zero >= it.zero)
        };
        self.states.iter().copied().filter(move |it| !alone || first(it))
    }

    fn count(&self, cell: &Cell) -> u64 {
        let states = self.states(cell).count() * self.recompute.len();
        let schedules =
            self.pieces(cell.pp).into_iter().map(|vpp| self.micro_batches(cell, vpp).count()).sum::<usize>();
        (schedules * states) as u64
    }

    /// Which rule leaves no layout.
    fn empty(&self, predictor: &Predictor<'_>) -> Empty {
        let with = |run: Run, axis: Axis, value: u32| set(run, axis, value);
        // One setting that breaks a rule by itself.
        for (axis, values) in self.fixed.all() {
            for value in values {
                // Batches depend on data parallelism, which other settings change.
                let run = with(Run { global_batch: 0, ..self.base }, axis, *value);
                let run = Run { global_batch: batch_for(self.job, &run), ..run };
                if let Err(broken) = predictor.step(&run) {
                    return Empty(format!(
                        "no layout has {} = {}: {broken}",
                        axis.name(),
                        shown(axis, *value)
                    ));
                }
            }
        }
        let all = self.fixed.all().filter_map(|(axis, values)| Some((axis, *values.first()?)));
        let run = all.fold(self.base, |run, (axis, value)| with(run, axis, value));
        match predictor.step(&run) {
            Err(broken) => Empty(format!("no layout is possible: {broken}")),
            Ok(_) => {
                let names: Vec<&str> = self.fixed.all().map(|it| it.0.name()).collect();
                Empty(format!("no layout has what is fixed together: {}", names.join(", ")))
            }
        }
    }
}

/// A batch that every layout of these sizes can divide.
fn batch_for(job: &Job, run: &Run) -> u32 {
    let dp = (job.cluster.ranks() / run.model_ranks().max(1)).max(1);
    let batch = dp.saturating_mul(u64::from(run.micro_batch)).saturating_mul(u64::from(run.pp));
    u32::try_from(batch).unwrap_or(job.run.global_batch)
}

fn shown(axis: Axis, value: u32) -> String {
    match axis {
        Axis::Recompute => RECOMPUTE.get(value as usize).map_or("none", |it| it.name()).to_owned(),
        Axis::OffloadParams | Axis::OffloadOptimizer | Axis::SequenceParallel => (value == 1).to_string(),
        _ => value.to_string(),
    }
}

/// A layout with one setting changed.
pub(super) fn set(mut run: Run, axis: Axis, value: u32) -> Run {
    match axis {
        Axis::Tp => run.tp = value,
        Axis::Pp => run.pp = value,
        Axis::Vpp => {
            run.vpp = value;
            // Interleaving needs stages.
            if value > 1 && run.pp == 1 {
                run.pp = 2;
            }
        }
        Axis::Cp => run.cp = value,
        Axis::Ep => run.ep = value,
        // What remains of the ranks.
        Axis::Dp => {}
        Axis::Zero => run.zero = value,
        Axis::OffloadParams => {
            run.offload.params = value == 1;
            run.zero = if value == 1 { 3 } else { run.zero };
        }
        Axis::OffloadOptimizer => {
            run.offload.optimizer = value == 1;
            run.zero = if value == 1 { run.zero.max(1) } else { run.zero };
        }
        Axis::MicroBatch => run.micro_batch = value,
        Axis::Recompute => {
            run.recompute = RECOMPUTE.get(value as usize).copied().unwrap_or(Recompute::None);
        }
        Axis::SequenceParallel => run.sequence_parallel = value == 1,
    }
    run
}

/// `ZeRO` and offloading as the framework has them, or as fixed.
fn states(features: Features, fixed: &Fixed) -> Vec<State> {
    let zero = fixed.values(Axis::Zero).unwrap_or(features.zero);
    let flags = |axis: Axis, usual: bool| match fixed.values(axis) {
        Some(values) => values.iter().map(|it| *it == 1).collect(),
        None if usual => vec![false, true],
        None => vec![false],
    };
    let params = flags(Axis::OffloadParams, matches!(features.offload, Offloads::Each | Offloads::Together));
    let optimizer = flags(Axis::OffloadOptimizer, features.offload != Offloads::Nothing);
    let free = fixed.values(Axis::OffloadParams).is_none() && fixed.values(Axis::OffloadOptimizer).is_none();
    let together = features.offload == Offloads::Together && free;
    let mut states = Vec::new();
    for zero in zero {
        for params in &params {
            for optimizer in &optimizer {
                let possible = (!params || *zero == 3) && (!optimizer || *zero > 0);
                if possible && (!together || params == optimizer) {
                    let offload = Offload { params: *params, optimizer: *optimizer };
                    states.push(State { zero: *zero, offload });
                }
            }
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::{Space, divisors};
    use crate::plan::Fixed;
    use crate::training::{Calibration, Job, Predictor};

    fn job(model: &str, nodes: u32, run: &str) -> Job {
        Job::read(&format!(
            "[model]\nname = '{model}'\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = {nodes}\n[run]\n{run}\n"
        ))
        .unwrap()
    }

    fn fixed(all: &[&str]) -> Fixed {
        let mut fixed = Fixed::default();
        for it in all {
            fixed.add(it).unwrap();
        }
        fixed
    }

    #[test]
    fn divisors_are_all_and_ascending() {
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(1), [1]);
        assert!(divisors(0).is_empty());
        assert_eq!(divisors(u32::MAX).len(), 32);
    }

    #[test]
    fn every_layout_of_a_space_is_possible_and_counted() {
        for (model, run) in [
            ("llama-3-8b", "global_batch = 256"),
            ("llama-3-8b", "framework = 'deepspeed'\nglobal_batch = 256"),
            ("llama-3-8b", "framework = 'fsdp'\nglobal_batch = 96"),
            ("llama-3-8b", "framework = 'ddp'\nglobal_batch = 256"),
            ("mixtral-8x7b", "global_batch = 128"),
            ("llama-3.1-405b", "global_batch = 64\nseq = 8192"),
        ] {
            let job = job(model, 4, run);
            let space = Space::new(&job, &Fixed::default(), None).unwrap();
            let calibration = Calibration::published();
            let predictor = Predictor::new(&calibration, &job.model, &job.cluster);
            let mut count = 0;
            for cell in space.cells() {
                space.each(cell, |run| {
                    count += 1;
                    let step = predictor.step(run);
                    assert!(step.is_ok(), "{model} {run:?}: {step:?}");
                });
            }
            assert_eq!(count, space.layouts(), "{model}");
            assert!(count >= 8, "{model}: {count}");
        }
    }

    #[test]
    fn stages_may_differ_in_megatron_alone() {
        let stages = |framework: &str| {
            let job = job("deepseek-v3", 32, &format!("framework = '{framework}'\nglobal_batch = 4096"));
            let space = Space::new(&job, &Fixed::default(), None).unwrap();
            let mut all: Vec<(u32, u32)> = Vec::new();
            for cell in space.cells() {
                space.each(cell, |run| all.push((run.pp, run.vpp)));
            }
            all.sort_unstable();
            all.dedup();
            all
        };
        // 61 layers: 13 stages of 4 and 3 of 3, without pieces; on 64 stages, none is left for three.
        assert_eq!(stages("megatron"), [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (32, 1)]);
        assert_eq!(stages("fsdp"), [(1, 1)]);
    }

    #[test]
    fn what_is_fixed_stays() {
        let job = job("llama-3-70b", 4, "global_batch = 256");
        let pins = fixed(&["tp=8", "zero=1", "recompute=full", "micro_batch=1,2", "offload_optimizer=false"]);
        let space = Space::new(&job, &pins, None).unwrap();
        for cell in space.cells() {
            space.each(cell, |run| {
                assert!(run.tp == 8 && run.zero == 1 && run.micro_batch <= 2 && !run.offload.optimizer);
            });
        }
    }

    #[test]
    fn an_empty_space_names_the_rule() {
        let job = job("llama-3-8b", 2, "global_batch = 256");
        for (pins, rule) in [
            (&["tp=3"][..], "no layout has tp = 3: 32 heads are not a multiple of tp = 3"),
            (&["pp=64"], "no layout has pp = 64: pp = 64 is more than layers = 32"),
            (&["ep=2"], "`ep` needs a mixture of experts"),
            (&["tp=8", "pp=4"], "16 GPUs are not a multiple of tp x pp x cp = 32"),
            (&["dp=5"], "what is fixed together: dp"),
            (&["micro_batch=3"], "256 sequences of a step"),
        ] {
            let error = Space::new(&job, &fixed(pins), None).unwrap_err().to_string();
            assert!(error.contains(rule), "{pins:?}: {error}");
        }
        let odd = job.with("pods=1x7").unwrap().with("nodes=1").unwrap();
        let error = Space::new(&odd, &Fixed::default(), None).unwrap_err().to_string();
        assert!(error.contains("256 sequences of a step are not a multiple"), "{error}");
        let none = job.with("nodes=1").unwrap();
        let none = Job { run: crate::training::Run { global_batch: 0, ..none.run }, ..none };
        assert!(
            Space::new(&none, &Fixed::default(), None)
                .unwrap_err()
                .to_string()
                .contains("`global_batch` is 0")
        );
    }
}

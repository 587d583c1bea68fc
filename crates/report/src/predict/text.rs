//! The same for people.

use std::io::{self, Write};

use fabric::machine::NicKind;
use forecast::training::{Framework, Intra, Job, Kind, Recompute, Seconds, Step, models};

use super::{OfLog, Predict, Saying};
use crate::expect::shown;
use crate::text::{Style, wrap};

/// The job in one sentence.
pub(crate) fn describe(job: &Job) -> String {
    let (run, cluster) = (&job.run, &job.cluster);
    let billions = job.model.parameters() / 1e9;
    let changed = |it: &str| models::find(it).is_ok_and(|model| model != job.model);
    let name = job
        .model_name
        .as_deref()
        .map(|it| if changed(it) { format!("{it} with another shape, ") } else { format!("{it}, ") });
    let name = name.unwrap_or_default();
    let nodes = if cluster.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", cluster.nodes) };
    let pods =
        if cluster.pods == 1 { String::new() } else { format!(", pods {}x{}", cluster.pods, cluster.gpus) };
    let dp = cluster.ranks() / run.model_ranks().max(1);
    let mut layout = format!("tp {} x pp {} x dp {dp}", run.tp, run.pp);
    for (label, value) in [("vpp", run.vpp), ("cp", run.cp), ("ep", run.ep)] {
        if value > 1 {
            layout.push_str(&format!(", {label} {value}"));
        }
    }
    let zero = if run.zero > 0 { format!(", ZeRO-{}", run.zero) } else { String::new() };
    let offload = match (run.offload.params, run.offload.optimizer) {
        (true, true) => ", parameters and optimizer on the host",
        (true, false) => ", parameters on the host",
        (false, true) => ", optimizer on the host",
        (false, false) => "",
    };
    let recompute = match run.recompute {
        Recompute::None => "",
        Recompute::Selective => ", selective recomputation",
        Recompute::Full => ", full recomputation",
    };
    format!(
        "{name}{} billion parameters on {} x {} ({nodes}{pods}), {} {layout}{zero}{offload}, {} sequences of {} tokens in micro-batches of {}, {}{recompute}",
        shown(billions),
        cluster.ranks(),
        cluster.gpu.name,
        run.framework.name(),
        run.global_batch,
        run.seq,
        run.micro_batch,
        run.precision.name(),
    )
}

/// What limits the job.
pub(crate) fn bottleneck(job: &Job, step: &Step) -> String {
    let kind = step.breakdown.bottleneck();
    let part = step.breakdown[kind].exposed;
    let share = 100.0 * part.0 / step.time.0.max(f64::MIN_POSITIVE);
    let head = format!("{}: {} of {}, {share:.0} %", kind.describe(), Seconds(part.0), step.time);
    let why = match kind {
        Kind::Gather | Kind::Gradients => network(job),
        Kind::Tensor if job.run.tp > job.cluster.gpus => {
            Some(format!("tp {} is more than the {} GPUs that NVLink joins", job.run.tp, job.cluster.gpus))
        }
        Kind::Bubble => Some(format!(
            "{} stages wait for the first and the last micro-batch: more micro-batches, fewer stages or vpp shorten it",
            job.run.pp
        )),
        Kind::CpuOptimizer if job.run.omp_threads.is_none() && job.cluster.gpus > 1 => Some(
            "torchrun sets OMP_NUM_THREADS=1 where several processes share a node: set it to the cores of a rank"
                .to_owned(),
        ),
        Kind::Launch => Some("layers are too small for the GPU: larger micro-batches or CUDA graphs help".to_owned()),
        Kind::Pcie if job.run.offload.params => {
            Some("offloaded parameters cross PCIe twice in each micro-batch, gradients once".to_owned())
        }
        Kind::Pcie if job.run.offloads_gradients() => {
            Some("gradients cross PCIe in each micro-batch: larger and fewer micro-batches copy less".to_owned())
        }
        Kind::Pcie => Some("gradients and parameters cross PCIe once a step".to_owned()),
        _ => None,
    };
    why.map_or(head.clone(), |why| format!("{head}. {why}"))
}

/// The links that data-parallel communication uses.
fn network(job: &Job) -> Option<String> {
    let cluster = &job.cluster;
    if cluster.nodes == 1 && cluster.pods == 1 {
        return match cluster.intra {
            Intra::Host { .. } => Some("GPUs exchange through host memory".to_owned()),
            _ => None,
        };
    }
    let inter = cluster.inter?;
    let kind = inter.kind.network();
    let direct = if inter.gpudirect || inter.kind == NicKind::Ethernet { "" } else { " without GPUDirect" };
    let who = match cluster.on_node() {
        1 => "the GPU of a node has".to_owned(),
        several => format!("{several} GPUs of a node share"),
    };
    Some(format!("{who} {} x {} of {kind}{direct}", inter.nics, inter.rate))
}

/// Pieces of interleaved stages with unequal numbers of layers.
fn uneven(job: &Job) -> Option<String> {
    let (run, layers) = (&job.run, job.model.layers);
    let pieces = run.pp.saturating_mul(run.vpp).max(1);
    // Embedding and head can count as a layer each.
    let even = layers.is_multiple_of(pieces) || layers.saturating_add(2).is_multiple_of(pieces);
    (run.framework == Framework::Megatron && run.vpp > 1 && !even).then(|| {
        format!(
            "{layers} layers cannot be divided evenly into {} x {} pieces (pp x vpp): Megatron-LM needs --pipeline-model-parallel-layout",
            run.pp, run.vpp
        )
    })
}

/// What no input says, in one sentence.
pub(crate) fn assumed<'a>(all: impl Iterator<Item = &'a String>) -> Option<String> {
    let all: Vec<&str> = all.map(String::as_str).collect();
    (!all.is_empty()).then(|| format!("assumed: {}", all.join(", ")))
}

/// What a reader should know besides.
pub(super) fn remarks(job: &Job, step: &Step) -> Vec<String> {
    let mut notes = Vec::new();
    let memory = &step.memory;
    if memory.host_available.is_some_and(|it| memory.host.0 > it.0) {
        notes.push("the memory of a node is too small for what is offloaded".to_owned());
    }
    notes.extend(uneven(job));
    if memory.is_tight() {
        notes.push(format!(
            "memory is tight: one of ten runs needs more than {} GiB, and the GPU has {}",
            shown(memory.most.0),
            shown(memory.available.0)
        ));
    }
    let sharded = job.run.zero == 3 && job.run.framework != Framework::Megatron;
    let micro_batches = u64::from(job.run.global_batch)
        / u64::from(job.run.micro_batch)
            .saturating_mul(job.cluster.ranks() / job.run.model_ranks().max(1))
            .max(1);
    let gather = step.breakdown[Kind::Gather].exposed.0 + step.breakdown[Kind::Gradients].exposed.0;
    if sharded && micro_batches > 1 && gather > 0.2 * step.time.0 {
        notes.push(format!(
            "ZeRO-3 gathers and reduces in each of {micro_batches} micro-batches: larger and fewer micro-batches send less"
        ));
    }
    notes
}

impl OfLog {
    /// `rank0.log: EFA without GPUDirect between nodes, SHM inside a node; nodes 4, zero 3`
    pub(crate) fn words(&self) -> String {
        let mut parts = self.paths.clone();
        let short = |it: &Saying| {
            let name = it.key.split_once('.').map_or(&*it.key, |it| it.1);
            match &it.value {
                serde_json::Value::String(text) => format!("{name} {text}"),
                serde_json::Value::Object(_) => name.to_owned(),
                value => format!("{name} {value}"),
            }
        };
        let said: Vec<String> = self.says.iter().map(short).collect();
        parts.extend((!said.is_empty()).then(|| said.join(", ")));
        format!("{}: {}", self.files.join(", "), parts.join("; "))
    }
}

pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        it if it >= 172_800.0 => format!("{:.1} days", it / 86_400.0),
        it if it >= 7200.0 => format!("{:.1} h", it / 3600.0),
        it if it >= 120.0 => format!("{:.0} min", it / 60.0),
        it => Seconds(it).to_string(),
    }
}

impl Predict {
    /// The answer in a sentence.
    pub(crate) fn headline(&self) -> String {
        let seconds = |it: f64| Seconds(it).to_string();
        let memory = &self.memory_gib;
        let head = format!(
            "{} per step, between {} and {}; {}",
            seconds(self.step_time_s),
            seconds(self.interval_s[0]),
            seconds(self.interval_s[1]),
            match memory.host_available.filter(|it| memory.host > *it) {
                _ if self.fits =>
                    format!("{} of {} GiB of each GPU", shown(memory.total), shown(memory.available)),
                Some(available) if memory.total <= memory.available => format!(
                    "does not fit: offloaded states need {} GiB of each node's {}",
                    shown(memory.host),
                    shown(available)
                ),
                _ => format!("does not fit: {} GiB of {}", shown(memory.total), shown(memory.available)),
            }
        );
        match &self.measured {
            Some(it) => format!("{} per step measured; predicted {head}", seconds(it.step_time_s)),
            None => head,
        }
    }

    /// Tokens and operations per second.
    pub(crate) fn speed(&self) -> String {
        format!(
            "{} tokens/s per GPU, {} in all; {} TFLOP/s per GPU, MFU {:.0} % (recomputation not counted)",
            shown(self.tokens_per_s_per_gpu),
            shown(self.tokens_per_s),
            shown(self.model_tflops_per_gpu),
            100.0 * self.mfu
        )
    }

    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let bold = |text: &str| if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        let seconds = |it: f64| Seconds(it).to_string();
        let memory = &self.memory_gib;
        for line in wrap(&self.headline(), style.width) {
            writeln!(out, "{}", bold(&line))?;
        }
        writeln!(out)?;
        let mut line = |label: &str, text: &str| -> io::Result<()> {
            for (i, part) in wrap(text, style.width.saturating_sub(12).max(30)).into_iter().enumerate() {
                writeln!(out, "  {:<9} {part}", if i == 0 { label } else { "" })?;
            }
            Ok(())
        };
        line("job", &self.job)?;
        if let Some(log) = &self.log {
            line("log", &log.words())?;
        }
        if let Some(it) = &self.measured {
            let percent = 100.0 * (it.ratio - 1.0);
            line(
                "measured",
                &format!(
                    "{}: {}; {percent:+.0} % against the prediction. What-ifs are the measured step, changed by the predicted ratio",
                    seconds(it.step_time_s),
                    it.how
                ),
            )?;
        }
        line("speed", &self.speed())?;
        if let Some(total) = self.total_time_s {
            let cost = self.cost.map(|it| format!(", cost {it:.2}")).unwrap_or_default();
            line("run", &format!("{} in all{cost}", duration(total)))?;
        }
        line(
            "memory",
            &format!(
                "weights {}, gradients {}, optimizer {}, activations {}, buffers {}, CUDA and NCCL {} GiB",
                shown(memory.weights),
                shown(memory.gradients),
                shown(memory.optimizer),
                shown(memory.activations),
                shown(memory.buffers),
                shown(memory.context)
            ),
        )?;
        if memory.host > 0.0 {
            let has = memory.host_available.map(|it| format!(" of {}", shown(it))).unwrap_or_default();
            line("host", &format!("{}{has} GiB of each node for offloaded states", shown(memory.host)))?;
        }
        line("limit", &self.bottleneck.text)?;
        for note in &self.notes {
            line("note", note)?;
        }
        self.parts(out)?;
        self.changes(out)
    }

    fn parts(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\n  {:<36} {:>9} {:>6}  {:>9}", "where the time goes", "adds", "share", "hidden")?;
        for part in &self.breakdown {
            let hidden = if part.hidden_s > 0.0 { Seconds(part.hidden_s).to_string() } else { String::new() };
            let share = 100.0 * part.exposed_s / self.step_time_s.max(f64::MIN_POSITIVE);
            let line = format!(
                "  {:<36} {:>9} {:>4.0} %  {hidden:>9}",
                part.what,
                Seconds(part.exposed_s).to_string(),
                share
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn changes(&self, out: &mut impl Write) -> io::Result<()> {
        if self.what_if.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  {:<26} {:>9} {:>7}  limit", "what if", "per step", "change")?;
        for it in &self.what_if {
            match (it.step_time_s, it.ratio) {
                (Some(time), Some(ratio)) => {
                    let fits = if it.fits == Some(false) { "does not fit; " } else { "" };
                    let percent = format!("{:+.0} %", 100.0 * (ratio - 1.0));
                    let time = Seconds(it.scaled_s.unwrap_or(time)).to_string();
                    writeln!(out, "  {:<26} {time:>9} {percent:>7}  {fits}{}", it.change, it.text)?;
                }
                _ => writeln!(out, "  {:<26} impossible: {}", it.change, it.text)?,
            }
        }
        Ok(())
    }
}

//! A job file: what is trained, on what, and how. TOML, or JSON with the same keys.

use std::fmt;

use fabric::gpu::{self, GpuModel};
use fabric::machine::NicKind;
use fabric::units::{GigabitsPerSecond, GigabytesPerSecond};
use fabric::{Layout, catalogue};
use serde::Deserialize;
use serde_json::Value;

use super::hardware::{Cluster, Gpu, Inter, Intra};
use super::measured::Measured;
use super::model::{Experts, Model};
use super::models;
use super::run::{Framework, Libraries, ModelCode, Offload, Precision, Recompute, Run, SENT_IN_HALF};
use super::step::Seconds;

/// A training job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What is trained.
    pub model: Model,
    /// The name of the model, where the file gives one of the catalogue.
    pub model_name: Option<String>,
    /// On what.
    pub cluster: Cluster,
    /// How.
    pub run: Run,
    /// Steps of the whole run, where the file says so.
    pub steps: Option<u64>,
    /// What the run takes before its first step.
    pub startup: Seconds,
    /// What a reader should know, in sentences.
    pub notes: Vec<String>,
    /// What was assumed of model, cluster and settings, in words or as `seq = 2048`.
    pub assumed: Vec<String>,
    /// The same of the layout, which a search chooses itself.
    pub assumed_layout: Vec<String>,
    /// Collectives that were measured on the cluster.
    pub measured: Measured,
}

/// What is wrong with a job file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError(String);

impl JobError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

fn wrong<T>(text: impl Into<String>) -> Result<T, JobError> {
    Err(JobError(text.into()))
}

#[derive(Debug, Deserialize)]
struct File {
    model: Table<ModelTable>,
    cluster: Table<ClusterTable>,
    #[serde(default)]
    run: Table<RunTable>,
}

/// A table, transparent to serde; absent ones are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct Table<T>(T);

macro_rules! keys {
    ($(#[$meta:meta])* $name:ident { $($key:ident: $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct $name { $($key: Option<$kind>),* }

        impl $name {
            const KEYS: &[&str] = &[$(stringify!($key)),*];
            /// What each key takes, as the type of its field.
            const TYPES: &[(&str, &str)] = &[$((stringify!($key), stringify!($kind))),*];
        }
    };
}

keys! { ModelTable {
    name: String, config: String, layers: u32, hidden: u32, heads: u32, kv_heads: u32, head_width: u32, ffn: u32,
    gated_mlp: bool, vocab: u32, tied_embeddings: bool, experts: u32, experts_per_token: u32, moe_ffn: u32,
    moe_layers: u32, shared_experts: u32,
} }

keys! { ClusterTable {
    instance: String, gpu: String, gpus_per_node: u32, nodes: u32, intra: String, inter: InterTable, pods: String,
    measured: String, cpus: u32, host_memory_gib: f64,
} }

keys! { InterTable { kind: String, nics: u32, gbps: f64, gpudirect: bool } }

keys! { RunTable {
    framework: String, tp: u32, pp: u32, vpp: u32, cp: u32, ep: u32, etp: u32, zero: u32, offload: OffloadTable, seq: u32,
    micro_batch: u32, global_batch: u32, precision: String, recompute: String, sequence_parallel: bool,
    flash_attention: bool, omp_threads: u32, overlap: bool, expert_overlap: bool, libraries: String, launch_blocking: bool,
    reduce_dtype: String, model_code: String, steps: u64, startup_s: f64,
} }

keys! { OffloadTable { params: bool, optimizer: bool } }

impl Job {
    /// The same job with the settings that a plan writes where the job is silent, so that what it emits is what it predicted.
    #[must_use]
    pub fn planned(mut self) -> Self {
        let (run, chosen) = self.run.planned();
        self.run = run;
        if let Some(chosen) = chosen {
            self.notes.retain(|it| it != SENT_IN_HALF);
            self.notes.push(chosen.to_owned());
        }
        self
    }

    /// Reads a job file.
    pub fn read(text: &str) -> Result<Self, JobError> {
        Self::of_value(Self::tables(text)?)
    }

    /// The tables of a job file, each optional: something else may complete them.
    pub fn tables(text: &str) -> Result<Value, JobError> {
        let value: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).or_else(|error| wrong(error.to_string()))?
        } else {
            toml::from_str(text).or_else(|error: toml::de::Error| wrong(error.to_string().trim_end()))?
        };
        Self::check_keys(&value)?;
        Ok(value)
    }

    /// Refuses tables and keys that a job file does not have.
    pub fn check_keys(value: &Value) -> Result<(), JobError> {
        known(value, "", &["model", "cluster", "run"])?;
        let table = |name: &str| value.get(name).unwrap_or(&Value::Null);
        known(table("model"), "model", ModelTable::KEYS)?;
        known(table("cluster"), "cluster", ClusterTable::KEYS)?;
        known(&table("cluster")["inter"], "cluster.inter", InterTable::KEYS)?;
        known(table("run"), "run", RunTable::KEYS)?;
        known(&table("run")["offload"], "run.offload", OffloadTable::KEYS)
    }

    /// From JSON that is already parsed.
    pub fn of_value(value: Value) -> Result<Self, JobError> {
        Self::check_keys(&value)?;
        let table = |name: &str| value.get(name).unwrap_or(&Value::Null);
        for name in ["model", "cluster"] {
            if value.get(name).is_none() {
                return wrong(format!("the job has no [{name}] table"));
            }
        }
        types(table("model"), "model", ModelTable::TYPES)?;
        types(table("cluster"), "cluster", ClusterTable::TYPES)?;
        types(&table("cluster")["inter"], "cluster.inter", InterTable::TYPES)?;
        types(table("run"), "run", RunTable::TYPES)?;
        types(&table("run")["offload"], "run.offload", OffloadTable::TYPES)?;
        let file: File = serde_json::from_value(value).or_else(|error| wrong(error.to_string()))?;
        let mut notes = Vec::new();
        let model_name = file.model.0.name.clone();
        let model = model(&file.model.0)?;
        let cluster = cluster(&file.cluster.0, &mut notes)?;
        let run = run(&file.run.0, &cluster, &mut notes)?;
        let (assumed, assumed_layout) = (assumed(&file.run.0, &run), assumed_layout(&file.run.0, &run));
        for (key, number) in
            [("steps", file.run.0.steps), ("omp_threads", file.run.0.omp_threads.map(u64::from))]
        {
            if number == Some(0) {
                return wrong(format!("`{key}` in [run] is 0: it must be at least 1"));
            }
        }
        let startup = file.run.0.startup_s.unwrap_or(0.0);
        Ok(Self {
            model,
            model_name,
            cluster,
            run,
            steps: file.run.0.steps,
            startup: Seconds(startup),
            notes,
            assumed,
            assumed_layout,
            measured: Measured::default(),
        })
    }

    /// A key with its table: `run.seq` of `seq`, `cluster.inter.gbps` of `inter.gbps`.
    pub fn full_key(key: &str) -> Result<String, JobError> {
        let tables: [(&str, &[&str]); 5] = [
            ("model", ModelTable::KEYS),
            ("cluster", ClusterTable::KEYS),
            ("run", RunTable::KEYS),
            ("cluster.inter", InterTable::KEYS),
            ("run.offload", OffloadTable::KEYS),
        ];
        // As `--fix` and `--what-if` name them.
        let key = match key {
            "offload_params" => "offload.params",
            "offload_optimizer" => "offload.optimizer",
            _ => key,
        };
        let all = || tables.iter().flat_map(|(table, keys)| keys.iter().map(move |it| (*table, *it)));
        let full = |(table, name): &(&str, &str)| format!("{table}.{name}");
        let ends = |it: &(&str, &str)| full(it) == key || full(it).ends_with(&format!(".{key}"));
        if let Some(found) = all().find(ends) {
            return Ok(full(&found));
        }
        let distance = |it: &(&str, &str)| strsim::damerau_levenshtein(it.1, key);
        match all().filter(|it| 2 * distance(it) <= it.1.len()).min_by_key(distance) {
            Some((_, near)) => wrong(format!("a job has no key `{key}`: did you mean `{near}`?")),
            None => wrong(format!("a job has no key `{key}`: docs/predict.md lists its keys")),
        }
    }
}

/// Refuses keys that a table does not have, with the nearest one.
fn known(value: &Value, table: &str, keys: &[&str]) -> Result<(), JobError> {
    let Some(object) = value.as_object() else { return Ok(()) };
    let Some(unknown) = object.keys().find(|it| !keys.contains(&it.as_str())) else { return Ok(()) };
    let near = keys
        .iter()
        .map(|key| (strsim::damerau_levenshtein(key, unknown), key))
        .filter(|(distance, key)| *distance <= 3.min(key.len() / 2) || key.starts_with(unknown.as_str()))
        .min();
    let place = if table.is_empty() { "the job".to_owned() } else { format!("[{table}]") };
    match near {
        Some((_, key)) => wrong(format!("{place} has no key `{unknown}`: did you mean `{key}`?")),
        None => wrong(format!("{place} has no key `{unknown}`: it has {}", keys.join(", "))),
    }
}

/// Values that are not what their key takes, named by key.
fn types(value: &Value, table: &str, types: &[(&str, &str)]) -> Result<(), JobError> {
    if !value.is_object() && !value.is_null() {
        return wrong(format!("[{table}] is {value}: it must be a table"));
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for (key, value) in object {
        let Some((_, kind)) = types.iter().find(|it| it.0 == key) else { continue };
        let most = u32::MAX;
        let (is_one, wanted) = match *kind {
            "u32" | "u64" => (
                value.as_u64().is_some_and(|it| it <= u64::from(most)),
                format!("a whole number from 0 to {most}"),
            ),
            // JSON, in which jobs are passed on, has no NaN and no infinity: they are null.
            "f64" => (
                value.as_f64().is_some_and(|it| (0.0..=1e9).contains(&it)),
                "a number from 0 to 1e9".to_owned(),
            ),
            "bool" => (value.is_boolean(), "true or false".to_owned()),
            "String" => (value.is_string(), "a text in quotes".to_owned()),
            "InterTable" => {
                (value.is_object(), "a table, as in { kind = \"efa\", nics = 4, gbps = 100 }".to_owned())
            }
            _ => (value.is_object(), "a table, as in { params = false, optimizer = true }".to_owned()),
        };
        if !is_one {
            let shown = if value.is_null() { "not a number".to_owned() } else { value.to_string() };
            return wrong(format!("`{key}` in [{table}] is {shown}: it must be {wanted}"));
        }
    }
    Ok(())
}

fn model(table: &ModelTable) -> Result<Model, JobError> {
    let base = match (&table.name, &table.config) {
        (Some(name), _) => Some(models::find(name).map_err(JobError)?),
        (None, Some(_)) => {
            return wrong("`config` in [model] must be the configuration itself here, not a file name");
        }
        (None, None) => None,
    };
    let need = |given: Option<u32>, of: fn(&Model) -> u32, key: &str| {
        given.or_else(|| base.as_ref().map(of)).ok_or_else(|| {
            JobError(format!("[model] needs `{key}`, or the `name` of a model that plumb knows"))
        })
    };
    let layers = need(table.layers, |it| it.layers, "layers")?;
    let hidden = need(table.hidden, |it| it.hidden, "hidden")?;
    let heads = need(table.heads, |it| it.heads, "heads")?;
    let vocab = need(table.vocab, |it| it.vocab, "vocab")?;
    let own = table.hidden.is_some() || table.heads.is_some();
    let base = base.filter(|_| !own);
    let kv_heads = table.kv_heads.or(base.map(|it| it.kv_heads)).unwrap_or(heads);
    let gated = table.gated_mlp.or(base.map(|it| it.gated)).unwrap_or(false);
    let ffn = table.ffn.or(base.map(|it| it.ffn)).unwrap_or_else(|| hidden.saturating_mul(4));
    if heads == 0 {
        return wrong("`heads` is 0: it must be at least 1");
    }
    let head_width = match table.head_width.or(base.map(|it| it.head_width)) {
        Some(width) => width,
        None if hidden % heads == 0 => hidden / heads,
        None => {
            return wrong(format!(
                "hidden = {hidden} cannot be divided by heads = {heads}: give `head_width`"
            ));
        }
    };
    let experts = match table.experts.filter(|it| *it > 1) {
        // A named model with a key of its own.
        None => base.and_then(|it| it.experts).map(|known| Experts {
            per_token: table.experts_per_token.unwrap_or(known.per_token).max(1),
            ffn: table.moe_ffn.unwrap_or(known.ffn),
            layers: table.moe_layers.unwrap_or(known.layers),
            shared: table.shared_experts.unwrap_or(known.shared),
            ..known
        }),
        Some(count) => Some(Experts {
            count,
            per_token: table.experts_per_token.unwrap_or(2.min(count)).max(1),
            ffn: table.moe_ffn.unwrap_or(ffn),
            layers: table.moe_layers.unwrap_or(layers),
            shared: table.shared_experts.unwrap_or(0),
        }),
    };
    let tied = table.tied_embeddings.or(base.map(|it| it.tied)).unwrap_or(!gated);
    Ok(Model { layers, hidden, heads, kv_heads, head_width, ffn, gated, vocab, tied, experts })
}

fn gpu_of(name: &str) -> Result<(&'static GpuModel, Gpu), JobError> {
    let Some(model) = gpu::find(name).or_else(|| gpu::by_name_in_text(name)) else {
        return wrong(format!("plumb knows no GPU `{name}`"));
    };
    match Gpu::of_model(model) {
        Some(gpu) => Ok((model, gpu)),
        None => wrong(format!("no source states the peak of {} with 16-bit matrices", model.name)),
    }
}

fn cluster(table: &ClusterTable, remarks: &mut Vec<String>) -> Result<Cluster, JobError> {
    let layout = match table.pods.as_deref().map(Layout::parse) {
        None => None,
        Some(Ok(layout)) => Some((layout.pods_per_node, layout.gpus_per_pod)),
        Some(Err(error)) => return wrong(format!("`pods` in [cluster]: {error}")),
    };
    if table.measured.is_some() {
        return wrong("`measured` in [cluster] names a file, which only the program reads");
    }
    let inter = table.inter.as_ref().map(inter).transpose()?;
    let nodes = table.nodes.unwrap_or(1);
    let mut cluster = match (&table.instance, &table.gpu) {
        (Some(_), Some(_)) => return wrong("[cluster] has `instance` and `gpu`: one is enough"),
        (None, None) => return wrong("[cluster] needs `instance`, or `gpu` and `gpus_per_node`"),
        (Some(name), None) => of_instance(name, table, remarks)?,
        (None, Some(name)) => {
            let (model, gpu) = gpu_of(name)?;
            let Some(gpus) = table.gpus_per_node else { return wrong("[cluster] needs `gpus_per_node`") };
            let intra = match &table.intra {
                Some(text) => intra(text, model)?,
                None => usual(model, remarks),
            };
            Cluster {
                gpu,
                nodes,
                pods: 1,
                gpus,
                gpus_there: gpus,
                domain: domain(model, gpus),
                intra,
                inter: None,
                host_link: host_link(model),
                cpus: None,
                host_memory: None,
            }
        }
    };
    cluster.nodes = nodes;
    if inter.is_some() {
        cluster.inter = inter;
    }
    if let Some((pods, gpus)) = layout {
        (cluster.pods, cluster.gpus) = (pods, gpus);
    }
    cluster.cpus = table.cpus.or(cluster.cpus);
    if let Some(gib) = table.host_memory_gib {
        cluster.host_memory = Some(fabric::units::Gibibytes(gib));
    }
    if cluster.inter.is_none() && (cluster.nodes > 1 || cluster.pods > 1) {
        return wrong("[cluster] has several nodes or pods: it needs `inter`, the network between them");
    }
    Ok(cluster)
}

fn of_instance(name: &str, table: &ClusterTable, notes: &mut Vec<String>) -> Result<Cluster, JobError> {
    if table.gpus_per_node.is_some() || table.intra.is_some() {
        return wrong(
            "[cluster] has `instance`, which already gives `gpus_per_node` and `intra`: leave them out",
        );
    }
    let machine = catalogue::resolve(name).or_else(|unknown| wrong(unknown.to_string()))?;
    let (model, gpu) = gpu_of(&machine.gpu.name)?;
    let network = match machine.network {
        // TCP over the machine's own interface.
        NicKind::Ethernet => {
            Inter { kind: NicKind::Ethernet, nics: 1, rate: machine.bandwidth, gpudirect: false }
        }
        kind => Inter {
            kind,
            nics: machine.nics,
            rate: GigabitsPerSecond(machine.bandwidth.0 / f64::from(machine.nics.max(1))),
            gpudirect: machine.gpudirect.unwrap_or(true),
        },
    };
    let intra = match machine.inside {
        catalogue::Inside::NvSwitch | catalogue::Inside::NvLinkMesh => usual(model, notes),
        catalogue::Inside::OneGpu | catalogue::Inside::Pcie | catalogue::Inside::Unknown => {
            let peers = gpu::peer_access_in_text(&model.name).unwrap_or(false);
            let generation = model.pcie_gen.unwrap_or(4);
            Intra::pci(generation, peers).unwrap_or(Intra::Host { bandwidth: GigabytesPerSecond(12.0) })
        }
    };
    Ok(Cluster {
        gpu,
        nodes: 1,
        pods: 1,
        gpus: machine.gpus,
        gpus_there: machine.gpus,
        domain: machine.domain,
        intra,
        inter: Some(network),
        host_link: host_link(model),
        cpus: machine.instance.map(|it| it.vcpus),
        host_memory: machine.instance.map(|it| it.mem_gib),
    })
}

impl Cluster {
    /// The same nodes with another GPU, joined as GPUs of that model usually are.
    pub(super) fn with_gpu(self, name: &str, notes: &mut Vec<String>) -> Result<Self, JobError> {
        let (model, gpu) = gpu_of(name)?;
        Ok(Self {
            gpu,
            domain: domain(model, self.gpus_there),
            intra: usual(model, notes),
            host_link: host_link(model),
            ..self
        })
    }

    /// As many nodes of another instance type. Pods are kept, where the job has several or uses a part of the GPUs.
    pub(super) fn with_instance(self, name: &str, notes: &mut Vec<String>) -> Result<Self, JobError> {
        let other = of_instance(name, &ClusterTable::default(), notes)?;
        let whole = self.pods == 1 && self.gpus == self.gpus_there;
        let (pods, gpus) = if whole { (1, other.gpus) } else { (self.pods, self.gpus) };
        Ok(Self { nodes: self.nodes, pods, gpus, ..other })
    }
}

/// Nodes that NVLink joins: a rack of Grace machines has 72 GPUs.
fn domain(model: &GpuModel, gpus: u32) -> u32 {
    if model.family.starts_with("GB") && gpus > 0 { (72 / gpus).max(1) } else { 1 }
}

/// What a GPU copies to and from the host.
fn host_link(model: &GpuModel) -> GigabytesPerSecond {
    let pci = Intra::pci(model.pcie_gen.unwrap_or(4), true);
    let pci = match pci {
        Some(Intra::Pci { bandwidth }) => bandwidth,
        _ => GigabytesPerSecond(24.0),
    };
    model.c2c.unwrap_or(pci)
}

/// How GPUs of a model are usually joined.
fn usual(model: &GpuModel, notes: &mut Vec<String>) -> Intra {
    let nvlink = model.nvlink.and_then(|it| Intra::nvlink(it.generation, model));
    let pci = || {
        notes.push(format!(
            "`intra` is not given: {} is taken as joined by PCIe through the host",
            model.name
        ));
        Intra::pci(model.pcie_gen.unwrap_or(4), false)
    };
    nvlink.or_else(pci).unwrap_or(Intra::Host { bandwidth: GigabytesPerSecond(12.0) })
}

fn intra(text: &str, model: &GpuModel) -> Result<Intra, JobError> {
    let found = match text {
        "nvlink2" => Intra::nvlink(2, model),
        "nvlink3" => Intra::nvlink(3, model),
        "nvlink4" => Intra::nvlink(4, model),
        "nvlink5" => Intra::nvlink(5, model),
        "pcie3" => Intra::pci(3, true),
        "pcie4" => Intra::pci(4, true),
        "pcie5" => Intra::pci(5, true),
        "pcie-host" => Intra::pci(model.pcie_gen.unwrap_or(4), false),
        _ => None,
    };
    found.ok_or_else(|| {
        JobError(format!(
            "`intra` in [cluster] is `{text}`: it must be nvlink2 to nvlink5, pcie3 to pcie5 or pcie-host"
        ))
    })
}

fn inter(table: &InterTable) -> Result<Inter, JobError> {
    let text = table.kind.as_deref().unwrap_or("infiniband");
    let kind = match text {
        "efa" => NicKind::Efa,
        "infiniband" | "ib" => NicKind::InfiniBand,
        "roce" => NicKind::Roce,
        "slingshot" => NicKind::Slingshot,
        "eni" | "tcp" | "ethernet" => NicKind::Ethernet,
        _ => {
            return wrong(format!(
                "`kind` in [cluster.inter] is `{text}`: it must be efa, infiniband, roce, slingshot, eni or tcp"
            ));
        }
    };
    let nics = table.nics.unwrap_or(1);
    let Some(gbps) = table.gbps else { return wrong("[cluster.inter] needs `gbps`, the rate of one NIC") };
    if nics == 0 || !fabric::machine::Nic::RATES.contains(&gbps) {
        return wrong(format!("[cluster.inter] has {nics} NICs of {gbps} Gbps: that is not a network"));
    }
    let gpudirect = table.gpudirect.unwrap_or(kind != NicKind::Ethernet);
    Ok(Inter { kind, nics, rate: GigabitsPerSecond(gbps), gpudirect })
}

fn run(table: &RunTable, cluster: &Cluster, notes: &mut Vec<String>) -> Result<Run, JobError> {
    let zero = table.zero;
    let framework = match table.framework.as_deref() {
        Some("megatron" | "megatron-lm" | "megatron-deepspeed") => Framework::Megatron,
        Some("deepspeed") => Framework::DeepSpeed,
        Some("fsdp") => Framework::Fsdp,
        Some("ddp") => Framework::Ddp,
        None => Framework::Megatron,
        Some(other) => {
            return wrong(format!(
                "`framework` in [run] is `{other}`: it must be megatron, megatron-deepspeed, megatron-lm, deepspeed, fsdp or ddp"
            ));
        }
    };
    let precision = match table.precision.as_deref().unwrap_or("bf16") {
        "fp16" => Precision::Fp16,
        "bf16" => Precision::Bf16,
        "fp8" => Precision::Fp8,
        other => return wrong(format!("`precision` in [run] is `{other}`: it must be fp16, bf16 or fp8")),
    };
    let recompute = match table.recompute.as_deref().unwrap_or("none") {
        "none" => Recompute::None,
        "selective" => Recompute::Selective,
        "full" => Recompute::Full,
        other => {
            return wrong(format!("`recompute` in [run] is `{other}`: it must be none, selective or full"));
        }
    };
    if precision == Precision::Fp8 && cluster.gpu.quarter.is_none() {
        return wrong(format!("{} has no FP8: set `precision` to bf16 or fp16", cluster.gpu.name));
    }
    if precision == Precision::Bf16 && cluster.gpu.compute < 80 {
        notes.push(format!("{} has no BF16 matrix units: FP16 is assumed", cluster.gpu.name));
    }
    let (tp, pp, cp) = (table.tp.unwrap_or(1), table.pp.unwrap_or(1), table.cp.unwrap_or(1));
    let micro_batch = table.micro_batch.unwrap_or(1);
    let ranks = (u64::from(tp) * u64::from(pp)).saturating_mul(cp.into());
    let one_each = u64::from(micro_batch).saturating_mul((cluster.ranks() / ranks.max(1)).max(1));
    let global_batch = match table.global_batch {
        Some(batch) => batch,
        None => {
            notes.push(format!(
                "`global_batch` is not given: {one_each}, one micro-batch of each data-parallel rank"
            ));
            u32::try_from(one_each).unwrap_or(u32::MAX)
        }
    };
    let libraries = match table.libraries.as_deref() {
        None => None,
        Some("2021") => Some(Libraries::Early),
        Some("current") => Some(Libraries::Current),
        Some(other) => {
            return wrong(format!("`libraries` in [run] is `{other}`: it must be \"2021\" or \"current\""));
        }
    };
    let offload = table.offload.as_ref();
    let run = Run {
        framework,
        tp,
        pp,
        vpp: table.vpp.unwrap_or(1),
        cp,
        ep: table.ep.unwrap_or(1),
        etp: table.etp.unwrap_or(1),
        zero: zero.unwrap_or(if framework == Framework::Fsdp { 3 } else { 0 }),
        offload: Offload {
            params: offload.and_then(|it| it.params).unwrap_or(false),
            optimizer: offload.and_then(|it| it.optimizer).unwrap_or(false),
        },
        seq: table.seq.unwrap_or(2048),
        micro_batch,
        global_batch,
        precision,
        recompute,
        // PyTorch's tensor parallelism, as torchtitan applies it, splits norms too.
        sequence_parallel: table.sequence_parallel.unwrap_or(framework == Framework::Fsdp && tp > 1),
        // No software for Blackwell is older than fused attention: cuDNN's is used without being asked for.
        flash_attention: table.flash_attention.unwrap_or(cluster.gpu.compute >= 80)
            || cluster.gpu.compute >= 100,
        omp_threads: table.omp_threads,
        overlap: table.overlap,
        expert_overlap: table.expert_overlap.unwrap_or(false),
        libraries,
        launch_blocking: table.launch_blocking,
        reduces_half: table.reduce_dtype.as_deref().map(reduces_half).transpose()?,
        model_code: match table.model_code.as_deref() {
            None => ModelCode::Fused,
            Some(text) => ModelCode::read(text).ok_or_else(|| {
                JobError(format!("`model_code` in [run] is `{text}`: it must be transformers or fused"))
            })?,
        },
        with_deepspeed: match table.framework.as_deref() {
            Some("megatron-lm") => Some(false),
            Some("megatron-deepspeed") => Some(true),
            // Its runs were on V100 and A100; on what came later there is another reason for attention that is not fused.
            _ => (cluster.gpu.compute > 80).then_some(false),
        },
    };
    notes.extend(run.usual_modes(&cluster.gpu));
    Ok(run)
}

/// Whether gradients of this type have 16 bits.
pub(super) fn reduces_half(text: &str) -> Result<bool, JobError> {
    match text {
        "bf16" | "fp16" => Ok(true),
        "fp32" => Ok(false),
        _ => wrong(format!("`reduce_dtype` in [run] is `{text}`: it must be fp32, bf16 or fp16")),
    }
}

/// Settings that the file leaves open, that change the time, and that no layout chooses.
fn assumed(table: &RunTable, run: &Run) -> Vec<String> {
    let mut all = Vec::new();
    if table.framework.is_none() {
        all.push(format!("framework = \"{}\"", run.framework.name()));
    }
    if table.seq.is_none() {
        all.push(format!("seq = {}", run.seq));
    }
    if table.precision.is_none() {
        all.push(format!("precision = \"{}\"", run.precision.name()));
    }
    all
}

/// Settings of the layout that the file leaves open.
fn assumed_layout(table: &RunTable, run: &Run) -> Vec<String> {
    let mut all = Vec::new();
    if table.micro_batch.is_none() {
        all.push(format!("micro_batch = {}", run.micro_batch));
    }
    if table.zero.is_none() && run.framework != Framework::Ddp {
        all.push(format!("zero = {}", run.zero));
    }
    if table.recompute.is_none() {
        all.push(format!("recompute = \"{}\"", run.recompute.name()));
    }
    if table.sequence_parallel.is_none() && run.tp > 1 {
        all.push(format!("sequence_parallel = {}", run.sequence_parallel));
    }
    all
}

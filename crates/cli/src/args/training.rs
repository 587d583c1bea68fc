//! The arguments of `plumb predict` and `plumb plan`, and the training job of other commands.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};

use super::{Hardware, PageFormat};

/// The training job, so that findings say what they cost in every step.
#[derive(Debug, Args)]
pub(crate) struct TrainingJob {
    /// A job file of `plumb predict`, as far as the input does not say it: findings then have their cost in seconds per step.
    #[arg(long, value_name = "JOB", value_hint = ValueHint::FilePath)]
    pub(crate) job: Option<PathBuf>,

    /// The price of one node for an hour: findings then have their cost in money.
    #[arg(long, value_parser = price, value_name = "PRICE")]
    pub(crate) price_per_hour: Option<f64>,
}

impl TrainingJob {
    /// The tables of the job file, empty without one; the error names the file.
    pub(crate) fn read(&self) -> Result<serde_json::Value, String> {
        let tables = self.job.as_deref().map(crate::predict::from::job_file).transpose()?;
        Ok(tables.unwrap_or_default())
    }
}

/// Everything that describes a training job, from which one is made.
#[derive(Debug, Args)]
pub(crate) struct TrainedJob {
    /// What describes the job: a job file (TOML or JSON), a script or command line that trains, settings of DeepSpeed or of the
    /// Hugging Face Trainer, config.json of a model, a manifest. Several files make one job; `-` for standard input.
    #[arg(value_name = "JOB", value_hint = ValueHint::FilePath, required_unless_present_any = ["deepspeed", "megatron", "model", "from"])]
    pub(crate) job: Vec<PathBuf>,

    /// Settings of DeepSpeed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) deepspeed: Vec<PathBuf>,

    /// A command line of Megatron: a script, or the options themselves.
    #[arg(long, value_name = "FILE|OPTIONS", allow_hyphen_values = true)]
    pub(crate) megatron: Option<String>,

    /// The model: a name that plumb knows, or config.json of Hugging Face.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) model: Option<String>,

    /// How many nodes.
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,

    /// A key of the job file: seq=4096, tp=2, gpu=A100-80GB. Can be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// A variable that a script gets from outside, `1=...` for its first argument. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) define: Vec<String>,

    /// The job of this log, a file or a folder: its paths, nodes, model and settings. Can be given several times. A JOB then says what the
    /// log does not.
    #[arg(long, value_name = "LOG", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) hardware: Hardware,
}

impl TrainedJob {
    /// The files that are read, each once.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let all: Vec<PathBuf> = self.job.iter().chain(&self.deepspeed).chain(&self.from).cloned().collect();
        crate::input::files(&all)
    }

    /// The first input, which names the job in errors.
    pub(crate) fn first(&self) -> Option<&PathBuf> {
        self.job.first().or(self.deepspeed.first()).or(self.from.first())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    pub(crate) inputs: TrainedJob,

    /// The same job with something else: network=eni, gpudirect=true, pods=8x1, tp=4, or several joined by commas. Can be given several
    /// times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) what_if: Vec<String>,

    /// The price of one node for an hour, for the cost of all steps.
    #[arg(long, value_parser = price, value_name = "PRICE")]
    pub(crate) price_per_hour: Option<f64>,

    /// Write one predicted step as a trace that Perfetto and Chrome show.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) timeline: Option<PathBuf>,

    /// Draw one predicted step as SVG into this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Output format; JSON has the schema plumb.predict/1.
    #[arg(long, short, value_enum, default_value_t = PageFormat::Text)]
    pub(crate) format: PageFormat,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) inputs: TrainedJob,

    /// Search only layouts with this setting: tp=8, `micro_batch=1,2,4`, recompute=none. Can be given several times.
    ///
    /// Settings are tp, pp, vpp, cp, ep, dp, zero, `offload_params`, `offload_optimizer`, `micro_batch`, recompute and
    /// `sequence_parallel`.
    #[arg(long, value_name = "KEY=VALUES")]
    pub(crate) fix: Vec<String>,

    /// Percent of GPU memory to keep free.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) headroom: f64,

    /// Write the best layout as a job file, which `plumb predict` takes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) write: Option<PathBuf>,

    /// Print the best layout as settings instead: arguments of Megatron-LM, JSON of `DeepSpeed`, `TrainingArguments` with FSDP, TOML of
    /// torchtitan, or a manifest (`manifest` is a trainjob).
    #[arg(long, value_name = "WHAT", value_parser = emit(), conflicts_with = "format")]
    pub(crate) emit: Option<String>,

    /// The container image of the manifest.
    #[arg(long, value_name = "IMAGE", requires = "emit")]
    pub(crate) image: Option<String>,

    /// Show the process groups of the best layout and their links; in JSON also where every rank runs.
    #[arg(long)]
    pub(crate) groups: bool,

    /// Output format; JSON has the schema plumb.plan/1.
    #[arg(long, short, value_enum, default_value_t = PageFormat::Text)]
    pub(crate) format: PageFormat,

    /// The program of every rank in the manifest, after `--`.
    #[arg(last = true, value_name = "COMMAND", requires = "emit")]
    pub(crate) command: Vec<String>,
}

/// Reads `--emit`.
fn emit() -> PossibleValuesParser {
    let settings = report::plan::Target::ALL.map(report::plan::Target::name);
    let kinds = manifest::Kind::ALL.map(manifest::Kind::name);
    PossibleValuesParser::new(settings.into_iter().chain(["manifest"]).chain(kinds))
}

/// A share of something, in percent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|it| (0.0..=90.0).contains(it))
        .ok_or_else(|| format!("`{text}` is not a percentage from 0 to 90"))
}

/// What a node costs in an hour.
pub(super) fn price(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok();
    number.filter(|it| (0.0..=1e6).contains(it)).ok_or_else(|| format!("`{text}` is not a price"))
}

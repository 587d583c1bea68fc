//! The same job with something else: `network=eni`, `pods=8x1`, `tp=4`.

use fabric::machine::NicKind;
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, machine};

use super::hardware::Inter;
use super::job::{Job, JobError, reduces_half};
use super::run::{Libraries, ModelCode, Precision, Recompute};

/// What can be changed.
pub const KEYS: [&str; 32] = [
    "instance",
    "gpu",
    "network",
    "gpudirect",
    "nics",
    "gbps",
    "nodes",
    "pods",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "zero",
    "offload_params",
    "offload_optimizer",
    "seq",
    "micro_batch",
    "global_batch",
    "precision",
    "recompute",
    "sequence_parallel",
    "flash_attention",
    "omp_threads",
    "overlap",
    "expert_overlap",
    "etp",
    "libraries",
    "launch_blocking",
    "reduce_dtype",
    "model_code",
    "layers",
];

impl Job {
    /// This job with one thing changed, written `KEY=VALUE`.
    pub fn with(&self, change: &str) -> Result<Self, JobError> {
        let Some((key, value)) = change.split_once('=') else {
            return Err(JobError::new(format!(
                "`{change}` is not a change: write KEY=VALUE, as in network=eni"
            )));
        };
        let (key, value) = (key.trim(), value.trim());
        // As a job file nests them.
        let key = match key {
            "offload.params" => "offload_params",
            "offload.optimizer" => "offload_optimizer",
            "inter.kind" => "network",
            _ => key.strip_prefix("inter.").unwrap_or(key),
        };
        let mut job = self.clone();
        let bad = |what: &str| JobError::new(format!("`{change}`: `{value}` is not {what}"));
        let count = || value.parse::<u32>().ok().filter(|it| *it > 0).ok_or_else(|| bad("a number above 0"));
        let flag = || match value {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(bad("true or false")),
        };
        if ["zero", "flash_attention", "precision"].contains(&key) {
            // The same software, though runs like the changed one had another.
            job.run = job.run.settled(&job.cluster.gpu);
        }
        let run = &mut job.run;
        match key {
            "tp" => {
                // Experts that were split with the rest still are.
                let with = run.etp > 1 && run.etp == run.tp;
                run.tp = count()?;
                run.etp = if with { run.tp } else { run.etp };
            }
            "pp" => run.pp = count()?,
            "vpp" => run.vpp = count()?,
            "cp" => run.cp = count()?,
            "ep" => {
                run.ep = count()?;
                // Without expert parallelism experts are split with the rest.
                run.etp = if run.ep > 1 { run.etp } else { 1 };
            }
            "etp" => run.etp = count()?,
            "zero" => run.zero = value.parse().map_err(|_| bad("a number from 0 to 3"))?,
            "seq" => run.seq = count()?,
            "micro_batch" => run.micro_batch = count()?,
            "global_batch" => run.global_batch = count()?,
            "omp_threads" => run.omp_threads = Some(count()?),
            "sequence_parallel" => run.sequence_parallel = flag()?,
            "flash_attention" => run.flash_attention = flag()?,
            "overlap" => run.overlap = Some(flag()?),
            "expert_overlap" => run.expert_overlap = flag()?,
            "launch_blocking" => run.launch_blocking = Some(flag()?),
            "reduce_dtype" => {
                run.reduces_half = Some(reduces_half(value).map_err(|_| bad("fp32, bf16 or fp16"))?);
            }
            "model_code" => {
                run.model_code = ModelCode::read(value).ok_or_else(|| bad("transformers or fused"))?;
            }
            "instance" | "gpu" => {
                let named = |error: JobError| JobError::new(format!("`{change}`: {error}"));
                job.cluster = if key == "gpu" {
                    job.cluster.with_gpu(value, &mut job.notes)
                } else {
                    job.cluster.with_instance(value, &mut job.notes)
                }
                .map_err(named)?;
                if run.precision == Precision::Fp8 && job.cluster.gpu.quarter.is_none() {
                    return Err(JobError::new(format!("`{change}`: {} has no FP8", job.cluster.gpu.name)));
                }
            }
            "libraries" => {
                let all = [Libraries::Early, Libraries::Current];
                let found = named(&all, Libraries::name, value);
                run.libraries = Some(found.ok_or_else(|| bad("2021 or current"))?);
            }
            "offload_params" => run.offload.params = flag()?,
            "offload_optimizer" => run.offload.optimizer = flag()?,
            "precision" => {
                let all = [Precision::Fp16, Precision::Bf16, Precision::Fp8];
                run.precision =
                    named(&all, Precision::name, value).ok_or_else(|| bad("fp16, bf16 or fp8"))?;
                if run.precision == Precision::Fp8 && self.cluster.gpu.quarter.is_none() {
                    return Err(JobError::new(format!("`{change}`: {} has no FP8", self.cluster.gpu.name)));
                }
            }
            "recompute" => {
                let all = [Recompute::None, Recompute::Selective, Recompute::Full];
                run.recompute =
                    named(&all, Recompute::name, value).ok_or_else(|| bad("none, selective or full"))?;
            }
            "layers" => job.model.layers = count()?,
            "nodes" => job.cluster.nodes = count()?,
            "pods" => {
                let layout =
                    Layout::parse(value).map_err(|error| JobError::new(format!("`{change}`: {error}")))?;
                (job.cluster.pods, job.cluster.gpus) = (layout.pods_per_node, layout.gpus_per_pod);
            }
            "network" | "gpudirect" | "nics" | "gbps" => {
                let Some(inter) = &mut job.cluster.inter else {
                    return Err(JobError::new(format!("`{change}`: the job has no network between nodes")));
                };
                match key {
                    "network" => {
                        let found = network(inter, value);
                        *inter = found.ok_or_else(|| bad("efa, infiniband, roce, eni or tcp"))?;
                    }
                    "gpudirect" if flag()? && inter.kind == NicKind::Ethernet => {
                        return Err(JobError::new(format!(
                            "`{change}`: TCP has no GPUDirect: change the network too"
                        )));
                    }
                    "gpudirect" => inter.gpudirect = flag()?,
                    "nics" => inter.nics = count()?,
                    _ => {
                        let rate = value.parse().ok().filter(|it| machine::Nic::RATES.contains(it));
                        inter.rate = GigabitsPerSecond(rate.ok_or_else(|| bad("a rate in Gbps"))?);
                    }
                }
            }
            _ => {
                let distance = |it: &str| strsim::damerau_levenshtein(it, key);
                let near =
                    KEYS.iter().filter(|it| 2 * distance(it) <= it.len()).min_by_key(|it| distance(it));
                let hint = near.map_or_else(
                    || format!("what can be changed is {}", KEYS.join(", ")),
                    |it| format!("did you mean `{it}`?"),
                );
                return Err(JobError::new(format!("`{key}` cannot be changed: {hint}")));
            }
        }
        Ok(job)
    }
}

fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, value: &str) -> Option<T> {
    all.iter().copied().find(|it| name(*it) == value)
}

/// The same bandwidth over another kind of network. TCP has one interface, and never GPUDirect.
fn network(inter: &Inter, value: &str) -> Option<Inter> {
    Some(match value {
        "eni" | "tcp" | "ethernet" => Inter {
            kind: NicKind::Ethernet,
            nics: 1,
            rate: GigabitsPerSecond(inter.rate.0 * f64::from(inter.nics)),
            gpudirect: false,
        },
        "efa" => Inter { kind: NicKind::Efa, ..*inter },
        "infiniband" | "ib" => Inter { kind: NicKind::InfiniBand, ..*inter },
        "roce" => Inter { kind: NicKind::Roce, ..*inter },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::KEYS;
    use crate::training::Job;

    fn job() -> Job {
        Job::read(
            "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = 2\n[run]\nzero = 1\n",
        )
        .unwrap()
    }

    #[test]
    fn every_key_changes_something_or_says_why() {
        for key in KEYS {
            let some = [
                format!("{key}=2"),
                format!("{key}=false"),
                format!("{key}=eni"),
                format!("{key}=8x1"),
                format!("{key}=fp16"),
                format!("{key}=full"),
                format!("{key}=current"),
                format!("{key}=p4d.24xlarge"),
                format!("{key}=H200"),
                format!("{key}=fused"),
            ];
            assert!(some.iter().any(|it| job().with(it).is_ok()), "{key}");
        }
        assert_eq!(
            job().with("tps=2").unwrap_err().to_string(),
            "`tps` cannot be changed: did you mean `tp`?"
        );
        assert!(job().with("tp").unwrap_err().to_string().contains("KEY=VALUE"));
        assert!(job().with("tp=x").unwrap_err().to_string().contains("`x` is not a number"));
    }
}

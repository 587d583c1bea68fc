//! What the fields of the page say, as the flags of the same names do.

use fabric::catalogue::{self, Model};
use fabric::gpu::GpuModel;
use fabric::{Collective, Layout, Version};
use serde::Deserialize;

/// The fields. An empty one counts as not given.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flags {
    instance: String,
    gpu: String,
    nodes: String,
    pods: String,
    nccl: String,
    collective: String,
    size: String,
    measured: String,
    env: String,
    what_if: String,
    nic_gbps: String,
    took: String,
    /// The name of a file that was given.
    job: String,
}

type Given<T> = Result<Option<T>, String>;

fn given<T, E: ToString>(name: &str, text: &str, read: impl FnOnce(&str) -> Result<T, E>) -> Given<T> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    read(text).map(Some).map_err(|error| format!("{name}: {}", error.to_string()))
}

impl Flags {
    pub(crate) fn instance(&self) -> Given<&'static Model> {
        given("machine", &self.instance, catalogue::resolve)
    }

    pub(crate) fn gpu(&self) -> Given<&'static GpuModel> {
        given("GPU", &self.gpu, |it| fabric::gpu::find(it).ok_or(format!("plumb knows no GPU `{it}`")))
    }

    pub(crate) fn hardware(&self) -> Result<job::Hardware, String> {
        Ok(job::Hardware::new(self.instance()?, None, self.gpu()?))
    }

    pub(crate) fn nodes(&self) -> Given<u32> {
        let most = 1..=1_000_000;
        given("machines", &self.nodes, |it| {
            it.parse()
                .ok()
                .filter(|it| most.contains(it))
                .ok_or(format!("`{it}` is not a number from 1 to 1000000"))
        })
    }

    pub(crate) fn pods(&self) -> Given<(u32, u32)> {
        let layout = given("pods", &self.pods, Layout::parse)?;
        Ok(layout.map(|it| (it.pods_per_node, it.gpus_per_pod)))
    }

    pub(crate) fn nccl(&self) -> Given<Version> {
        given("NCCL", &self.nccl, |it| {
            Version::parse(it).ok_or(format!("`{it}` is not a release; write for example 2.27.3"))
        })
    }

    pub(crate) fn collective(&self) -> Given<Collective> {
        given("collective", &self.collective, str::parse)
    }

    pub(crate) fn size(&self) -> Given<u64> {
        given("size", &self.size, answer::flags::size).map(|it| it.filter(|it| *it > 0))
    }

    pub(crate) fn measured(&self) -> Given<f64> {
        given("measured", &self.measured, answer::flags::bandwidth)
    }

    /// Words such as `efa=2441`.
    pub(crate) fn took(&self) -> impl Iterator<Item = &str> {
        self.took.split_whitespace()
    }

    /// The job file, one of those that were given.
    pub(crate) fn job(&self) -> Option<&str> {
        Some(self.job.as_str()).filter(|it| !it.is_empty())
    }

    pub(crate) fn nic_gbps(&self) -> Given<f64> {
        given("NIC rate", &self.nic_gbps, |it| {
            let rate = it.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0);
            rate.ok_or(format!("`{it}` is not a rate in Gbps"))
        })
    }

    /// Words such as `NCCL_P2P_DISABLE=1`.
    pub(crate) fn env(&self) -> Result<Vec<(String, String)>, String> {
        assignments("variables", &self.env)
    }

    /// Variables to try.
    pub(crate) fn what_if(&self) -> Result<Vec<(String, String)>, String> {
        assignments("what if", &self.what_if)
    }
}

fn assignments(name: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let read = |it: &str| match it.split_once('=') {
        Some((variable, value)) if !variable.is_empty() => Ok((variable.to_owned(), value.to_owned())),
        _ => Err(format!("{name}: `{it}` must be NAME=VALUE")),
    };
    text.split_whitespace().map(read).collect()
}

//! `plumb expect`: is this number normal?

use fabric::{Collective, Layout, Settings, Version};
use forecast::{Cluster, Dimension, Impossible, Parallel};
use job::{Description, LayoutFlags};
use report::Expect;

/// The largest cluster file, job file or record that is read.
pub const LONGEST: u64 = 1 << 20;

/// What is asked about a collective.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Which one.
    pub collective: Collective,
    /// Its size, as nccl-tests counts bytes.
    pub size: u64,
    /// A measured bus bandwidth in GB/s.
    pub measured: Option<f64>,
    /// Ranks of one group alone, of a model that is divided this way.
    pub group: Option<(Dimension, Parallel)>,
    /// The release of NCCL.
    pub nccl: Option<Version>,
    /// The release of aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// Variables of the job.
    pub env: &'a [(String, String)],
}

impl Asked<'_> {
    /// What NCCL sees of the variables.
    pub fn settings(&self) -> Settings {
        let mut settings = job::Settings::default();
        for (name, value) in self.env {
            settings.add_flag("--env", name, value);
        }
        settings.effective(self.nccl)
    }

    /// What is normal on a cluster.
    pub fn answer(&self, cluster: Cluster) -> Result<Expect, String> {
        let cluster = cluster.of_release(self.nccl, self.plugin);
        let cluster = match self.group {
            Some((group, parallel)) => cluster.of_group(parallel, group).map_err(|it| it.to_string())?,
            None => cluster,
        };
        let expected = forecast::expect(self.collective, &cluster, self.size, self.measured)
            .ok_or("a collective needs at least two ranks: give more --nodes or GPUs")?;
        Ok(Expect::new(&cluster, expected).of_group(self.group.map(|it| it.0)))
    }
}

/// A job on described machines.
pub fn cluster(
    described: &Description,
    nodes: Option<u32>,
    pods: Option<(u32, u32)>,
    settings: &Settings,
) -> Result<Cluster, Impossible> {
    let job = described.job(&LayoutFlags {
        nodes,
        pods: pods.map(|(pods, gpus)| Layout::new(pods, gpus)),
        ..LayoutFlags::default()
    });
    let layout = job.layout.map(|it| it.value).unwrap_or_default();
    Cluster::of_layout(&described.machine.machine.value, &layout, settings)
}

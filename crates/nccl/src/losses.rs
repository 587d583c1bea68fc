//! What a layout loses compared with one pod that owns the whole machine.

use std::fmt;

use crate::{Decisions, GpuDirect, PathType};

/// Something the machine has and the layout does not use, with its numbers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// GPUs that no rank has.
    Gpus {
        /// How many are used.
        used: usize,
        /// How many there are.
        of: usize,
    },
    /// GPUs of one machine that could reach each other directly and go over the network instead.
    Network {
        /// How many pairs of GPUs.
        pairs: usize,
        /// The path between them that is not used; the best of all pairs.
        path: PathType,
        /// What it gives, in GB/s one way.
        direct: f64,
        /// The share of a GPU in the network, in GB/s one way.
        net: f64,
    },
    /// NICs that no rank uses.
    Nics {
        /// How many are used.
        used: usize,
        /// How many there are.
        of: usize,
        /// What the others would give, in GB/s one way.
        bandwidth: f64,
    },
    /// GPUs that share a NIC with more others than they would in one pod.
    Shared {
        /// The index of one of them.
        gpu: u32,
        /// How many share its NICs.
        by: usize,
        /// What is left for one when all send, in GB/s one way.
        share: f64,
        /// What it would have in one pod that owns the whole machine.
        before: f64,
    },
    /// GPUs whose NIC is farther away than the one next to them.
    FarNic {
        /// The indices of the GPUs.
        gpus: Vec<u32>,
        /// The path to the NIC they have; the farthest.
        path: PathType,
        /// The path to the NIC next to them.
        best: PathType,
    },
    /// GPUs that lose GPUDirect RDMA by it.
    GpuDirect {
        /// The indices of the GPUs.
        gpus: Vec<u32>,
        /// Why the first of them has none.
        why: GpuDirect,
    },
}

impl Loss {
    /// How many times more bandwidth the machine has; 1 where no bandwidth is compared.
    pub fn factor(&self) -> f64 {
        match self {
            Self::Network { direct, net, .. } if *net > 0.0 => direct / net,
            Self::Shared { share, before, .. } if *share > 0.0 => before / share,
            _ => 1.0,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpus { used, of } => {
                write!(f, "{used} of the machine's {of} GPUs {} used", is_or_are(*used))
            }
            Self::Network { pairs, path, direct, net } => {
                let how = match path {
                    PathType::Nvl | PathType::Nvb => "NVLink".to_owned(),
                    PathType::Phb | PathType::Sys => "the host's memory".to_owned(),
                    _ => format!("PCIe ({path})"),
                };
                write!(f, "{} of GPUs on one machine exchange over the network ", plural(*pairs, "pair"))?;
                if *net > 0.0 {
                    write!(
                        f,
                        "at {net:.1} GB/s per GPU instead of {how} at {direct:.1} GB/s: {:.1} times less",
                        self.factor()
                    )
                } else {
                    write!(f, "instead of {how} at {direct:.1} GB/s")
                }
            }
            Self::Nics { used, of, bandwidth } => {
                write!(
                    f,
                    "{used} of the machine's {of} NICs {} used; the others would give {bandwidth:.1} GB/s",
                    is_or_are(*used)
                )
            }
            Self::Shared { gpu, by, share, before } => write!(
                f,
                "GPU {gpu} shares its NIC with {}: {share:.1} GB/s each when all send, {before:.1} GB/s in one pod \
                 that owns the whole machine",
                plural(by.saturating_sub(1), "other")
            ),
            Self::FarNic { gpus, path, best } => write!(
                f,
                "{} reached over {} ({path}); the NIC nearest to {} is at {best}",
                if gpus.len() == 1 {
                    format!("the NIC of GPU {} is", list(gpus))
                } else {
                    format!("the NICs of GPUs {} are", list(gpus))
                },
                path.meaning(),
                if gpus.len() == 1 { "it" } else { "them" },
            ),
            Self::GpuDirect { gpus, why } => {
                write!(f, "no GPUDirect RDMA for {} {}: {why}", noun(gpus.len(), "GPU"), list(gpus))
            }
        }
    }
}

impl Decisions {
    /// What this layout loses compared with one pod that owns the whole machine, most important first.
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        losses.extend(self.lost_links());
        losses.extend(self.lost_gpudirect());
        losses.extend(self.far_nics());
        losses.extend(self.shared_nics());
        losses.extend(self.unused_nics());
        let (used, of) = (self.ranks_here().len(), self.whole.gpus().len());
        if used < of {
            losses.push(Loss::Gpus { used, of });
        }
        losses
    }

    /// The ranks of the first machine, with their GPUs.
    fn ranks_here(&self) -> Vec<(u64, usize)> {
        let Some((first, _)) = self.local_rank(0) else { return Vec::new() };
        let here = |rank: u64| self.local_rank(rank).filter(|it| it.0 == first);
        (0..self.ranks()).filter_map(|rank| Some((rank, here(rank)?.1.gpu.position))).collect()
    }

    fn lost_links(&self) -> Option<Loss> {
        let ranks = self.ranks_here();
        let mut pairs = 0;
        let mut best = crate::Path::NONE;
        for (row, &(one, gpu)) in ranks.iter().enumerate() {
            for &(other, other_gpu) in &ranks[row + 1..] {
                let path = self.whole.gpu_to_gpu(gpu, other_gpu);
                let net = self.transport(one, other).and_then(|it| it.transport).is_none_or(|it| it.is_net());
                // Where the network is better for the whole machine too, nothing is lost.
                if !net || crate::transport::net_is_faster(&self.whole, gpu, other_gpu, true).is_some() {
                    continue;
                }
                pairs += 1;
                if path.bandwidth > best.bandwidth {
                    best = path;
                }
            }
        }
        let net = ranks.first().and_then(|it| self.share(it.0)).unwrap_or(0.0);
        (pairs > 0).then_some(Loss::Network { pairs, path: best.kind, direct: best.bandwidth, net })
    }

    /// The share of a rank in its NICs when all ranks of the machine send.
    fn share(&self, rank: u64) -> Option<f64> {
        let gpu = self.gpu(rank)?;
        let near = self.paths(rank)?.near_nics(gpu)?;
        Some(near.share.min(near.path.bandwidth * ratio(near.nics.len(), self.sharing(&near.nics))))
    }

    /// How many ranks of a machine use these NICs, in all pods.
    fn sharing(&self, nics: &[usize]) -> usize {
        self.nodes.iter().map(|it| it.gpus_at(nics)).sum::<usize>().max(1)
    }

    fn shared_nics(&self) -> Option<Loss> {
        self.ranks_here()
            .into_iter()
            .filter_map(|(rank, gpu)| {
                let near = self.paths(rank)?.near_nics(gpu)?;
                let (share, before) = (self.share(rank)?, self.whole.near_nics(gpu)?.share);
                (share < before * 0.999).then(|| Loss::Shared {
                    gpu: self.index(gpu),
                    by: self.sharing(&near.nics),
                    share,
                    before,
                })
            })
            .max_by(|one, other| one.factor().total_cmp(&other.factor()))
    }

    fn far_nics(&self) -> Option<Loss> {
        let mut gpus = Vec::new();
        let mut worst: Option<(PathType, PathType)> = None;
        let version = self.settings.version;
        for (rank, gpu) in self.ranks_here() {
            let nearest = |paths: &crate::Paths| {
                let kinds = paths.nics().iter().map(|it| paths.nic_wires(gpu, it.position).kind);
                kinds.min_by_key(|it| it.order(version))
            };
            let (Some(here), Some(best)) = (self.paths(rank).and_then(nearest), nearest(&self.whole)) else {
                continue;
            };
            if !here.within(best, version) {
                gpus.push(self.index(gpu));
                if worst.is_none_or(|it| !here.within(it.0, version)) {
                    worst = Some((here, best));
                }
            }
        }
        worst.map(|(path, best)| Loss::FarNic { gpus, path, best })
    }

    fn lost_gpudirect(&self) -> Option<Loss> {
        let mut gpus = Vec::new();
        let mut why = None;
        for (rank, gpu) in self.ranks_here() {
            let here = self.paths(rank).and_then(|it| it.near_nics(gpu)).map(|it| it.sending);
            let best = self.whole.near_nics(gpu).map(|it| it.sending);
            if let (Some(here), Some(GpuDirect::On)) = (here, best)
                && !here.is_on()
            {
                gpus.push(self.index(gpu));
                why.get_or_insert(here);
            }
        }
        why.map(|why| Loss::GpuDirect { gpus, why })
    }

    fn unused_nics(&self) -> Option<Loss> {
        let mut used: Vec<usize> = Vec::new();
        for (rank, gpu) in self.ranks_here() {
            used.extend(self.paths(rank).and_then(|it| it.near.nics.get(gpu)).into_iter().flatten());
        }
        used.sort_unstable();
        used.dedup();
        let all = self.whole.nics();
        let unused = all.iter().filter(|it| !used.contains(&it.position));
        let bandwidth = unused.filter_map(|it| self.nics.get(it.position)).sum();
        (used.len() < all.len()).then_some(Loss::Nics { used: used.len(), of: all.len(), bandwidth })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a machine has few devices")]
fn ratio(one: usize, other: usize) -> f64 {
    one as f64 / other.max(1) as f64
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn noun(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn plural(count: usize, word: &str) -> String {
    format!("{count} {}", noun(count, word))
}

fn list(gpus: &[u32]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

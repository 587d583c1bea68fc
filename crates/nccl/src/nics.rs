//! Which NIC a GPU uses.

use fabric::machine::Machine;

use crate::{GpuDirect, Path, Paths, VisibleDevice};

/// The NICs next to a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct NearNics {
    /// By their positions in the machine, in NCCL's order.
    pub nics: Vec<usize>,
    /// The path to them; it is the same to all.
    pub path: Path,
    /// Whether they read the GPU's memory to send it.
    pub sending: GpuDirect,
    /// Whether they write into the GPU's memory what they receive.
    pub receiving: GpuDirect,
    /// How many GPUs these NICs are nearest to, this one among them.
    pub shared_by: usize,
    /// What is left for this GPU when all of them send, in GB/s one way.
    pub share: f64,
}

/// The nearest NICs of GPUs and the nearest GPUs of NICs, by their positions in the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Near {
    /// Of each GPU the NICs, in NCCL's order.
    pub(crate) nics: Vec<Vec<usize>>,
    /// Of each NIC the GPUs.
    pub(crate) gpus: Vec<Vec<usize>>,
}

impl Near {
    pub(crate) fn new(paths: &Paths, machine: &Machine) -> Self {
        Self {
            nics: (0..machine.gpus.len()).map(|it| paths.nearest_nics(it)).collect(),
            gpus: (0..machine.nics.len()).map(|it| paths.nearest_gpus(it)).collect(),
        }
    }
}

impl Paths {
    /// The NICs next to a GPU, and how many GPUs share them. `None` for a GPU that is not there or reaches no NIC.
    pub fn near_nics(&self, gpu: usize) -> Option<NearNics> {
        let nics = self.near.nics.get(gpu)?.clone();
        let first = *nics.first()?;
        let path = self.gpu_to_nic(gpu, first);
        let shared_by = self.gpus_at(&nics).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a machine has few devices")]
        let fair = path.bandwidth * nics.len() as f64 / shared_by as f64;
        // Several NICs together are not faster than the GPU's own link.
        let link = self.local_socket(gpu).map_or(0.0, |it| self.gpu_to_socket(gpu, it).bandwidth);
        Some(NearNics {
            sending: self.gpudirect(gpu, first, true),
            receiving: self.gpudirect(gpu, first, false),
            share: fair.min(link.max(path.bandwidth)),
            nics,
            path,
            shared_by,
        })
    }

    /// The NIC a GPU sends and receives by on a channel, as long as no other GPU sends for it.
    pub fn nic_for_channel(&self, gpu: usize, channel: usize) -> Option<usize> {
        self.local_nic(self.visible_gpu(gpu)?, channel)
    }

    /// How many GPUs have one of these NICs next to them.
    pub(crate) fn gpus_at(&self, nics: &[usize]) -> usize {
        let mut wanted = vec![false; self.near.gpus.len()];
        for nic in nics {
            wanted[*nic] = true;
        }
        let uses = |it: &&VisibleDevice| self.near.nics[it.position].iter().any(|nic| wanted[*nic]);
        self.gpus().iter().filter(uses).count()
    }

    /// The NIC a GPU sends and receives by on a channel.
    pub(crate) fn local_nic(&self, gpu: VisibleDevice, channel: usize) -> Option<usize> {
        let near = self.near.nics.get(gpu.position)?;
        if !self.settings.since(2, 18, 5) {
            // GPUs with the same NICs take turns.
            let same = self.gpus().iter().filter(|it| self.near.nics[it.position] == *near);
            let (place, count) = (same.clone().position(|it| it.position == gpu.position)?, same.count());
            let turn = channel.checked_rem(near.len())?;
            return near.get((place + turn * count) % near.len()).copied();
        }
        let sharing = self.near.gpus.get(*near.first()?)?.len();
        let mut number = usize::try_from(gpu.number).unwrap_or(0);
        if self.settings.since(2, 30, 7) {
            number %= sharing.max(1);
        }
        if near.len().is_power_of_two() {
            number = mirror(number, near.len());
        }
        near.get(number.wrapping_add(channel % self.nics_each(gpu)) % near.len()).copied()
    }

    /// How many of the NICs next to a GPU are its own.
    fn nics_each(&self, gpu: VisibleDevice) -> usize {
        let near = self.near.nics.get(gpu.position).map_or(&[][..], Vec::as_slice);
        let sharing = near.first().and_then(|it| self.near.gpus.get(*it)).map_or(0, Vec::len);
        self.settings.nics_of_gpu(near.len(), sharing).max(1)
    }

    /// The GPU that NCCL counts as the neighbour of a NIC: the first that would choose it.
    pub fn local_gpu(&self, nic: usize) -> Option<usize> {
        if !self.settings.since(2, 18, 5) {
            return self.local_gpu_before_2_18_5(nic);
        }
        // Up to 2.18 any GPU that would choose it (`ncclTopoGetLocalGpu`), later only the nearest.
        let near = self.near.gpus.get(nic)?.iter().filter_map(|it| self.visible_gpu(*it));
        let gpus: Vec<VisibleDevice> =
            if self.settings.since(2, 19, 1) { near.collect() } else { self.gpus().to_vec() };
        // From there on the choices repeat.
        let channels = gpus.iter().map(|it| self.nics_each(*it)).max()?.min(CHANNELS);
        (0..channels)
            .flat_map(|channel| gpus.iter().map(move |gpu| (channel, *gpu)))
            .find(|(channel, gpu)| self.local_nic(*gpu, *channel) == Some(nic))
            .map(|it| it.1.position)
    }
}

impl Paths {
    /// The nearest GPUs that have this NIC among their nearest take turns.
    fn local_gpu_before_2_18_5(&self, nic: usize) -> Option<usize> {
        let distance = |gpu: usize| self.nic_to_gpu(nic, gpu).kind.order(self.version());
        let users = self.gpus().iter().map(|it| it.position);
        let users: Vec<usize> = users.filter(|it| self.near.nics[*it].contains(&nic)).collect();
        let nearest = users.iter().map(|it| distance(*it)).min()?;
        let gpus: Vec<usize> = users.into_iter().filter(|it| distance(*it) == nearest).collect();
        let turn = self.near.nics[*gpus.first()?].iter().position(|it| *it == nic)?;
        gpus.get(turn % gpus.len()).copied()
    }
}

/// The most channels NCCL has.
const CHANNELS: usize = 64;

/// The bits of a number below a power of two in reverse: 0, 4, 2, 6, 1, 5, 3, 7 for eight.
fn mirror(number: usize, power: usize) -> usize {
    let bits = power.trailing_zeros();
    if bits == 0 { 0 } else { (number % power).reverse_bits() >> (usize::BITS - bits) }
}

#[cfg(test)]
mod tests {
    use super::mirror;

    #[test]
    fn bits_in_reverse() {
        let all: Vec<usize> = (0..9).map(|it| mirror(it, 8)).collect();
        assert_eq!(all, [0, 4, 2, 6, 1, 5, 3, 7, 0]);
        assert_eq!(mirror(5, 1), 0);
    }
}

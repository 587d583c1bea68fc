//! Which NIC a GPU uses.

use crate::paths::Device;
use crate::{Paths, Seat};

impl Paths {
    /// The NICs nearest to a GPU, in NCCL's order.
    pub(crate) fn nearest_nics(&self, gpu: usize) -> Vec<usize> {
        self.nearest(Device::Gpu(gpu), self.nics().iter().map(|it| Device::Nic(*it)))
    }

    /// The GPUs nearest to a NIC.
    pub(crate) fn nearest_gpus(&self, nic: usize) -> Vec<usize> {
        self.nearest(Device::Nic(nic), self.seats().iter().map(|it| Device::Gpu(it.gpu)))
    }

    /// The NIC a GPU sends and receives by on a channel.
    pub(crate) fn local_nic(&self, seat: Seat, channel: usize) -> Option<usize> {
        let near = self.nearest_nics(seat.gpu);
        let sharing = self.nearest_gpus(*near.first()?).len();
        let each = self.settings.nics_of_gpu(near.len(), sharing).max(1);
        let mut number = usize::try_from(seat.number).unwrap_or(0);
        if self.settings.since(2, 30, 7) {
            number %= sharing.max(1);
        }
        if near.len().is_power_of_two() {
            number = mirror(number, near.len());
        }
        near.get(number.wrapping_add(channel % each) % near.len()).copied()
    }

    /// The GPU that NCCL takes for the neighbour of a NIC: the first that would choose it.
    pub fn local_gpu(&self, nic: usize) -> Option<usize> {
        let near = self.nearest_gpus(nic);
        let seats: Vec<Seat> = self.seats().iter().filter(|it| near.contains(&it.gpu)).copied().collect();
        (0..CHANNELS)
            .flat_map(|channel| seats.iter().map(move |seat| (channel, *seat)))
            .find(|(channel, seat)| self.local_nic(*seat, *channel) == Some(nic))
            .map(|it| it.1.gpu)
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

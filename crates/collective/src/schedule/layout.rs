//! The order of ranks in rings and trees: ranks of one host are neighbours.

/// The ranks of a job, ordered by host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    order: Vec<usize>,
    /// The position of each rank in the order.
    positions: Vec<usize>,
    /// The position of the first rank of each host, and the end of the last.
    starts: Vec<usize>,
}

impl Layout {
    /// From the host of every rank. Hosts keep the order of their first ranks, and ranks their order in a host.
    pub(crate) fn new(hosts: &[usize]) -> Self {
        let mut first = Vec::new();
        for host in hosts {
            if !first.contains(host) {
                first.push(*host);
            }
        }
        let mut order = Vec::with_capacity(hosts.len());
        let mut starts = Vec::with_capacity(first.len() + 1);
        for host in first {
            starts.push(order.len());
            order.extend((0..hosts.len()).filter(|it| hosts[*it] == host));
        }
        starts.push(order.len());
        let mut positions = vec![0; order.len()];
        for (position, rank) in order.iter().enumerate() {
            positions[*rank] = position;
        }
        Self { order, positions, starts }
    }

    /// Ranks that are all on one host.
    #[cfg(test)]
    pub(crate) fn one_host(size: usize) -> Self {
        Self::new(&vec![0; size])
    }

    /// The number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.order.len()
    }

    /// The rank at a position, modulo the number of ranks.
    pub(crate) fn rank(&self, position: usize) -> usize {
        self.order[position % self.order.len()]
    }

    pub(crate) fn position(&self, rank: usize) -> usize {
        self.positions[rank]
    }

    /// The ranks of every host.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &[usize]> {
        self.starts.windows(2).map(|it| &self.order[it[0]..it[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_become_neighbours() {
        let layout = Layout::new(&[7, 3, 7, 3, 3]);
        assert_eq!((0..5).map(|it| layout.rank(it)).collect::<Vec<_>>(), [0, 2, 1, 3, 4]);
        assert_eq!((0..5).map(|it| layout.position(it)).collect::<Vec<_>>(), [0, 2, 1, 3, 4]);
        assert_eq!(layout.hosts().collect::<Vec<_>>(), [&[0, 2][..], &[1, 3, 4]]);
        assert_eq!(layout.rank(6), 2);
    }
}

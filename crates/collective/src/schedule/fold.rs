//! Partners for numbers of ranks that are not a power of two.

/// A power of two of the ranks run the algorithm. The extra ranks, the second of each of the first pairs, send their data to
/// the first of the pair and receive the result from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fold {
    /// The number of workers.
    pub(super) power: usize,
    /// The number of extra ranks.
    extra: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends its data to the rank at position `partner`.
    Extra { partner: usize },
    /// Runs the algorithm as worker `index`, also for the extra rank at position `extra`.
    Worker { index: usize, extra: Option<usize> },
}

impl Fold {
    /// For at least one rank.
    pub(super) fn new(size: usize) -> Self {
        let power = 1 << size.ilog2();
        Self { power, extra: size - power }
    }

    pub(super) fn role(self, position: usize) -> Role {
        if position >= 2 * self.extra {
            Role::Worker { index: position - self.extra, extra: None }
        } else if position.is_multiple_of(2) {
            Role::Worker { index: position / 2, extra: Some(position + 1) }
        } else {
            Role::Extra { partner: position - 1 }
        }
    }

    /// The position of worker `index`. Its extra rank, if it has one, is at the next position.
    pub(super) fn position(self, index: usize) -> usize {
        index + index.min(self.extra)
    }

    /// The distances between partners: 1, 2, 4 and so on.
    pub(super) fn distances(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.power.ilog2()).map(|it| 1 << it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_extras_cover_all_places() {
        for size in 1..40 {
            let fold = Fold::new(size);
            assert_eq!(fold.position(fold.power), size);
            for position in 0..size {
                match fold.role(position) {
                    Role::Worker { index, extra } => {
                        assert_eq!(fold.position(index), position);
                        assert_eq!(fold.position(index + 1), extra.unwrap_or(position) + 1);
                    }
                    Role::Extra { partner } => {
                        assert!(
                            matches!(fold.role(partner), Role::Worker { extra: Some(it), .. } if it == position)
                        );
                    }
                }
            }
        }
    }
}

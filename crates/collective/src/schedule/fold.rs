//! Partners for numbers of ranks that are no power of two.

/// A power of two of the ranks does the work. The others, the second of each of the first pairs, give their data to the
/// first of the pair and get the result from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fold {
    /// How many work.
    pub(super) power: usize,
    /// How many do not.
    extra: usize,
}

/// What the rank at a place does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Gives its data to the rank at this place.
    Extra { partner: usize },
    /// Works as this number, for the rank at place `extra` too if there is one.
    Worker { index: usize, extra: Option<usize> },
}

impl Fold {
    /// Of so many ranks, at least one.
    pub(super) fn new(size: usize) -> Self {
        let power = 1 << size.ilog2();
        Self { power, extra: size - power }
    }

    /// What the rank at a place does.
    pub(super) fn role(self, place: usize) -> Role {
        if place >= 2 * self.extra {
            Role::Worker { index: place - self.extra, extra: None }
        } else if place.is_multiple_of(2) {
            Role::Worker { index: place / 2, extra: Some(place + 1) }
        } else {
            Role::Extra { partner: place - 1 }
        }
    }

    /// Where worker `index` stands. Its extra, if it has one, stands behind it.
    pub(super) fn place(self, index: usize) -> usize {
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
            assert_eq!(fold.place(fold.power), size);
            for place in 0..size {
                match fold.role(place) {
                    Role::Worker { index, extra } => {
                        assert_eq!(fold.place(index), place);
                        assert_eq!(fold.place(index + 1), extra.unwrap_or(place) + 1);
                    }
                    Role::Extra { partner } => {
                        assert!(
                            matches!(fold.role(partner), Role::Worker { extra: Some(it), .. } if it == place)
                        );
                    }
                }
            }
        }
    }
}

//! Ranks that a job should have and that the input does not show.

use std::fmt;
use std::ops::RangeInclusive;

/// The ranks below a size that were not seen, as ranges: the size is a number on some line and may be anything.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Absent(Vec<RangeInclusive<u32>>);

impl Absent {
    /// Takes the ranks that were seen, in rising order.
    pub fn new(size: u32, seen: impl IntoIterator<Item = u32>) -> Self {
        let mut gaps = Vec::new();
        let mut next = 0;
        for rank in seen.into_iter().take_while(|it| *it < size) {
            if next < rank {
                gaps.push(next..=rank - 1);
            }
            next = rank + 1;
        }
        if next < size {
            gaps.push(next..=size - 1);
        }
        Self(gaps)
    }

    /// Whether all were seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were not.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|it| u64::from(it.end() - it.start()) + 1).sum()
    }

    /// Each of them. There can be billions: take what is needed.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().cloned().flatten()
    }
}

impl fmt::Display for Absent {
    /// `1-3, 7`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        for (index, gap) in self.0.iter().take(SHOWN).enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            if gap.start() == gap.end() {
                write!(f, "{}", gap.start())?;
            } else {
                write!(f, "{}-{}", gap.start(), gap.end())?;
            }
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more groups"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Absent;

    #[test]
    fn gaps_between_what_was_seen() {
        let absent = Absent::new(8, [0, 4, 5, 6, 9]);
        assert_eq!(absent.to_string(), "1-3, 7");
        assert_eq!(absent.len(), 4);
        assert_eq!(absent.iter().collect::<Vec<_>>(), [1, 2, 3, 7]);
        assert!(Absent::new(2, [0, 1]).is_empty());
        assert!(Absent::new(0, []).is_empty());
    }

    #[test]
    fn a_size_that_cannot_be_costs_nothing() {
        let absent = Absent::new(u32::MAX, [0, u32::MAX]);
        assert_eq!(absent.len(), u64::from(u32::MAX) - 1);
        assert_eq!(absent.to_string(), "1-4294967294");
    }
}

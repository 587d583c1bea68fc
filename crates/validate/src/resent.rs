//! How much is sent again in this fleet.

use crate::reference::median;

/// What is usual, and from where on a measurement has losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usual {
    /// The median share of segments that is sent again, of the measurements without losses.
    pub share: f64,
    /// From here on it is a loss.
    pub lossy_from: f64,
}

/// A loss is this many times what is usual, where this is added to both: then it is half a percent in a fleet that loses nothing, and a
/// network that drops a percent everywhere, by full queues or a limit on the rate, accuses nobody who has not three times that.
const TIMES: f64 = 3.0;
const ADDED: f64 = 0.002_5;

impl Usual {
    /// None without a measurement. It holds while one in five has no losses.
    pub fn of(shares: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut shares: Vec<f64> = shares.into_iter().filter(|it| it.is_finite() && *it >= 0.0).collect();
        shares.sort_by(f64::total_cmp);
        let last = shares.len().checked_sub(1)?;
        let mut found = Self::around(shares[last / 5]);
        for _ in 0..8 {
            let usual = shares.partition_point(|it| !found.is_lossy(*it));
            let next = Self::around(median(&shares[..usual])?);
            if next == found {
                break;
            }
            found = next;
        }
        Some(found)
    }

    fn around(share: f64) -> Self {
        Self { share, lossy_from: TIMES * (share + ADDED) - ADDED }
    }

    /// Whether this share is a loss.
    pub fn is_lossy(&self, share: f64) -> bool {
        share >= self.lossy_from
    }
}

#[cfg(test)]
mod tests {
    use super::Usual;

    #[test]
    fn two_percent_stand_out_of_a_quiet_fleet_and_not_of_a_congested_one() {
        let mut shares = vec![0.0; 14];
        shares.extend([0.02, 0.000_3]);
        let quiet = Usual::of(shares).unwrap();
        assert!(quiet.is_lossy(0.02) && !quiet.is_lossy(0.004), "{quiet:?}");
        let congested = Usual::of([0.006, 0.011, 0.009, 0.02, 0.013, 0.008, 0.01]).unwrap();
        assert!(!congested.is_lossy(0.02) && congested.is_lossy(0.06), "{congested:?}");
    }

    #[test]
    fn nothing_has_no_usual() {
        assert!(Usual::of([]).is_none() && Usual::of([f64::NAN, -1.0]).is_none());
    }
}

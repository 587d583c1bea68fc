//! Collective operations, and how nccl-tests counts them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum of all.
    AllReduce,
    /// Every rank gets the parts of all.
    AllGather,
    /// Every rank gets one part of the sum.
    ReduceScatter,
    /// One rank sends its data to all.
    Broadcast,
    /// One rank gets the sum of all.
    Reduce,
    /// Every rank sends a part to every rank.
    #[serde(rename = "alltoall")]
    AllToAll,
    /// One rank gets the parts of all.
    Gather,
    /// One rank sends a part to every rank.
    Scatter,
    /// Every rank sends to the next and receives from the previous one.
    #[serde(rename = "sendrecv")]
    SendRecv,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendRecv,
    ];

    /// The name in nccl-tests, without `_perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendRecv => "sendrecv",
        }
    }

    /// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it: bus bandwidth can be compared with the speed of a link.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter => {
                (n - 1.0) / n
            }
            Self::Broadcast | Self::Reduce | Self::SendRecv => 1.0,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = String;

    /// Accepts the usual spellings: `all_reduce`, `allreduce`, `AllReduce`, `all_reduce_perf`, `all-to-all`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain =
            |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let wanted = plain(text.trim().trim_end_matches("_perf"));
        Self::ALL.into_iter().find(|it| plain(it.name()) == wanted).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
            format!("`{text}` is not a collective; expected one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Collective;

    #[test]
    fn every_spelling_is_read() {
        for text in ["all_reduce", "allreduce", "AllReduce", "all_reduce_perf", "ALL-REDUCE"] {
            assert_eq!(text.parse(), Ok(Collective::AllReduce), "{text}");
        }
        assert_eq!("all_to_all".parse(), Ok(Collective::AllToAll));
        assert!("reduceall".parse::<Collective>().is_err());
    }

    #[test]
    fn names_are_the_same_in_json() {
        for it in Collective::ALL {
            assert_eq!(serde_json::to_value(it).expect("a name"), it.name());
        }
    }

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert!((Collective::AllReduce.bus_factor(8) - 1.75).abs() < 1e-12);
        assert!((Collective::AllGather.bus_factor(8) - 0.875).abs() < 1e-12);
        assert!((Collective::SendRecv.bus_factor(8) - 1.0).abs() < 1e-12);
        assert!(Collective::AllReduce.bus_factor(1).abs() < 1e-12);
    }
}

//! Groups of ranks that train together: one group is a job of its own, beside others of its kind that use the same NICs.

use std::fmt;
use std::str::FromStr;

use crate::cluster::{Cluster, Impossible, Inside};

/// How a model is divided over the ranks of a job. Ranks are numbered as Megatron-LM does by default: tensor parallel ranks are
/// neighbours, then context, then expert and data, then pipeline (`order="tp-cp-ep-dp-pp"` in `parallel_state.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel {
    /// Tensor.
    pub tp: u32,
    /// Context.
    pub cp: u32,
    /// Expert: a part of the data parallel ranks.
    pub ep: u32,
    /// Pipeline.
    pub pp: u32,
}

impl Default for Parallel {
    fn default() -> Self {
        Self { tp: 1, cp: 1, ep: 1, pp: 1 }
    }
}

impl FromStr for Parallel {
    type Err = String;

    /// Reads `tp=8,pp=2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Self::default();
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let wrong = || format!("`{part}` is not a size: write tp=8,pp=2 (tp, cp, ep, pp)");
            let (name, size) = part.split_once('=').ok_or_else(wrong)?;
            let size = size.trim().parse::<u32>().ok().filter(|it| *it > 0).ok_or_else(wrong)?;
            match name.trim().to_ascii_lowercase().as_str() {
                "tp" => sizes.tp = size,
                "cp" => sizes.cp = size,
                "ep" => sizes.ep = size,
                "pp" => sizes.pp = size,
                "dp" => {
                    return Err(
                        "dp follows from the number of ranks and the other sizes: leave it out".to_owned()
                    );
                }
                _ => return Err(wrong()),
            }
        }
        Ok(sizes)
    }
}

/// The ranks that communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Expert parallel.
    Ep,
    /// Data parallel.
    Dp,
    /// Pipeline parallel.
    Pp,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tp, Self::Cp, Self::Ep, Self::Dp, Self::Pp];

    /// `dp`
    pub fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Dp => "dp",
            Self::Pp => "pp",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dimension {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(text.trim()));
        found.ok_or_else(|| format!("`{text}` is not a group: tp, cp, ep, dp or pp"))
    }
}

/// Every so-and-so-many-th rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranks {
    size: u32,
    stride: u32,
}

impl Parallel {
    fn ranks(self, dimension: Dimension, world: u32) -> Result<Ranks, Impossible> {
        let Self { tp, cp, ep, pp } = self;
        let model = u64::from(tp) * u64::from(cp) * u64::from(pp);
        let Some(dp) = u32::try_from(model).ok().filter(|it| world.is_multiple_of(*it)).map(|it| world / it)
        else {
            return Err(Impossible(format!(
                "{world} ranks are not a multiple of tp {tp} x cp {cp} x pp {pp}"
            )));
        };
        if !(dp * cp).is_multiple_of(ep) {
            return Err(Impossible(format!(
                "ep {ep} does not divide the {} ranks of data and context parallel",
                dp * cp
            )));
        }
        let (size, stride) = match dimension {
            Dimension::Tp => (tp, 1),
            Dimension::Cp => (cp, tp),
            Dimension::Ep => (ep, tp),
            Dimension::Dp => (dp, tp * cp),
            Dimension::Pp => (pp, world / pp),
        };
        if size < 2 {
            return Err(Impossible(format!("the {dimension} group has one rank, which sends nothing")));
        }
        Ok(Ranks { size, stride })
    }
}

impl Cluster {
    /// One group of the ranks of this job, while all other groups of its kind communicate, too.
    pub fn of_group(mut self, parallel: Parallel, dimension: Dimension) -> Result<Self, Impossible> {
        if self.pods != 1 {
            return Err(Impossible("groups are known only for one pod per machine".to_owned()));
        }
        let world = self.ranks().unwrap_or(u32::MAX);
        let Ranks { size, stride } = parallel.ranks(dimension, world)?;
        let uneven = || {
            Impossible(format!(
                "the {dimension} group, every {stride}th rank, does not divide the machines evenly"
            ))
        };
        let each = if stride >= self.gpus {
            if !stride.is_multiple_of(self.gpus) {
                return Err(uneven());
            }
            1
        } else {
            let each = self.gpus / stride;
            if !self.gpus.is_multiple_of(stride) || (size > each && !size.is_multiple_of(each)) {
                return Err(uneven());
            }
            each.min(size)
        };
        // Machines that the group skips do not belong to its part of an NVLink domain.
        if let Inside::Switch { domain, .. } = &mut self.inside
            && *domain > self.gpus_there
        {
            let of_group = (*domain / self.gpus_there * self.gpus / stride).max(1);
            *domain = self.gpus_there * (of_group / each).max(1);
        }
        self.at_once = self.gpus / each;
        (self.nodes, self.gpus) = (size / each, each);
        self.checked()
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Settings, catalogue};

    use super::{Dimension, Parallel};
    use crate::{Cluster, Impossible};

    fn group(name: &str, nodes: u32, parallel: &str, dimension: Dimension) -> Result<Cluster, Impossible> {
        let machine = catalogue::machine(name).expect("in the catalogue");
        let cluster = Cluster::of_machine(&machine, nodes, &Settings::default()).expect("a cluster");
        cluster.of_group(parallel.parse::<Parallel>().expect("sizes"), dimension)
    }

    #[test]
    fn ranks_are_where_megatron_puts_them() {
        let of = |parallel, dimension| {
            let it = group("p5.48xlarge", 8, parallel, dimension).expect("a group");
            (it.nodes, it.gpus, it.at_once)
        };
        assert_eq!(of("tp=8", Dimension::Tp), (1, 8, 1));
        assert_eq!(of("tp=4", Dimension::Tp), (1, 4, 2));
        assert_eq!(of("tp=8", Dimension::Dp), (8, 1, 8));
        assert_eq!(of("tp=2", Dimension::Dp), (8, 4, 2));
        assert_eq!(of("tp=2,pp=4", Dimension::Dp), (2, 4, 2));
        assert_eq!(of("tp=2,pp=4", Dimension::Pp), (4, 1, 8));
        assert_eq!(of("ep=16", Dimension::Ep), (2, 8, 1));
        assert_eq!(of("tp=16", Dimension::Tp), (2, 8, 1));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let why =
            |parallel, dimension| group("p5.48xlarge", 2, parallel, dimension).expect_err("impossible").0;
        assert!(why("tp=3", Dimension::Dp).contains("not a multiple"));
        assert!(why("tp=8", Dimension::Pp).contains("one rank"));
        assert!(why("tp=16,ep=2", Dimension::Ep).contains("does not divide"));
        assert!("tp=x".parse::<Parallel>().is_err() && "dp=2".parse::<Parallel>().is_err());
    }

    #[test]
    fn a_domain_of_trays_is_one_node() {
        // Every eighth of 144 ranks: nine in each of two NVL72.
        let it = group("gb200-nvl72", 36, "tp=8", Dimension::Dp).expect("a group");
        assert_eq!((it.local(), it.groups()), (9, 2));
        let it = group("gb200-nvl72", 36, "tp=8", Dimension::Tp).expect("a group");
        assert_eq!((it.local(), it.groups()), (8, 1));
    }
}

//! What the user fixes of a layout: `tp=8`, `micro_batch=1,2,4`.

use crate::training::{JobError, Recompute};

/// A setting of a layout that the search varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Tensor parallelism.
    Tp,
    /// Pipeline stages.
    Pp,
    /// Pieces of the model on each stage.
    Vpp,
    /// Context parallelism.
    Cp,
    /// Expert parallelism.
    Ep,
    /// Data parallelism.
    Dp,
    /// The stage of `ZeRO`.
    Zero,
    /// Parameters in the memory of the host.
    OffloadParams,
    /// The optimizer on the host.
    OffloadOptimizer,
    /// Sequences of a micro-batch.
    MicroBatch,
    /// What is computed again.
    Recompute,
    /// Norms split over the ranks of tensor parallelism.
    SequenceParallel,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Tp,
        Self::Pp,
        Self::Vpp,
        Self::Cp,
        Self::Ep,
        Self::Dp,
        Self::Zero,
        Self::OffloadParams,
        Self::OffloadOptimizer,
        Self::MicroBatch,
        Self::Recompute,
        Self::SequenceParallel,
    ];

    /// As a job file and `predict --what-if` name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Vpp => "vpp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Dp => "dp",
            Self::Zero => "zero",
            Self::OffloadParams => "offload_params",
            Self::OffloadOptimizer => "offload_optimizer",
            Self::MicroBatch => "micro_batch",
            Self::Recompute => "recompute",
            Self::SequenceParallel => "sequence_parallel",
        }
    }

    /// Its value as a number: counts as they are, flags as 0 and 1, recomputation by its place in [`RECOMPUTE`].
    fn value(self, text: &str) -> Result<u32, &'static str> {
        match self {
            Self::OffloadParams | Self::OffloadOptimizer | Self::SequenceParallel => match text {
                "true" | "on" | "1" => Ok(1),
                "false" | "off" | "0" => Ok(0),
                _ => Err("true or false"),
            },
            Self::Recompute => RECOMPUTE
                .iter()
                .zip(0..)
                .find(|(it, _)| it.name() == text)
                .map(|it| it.1)
                .ok_or("none, selective or full"),
            Self::Zero => text.parse().ok().filter(|it| *it <= 3).ok_or("a number from 0 to 3"),
            _ => text.parse().ok().filter(|it| *it > 0).ok_or("a number above 0"),
        }
    }
}

/// Recomputation by the numbers that [`Fixed`] keeps.
pub(super) const RECOMPUTE: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

/// Settings that the search does not vary, or only over some values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fixed([Option<Vec<u32>>; Axis::ALL.len()]);

impl Fixed {
    /// Reads one setting, written `KEY=VALUE` or `KEY=VALUE,VALUE`.
    pub fn add(&mut self, text: &str) -> Result<(), JobError> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(JobError::new(format!("`{text}` fixes nothing: write KEY=VALUE, as in tp=8")));
        };
        let (key, values) = (key.trim(), values.trim());
        // As a job file nests them.
        let key = &key.replace("offload.", "offload_");
        let Some(axis) = Axis::ALL.into_iter().find(|it| it.name() == key) else {
            let distance = |it: &&Axis| strsim::damerau_levenshtein(it.name(), key);
            let near = Axis::ALL.iter().filter(|it| 2 * distance(it) <= it.name().len()).min_by_key(distance);
            let kept = ["framework", "seq", "global_batch", "precision", "nodes", "flash_attention"];
            return Err(JobError::new(if kept.contains(&key.as_str()) {
                format!("`{key}` is not searched: the plan keeps that of the job file")
            } else if let Some(near) = near {
                format!("`{key}` cannot be fixed: did you mean `{}`?", near.name())
            } else {
                let all: Vec<&str> = Axis::ALL.iter().map(|it| it.name()).collect();
                format!("`{key}` cannot be fixed: what can be fixed is {}", all.join(", "))
            }));
        };
        let mut numbers = Vec::new();
        for value in values.split(',').map(str::trim) {
            let number = axis
                .value(value)
                .map_err(|wanted| JobError::new(format!("`{text}`: `{value}` is not {wanted}")))?;
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let slot = &mut self.0[axis as usize];
        if slot.is_some() {
            return Err(JobError::new(format!("`{key}` is fixed twice: write {key}=1,2")));
        }
        *slot = Some(numbers);
        Ok(())
    }

    /// The values that an axis may take, where they are given.
    pub fn values(&self, axis: Axis) -> Option<&[u32]> {
        self.0[axis as usize].as_deref()
    }

    /// Whether an axis may take this value.
    pub(super) fn allows(&self, axis: Axis, value: u32) -> bool {
        self.values(axis).is_none_or(|it| it.contains(&value))
    }

    /// Every axis that is fixed, with its values.
    pub(super) fn all(&self) -> impl Iterator<Item = (Axis, &[u32])> {
        Axis::ALL.into_iter().filter_map(|it| Some((it, self.values(it)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Fixed};

    #[test]
    fn values_are_read_or_refused_with_the_reason() {
        let mut fixed = Fixed::default();
        fixed.add("tp=8,4,8").unwrap();
        fixed.add("recompute=full").unwrap();
        assert_eq!(fixed.values(Axis::Tp), Some(&[4, 8][..]));
        assert!(fixed.allows(Axis::Recompute, 2) && !fixed.allows(Axis::Recompute, 0));
        assert!(fixed.allows(Axis::Pp, 3));
        for (text, reason) in [
            ("tp", "write KEY=VALUE"),
            ("tp=0", "`0` is not a number above 0"),
            ("tp=2,x", "`x` is not a number above 0"),
            ("tp=2", "`tp` is fixed twice"),
            ("zero=4", "`4` is not a number from 0 to 3"),
            ("offload_params=maybe", "`maybe` is not true or false"),
            ("recompute=some", "`some` is not none, selective or full"),
            ("microbatch=2", "did you mean `micro_batch`?"),
            ("seq=4096", "the plan keeps that of the job file"),
        ] {
            let error = fixed.add(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}

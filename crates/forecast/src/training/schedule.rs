//! Pipeline schedules: how layers are spread over stages, and what a step takes with 1F1B or interleaved stages.

/// How Megatron is told to split layers that no option splits evenly: its `--pipeline-model-parallel-layout`, with the longer stages
/// first. None where stages are equal, or are with embedding and head counted as a layer each.
pub fn pipeline_layout(layers: u32, stages: u32) -> Option<String> {
    let stages = stages.max(1);
    let rest = layers % stages;
    if rest == 0 || layers < stages || layers.saturating_add(2).is_multiple_of(stages) {
        return None;
    }
    let fewest = layers / stages;
    let of = |layers: u32| format!("t*{layers}");
    let repeat = |layers: u32, count: u32| match count {
        0 => String::new(),
        count => format!("({}|)*{count},", of(layers)),
    };
    let (long, short) = (repeat(fewest + 1, rest - 1), repeat(fewest, stages - rest - 1));
    Some(format!("E{}|{long}{short}{}L", of(fewest + 1), of(fewest)))
}

/// Layers of the stages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stages {
    /// Of the first stage, which also has the embedding.
    pub(crate) first: f64,
    /// The most that a stage between the first and the last has; the same as the first with one or two stages.
    pub(crate) middle: f64,
    /// Of the last stage, which also has the head.
    pub(crate) last: f64,
}

impl Stages {
    /// Layers are spread evenly. Where that leaves a rest, but embedding and head would make it even, these count as a layer each.
    /// DeepSpeed is greedy: it fills stage after stage, and the last one takes what is left (`partition_balanced`).
    pub(crate) fn new(layers: u32, stages: u32, greedy: bool) -> Self {
        let all = f64::from(layers);
        if stages < 2 {
            return Self { first: all, middle: all, last: all };
        }
        if !layers.is_multiple_of(stages) && layers.saturating_add(2).is_multiple_of(stages) {
            let each = f64::from(layers.saturating_add(2) / stages);
            return Self { first: each - 1.0, middle: each, last: each - 1.0 };
        }
        let most = f64::from(layers.div_ceil(stages));
        let last = if greedy {
            (all - most * f64::from(stages - 1)).max(0.0)
        } else {
            // What does not fit evenly is put first.
            f64::from(layers / stages)
        };
        Self { first: most, middle: most, last }
    }
}

/// Times of a pipelined step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Piped {
    /// While the slowest stage works.
    pub(crate) busy: f64,
    /// While it waits for the first or the last micro-batch.
    pub(crate) bubble: f64,
}

/// A step of `micro_batches`, each of which takes `slowest` on the slowest stage and `whole` on all stages together.
///
/// With 1F1B the slowest stage waits once for every other stage; interleaved stages wait a part of that, as they begin with a
/// part of the model. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", section 2.2.
pub(crate) fn piped(micro_batches: f64, vpp: f64, slowest: f64, whole: f64) -> Piped {
    Piped { busy: micro_batches * slowest, bubble: (whole - slowest).max(0.0) / vpp }
}

#[cfg(test)]
mod tests {
    use super::{Piped, Stages, piped, pipeline_layout};

    #[test]
    fn layers_are_spread_evenly() {
        assert_eq!(Stages::new(96, 8, false), Stages { first: 12.0, middle: 12.0, last: 12.0 });
        assert_eq!(Stages::new(96, 8, true), Stages { first: 12.0, middle: 12.0, last: 12.0 });
        // Embedding and head count as layers: 82 + 2 = 12 x 7.
        assert_eq!(Stages::new(82, 12, true), Stages { first: 6.0, middle: 7.0, last: 6.0 });
        assert_eq!(Stages::new(78, 12, true), Stages { first: 7.0, middle: 7.0, last: 1.0 });
        assert_eq!(Stages::new(78, 12, false), Stages { first: 7.0, middle: 7.0, last: 6.0 });
        assert_eq!(Stages::new(32, 1, false), Stages { first: 32.0, middle: 32.0, last: 32.0 });
    }

    #[test]
    fn longer_stages_come_first() {
        // DeepSeek-V3: 13 stages of 4 layers and 3 of 3; 5 of 8 and 3 of 7; 31 and 30.
        assert_eq!(pipeline_layout(61, 16).as_deref(), Some("Et*4|(t*4|)*12,(t*3|)*2,t*3L"));
        assert_eq!(pipeline_layout(61, 8).as_deref(), Some("Et*8|(t*8|)*4,(t*7|)*2,t*7L"));
        assert_eq!(pipeline_layout(61, 2).as_deref(), Some("Et*31|t*30L"));
        // Equal stages; embedding and head as a layer each; more stages than layers.
        for (layers, stages) in
            [(64, 8), (61, 1), (62, 16), (61, 9), (3, 4), (3, 0), (u32::MAX, u32::MAX - 1)]
        {
            assert_eq!(
                pipeline_layout(layers, stages).is_some(),
                stages == u32::MAX - 1,
                "{layers} on {stages}"
            );
        }
    }

    #[test]
    fn more_pieces_wait_less() {
        // 8 equal stages, 16 micro-batches: 7 of 16 more.
        assert_eq!(piped(16.0, 1.0, 1.0, 8.0), Piped { busy: 16.0, bubble: 7.0 });
        assert_eq!(piped(16.0, 2.0, 1.0, 8.0), Piped { busy: 16.0, bubble: 3.5 });
    }
}

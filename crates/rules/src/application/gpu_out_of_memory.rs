//! The program needs more GPU memory than is free.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::application::OUT_OF_MEMORY;

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-out-of-memory",
    title: "the program ran out of GPU memory",
    severity: Severity::Error,
    // Where the interconnect fails as well, that comes first.
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "PyTorch's allocator found no free GPU memory. If only some ranks fail, the others see closed connections or time out: those \
          messages follow from this one.",
    fix: "Lower the batch size or the sequence length, use activation checkpointing or a higher ZeRO stage, and set \
          PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation. If a rank has less free memory than the others, check \
          for a second process on its GPU (`nvidia-smi`).",
    references: &["https://pytorch.org/docs/stable/notes/cuda.html#memory-management"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&OUT_OF_MEMORY], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let size: String = first
        .get("size")
        .split(". ")
        .next()
        .unwrap_or_default()
        .split(" (")
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .into();
    let ranks: BTreeSet<u32> = found.iter().filter_map(|it| log.case.rank_of(it)).collect();
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let who = if ranks.is_empty() { "a rank".to_owned() } else { list_of_ranks(&ranks) };
    let finding = Finding::new(Confidence::Certain, format!("{who} could not allocate {size} of GPU memory"))
        .by(log, &found);
    // No job needs an exabyte: the size comes from a message with another meaning.
    Ok(vec![if size.contains("EB") || size.contains("PB") || size.contains("PiB") {
        finding.or("collective-mismatch")
    } else {
        finding
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn of_every_age() {
        for text in [
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.2 GiB is free.\n",
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 79.10 GiB total capacity; 77 GiB already allocated)\n",
        ] {
            assert!(findings(&RULE, text)[0].message.contains("2.00 GiB"), "{text}");
        }
    }

    #[test]
    fn nonsense_sizes_point_elsewhere() {
        let text =
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.\n";
        assert_eq!(findings(&RULE, text)[0].also, ["collective-mismatch"]);
    }

    #[test]
    fn nccls_own_is_another_rule() {
        quiet(&RULE, "n:1:1 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n");
    }
}

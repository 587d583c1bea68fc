//! `NCCL_ALGO` or `NCCL_PROTO` leaves no way to run a collective.

use evidence::Source;
use evidence::signals::versions::{ALGORITHM_LIST, NO_ALGORITHM};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-algorithm-unavailable",
    title: "the settings leave no algorithm for a collective",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL_ALGO and NCCL_PROTO restrict NCCL to algorithms and protocols that do not exist for this collective, data type \
          or network: NVLS and CollNet do only some collectives, Tree does not do all-gather.",
    fix: "Unset NCCL_ALGO and NCCL_PROTO. To force an algorithm for one collective only (2.24 and later): \
          `NCCL_ALGO=allreduce:tree`.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1709",
        "https://github.com/NVIDIA/nccl/issues/317",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-algo",
    ],
    checks: &[Check::Log(check)],
};

/// The list cannot be read at all.
const MISSPELT_WHY: &str = "Since 2.24 NCCL stops with ncclInvalidUsage at a word in NCCL_ALGO or NCCL_PROTO that it does not know; older releases \
     skip the word.";
const MISSPELT_FIX: &str = "Correct the word, or unset the variable. NCCL_ALGO takes Ring, Tree, CollNetDirect, CollNetChain, NVLS, NVLSTree and PAT; \
     NCCL_PROTO takes LL, LL128 and Simple; with several collectives, `NCCL_ALGO=allreduce:tree;allgather:ring`.";

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NO_ALGORITHM, &ALGORITHM_LIST], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let set = ["NCCL_ALGO", "NCCL_PROTO"].iter().any(|it| log.job.settings.named(it).next().is_some());
    let quoted = first.quote.text.contains("NCCL_ALGO") || first.quote.text.contains("NCCL_PROTO");
    let misspelt = *first.signal == ALGORITHM_LIST;
    let message = if misspelt {
        let list = first.get("list");
        let holds = |it: &&&str| log.job.settings.named(it).any(|it| it.text().eq_ignore_ascii_case(list));
        let variable = ["NCCL_ALGO", "NCCL_PROTO"].iter().find(holds).copied();
        let word = if first.get("word").is_empty() { list } else { first.get("word") };
        format!("NCCL does not know `{word}` in {}", variable.unwrap_or("NCCL_ALGO or NCCL_PROTO"))
    } else {
        // ` for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.`
        let what = first.get("what").trim_start_matches("for function ");
        match what.split_once(" with datatype ") {
            Some((function, rest)) => {
                let of = rest.split('.').next().unwrap_or_default();
                format!("NCCL has no algorithm left for {function} of {of}")
            }
            None => "NCCL has no algorithm left for a collective".to_owned(),
        }
    };
    let certain = set || quoted || misspelt;
    let confidence = if certain { Confidence::Certain } else { Confidence::Likely };
    let finding = Finding::new(confidence, message).by(log, &found);
    Ok(vec![if misspelt { finding.why(MISSPELT_WHY).fix(MISSPELT_FIX) } else { finding }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_age() {
        let old = "n:1:2 [0] enqueue.cc:1 NCCL WARN Error : no algorithm/protocol available\n";
        assert_eq!(findings(&RULE, old)[0].confidence, Confidence::Likely);
        let new = "n:1:2 [0] enqueue.cc:1 NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.\n";
        let found = findings(&RULE, new);
        assert_eq!(found[0].message, "NCCL has no algorithm left for AllGather of ncclInt8");
        assert_eq!(found[0].confidence, Confidence::Certain);
        let list = "n:1:2 [0] graph/tuning.cc:1 NCCL WARN Unrecognized element token \"rings\" when parsing \"rings\"\n";
        assert_eq!(findings(&RULE, list)[0].message, "NCCL does not know `rings` in NCCL_ALGO or NCCL_PROTO");
        quiet(&RULE, "n:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Tree\n");
    }
}

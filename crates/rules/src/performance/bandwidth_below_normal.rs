//! nccl-tests measured less than this hardware gives.

use evidence::Source;
use forecast::Verdict;

use super::bandwidth::{Measured, measured, size};
use crate::expected::{interval, layout, number};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "bandwidth-below-normal",
    title: "the measured bandwidth is below what this hardware normally gives",
    severity: Severity::Warning,
    role: Role::Consequence,
    needs: &[Source::NcclTests, Source::Instance],
    why: "The machine, the number of its NICs and the layout of the ranks determine what large messages should reach. A job on these nodes \
          waits correspondingly longer for its collectives.",
    fix: "Run it again with NCCL_DEBUG=INFO and give the log to `plumb doctor`: the paths show what is missing (GDRDMA, NVLink, NICs). \
          Then leave nodes out one by one: `plumb expect` shows what fewer nodes should reach.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
        "https://github.com/NVIDIA/nccl-tests/issues/290",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let low = measured(log)?.into_iter().filter(|it| it.verdict() == Verdict::Low);
    Ok(low.filter_map(|it| finding(&it)).take(4).collect())
}

fn finding(it: &Measured<'_>) -> Option<Finding> {
    let first = it.rows.first()?;
    let message = format!(
        "{} of {} on {} reached {} GB/s; {} is normal",
        it.collective,
        size(first.row.size),
        layout(&it.cluster),
        number(first.rate),
        interval(&first.normal)
    );
    // A single size may have been disturbed, and a forecast that rests on no measurement may be wrong.
    let (confidence, severity) = match it.rows.len() {
        0 | 1 => (Confidence::Possible, Severity::Info),
        _ if first.normal.measured => (Confidence::Likely, Severity::Warning),
        _ => (Confidence::Possible, Severity::Warning),
    };
    let mut why = format!("{}.", first.judgement.reason);
    match first.judgement.explanations.as_slice() {
        [] => {}
        [one] => why.push_str(&format!(" Possible explanation: {one}.")),
        many => why.push_str(&format!(" Possible explanations: {}.", many.join("; "))),
    }
    let finding = Finding::new(confidence, message).severity(severity).why(why);
    Some(finding.seen_all(it.rows.iter().map(|it| &it.row.quote)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet, read};
    use crate::{Confidence, Severity};

    /// Two nodes of eight H100 as nccl-tests prints them, with so many GB/s at 512 MiB and 1 GiB.
    fn run(hosts: u32, rates: [f64; 2]) -> String {
        let mut text = "instance-type: p5.48xlarge\n# nThread 1 nGpus 1 minBytes 536870912 maxBytes 1073741824 step: 2(factor)\n# Using devices\n".to_owned();
        for rank in 0..hosts * 8 {
            text.push_str(&format!(
                "#  Rank {rank:2} Group  0 Pid {} on node-{} device {} [0x53] NVIDIA H100 80GB HBM3\n",
                100 + rank,
                rank / 8,
                rank % 8
            ));
        }
        let n = f64::from(hosts * 8);
        for (size, rate) in [(536_870_912_u64, rates[0]), (1_073_741_824, rates[1])] {
            let algbw = rate / (2.0 * (n - 1.0) / n);
            text.push_str(&format!(
                "{size} {} float sum -1 4000.0 {algbw:.2} {rate:.2} 0 4001.0 {algbw:.2} {rate:.2} 0\n",
                size / 4
            ));
        }
        text
    }

    #[test]
    fn fires_when_both_sizes_are_low() {
        let found = findings(&RULE, &run(2, [180.0, 190.0]));
        assert!(
            found[0].message.starts_with(
                "all_reduce of 1 GiB on 2 nodes with 8 GPUs each (p5.48xlarge) reached 190 GB/s; "
            ),
            "{}",
            found[0].message
        );
        assert_eq!(found[0].confidence, Confidence::Likely);
        assert!(found[0].why.as_ref().unwrap().contains("Possible explanation"), "{:?}", found[0].why);
    }

    #[test]
    fn quiet_when_it_is_normal_or_sizes_disagree() {
        quiet(&RULE, &run(1, [470.0, 475.0]));
        quiet(&RULE, &run(2, [400.0, 430.0]));
        quiet(&RULE, &run(2, [90.0, 430.0]));
    }

    #[test]
    fn one_size_alone_is_only_mentioned() {
        let one: Vec<String> =
            run(2, [90.0, 95.0]).lines().filter(|it| !it.starts_with("5368")).map(str::to_owned).collect();
        let found = findings(&RULE, &one.join("\n"));
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Possible, Some(Severity::Info)));
    }

    #[test]
    fn a_list_of_ranks_that_was_cut_is_not_judged() {
        let cut: Vec<String> =
            run(1, [100.0, 100.0]).lines().filter(|it| !it.contains("Rank  7")).map(str::to_owned).collect();
        quiet(&RULE, &cut.join("\n"));
    }

    #[test]
    fn eight_gpus_on_a_board_need_no_name() {
        let unnamed = |rates| run(1, rates).replace("instance-type: p5.48xlarge\n", "");
        assert_eq!(findings(&RULE, &unnamed([40.0, 42.0])).len(), 1);
        quiet(&RULE, &unnamed([460.0, 476.0]));
        let nodes = run(2, [40.0, 42.0]).replace("instance-type: p5.48xlarge\n", "");
        assert!(crate::testing::check(&RULE, &read(&nodes)).is_err());
    }
}

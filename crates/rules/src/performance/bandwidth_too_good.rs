//! nccl-tests measured more than this hardware can give.

use evidence::Source;
use forecast::Verdict;

use super::bandwidth::{Measured, measured, size};
use crate::expected::{interval, layout, number};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "bandwidth-too-good",
    title: "the measured bandwidth is above what this hardware can give",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclTests, Source::Instance],
    why: "A number above the rate of the links means that something else was measured: fewer nodes than intended, ranks that share a GPU, \
          another unit, or results that were not checked.",
    fix: "Check the list of devices in the output, run with `-c 1` so that results are checked (`#wrong` must be 0), and compare the bus \
          bandwidth in GB/s, not the algorithm bandwidth or Gbit/s.",
    references: &["https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let high = measured(log)?.into_iter().filter(|it| it.verdict() == Verdict::TooGood);
    Ok(high.filter_map(|it| finding(&it)).take(4).collect())
}

fn finding(it: &Measured<'_>) -> Option<Finding> {
    let first = it.rows.first()?;
    let message = format!(
        "{} of {} on {} reached {} GB/s, more than the {} that is normal",
        it.collective,
        size(first.row.size),
        layout(&it.cluster),
        number(first.rate),
        interval(&first.normal)
    );
    let finding = Finding::new(Confidence::Possible, message);
    Some(finding.seen_all(it.rows.iter().map(|it| &it.row.quote)).why(first.judgement.reason.clone()))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn run(rate: f64) -> String {
        let mut text = "instance-type: p4d.24xlarge\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n".to_owned();
        for rank in 0..8 {
            text.push_str(&format!(
                "#  Rank {rank} Group 0 Pid 1 on a device {rank} [0x10] NVIDIA A100-SXM4-40GB\n"
            ));
        }
        let row = format!(
            "float sum -1 4000.0 {:.2} {rate:.2} 0 4000.0 {:.2} {rate:.2} 0",
            rate / 1.75,
            rate / 1.75
        );
        text + &format!("536870912 134217728 {row}\n1073741824 268435456 {row}\n")
    }

    #[test]
    fn fires_above_nvlink() {
        let found = findings(&RULE, &run(500.0));
        assert!(found[0].message.contains("reached 500 GB/s, more than the"), "{}", found[0].message);
        assert!(found[0].why.as_ref().unwrap().contains("NVLink"), "{:?}", found[0].why);
    }

    #[test]
    fn quiet_when_it_is_normal_or_low() {
        quiet(&RULE, &run(231.0));
        quiet(&RULE, &run(40.0));
    }
}

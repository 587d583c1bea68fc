//! nccl-tests found wrong values.

use evidence::{Missing, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "wrong-results",
    title: "collectives return wrong values",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclTests],
    why: "nccl-tests compares every element with what it must be. A wrong one means that memory, a link or the network corrupts data, or \
          that a plugin delivers it out of order; training would silently continue with it.",
    fix: "Run the test on each node alone (`-g 8`), then with NCCL_PROTO=Simple, NCCL_P2P_DISABLE=1 and NCCL_NET_GDR_LEVEL=LOC in turn: \
          the setting that removes the errors shows which part is broken. Take the node out, and search for Xid and NVLink errors \
          (`dmesg`, `nvidia-smi nvlink -e`).",
    references: &[
        "NVIDIA nccl-tests README (-c, check correctness)",
        "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    if log.case.tests.is_empty() {
        return Err(Missing(Source::NcclTests));
    }
    let mut findings = Vec::new();
    for run in &log.case.tests {
        let wrong = |it: &evidence::plain::Row| {
            [it.out_of_place, it.in_place].iter().flatten().any(|it| it.wrong.is_some_and(|it| it >= 1.0))
        };
        let rows: Vec<_> = run.rows.iter().filter(|it| wrong(it)).collect();
        let summed = run.out_of_bounds.filter(|it| *it > 0);
        let message = match (rows.first(), summed) {
            (Some(first), _) => format!(
                "{} of {} sizes have wrong values, first at {} bytes",
                rows.len(),
                run.rows.len(),
                first.size
            ),
            (None, Some(n)) => format!("the run reports {n} values out of bounds"),
            (None, None) => continue,
        };
        let finding = Finding::new(Confidence::Certain, message).seen_all(rows.iter().map(|it| &it.quote));
        findings.push(if rows.is_empty() { finding.seen(&run.quote) } else { finding });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_wrong_elements() {
        let table = "    1024  256  float  sum  -1  28.72  0.04  0.07  3  27.37  0.04  0.07  0\n# Out of bounds values : 3 FAILED\n";
        assert_eq!(findings(&RULE, table)[0].message, "1 of 1 sizes have wrong values, first at 1024 bytes");
    }

    #[test]
    fn quiet_on_right_and_on_unchecked_runs() {
        quiet(
            &RULE,
            "    1024  256  float  sum  -1  28.72  0.04  0.07  0  27.37  0.04  0.07  0\n# Out of bounds values : 0 OK\n",
        );
        quiet(&RULE, "    8  2  float  0  45.82  0.00  0.00  N/A  38.17  0.00  0.00  N/A\n");
        // Releases up to 2.11 print the largest difference, not a count.
        quiet(&RULE, "    8388608  262144  float  1209.9  6.93  6.07  2e-06  1223.4  6.86  6.00  2e-06\n");
    }
}

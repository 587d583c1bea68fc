//! Flows share links of a RoCE network and slow each other down.

use evidence::signals::performance::{CONGESTION_COUNTERS, LOST_PACKETS};
use evidence::{Missing, Source};

use super::{deepest_fall, on_one_host, sign_of_roce};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "roce-congestion",
    title: "the RoCE network is congested",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::FabricDiagnostics, Source::NcclTests],
    why: "Flows that a switch sends over the same link share it. Switches then mark packets (ECN) or pause the senders (PFC), and the \
          collective runs at the speed of the slowest flow. It grows with the number of nodes.",
    fix: "Look at the counters of all NICs and switch ports during a run (`ethtool -S`, `rdma -p statistic show`). Spread the flows: \
          adaptive routing (NCCL_IB_ADAPTIVE_ROUTING=1), more queue pairs (NCCL_IB_QPS_PER_CONNECTION=4), a rail-aligned network, and \
          DSCP and ECN settings that are the same on NICs (NCCL_IB_TC) and switches.",
    references: &["https://github.com/NVIDIA/nccl/issues/1531", "https://github.com/NVIDIA/nccl/issues/173"],
    checks: &[Check::Log(check)],
};

/// A larger message with less than this share of the best bandwidth is slow; one below [`COLLAPSED`] has collapsed.
const SLOW: f64 = 0.6;
const COLLAPSED: f64 = 1.0 / 3.0;

fn check(log: &Log) -> Checked {
    let busy: Vec<_> =
        log.case.sightings_of(&CONGESTION_COUNTERS).filter(|it| it.number("count") > Some(1000)).collect();
    let lost = log.case.sightings_of(&LOST_PACKETS).any(|it| it.number("count") > Some(0));
    if let Some(first) = busy.first() {
        let count = first.number("count").unwrap_or_default();
        let message =
            format!("the NIC counts {count} signs of congestion (marked packets, notifications or pauses)");
        // Counters run since the start of the machine: they show that it happened, not when.
        let confidence = if lost { Confidence::Possible } else { Confidence::Likely };
        return Ok(vec![Finding::new(confidence, message).by(log, &busy).seen_all(sign_of_roce(log))]);
    }
    let roce = sign_of_roce(log);
    for run in log.case.tests.iter().filter(|it| !on_one_host(it)) {
        let Some((best, row, busbw)) = deepest_fall(run) else { continue };
        let share = busbw / best;
        if roce.is_some() && (COLLAPSED..SLOW).contains(&share) {
            let message = format!(
                "bus bandwidth falls from {best:.1} to {busbw:.1} GB/s at {} bytes on RoCE",
                row.size
            );
            return Ok(vec![
                Finding::new(Confidence::Possible, message)
                    .seen(&row.quote)
                    .seen_all(roce)
                    .or("roce-no-flow-control"),
            ]);
        }
    }
    if log.case.tests.is_empty() && log.case.first_of(&[&CONGESTION_COUNTERS]).is_none() {
        return Err(Missing(Source::FabricDiagnostics));
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_counters() {
        assert_eq!(findings(&RULE, "     np_cnp_sent: 123456789\n     rp_cnp_handled: 9876543\n").len(), 1);
        assert!(findings(&RULE, "     np_cnp_sent: 0\n").is_empty());
    }

    #[test]
    fn a_dip_on_roce_is_possible_congestion() {
        let rows = "1048576 262144 float sum -1 121.8 8.61 40.0 0 126.6 8.28 41.0 0\n2097152 524288 float sum -1 203.0 82.64 20.0 0 199.1 84.26 19.0 0\n";
        assert_eq!(findings(&RULE, &format!("NCCL_IB_GID_INDEX=3\n{rows}")).len(), 1);
        quiet(&RULE, rows);
    }
}

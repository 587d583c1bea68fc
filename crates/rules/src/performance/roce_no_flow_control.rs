//! A RoCE network without flow control drops packets, and the bandwidth collapses.

use evidence::nccl::LinkLayer;
use evidence::plain::{NcclTests, Row};
use evidence::plugin::is_infiniband;
use evidence::signals::performance::{FLOW_CONTROL_OFF, LOST_PACKETS};
use evidence::{Missing, Source};

use super::{deepest_fall, on_one_host, sign_of_roce};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "roce-no-flow-control",
    title: "the RoCE network loses packets: no flow control",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::FabricDiagnostics, Source::NcclTests],
    why: "RDMA over Ethernet needs a network that does not drop packets. Without pause frames or PFC a switch drops them under load, the NIC \
          sends whole windows again, and bandwidth falls to a small fraction, suddenly and at some sizes only.",
    fix: "Turn on PFC for the priority of the RDMA traffic on switches and NICs (`mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0`, trust DSCP), with ECN, \
          and let NCCL use that class (NCCL_IB_TC). Check `ethtool -S IF | grep -E 'discard|pause'` and out_of_sequence in hw_counters \
          before and after a run.",
    references: &["https://github.com/NVIDIA/nccl/issues/378", "https://github.com/NVIDIA/nccl/issues/306"],
    checks: &[Check::Log(check)],
};

/// A larger message that reaches less than this share of the best bandwidth before it.
const COLLAPSED: f64 = 1.0 / 3.0;

fn check(log: &Log) -> Checked {
    let lost: Vec<_> =
        log.case.sightings_of(&LOST_PACKETS).filter(|it| it.number("count") > Some(0)).collect();
    let off: Vec<_> = log.case.sightings_of(&FLOW_CONTROL_OFF).collect();
    let roce = sign_of_roce(log);
    let fallen = log.case.tests.iter().filter(|it| !on_one_host(it)).find_map(|run| {
        let fall = deepest_fall(run)?;
        (fall.2 / fall.0 < COLLAPSED).then_some(fall)
    });
    if let Some((best, row, busbw)) = fallen {
        // Other networks have other reasons for such a fall; on RoCE it has a usual cause.
        let verbs = log.case.networks().all(|it| is_infiniband(&it.value));
        let infiniband = log
            .case
            .processes
            .iter()
            .flat_map(|it| it.facts.hcas.iter())
            .any(|it| it.value.iter().any(|hca| hca.layer == LinkLayer::InfiniBand));
        if !verbs || (infiniband && roce.is_none()) {
            return Ok(Vec::new());
        }
        let sure = roce.is_some() || !lost.is_empty();
        let message = format!(
            "bus bandwidth collapses from {best:.1} to {busbw:.2} GB/s at {} bytes, as happens when packets are dropped",
            row.size
        );
        let finding = Finding::new(if sure { Confidence::Likely } else { Confidence::Possible }, message)
            .seen(&row.quote);
        return Ok(vec![finding.by(log, &lost).by(log, &off).seen_all(roce).or("roce-congestion")]);
    }
    let slow = log.case.tests.iter().filter(|it| !on_one_host(it)).find_map(all_slow);
    if let Some((row, best)) = slow.filter(|_| roce.is_some()) {
        let message = format!(
            "large messages reach {best:.2} GB/s at most on RoCE, as happens when packets are dropped"
        );
        return Ok(vec![
            Finding::new(Confidence::Possible, message).seen(&row.quote).seen_all(roce).or("roce-congestion"),
        ]);
    }
    if let Some(first) = off.first().filter(|_| roce.is_some()) {
        let message = "flow control is off on a RoCE network";
        return Ok(vec![
            Finding::new(Confidence::Likely, message).seen(&first.quote).by(log, &lost).seen_all(roce),
        ]);
    }
    if let Some(first) = lost.first() {
        let message = format!("the NIC counts {} packets lost or out of order", first.get("count"));
        return Ok(vec![
            Finding::new(Confidence::Likely, message).by(log, &lost).seen_all(roce).or("roce-congestion"),
        ]);
    }
    let has_source =
        log.case.first_of(&[&LOST_PACKETS, &FLOW_CONTROL_OFF]).is_some() || !log.case.tests.is_empty();
    if has_source { Ok(Vec::new()) } else { Err(Missing(Source::FabricDiagnostics)) }
}

/// A run whose messages of 4 MiB and more all stay below what a slow NIC can do.
fn all_slow(run: &NcclTests) -> Option<(&Row, f64)> {
    let mut worst: Option<(&Row, f64)> = None;
    for row in run.rows.iter().filter(|it| it.size >= 4 << 20) {
        let busbw =
            [row.out_of_place, row.in_place].iter().flatten().map(|it| it.busbw).fold(0.0_f64, f64::max);
        if worst.is_none_or(|it| busbw > it.1) {
            worst = Some((row, busbw));
        }
    }
    worst.filter(|it| it.1 > 0.0 && it.1 < 1.0)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const TABLE: &str = "1048576 262144 float sum 203.5 5.15 9.66 1e-06 201.1 5.21 9.78 1e-06\n\
                         2097152 524288 float sum 4203.5 0.50 0.94 1e-06 5201.1 0.40 0.76 1e-06\n";

    #[test]
    fn a_collapse_on_roce_is_dropped_packets() {
        let log =
            format!("a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB eth0:10.0.0.1<0>\n{TABLE}");
        let found = findings(&RULE, &log);
        assert_eq!(found[0].confidence, Confidence::Likely);
        assert_eq!(
            found[0].message,
            "bus bandwidth collapses from 9.8 to 0.94 GB/s at 2097152 bytes, as happens when packets are dropped"
        );
        assert_eq!(findings(&RULE, TABLE)[0].confidence, Confidence::Possible);
    }

    #[test]
    fn counters_show_it_too() {
        assert_eq!(findings(&RULE, "     out_of_sequence: 88123\n").len(), 1);
        assert!(findings(&RULE, "     out_of_sequence: 0\n     rx_discards_phy: 0\n").is_empty());
    }

    #[test]
    fn a_switch_of_algorithm_is_not_a_collapse() {
        quiet(
            &RULE,
            "16777216 4194304 float sum -1 203.0 82.64 268.95 0 199.1 84.26 267.98 0\n\
             134217728 33554432 float sum -1 1108.0 121.14 227.14 0 1111.2 120.79 226.48 0\n",
        );
        let inside = "# Rank  0 Group  0 Pid 1 on a device  0 [0x07] NVIDIA A100\n# Rank  1 Group  0 Pid 1 on a device  1 [0x0b] NVIDIA A100\n";
        quiet(&RULE, &format!("# nThread 1 nGpus 1 minBytes 8\n{inside}{TABLE}"));
    }
}

//! Several GPUs share one EFA device: worth knowing when bandwidth is judged.

use evidence::{Missing, Source};
use fabric::units::GigabytesPerSecond;

use super::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nic-shared-by-gpus",
    title: "several GPUs share one EFA device",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "The bandwidth between nodes is that of the devices the job sees, divided among its GPUs. It is a limit of the machine, not a \
          fault, and the number to compare a measurement with.",
    fix: "None needed. Keep traffic inside the node where you can (tensor parallel inside, data parallel between nodes), or choose an \
          instance type with more EFA devices per GPU.",
    references: &["https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let processes = log.nccl_log()?;
    let (machine, _) = machine(log).filter(|it| it.0.efa()).ok_or(Missing(Source::Instance))?;
    let found = processes.iter().find_map(|process| {
        let seen = process.facts.plugin.provider.iter().find(|it| &*it.value.name == "efa")?;
        Some((seen.value.nics?, &seen.quote))
    });
    let Some((nics, quote)) = found else { return Ok(Vec::new()) };
    let (Some(layout), Some(each)) = (&log.job.size.reported, machine.nic_gbps_each) else {
        return Ok(Vec::new());
    };
    let local = layout.value.ranks_per_node;
    if local <= nics || nics == 0 || log.job.size.spans_nodes() != Some(true) {
        return Ok(Vec::new());
    }
    let all = GigabytesPerSecond::from(each).0 * f64::from(nics);
    let devices = if nics == 1 { "one EFA device".to_owned() } else { format!("{nics} EFA devices") };
    let message = format!(
        "{local} GPUs of a {} share {devices}: {all:.1} GB/s together, {:.1} GB/s each",
        machine.name,
        all / f64::from(local)
    );
    let finding = Finding::new(Confidence::Certain, message).seen(quote).seen_all(layout.quote());
    // A pod with some of the GPUs can have fewer devices than its share. With all GPUs another rule reports it.
    let fair = f64::from(machine.nics) * f64::from(local) / f64::from(machine.gpus);
    if local >= machine.gpus || f64::from(nics) >= fair.floor() {
        return Ok(vec![finding]);
    }
    let share = u64::from(nics) * u64::from(machine.gpus) / u64::from(local);
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    let loss = expected::loss_across(log, expected::with_nics(share));
    let why = format!(
        "The machine has {} EFA devices for its {} GPUs: the share of {local} GPUs is {fair}.",
        machine.nics, machine.gpus
    );
    let fix = format!("Request the share of the pod's GPUs: `vpc.amazonaws.com/efa: {fair}`.");
    Ok(vec![finding.severity(Severity::Warning).why(why).with_numbers(&RULE, loss).fix(fix)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    fn log(machine: &str, nics: u32, local: u32) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found {nics} nics)\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 4 localRanks {local} localRank 0 MNNVL 0\n\
             a:1:2 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : {machine}, Fall back to NCCL's tuner\n"
        )
    }

    #[test]
    fn names_the_share() {
        let found = findings(&RULE, &log("g6e.12xlarge", 1, 4));
        assert_eq!(
            found[0].message,
            "4 GPUs of a g6e.12xlarge share one EFA device: 12.5 GB/s together, 3.1 GB/s each"
        );
    }

    #[test]
    fn a_pod_with_too_few_devices_is_a_loss() {
        let found = findings(&RULE, &log("p4d.24xlarge", 1, 4));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        assert!(found[0].why.as_ref().unwrap().starts_with("Expected loss: "), "{:?}", found[0].why);
        assert_eq!(findings(&RULE, &log("p4d.24xlarge", 2, 4))[0].severity, None);
        assert_eq!(findings(&RULE, &log("p4d.24xlarge", 4, 8))[0].severity, None);
    }

    #[test]
    fn quiet_with_a_device_for_each() {
        quiet(&RULE, &log("p6-b200.48xlarge", 8, 8));
        quiet(&RULE, &log("p4d.24xlarge", 1, 1));
    }
}

//! The plugin found a different number of EFA devices than the machine or the pod has.

use evidence::{Missing, Source};
use job::size::NodeLayout;

use super::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-nics-unexpected",
    title: "the job does not see the expected number of EFA devices",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "Each EFA device carries its share of the machine's network traffic. Devices that the job does not see carry nothing.",
    fix: "Request all of them when the job uses all GPUs of the node (`vpc.amazonaws.com/efa: N` in the pod's limits; on EC2 attach \
          an EFA interface to every network card at launch), and compare `fi_info -p efa -t FI_EP_RDM` in the container and on the host.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html",
        "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let processes = log.nccl_log()?;
    let (machine, _) = machine(log).filter(|it| it.0.efa()).ok_or(Missing(Source::Instance))?;
    let layouts = log.case.communicators.iter().filter_map(NodeLayout::of_communicator);
    let local = layouts.map(|it| it.ranks_per_node).max();
    let requested = log.case.manifests.iter().find_map(|it| it.efa.first());
    for process in processes {
        let Some(seen) = process
            .facts
            .plugin
            .provider
            .iter()
            .find(|it| &*it.value.name == "efa" && it.value.nics.is_some())
        else {
            continue;
        };
        let Some(nics) = seen.value.nics else { continue };
        if nics < machine.nics && local == Some(machine.gpus) {
            let message = format!(
                "{} sees {nics} of the {} EFA devices of a {} while all its {} GPUs are used",
                process.name(),
                machine.nics,
                machine.name,
                machine.gpus
            );
            let share = format!(
                "{} of the {} EFA devices of each node carry nothing, and their bandwidth is lost.",
                machine.nics - nics,
                machine.nics
            );
            let loss = expected::loss_across(log, expected::with_nics(nics));
            let finding = Finding::new(Confidence::Certain, message).seen(&seen.quote).why(share);
            let finding = finding.with_numbers(&RULE, loss);
            return Ok(vec![
                finding.fix(format!("Request all of them: `vpc.amazonaws.com/efa: {}`.", machine.nics)),
            ]);
        }
        if let Some(limit) = requested.filter(|it| it.value < nics && nics == machine.nics) {
            let message =
                format!("the pod requests {} EFA devices but sees all {nics} of the machine", limit.value);
            let finding = Finding::new(Confidence::Likely, message)
                .severity(Severity::Info)
                .seen(&seen.quote)
                .seen(&limit.quote);
            return Ok(vec![
                finding
                    .why("A privileged pod sees every device of its node, so several pods may all use the first one.")
                    .fix("Remove `privileged: true`: EFA needs only the device plugin's resource."),
            ]);
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet, read};

    fn log(nics: u32, local: u32) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n\
             a:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found {nics} nics)\n\
             a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks {local} localRank 0 MNNVL 0\n"
        )
    }

    #[test]
    fn fewer_devices_matter_when_all_gpus_are_used() {
        let found = findings(&RULE, &log(2, 8));
        assert_eq!(
            found[0].message,
            "rank 0 on a sees 2 of the 4 EFA devices of a p4d.24xlarge while all its 8 GPUs are used"
        );
        quiet(&RULE, &log(1, 1));
        quiet(&RULE, &log(4, 8));
    }

    #[test]
    fn a_pod_that_sees_all_is_privileged() {
        let manifest = "apiVersion: v1\nkind: Pod\nspec:\n  limits:\n    vpc.amazonaws.com/efa: 1\n";
        let case = evidence::read_texts([("a.log", log(4, 1).as_bytes()), ("pod.yaml", manifest.as_bytes())]);
        let found = crate::testing::check(&RULE, &crate::Log::new(case)).unwrap();
        assert_eq!(found[0].severity, Some(Severity::Info));
    }

    #[test]
    fn without_the_machine_nothing_can_be_said() {
        assert!(
            crate::testing::check(
                &RULE,
                &read("a:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)\n")
            )
            .is_err()
        );
    }
}

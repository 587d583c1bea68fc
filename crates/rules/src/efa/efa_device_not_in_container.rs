//! Libfabric sees no EFA device, usually because the container was started without one.

use evidence::Source;
use evidence::signals::efa::{NO_EFA_DEVICE, NO_PROVIDER};

use super::{container_without_devices, efa_in_use, machine};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-device-not-in-container",
    title: "no EFA device is visible to the job",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The plugin and libfabric are installed, but libfabric finds no EFA device (-61, no data). NCCL then uses TCP sockets, or fails. \
          Usually the devices exist on the host and were not passed to the container.",
    fix: "Kubernetes: request `vpc.amazonaws.com/efa` in the pod's limits (device plugin or DRA driver), and do not mount a hostPath over \
          /dev/infiniband. Docker: `--device /dev/infiniband/uverbs0` and so on for every device. Then `fi_info -p efa -t FI_EP_RDM` \
          inside the container must list them; if it lists none on the host either, the instance has no EFA interface attached.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/1020",
        "https://github.com/aws/aws-ofi-nccl/issues/879",
        "https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NO_EFA_DEVICE, &NO_PROVIDER], Source::JobOutput)?;
    // Where the plugin tries two protocols, one may find nothing while the other works.
    if found.is_empty() || efa_in_use(log) {
        return Ok(Vec::new());
    }
    if let Some((machine, quote)) = machine(log).filter(|it| !it.0.efa()) {
        let message = format!("{} has no EFA, but the EFA plugin was loaded", machine.name);
        let finding = Finding::new(Confidence::Certain, message).by(log, &found).seen_all(quote);
        return Ok(vec![finding.fix(
            "Remove the plugin from LD_LIBRARY_PATH on this machine, or use an instance type with EFA.",
        )]);
    }
    if let Some(quote) = container_without_devices(log) {
        let message = "the container was started without EFA devices, and libfabric finds none";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).seen(quote)]);
    }
    // Old plugins only report that there is no provider, which has other reasons too.
    let none: Vec<_> = found.into_iter().filter(|it| *it.signal == NO_EFA_DEVICE).collect();
    if none.is_empty() {
        return Ok(Vec::new());
    }
    let message = "libfabric finds no EFA device (-61, no data available)";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &none).or("efa-provider-not-found")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_texts_of_every_age() {
        for text in [
            "a:1:9 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available\n",
            "a:1:9 [0] NCCL INFO NET/OFI No eligible providers were found\n",
            "NET/OFI No eligible providers were found\nNET/OFI aws-ofi-nccl initialization failed\n",
            "$ fi_info -p efa\nfi_getinfo: -61 (No data available)\n",
        ] {
            assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Likely, "{text}");
        }
    }

    #[test]
    fn quiet_when_the_other_protocol_works() {
        quiet(
            &RULE,
            "a:1:9 [0] NCCL INFO NET/OFI No eligible providers were found\n\
             a:1:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)\n\
             a:1:9 [0] NCCL INFO Using network Libfabric\n",
        );
    }

    #[test]
    fn a_container_without_devices_explains_a_missing_provider() {
        let old = "a:1:9 [0] find_ofi_provider:543 NCCL WARN NET/OFI Couldn't find any optimal provider\n";
        assert_eq!(ids(&format!("{old}nvidia-docker run -it image sh\n"))[0], RULE.id);
        assert_eq!(
            ids(&format!("{old}docker run --device /dev/infiniband/uverbs0 image\n"))[0],
            "efa-provider-not-found"
        );
    }

    #[test]
    fn other_failures_of_getinfo_are_something_else() {
        quiet(
            &RULE,
            "a:1:9 [0] x:1 NCCL WARN NET/OFI OFI fi_getinfo() call failed: Function not implemented\n",
        );
    }
}

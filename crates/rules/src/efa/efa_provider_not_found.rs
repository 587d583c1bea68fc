//! The plugin started and found no EFA provider in libfabric.

use evidence::signals::efa::{
    GPUDIRECT_REFUSED, LIBFABRIC_TOO_OLD, NO_EFA_DEVICE, NO_PROVIDER, PLUGIN_FAILED, REGISTER_FAILED,
};
use evidence::{Sighting, Signal, Source};

use super::{container_without_devices, efa_in_use, providers, sign_of_efa, socket_chosen};
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-provider-not-found",
    title: "the EFA plugin finds no EFA provider",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "aws-ofi-nccl is loaded, but the libfabric in this container offers no EFA: its devices are not visible, or this libfabric was \
          built without the provider. NCCL then runs over TCP, at a fraction of the speed.",
    fix: "In the container, `/opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM` must list devices. If not: pass the devices in \
          (`vpc.amazonaws.com/efa`, or `--device /dev/infiniband/uverbs0`), and install the EFA software in the image (`efa_installer.sh \
          -y --skip-kmod`) before any other libfabric in LD_LIBRARY_PATH. FI_PROVIDER=efa makes a missing provider an error.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/67",
        "https://github.com/NVIDIA/nccl/issues/229",
    ],
    checks: &[Check::Log(check)],
};

/// Providers that nobody chooses where RDMA is available.
static TCP: &[&str] = &["tcp", "sockets", "udp", "net", "shm"];

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NO_PROVIDER, &PLUGIN_FAILED], Source::JobOutput)?;
    let of = |signal: &Signal| -> Vec<&Sighting> {
        found.iter().copied().filter(|it| it.signal == signal).collect()
    };
    let none = of(&NO_PROVIDER);
    if !none.is_empty() {
        if efa_in_use(log) || container_without_devices(log).is_some() {
            return Ok(Vec::new());
        }
        let message = "the plugin was loaded, but libfabric has no EFA provider for it";
        let finding =
            Finding::new(Confidence::Likely, message).by(log, &none).or("efa-device-not-in-container");
        return Ok(vec![finding.priced(expected::price_of_tcp(log, socket_chosen(log)))]);
    }
    let base = |name: &str| TCP.contains(&name.split(';').next().unwrap_or_default());
    if let Some((name, quote)) = providers(log).find(|it| base(it.0)) {
        let message = format!("the plugin uses the libfabric provider {name}, which is TCP and not EFA");
        let finding = Finding::new(Confidence::Likely, message)
            .seen(quote)
            .seen_all(sign_of_efa(log).and_then(|it| it.quote));
        return Ok(vec![finding.or("efa-device-not-in-container")]);
    }
    let failed = of(&PLUGIN_FAILED);
    let explained = [&NO_EFA_DEVICE, &LIBFABRIC_TOO_OLD, &GPUDIRECT_REFUSED, &REGISTER_FAILED];
    if failed.is_empty() || efa_in_use(log) || log.case.first_of(&explained).is_some() {
        return Ok(Vec::new());
    }
    let message = "aws-ofi-nccl could not start, usually because libfabric offers no EFA";
    Ok(vec![
        Finding::new(Confidence::Likely, message)
            .by(log, &failed)
            .or("efa-device-not-in-container")
            .or("ofi-plugin-lib-mismatch"),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_old_and_new_texts() {
        for text in [
            "WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider\n",
            "a:1:9 [0] get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider\n",
            "a:1:9 [0] nccl_net_ofi_create_plugin:204 NCCL WARN NET/OFI Failed to initialize sendrecv protocol\n",
        ] {
            assert_eq!(findings(&RULE, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn tcp_through_libfabric_is_not_efa() {
        let found =
            findings(&RULE, "a:1:9 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm (found 2 nics)\n");
        assert_eq!(
            found[0].message,
            "the plugin uses the libfabric provider tcp;ofi_rxm, which is TCP and not EFA"
        );
    }

    #[test]
    fn quiet_with_a_provider_for_rdma_and_where_the_cause_is_known() {
        quiet(&RULE, "a:1:9 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 8 nics)\n");
        quiet(
            &RULE,
            "a:1:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)\n",
        );
        quiet(
            &RULE,
            "a:1:9 [0] NCCL INFO NET/OFI No eligible providers were found\n\
             a:1:9 [0] x:1 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n",
        );
    }
}

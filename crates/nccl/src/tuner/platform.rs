//! What aws-ofi-nccl tells NCCL on an instance type: the latency of the network, and variables that it sets unless a user did.
//!
//! `platform_data_map` and `init` in `src/platform-aws.c` and `.cpp`, `src/nccl_ofi_net.cpp`. The first match counts there, too.

use fabric::Version;

use crate::Settings;

/// Microseconds, or `OFI_NCCL_NET_LATENCY`.
pub(crate) fn latency(plugin: Version, instance: &str, settings: &Settings) -> f64 {
    let set = settings.number("OFI_NCCL_NET_LATENCY", 0);
    if let Some(set) = u32::try_from(set).ok().filter(|it| *it > 0) {
        return f64::from(set);
    }
    match family(instance) {
        "p3dn" => 150.0,
        "p5en" if plugin >= Version::new(1, 15, 0) => 35.0,
        "g7e" if plugin >= Version::new(1, 17, 2) => 35.0,
        family if family.starts_with("p6") && plugin >= Version::new(1, 15, 0) => 35.0,
        _ => 75.0,
    }
}

fn family(instance: &str) -> &str {
    instance.split('.').next().unwrap_or_default()
}

/// Whether the NICs of an instance type write 128 bytes in order into GPU memory, which LL and LL128 need. Otherwise the plugin allows
/// only Simple.
fn writes_in_order(instance: &str) -> bool {
    let family = family(instance);
    match instance {
        "p5.4xlarge" | "g7e.8xlarge" => false,
        _ => matches!(family, "p5" | "p5e" | "p5en" | "g7e") || family.starts_with("p6"),
    }
}

/// The variables that count for decisions and that the plugin sets where they are unset.
pub(crate) fn variables(
    plugin: Version,
    instance: &str,
    settings: &Settings,
) -> Vec<(&'static str, &'static str)> {
    let since = |minor| plugin >= Version::new(1, minor, 0);
    let family = family(instance);
    let direct = writes_in_order(instance);
    let large = direct && family != "g7e";
    let mut all = Vec::new();
    if !direct {
        all.push(("NCCL_PROTO", "simple"));
    }
    if since(16) && (direct || matches!(family, "p4d" | "p4de" | "g7e")) {
        all.extend([("NCCL_BUFFSIZE", "8388608"), ("NCCL_P2P_NET_CHUNKSIZE", "524288")]);
    }
    if large && since(8) {
        all.push(("NCCL_NVLSTREE_MAX_CHUNKSIZE", "524288"));
    }
    if large && since(9) {
        all.push(("NCCL_NVLS_CHUNKSIZE", "524288"));
    }
    if matches!(family, "p5en" | "p6-b200") && since(17) {
        all.push(("NCCL_NETDEVS_POLICY", "max:1"));
    }
    if !settings.since(2, 18, 5) {
        all.push(("NCCL_NVLS_ENABLE", "0"));
    }
    all.retain(|it| settings.text(it.0).is_none());
    all
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::{latency, variables};
    use crate::Settings;

    #[test]
    fn by_instance_type_and_release() {
        let plain = Settings::default();
        let (old, new) = (Version::new(1, 14, 2), Version::new(1, 21, 1));
        let us = |plugin, instance| latency(plugin, instance, &plain).round();
        assert!((us(new, "p5.48xlarge") - 75.0).abs() < 0.1);
        assert!((us(new, "p5en.48xlarge") - 35.0).abs() < 0.1);
        assert!((us(old, "p5en.48xlarge") - 75.0).abs() < 0.1);
        let names = |plugin, instance, settings: &Settings| -> Vec<&str> {
            variables(plugin, instance, settings).into_iter().map(|it| it.0).collect()
        };
        assert_eq!(names(new, "g6e.12xlarge", &plain), ["NCCL_PROTO"]);
        let p4d = ["NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE"];
        assert_eq!(names(new, "p4d.24xlarge", &plain), p4d);
        assert_eq!(names(old, "p5.48xlarge", &plain), ["NCCL_NVLSTREE_MAX_CHUNKSIZE", "NCCL_NVLS_CHUNKSIZE"]);
        let set = Settings::default().with("NCCL_PROTO", "LL");
        assert_eq!(names(new, "g6e.12xlarge", &set), [""; 0]);
    }
}

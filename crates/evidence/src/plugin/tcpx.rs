//! GPUDirect-TCPX and GPUDirect-TCPXO (`FasTrak`) of Google Cloud.

use super::{Known, Plugin, PluginFacts, Release};
use crate::scan::word_after;
use crate::source::Quote;

/// `Using network GPUDirectTCPX_v7`
pub static TCPX: Plugin = Plugin {
    name: "GPUDirect-TCPX",
    networks: &["GPUDirectTCPX"],
    network: None,
    called: |_| "GPUDirect-TCPX".to_owned(),
    prefix: "NET/GPUDirectTCPX ",
    read: |facts, message, quote| release(&TCPX, facts, message.strip_prefix("ver. "), quote),
    variables: &["NCCL_GPUDIRECTTCPX_", "NCCL_GPU_DIRECT_TCPX_", "NCCL_TCPX", "NCCL_DYNAMIC_CHUNK_SIZE"],
    lines: &[],
    source: "google/nccl-plugin-gpudirecttcpx src/nccl_plugin.cc; SkyPilot, examples/gcp_gpu_direct_tcpx (`ver. 3.1.8.`); \
             GoogleCloudPlatform/container-engine-accelerators gpudirect-tcpx/nccl-config-latest.yaml (variables)",
};

/// `Using network FasTrak`
pub static TCPXO: Plugin = Plugin {
    name: "GPUDirect-TCPXO",
    networks: &["FasTrak"],
    network: None,
    called: |_| "GPUDirect-TCPXO".to_owned(),
    prefix: "NET/FasTrak ",
    read: |facts, message, quote| {
        release(&TCPXO, facts, word_after(message, "Initializing network FasTrak, version: "), quote)
    },
    variables: &["NCCL_FASTRAK_"],
    lines: &[],
    source: "google/nccl-plugin-gpudirect-tcpxo tcpdirect_plugin/fastrak_offload/init.cc",
};

/// Other lines are recognised, not interpreted.
fn release(
    plugin: &'static Plugin,
    facts: &mut PluginFacts,
    version: Option<&str>,
    quote: &mut dyn FnMut() -> Quote,
) -> Known {
    let Some(version) = version else { return Known::No };
    let version = version.trim().trim_end_matches('.').into();
    facts.release.note(Release { plugin, version }, quote);
    Known::Routine
}

#[cfg(test)]
mod tests {
    use super::super::{printed_by, read};

    #[test]
    fn releases() {
        for (line, name, version) in [
            ("NET/GPUDirectTCPX ver. 3.1.8.", "GPUDirect-TCPX", "3.1.8"),
            (
                "NET/FasTrak 2026-07-28T10:11:12.5+00:00: Initializing network FasTrak, version: 1.0.17",
                "GPUDirect-TCPXO",
                "1.0.17",
            ),
        ] {
            let (plugin, rest) = printed_by(line.as_bytes()).unwrap();
            let facts = read(plugin, &[str::from_utf8(rest).unwrap()]);
            let release = facts.release.value().unwrap();
            assert_eq!((release.plugin.name, &*release.version), (name, version));
        }
    }
}

//! What is known of the paths between the GPUs of a node.

use evidence::{MemberLink, Quote};
use fabric::{P2pKind, Transport};

use crate::Log;

/// How NVLink joins the GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nvlink {
    /// Every GPU with every other.
    Full,
    /// Some pairs.
    Partial,
    /// Not at all.
    Absent,
}

/// NVLink as `nvidia-smi topo -m`, the instance type, the names of the GPUs or the log itself tell it.
/// `None`: nothing tells.
pub(super) fn nvlink(log: &Log) -> Option<Nvlink> {
    matrix(log).or_else(|| instance(log)).or_else(|| names(log)).or_else(|| by_reads(log))
}

fn matrix(log: &Log) -> Option<Nvlink> {
    let matrix = log.case.matrices.iter().find(|it| it.n_gpus() > 1)?;
    let paths: Vec<&str> = matrix.gpu_paths().map(|it| it.2).collect();
    let joined = paths.iter().filter(|it| it.starts_with("NV")).count();
    Some(match joined {
        0 => Nvlink::Absent,
        n if n == paths.len() => Nvlink::Full,
        _ => Nvlink::Partial,
    })
}

fn instance(log: &Log) -> Option<Nvlink> {
    let instance = log.job.instance().filter(|it| it.gpus > 1)?;
    if no_nvlink_model(&instance.gpu) {
        return Some(Nvlink::Absent);
    }
    match instance.nvlink? {
        // Eight V100 form a mesh in which not every pair is joined.
        true if instance.gpu.contains("V100") => Some(Nvlink::Partial),
        true => Some(Nvlink::Full),
        false => Some(Nvlink::Absent),
    }
}

fn names(log: &Log) -> Option<Nvlink> {
    let name = log.case.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.name).find(|it| !it.is_empty())?;
    if no_nvlink_model(name) {
        return Some(Nvlink::Absent);
    }
    if name.contains("V100-SXM") {
        return Some(Nvlink::Partial);
    }
    let full = ["SXM", "HBM3", "H200", "H800", "B200", "B300"].iter().any(|it| name.contains(it));
    (full && !name.contains("PCIe")).then_some(Nvlink::Full)
}

fn by_reads(log: &Log) -> Option<Nvlink> {
    if log.case.processes.iter().any(|it| it.facts.nvls.iter().any(|it| it.value)) {
        return Some(Nvlink::Full);
    }
    // NCCL reads over NVLink between two A100, and over nothing else.
    let reads = |it: Option<&Transport>| matches!(it, Some(Transport::P2p { read: true, .. }));
    log.case.links().any(|it| reads(it.link.transport())).then_some(Nvlink::Partial)
}

/// Models that never had an NVLink connector.
fn no_nvlink_model(name: &str) -> bool {
    const MODELS: &[&str] = &[
        "A2",
        "A10",
        "A10G",
        "A16",
        "L4",
        "L20",
        "L40",
        "L40S",
        "T4",
        "P4",
        "P40",
        "M60",
        "K80",
        "1070",
        "1080",
        "2060",
        "3060",
        "3070",
        "3080",
        "4060",
        "4070",
        "4080",
        "4090",
        "5070",
        "5080",
        "5090",
        "Ada",
        "Blackwell",
    ];
    // GB200 is a Blackwell too, and its name says so in the catalogue.
    !name.contains("GB200") && name.split([' ', '-', '(', ',']).any(|it| MODELS.contains(&it))
}

/// Whether peer access over PCIe or NVLink was turned off by a setting, with the words for it and the line.
pub(super) fn p2p_off(log: &Log) -> Option<(&'static str, &Quote)> {
    let value = |text: &str| text.trim_matches(|it: char| !it.is_ascii_alphanumeric()).to_owned();
    let disable = log.job.settings.named("NCCL_P2P_DISABLE")
        .find(|it| value(it.text()) == "1")
        .map(|it| ("NCCL_P2P_DISABLE=1", it.2));
    // Up to 2.25, NCCL prints NCCL_P2P_DISABLE=1 as this level.
    let level = || {
        let found = log.job.settings.named("NCCL_P2P_LEVEL").find(|it| matches!(&*value(it.text()), "LOC" | "0"));
        found.map(|it| ("NCCL_P2P_LEVEL=LOC (or NCCL_P2P_DISABLE=1)", it.2))
    };
    disable.or_else(level)
}

/// The ranks that exchange through host memory, with the first line: from, to.
pub(super) fn host_memory_pairs(log: &Log) -> Vec<((u32, u32), &Quote)> {
    let mut pairs: Vec<((u32, u32), &Quote)> = Vec::new();
    for MemberLink { link, .. } in log.case.links().filter(|it| it.link.transport() == Some(&Transport::Shm)) {
        let pair = (link.from.min(link.to), link.from.max(link.to));
        if !pairs.iter().any(|it| it.0 == pair) {
            pairs.push((pair, &link.quote));
        }
    }
    pairs
}

/// The ranks that reach each other directly by writing, none by reading, with the first line: from, to.
pub(super) fn unread_pairs(log: &Log) -> Vec<((u32, u32), &Quote)> {
    let mut pairs: Vec<((u32, u32), &Quote)> = Vec::new();
    for MemberLink { link, .. } in log.case.links() {
        match link.transport() {
            Some(Transport::P2p { read: true, .. }) => return Vec::new(),
            Some(Transport::P2p { kind: P2pKind::Ipc | P2pKind::Cumem | P2pKind::DirectPointer, .. })
                if !pairs.iter().any(|it| it.0 == (link.from, link.to)) =>
            {
                pairs.push(((link.from, link.to), &link.quote));
            }
            _ => {}
        }
    }
    pairs
}

/// `1 pair`, `3 pairs`
pub(super) fn counted(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Nvlink, no_nvlink_model, nvlink};
    use crate::testing::read;

    #[test]
    fn models() {
        for name in [
            "NVIDIA A10G",
            "Tesla T4",
            "NVIDIA L40S",
            "NVIDIA GeForce RTX 4090",
            "NVIDIA RTX 6000 Ada Generation",
        ] {
            assert!(no_nvlink_model(name), "{name}");
        }
        for name in [
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA A40",
            "NVIDIA GeForce RTX 3090",
            "Tesla V100-SXM2-32GB",
        ] {
            assert!(!no_nvlink_model(name), "{name}");
        }
    }

    #[test]
    fn the_matrix_knows_best() {
        let pairs = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n";
        assert_eq!(nvlink(&read(pairs)), Some(Nvlink::Partial));
        let none = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n";
        assert_eq!(nvlink(&read(none)), Some(Nvlink::Absent));
        assert_eq!(nvlink(&read("")), None);
    }
}

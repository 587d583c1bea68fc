//! What is known of the paths between the GPUs of a node.

use evidence::{MemberLink, Quote};
use fabric::catalogue::Inside;
use fabric::gpu::{self, NvLinkKind};
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

/// NVLink by `nvidia-smi topo -m`, the instance type, the names of the GPUs or the log itself. `None`: unknown.
pub(super) fn nvlink(log: &Log) -> Option<Nvlink> {
    matrix(log).or_else(|| instance(log)).or_else(|| names(log)).or_else(|| by_reads(log))
}

fn matrix(log: &Log) -> Option<Nvlink> {
    let matrix = log.case.matrices.iter().find(|it| it.n_gpus() > 1)?;
    let paths: Vec<&str> = matrix.gpu_paths().map(|it| it.path).collect();
    let joined = paths.iter().filter(|it| it.starts_with("NV")).count();
    Some(match joined {
        0 => Nvlink::Absent,
        n if n == paths.len() => Nvlink::Full,
        _ => Nvlink::Partial,
    })
}

fn instance(log: &Log) -> Option<Nvlink> {
    match log.job.model()?.inside {
        Inside::NvSwitch => Some(Nvlink::Full),
        Inside::NvLinkMesh => Some(Nvlink::Partial),
        Inside::Pcie => Some(Nvlink::Absent),
        Inside::OneGpu | Inside::Unknown => None,
    }
}

fn names(log: &Log) -> Option<Nvlink> {
    let name =
        log.case.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.name).find(|it| !it.is_empty())?;
    match gpu::nvlink_in_text(name)? {
        NvLinkKind::Switch => Some(Nvlink::Full),
        NvLinkKind::Wires => Some(Nvlink::Partial),
        NvLinkKind::None => Some(Nvlink::Absent),
        // Whether a bridge is fitted is not in the name.
        NvLinkKind::Bridge => None,
    }
}

fn by_reads(log: &Log) -> Option<Nvlink> {
    if log.case.processes.iter().any(|it| it.facts.nvls.iter().any(|it| it.value)) {
        return Some(Nvlink::Full);
    }
    // NCCL reads over NVLink between two A100, and over nothing else.
    let reads = |it: Option<&Transport>| matches!(it, Some(Transport::P2p { read: true, .. }));
    log.case.links().any(|it| reads(it.link.transport())).then_some(Nvlink::Partial)
}

/// Whether peer access over PCIe or NVLink was turned off by a setting, with its name and the line.
pub(super) fn p2p_off(log: &Log) -> Option<(&'static str, &Quote)> {
    let value = |text: &str| text.trim_matches(|it: char| !it.is_ascii_alphanumeric()).to_owned();
    let disable = log
        .job
        .settings
        .named("NCCL_P2P_DISABLE")
        .find(|it| value(it.text()) == "1")
        .and_then(|it| Some(("NCCL_P2P_DISABLE=1", it.quote()?)));
    // Up to 2.25, NCCL prints NCCL_P2P_DISABLE=1 as this level.
    let level = || {
        let found =
            log.job.settings.named("NCCL_P2P_LEVEL").find(|it| matches!(&*value(it.text()), "LOC" | "0"));
        found.and_then(|it| Some(("NCCL_P2P_LEVEL=LOC (or NCCL_P2P_DISABLE=1)", it.quote()?)))
    };
    disable.or_else(level)
}

/// The pairs of ranks that exchange data through host memory, with the first line of each.
pub(super) fn host_memory_pairs(log: &Log) -> Vec<((u32, u32), &Quote)> {
    let mut pairs: Vec<((u32, u32), &Quote)> = Vec::new();
    for MemberLink { link, .. } in log.case.links().filter(|it| it.link.transport() == Some(&Transport::Shm))
    {
        let pair = (link.from.min(link.to), link.from.max(link.to));
        if !pairs.iter().any(|it| it.0 == pair) {
            pairs.push((pair, &link.quote));
        }
    }
    pairs
}

/// The pairs of ranks that reach each other directly by writing, none by reading, with the first line of each.
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
    use super::{Nvlink, nvlink};
    use crate::testing::read;

    #[test]
    fn the_matrix_knows_best() {
        let pairs = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n";
        assert_eq!(nvlink(&read(pairs)), Some(Nvlink::Partial));
        let none = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n";
        assert_eq!(nvlink(&read(none)), Some(Nvlink::Absent));
        assert_eq!(nvlink(&read("")), None);
    }

    #[test]
    fn the_instance_type_shows_how_gpus_are_joined() {
        for (name, want) in [
            ("p5.48xlarge", Some(Nvlink::Full)),
            ("p3dn.24xlarge", Some(Nvlink::Partial)),
            ("g6e.12xlarge", Some(Nvlink::Absent)),
            ("g6e.xlarge", None),
        ] {
            assert_eq!(nvlink(&read(&format!("INSTANCE_TYPE={name}\n"))), want, "{name}");
        }
    }
}

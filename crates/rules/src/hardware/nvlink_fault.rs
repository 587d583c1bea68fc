//! An NVLink or NVSwitch fails.

use evidence::Source;
use evidence::plain::TopologyMatrix;
use evidence::signals::hardware::{GPU_LISTED, NVLINK_DOWN, NVLINK_UNCORRECTABLE, NVLINK_UP, SXID};
use fabric::gpu::{self, NvLinkKind};

use super::xid::{self, Class};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nvlink-fault",
    title: "an NVLink or NVSwitch fails",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput, Source::TopologyMatrix],
    why: "A link between GPUs or to a switch had errors that could not be corrected, or is down. Programs on it die; what others report \
          (connection closed, timeouts) follows from that.",
    fix: "Drain the node. `nvidia-smi nvlink --status` and `-e` show links that are down or have errors, `dmesg | grep -iE 'xid|sxid'` \
          names them. Reset all GPUs with the Fabric Manager stopped, or reboot; report a link that fails again to the vendor.",
    references: &[
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        "https://github.com/pytorch/pytorch/issues/58155",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let kernel: Vec<_> = xid::of_class(log, &[Class::Link]).collect();
    let switches: Vec<_> = log.case.sightings_of(&SXID).filter(|it| it.get("class") == "Fatal").collect();
    let said: Vec<_> = log.case.sightings_of(&NVLINK_UNCORRECTABLE).collect();
    let message = if let Some((it, meaning)) = kernel.first() {
        Some(format!("the GPU at {} reports Xid {}: {}", xid::gpu(it), meaning.xid, meaning.text))
    } else if let Some(it) = switches.first() {
        Some(format!("the NVSwitch at {} reports SXid {}: {}", it.get("bus"), it.get("sxid"), it.get("text")))
    } else {
        (!said.is_empty()).then(|| "CUDA reports an uncorrectable NVLink error".to_owned())
    };
    if let Some(message) = message {
        let finding = kernel.iter().fold(Finding::new(Confidence::Certain, message), |it, (line, _)| {
            it.seen(&line.quote).about_gpu(xid::gpu(line))
        });
        // The message of Blackwell's NVLink says whether an error is fatal.
        let harmless = said.is_empty()
            && switches.is_empty()
            && kernel.iter().all(|it| it.0.get("text").contains("Nonfatal"));
        let finding = if harmless { finding.severity(Severity::Warning) } else { finding };
        return Ok(vec![finding.seen_all(switches.iter().map(|it| &it.quote)).by(log, &said)]);
    }
    if let Some((it, meaning)) = xid::named(log, &[Class::Link]) {
        let message = format!("the input mentions Xid {}: {}", meaning.xid, meaning.text);
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(&it.quote)]);
    }
    let mut missing: Vec<Finding> = log.case.matrices.iter().filter_map(missing_links).collect();
    missing.extend(link_down(log));
    if missing.is_empty() && log.case.matrices.is_empty() {
        log.find_signals(&[&NVLINK_UNCORRECTABLE], Source::JobOutput)?;
    }
    Ok(missing)
}

/// A link that is down on one GPU and up on another, among GPUs that are built to use all of them.
fn link_down(log: &Log) -> Option<Finding> {
    // Modules use all their links; cards with bridges some of them, and a card without a partner none.
    let model = log.case.sightings_of(&GPU_LISTED).next()?.get("model");
    if !matches!(gpu::nvlink_in_text(model)?, NvLinkKind::Switch | NvLinkKind::Wires) {
        return None;
    }
    let up: Vec<&str> = log.case.sightings_of(&NVLINK_UP).map(|it| it.get("link")).collect();
    let down = log.case.sightings_of(&NVLINK_DOWN).find(|it| up.contains(&it.get("link")))?;
    let message = format!("NVLink {} is down on one GPU and up on another", down.get("link"));
    Some(Finding::new(Confidence::Possible, message).seen(&down.quote).severity(Severity::Warning))
}

/// A GPU without NVLink, or with fewer links, among GPUs that are all joined to each other.
fn missing_links(matrix: &TopologyMatrix) -> Option<Finding> {
    let mut gpus: Vec<(&str, Vec<Option<u32>>)> = Vec::new();
    for row in matrix.rows.iter().filter(|it| it.name.starts_with("GPU")) {
        let links = matrix
            .gpu_paths()
            .filter(|it| *it.from == *row.name)
            .map(|it| it.path.strip_prefix("NV").and_then(|it| it.parse().ok()));
        gpus.push((&row.name, links.collect()));
    }
    // Two joined GPUs can be a bridge; three that are all joined are a switch.
    let most = gpus.iter().flat_map(|it| it.1.iter().flatten()).max().copied()?;
    let whole = |it: &&(&str, Vec<Option<u32>>)| it.1.iter().filter(|it| **it == Some(most)).count() + 1;
    let size = gpus.iter().map(|it| whole(&it)).max()?;
    let good: Vec<&str> = gpus.iter().filter(|it| whole(it) == size).map(|it| it.0).collect();
    let bad: Vec<&str> = gpus.iter().filter(|it| whole(it) == 1).map(|it| it.0).collect();
    if size < 3
        || good.len() != size
        || bad.is_empty()
        || good.len() + bad.len() != gpus.len()
        || bad.len() >= good.len()
    {
        return None;
    }
    let message = format!(
        "{} {} not joined by {most} NVLinks as the other {} GPUs are",
        bad.join(", "),
        if bad.len() == 1 { "is" } else { "are" },
        size
    );
    let finding = Finding::new(Confidence::Likely, message).seen(&matrix.quote).severity(Severity::Warning);
    Some(bad.iter().fold(finding, Finding::about_gpu))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_every_report() {
        for line in [
            "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n",
            "[rank5]: RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n",
            "NVRM: Xid (PCI:0000:8a:00): 74, pid=1, name=python, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n",
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)\n",
            "[131453.74] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].severity, None, "{line}");
        }
    }

    #[test]
    fn errors_that_are_not_fatal() {
        quiet(
            &RULE,
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)\n",
        );
        let xid = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x1 0x0)\n";
        assert_eq!(findings(&RULE, xid)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn a_gpu_apart_from_the_others() {
        let matrix = "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\t X \tNV18\tNV18\tSYS\nGPU1\tNV18\t X \tNV18\tSYS\nGPU2\tNV18\tNV18\t X \tSYS\n\
                      GPU3\tSYS\tSYS\tSYS\t X \n";
        assert_eq!(
            findings(&RULE, matrix)[0].message,
            "GPU3 is not joined by 18 NVLinks as the other 3 GPUs are"
        );
    }

    #[test]
    fn a_link_that_others_have() {
        let status = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 3: 26.562 GB/s\n\
                      GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n\t Link 3: <inactive>\n";
        assert_eq!(findings(&RULE, status).len(), 1);
        quiet(&RULE, "GPU 0: NVIDIA A40 (UUID: GPU-1)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n");
    }

    #[test]
    fn a_card_without_a_bridge_has_no_links() {
        let status = "GPU 0: NVIDIA H100 NVL (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 4: <inactive>\n\
                      GPU 2: NVIDIA H100 NVL (UUID: GPU-3)\n\t Link 0: <inactive>\n";
        quiet(&RULE, status);
    }

    #[test]
    fn what_the_driver_says_afterwards_and_what_people_say() {
        let after =
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149\n";
        assert_eq!(
            findings(&RULE, after)[0].message,
            "the GPU at 0000:dc:00 reports Xid 149: an NVLink error (NETIR)"
        );
        assert_eq!(findings(&RULE, "dmesg shows XID 74: NVLink errors on two GPUs\n").len(), 1);
        quiet(&RULE, "There is no Xid 74 in dmesg\n");
    }

    #[test]
    fn pairs_and_meshes_are_built_so() {
        quiet(
            &RULE,
            "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\t X \tNV12\tSYS\tSYS\nGPU1\tNV12\t X \tSYS\tSYS\nGPU2\tSYS\tSYS\t X \tNV12\nGPU3\tSYS\tSYS\tNV12\t X \n",
        );
        quiet(
            &RULE,
            "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV12\tNV12\nGPU1\tNV12\t X \tNV12\nGPU2\tNV12\tNV12\t X \n",
        );
    }
}

//! The driver has lost a GPU.

use evidence::Source;
use evidence::signals::hardware::{FALLEN_OFF_BUS, GPU_INIT_FAILED, PCIE_AER};

use super::xid::{self, Class};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-fell-off-bus",
    title: "a GPU no longer answers",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The GPU is gone from the PCIe bus (Xid 79): power, heat, a bad contact or a dead board. Processes on it hang or die, and the whole job \
          waits for them.",
    fix: "Drain the node and power-cycle it; a reset of the GPU is not enough. If it happens again, check power and temperature, reseat or \
          replace the GPU. `dmesg -T | grep -iE 'xid|aer|fallen'` shows which.",
    references: &[
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/507",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let kernel: Vec<_> = xid::of_class(log, &[Class::Lost]).collect();
    let found = match log.find_signals(&[&FALLEN_OFF_BUS, &GPU_INIT_FAILED], Source::JobOutput) {
        Err(missing) if kernel.is_empty() && xid::named(log, &[Class::Lost]).is_none() => {
            return Err(missing);
        }
        found => found.unwrap_or_default(),
    };
    let found: Vec<_> = found.into_iter().filter(|it| *it.signal == FALLEN_OFF_BUS).collect();
    if found.is_empty() && kernel.is_empty() {
        if let Some((it, meaning)) = xid::named(log, &[Class::Lost]) {
            let message = format!("the input mentions Xid {}: {}", meaning.xid, meaning.text);
            return Ok(vec![Finding::new(Confidence::Likely, message).seen(&it.quote)]);
        }
        let Some(first) = log.case.first_of(&[&GPU_INIT_FAILED]) else { return Ok(Vec::new()) };
        let message = format!("the driver could not start the GPU at {}", first.get("bus"));
        return Ok(vec![
            Finding::new(Confidence::Possible, message).by(log, &[first]).about_gpu(first.get("bus")),
        ]);
    }
    let gpu = kernel
        .first()
        .map(|it| xid::gpu(it.0))
        .or_else(|| found.iter().find_map(|it| address(&it.quote.text)));
    let message = match gpu {
        Some(gpu) => format!("the GPU at {gpu} no longer answers"),
        None => "a GPU no longer answers".to_owned(),
    };
    let errors: Vec<_> = log.case.sightings_of(&PCIE_AER).map(|it| &it.quote).collect();
    let finding = Finding::new(Confidence::Certain, message)
        .seen_all(kernel.iter().map(|it| &it.0.quote))
        .by(log, &found);
    Ok(vec![finding.seen_all(errors).about_gpu(gpu.unwrap_or_default())])
}

/// The PCI address in a line: `0000:03:00.0`.
fn address(text: &str) -> Option<&str> {
    let words = text
        .split([' ', '(', ')', ','])
        .map(|it| it.trim_start_matches("PCI:").trim_start_matches("GPU").trim_end_matches(':'));
    words.into_iter().find(|it| {
        let mut parts = it.split([':', '.']);
        let hex = |part: Option<&str>, least: usize| {
            part.is_some_and(|it| it.len() >= least && it.bytes().all(|it| it.is_ascii_hexdigit()))
        };
        it.matches(':').count() == 2 && hex(parts.next(), 4) && hex(parts.next(), 2) && hex(parts.next(), 2)
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        for (line, gpu) in [
            (
                "[7.6] NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
                "0000:02:00",
            ),
            ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n", "0000:03:00.0"),
            (
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
                "0000:02:00.0",
            ),
            ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n", "0000:18:00.0"),
        ] {
            assert_eq!(
                findings(&RULE, line)[0].message,
                format!("the GPU at {gpu} no longer answers"),
                "{line}"
            );
        }
        let lines = "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n\
                     NVRM: fallen off the bus and is not responding to commands.\n";
        assert_eq!(findings(&RULE, lines).len(), 1);
    }

    #[test]
    fn a_note_of_the_number_is_enough() {
        assert_eq!(
            findings(&RULE, "node condition: XID 79 on GPU 3\n")[0].message,
            "the input mentions Xid 79: the GPU has fallen off the bus"
        );
    }

    #[test]
    fn a_gpu_that_does_not_start_may_be_gone() {
        let line = "[ 21.0] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)\n";
        assert_eq!(findings(&RULE, line)[0].message, "the driver could not start the GPU at 0000:01:00.0");
    }

    #[test]
    fn corrected_errors_of_pcie_are_no_loss() {
        quiet(&RULE, "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0\n");
    }
}

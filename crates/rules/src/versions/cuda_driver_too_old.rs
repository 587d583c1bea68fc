//! The driver is older than the CUDA release of the program.

use evidence::signals::versions::{DRIVER_TOO_OLD, DRIVER_VERSION};
use evidence::{Quote, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cuda-driver-too-old",
    title: "the NVIDIA driver is older than the program's CUDA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Programs built with a CUDA release need a driver of at least its major version; nothing on the GPU works without it.",
    fix: "Update the driver of the node (CUDA 13 needs 580, CUDA 12 needs 525, CUDA 11 needs 450 or later), or use a build for the \
          driver's CUDA (`nvidia-smi` shows it at the top right). On data center GPUs the cuda-compat package can bridge one step.",
    references: &[
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        "https://github.com/NVIDIA/nccl-tests/issues/12",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&DRIVER_TOO_OLD], Source::JobOutput)?;
    let driver =
        log.case.processes.iter().find_map(|it| it.facts.cuda_driver.first()).map(|it| (it.value, &it.quote));
    if found.is_empty() {
        return Ok(compared(log, driver));
    }
    let noted = log.case.sightings_of(&DRIVER_VERSION).next();
    let stated =
        found.iter().map(|it| it.get("driver")).find(|it| !it.is_empty()).and_then(|it| it.parse().ok());
    let message = match (stated.or(driver.map(|it| it.0)), noted) {
        (_, Some(noted)) => format!("driver {} is too old for the CUDA of the program", noted.get("driver")),
        (Some(level), None) => {
            format!(
                "the driver supports only CUDA {}, but the program was built with a newer one",
                release(level)
            )
        }
        (None, None) => "the driver is too old for the CUDA of the program".to_owned(),
    };
    // A compatibility library that does not belong to the driver causes these two as well.
    let doubtful = ["non supported HW", "cuda driver combination"];
    let sure = found.iter().any(|it| !doubtful.iter().any(|text| it.quote.text.contains(text)));
    let confidence = if sure { Confidence::Certain } else { Confidence::Likely };
    let finding = Finding::new(confidence, message).by(log, &found).seen_all(driver.map(|it| it.1));
    Ok(vec![finding.seen_all(noted.map(|it| &it.quote))])
}

/// `NCCL version 2.21.5+cuda12.4` beside `cudaDriverVersion 11070`: minor steps are compatible, major ones are not.
fn compared(log: &Log, driver: Option<(u32, &Quote)>) -> Vec<Finding> {
    let built = log.job.releases.nccl.as_ref().and_then(|nccl| {
        let quote = nccl.quote()?;
        let (_, rest) = quote.text.split_once("+cuda")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Some((rest.get(..digits)?.parse::<u32>().ok()?, quote))
    });
    let (Some((driver, line)), Some((built, quote))) = (driver, built) else { return Vec::new() };
    let worked =
        log.case.communicators.iter().any(|it| it.members.values().any(evidence::Member::is_complete));
    if worked || driver / 1000 >= built {
        return Vec::new();
    }
    let message =
        format!("the driver supports only CUDA {}, but NCCL was built with CUDA {built}", release(driver));
    vec![Finding::new(Confidence::Likely, message).seen(line).seen(quote)]
}

/// `11070` as `11.7`.
fn release(level: u32) -> String {
    format!("{}.{}", level / 1000, level % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_every_form() {
        for (line, message) in [
            (
                "Cuda failure common.cu:891 'CUDA driver version is insufficient for CUDA runtime version'\n| NVIDIA-SMI 384.81     Driver Version: 384.81    |\n",
                "driver 384.81 is too old for the CUDA of the program",
            ),
            (
                "n:1:1 [0] NCCL INFO cudaDriverVersion 11070\ninit.cc:1582 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'\n",
                "the driver supports only CUDA 11.7, but the program was built with a newer one",
            ),
            (
                "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver\n",
                "the driver supports only CUDA 11.4, but the program was built with a newer one",
            ),
            (
                "n:1:1 [0] NCCL INFO cudaDriverVersion 11080\nn:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n",
                "the driver supports only CUDA 11.8, but NCCL was built with CUDA 12",
            ),
        ] {
            assert_eq!(findings(&RULE, line)[0].message, message);
        }
    }

    #[test]
    fn quiet_on_older_and_on_minor_steps() {
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO cudaDriverVersion 12020\nn:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n",
        );
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO cudaDriverVersion 13000\nn:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n",
        );
    }

    #[test]
    fn images_and_the_container_toolkit_compare_too() {
        for line in [
            "ERROR: This container was built for NVIDIA Driver Release 560.35 or later, but\n       version 535.129 was detected and compatibility mode is UNAVAILABLE.\n",
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Certain, "{line}");
        }
        let doubtful = "Error 803: system has unsupported display driver / cuda driver combination\n";
        assert_eq!(findings(&RULE, doubtful)[0].confidence, Confidence::Likely);
        quiet(&RULE, "NOTE: CUDA Forward Compatibility mode ENABLED.\n");
    }
}

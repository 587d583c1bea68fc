//! The libraries of the driver and its kernel module are of different releases.

use evidence::Source;
use evidence::signals::versions::LIBRARY_NOT_OF_DRIVER;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "driver-library-mismatch",
    title: "the driver's libraries and its kernel module differ",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The NVIDIA driver was updated while the old kernel module is still loaded, or the image brings driver libraries of \
          its own. Nothing that asks the driver works until they are equal.",
    fix: "Reload the modules (`rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`, with no process on the \
          GPUs) or reboot. In a container remove libnvidia-ml.so and libcuda.so from the image: the runtime mounts those of \
          the host. `cat /proc/driver/nvidia/version` shows the module.",
    references: &[
        "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
        "NCCL src/misc/nvmlwrap.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&LIBRARY_NOT_OF_DRIVER], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let message = "the driver's libraries are of another release than its kernel module";
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_nccl_and_in_nvidia_smi() {
        for line in [
            "n:1:2 [0] misc/nvmlwrap.cc:151 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\n",
            "Failed to initialize NVML: Driver/library version mismatch\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
        quiet(&RULE, "Failed to initialize NVML: Unknown Error\n");
    }
}

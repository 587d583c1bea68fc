//! The Fabric Manager does not run, or does not match the driver.

use evidence::Source;
use evidence::signals::nvswitch::{
    FABRIC_IN_PROGRESS, FABRIC_MANAGER_FAILED, FABRIC_MANAGER_MISMATCH, FABRIC_MANAGER_STATUS, NO_NVSWITCH,
    NVLS_BIND_FAILED, SERVICE_DOWN, SYSTEM_NOT_READY,
};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "fabric-manager-not-running",
    title: "the Fabric Manager does not run or does not match the driver",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "On machines with NVSwitch, CUDA waits for the Fabric Manager to set the switches up. Until then every CUDA call fails with error 802 \
          (system not yet initialized), in every process and container.",
    fix: "On the host: `systemctl status nvidia-fabricmanager`; install exactly the driver's version (`cat /proc/driver/nvidia/version`), \
          `systemctl enable --now nvidia-fabricmanager`, and check that `nvidia-smi -q | grep -A2 Fabric` says Completed. It is a service \
          of the host; containers cannot start it.",
    references: &[
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        "https://github.com/NVIDIA/nccl-tests/issues/264",
        "https://github.com/pytorch/pytorch/issues/35710",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(
        &[
            &SYSTEM_NOT_READY,
            &FABRIC_MANAGER_MISMATCH,
            &FABRIC_MANAGER_FAILED,
            &FABRIC_MANAGER_STATUS,
            &FABRIC_IN_PROGRESS,
        ],
        Source::JobOutput,
    )?;
    if let Some(it) = found.iter().find(|it| *it.signal == FABRIC_MANAGER_MISMATCH) {
        let message = format!(
            "the Fabric Manager has version {}, but the driver has version {}",
            it.get("manager"),
            it.get("driver").trim_end_matches('.')
        );
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)]);
    }
    let waiting: Vec<_> = found.iter().copied().filter(|it| *it.signal == SYSTEM_NOT_READY).collect();
    let mut failed: Vec<_> = found.iter().copied().filter(|it| *it.signal == FABRIC_MANAGER_FAILED).collect();
    if log.case.first_of(&[&FABRIC_MANAGER_STATUS]).is_some() {
        failed.extend(log.case.sightings_of(&SERVICE_DOWN));
    }
    if !waiting.is_empty() {
        let (confidence, tail) = if failed.is_empty() {
            (Confidence::Likely, "on NVSwitch machines it waits for the Fabric Manager")
        } else {
            (Confidence::Certain, "the Fabric Manager did not start")
        };
        let message = format!("CUDA reports that the system is not yet initialized (802): {tail}");
        return Ok(vec![Finding::new(confidence, message).by(log, &waiting).by(log, &failed)]);
    }
    let needless = log.case.first_of(&[&NO_NVSWITCH]).is_some();
    if !failed.is_empty() && !needless {
        let finding = Finding::new(Confidence::Likely, "the service nvidia-fabricmanager is not running")
            .by(log, &failed);
        // A status alone can be from a machine without NVSwitch, where the service never runs.
        let failed_to_start = failed.iter().any(|it| *it.signal == FABRIC_MANAGER_FAILED);
        return Ok(vec![if failed_to_start { finding } else { finding.severity(Severity::Warning) }]);
    }
    let waiting: Vec<_> = log.case.sightings_of(&FABRIC_IN_PROGRESS).collect();
    if !waiting.is_empty() {
        let message = "a GPU has not joined the NVLink fabric (state In Progress)";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &waiting)]);
    }
    // A running manager whose fabric is broken gives the same message, which is more likely.
    let refused: Vec<_> = log
        .case
        .sightings_of(&NVLS_BIND_FAILED)
        .filter(|it| !it.quote.text.contains("Proceeding without"))
        .collect();
    if refused.is_empty() {
        return Ok(Vec::new());
    }
    let message =
        "the NVSwitches reject a multicast group, as happens when the Fabric Manager is not running";
    Ok(vec![Finding::new(Confidence::Possible, message).by(log, &refused).or("nvls-fabric-state")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_wherever_cuda_says_it() {
        for line in [
            "Test CUDA failure common.cu:941 'system not yet initialized'\n",
            "[rank3]: Cuda failure 802 'system not yet initialized'\n",
            "RuntimeError: cuda runtime error (802) : system not yet initialized at /x/THCGeneral.cpp:50\n",
            "CUDA error at bandwidthTest.cu:256 code=802(cudaErrorSystemNotReady) \"cudaSetDevice(currentDevice)\"\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely, "{line}");
        }
    }

    #[test]
    fn numbers_and_other_words_for_it() {
        for line in [
            "   [[ System not yet initialized (error 802) ]]\n",
            "cuInit err: 802\n",
            "msg=\"unable to load cuda driver library\" error=\"cuda driver library init failure: 802\"\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely, "{line}");
        }
    }

    #[test]
    fn a_status_that_says_it_is_down() {
        let status =
            "nvidia-fabricmanager.service - NVIDIA fabric manager service\n   Active: inactive (dead)\n";
        assert_eq!(findings(&RULE, status).len(), 1);
        quiet(&RULE, &status.replace("inactive (dead)", "active (running)"));
        quiet(&RULE, "docker.service - Docker\n   Active: inactive (dead)\n");
    }

    #[test]
    fn is_certain_when_the_versions_differ() {
        let log = "nv-fabricmanager[1]: fabric manager NVIDIA GPU driver interface version 535.104.05 don't match with driver version \
                   535.86.10. Please update with matching NVIDIA driver package.\n";
        let found = findings(&RULE, log);
        assert_eq!(
            found[0].message,
            "the Fabric Manager has version 535.104.05, but the driver has version 535.86.10"
        );
    }

    #[test]
    fn a_gpu_that_waits_is_named() {
        let query = "    Fabric\n        State                             : In Progress\n        Status                            : N/A\n";
        assert_eq!(findings(&RULE, query).len(), 1);
        quiet(
            &RULE,
            "        State                             : Completed\n        Status                            : Success\n",
        );
    }

    #[test]
    fn a_machine_without_nvswitch_needs_none() {
        quiet(
            &RULE,
            "nv-fabricmanager[4]: request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do \
             [NV_WARN_NOTHING_TO_DO]\nsystemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n",
        );
        quiet(&RULE, "n:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0\n");
    }
}

//! NVLink SHARP fails because the fabric is in a bad state.

use evidence::signals::nvswitch::{NVLS_BIND_FAILED, NVLS_CUDA_FAILURE, SYSTEM_NOT_READY};
use evidence::{Sighting, Source};

use crate::cuda::{Owner, failures};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nvls-fabric-state",
    title: "NVLink SHARP fails: the NVSwitch fabric is in a bad state",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL could not create a multicast group in the NVSwitches. Usually the Fabric Manager was restarted or updated while the GPUs \
          were in use, or without resetting them; two GPUs (which need no multicast) then work, three or more do not.",
    fix: "Reboot the node, or stop all GPU processes, stop the Fabric Manager, reset all GPUs (`nvidia-smi -r`) and start it again. Until \
          then NCCL_NVLS_ENABLE=0 avoids the failure at the cost of slower all-reduce. If the failure stays, search `dmesg` for SXid and \
          Xid.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/976",
        "https://github.com/NVIDIA/nccl/issues/1488",
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
    ],
    checks: &[Check::Log(check)],
};

/// Other rules report full memory, a fabric that is not up, broken hardware and kernels of the program that failed; and a CUDA
/// that did not start, as in a process that forked, or that ends says nothing about the switches.
const ELSEWHERE: &[&str] = &[
    "out of memory",
    "system not yet initialized",
    "initialization error",
    "ECC",
    "NVLink",
    "illegal memory access",
    "illegal instruction",
    "device-side assert",
    "misaligned address",
    "unspecified launch failure",
    "driver shutting down",
];

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NVLS_BIND_FAILED, &NVLS_CUDA_FAILURE], Source::JobOutput)?;
    let elsewhere = |it: &&Sighting| ELSEWHERE.iter().any(|word| it.get("what").contains(word));
    // A warning without its file: the lines after it say where the error was returned from.
    let returned = failures(log)
        .filter(|it| it.file.ends_with("nvls.cc") && it.owner == Owner::Elsewhere)
        .map(|it| it.sighting)
        .filter(|it| !found.iter().any(|known| known.quote.spot == it.quote.spot));
    let found: Vec<_> = found.iter().copied().chain(returned).filter(|it| !elsewhere(it)).collect();
    if log.case.first_of(&[&SYSTEM_NOT_READY]).is_some() {
        return Ok(Vec::new());
    }
    let fatal: Vec<_> =
        found.iter().copied().filter(|it| !it.quote.text.contains("Proceeding without")).collect();
    if let Some(first) = fatal.first() {
        let what = if *first.signal == NVLS_BIND_FAILED { first.get("text") } else { first.get("what") };
        let message = match what.trim_matches('\'') {
            "" => "NCCL could not create a multicast group in the NVSwitches".to_owned(),
            what => format!("NCCL could not create a multicast group in the NVSwitches ({what})"),
        };
        return Ok(vec![
            Finding::new(Confidence::Likely, message).by(log, &fatal).or("fabric-manager-not-running"),
        ]);
    }
    if found.is_empty() {
        let returned = log.returned_from("transport/nvls.cc", 1);
        return Ok(returned.into_iter().map(|it| {
            let message = "a CUDA call for NVLink SHARP failed; the warning that names its error is not in the input";
            Finding::new(Confidence::Possible, message).seen(it)
        }).collect());
    }
    let message = "NCCL could not set up NVLink SHARP and continues without it";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).severity(Severity::Warning)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_in_every_age() {
        for line in [
            "transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'\n",
            "n:1:2 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'\n",
            "[2025-07-21 19:05:29] n:1:1 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed in the present state'\n",
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.\n",
            "Failed to bind NVLink SHARP (NVLS) Multicast memory: CUDA error 401\n",
            "Last error:\nCuda failure 401 'the operation cannot be performed in the present state'\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
    }

    #[test]
    fn comes_before_the_manager() {
        let line = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152:\n";
        assert_eq!(ids(line), ["nvls-fabric-state", "fabric-manager-not-running"]);
    }

    #[test]
    fn going_on_without_it_costs_only_speed() {
        let line = "n:1:1 [0] NCCL INFO Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'. Proceeding \
                    without NVLS support.\n";
        assert_eq!(findings(&RULE, line)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn quiet_where_there_is_none() {
        quiet(&RULE, "n:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0\n");
        quiet(&RULE, "n:1:1 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'\n");
        quiet(&RULE, "n:1:1 [0] transport/nvls.cc:245 NCCL WARN Cuda failure 'initialization error'\n");
    }
}

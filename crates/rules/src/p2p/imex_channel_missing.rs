//! GPU memory cannot be shared across nodes: there is no IMEX channel.

use evidence::Source;
use evidence::signals::nvswitch::{
    FABRIC_HANDLE_REFUSED, FABRIC_IMPORT_FAILED, IMEX_CHANNEL_ABSENT, IMEX_NOT_WORKING,
};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "imex-channel-missing",
    title: "no IMEX channel for NVLink memory across nodes",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Memory that other nodes may map over NVLink (fabric handles, on GB200 and other multi-node NVLink systems) needs the IMEX daemon \
          and a channel device that the process may open. Without it the driver refuses the allocation.",
    fix: "On the host: `nvidia-imex-ctl -N` must show all nodes READY; create a channel with `mknod \
          /dev/nvidia-caps-imex-channels/channel0 c $(grep nvidia-caps-imex-channels /proc/devices | cut -d' ' -f1) 0`. In a container, \
          pass the channel to it (NVIDIA_IMEX_CHANNELS=0, or a ComputeDomain of the NVIDIA DRA driver). To run without NVLink between \
          nodes: NCCL_MNNVL_ENABLE=0.",
    references: &[
        "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html",
        "https://github.com/NVIDIA/nccl/issues/1925",
        "NCCL src/mnnvl.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&IMEX_NOT_WORKING, &FABRIC_HANDLE_REFUSED], Source::JobOutput)?;
    if found.is_empty() {
        let refused: Vec<_> = log.case.sightings_of(&FABRIC_IMPORT_FAILED).collect();
        if refused.is_empty() {
            return Ok(Vec::new());
        }
        let message = "GPU memory could not be shared over NVLink: the IMEX daemons or channels do not match";
        return Ok(vec![Finding::new(Confidence::Possible, message).by(log, &refused)]);
    }
    let absent: Vec<_> = log.case.sightings_of(&IMEX_CHANNEL_ABSENT).map(|it| &it.quote).collect();
    let said = found.iter().find(|it| *it.signal == IMEX_NOT_WORKING);
    let confidence =
        if said.is_some() || !absent.is_empty() { Confidence::Certain } else { Confidence::Likely };
    let message = match said.map(|it| it.get("n")).filter(|it| !it.is_empty()) {
        Some(n) => {
            format!("NVLink joins {n} GPUs across nodes, but memory for it cannot be exported: check IMEX")
        }
        None => "CUDA refused to allocate memory that can be exported over NVLink (operation not permitted)"
            .to_owned(),
    };
    Ok(vec![Finding::new(confidence, message).by(log, &found).seen_all(absent)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_nccl_and_elsewhere() {
        let nccl = "n:1:1 [1] include/alloc.h:228 NCCL WARN Cuda failure 800 'operation not permitted'\n\
                    n:1:1 [1] mnnvl.cc:67 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel \
                    configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.\n";
        let found = findings(&RULE, nccl);
        assert_eq!(found[0].confidence, Confidence::Certain);
        assert!(found[0].message.contains("8 GPUs"));
        let other = "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate(&handle, size, &prop, 0 ) on n, rank = 0\n";
        assert_eq!(findings(&RULE, other)[0].confidence, Confidence::Likely);
        assert_eq!(findings(&RULE, "GpuBuffer cuMemCreate failed: operation not permitted\n").len(), 1);
        let python = "CuError: (800, 'Call to cuMemCreate(&memHandle, nbytes, &prop, 0 ) failed (Cu failure: operation not permitted)')\n";
        assert_eq!(findings(&RULE, python).len(), 1);
        let import = "CUDA error in cuMemImportFromShareableHandle: invalid resource handle\n";
        assert_eq!(findings(&RULE, import)[0].confidence, Confidence::Possible);
        assert_eq!(findings(&RULE, "NvlinkTransport: cuMemCreate failed: 800\n").len(), 1);
    }

    #[test]
    fn a_machine_without_it_is_fine() {
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO MNNVL busId 0x1000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0\n",
        );
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n",
        );
    }
}

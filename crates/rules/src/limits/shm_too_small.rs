//! There is no space left in /dev/shm.

use evidence::signals::efa::DOCKER_RUN;
use evidence::signals::limits::{
    NO_SPACE, SHARED_MEMORY_FRAME, SHM_BUS_ERROR, SHM_DENIED, SHM_FULL, SHM_FULL_BY_DF, SHM_SMALL_FOR_RAY,
    TOO_MANY_OPEN_FILES,
};
use evidence::{Quote, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "shm-too-small",
    title: "/dev/shm is too small or full",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL exchanges data between GPUs of a node through /dev/shm where they cannot reach each other directly, about 10 MB for each \
          channel and direction, and DataLoader workers pass their batches through it. A container has 64 MB of it by default.",
    fix: "`docker run --shm-size=8g` (or `--ipc=host`); in Kubernetes mount `emptyDir: {medium: Memory}` on /dev/shm (it counts as the \
          pod's memory). Check with `df -h /dev/shm` inside the container, and remove the files of dead jobs (`rm /dev/shm/nccl-* \
          /dev/shm/torch_*`, when no job runs). For the DataLoader, also use fewer workers.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
        "https://github.com/NVIDIA/nccl/issues/290",
        "https://github.com/pytorch/pytorch/issues/5040",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log
        .find_signals(&[&SHM_FULL, &SHM_BUS_ERROR, &SHM_SMALL_FOR_RAY, &SHM_FULL_BY_DF], Source::JobOutput)?;
    // A file that may not be made is another matter than one that does not fit.
    let other_reason =
        |why: &str| !why.is_empty() && !why.contains("No space left") && !why.contains("Success");
    let found: Vec<_> = found.into_iter().filter(|it| !other_reason(it.get("why"))).collect();
    let full: Vec<_> = found.iter().copied().filter(|it| *it.signal == SHM_FULL).collect();
    let space = full.iter().any(|it| it.quote.text.contains("No space left"));
    // Up to 2.21 the line does not say why; one before it may.
    let explained = !space && log.case.first_of(&[&SHM_DENIED, &TOO_MANY_OPEN_FILES]).is_some();
    let found: Vec<_> = found.into_iter().filter(|it| !explained || *it.signal != SHM_FULL).collect();
    if !full.is_empty() && !explained {
        let bytes = full.iter().find_map(|it| it.number("bytes"));
        let message = match bytes {
            Some(bytes) => format!("NCCL could not create a buffer of {bytes} bytes in /dev/shm"),
            None => "NCCL could not create a buffer in /dev/shm".to_owned(),
        };
        let message = if space { format!("{message}: no space left") } else { message };
        let confidence =
            match (space, bytes.is_some() || full.iter().any(|it| it.quote.text.contains("/dev/shm"))) {
                (true, _) => Confidence::Certain,
                (false, true) => Confidence::Likely,
                // The line was cut before it says what failed.
                (false, false) => Confidence::Possible,
            };
        return Ok(vec![Finding::new(confidence, message).by(log, &full)]);
    }
    let died: Vec<_> = found.iter().copied().filter(|it| *it.signal == SHM_BUS_ERROR).collect();
    if !died.is_empty() {
        let worker = died.iter().any(|it| it.quote.text.contains("worker"));
        let room = died.iter().any(|it| it.quote.text.contains("No space left"));
        let message = if worker {
            "a DataLoader worker died of a bus error: no space left in /dev/shm"
        } else if room {
            "a process found no space left in /dev/shm"
        } else {
            "a process died of a bus error, as happens when /dev/shm is full"
        };
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &died)]);
    }
    if let Some(full) = found.iter().find(|it| *it.signal == SHM_FULL_BY_DF) {
        let message = "/dev/shm is full";
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(&full.quote)]);
    }
    if let Some((full, shown)) = unnamed(log) {
        let message = "Python found no space left, as happens when the /dev/shm of a container is too small";
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(full).seen(shown)]);
    }
    if let Some(quote) = log.returned_from("transport/shm.cc", 2) {
        let message =
            "a system call for shared memory failed; the warning that names its error is not in the input";
        return Ok(vec![Finding::new(Confidence::Possible, message).seen(quote).or("shm-not-writable")]);
    }
    let Some(ray) = found.first() else { return Ok(Vec::new()) };
    let message = format!("/dev/shm has only {} bytes, too few for Ray's object store", ray.get("bytes"));
    // Ray moves its objects elsewhere; what is left is enough for NCCL and the DataLoader.
    let enough = ray.number("bytes").is_some_and(|it| it >= 1 << 30);
    let severity = if enough { Severity::Info } else { Severity::Warning };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found).severity(severity)])
}

/// A lack of space without a path, and what shows that it is shared memory: a frame, or a container with the default size.
fn unnamed(log: &Log) -> Option<(&Quote, &Quote)> {
    let full = log.case.sightings_of(&NO_SPACE).find(|it| !it.quote.text.contains("device: "))?;
    let frame = log.case.sightings_of(&SHARED_MEMORY_FRAME).next();
    let small = || {
        let given =
            |it: &evidence::Sighting| ["--shm-size", "--ipc"].iter().any(|word| it.quote.text.contains(word));
        log.case.sightings_of(&DOCKER_RUN).find(|it| !given(it))
    };
    Some((&full.quote, &frame.or_else(small)?.quote))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_in_nccl_of_every_age() {
        for line in [
            "n:1:2 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n",
            "[2026-04-22 21:34:20] n:1:2 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Certain, "{line}");
        }
        let silent = "n:1:2 [6] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes\n";
        assert_eq!(
            findings(&RULE, silent)[0].message,
            "NCCL could not create a buffer of 5967876 bytes in /dev/shm"
        );
    }

    #[test]
    fn fires_for_the_data_loader() {
        for line in [
            "RuntimeError: DataLoader worker (pid 47) is killed by signal: Bus\n",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
            "RuntimeError: unable to write to file </torch_18692_1954506624>\n",
            "traceback : Signal 7 (SIGBUS) received by PID 3021\n",
            "RuntimeError: unable to open shared memory object </torch_4711_1> in read-write mode: No space left on device (28)\n",
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'\n",
            "shm              64M   64M     0 100% /dev/shm\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely, "{line}");
        }
        let ray = "WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 bytes available.\n";
        assert_eq!(findings(&RULE, ray)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn python_in_a_container_without_room() {
        let error = "OSError: [Errno 28] No space left on device\n";
        assert_eq!(findings(&RULE, &format!("docker run -it --gpus all image\n{error}")).len(), 1);
        let frame =
            "  File \"/usr/lib/python3.10/multiprocessing/shared_memory.py\", line 104, in __init__\n";
        assert_eq!(findings(&RULE, &format!("{frame}{error}")).len(), 1);
        quiet(&RULE, &format!("docker run --shm-size=8g image\n{error}"));
        quiet(&RULE, error);
    }

    #[test]
    fn a_right_that_is_missing_is_not_a_lack_of_space() {
        quiet(
            &RULE,
            "n:1:2 [0] include/shm.h:26 NCCL WARN Call to shm_open failed : Permission denied\n\
             n:1:2 [0] include/shm.h:58 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1 (size 9637888)\n",
        );
    }

    #[test]
    fn other_failures_are_not_it() {
        quiet(&RULE, "DataLoader worker (pid 9) is killed by signal: Killed.\n");
        quiet(&RULE, "OSError: [Errno 28] No space left on device: '/data/checkpoint.pt'\n");
        quiet(
            &RULE,
            "n:1:2 [0] misc/shmutils.cc:1 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a (size 9), error: Permission denied (13)\n",
        );
    }
}

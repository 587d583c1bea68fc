//! The process may not create files in /dev/shm.

use evidence::Source;
use evidence::signals::limits::SHM_DENIED;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "shm-not-writable",
    title: "/dev/shm may not be written",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL creates its buffers for ranks of one node in /dev/shm, and the process may not: the directory belongs to \
          another user, lacks the rights, or is mounted read-only. Its size does not matter.",
    fix: "`ls -ld /dev/shm` must show drwxrwxrwt (`chmod 1777 /dev/shm`), and `mount | grep /dev/shm` must not show ro. Run \
          the container with a writable /dev/shm and the right user.",
    references: &["https://github.com/NVIDIA/nccl/issues/328", "NCCL src/misc/shmutils.cc (ncclShmOpen)"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&SHM_DENIED], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let why =
        if first.quote.text.contains("Read-only") { "it is mounted read-only" } else { "permission denied" };
    let named = first.quote.text.contains("shm");
    let confidence = if named { Confidence::Certain } else { Confidence::Likely };
    let message = format!("NCCL may not create its buffers in /dev/shm: {why}");
    Ok(vec![Finding::new(confidence, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_in_every_age() {
        let old = "n:1:2 [0] include/shm.h:26 NCCL WARN Call to shm_open failed : Permission denied\n\
                   n:1:2 [0] include/shm.h:58 NCCL WARN Error while creating shared memory segment nccl-shm-1 (size 9637888)\n";
        assert_eq!(ids(old)[0], "shm-not-writable");
        assert!(!ids(old).contains(&"shm-too-small"));
        let new = "n:1:2 [0] misc/shmutils.cc:1 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a (size 9), error: Permission denied (13)\n";
        assert_eq!(
            findings(&RULE, new)[0].message,
            "NCCL may not create its buffers in /dev/shm: permission denied"
        );
        quiet(&RULE, &new.replace("Permission denied (13)", "No space left on device (28)"));
    }
}

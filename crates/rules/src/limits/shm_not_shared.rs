//! Ranks that NCCL takes for one node do not share /dev/shm.

use evidence::Source;
use evidence::signals::limits::{SHM_DENIED, SHM_FULL, SHM_NOT_FOUND, TOO_MANY_OPEN_FILES};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "shm-not-shared",
    title: "ranks of one node do not share /dev/shm",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "One rank made a buffer in /dev/shm, and another does not find it: the two run in different containers, or on \
          different machines that look like one (equal host name and boot id). Or one of them uses cuMem for host memory and \
          the other does not; then the name of the segment is not readable.",
    fix: "Let all containers of a node share IPC (`docker run --ipc=host`, one pod), or set a different NCCL_HOSTID in each. \
          If the name of the segment is not readable or its size is 0: NCCL_CUMEM_HOST_ENABLE=0 on all ranks. \
          NCCL_SHM_DISABLE=1 uses the network instead.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1589",
        "https://github.com/NVIDIA/nccl/issues/2190",
        "NCCL src/misc/shmutils.cc (ncclShmOpen)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&SHM_NOT_FOUND], Source::JobOutput)?;
    let absent = |why: &str| why.is_empty() || why.contains("No such file");
    let found: Vec<_> = found.into_iter().filter(|it| absent(it.get("why"))).collect();
    // A rank that could not make its buffer leaves the others without one.
    let follows = [&SHM_FULL, &SHM_DENIED, &TOO_MANY_OPEN_FILES];
    let Some(first) = found.first().filter(|_| log.case.first_of(&follows).is_none()) else {
        return Ok(Vec::new());
    };
    let said = first.get("why").contains("No such file");
    let confidence = if said { Confidence::Likely } else { Confidence::Possible };
    let message = if first.number("bytes") == Some(0) {
        "a rank got no usable name of a shared memory segment: the ranks differ in how they share host memory"
    } else {
        "a rank does not find the shared memory that another rank of its node made"
    };
    Ok(vec![Finding::new(confidence, message).by(log, &found).or("hostname-collision")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const LINE: &str = "n:1:2 [0] misc/shmutils.cc:1 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-a (size 9637888), error: No such file or directory (2)\n";

    #[test]
    fn fires_where_the_segment_is_missing() {
        assert_eq!(findings(&RULE, LINE)[0].confidence, crate::Confidence::Likely);
        assert!(findings(&RULE, &LINE.replace("9637888", "0"))[0].message.contains("no usable name"));
    }

    #[test]
    fn a_segment_that_could_not_be_made_explains_it() {
        let full = "n:1:2 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 9637892 bytes, error: No space left on device (28)\n";
        quiet(&RULE, &format!("{full}{LINE}"));
        quiet(&RULE, &LINE.replace("No such file or directory (2)", "Too many open files (24)"));
    }
}

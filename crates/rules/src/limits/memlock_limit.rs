//! The process may not lock the memory that RDMA needs.

use evidence::signals::limits::{
    LOCKED_MEMORY_LIMIT, LOCKED_MEMORY_REFUSED, REGISTRATION_WITHOUT_MEMORY, VERBS_REFUSED,
};
use evidence::{Sighting, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "memlock-limit",
    title: "the limit on locked memory is too low for RDMA",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "InfiniBand, RoCE and EFA pin every buffer in host memory. A limit of 64 kB or a few MB, the default of many systems and containers, \
          makes the first queue or registration fail with `Cannot allocate memory`.",
    fix: "Set `ulimit -l unlimited` where the ranks are started: /etc/security/limits.conf (memlock, for soft and hard), \
          LimitMEMLOCK=infinity of slurmd, sshd or the container runtime; `docker run --ulimit memlock=-1 --cap-add=IPC_LOCK`; in \
          Kubernetes the capability IPC_LOCK. Check it inside the job: `srun bash -c 'ulimit -l'`.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#infiniband",
        "https://github.com/openucx/ucx/issues/8229",
        "https://github.com/NVIDIA/nccl-tests/issues/206",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(
        &[&LOCKED_MEMORY_REFUSED, &REGISTRATION_WITHOUT_MEMORY, &VERBS_REFUSED],
        Source::JobOutput,
    )?;
    let limit = log.case.sightings_of(&LOCKED_MEMORY_LIMIT).find(|it| is_low(it));
    let unlimited =
        log.case.sightings_of(&LOCKED_MEMORY_LIMIT).any(|it| it.get("value").contains("unlimited"));
    // Where the line gives another reason, or the limit is known to be off, it is something else.
    let counts = |it: &&Sighting| {
        let other_reason = *it.signal == VERBS_REFUSED && it.quote.text.contains("failed with");
        !other_reason && (limit.is_some() || !unlimited)
    };
    let found: Vec<_> = found.into_iter().filter(counts).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let names_limit = found.iter().any(|it| {
        let text = &it.quote.text;
        text.contains("ulimit -l")
            || text.contains("memlock")
            || text.contains("MEMLOCK")
            || text.contains("locked memory")
    });
    let confidence = if names_limit || limit.is_some() {
        Confidence::Certain
    } else if !found.iter().any(|it| *it.signal == LOCKED_MEMORY_REFUSED) {
        Confidence::Possible
    } else {
        Confidence::Likely
    };
    let at = limit
        .map(|it| it.get("value"))
        .or_else(|| found.iter().map(|it| it.get("limit")).find(|it| !it.is_empty()));
    let message = match at {
        Some(at) => format!("the process could not lock memory for RDMA: the limit is {at}"),
        None => "the process could not lock memory for RDMA".to_owned(),
    };
    // libibverbs only warns that the limit is low.
    let warned = found.iter().all(|it| it.quote.text.contains("RLIMIT_MEMLOCK"));
    let finding = Finding::new(confidence, message).by(log, &found).seen_all(limit.map(|it| &it.quote));
    Ok(vec![if warned { finding.severity(Severity::Warning) } else { finding }])
}

fn is_low(sighting: &Sighting) -> bool {
    // In kB, or in bytes where it is /proc/PID/limits; a GB is more than NCCL locks.
    let value = sighting.get("value").split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
    value.is_some_and(|it| it < 1 << 20 || (sighting.quote.text.starts_with("Max locked") && it < 1 << 30))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_in_nccl_ucx_and_libfabric() {
        for line in [
            "UCX ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory\n",
            "n:1:2 [7] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n",
            "n:1:2 [7] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n",
            "EFA internal error: (4112) Failure to post internal receive buffers\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Likely, "{line}");
        }
    }

    #[test]
    fn is_certain_with_the_limit() {
        let log = "ibv_create_cq(cqe=4096) failed: Cannot allocate memory\nmax locked memory       (kbytes, -l) 64\n";
        let found = findings(&RULE, log);
        assert_eq!(
            (found[0].confidence, &*found[0].message),
            (Confidence::Certain, "the process could not lock memory for RDMA: the limit is 64")
        );
        let ucx = "UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n";
        assert_eq!(findings(&RULE, ucx)[0].confidence, Confidence::Certain);
        let bare = "n:1:1 [0] misc/ibvwrap.cu:269 NCCL WARN Call to ibv_create_qp failed\n";
        assert_eq!(findings(&RULE, bare)[0].confidence, Confidence::Possible);
        let old = "WARN Call to ibv_create_qp failed\nulimit -l => 65536\n";
        assert_eq!(findings(&RULE, old)[0].confidence, Confidence::Certain);
    }

    #[test]
    fn a_warning_of_the_library_is_one() {
        let line = "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.\n";
        assert_eq!(findings(&RULE, line)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn other_failures_are_not_it() {
        quiet(&RULE, "OSError: [Errno 12] Cannot allocate memory\n");
        quiet(
            &RULE,
            "n:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_create_qp failed with error Invalid argument\n",
        );
        quiet(&RULE, "max locked memory       (kbytes, -l) 64\n");
        quiet(
            &RULE,
            "ibv_create_cq(cqe=4096) failed: Cannot allocate memory\nmax locked memory       (kbytes, -l) unlimited\n",
        );
    }
}

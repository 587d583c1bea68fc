//! Two ranks use the same GPU.

use std::collections::{BTreeMap, BTreeSet};

use evidence::Source;
use evidence::signals::launch::DUPLICATE_GPU;
use job::{Invariant, Violation};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "duplicate-gpu",
    title: "two ranks use the same GPU",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL needs one GPU per rank on a host and refuses to start. Usually the program does not choose its device by local rank, or \
          more processes were started than GPUs are visible.",
    fix: "Call `torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))` before the first collective, and start as many processes on a node \
          as `nvidia-smi -L` lists there (`--nproc-per-node`, `-N`, `slots`). Check for a GPU fixed in the code or a \
          `CUDA_VISIBLE_DEVICES` that is the same for all ranks.",
    references: &["https://github.com/NVIDIA/nccl/issues/1241", "NCCL src/init.cc"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&DUPLICATE_GPU], Source::JobOutput)?;
    let Some(first) = found.first() else {
        return Ok(log.job.violations.iter().find_map(same_gpu).into_iter().collect());
    };
    let (a, b, bus) = (first.get("a"), first.get("b"), first.get("bus"));
    let ranks: BTreeSet<&str> =
        found.iter().flat_map(|it| [it.get("a"), it.get("b")]).filter(|it| !it.is_empty()).collect();
    let message = if a.is_empty() {
        "several ranks use one GPU".to_owned()
    } else if ranks.len() == 2 {
        format!("ranks {a} and {b} are both on the GPU at PCI {bus}")
    } else {
        format!("{} ranks share a GPU with another, ranks {a} and {b} the one at PCI {bus}", ranks.len())
    };
    let finding = if two_machines_of_one_name(log) {
        // NCCL then counts two machines as one, and their GPUs as the same.
        Finding::new(Confidence::Possible, message).or("hostname-collision")
    } else {
        Finding::new(Confidence::Certain, message)
    };
    Ok(vec![finding.by(log, &found).about_gpu(bus)])
}

/// By the lines that name the GPU of each rank, whatever the release says about it.
fn same_gpu(violation: &Violation) -> Option<Finding> {
    let Invariant::GpuOfTwoRanks { host, bus_id, ranks: [a, b] } = &violation.invariant else { return None };
    let message = format!(
        "ranks {a} and {b} are both on the GPU at PCI {bus_id:x} of {host}, and NCCL refused to start (invalid usage)"
    );
    let finding =
        Finding::new(Confidence::Likely, message).seen_all(&violation.quotes).or("hostname-collision");
    Some(finding.about_rank(a).about_rank(b).about_host(host).about_gpu(format!("{bus_id:x}")))
}

/// Whether processes of one host name have different addresses.
fn two_machines_of_one_name(log: &Log) -> bool {
    let mut addresses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for process in &log.case.processes {
        for interface in process.facts.bootstrap.value().into_iter().flatten().take(1) {
            addresses.entry(&process.host).or_default().insert(&interface.address);
        }
    }
    addresses.values().any(|it| it.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_logs_and_in_tracebacks() {
        let log = "n:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
        assert_eq!(findings(&RULE, log)[0].message, "ranks 2 and 0 are both on the GPU at PCI 1000");
        let traceback = "Last error:\nDuplicate GPU detected : rank 3 and rank 0 both on CUDA device f000\n";
        assert_eq!(findings(&RULE, traceback).len(), 1);
    }

    #[test]
    fn fires_without_the_words() {
        let start = |host: &str, rank: u32| {
            format!(
                "{host}:{rank}:1 [0] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId f000 commId 0x5 - Init START\n\
                 {host}:{rank}:1 [0] NCCL INFO init.cc:1 -> 5\n"
            )
        };
        let found = findings(&RULE, &(start("n", 0) + &start("n", 1)));
        assert_eq!(
            found[0].message,
            "ranks 0 and 1 are both on the GPU at PCI f000 of n, and NCCL refused to start (invalid usage)"
        );
        quiet(&RULE, &(start("n", 0) + &start("m", 1)));
    }

    #[test]
    fn equal_bus_ids_on_two_hosts_are_no_duplicate() {
        quiet(
            &RULE,
            "#  Rank  0 Group  0 Pid 1 on a device  0 [0x8d] NVIDIA H100\n#  Rank  8 Group  0 Pid 1 on b device  0 [0x8d] NVIDIA H100\n",
        );
    }

    #[test]
    fn two_machines_of_one_name_are_another_cause() {
        let log = "n:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nn:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.2<0>\n\
                   n:1:1 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60\n";
        let it = &findings(&RULE, log)[0];
        assert_eq!((it.confidence, it.also.as_slice()), (Confidence::Possible, &["hostname-collision"][..]));
    }
}

//! Two ranks were given the same GPU.

use evidence::signals::launch::DUPLICATE_GPU;
use evidence::{Case, Missing, Source};

use crate::{Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "duplicate-gpu",
    title: "two ranks use the same GPU",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL needs a GPU for each rank of a host and refuses to start. Usually the program does not choose its device by \
          local rank, or more processes were started than GPUs are visible.",
    fix: "Call `torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))` before the first collective, and start as many processes \
          on a node as `nvidia-smi -L` lists there (`--nproc-per-node`, `-N`, `slots`). Look for a GPU fixed in the code or a \
          `CUDA_VISIBLE_DEVICES` that is the same for all ranks.",
    references: &["https://github.com/NVIDIA/nccl/issues/1241", "NCCL src/init.cc"],
    check,
};

fn check(case: &Case) -> Result<Vec<Finding>, Missing> {
    let found = case.look_for(&[&DUPLICATE_GPU], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let pairs = found.len();
    let (a, b, bus) = (first.get("a"), first.get("b"), first.get("bus"));
    let message = if a.is_empty() {
        "several ranks use one GPU".to_owned()
    } else if pairs == 1 {
        format!("ranks {a} and {b} are both on the GPU at PCI {bus}")
    } else {
        format!("{pairs} pairs of ranks share a GPU, ranks {a} and {b} the one at PCI {bus}")
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(case, &found).about("gpu", bus)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_logs_and_in_tracebacks() {
        let log = "n:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
        assert_eq!(findings(&RULE, log)[0].message, "ranks 2 and 0 are both on the GPU at PCI 1000");
        let traceback = "Last error:\nDuplicate GPU detected : rank 3 and rank 0 both on CUDA device f000\n";
        assert_eq!(findings(&RULE, traceback).len(), 1);
    }

    #[test]
    fn equal_bus_ids_on_two_hosts_are_no_duplicate() {
        quiet(
            &RULE,
            "#  Rank  0 Group  0 Pid 1 on a device  0 [0x8d] NVIDIA H100\n#  Rank  8 Group  0 Pid 1 on b device  0 [0x8d] NVIDIA H100\n",
        );
    }
}

//! A tensor is on another GPU than the communicator.

use evidence::Source;
use evidence::signals::cuda::POINTER_ON_OTHER_GPU;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "wrong-device-pointer",
    title: "a tensor is on another GPU than its rank",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The communicator of a rank belongs to one GPU, and the program gave it a tensor of another: most often every rank \
          made its tensors on GPU 0.",
    fix: "Call `torch.cuda.set_device(LOCAL_RANK)` before any tensor or process group is made, and make tensors on \
          `cuda:LOCAL_RANK`.",
    references: &[
        "https://docs.pytorch.org/docs/stable/distributed.html",
        "NCCL src/misc/argcheck.cc (CudaPtrCheck)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&POINTER_ON_OTHER_GPU], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!(
        "a tensor is on GPU {}, but the communicator of its rank on GPU {}",
        first.get("there"),
        first.get("here")
    );
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn names_both_gpus() {
        let line = "n:1:2 [3] misc/argcheck.cc:45 NCCL WARN AllReduce : sendbuff allocated on device 0 mismatchs with NCCL device 3\n";
        assert_eq!(
            findings(&RULE, line)[0].message,
            "a tensor is on GPU 0, but the communicator of its rank on GPU 3"
        );
        quiet(&RULE, "n:1:2 [0] NCCL WARN AllReduce : sendbuff (nil) is not a valid pointer\n");
    }
}

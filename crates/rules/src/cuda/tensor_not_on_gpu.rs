//! The program gave NCCL a buffer that is not GPU memory.

use evidence::Source;
use evidence::signals::cuda::POINTER_INVALID;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "tensor-not-on-gpu",
    title: "a buffer given to NCCL is not GPU memory",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL checks the buffers of a collective (NCCL_CHECK_POINTERS) and found one that is not GPU memory of this process: \
          a tensor on the CPU, an empty tensor, or one that was freed.",
    fix: "Move the tensor to the GPU before the collective (`tensor.cuda()`), and keep it until the collective has finished.",
    references: &["https://github.com/NVIDIA/nccl/issues/1558", "NCCL src/misc/argcheck.cc (CudaPtrCheck)"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&POINTER_INVALID], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = match first.get("pointer") {
        "" => "the program gave NCCL a buffer that is not GPU memory".to_owned(),
        "(nil)" | "0x0" => "the program gave NCCL a null pointer as a buffer".to_owned(),
        pointer => format!("the program gave NCCL a buffer that is not GPU memory: {pointer}"),
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        let line =
            "n:1:2 [0] misc/argcheck.cc:39 NCCL WARN AllReduce : sendbuff (nil) is not a valid pointer\n";
        assert_eq!(findings(&RULE, line)[0].message, "the program gave NCCL a null pointer as a buffer");
        let host = line.replace("(nil)", "0x7f00");
        assert_eq!(
            findings(&RULE, &host)[0].message,
            "the program gave NCCL a buffer that is not GPU memory: 0x7f00"
        );
        let old = "n:1:2 [0] NCCL WARN Broadcast : recvbuff is not a valid pointer\n";
        assert_eq!(findings(&RULE, old).len(), 1);
        let torch = "[rank1]: RuntimeError: No backend type associated with device type cpu\n";
        assert_eq!(findings(&RULE, torch).len(), 1);
        quiet(
            &RULE,
            "n:1:2 [0] NCCL WARN AllReduce : sendbuff allocated on device 1 mismatchs with NCCL device 0\n",
        );
    }
}

//! A CUDA call of NCCL failed with an error that no other rule explains.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of, who};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cuda-call-failed",
    title: "a CUDA call of NCCL failed",
    severity: Severity::Error,
    role: Role::General,
    needs: &[Source::JobOutput],
    why: "NCCL stops when a CUDA call fails. The error says what CUDA refused, the file what NCCL was doing.",
    fix: "Look at the lines of this process before it, at `dmesg` for Xid, and at the releases of driver, CUDA and NCCL.",
    references: &[
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
        "NCCL src/include/checks.h",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::General);
    let Some(first) = found.iter().find(|it| !it.value.is_harmless()) else { return Ok(Vec::new()) };
    let file = first.file.rsplit('/').next().unwrap_or_default();
    let place = if file.is_empty() { String::new() } else { format!(" in {file}") };
    let message = format!("a CUDA call of {} failed{place}: {}", who(log, first.sighting), first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    let finding = Finding::new(Confidence::Likely, message).by(log, &lines);
    let file = (!first.file.is_empty()).then_some(first.file);
    let reading = messages::family::reading(&first.sighting.quote.text, file);
    Ok(vec![match reading.filter(|it| it.variant.is_some()) {
        Some(it) => finding.why(it.meaning()).fix(it.remedy()),
        None => finding.why(&*first.value.meaning).fix(&*first.value.remedy),
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn says_what_the_error_means() {
        let line = "n:1:2 [0] init.cc:400 NCCL WARN Cuda failure 801 'operation not supported'\n";
        let found = findings(&RULE, line);
        assert_eq!(
            found[0].message,
            "a CUDA call of process 1 on n failed in init.cc: operation not supported (CUDA error 801)"
        );
        assert!(found[0].why.as_ref().is_some_and(|it| it.contains("vGPU")));
        assert_eq!(findings(&RULE, "Last error:\nCuda failure 999 'unknown error'\n").len(), 1);
        assert_eq!(findings(&RULE, "Last error:\nCuda failure 1 'invalid argument'\n").len(), 1);
    }

    #[test]
    fn leaves_what_has_a_rule() {
        quiet(&RULE, "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 2 'out of memory'\n");
        quiet(&RULE, "n:1:2 [0] transport/nvls.cc:1 NCCL WARN Cuda failure 1 'invalid argument'\n");
        quiet(&RULE, "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 704 'peer access is already enabled'\n");
    }
}

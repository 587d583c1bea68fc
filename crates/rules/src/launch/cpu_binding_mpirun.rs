//! mpirun pins each process to a core by default, and NCCL's helper threads with it.

use evidence::signals::launch::BOUND;
use evidence::signals::notes::BINDING;
use evidence::{Missing, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cpu-binding-mpirun",
    title: "mpirun binds each process to one core",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclTests, Source::LaunchCommand],
    why: "Open MPI binds a process to a core (up to two processes) or to a NUMA domain by default. NCCL's proxy threads inherit that: \
          on one core they take time from each other and from the thread that launches kernels. No log line shows it.",
    fix: "Run again with `mpirun --bind-to none` (or `--bind-to numa`) and compare; `mpirun --report-bindings` prints the bindings.",
    references: &["https://github.com/NVIDIA/nccl/issues/644"],
    checks: &[Check::Log(check)],
};

/// Bus bandwidth of large messages, in GB/s, below which the processor may be what limits.
const SLOW: f64 = 10.0;

fn check(log: &Log) -> Checked {
    if let Some(one) = log.case.sightings_of(&BOUND).find(|it| is_one_core(it.get("where"))) {
        let message =
            format!("rank {} is bound to one core, together with all threads of NCCL", one.get("rank"));
        let finding = Finding::new(Confidence::Likely, message).severity(Severity::Warning);
        return Ok(vec![finding.seen(&one.quote).about_rank(one.get("rank"))]);
    }
    if log.case.tests.is_empty() {
        return Err(Missing(Source::NcclTests));
    }
    let Some(command) = log.job.launches.iter().find(|it| it.is_mpirun()) else {
        return Err(Missing(Source::LaunchCommand));
    };
    let bound = log.case.first_of(&[&BINDING]).is_some() || !command.binds_by_default();
    if bound || command.ranks().is_none_or(|it| it < 2) {
        return Ok(Vec::new());
    }
    let large = log.case.tests.iter().flat_map(|it| &it.rows).filter(|it| it.size >= 16 << 20);
    let speeds = large.filter_map(|it| Some((it.out_of_place?.busbw, &it.quote)));
    let Some((best, quote)) = speeds.max_by(|a, b| a.0.total_cmp(&b.0)) else { return Ok(Vec::new()) };
    if best <= 0.0 || best >= SLOW {
        return Ok(Vec::new());
    }
    let message = format!(
        "the mpirun command sets no binding, and large messages reach only {best} GB/s: the default binding may be the reason"
    );
    Ok(vec![Finding::new(Confidence::Possible, message).seen(&command.quote).seen(quote)])
}

/// `socket 0[core 0[hwt 0-1]]: [BB/../..]`, `package[0][core:0]`; several cores are listed or given as a range.
fn is_one_core(binding: &str) -> bool {
    let list = binding.split(": [").next().unwrap_or(binding);
    match list.split_once("[core:") {
        Some((_, cores)) => cores.trim_end_matches(']').chars().all(|it| it.is_ascii_digit()),
        None => list.matches("[core ").count() == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const ROW: &str = "   268435456       8388608     float    43643    6.15    5.38  0e+00    43169    6.22    5.44  0e+00\n";

    #[test]
    fn a_slow_run_under_plain_mpirun() {
        let it = findings(&RULE, &format!("{ROW}mpirun -np 8 all_gather_perf -b 8 -e 1G -f 2\n"));
        assert!(it[0].message.contains("5.38 GB/s"), "{it:?}");
    }

    #[test]
    fn mpirun_reports_it() {
        let one = "[n1:1677] MCW rank 0 bound to socket 0[core 0[hwt 0-1]]: [BB/../../..][../../../..]\n";
        assert_eq!(
            findings(&RULE, one)[0].message,
            "rank 0 is bound to one core, together with all threads of NCCL"
        );
        assert_eq!(findings(&RULE, "[n1:01677] Rank 1 bound to package[0][core:1]\n").len(), 1);
        quiet(
            &RULE,
            "[n1:1677] MCW rank 0 bound to socket 0[core 0[hwt 0-1]], socket 0[core 1[hwt 0-1]]: [BB/BB/../..]\n",
        );
        quiet(&RULE, "[n1:01677] Rank 1 bound to package[0][core:0-23]\n");
    }

    #[test]
    fn quiet_with_a_binding_or_when_fast() {
        quiet(&RULE, &format!("{ROW}mpirun --bind-to none -np 8 all_gather_perf -b 8 -e 1G -f 2\n"));
        quiet(&RULE, &format!("{ROW}mpirun -np 1 all_gather_perf -b 8 -e 1G -f 2\n"));
        quiet(&RULE, &format!("{}mpirun -np 8 all_gather_perf\n", ROW.replace("5.38", "305.38")));
        quiet(&RULE, ROW);
    }
}

//! All ranks are in the same collective, and it does not end.

use evidence::Source;
use job::recorder::{Recorded, compare, group_name};

use super::words::{about, at, weighed};
use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "collective-stuck",
    title: "all ranks called a collective, and it does not end",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::FlightRecorder],
    why: "The dumps of PyTorch's Flight Recorder show that every rank made the call with the same sizes and types: the program is not the \
          cause. Its data do not arrive (network), a GPU does not run its kernel (an earlier kernel hangs), or a rank died after the call.",
    fix: "Check the GPUs and the network of the hosts: `dmesg -T | grep -iE 'NVRM|xid'`, the counters of the NICs, and nccl-tests over the \
          same hosts. NCCL_DEBUG=INFO of the failed run names the connection that broke.",
    references: &[
        "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
        "PyTorch torch/csrc/distributed/c10d/FlightRecorder.hpp",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.dumps()?;
    let Some(Recorded::AllEntered(wait)) = compare(&log.case) else { return Ok(Vec::new()) };
    let call = wait.call;
    let message = format!(
        "{} called {} of {} and it had not ended{}",
        list_of_ranks(&wait.waiting),
        call.describe(),
        group_name(&log.case, &call.group),
        at(call)
    );
    let finding = about(log, Finding::new(Confidence::Likely, message), &[], wait.waiting.iter().copied());
    Ok(weighed(log, finding))
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::RULE;
    use crate::Log;
    use crate::testing::check;

    #[test]
    fn a_call_that_all_made_is_not_the_programs_fault() {
        let dump = br#"{"pg_config": {"0": {"desc": "", "ranks": "[0, 1]"}}, "entries": [{"process_group": ["0", ""], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce", "state": "started"}]}"#;
        let log = Log::new(read_texts([("rank_0", &dump[..]), ("rank_1", &dump[..])]));
        let found = check(&RULE, &log).unwrap();
        assert_eq!(
            found[0].message,
            "ranks 0, 1 called all_reduce number 5 of process group 0 and it had not ended"
        );
    }
}

//! NCCL returned an error and no rule knows why.

use evidence::{Quote, Source};
use job::outcome::survived;
use messages::values::{self, Table, Value};

use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-call-failed",
    title: "an NCCL call failed and the input does not show why",
    severity: Severity::Error,
    role: Role::Unexplained,
    needs: &[Source::NcclLog],
    why: "NCCL returned an error to the program. The warning that explains it is not in this input.",
    fix: "Collect the logs of all ranks with NCCL_DEBUG=INFO, from the start of the job, and give plumb all of them: the log of the rank \
          that failed first shows the cause.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Log(check)],
};

/// Findings come from [`check_last`], after all other rules.
fn check(log: &Log) -> Checked {
    log.nccl_log().map(|_| Vec::new())
}

/// A propagated error (`FILE:LINE -> CODE`) or an exception that passes on an error of NCCL, and no finding of severity error.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    if findings.iter().any(|it| it.severity() == Severity::Error) {
        return Vec::new();
    }
    let Some((rank, host, result, quote)) = reported(log).or_else(|| propagated(log)) else {
        return Vec::new();
    };
    let who = match (rank, &host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => format!("a process on {host}"),
        (None, None) => "a rank".to_owned(),
    };
    let message =
        format!("a call of NCCL failed on {who} ({}); its reason is not in this input", result.text);
    let several = log.job.size.spans_nodes();
    let finding = Finding::new(Confidence::Possible, message)
        .seen(quote)
        .why(format!("{} NCCL writes the reason as a WARN line before it returns the error; that line is not in this input. {}", result.meaning, likely(result, several)))
        .fix(rerun(log));
    let finding = rank.map(|it| finding.clone().about_rank(it)).unwrap_or(finding);
    vec![host.map(|it| finding.clone().about_host(it)).unwrap_or(finding)]
}

type Failure<'a> = (Option<u32>, Option<String>, &'static Value, &'a Quote);

/// An exception or a test program that names an error of NCCL.
fn reported(log: &Log) -> Option<Failure<'_>> {
    log.case.endings.iter().filter(|it| it.kind.is_death() && !survived(&log.case, it.last)).find_map(|it| {
        let text = it.quote.text.to_ascii_lowercase();
        if !text.contains("nccl") {
            return None;
        }
        let result = failures().find(|it| {
            // A bare `timeout` is not a result of NCCL.
            (it.code != 8 && text.contains(&*it.text)) || text.contains(&it.name.to_ascii_lowercase())
        })?;
        Some((it.rank, it.host.as_ref().map(ToString::to_string), result, &it.quote))
    })
}

fn propagated(log: &Log) -> Option<Failure<'_>> {
    log.case.processes.iter().enumerate().find_map(|(index, process)| {
        let seen = process.facts.propagated.iter().find(|it| matches!(it.value, 1..=6 | 8))?;
        // An error that stops below the calls of the program was dealt with there.
        let below = ["misc/", "transport/", "plugin/"].iter().any(|it| seen.quote.text.contains(it))
            && process.facts.warnings.count == 0
            && !log.job.outcome.state.is_bad();
        let in_passing = matches!(seen.value, 2 | 3) && (went_well(log, index) || below);
        let result = failures().find(|it| it.code == i64::from(seen.value))?;
        let host = (!process.host.is_empty()).then(|| process.host.to_string());
        (!in_passing).then_some((process.rank, host, result, &seen.quote))
    })
}

/// The results that mean a failure.
fn failures() -> impl Iterator<Item = &'static Value> {
    values::of_table(Table::NcclResult).filter(|it| matches!(it.code, 1..=6 | 8))
}

/// The usual causes for a job of this shape.
fn likely(result: &Value, several: Option<bool>) -> &'static str {
    match (result.code, several) {
        (2, Some(false)) => {
            "On one host the usual causes are: /dev/shm too small in a container, peer access between GPUs refused, another rank that died first."
        }
        (2, _) => {
            "The usual causes are: the wrong network interface (NCCL_SOCKET_IFNAME), a firewall between the nodes, another rank that died \
             first, a full /dev/shm, a network plugin without its device."
        }
        (1, _) => {
            "The usual causes are: two ranks on one GPU, too little free GPU memory, a driver older than this NCCL, an earlier fault of a kernel of the program."
        }
        (3, _) => {
            "The usual causes are: a network plugin that failed, a topology that NCCL cannot use, ranks with different settings or releases."
        }
        (4 | 5, _) => {
            "The usual causes are: two ranks on one GPU, a tensor that is not on the rank's GPU, a communicator used after an error."
        }
        _ => "Read the log of the rank that ended first.",
    }
}

/// The exact command to run again.
fn rerun(log: &Log) -> String {
    let command =
        log.job.launches.first().map_or("torchrun ...", |it| it.quote.text.trim().trim_start_matches("$ "));
    format!(
        "Run it again with NCCL's log switched on for every rank, and give plumb all of it: `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET \
         {command} 2>&1 | tee job.log`, then `plumb doctor job.log`."
    )
}

/// Whether the process made its communicators, or made none where others did: a plugin or network that was tried and left aside,
/// and the sockets that close at the end, leave such errors behind.
fn went_well(log: &Log, index: usize) -> bool {
    let members = || log.case.communicators.iter().flat_map(|it| it.members.values());
    let mut own = members().filter(|it| it.process == index).peekable();
    if own.peek().is_some() {
        own.all(evidence::Member::is_complete)
    } else {
        members().any(evidence::Member::is_complete)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::ids;

    #[test]
    fn an_error_without_a_cause_is_an_error() {
        assert_eq!(ids("n:1:2 [0] NCCL INFO init.cc:1093 -> 1\n"), ["nccl-call-failed"]);
    }

    #[test]
    fn errors_in_passing_are_none() {
        let log = "n:1:1 [0] NCCL INFO transport/net_ib.cc:852 -> 3\n\
                   n:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 60 commId 0x4 - Init COMPLETE\n";
        assert!(ids(log).is_empty());
        assert_eq!(ids(&log.replace("-> 3", "-> 6")), ["nccl-call-failed"]);
    }

    #[test]
    fn with_a_cause_it_is_silent() {
        let log = "n:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n\
                   n:1:2 [0] NCCL INFO init.cc:1093 -> 5\n";
        assert_eq!(ids(log), ["duplicate-gpu"]);
    }
}

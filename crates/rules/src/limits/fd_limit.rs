//! The limit of open files is reached.

use evidence::Source;
use evidence::signals::limits::{OPEN_FILE_LIMIT, PROXY_POLL_FAILED, TOO_MANY_OPEN_FILES};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "fd-limit",
    title: "the limit on open files is too low",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Every NCCL connection is a socket, and every tensor that a DataLoader worker passes on can be a file. Shells often allow 1024 \
          open files, and a job on a few nodes uses them up. Closed connections, failed polls and hangs are consequences.",
    fix: "Run `ulimit -n 1048576` (or `ulimit -n $(ulimit -Hn)`) in the script that starts the ranks; for all users set nofile in \
          /etc/security/limits.conf, or LimitNOFILE= of the service; `docker run --ulimit nofile=1048576`. If the DataLoader is the cause: \
          `torch.multiprocessing.set_sharing_strategy('file_system')`.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/550",
        "https://pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&TOO_MANY_OPEN_FILES], Source::JobOutput)?;
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let limit = log.case.sightings_of(&OPEN_FILE_LIMIT).find(|it| it.number("value").is_some());
    let who = log.case.process_of(first).map_or("a process".to_owned(), evidence::Process::name);
    let message = match limit.and_then(|it| it.number("value")) {
        Some(limit) => format!("{who} could not open more files: the limit is {limit}"),
        None => format!("{who} could not open more files"),
    };
    let sure = first.quote.text.contains("oo many open files");
    let confidence = if sure { Confidence::Certain } else { Confidence::Likely };
    let polls = log.case.sightings_of(&PROXY_POLL_FAILED).map(|it| &it.quote);
    let finding = Finding::new(confidence, message).by(log, &found).seen_all(limit.map(|it| &it.quote));
    Ok(vec![finding.seen_all(polls)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        for line in [
            "n:1:2 [0] ras/ras.cc:104 NCCL WARN Call to pipe failed: Too many open files\n",
            "ncclOsSocketTryAccept: Accept failed: Too many open files\n",
            "332066:332417 [18] bootstrap.cc:106 CCOM WARN Call to accept failed : Too many open files\n",
            "OSError: [Errno 24] Too many open files: '/data/x'\n",
            "Socket.h(166):\"too many open files\"\n",
        ] {
            assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Certain, "{line}");
        }
        assert_eq!(
            findings(&RULE, "RuntimeError: received 0 items of ancdata\n")[0].confidence,
            Confidence::Likely
        );
    }

    #[test]
    fn names_the_limit() {
        let log = "Call to accept failed : Too many open files\nopen files                      (-n) 1024\n";
        assert_eq!(findings(&RULE, log)[0].message, "a process could not open more files: the limit is 1024");
    }

    #[test]
    fn the_limit_alone_is_not_a_fault() {
        quiet(&RULE, "open files                      (-n) 1024\n");
    }
}

//! `NCCL_COMM_ID` names an address that rank 0's host does not have.

use evidence::Source;
use job::whose::Owners;

use crate::blocked::failures::foreign_comm_id;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "comm-id-not-local",
    title: "the address in NCCL_COMM_ID is not one of rank 0's host",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "With NCCL_COMM_ID, rank 0 listens at that address. If its host does not have the address, rank 0 fails, and the other ranks try \
          to connect until they give up.",
    fix: "Do not set NCCL_COMM_ID (PyTorch and MPI do not need it), or set it to an address of rank 0's host that all nodes reach: `ip addr` \
          on that host lists them.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-comm-id",
        "NCCL src/bootstrap.cc, bootstrapCreateRoot",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let Some(it) = foreign_comm_id(log) else { return Ok(Vec::new()) };
    let rank = it.process.rank.or_else(|| Owners::of_case(&log.case).of_quote(&log.case, it.warning));
    let who = match rank {
        Some(rank) => format!("rank {rank} on {}", it.process.host),
        None => it.process.name(),
    };
    let message = format!("{who} does not have the address in NCCL_COMM_ID={}", it.variable.text());
    let finding = Finding::new(Confidence::Certain, message)
        .seen(it.warning)
        .seen_all(it.variable.quote())
        .about_host(&it.process.host)
        .about_variable("NCCL_COMM_ID");
    Ok(vec![rank.into_iter().fold(finding, Finding::about_rank)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const SET: &str = "a:1:1 [0] NCCL INFO NCCL_COMM_ID set by environment to 10.77.0.99:23456\n";
    const BIND: &str =
        "a:1:1 [0] misc/socket.cc:413 NCCL WARN Call to bind failed: Cannot assign requested address\n";

    #[test]
    fn the_host_that_lacks_the_address_is_named() {
        let it = &findings(&RULE, &format!("{SET}{BIND}"))[0];
        assert_eq!(it.message, "process 1 on a does not have the address in NCCL_COMM_ID=10.77.0.99:23456");
    }

    #[test]
    fn it_explains_those_that_cannot_connect() {
        let connect = "b:1:1 [0] misc/socket.cc:583 NCCL WARN socketPollConnect: connect to 10.77.0.99<23456> returned No route to host, exceeded error retry count after 35 attempts\n";
        let found = ids(&format!("{SET}{BIND}{connect}"));
        assert_eq!(found.first(), Some(&"comm-id-not-local"), "{found:?}");
        assert!(
            !found.contains(&"firewall-blocks-ports") && !found.contains(&"peer-unreachable"),
            "{found:?}"
        );
    }

    #[test]
    fn quiet_without_the_variable() {
        quiet(&RULE, BIND);
        quiet(&RULE, SET);
    }
}

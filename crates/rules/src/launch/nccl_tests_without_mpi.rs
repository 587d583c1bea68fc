//! nccl-tests was built without MPI: every process runs a separate test.

use std::collections::{BTreeMap, BTreeSet};

use evidence::plain::NcclTests;
use evidence::signals::launch::TEST_AVERAGE;
use evidence::{Missing, Quote, Source};

use crate::lint::launch::nccl_tests_without_mpi as submitted;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-tests-without-mpi",
    title: "the processes of nccl-tests do not run as one job",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclTests],
    why: "Built without MPI, nccl-tests does not see other processes: each one that mpirun starts is rank 0 of its own job. Nothing \
          crosses the network, and with one GPU the bus bandwidth is 0 by definition.",
    fix: "`make clean && make MPI=1 MPI_HOME=/path/to/mpi` and run that binary on all nodes (check it with `ldd all_reduce_perf | grep \
          mpi`). Under Slurm with an MPI build: `srun --mpi=pmix`, because without it each task is an MPI world of one rank.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/issues/294",
        "https://github.com/NVIDIA/nccl-tests/issues/27",
        "https://github.com/NVIDIA/nccl-tests#readme",
    ],
    checks: &[Check::Log(check), Check::Submission(submitted::check)],
};

fn check(log: &Log) -> Checked {
    if log.case.tests.is_empty() {
        return Err(Missing(Source::NcclTests));
    }
    // This variable makes groups on purpose.
    if log.job.settings.named("NCCL_TESTS_SPLIT").next().is_some()
        || log.job.settings.named("NCCL_TESTS_SPLIT_MASK").next().is_some()
    {
        return Ok(Vec::new());
    }
    let command = log.job.launches.iter().find_map(|it| Some((it.ranks()?, it)));
    if let Some((ranks, quote)) = log.case.tests.iter().find_map(repeated_ranks) {
        let message =
            format!("rank {ranks} is listed more than once in one output: each process is a separate job");
        return Ok(vec![
            Finding::new(Confidence::Certain, message).seen(quote).seen_all(command.map(|it| &it.1.quote)),
        ]);
    }
    if let Some([first, second]) = repeated_header(log) {
        let message =
            "the same header is printed twice before any list of ranks: each process is a separate job";
        return Ok(vec![
            Finding::new(Confidence::Likely, message)
                .seen(first)
                .seen(second)
                .seen_all(command.map(|it| &it.1.quote)),
        ]);
    }
    let alone: Vec<&Quote> = log.case.tests.iter().flat_map(one_rank_rows).collect();
    if let Some((n, command)) = command.filter(|it| it.0 > 1) {
        let processes: BTreeSet<_> =
            log.case.tests.iter().flat_map(|it| &it.devices).map(|it| (&it.host, it.pid)).collect();
        let one_process_each = !processes.is_empty()
            && log.case.tests.iter().all(|it| {
                let own: BTreeSet<_> = it.devices.iter().map(|it| (&it.host, it.pid)).collect();
                own.len() <= 1 && (it.devices.is_empty() || it.devices.iter().any(|it| it.rank == 0))
            });
        let finished = log.case.tests.iter().any(|it| !it.rows.is_empty());
        let several_tables =
            log.case.tests.iter().any(|it| repeats_sizes(it) > 1) || repeated_footers(log, n);
        if !alone.is_empty() || (one_process_each && finished) || several_tables {
            let what = if several_tables {
                "and each prints its own table"
            } else {
                "and the table is that of a single process"
            };
            let message = format!("{n} processes are started, {what}");
            let finding = Finding::new(Confidence::Likely, message).seen_all(alone.iter().copied().take(2));
            return Ok(vec![
                finding.seen(&command.quote).seen_all(log.case.tests.first().map(|it| &it.quote)),
            ]);
        }
        return Ok(Vec::new());
    }
    // Without the command: several tables of one rank each, with their lines interleaved.
    let interleaved = log.case.tests.iter().find(|it| repeats_sizes(it) > 0 && !one_rank_rows(it).is_empty());
    let Some(run) = interleaved else { return Ok(Vec::new()) };
    let message = "several processes print the same sizes with a bus bandwidth of 0: each runs alone";
    Ok(vec![Finding::new(Confidence::Likely, message).seen_all(one_rank_rows(run).into_iter().take(3))])
}

/// A rank that two processes of one run claim.
fn repeated_ranks(run: &NcclTests) -> Option<(u32, &Quote)> {
    let mut owners: BTreeMap<u32, (&str, u32)> = BTreeMap::new();
    let twice = run.devices.iter().find(|it| {
        let owner = (&*it.host, it.pid);
        *owners.entry(it.rank).or_insert(owner) != owner
    })?;
    Some((twice.rank, &run.quote))
}

/// Two headers that are equal, the second where the list of ranks should be: only rank 0 of a job prints one.
fn repeated_header(log: &Log) -> Option<[&Quote; 2]> {
    log.case.tests.windows(2).find_map(|it| {
        let [first, second] = it else { return None };
        let (a, b) = (&first.quote, &second.quote);
        let near =
            a.spot.region == b.spot.region && (1..=4).contains(&b.spot.line.saturating_sub(a.spot.line));
        let empty = first.devices.is_empty() && first.rows.is_empty();
        (near && empty && a.text.contains("nThread ") && a.text == b.text).then_some([a, b])
    })
}

/// Rows that only one rank alone can have: data moved, and none of it between ranks.
fn one_rank_rows(run: &NcclTests) -> Vec<&Quote> {
    let alone = |algbw: f64, busbw: f64| algbw >= 1.0 && busbw == 0.0;
    let rows = run.rows.iter().filter(|it| it.out_of_place.is_some_and(|it| alone(it.algbw, it.busbw)));
    rows.map(|it| &it.quote).collect()
}

/// How many sizes are repeated before the next one: one table has each size once.
fn repeats_sizes(run: &NcclTests) -> usize {
    let again: BTreeSet<u64> =
        run.rows.windows(2).filter(|it| it[0].size == it[1].size).map(|it| it[0].size).collect();
    again.len()
}

/// Whether each of `n` processes printed its own average, and all nearly the same.
fn repeated_footers(log: &Log, n: u32) -> bool {
    let footers: Vec<_> = log.case.sightings_of(&TEST_AVERAGE).collect();
    let count: u64 = footers.iter().map(|it| it.count).sum();
    let values: Vec<f64> = footers.iter().filter_map(|it| it.get("value").parse().ok()).collect();
    let near = values.iter().all(|it| (it - values[0]).abs() <= 0.05 * values[0].abs());
    log.case.tests.len() == 1 && count == u64::from(n) && near
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const ROW: &str = "   134217728      33554432     float     sum      -1    631.9  212.41    0.00      0     0.51  263017.30    0.00      0\n";

    #[test]
    fn rows_of_one_rank_under_mpirun() {
        let it = findings(
            &RULE,
            &format!("{ROW}{ROW}mpirun -np 16 -N 8 all_reduce_perf -b 128M -e 2048M -f 2 -t 1 -g 1\n"),
        );
        assert_eq!(it[0].message, "16 processes are started, and the table is that of a single process");
        let footers = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 3.94145\n#\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 3.94156\n";
        let it = findings(
            &RULE,
            &format!("mpirun -H a,b -np 2 ./all_reduce_perf -b 8 -e 128M -f 128 -g 2\n{footers}"),
        );
        assert_eq!(it[0].message, "2 processes are started, and each prints its own table");
        assert_eq!(findings(&RULE, &format!("{ROW}{ROW}")).len(), 1);
    }

    #[test]
    fn two_lists_of_ranks() {
        let header = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n# Using devices\n";
        let list = "#  Rank  0 Group  0 Pid 7 on a device  0 [0x0f] NVIDIA H800\n#  Rank  1 Group  0 Pid 7 on a device  1 [0x34] NVIDIA H800\n";
        let text = format!("{header}{header}{list}{}", list.replace(" on a ", " on b "));
        assert_eq!(
            findings(&RULE, &text)[0].message,
            "rank 0 is listed more than once in one output: each process is a separate job"
        );
        quiet(&RULE, &format!("{text}NCCL_TESTS_SPLIT=\"DIV 2\"\n"));
    }

    #[test]
    fn two_headers_before_the_ranks() {
        let header = "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n#\n# Using devices\n";
        let list = "#  Rank  0 Group  0 Pid 7 on a device  0 [0x0f] NVIDIA H800\n";
        assert_eq!(findings(&RULE, &format!("{header}{header}{list}")).len(), 1);
        quiet(&RULE, &format!("{header}{list}{header}{list}"));
    }

    #[test]
    fn one_rank_that_was_meant_is_healthy() {
        let header = " nThread 1 nGpus 1 minBytes 8 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 5\n Using devices\n\
                      \x20 Rank  0 Group  0 Pid    127 on w device  0 [0x00] NVIDIA A10G\n";
        quiet(&RULE, &format!("{header}{ROW}"));
        quiet(&RULE, &format!("{header}{ROW}mpirun -n 1 all_reduce_perf -b 8 -e 16M -f 2 -g 1\n"));
    }

    #[test]
    fn a_run_over_two_nodes_is_healthy() {
        let text = "#  Rank  0 Group  0 Pid   1887 on   w1 device  0 [0x8d] NVIDIA H100\n#  Rank  1 Group  0 Pid   1888 on   w0 device  1 [0x91] NVIDIA H100\n\
                    8 2 float sum -1 136.3 0.00 0.00 0 70.85 0.00 0.00 0\nmpirun -np 2 all_reduce_perf\n";
        quiet(&RULE, text);
    }
}

//! Some ranks joined a communicator late, and the others waited.

use evidence::signals::application::COMPILING;
use evidence::{Communicator, Quote, Source};

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "late-ranks",
    title: "ranks waited for others to start",
    severity: Severity::Info,
    role: Role::Consequence,
    needs: &[Source::NcclLog],
    why: "A communicator is created when its last rank joins. While the first ranks waited, the last ones were busy on their own host: \
          loading data or a model, compiling an extension, starting slowly. The wait says nothing about the network.",
    fix: "Check what the late ranks did before: compile extensions once when the image is built (`DS_BUILD_CPU_ADAM=1 pip install \
          deepspeed`, TORCH_EXTENSIONS_DIR on a shared disk), stage data and weights on local disks, start all ranks together.",
    references: &[
        "NCCL src/init.cc (Init timings, 2.22+)",
        "NCCL src/bootstrap.cc (Bootstrap timings, 2.23+)",
    ],
    checks: &[Check::Log(check)],
};

/// Seconds below which a start is as usual.
const USUAL: f64 = 5.0;
/// Seconds from which it is worth a warning.
const LONG: f64 = 60.0;

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let worst = log.case.communicators.iter().filter_map(|it| Some((it, waits(it)?)));
    let worst = worst.max_by(|a, b| a.1.longest().0.total_cmp(&b.1.longest().0));
    let Some((communicator, waits)) = worst.filter(|it| it.1.longest().0 >= USUAL) else {
        return Ok(Vec::new());
    };
    let (longest, quote) = waits.longest();
    // The last rank to join waits for nobody.
    let late: Vec<u32> = waits.0.iter().filter(|it| it.1 < longest / 4.0).map(|it| it.0).collect();
    let whole = communicator.absent().is_empty();
    let who = match (late.is_empty(), whole) {
        (false, _) => format!("; {} joined last", list_of_ranks(&late)),
        (true, false) => "; the late ranks are not in this input".to_owned(),
        (true, true) => String::new(),
    };
    let waited = waits.0.len() - late.len();
    let message = format!(
        "{waited} {} up to {longest:.0} s for others to join communicator {}{who}",
        if waited == 1 { "rank waited" } else { "ranks waited" },
        communicator.name
    );
    let finding = Finding::new(Confidence::Likely, message).seen(quote);
    let finding = late.iter().take(16).fold(finding, Finding::about_rank);
    let compiling = log.case.sightings_of(&COMPILING).next();
    let finding = finding.seen_all(compiling.map(|it| &it.quote));
    Ok(vec![if longest >= LONG { finding.severity(Severity::Warning) } else { finding }])
}

/// For each rank, the seconds it waited and the line that says so.
struct Waits<'a>(Vec<(u32, f64, &'a Quote)>);

impl Waits<'_> {
    fn longest(&self) -> (f64, &Quote) {
        let mut longest = (self.0[0].1, self.0[0].2);
        for (_, seconds, quote) in &self.0 {
            if *seconds > longest.0 {
                longest = (*seconds, quote);
            }
        }
        longest
    }
}

fn waits(communicator: &Communicator) -> Option<Waits<'_>> {
    let all: Vec<_> = communicator
        .members
        .iter()
        .filter_map(|(rank, member)| {
            let (seconds, quote) = member.facts.waited()?;
            Some((*rank, seconds, quote))
        })
        .collect();
    (!all.is_empty()).then_some(Waits(all))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn split(rank: u32, rest: f64) -> String {
        format!(
            "n{rank}:1:1 [0] NCCL INFO ncclCommSplit comm 0x9{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x5 splitCount 1 color 7 key {rank} - Init COMPLETE\n\
             n{rank}:1:1 [0] NCCL INFO Init timings - ncclCommSplit: rank {rank} nranks 2 total 9.0 (kernels 0.00, alloc 0.00, bootstrap 0.00, allgathers 0.01, topo 0.01, graphs 0.00, connections 0.00, rest {rest:.2})\n"
        )
    }

    #[test]
    fn the_one_that_waited_least_joined_last() {
        let it = findings(&RULE, &(split(0, 8.0) + &split(1, 0.0)));
        assert!(
            it[0].message.starts_with("1 rank waited up to 8 s")
                && it[0].message.ends_with("rank 1 joined last"),
            "{it:?}"
        );
    }

    #[test]
    fn a_usual_start_is_quiet() {
        quiet(&RULE, &(split(0, 2.75) + &split(1, 0.0)));
    }
}

//! The verdict in a sentence.

use ::validate::live::{Engine, Run};
use ::validate::{Class, Validation, Verdict};

use super::{Beside, GPUS_UNKNOWN, Gpus, Unfit, be, left_uncompared, misses_gpus, out_of_use};
use crate::hosts::compact;
use crate::text::counted;
use crate::validate::failures::{self, Failure};
use crate::validate::simulated::{headline, named_out, out_list, slow_switch};
use crate::validate::{Accused, bandwidth, class};

pub(super) fn sentence(
    run: &Run,
    verdict: Verdict,
    findings: &[Accused],
    blocked: &[&Unfit],
    failed: &[Failure],
    beside: &Beside,
) -> String {
    let Some(validation) = run.validation() else {
        return if blocked.len() == run.plan().hosts.len() && !blocked.is_empty() {
            match blocked.len() {
                1 => "NO-GO: the machine cannot be used".to_owned(),
                many => format!("NO-GO: none of {many} machines can be used"),
            }
        } else {
            "INCONCLUSIVE: nothing was measured".to_owned()
        };
    };
    let fleet = validation.search().fleet();
    let measured = validation.verdict();
    match verdict {
        Verdict::NoGo if left_uncompared(run, validation, blocked).is_some() => {
            let left = left_uncompared(run, validation, blocked).unwrap_or_default();
            format!("NO-GO: {}; {left}", out_of_use(run, blocked))
        }
        Verdict::NoGo if !blocked.is_empty() => {
            let mut out: Vec<String> = blocked.iter().map(|it| it.host.clone()).collect();
            let rest = validation.rest();
            out.extend(fleet.hosts().filter(|it| !rest.contains(it)).map(|it| fleet.name(it).to_owned()));
            out.sort();
            out.dedup();
            // Without the machines that measurements accuse; those that something else stands against may be among the measured.
            let (together, reached) = match validation.without().rate() {
                Some(rate) => (rest, Some(rate)),
                None => {
                    (fleet.hosts().collect(), validation.all().rate().filter(|_| measured == Verdict::Go))
                }
            };
            let without_them =
                !together.iter().any(|it| blocked.iter().any(|out| out.host == fleet.name(*it)));
            let proof = match reached.map(bandwidth) {
                None => String::new(),
                Some(rate) if without_them => format!("; the others reach {rate} together"),
                Some(rate) => format!("; with them, {} machines reach {rate} together", together.len()),
            };
            let tiers = findings.iter().filter(|it| it.class == class(Class::Tier));
            let out = format!("take out or repair {}", out_list(&named_out(&out, findings)));
            let said: Vec<String> =
                std::iter::once(out).chain(tiers.map(|it| slow_switch(fleet, it))).collect();
            format!("NO-GO: {}{proof}", said.join("; "))
        }
        Verdict::Inconclusive if run.futile().is_some() => format!(
            "INCONCLUSIVE: the collective failed on all machines alike, which is no fault of one of them: {}",
            run.futile().unwrap_or_default()
        ),
        Verdict::Inconclusive if run.next().is_some() && !run.lost().is_empty() => format!(
            "INCONCLUSIVE: not continued, because {} not answer now and took part before",
            be(&run.lost(), "does", "do")
        ),
        Verdict::Inconclusive if run.next().is_some() => {
            let named: Vec<String> = findings.iter().flat_map(|it| it.accused().to_vec()).collect();
            let so_far = if named.is_empty() { String::new() } else { format!("; so far: {}", compact(&named)) };
            format!("INCONCLUSIVE: it ended before there was a verdict{so_far}")
        }
        Verdict::Inconclusive if measured == Verdict::Go && beside.unmeasured.is_some() => {
            let rate =
                validation.all().rate().map(|it| format!(": over TCP the machines reach {}", bandwidth(it)));
            format!("INCONCLUSIVE: the GPUs were not measured{}", rate.unwrap_or_default())
        }
        Verdict::Inconclusive if measured == Verdict::Go && !run.late().is_empty() => {
            let rate = validation.all().rate().map(|it| format!("; the others reach {} together", bandwidth(it)));
            let late = be(&run.late(), "was", "were");
            format!("INCONCLUSIVE: {late} not measured{}", rate.unwrap_or_default())
        }
        Verdict::Inconclusive if measured == Verdict::Go && !failed.is_empty() => {
            let reach = reach_together(validation).map(|it| format!("; {it}")).unwrap_or_default();
            format!("INCONCLUSIVE: {}{reach}", failures::sentence(failed))
        }
        Verdict::Inconclusive if measured == Verdict::Go && misses_gpus(run, beside) => {
            let reach = reach_together(validation).map(|it| format!("; over TCP {it}")).unwrap_or_default();
            format!("INCONCLUSIVE: not known {GPUS_UNKNOWN}{reach}")
        }
        // Those that cannot be used are no part of what the others were measured for.
        Verdict::Inconclusive if !blocked.is_empty() && validation.findings().is_empty() => {
            format!("{}; {}", headline(fleet, verdict, &[], validation), out_of_use(run, blocked))
        }
        Verdict::Inconclusive if findings.is_empty() && fleet.len() == 1 => {
            "INCONCLUSIVE: the machine runs the collective, and nothing says what it should reach (--instance)".to_owned()
        }
        Verdict::Inconclusive
            if findings.is_empty() && fleet.len() == 2 && validation.all().rate().is_some() =>
        {
            format!(
                "INCONCLUSIVE: two machines reach {}, and nothing says what they should reach (--least, --instance)",
                bandwidth(validation.all().rate().unwrap_or(0.0))
            )
        }
        // What was not measured is not fit.
        Verdict::Go if run.chosen().is_some_and(|it| it.engine == Engine::Host) => {
            let said = headline(fleet, verdict, findings, validation);
            let said = said.strip_prefix("GO: ").unwrap_or(&said);
            let rest = match beside.gpus {
                Gpus::Unknown => "; GPUs were not measured",
                Gpus::None => "",
            };
            format!("GO for host memory over TCP: {said}{rest}")
        }
        _ => headline(fleet, verdict, findings, validation),
    }
}

/// `all 4 machines together reach 23.5 MB/s`.
fn reach_together(validation: &Validation) -> Option<String> {
    let machines = counted(validation.search().fleet().len(), "machine");
    validation.all().rate().map(|it| format!("all {machines} together reach {}", bandwidth(it)))
}

//! A validation, launch by launch.

use std::collections::BTreeMap;

use ::validate::simulate::{Model, Spec};
use ::validate::{
    Answer, Culprit, Finding, Fleet, Host, Limits, Pair, Question, Rates, Reference, Sample, Step,
    Validation, Verdict,
};

use super::evidence::nic_name;
use super::{
    Accused, Launch, Loss, Matrix, Validate, action, bandwidth, class, fine_percent, list, percent, word,
};
use crate::expect::shown;
use crate::hosts::compact;
use crate::text::counted;

impl Validate {
    /// Passes a modelled fleet through the validation that real machines pass through.
    pub fn simulated(spec: &Spec, limits: Limits) -> Self {
        let mut model = Model::new(spec.clone());
        let fleet = model.fleet();
        let mut launches = Vec::new();
        let mut least = None;
        let validation = {
            let expected = model.validation(limits).expected();
            model.run(limits, |step, answer| {
                least = expected.all.map(|it| it.0);
                launches.push(launch(&fleet, step, answer, least));
            })
        };
        let source = format!("a model of {} machines, not real ones", fleet.len());
        Self::of(&validation, source, launches)
    }

    /// The answer of a validation that ended.
    fn of(validation: &Validation, source: String, launches: Vec<Launch>) -> Self {
        let fleet = validation.search().fleet();
        let verdict = validation.verdict();
        let mut findings: Vec<Accused> =
            validation.findings().iter().map(|it| accused(fleet, it, &[], Vec::new())).collect();
        super::alike(&mut findings, fleet.len());
        let samples = validation.search().samples();
        let mut not_known = open(fleet, &validation.open(), samples, validation.split().as_ref());
        not_known.extend(super::live::scattered_nics(validation));
        not_known.extend(doubtful_nics(validation, &[]));
        let reference = validation.search().judgement().reference.filter(|_| !samples.is_empty());
        let matrix = reference.map(|it| Matrix::of(fleet, samples, &it, "pairs".to_owned()));
        Self {
            schema: "plumb.validate/1",
            verdict: word(verdict),
            text: headline(fleet, verdict, &findings, validation),
            source,
            hosts: fleet.names().to_vec(),
            findings,
            splits: validation.split().map(|it| super::live::split(fleet, &it)).into_iter().collect(),
            stages: Vec::new(),
            next: None,
            notes: Vec::new(),
            launches,
            tests: Vec::new(),
            matrix,
            not_known,
            results: None,
        }
    }
}

pub(super) fn headline(
    fleet: &Fleet,
    verdict: Verdict,
    findings: &[Accused],
    validation: &Validation,
) -> String {
    let all = fleet.len();
    match verdict {
        Verdict::Go => match validation.all().rate() {
            Some(rate) => format!("GO: all {} together reach {}", counted(all, "machine"), bandwidth(rate)),
            None => "GO: the machine reaches what is normal".to_owned(),
        },
        Verdict::NoGo => {
            let out = named_out(&all_out(fleet, validation), findings);
            if let (true, Some(it)) = (out.is_empty(), validation.split()) {
                return format!("NO-GO: {}", super::live::split(fleet, &it).sentence());
            }
            let tiers: Vec<&Accused> = findings.iter().filter(|it| it.class == "tier").collect();
            let switches: Vec<String> = tiers.iter().map(|it| slow_switch(fleet, it)).collect();
            if !tiers.is_empty() && tiers.len() == findings.len() {
                return format!("NO-GO: {}; no machine is to be taken out", switches.join(", "));
            }
            let out = [vec![format!("take out {}", out_list(&out))], switches].concat().join("; ");
            let others = match tiers.iter().filter(|it| it.nic.is_none()).count() {
                0 => "the others".to_owned(),
                _ => format!("{} of the others", validation.outside().len()),
            };
            let proof = match validation.without().rate() {
                Some(rate) => format!("; {others} reach {} together", bandwidth(rate)),
                None => String::new(),
            };
            format!("NO-GO: {out}{proof}")
        }
        Verdict::Inconclusive if findings.is_empty() => format!("INCONCLUSIVE: {}", unexplained(validation)),
        Verdict::Inconclusive => {
            let names: Vec<String> = findings.iter().flat_map(|it| it.accused().to_vec()).collect();
            let explain = if names.len() == 1 { "explains" } else { "explain" };
            format!("INCONCLUSIVE: {} {explain} only a part of it", list(&names, 8))
        }
    }
}

/// Single NICs that were slow each time, too few times to tell.
pub(super) fn doubtful_nics(validation: &Validation, nics: &[String]) -> Option<String> {
    let fleet = validation.search().fleet();
    let hosts: Vec<String> =
        validation.doubtful_nics().into_iter().map(|it| fleet.name(it).to_owned()).collect();
    let rails = validation.doubtful_rails();
    let name = |it: usize| nic_name(it, nics.get(it).map(String::as_str));
    if let ([one, other], [_, ..]) = (fleet.names(), &rails[..]) {
        let all: Vec<String> = rails.into_iter().map(name).collect();
        return Some(format!(
            "whose {} is slow, that of {one} or of {other}: a third machine would tell",
            all.join(" and ")
        ));
    }
    let mut what = Vec::new();
    if !hosts.is_empty() {
        what.push(format!("a NIC of {}", compact(&hosts)));
    }
    what.extend(rails.into_iter().map(|it| format!("{} of all machines", name(it))));
    (!what.is_empty()).then(|| {
        format!("whether {} is slow: it was, each time, too few times to exclude chance", what.join(", and "))
    })
}

/// Which rail or uplink is slow; where there are two switches, pairs across do not tell which of the two it is.
pub(super) fn slow_switch(fleet: &Fleet, tier: &Accused) -> String {
    if let Some(nic) = tier.nic_name() {
        return format!("{nic} is slow on all machines: check the switches of that rail");
    }
    match beside(fleet, &tier.hosts) {
        Some(other) => format!("the way between {} and {} is slow", compact(&tier.hosts), compact(&other)),
        None => format!("the switch of {} is slow to the outside", compact(&tier.hosts)),
    }
}

/// The machines of the other switch, where there are two.
fn beside(fleet: &Fleet, switch: &[String]) -> Option<Vec<String>> {
    let others: Vec<Host> =
        fleet.hosts().filter(|it| !switch.iter().any(|own| own == fleet.name(*it))).collect();
    let group = fleet.group(*others.first()?);
    let one = others.iter().all(|it| fleet.group(*it) == group);
    one.then(|| others.into_iter().map(|it| fleet.name(it).to_owned()).collect())
}

/// What was seen, where no part explains it.
fn unexplained(validation: &Validation) -> String {
    let fleet = validation.search().fleet();
    let samples = validation.search().samples();
    let reference = Reference::of_pairs(samples);
    let mut slow: BTreeMap<Pair, (usize, usize)> = BTreeMap::new();
    let fails = |pair: &Pair| samples.iter().all(|it| it.pair != *pair || it.rate.is_none());
    for it in samples {
        let count = slow.entry(it.pair).or_default();
        count.0 += usize::from(reference.is_none_or(|known| known.is_slow(it.rate.map(|it| it.0))));
        count.1 += 1;
    }
    // A pair that is slow every time, among so few machines that neither of the two is normal with enough others.
    let odd: Vec<&Pair> = slow.iter().filter(|(_, (slow, of))| slow == of).map(|it| it.0).collect();
    let always: Vec<String> = odd.iter().map(|it| named(fleet, **it)).collect();
    let one = always.len() == 1;
    let (be, word) = match (odd.iter().any(|it| fails(it)), odd.iter().all(|it| fails(it))) {
        (_, true) => ("", if one { "fails" } else { "fail" }),
        (true, false) => (if one { "is " } else { "are " }, "slow or failed"),
        (false, false) => (if one { "is " } else { "are " }, "slow"),
    };
    let enough =
        validation.all().rate().zip(validation.needed()).is_some_and(|(rate, needed)| rate >= needed);
    if enough && validation.failed_together() == 0 && validation.scatters() {
        let rates = || samples.iter().filter_map(|it| it.rate).map(|it| it.0);
        let range = rates().reduce(f64::min).zip(rates().reduce(f64::max));
        let pairs =
            range.map(|(low, high)| format!(": pairs reach {} to {}", bandwidth(low), bandwidth(high)));
        return format!("the measurements scatter too much to tell{}", pairs.unwrap_or_default());
    }
    if let (true, Some(what)) = (enough, doubtful_nics(validation, &[])) {
        return format!("not known {what}");
    }
    let every = reference.zip(validation.needed()).filter(|(known, needed)| known.normal < *needed);
    let what = if validation.failed_together() > 0 {
        "a launch of all machines failed"
    } else if validation.contradicts() {
        "a launch of all machines was too slow"
    } else if validation.keeps_losing() && fleet.len() < 4 {
        "a percent and more of the segments is sent again in most launches of all, and so few machines do not tell whose fault it is"
    } else if validation.keeps_losing() {
        "one machine sends far more again than the others in most launches of all"
    } else if enough {
        "the measurements scatter too much to tell"
    } else {
        "all together are too slow"
    };
    match (every, &always[..]) {
        (Some((known, needed)), _) if always.is_empty() => format!(
            "{what}: pairs reach {} too, and {} are needed",
            bandwidth(known.normal),
            bandwidth(needed)
        ),
        (_, []) => format!("{what}, and no pair of machines explains it"),
        (_, pairs) if fleet.len() <= FEW => format!(
            "{what}, and {} {be}{word} every time: so few machines do not tell which of them it is",
            list(pairs, 3)
        ),
        (_, pairs) => format!("{what}; {} {be}{word}, which does not tell the machine", list(pairs, 3)),
    }
}

/// Machines that do not tell the one from the other.
const FEW: usize = 4;

/// The names to take out, the whole list: that is what it is for.
pub(super) fn out_list(out: &[String]) -> String {
    if out.len() > SHORT { compact(out) } else { out.join(", ") }
}

/// Names that are listed one by one.
const SHORT: usize = 4;

fn all_out(fleet: &Fleet, validation: &Validation) -> Vec<String> {
    let rest = validation.rest();
    fleet.hosts().filter(|it| !rest.contains(it)).map(|it| fleet.name(it).to_owned()).collect()
}

/// Machines to take out; after them the links of which either end may leave.
pub(super) fn named_out(out: &[String], findings: &[Accused]) -> Vec<String> {
    let link = |host: &&String| {
        let only_links = findings.iter().all(|it| it.class == "link" || !it.accuses(host));
        let others: Vec<&str> = findings
            .iter()
            .filter(|it| it.class == "link" && it.hosts.contains(host))
            .flat_map(|it| it.hosts.iter().filter(|it| it != host))
            .map(String::as_str)
            .collect();
        match &others[..] {
            _ if !only_links => None,
            [] => None,
            [other] => Some(format!("one of {host} and {other} (the link between them is bad)")),
            several => Some(format!("{host} (its links to {} are bad)", several.join(" and "))),
        }
    };
    let sure = out.iter().filter(|it| link(it).is_none()).cloned();
    sure.chain(out.iter().filter_map(|it| link(&it))).collect()
}

/// What is not told, in words; groups of machines explain what is slow between them.
pub(super) fn open(
    fleet: &Fleet,
    questions: &[Question],
    samples: &[Sample],
    split: Option<&::validate::Split>,
) -> Vec<String> {
    let group = |host: Host| split.and_then(|it| it.groups.iter().position(|it| it.contains(&host)));
    let explained = |question: &&Question| match question {
        Question::Host(host) => group(*host).is_some(),
        Question::Pair(pair) => {
            let [one, other] = pair.hosts().map(group);
            one.is_some() && other.is_some() && one != other
        }
    };
    let mut hosts = Vec::new();
    let (mut pairs, mut failed) = (Vec::new(), Vec::new());
    for question in questions.iter().filter(|it| !explained(it)) {
        match question {
            Question::Host(host) => hosts.push(fleet.name(*host).to_owned()),
            Question::Pair(pair) => {
                let fails = samples.iter().any(|it| it.pair == *pair && it.rate.is_none());
                let list = if fails { &mut failed } else { &mut pairs };
                list.push(named(fleet, *pair));
            }
        }
    }
    let mut all = Vec::new();
    if !hosts.is_empty() {
        all.push(format!(
            "whether {} slow: not measured often enough against machines that are normal",
            is_are(&hosts)
        ));
    }
    if !pairs.is_empty() {
        let were = if pairs.len() == 1 { "was" } else { "were" };
        all.push(format!("why {} {were} slow: not measured again", list(&pairs, 2)));
    }
    if !failed.is_empty() {
        all.push(format!("why {} failed: not measured again", list(&failed, 2)));
    }
    all
}

fn is_are(names: &[String]) -> String {
    format!("{} {}", list(names, 8), if names.len() == 1 { "is" } else { "are" })
}

fn named(fleet: &Fleet, pair: Pair) -> String {
    pair.hosts().map(|it| fleet.name(it)).join(" - ")
}

/// What to do about a NIC that is slow on all machines.
const RAIL: &str = "check the switches of this rail: rate, errors and drops of their ports and uplinks; over TCP, `--net` leaves out a NIC that is meant to be slower";

/// A finding with its measurements; `nics` are the names of NICs, where they are known.
pub(super) fn accused(fleet: &Fleet, finding: &Finding, nics: &[String], tests: Vec<String>) -> Accused {
    let hosts: Vec<String> = match finding.culprit {
        Culprit::Host(host) | Culprit::Nic(host, _) => vec![fleet.name(host).to_owned()],
        Culprit::Link(pair) => pair.hosts().map(|it| fleet.name(it).to_owned()).to_vec(),
        Culprit::Group(group) => fleet
            .hosts()
            .filter(|it| fleet.group(*it) == Some(group))
            .map(|it| fleet.name(it).to_owned())
            .collect(),
        Culprit::Rail(_) => fleet.names().to_vec(),
    };
    let nic = match finding.culprit {
        Culprit::Nic(_, nic) | Culprit::Rail(nic) => Some(nic),
        _ => None,
    };
    let device = nic.and_then(|it| nics.get(it)).cloned();
    let name = |nic: usize| nic_name(nic, device.as_deref());
    let failed = finding.failed * 2 > finding.of;
    let loss = finding.loss.map(|it| Loss { to: it.to, from: it.from, others: it.others });
    let what = match finding.culprit {
        _ if let Some(loss) = loss => lost(finding, loss),
        Culprit::Host(_) if finding.partners == 0 && failed => "fails by itself".to_owned(),
        Culprit::Host(_) if finding.partners == 0 => {
            format!("{} of what the others reach, by itself", percent(finding.share))
        }
        Culprit::Host(_) if failed => {
            format!(
                "failed with {} of {} that are normal with others",
                finding.failed,
                counted(finding.of, "machine")
            )
        }
        Culprit::Host(_) if finding.failed > 0 => {
            let slow = match finding.slow.saturating_sub(finding.failed) {
                0 => String::new(),
                slow => format!(", slow in {slow} more"),
            };
            format!(
                "failed in {} of {} with machines that run with others{slow}; what ended reached {} of what is normal",
                finding.failed,
                counted(finding.of, "measurement"),
                percent(finding.share)
            )
        }
        Culprit::Host(_) => format!(
            "{} of what is normal; slow in {} of {} with machines that are normal with others",
            percent(finding.share),
            finding.slow,
            counted(finding.of, "measurement")
        ),
        Culprit::Nic(_, nic) if finding.failed > 0 => format!("{} fails", name(nic)),
        Culprit::Nic(_, nic) => {
            format!("{} reaches {} of what the others do", name(nic), percent(finding.share))
        }
        Culprit::Link(_) if failed => {
            format!("failed in {} of {} measurements; both run with others", finding.failed, finding.of)
        }
        Culprit::Link(_) => {
            format!(
                "{} of what is normal, in {} of {} measurements; both are normal with others",
                percent(finding.share),
                finding.slow,
                finding.of
            )
        }
        Culprit::Rail(nic) if failed => format!("{} of each fails; the other NICs do not", name(nic)),
        Culprit::Rail(nic) => format!(
            "{} of each reaches {} of what the other NICs do, in {} of {} measurements",
            name(nic),
            percent(finding.share),
            finding.slow,
            finding.of
        ),
        Culprit::Group(group) => {
            format!("switch {group}: {} of what is normal across it, normal inside", percent(finding.share))
        }
    };
    let remark = match finding.culprit {
        Culprit::Group(_) if beside(fleet, &hosts).is_some() => {
            Some("there are two switches: pairs across do not tell which of the two uplinks is slow")
        }
        _ if !finding.class_is_sure() && !failed => {
            Some("too few measurements to tell a machine that is always slow from one that is slow at times")
        }
        _ => None,
    };
    Accused {
        class: class(finding.class),
        hosts,
        rule: None,
        references: Vec::new(),
        nic,
        device,
        share: finding.share,
        slow: finding.slow,
        of: finding.of,
        failed: finding.failed,
        chance: finding.chance,
        tests,
        text: what,
        remark: remark.map(str::to_owned),
        loss,
        action: match finding.culprit {
            Culprit::Rail(_) => RAIL,
            _ => action(finding.class, failed, loss.is_some()),
        }
        .to_owned(),
    }
}

/// What is sent again, and by whom.
fn lost(finding: &Finding, loss: Loss) -> String {
    let Loss { to, from, others } = loss;
    let direction = match finding.culprit {
        Culprit::Link(_) => format!("loses packets: {} of the segments between the two", fine_percent(to)),
        // The side that loses.
        _ if to > 2.0 * from => {
            format!("loses packets that it receives: {} of the segments sent to it", fine_percent(to))
        }
        _ if from > 2.0 * to => {
            format!("loses packets that it sends: {} of its segments", fine_percent(from))
        }
        _ => format!(
            "loses packets: {} of the segments sent to it and {} of its own",
            fine_percent(to),
            fine_percent(from)
        ),
    };
    let often = match finding.culprit {
        Culprit::Link(_) => "both are normal with others".to_owned(),
        _ => format!(
            "in {} of {} measurements, with {} partners that lose nothing with others",
            finding.slow, finding.of, finding.partners
        ),
    };
    format!("{direction} are sent again, {} elsewhere; {often}", fine_percent(others))
}

/// Where a machine sends so much again, a launch says so.
const MUCH: f64 = 0.001;

pub(super) fn launch(fleet: &Fleet, step: &Step, answer: &Answer, least: Option<f64>) -> Launch {
    let rate = |it: Option<f64>| it.map_or_else(|| "failed".to_owned(), bandwidth);
    let enough = |it: Option<f64>| it.is_some_and(|it| least.is_none_or(|least| it >= least));
    let beside = least
        .map(|it| format!(", {} needed", if it < 1.0 { bandwidth(it) } else { shown(it) }))
        .unwrap_or_default();
    let range = |rates: &[Option<f64>]| {
        let mut known: Vec<f64> = rates.iter().copied().flatten().collect();
        known.sort_by(f64::total_cmp);
        let failed = rates.len() - known.len();
        let range = match (known.first(), known.last()) {
            (Some(only), Some(_)) if known.len() == 1 => bandwidth(*only),
            (Some(low), Some(high)) if *high < 1.0 => {
                format!("{} to {} MB/s", shown(1e3 * low), shown(1e3 * high))
            }
            (Some(low), Some(high)) => format!("{} to {} GB/s", shown(*low), shown(*high)),
            _ => String::new(),
        };
        if failed == 0 {
            range
        } else {
            format!("{range}{}{failed} failed", if range.is_empty() { "" } else { ", " })
        }
    };
    let (stage, what, mut result, ok) = match (step, &answer.rates) {
        (Step::Local(hosts), Rates::Each(rates)) => (
            "local",
            match hosts[..] {
                [one] => format!("{} by itself", fleet.name(one)),
                _ => format!("each of {} machines by itself", hosts.len()),
            },
            range(rates),
            rates.iter().all(Option::is_some),
        ),
        (Step::Smoke(pair), Rates::One(it)) => ("smoke", named(fleet, *pair), rate(*it), it.is_some()),
        (Step::Scale(hosts), Rates::One(it)) => {
            ("scale", format!("{} together", counted(hosts.len(), "machine")), rate(*it), it.is_some())
        }
        (Step::All(hosts), Rates::One(it)) => (
            "all",
            format!("{} together", counted(hosts.len(), "machine")),
            format!("{}{beside}", rate(*it)),
            enough(*it),
        ),
        (Step::Without(hosts), Rates::One(it)) => (
            "without",
            format!("{}, without those named", counted(hosts.len(), "machine")),
            format!("{}{beside}", rate(*it)),
            enough(*it),
        ),
        (Step::Pairs(pairs), Rates::Each(rates)) => {
            let what = match &pairs[..] {
                [pair] => named(fleet, *pair),
                _ => format!("{} pairs at the same time", pairs.len()),
            };
            ("pairs", what, range(rates), true)
        }
        (Step::Nics(pairs), Rates::Nics { each, pairs: whole }) => {
            let rates: Vec<Option<f64>> = each.iter().map(|it| it.rate).collect();
            let what = format!("each NIC of {}", counted(pairs.len(), "pair"));
            ("nics", what, format!("{}, together {}", range(&rates), range(whole)), true)
        }
        (_, _) => ("failed", String::new(), "failed".to_owned(), false),
    };
    if let Some(share) = answer.most_resent().filter(|it| *it >= MUCH) {
        result.push_str(&format!("; up to {} sent again", fine_percent(share)));
    }
    Launch { stage, what, result, ok, failures: Vec::new() }
}

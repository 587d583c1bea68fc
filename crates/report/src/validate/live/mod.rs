//! A validation of real machines: the verdict of each stage, who is not fit and why, and what to do next.

mod next;
mod sentence;
mod stages;

use ::validate::live::{Engine, Launch as Launched, Run};
use ::validate::{Class, Fleet, Host, Step, Validation, Verdict};

use self::next::next;
pub use self::next::quoted;
use self::sentence::sentence;
use self::stages::stages;
use super::failures::{self, Failure};
use super::simulated::{accused, doubtful_nics, launch, open};
use super::{Accused, Launch, Matrix, Split, Validate, bandwidth, word};
use crate::hosts::compact;
use crate::text::counted;

/// A clock this far off is worth a word: lines of two logs can no longer be put in order.
const CLOCK: f64 = 1.0;

/// A machine that is not as it should be, before anything was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The machine.
    pub host: String,
    /// The rule that says so.
    pub rule: Option<String>,
    /// What was found, in a sentence.
    pub text: String,
    /// What to do.
    pub action: String,
    /// Whether no job should run there before that is done; otherwise it is a note.
    pub blocks: bool,
}

/// What is known about GPUs where host memory was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gpus {
    /// Nothing says whether there should be some.
    #[default]
    Unknown,
    /// There should be none (`--gpus 0`).
    None,
}

/// What is known besides the measurements.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// What `plumb node` and its comparison say.
    pub nodes: Vec<Unfit>,
    /// What the measurements leave out, in a sentence: GPUs that are there and could not be used.
    pub unmeasured: Option<String>,
    /// Whether machines without a GPU are as they should be: none that was asked should have one.
    pub gpus: Gpus,
    /// Why it ended before there was a verdict: `interrupted`.
    pub ended: Option<String>,
    /// The results folder.
    pub results: Option<String>,
}

impl Validate {
    /// The answer of a validation, finished or not.
    pub fn live(run: &Run, beside: &Beside) -> Self {
        let plan = run.plan();
        let unreachable = unreachable(run);
        let blocked: Vec<&Unfit> = unreachable.iter().chain(&beside.nodes).filter(|it| it.blocks).collect();
        let mut findings: Vec<Accused> = blocked.iter().map(|it| unfit(it)).collect();
        let mut notes: Vec<String> = versions(run).into_iter().chain(clocks(run)).collect();
        notes.extend(
            beside.nodes.iter().filter(|it| !it.blocks).map(|it| format!("{}: {}", it.host, it.text)),
        );
        let (mut not_known, mut splits) = (Vec::new(), Vec::new());
        let (mut verdict, mut matrix, mut failed) = (Verdict::Inconclusive, None, Vec::new());
        if let Some(validation) = run.validation() {
            let fleet = validation.search().fleet();
            let nics = run.chosen().map_or(&[][..], |it| &it.nics);
            let same = |one: &Accused, other: &Accused| {
                one.hosts == other.hosts && one.class == other.class && one.nic == other.nic
            };
            for it in validation.findings() {
                let mut it = accused(fleet, &it, nics, Vec::new());
                explain_failure(run, &mut it);
                // One entry per machine: what it says about itself explains what was measured.
                match findings.iter_mut().find(|known| same(known, &it)) {
                    Some(known) => known.text = format!("{}; {}", known.text, it.text),
                    None => findings.push(it),
                }
            }
            let split = validation.split();
            not_known = open(fleet, &validation.open(), validation.search().samples(), split.as_ref());
            verdict = validation.verdict();
            // Machines that do not take part were not measured: at best the others are fit.
            if verdict == Verdict::Go && !blocked.is_empty() {
                verdict = Verdict::NoGo;
            }
            if let [_, ..] = &run.late()[..] {
                not_known.push(format!(
                    "whether {} fit: no answer when this validation began, so not measured",
                    be(&run.late(), "is", "are")
                ));
                verdict = if verdict == Verdict::Go { Verdict::Inconclusive } else { verdict };
            }
            let samples = validation.search().samples();
            let reference = validation.search().judgement().reference.filter(|_| !samples.is_empty());
            matrix = reference.map(|it| Matrix::of(fleet, samples, &it, "pairs".to_owned()));
            not_known.extend(unexplained_loss(validation));
            // What fails everywhere is said once.
            failed = if run.futile().is_none() { failures::unexplained(run, &findings) } else { Vec::new() };
            not_known.extend(failures::sentences(&failed).into_iter().map(|it| format!("why {it}")));
            // What failed once may fail again in the middle of a training.
            if verdict == Verdict::Go && !failed.is_empty() {
                verdict = Verdict::Inconclusive;
            }
            if verdict == Verdict::Inconclusive && left_uncompared(run, validation, &blocked).is_some() {
                verdict = Verdict::NoGo;
            }
            not_known.extend(doubtful_nics(validation, nics));
            splits.extend(split.map(|it| self::split(fleet, &it)));
            if let (true, Some(left)) = (verdict != Verdict::Inconclusive, unmeasured_links(run)) {
                not_known.push(left);
            }
            if let (true, Some(left)) = (verdict != Verdict::Inconclusive, unmeasured_nics(run)) {
                not_known.push(left);
            }
        } else if !blocked.is_empty() && blocked.len() == plan.hosts.len() {
            verdict = Verdict::NoGo;
        }
        if let Some(why) = run.futile() {
            // Whoever fails where all fail is not accused.
            findings.truncate(blocked.len());
            not_known.push(format!("what these machines reach: the collective failed everywhere ({why})"));
            verdict = Verdict::Inconclusive;
        }
        if let Some(what) = &beside.unmeasured {
            not_known.insert(0, what.clone());
            verdict = if verdict == Verdict::Go { Verdict::Inconclusive } else { verdict };
        }
        if verdict != Verdict::Inconclusive && misses_gpus(run, beside) {
            let unknown = format!("{GPUS_UNKNOWN}: none was seen, and nothing says how many there should be");
            not_known.insert(0, unknown);
            verdict = if verdict == Verdict::Go { Verdict::Inconclusive } else { verdict };
        }
        if let Some(why) = &beside.ended {
            not_known.insert(0, format!("what would have been measured next: {why}"));
        } else if run.is_late() && run.next().is_some() {
            not_known.insert(
                0,
                format!("what would have been measured next: the budget of {} is spent", time(plan.budget_s)),
            );
        }
        let launches: Vec<Launch> = run.launches().iter().map(|it| launched(run, it)).collect();
        let mut text = sentence(run, verdict, &findings, &blocked, &failed, beside);
        let mut next = next(run, verdict, &blocked, beside);
        // Those that are left are no proof yet.
        if verdict == Verdict::NoGo && !failed.is_empty() {
            text.push_str(&format!("; {}", failures::sentence(&failed)));
            next = None;
        }
        Self {
            schema: "plumb.validate/1",
            verdict: word(verdict),
            text,
            source: source(run),
            hosts: run.chosen().map_or_else(|| plan.hosts.clone(), |it| it.hosts.clone()),
            stages: stages(run, beside, &unreachable, &failed),
            next,
            findings,
            notes,
            splits,
            launches,
            tests: Vec::new(),
            matrix,
            not_known,
            results: beside.results.clone(),
        }
    }
}

/// A launch whose measurements have ended, in a line.
pub fn launched(run: &Run, it: &Launched) -> Launch {
    let Some(validation) = run.validation() else {
        let (what, result) = (String::new(), String::new());
        return Launch { stage: it.step.name(), what, result, ok: false, failures: Vec::new() };
    };
    let fleet = validation.search().fleet();
    let needed = match it.step {
        // It does not reach as many machines: only its failure counts.
        Step::Scale(_) => None,
        _ => validation.needed(),
    };
    let Some(answer) = run.answer(it) else {
        let (what, result) = (String::new(), "not ended".to_owned());
        return Launch { stage: it.step.name(), what, result, ok: false, failures: Vec::new() };
    };
    let failures = failures::of_launch(run, it).iter().map(Failure::sentence).collect();
    Launch { failures, ..launch(fleet, &it.step, &answer, needed) }
}

/// Machines that did not answer.
fn unreachable(run: &Run) -> Vec<Unfit> {
    let failed = |host: &String| {
        let it = run.reached().get(host)?.failed.as_ref()?;
        Some(Unfit {
            host: host.clone(),
            rule: None,
            text: it.text.clone(),
            action: it.action.clone(),
            blocks: true,
        })
    };
    run.plan().hosts.iter().filter_map(failed).collect()
}

fn unfit(it: &Unfit) -> Accused {
    Accused {
        class: super::class(Class::Node),
        hosts: vec![it.host.clone()],
        rule: it.rule.clone(),
        references: it
            .rule
            .as_deref()
            .and_then(rules::find)
            .map(|it| it.references.iter().map(|it| (*it).to_owned()).collect())
            .unwrap_or_default(),
        nic: None,
        device: None,
        share: 0.0,
        slow: 0,
        of: 0,
        failed: 0,
        chance: 0.0,
        loss: None,
        tests: Vec::new(),
        text: it.text.clone(),
        remark: None,
        action: it.action.clone(),
    }
}

/// Says how the measurements of an accused machine failed: in the last words that name it, otherwise in those of most.
fn explain_failure(run: &Run, accused: &mut Accused) {
    let [host] = &accused.hosts[..] else { return };
    if accused.failed == 0 {
        return;
    }
    // `h1` is not part of `h12`.
    let part = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '.' || it == '_';
    let about = |text: &&str| text.split(|it| !part(it)).any(|it| it == host);
    let mut reasons: Vec<&str> = Vec::new();
    for launch in run.launches() {
        for item in launch.items.iter().filter(|it| run.names(it).contains(host)) {
            reasons.extend(run.measurement(launch.number, item).and_then(|it| it.failed.as_deref()));
        }
    }
    let often = |reason: &&&str| reasons.iter().filter(|it| it == reason).count();
    let reason = reasons.iter().rev().find(|it| about(it)).or_else(|| reasons.iter().max_by_key(often));
    let Some(reason) = reason else { return };
    accused.text = format!("{} ({reason})", accused.text);
    if reason.contains(NOT_RESOLVED) {
        RESOLVE.clone_into(&mut accused.action);
    } else if NOT_CONNECTED.iter().any(|it| reason.contains(it)) {
        CONNECT.clone_into(&mut accused.action);
    }
}

/// How ranks say that a name has no address there.
const NOT_RESOLVED: &str = "does not resolve";
const RESOLVE: &str = "add the names of these machines to DNS, or to /etc/hosts on each of them";

/// How ranks say that they did not find each other.
const NOT_CONNECTED: &[&str] = &["did not join", "cannot connect", "rendezvous"];
const CONNECT: &str = "check the firewall between this machine and the others, in both directions: ranks connect to each other over TCP on any port above 1023, not only by ssh; and that its name and address are those that the others reach";

/// Machines with another plumb.
fn versions(run: &Run) -> Vec<String> {
    let own = &run.plan().version;
    run.reached()
        .values()
        .filter_map(|it| {
            let other = it.version.as_ref().filter(|it| !it.ends_with(own.as_str()))?;
            Some(format!("{}: {other} is installed there; plumb {own} was copied and used", it.host))
        })
        .collect()
}

fn clocks(run: &Run) -> Vec<String> {
    let off = run.reached().values().filter_map(|it| {
        let clock = it.clock_s.filter(|it| it.abs() >= CLOCK)?;
        let side = if clock > 0.0 { "ahead" } else { "behind" };
        Some(format!(
            "{}: its clock is {:.1} s {side}; logs of its ranks do not line up with others",
            it.host,
            clock.abs()
        ))
    });
    off.collect()
}

/// Losses of all together that no pair shows.
fn unexplained_loss(validation: &Validation) -> Option<String> {
    let found = validation.findings().iter().any(|it| it.loss.is_some());
    (validation.loses_together() && !found && validation.next().is_none()).then(|| {
        "where packets are lost: with all machines together some is sent again, and no pair of machines loses packets by itself"
            .to_owned()
    })
}

/// How the sentence begins that asks whether machines should have GPUs.
const GPUS_UNKNOWN: &str = "whether these machines should have GPUs (--gpus 0 if they have none)";

/// Whether host memory was measured because no GPU was seen, while nothing says that there is none: a machine whose GPUs have all left
/// the bus looks like one that never had any.
fn misses_gpus(run: &Run, beside: &Beside) -> bool {
    let unasked =
        run.chosen().is_some_and(|it| it.engine == Engine::Host) && run.plan().asked.engine.is_none();
    unasked && beside.gpus == Gpus::Unknown && beside.unmeasured.is_none()
}

/// Machines that cannot be used, in a few words: `h2 does not answer, h5 is not fit`.
fn out_of_use(run: &Run, blocked: &[&Unfit]) -> String {
    let silent = |host: &str| run.reached().get(host).is_some_and(|it| it.failed.is_some());
    let mut names: Vec<&str> = blocked.iter().map(|it| it.host.as_str()).collect();
    names.dedup();
    let (silent, unfit): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|it| silent(it));
    let mut parts = Vec::new();
    if !silent.is_empty() {
        parts.push(be(&silent, "does not answer", "do not answer"));
    }
    if !unfit.is_empty() {
        parts.push(be(&unfit, "is not as it should be", "are not as they should be"));
    }
    parts.join(", ")
}

/// What is said of the one or two machines that are left when the others cannot be used: they work, and have nobody to be compared with.
fn left_uncompared(run: &Run, validation: &Validation, blocked: &[&Unfit]) -> Option<String> {
    let over =
        run.next().is_none() && run.lost().is_empty() && run.late().is_empty() && run.futile().is_none();
    let judged = !validation.findings().is_empty() || validation.verdict() == Verdict::Go;
    if blocked.is_empty() || !over || judged {
        return None;
    }
    match validation.search().fleet().len() {
        1 => Some("one machine is left and was not compared".to_owned()),
        2 => {
            let rate = bandwidth(validation.all().rate()?);
            Some(format!("two machines are left and reach {rate}, which was not compared"))
        }
        _ => None,
    }
}

/// Groups that are slow across, with the names of their machines.
pub(super) fn split(fleet: &Fleet, it: &::validate::Split) -> Split {
    let names = |group: &Vec<Host>| group.iter().map(|it| fleet.name(*it).to_owned()).collect();
    Split {
        test: "pairs".to_owned(),
        groups: it.groups.iter().map(names).collect(),
        share: it.share,
        across: it.across,
    }
}

/// NICs that were not measured one by one, of machines with several: one at half rate hardly shows in what a machine reaches.
fn unmeasured_nics(run: &Run) -> Option<String> {
    let validation = run.validation()?;
    let several = run.chosen().is_some_and(|it| it.nics.len() > 1);
    let missing = validation.nics_not_measured().len();
    let of = match missing {
        0 => return scattered_nics(validation),
        it if it == validation.search().fleet().len() => "NICs were".to_owned(),
        it => format!("the NICs of {} were", counted(it, "machine")),
    };
    let why = if validation.scope().every_nic { "" } else { ": that takes more than half of the time left" };
    several.then(|| format!("whether a single NIC is slow: {of} not measured one by one{why}"))
}

/// NICs that were measured one by one and scatter too far to name one.
pub(super) fn scattered_nics(validation: &Validation) -> Option<String> {
    let spread = validation.nics_scatter()?;
    Some(format!(
        "whether a single NIC is slow: measured alone, NICs scatter by {}, too far to name one",
        super::percent(spread)
    ))
}

/// What the rounds left out.
fn unmeasured_links(run: &Run) -> Option<String> {
    let validation = run.validation()?;
    let many = validation.search().fleet().len();
    let all = many * many.saturating_sub(1) / 2;
    let mut pairs: Vec<_> = validation.search().samples().iter().map(|it| it.pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    (pairs.len() < all && many > 2).then(|| {
        format!("whether a single link is slow: {} of {all} pairs were measured (--links all)", pairs.len())
    })
}

fn source(run: &Run) -> String {
    let engine = match run.chosen().map(|it| it.engine) {
        Some(Engine::Nccl) => ", NCCL",
        Some(Engine::Host) => ", host memory over TCP",
        None => "",
    };
    let machines = counted(run.plan().hosts.len(), "machine");
    format!("{machines} over {}{engine}; {} of work", run.plan().way, time(whole(run.elapsed())))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a validation")]
fn whole(seconds: f64) -> u64 {
    seconds.max(0.0).round() as u64
}

/// `1 min 20 s`.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Names, and a word after them for one or several.
fn be(names: &[&str], one: &str, several: &str) -> String {
    format!("{} {}", compact(names), if names.len() == 1 { one } else { several })
}

/// Machines that are to be taken out.
fn out_of_fleet(validation: &Validation) -> Vec<Host> {
    let rest = validation.rest();
    validation.search().fleet().hosts().filter(|it| !rest.contains(it)).collect()
}

//! What a log does not say: the values that explain most of its lines count, and a note says so.

use evidence::decided::DecidedKind;
use fabric::Machine;
use fabric::machine::Nic;
use fabric::settings::Network;

use super::{Compared, Logged, Question, lines};

/// Generations whose decisions differ, by their compute capability.
const COMPUTE: [u32; 6] = [70, 80, 89, 90, 100, 120];

/// Latencies that plugins declare, in microseconds: for a log without the tuning table, from which it can be read.
const LATENCIES: [f64; 3] = [0.0, 35.0, 150.0];

/// A comparison, and what it rests on.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) compared: Compared,
    /// Variables that the log does not show.
    pub(super) settings: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Question {
    /// The comparison.
    pub(super) fn best(mut self, logged: &[Logged<'_>]) -> Result<Answer, String> {
        let first = self.predict()?;
        self.notes.extend(first.unheeded.iter().map(|it| format!("{it}.")));
        let mut best = Compared::new(logged, &first);
        let mut assumed: Vec<String> = Vec::new();
        let mut all = vec![(self.clone(), Vec::new())];
        all.extend(self.changed());
        all.extend(self.without_gpudirect());
        for (question, parts) in all {
            if best.different() == 0 {
                break;
            }
            let Ok(prediction) = question.predict() else { continue };
            let compared = Compared::new(logged, &prediction);
            let graphs = compared.differs(DecidedKind::Graph);
            if compared.different() < best.different() {
                (best, assumed) = (compared, parts.clone());
            }
            if graphs {
                continue;
            }
            for latency in question.latencies(logged) {
                let Ok(prediction) = question.with_latency(latency).predict() else { continue };
                let compared = Compared::new(logged, &prediction);
                if compared.different() < best.different() {
                    let part = format!("a network latency of {latency} us");
                    (best, assumed) = (compared, parts.iter().cloned().chain([part]).collect());
                }
            }
        }
        if let Some(mut answer) = self.with_settings(logged, &best) {
            self.notes.push(format!(
                "The log does not show the environment (subsystem ENV); its lines fit {}.",
                answer.settings.join(" and ")
            ));
            answer.notes = self.notes;
            return Ok(answer);
        }
        if !assumed.is_empty() {
            self.notes.push(note(&assumed));
        }
        let open = self.not_in_the_log();
        if best.different() > 0 && !open.is_empty() {
            self.notes
                .push(format!("Not in the log, and no value that plumb tried fits: {}.", open.join("; ")));
        }
        Ok(Answer { compared: best, settings: Vec::new(), notes: self.notes })
    }

    /// What decides, and the log does not say.
    fn not_in_the_log(&self) -> Vec<&'static str> {
        let nics = || self.machines().flat_map(|it| &it.nics);
        let between = self.layout.nodes > 1 || !self.others.is_empty();
        let open = [
            (!self.complete, "the environment (subsystem ENV)"),
            (
                between && nics().any(|it| it.gpudirect.is_none()),
                "whether NICs use GPUDirect (subsystem NET)",
            ),
            (self.no_generation, "the generation of the GPUs (--gpu MODEL)"),
        ];
        open.into_iter().filter(|it| it.0).map(|it| it.1).collect()
    }

    /// The same with other values for what decides the search and the log does not say.
    pub(super) fn alternatives(&self) -> Vec<Self> {
        self.changed().into_iter().map(|it| it.0).collect()
    }

    /// Each with what was changed, the fewest changes first.
    fn changed(&self) -> Vec<(Self, Vec<String>)> {
        let mut all = vec![(self.clone(), Vec::new())];
        let mut vary = |text: String, change: &dyn Fn(&mut Self)| {
            for (question, parts) in all.clone() {
                let mut question: Self = question;
                change(&mut question);
                all.push((question, parts.into_iter().chain([text.clone()]).collect()));
            }
        };
        if self.settings.number("NCCL_COLLNET_ENABLE", 0) != 0 {
            let is = !self.abilities.collnet;
            let text = if is { "a network that reduces" } else { "a network that does not reduce" };
            vary(text.to_owned(), &|it| it.abilities.collnet = is);
        }
        if self.abilities.domain > 1 {
            let text = "NICs with the same GUIDs on every machine of the NVLink domain";
            vary(text.to_owned(), &|it| it.abilities.repeated_guids = true);
        }
        let nics = || self.machines().flat_map(|it| &it.nics);
        if self.network() != Network::Socket
            && nics().next().is_some()
            && nics().all(|it| it.gpudirect.is_none())
        {
            vary("NICs without GPUDirect".to_owned(), &|it| {
                it.machines_mut().flat_map(|it| &mut it.nics).for_each(|nic| nic.gpudirect = Some(false));
            });
        }
        let mut generations: Vec<(Self, Vec<String>)> = Vec::new();
        if self.no_generation {
            for compute in COMPUTE {
                let text = format!("GPUs of compute capability {}.{}", compute / 10, compute % 10);
                for (question, parts) in &all {
                    let mut other = question.clone();
                    other
                        .machines_mut()
                        .flat_map(|it| &mut it.gpus)
                        .for_each(|it| it.compute = Some(compute));
                    generations.push((other, parts.iter().cloned().chain([text.clone()]).collect()));
                }
            }
        }
        all.extend(generations);
        all.retain(|it| !it.1.is_empty());
        all.sort_by_key(|it| it.1.len());
        all
    }

    /// The same with one of the NICs without GPUDirect, or those of one rate: NICs for storage are often other cards, with another driver.
    fn without_gpudirect(&self) -> Vec<(Self, Vec<String>)> {
        if self.network() == Network::Socket || !self.others.is_empty() {
            return Vec::new();
        }
        let open = |it: &Nic| it.gpudirect.is_none();
        let nics: Vec<&Nic> = self.machine.nics.iter().filter(|it| open(it)).collect();
        let mut groups: Vec<Vec<u32>> = nics.iter().map(|it| vec![it.index]).collect();
        for nic in &nics {
            let group: Vec<u32> = nics.iter().filter(|it| it.rate == nic.rate).map(|it| it.index).collect();
            if group.len() > 1 && !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups.retain(|it| it.len() < self.machine.nics.len());
        let without = |group: Vec<u32>| {
            let mut other = self.clone();
            let some = other.machine.nics.iter_mut().filter(|it| group.contains(&it.index));
            let names: Vec<String> = some
                .map(|it| {
                    it.gpudirect = Some(false);
                    it.name.to_string()
                })
                .collect();
            (other, vec![format!("{} without GPUDirect", names.join(", "))])
        };
        groups.into_iter().map(without).collect()
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        std::iter::once(&self.machine).chain(&self.others)
    }

    fn machines_mut(&mut self) -> impl Iterator<Item = &mut Machine> {
        std::iter::once(&mut self.machine).chain(&mut self.others)
    }

    fn network(&self) -> Network {
        self.settings.network(&self.machine)
    }

    fn with_latency(&self, latency: f64) -> Self {
        let mut other = self.clone();
        other.machines_mut().flat_map(|it| &mut it.nics).for_each(|nic| nic.latency = Some(latency));
        other
    }

    /// The latencies that the network may have declared. The cells of the tuning table grow with it linearly: two predictions show how
    /// much, and the cell that grows most tells it.
    fn latencies(&self, logged: &[Logged<'_>]) -> Vec<f64> {
        const FAR: f64 = 1000.0;
        if self.machines().flat_map(|it| &it.nics).any(|it| it.latency.is_some()) {
            return Vec::new();
        }
        let Some(told) = logged.iter().find(|it| it.decided.rank == Some(0)).map(|it| {
            let table = it.decided.lines.iter().filter(|it| it.kind == DecidedKind::Table);
            table.flat_map(|it| cells(&it.text)).collect::<Vec<f64>>()
        }) else {
            return Vec::new();
        };
        if told.is_empty() {
            let plugin = self.network() == Network::Libfabric;
            return if plugin { LATENCIES.to_vec() } else { Vec::new() };
        }
        let table = |latency: f64| -> Option<Vec<f64>> {
            let prediction = self.with_latency(latency).predict().ok()?;
            let lines = lines(&prediction, 0);
            let table = lines.iter().filter(|it| DecidedKind::of(it) == Some(DecidedKind::Table));
            Some(table.flat_map(|it| cells(it)).collect())
        };
        let (Some(none), Some(far)) = (table(0.0), table(FAR)) else { return Vec::new() };
        if none.len() != told.len() || far.len() != told.len() {
            return Vec::new();
        }
        let grown = told.iter().zip(&none).zip(&far).map(|((told, none), far)| (far - none, told - none));
        let Some((most, more)) = grown.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|it| it.0 > 0.0)
        else {
            return Vec::new();
        };
        let latency = (more / most * FAR * 10.0).round() / 10.0;
        if (0.0..FAR).contains(&latency) { vec![latency] } else { Vec::new() }
    }
}

/// The latencies of a line of the tuning table: `17.4` of `17.4/  12.0 |`.
fn cells(line: &str) -> Vec<f64> {
    line.split('|').filter_map(|it| it.split_once('/')?.0.trim().parse().ok()).collect()
}

fn note(assumed: &[String]) -> String {
    format!("The log does not say it; its lines fit {}.", assumed.join(" and "))
}

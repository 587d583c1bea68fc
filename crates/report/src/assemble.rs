//! Assembles the answer from the case and its diagnosis.

mod events;
mod setups;

use std::collections::{BTreeMap, BTreeSet};

use evidence::signals::application::INVALID_VALUE;
use evidence::{Case, Quote, paths};
use job::{FailureKind, Scope, Setter};
use rules::{Diagnosis, EntityKind, Found, Log, Role};

use crate::{
    Check, Communicator, Cost, Doctor, Edge, Entity, Environment, Event, Evidence, Facts, Finding,
    FirstFailure, Input, Job, NodePair, NotChecked, Options, OtherRank, Outcome, Price, Rank, Ring, SetBy,
    Stack, Test, Training, TreePlace, Verdict,
};

impl Doctor {
    /// Assembles the answer.
    pub fn new(log: &Log, diagnosis: &Diagnosis, options: Options) -> Self {
        let case = &log.case;
        Self {
            schema: "plumb.doctor/2".to_owned(),
            verdict: Verdict {
                level: diagnosis.verdict.level,
                text: diagnosis.verdict.text.clone(),
                job: diagnosis.verdict.job.clone(),
                reach: diagnosis.verdict.reach.clone(),
                next: diagnosis.verdict.next.clone(),
            },
            outcome: Outcome {
                state: diagnosis.outcome.state.name().to_owned(),
                evidence: diagnosis.outcome.lines.iter().map(|it| evidence(case, it)).collect(),
                ranks_complete: diagnosis.outcome.setup.complete,
            },
            findings: diagnosis
                .findings
                .iter()
                .map(|it| Finding::new(it, it.finding.quotes().map(|it| evidence(case, it)).collect()))
                .collect(),
            checks: checks(case, diagnosis),
            not_checked: diagnosis
                .unchecked
                .iter()
                .map(|it| NotChecked {
                    id: it.rule.id.to_owned(),
                    needs: it.missing.0.how_to_get().to_owned(),
                })
                .collect(),
            facts: facts(log, diagnosis, options),
            inputs: case
                .sources
                .files
                .iter()
                .map(|it| Input {
                    file: it.name.to_string(),
                    kind: it.tally.kind(),
                    lines: it.tally.lines,
                    understood: it.tally.understood(),
                    blank: it.tally.blank,
                    cut: it.tally.cut,
                    problem: it.problem.as_deref().map(str::to_owned),
                })
                .collect(),
            fleet: None,
            excerpts: Vec::new(),
        }
    }
}

fn evidence(case: &Case, quote: &Quote) -> Evidence {
    let (file, line) = case.locate(quote);
    Evidence { file: file.to_owned(), line, text: quote.text.to_string(), span: None }
}

impl Finding {
    /// A finding of a rule, with its evidence.
    pub(crate) fn new(it: &Found, evidence: Vec<Evidence>) -> Self {
        let text = it.rule.text();
        Self {
            id: it.rule.id.to_owned(),
            severity: it.severity(),
            confidence: it.finding.confidence,
            role: it.role(),
            title: text.title.to_owned(),
            message: it.finding.message.clone(),
            evidence,
            why: it.why().to_owned(),
            fix: it.fix().to_owned(),
            references: it.rule.references.iter().map(|it| (*it).to_owned()).collect(),
            entities: it
                .finding
                .entities
                .iter()
                .map(|it| Entity { kind: it.kind, name: it.name.clone() })
                .collect(),
            also: it.finding.also.iter().map(|it| (*it).to_owned()).collect(),
            cost: it.finding.cost.map(|it| Cost {
                factor: two_digits(it.factor),
                normal: it.rates.map(|it| two_digits(it.normal)),
                here: it.rates.map(|it| two_digits(it.here)),
                paths: it.paths,
            }),
            price: it.finding.price.map(|it| Price::new(&it)),
            fixable: !it.finding.edits.is_empty(),
        }
    }
}

/// A forecast is not more accurate.
fn two_digits(value: f64) -> f64 {
    if value >= 10.0 { value.round() } else { (value * 10.0).round() / 10.0 }
}

fn checks(case: &Case, diagnosis: &Diagnosis) -> Vec<Check> {
    diagnosis
        .checklist
        .iter()
        .map(|it| Check {
            id: it.id.to_owned(),
            state: it.state,
            text: it.text.clone(),
            rule: it.rule,
            evidence: it.evidence.as_ref().map(|quote| evidence(case, quote)),
        })
        .collect()
}

fn facts(log: &Log, diagnosis: &Diagnosis, options: Options) -> Facts {
    let case = &log.case;
    let summary = diagnosis.summary.clone();
    let mut events = events::of_ranks(case);
    let ranks = ranks(log, &mut events);
    let other_ranks = other_ranks(case, diagnosis, events);
    Facts {
        job: Job {
            ranks: summary.n_ranks,
            ranks_seen: summary.ranks_seen.len(),
            nodes: summary.n_nodes,
            ranks_per_node: summary.ranks_per_node,
            hosts: summary.hosts,
            instance: summary.instance,
            machine: summary.machine,
            networks: summary.networks,
            gpudirect_connections: summary.gpudirect.0,
            host_memory_connections: summary.gpudirect.1,
            inside: summary.inside.into_iter().map(|(way, n)| (way.to_owned(), n)).collect(),
        },
        stack: Stack {
            nccl: summary.nccl,
            cuda_driver: summary.cuda_driver,
            plugin_name: summary.plugin.as_ref().map(|it| it.name),
            plugin: summary.plugin.map(|it| it.version),
            libfabric: summary.libfabric,
        },
        first_failure: diagnosis.first_failure.clone().map(|it| FirstFailure {
            evidence: evidence(case, &it.quote),
            rank: it.rank,
            host: it.host,
            time: it.time,
            what: it.what,
            certain: it.certain,
            kind: it.kind,
        }),
        ranks,
        other_ranks,
        communicators: case.communicators.iter().map(|it| communicator(case, it, options)).collect(),
        environment: environment(log),
        protocols: case.protocols.allowed().map(|it| it.into_iter().map(str::to_owned).collect()),
        training: training(case),
        tests: case.tests.iter().map(|it| test(case, it)).collect(),
    }
}

fn ranks(log: &Log, events: &mut BTreeMap<u32, Vec<Event>>) -> Vec<Rank> {
    let rank = |it: &job::Rank| Rank {
        rank: it.rank,
        host: it.host.to_string(),
        pid: it.pid,
        cuda_device: it.gpu.cuda_device,
        nvml_device: it.gpu.nvml_device,
        bus_id: it.gpu.bus_id.map(|it| format!("{it:x}")),
        complete: it.complete,
        events: events.remove(&it.rank).unwrap_or_default(),
    };
    log.job.ranks.iter().map(rank).collect()
}

/// Those that only say how they ended, and those that the others miss and of which no line comes.
fn other_ranks(case: &Case, diagnosis: &Diagnosis, events: BTreeMap<u32, Vec<Event>>) -> Vec<OtherRank> {
    let host = |rank: u32| {
        let process = case.processes.iter().find(|it| it.rank == Some(rank) && !it.host.is_empty());
        let ending =
            || case.endings.iter().filter(|it| it.rank == Some(rank)).find_map(|it| it.host.as_ref());
        process.map(|it| &it.host).or_else(ending).map(ToString::to_string)
    };
    let member = |rank: u32| case.world().is_some_and(|it| it.members.contains_key(&rank));
    let mut all: BTreeMap<u32, OtherRank> = events
        .into_iter()
        .filter(|it| !member(it.0))
        .map(|(rank, events)| (rank, OtherRank { rank, host: host(rank), events, missing: false }))
        .collect();
    let speaks: BTreeSet<u32> = case
        .processes
        .iter()
        .filter_map(|it| it.rank)
        .chain(case.sightings.iter().filter_map(|it| case.rank_of(it)))
        .collect();
    let missing = diagnosis.findings.iter().filter(|it| it.rule.role == Role::Missing);
    let missing = missing.flat_map(|it| &it.finding.entities).filter(|it| it.kind == EntityKind::Rank);
    let missing = missing.filter_map(|it| it.name.parse().ok());
    let absent = diagnosis.first_failure.iter().filter(|it| it.kind == FailureKind::Absent);
    for rank in missing.chain(absent.filter_map(|it| it.rank)) {
        if !member(rank) && !speaks.contains(&rank) {
            all.entry(rank).or_insert(OtherRank { rank, host: None, events: Vec::new(), missing: true });
        }
    }
    all.into_values().collect()
}

fn communicator(case: &Case, it: &evidence::Communicator, options: Options) -> Communicator {
    let found = paths::of(case, it);
    let members = || it.members.values();
    let mut rings: Vec<Ring> = Vec::new();
    for ring in members().flat_map(|it| &it.facts.rings) {
        match rings.iter_mut().find(|it| it.order == ring.order && it.cut == ring.cut) {
            Some(known) => known.channels.push(ring.channel),
            None => {
                rings.push(Ring { channels: vec![ring.channel], order: ring.order.clone(), cut: ring.cut });
            }
        }
    }
    let trees = members().filter_map(|it| it.facts.trees.as_ref()).flat_map(|it| it.value.iter()).map(|it| {
        TreePlace {
            channel: it.channel,
            rank: it.rank,
            up: it.up,
            down: it.down.iter().flatten().copied().collect(),
        }
    });
    let seconds = members().filter_map(|it| it.facts.init_timings.as_ref()).map(|it| it.value.total);
    Communicator {
        name: it.name.to_string(),
        ranks: it.n_ranks,
        ranks_seen: it.members.len(),
        ranks_complete: members().filter(|it| it.is_complete()).count(),
        nodes: it.n_nodes(),
        parent: it.parent.and_then(|it| case.communicators.get(it)).map(|it| it.name.to_string()),
        color: it.color,
        network: members().find_map(|it| it.facts.network.as_ref()).map(|it| it.value.to_string()),
        channels: members().find_map(|it| it.facts.channels.as_ref()).map(|it| it.value.coll),
        setup_seconds: seconds.max_by(f64::total_cmp),
        setups: setups::of(case, it),
        paths_by_kind: found.by_kind,
        paths_by_nodes: found
            .by_node_pair
            .into_iter()
            .map(|((from, to), ways)| NodePair { from, to, ways })
            .collect(),
        paths: options.matrix.then(|| {
            let edge =
                |it: paths::Edge| Edge { from: it.from, to: it.to, way: it.transport, channels: it.channels };
            paths::edges(it).into_iter().map(edge).collect()
        }),
        rings,
        trees: trees.collect(),
        connections_guessed: members().any(|it| it.guessed),
    }
}

/// The variables of the job; from submitted files only those that affect communication.
fn environment(log: &Log) -> Vec<Environment> {
    struct Use<'a> {
        processes: usize,
        ranks: BTreeSet<u32>,
        hosts: BTreeSet<String>,
        quote: &'a Quote,
    }
    let mut all: BTreeMap<(&str, &str, SetBy), Use<'_>> = BTreeMap::new();
    for it in &log.job.settings.variables {
        let set_by = match it.setter {
            Setter::Job => SetBy::Job,
            Setter::Plugin => SetBy::Plugin,
            Setter::Submission => SetBy::Manifest,
            Setter::Note | Setter::Flag => continue,
        };
        let communication =
            ["NCCL_", "FI_", "OFI_", "RDMAV_"].iter().any(|prefix| it.name.starts_with(prefix));
        let Some(quote) = it.quote().filter(|_| set_by != SetBy::Manifest || communication) else { continue };
        let entry = all.entry((&it.name, it.text(), set_by)).or_insert(Use {
            processes: 0,
            ranks: BTreeSet::new(),
            hosts: BTreeSet::new(),
            quote,
        });
        entry.processes += usize::from(it.is_logged());
        if let Scope::Process(at) = it.scope
            && let Some(process) = log.case.processes.get(at)
        {
            entry.ranks.extend(process.rank);
            entry.hosts.extend((!process.host.is_empty()).then(|| process.host.to_string()));
        }
    }
    // A value that NCCL could not read: it prints that instead of the line about the variable.
    for it in log.case.sightings_of(&INVALID_VALUE) {
        let entry = all.entry((it.get("name"), it.get("value"), SetBy::Job)).or_insert(Use {
            processes: 0,
            ranks: BTreeSet::new(),
            hosts: BTreeSet::new(),
            quote: &it.quote,
        });
        entry.processes += 1;
        entry.ranks.extend(log.case.rank_of(it));
    }
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, value, _) in all.keys() {
        values.entry(name).or_default().insert(value);
    }
    let differs = |name: &str| values.get(name).is_some_and(|it| it.len() > 1);
    let mut printing: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for ((name, _, set_by), it) in &all {
        if *set_by == SetBy::Job {
            printing.entry(name).or_default().extend(&it.ranks);
        }
    }
    let everyone: BTreeSet<u32> = printing.values().flatten().copied().collect();
    let without = |name: &str| match printing.get(name) {
        Some(ranks) if !ranks.is_empty() => everyone.difference(ranks).copied().collect(),
        _ => Vec::new(),
    };
    let variable = |((name, value, set_by), it): ((&str, &str, SetBy), Use<'_>)| {
        let having = it.ranks.iter().copied().collect();
        let (ranks, hosts) = if differs(name) { (it.ranks, it.hosts) } else { Default::default() };
        Environment {
            name: name.to_owned(),
            value: value.to_owned(),
            set_by,
            processes: it.processes,
            ranks: ranks.into_iter().collect(),
            hosts: hosts.into_iter().collect(),
            evidence: evidence(&log.case, it.quote),
            having,
            without: without(name),
        }
    };
    all.into_iter().map(variable).collect()
}

fn training(case: &Case) -> Option<Training> {
    let it = &case.training;
    if it.is_empty() {
        return None;
    }
    Some(Training {
        settings: it
            .settings
            .iter()
            .map(|it| (it.value.name.to_string(), it.value.value.to_string()))
            .collect(),
        runtime_seconds: it.runtime_seconds.as_ref().map(|it| it.value),
        loss_lines: it.loss_lines,
        mean_step_ms: it.step_times.map(|it| it.mean()),
        gpu_memory_max_gb: it.memory.gpu_max.as_ref().map(|it| it.value),
        host_memory_max_percent: it.memory.host_percent.as_ref().map(|it| it.value),
    })
}

fn test(case: &Case, it: &evidence::plain::NcclTests) -> Test {
    let largest = it.rows.iter().max_by_key(|it| it.size);
    Test {
        program: it.program.as_deref().map(str::to_owned),
        collective: it.collective().map(fabric::Collective::name),
        gpus: it.devices.len(),
        rows: it.rows.len(),
        largest_bytes: largest.map(|it| it.size),
        largest_busbw: largest.and_then(|it| it.out_of_place).map(|it| it.busbw),
        average_busbw: it.average_bus_bandwidth,
        wrong: it.out_of_bounds,
        evidence: evidence(case, &it.quote),
    }
}

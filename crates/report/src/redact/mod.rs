//! Replaces host names, addresses, paths and secrets in an answer, so that it can be published ([`redact`]); and secrets alone, which no
//! answer shows ([`mask`]).
//!
//! The same thing gets the same alias everywhere: `host-1`, `addr-1`, `/path-1.log`, `input-1.log`,
//! `program-1`, `secret-1`, numbered as they appear. The answer is walked twice. Names are learned first, because a
//! message may name a host before the line that shows it to be one; then they are replaced. The walk takes
//! every struct apart without `..`: a new field does not compile until someone has said here what it holds.
//!
//! What cannot be told apart is replaced: a version that is lost costs less than an address that is shown.
//! What plumb itself says (ids, remedies, sources, names of variables) stays as it is.

mod addresses;
mod hosts;
mod names;
mod others;
mod paths;
mod programs;
mod scan;
mod secrets;

use std::cell::Cell;
use std::collections::BTreeMap;

use names::{Names, Scope};
use rules::EntityKind;

use crate::{
    Check, Communicator, Doctor, Edge, Entity, Environment, Event, Evidence, Excerpt, Facts, Finding,
    FirstFailure, Input, Job, NodePair, NotChecked, OtherRank, Outcome, Rank, Ring, Span, Stack, Test,
    Training, TreePlace, Verdict,
};

/// Replaces host names, addresses, paths and secrets in every text of `doctor`.
///
/// Loopback addresses, ports, PCI addresses, interfaces and system folders are kept: they matter for the diagnosis and do not identify
/// anyone.
pub fn redact(doctor: &mut Doctor) -> Redactor {
    doctor.fleet = None;
    Redactor::all().doctor(doctor)
}

/// Replaces keys, tokens and passwords in every text of `doctor`.
pub fn mask(doctor: &mut Doctor) -> Redactor {
    Redactor::secrets().doctor(doctor)
}

/// What is replaced, and the aliases given so far.
#[derive(Debug)]
pub struct Redactor {
    names: Names,
}

impl Redactor {
    /// Replaces host names, addresses, paths and secrets.
    pub fn all() -> Self {
        Self { names: Names::new(Scope::All) }
    }

    /// Replaces keys, tokens and passwords alone.
    pub fn secrets() -> Self {
        Self { names: Names::new(Scope::Secrets) }
    }

    fn doctor(mut self, doctor: &mut Doctor) -> Self {
        self.both(|see| walk(doctor, see));
        self
    }

    /// Walks an answer twice: names are learned first, then replaced.
    fn both(&mut self, mut walk: impl FnMut(&mut See<'_>)) {
        walk(&mut |role, text| self.names.learn(role, text));
        self.names.settle();
        walk(&mut |role, text| self.names.replace(role, text));
    }

    /// The value of a variable.
    pub fn value(&mut self, name: &str, value: &str) -> String {
        self.replaced(Role::Value(name), value)
    }

    /// A message with aliases in it.
    pub fn text(&mut self, text: &str) -> String {
        self.replaced(Role::Text, text)
    }

    /// The alias of an input, whether or not it could be read.
    pub fn file(&mut self, name: &str) -> String {
        self.replaced(Role::File, name)
    }

    fn replaced(&mut self, role: Role<'_>, text: &str) -> String {
        self.names.learn(role, text);
        self.names.settle();
        let mut text = text.to_owned();
        self.names.replace(role, &mut text);
        text
    }
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role<'a> {
    /// The name of a host and nothing else.
    Host,
    /// The name of an input.
    File,
    /// Text from the input.
    Text,
    /// A line of a file that is shown with its columns: the first and the last that are marked.
    Line(&'a Cell<[u64; 2]>),
    /// The value of a variable.
    Value(&'a str),
    /// A text of plumb that may contain names from the input. Something that looks like an address or a path is an example, unless the
    /// input contains it too.
    Advice,
}

type See<'a> = dyn FnMut(Role<'_>, &mut String) + 'a;

fn each<'a>(texts: impl IntoIterator<Item = &'a mut String>, role: Role<'_>, see: &mut See<'_>) {
    for text in texts {
        see(role, text);
    }
}

fn walk(it: &mut Doctor, see: &mut See<'_>) {
    let Doctor {
        schema: _,
        verdict,
        outcome,
        findings,
        checks,
        not_checked,
        facts,
        inputs,
        // Its names are those of machines and files of tests; it is left out where these are replaced.
        fleet: _,
        excerpts,
    } = it;
    // Inputs come first: they are numbered as they were given.
    for Input { file, kind: _, lines: _, understood: _, blank: _, cut: _, problem } in inputs {
        see(Role::File, file);
        each(problem, Role::Text, see);
    }
    let Verdict { level: _, text, job, reach, next } = verdict;
    see(Role::Text, text);
    see(Role::Text, job);
    see(Role::Text, reach);
    each(next, Role::Text, see);
    let Outcome { state: _, evidence: quotes, ranks_complete: _ } = outcome;
    for it in quotes {
        evidence(it, see);
    }
    for it in findings {
        finding(it, see);
    }
    for Check { id: _, state, text, rule: _, evidence: quote } in checks {
        see(if *state == rules::State::NotChecked { Role::Advice } else { Role::Text }, text);
        if let Some(quote) = quote {
            evidence(quote, see);
        }
    }
    for NotChecked { id: _, needs: _ } in not_checked {}
    walk_facts(facts, see);
    for Excerpt { file, first: _, lines } in excerpts {
        see(Role::File, file);
        each(lines, Role::Text, see);
    }
}

fn finding(it: &mut Finding, see: &mut See<'_>) {
    let Finding {
        id,
        severity: _,
        confidence: _,
        role: _,
        title: _,
        message,
        evidence: quotes,
        why,
        fix,
        references: _,
        entities,
        also: _,
        cost: _,
        price: _,
        fixable: _,
    } = it;
    see(Role::Text, message);
    for it in quotes {
        evidence(it, see);
    }
    let rule = rules::text(id);
    if rule.is_none_or(|it| it.why != *why) {
        see(Role::Advice, why);
    }
    if rule.is_none_or(|it| it.fix != *fix) {
        see(Role::Advice, fix);
    }
    for Entity { kind, name } in entities {
        match kind {
            EntityKind::Host => see(Role::Host, name),
            EntityKind::Variable => {}
            EntityKind::Rank
            | EntityKind::Gpu
            | EntityKind::Nic
            | EntityKind::Communicator
            | EntityKind::File => see(Role::Text, name),
        }
    }
}

fn evidence(it: &mut Evidence, see: &mut See<'_>) {
    let Evidence { file, line, text, span } = it;
    see(Role::File, file);
    let Some(Span { column, end_line, end_column, label }) = span else { return see(Role::Text, text) };
    see(Role::Text, label);
    let columns = Cell::new([*column, if end_line == line { *end_column } else { 0 }]);
    see(Role::Line(&columns), text);
    let [first, last] = columns.get();
    *column = first;
    if end_line == line {
        *end_column = last;
    }
}

fn walk_events(events: &mut [Event], see: &mut See<'_>) {
    for Event { what: _, time, text, file, line: _ } in events {
        see(Role::File, file);
        see(Role::Text, text);
        each(time, Role::Text, see);
    }
}

fn walk_facts(it: &mut Facts, see: &mut See<'_>) {
    let Facts {
        job,
        stack,
        first_failure,
        ranks,
        other_ranks,
        communicators,
        environment,
        protocols,
        training,
        tests,
    } = it;
    walk_job(job, see);
    let Stack { nccl, cuda_driver, plugin, plugin_name: _, libfabric } = stack;
    each([nccl, cuda_driver, plugin, libfabric].into_iter().flatten(), Role::Text, see);
    if let Some(FirstFailure { rank: _, host, time, what, evidence: quote, certain: _, kind: _ }) =
        first_failure
    {
        each(host, Role::Host, see);
        each(time, Role::Text, see);
        see(Role::Text, what);
        evidence(quote, see);
    }
    for Rank { rank: _, host, pid: _, cuda_device: _, nvml_device: _, bus_id, complete: _, events } in ranks {
        see(Role::Host, host);
        each(bus_id, Role::Text, see);
        walk_events(events, see);
    }
    for OtherRank { rank: _, host, events, missing: _ } in other_ranks {
        each(host, Role::Host, see);
        walk_events(events, see);
    }
    for it in communicators {
        communicator(it, see);
    }
    for Environment {
        name,
        value,
        set_by: _,
        processes: _,
        ranks: _,
        hosts,
        evidence: quote,
        having: _,
        without: _,
    } in environment
    {
        see(Role::Value(name), value);
        each(hosts, Role::Host, see);
        evidence(quote, see);
    }
    each(protocols.iter_mut().flatten(), Role::Text, see);
    if let Some(it) = training {
        let Training {
            settings,
            runtime_seconds: _,
            loss_lines: _,
            mean_step_ms: _,
            gpu_memory_max_gb: _,
            host_memory_max_percent: _,
        } = it;
        each(settings.values_mut(), Role::Text, see);
        *settings = renamed(settings, see, |_, new| new);
    }
    for Test {
        program,
        collective: _,
        gpus: _,
        rows: _,
        largest_bytes: _,
        largest_busbw: _,
        average_busbw: _,
        wrong: _,
        evidence: quote,
    } in tests
    {
        each(program, Role::Text, see);
        evidence(quote, see);
    }
}

fn walk_job(it: &mut Job, see: &mut See<'_>) {
    let Job {
        ranks: _,
        ranks_seen: _,
        nodes: _,
        ranks_per_node: _,
        hosts,
        instance,
        machine,
        networks,
        gpudirect_connections: _,
        host_memory_connections: _,
        inside,
    } = it;
    each(hosts, Role::Host, see);
    each([instance, machine].into_iter().flatten(), Role::Text, see);
    each(networks, Role::Text, see);
    *inside = renamed(inside, see, |old, new| old + new);
}

fn communicator(it: &mut Communicator, see: &mut See<'_>) {
    let Communicator {
        name,
        ranks: _,
        ranks_seen: _,
        ranks_complete: _,
        nodes: _,
        parent,
        color: _,
        network,
        channels: _,
        setup_seconds: _,
        setups,
        paths_by_kind,
        paths_by_nodes,
        paths,
        rings,
        trees,
        connections_guessed: _,
    } = it;
    see(Role::Text, name);
    each([parent, network].into_iter().flatten(), Role::Text, see);
    for it in setups {
        see(Role::Host, &mut it.host);
        see(Role::File, &mut it.file);
    }
    *paths_by_kind = renamed(paths_by_kind, see, |old, new| old + new);
    for NodePair { from, to, ways } in paths_by_nodes {
        see(Role::Text, from);
        see(Role::Text, to);
        *ways = renamed(ways, see, |old, new| old + new);
    }
    for Edge { from: _, to: _, way, channels: _ } in paths.iter_mut().flatten() {
        see(Role::Text, way);
    }
    for Ring { channels: _, order: _, cut: _ } in rings {}
    for TreePlace { channel: _, rank: _, up: _, down: _ } in trees {}
}

/// The same map with its keys seen; two keys that become one are joined.
fn renamed<V: Clone>(
    map: &BTreeMap<String, V>,
    see: &mut See<'_>,
    join: impl Fn(V, V) -> V,
) -> BTreeMap<String, V> {
    let mut all: BTreeMap<String, V> = BTreeMap::new();
    for (key, value) in map {
        let (mut key, value) = (key.clone(), value.clone());
        see(Role::Text, &mut key);
        let value = match all.remove(&key) {
            Some(old) => join(old, value),
            None => value,
        };
        all.insert(key, value);
    }
    all
}

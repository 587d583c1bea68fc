//! Takes host names, addresses, paths and secrets out of an answer, so that it can be shown to strangers.
//!
//! The same thing gets the same alias everywhere: `host-1`, `addr-1`, `/path-1.log`, `input-1.log`,
//! `secret-1`, numbered as they appear. The answer is walked twice. Names are learned first, because a
//! message may name a host before the line that shows it to be one; then they are replaced. The walk takes
//! every struct apart without `..`: a new field does not compile until someone has said here what it holds.
//!
//! What cannot be told apart is replaced: a version that is lost costs less than an address that is shown.
//! What plumb itself says (ids, remedies, sources, names of variables) stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    Check, Communicator, Doctor, Edge, Entity, Environment, Evidence, Facts, Finding, FirstFailure, Input,
    Job, NodePair, NotChecked, Rank, Ring, Stack, Test, Training, TreePlace, Verdict,
};

/// Replaces host names, addresses, paths and secrets in every text of `doctor`.
///
/// Loopback addresses, ports, PCI addresses, interfaces and folders of the system stay: they tell what is
/// wrong and not where.
pub fn redact(doctor: &mut Doctor) {
    let mut names = Names::default();
    walk(doctor, &mut |role, text| names.learn(role, text));
    names.settle();
    walk(doctor, &mut |role, text| names.replace(role, text));
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role<'a> {
    /// The name of a host and nothing else.
    Host,
    /// The name of an input.
    File,
    /// Text of the input, or made of it.
    Text,
    /// The value of a variable.
    Value(&'a str),
    /// Words of plumb into which names of the input may have been put. What looks like an address or a path
    /// there is an example, unless the input has it too.
    Advice,
}

type See<'a> = dyn FnMut(Role<'_>, &mut String) + 'a;

fn each<'a>(texts: impl IntoIterator<Item = &'a mut String>, role: Role<'_>, see: &mut See<'_>) {
    for text in texts {
        see(role, text);
    }
}

fn walk(it: &mut Doctor, see: &mut See<'_>) {
    let Doctor { schema: _, verdict, findings, checks, not_checked, facts, inputs } = it;
    // Inputs come first: they are numbered as they were given.
    for Input { file, kind: _, lines: _, understood: _, blank: _, cut: _, problem } in inputs {
        see(Role::File, file);
        each(problem, Role::Text, see);
    }
    let Verdict { level: _, text } = verdict;
    see(Role::Text, text);
    for it in findings {
        finding(it, see);
    }
    for Check { id: _, state, text, evidence: quote } in checks {
        see(if state == "not checked" { Role::Advice } else { Role::Text }, text);
        if let Some(quote) = quote {
            evidence(quote, see);
        }
    }
    for NotChecked { id: _, needs: _ } in not_checked {}
    walk_facts(facts, see);
}

fn finding(it: &mut Finding, see: &mut See<'_>) {
    let Finding {
        id,
        severity: _,
        confidence: _,
        title: _,
        message,
        evidence: quotes,
        why,
        fix,
        references: _,
        entities,
        also: _,
    } = it;
    see(Role::Text, message);
    for it in quotes {
        evidence(it, see);
    }
    let rule = rules::find(id);
    if rule.is_none_or(|it| it.why != *why) {
        see(Role::Advice, why);
    }
    if rule.is_none_or(|it| it.fix != *fix) {
        see(Role::Advice, fix);
    }
    for Entity { kind, name } in entities {
        match kind.as_str() {
            "host" | "node" => see(Role::Host, name),
            "variable" => {}
            _ => see(Role::Text, name),
        }
    }
}

fn evidence(it: &mut Evidence, see: &mut See<'_>) {
    let Evidence { file, line: _, text } = it;
    see(Role::File, file);
    see(Role::Text, text);
}

fn walk_facts(it: &mut Facts, see: &mut See<'_>) {
    let Facts { job, stack, first_failure, ranks, communicators, environment, protocols, training, tests } =
        it;
    walk_job(job, see);
    let Stack { nccl, cuda_driver, plugin, libfabric } = stack;
    each([nccl, cuda_driver, plugin, libfabric].into_iter().flatten(), Role::Text, see);
    if let Some(FirstFailure { rank: _, host, time, what, evidence: quote, certain: _ }) = first_failure {
        each(host, Role::Host, see);
        each(time, Role::Text, see);
        see(Role::Text, what);
        evidence(quote, see);
    }
    for Rank { rank: _, host, pid: _, cuda_device: _, nvml_device: _, bus_id, complete: _ } in ranks {
        see(Role::Host, host);
        each(bus_id, Role::Text, see);
    }
    for it in communicators {
        communicator(it, see);
    }
    for Environment { name, value, set_by: _, processes: _, evidence: quote } in environment {
        see(Role::Value(name), value);
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
        paths_by_kind,
        paths_by_nodes,
        paths,
        rings,
        trees,
        connections_guessed: _,
    } = it;
    see(Role::Text, name);
    each([parent, network].into_iter().flatten(), Role::Text, see);
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

/// Numbers in the order of first use.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    fn of(&mut self, name: &str) -> usize {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        let number = self.0.len() + 1;
        self.0.insert(name.to_owned(), number);
        number
    }
}

/// Something to replace that begins where it was looked for.
#[derive(Debug, PartialEq, Eq)]
struct Hit {
    kind: Kind,
    /// What it is known by.
    key: String,
    /// Where it ends.
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Address,
    Path,
    File,
    Secret,
}

/// What was learned, and the aliases that were given.
#[derive(Debug, Default)]
struct Names {
    /// Hosts by the part before the first dot, as NCCL names them.
    hosts: BTreeSet<String>,
    /// Hosts that are also words of plumb or NCCL, such as `trainer`: replaced only where a host must be meant.
    ambiguous: BTreeSet<String>,
    users: BTreeSet<String>,
    paths: BTreeSet<String>,
    addresses: BTreeSet<String>,
    /// Secrets that are replaced wherever they stand, the longest first.
    secrets: Vec<String>,
    /// From a file's name as texts may say it to its name as an input.
    files: BTreeMap<String, String>,
    host_numbers: Numbers,
    address_numbers: Numbers,
    path_numbers: Numbers,
    file_numbers: Numbers,
    secret_numbers: Numbers,
}

impl Names {
    fn learn(&mut self, role: Role<'_>, text: &str) {
        match role {
            Role::Advice => {}
            Role::File => self.learn_file(text),
            Role::Host => self.learn_host(text),
            Role::Text => self.learn_text(text),
            Role::Value(name) => {
                if is_secret_key(name) && is_secret_value(name, text, true) {
                    self.learn_secret(text);
                } else if is_host_key(name) {
                    self.learn_host(text.rsplit_once(':').map_or(text, |it| it.0));
                }
                self.learn_text(text);
            }
        }
    }

    fn learn_file(&mut self, name: &str) {
        if name == "standard input" || name == "-" || name.is_empty() {
            return;
        }
        self.file_numbers.of(name);
        self.files.insert(name.to_owned(), name.to_owned());
    }

    fn learn_host(&mut self, name: &str) {
        let label = name.trim().split('.').next().unwrap_or_default();
        if is_host_label(label) && name.parse::<IpAddr>().is_err() {
            self.hosts.insert(label.to_owned());
        }
    }

    fn learn_secret(&mut self, secret: &str) {
        // A short or common word would be replaced in sentences that have nothing to do with it.
        if secret.len() >= 6 && !self.secrets.iter().any(|it| it == secret) {
            self.secrets.push(secret.to_owned());
        }
    }

    fn learn_text(&mut self, text: &str) {
        for name in hosts_in(text) {
            self.learn_host(name);
        }
        let mut at = 0;
        while at < text.len() {
            let hit = text.is_char_boundary(at).then(|| self.hit(text, at, Role::Text)).flatten();
            let Some(hit) = hit else {
                at += 1;
                continue;
            };
            match hit.kind {
                Kind::Secret => self.learn_secret(&hit.key),
                Kind::Path => {
                    self.users.extend(user_in(&hit.key).map(str::to_owned));
                    self.paths.insert(hit.key);
                }
                Kind::Address => {
                    self.addresses.insert(hit.key);
                }
                Kind::Host | Kind::File => {}
            }
            at = hit.end.max(at + 1);
        }
    }

    /// Everything is learned: what is ambiguous can be told from what is not.
    fn settle(&mut self) {
        let words = vocabulary();
        let common = |name: &str| {
            words.contains(name) || (name.len() < 3 && name.bytes().all(|it| it.is_ascii_alphabetic()))
        };
        self.ambiguous = self.hosts.iter().filter(|it| common(it)).cloned().collect();
        self.users.retain(|it| !common(it));
        self.secrets.retain(|it| !common(it));
        self.secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        // The last part of a file's name stands for the file where only one file has it.
        let mut last: BTreeMap<String, Option<String>> = BTreeMap::new();
        for name in self.files.keys() {
            if let Some((_, part)) = name.rsplit_once('/').filter(|it| it.1.contains('.')) {
                last.entry(part.to_owned()).and_modify(|it| *it = None).or_insert_with(|| Some(name.clone()));
            }
        }
        for (part, name) in last {
            if let Some(name) = name {
                self.files.entry(part).or_insert(name);
            }
        }
    }

    fn replace(&mut self, role: Role<'_>, text: &mut String) {
        let whole = match role {
            Role::File => self.files.get(text.as_str()).cloned().map(|it| (Kind::File, it)),
            Role::Value(name) if is_secret_key(name) && is_secret_value(name, text, true) => {
                Some((Kind::Secret, text.clone()))
            }
            Role::Host | Role::Text | Role::Value(_) => {
                let label = text.split('.').next().unwrap_or_default();
                let is_host =
                    self.hosts.contains(text.as_str()) || (role == Role::Host && self.hosts.contains(label));
                is_host.then(|| (Kind::Host, label.to_owned()))
            }
            Role::Advice => None,
        };
        if let Some((kind, key)) = whole {
            *text = self.alias(kind, &key);
        } else if role != Role::File {
            *text = self.replaced(role, text);
        }
    }

    fn replaced(&mut self, role: Role<'_>, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(next) = text.get(at..).and_then(|it| it.chars().next()) {
            match self.hit(text, at, role) {
                Some(hit) if hit.end > at => {
                    let alias = self.alias(hit.kind, &hit.key);
                    // A bucket has no slash before its name: `s3://path-1`.
                    let bare = hit.kind == Kind::Path && next != '/' && next != '~';
                    out.push_str(if bare { alias.trim_start_matches('/') } else { &alias });
                    at = hit.end;
                }
                _ => {
                    out.push(next);
                    at += next.len_utf8();
                }
            }
        }
        out
    }

    fn alias(&mut self, kind: Kind, key: &str) -> String {
        match kind {
            Kind::Host => format!("host-{}", self.host_numbers.of(key)),
            Kind::Address => format!("addr-{}", self.address_numbers.of(key)),
            Kind::Path => format!("/path-{}{}", self.path_numbers.of(key), extension(key)),
            Kind::File => format!("input-{}{}", self.file_numbers.of(key), extension(key)),
            Kind::Secret => format!("secret-{}", self.secret_numbers.of(key)),
        }
    }

    /// What begins at `at`, the most telling reading first.
    fn hit(&self, text: &str, at: usize, role: Role<'_>) -> Option<Hit> {
        let first = byte(text, at)?;
        if first.is_ascii_whitespace() {
            return None;
        }
        self.known_secret(text, at)
            .or_else(|| secret(text, at))
            .or_else(|| self.url(text, at).filter(|_| role != Role::Advice))
            .or_else(|| self.file(text, at))
            .or_else(|| self.path(text, at).filter(|it| role != Role::Advice || self.paths.contains(&it.key)))
            .or_else(|| {
                address(text, at).filter(|it| role != Role::Advice || self.addresses.contains(&it.key))
            })
            .or_else(|| host_list(text, at))
            .or_else(|| self.host(text, at))
            .or_else(|| self.user(text, at))
    }

    fn known_secret(&self, text: &str, at: usize) -> Option<Hit> {
        let rest = text.get(at..)?;
        let it = self.secrets.iter().find(|it| rest.starts_with(it.as_str()))?;
        let end = at + it.len();
        (!is_word(before(text, at)) && !is_word(byte(text, end))).then(|| Hit {
            kind: Kind::Secret,
            key: it.clone(),
            end,
        })
    }

    /// The name of an input inside a text.
    fn file(&self, text: &str, at: usize) -> Option<Hit> {
        if before(text, at).is_some_and(|it| is_name(it) || it == b'/') {
            return None;
        }
        let rest = text.get(at..)?;
        let said = rest.get(..rest.find(is_path_limit).unwrap_or(rest.len()))?.trim_end_matches('.');
        let name = self.files.get(said).filter(|_| said.contains(['.', '/']))?;
        Some(Hit { kind: Kind::File, key: name.clone(), end: at + said.len() })
    }

    fn path(&self, text: &str, at: usize) -> Option<Hit> {
        let end = path_end(text, at)?;
        let path = text.get(at..end)?;
        Some(match self.files.get(path) {
            Some(file) => Hit { kind: Kind::File, key: file.clone(), end },
            None => Hit { kind: Kind::Path, key: path.to_owned(), end },
        })
    }

    /// A part of a URL: who logs in, the host, or what follows it.
    fn url(&self, text: &str, at: usize) -> Option<Hit> {
        let token = after_last(text.get(..at)?, is_url_limit);
        let scheme_end = token + text.get(token..at)?.rfind("://")?;
        let scheme = text.get(token..scheme_end)?.rsplit(|it: char| !it.is_ascii_alphanumeric()).next()?;
        let start = scheme_end + 3;
        let url_end = start + text.get(start..)?.find(is_url_limit).unwrap_or(text.len() - start);
        let url_end = start + text.get(start..url_end)?.trim_end_matches(['.', ':', '/', ']']).len();
        let authority_end =
            start + text.get(start..url_end)?.find(['/', '?', '#']).unwrap_or(url_end - start);
        let authority = text.get(start..authority_end)?;
        let (login, place) = authority.rsplit_once('@').map_or((None, authority), |it| (Some(it.0), it.1));
        if let Some(login) = login.filter(|it| at == start && !it.is_empty()) {
            return Some(Hit { kind: Kind::Secret, key: login.to_owned(), end: start + login.len() });
        }
        let name = place.split(':').next()?;
        let network = listed("http https tcp udp ssh git ws wss grpc redis etcd ftp", scheme);
        if !network && scheme != "env" && at == start && url_end > start {
            // A bucket, a registry, a file: all of it is a path.
            return Some(Hit { kind: Kind::Path, key: text.get(start..url_end)?.to_owned(), end: url_end });
        }
        let is_public = PUBLIC
            .split_ascii_whitespace()
            .any(|it| name == it || name.strip_suffix(it).is_some_and(|it| it.ends_with('.')));
        if !network || is_public {
            return None;
        }
        if at == authority_end - place.len()
            && is_host_label(name.split('.').next()?)
            && name.parse::<IpAddr>().is_err()
        {
            let label = name.split('.').next().filter(|it| self.hosts.contains(*it)).unwrap_or(name);
            return Some(Hit { kind: Kind::Host, key: label.to_owned(), end: at + name.len() });
        }
        (at == authority_end && url_end > at + 1).then(|| Hit {
            kind: Kind::Path,
            key: text.get(at..url_end).unwrap_or_default().to_owned(),
            end: url_end,
        })
    }

    fn host(&self, text: &str, at: usize) -> Option<Hit> {
        let left = before(text, at);
        if left.is_some_and(|it| it.is_ascii_alphanumeric()) {
            return None;
        }
        let label_end = run(text, at, is_label);
        let label = text.get(at..label_end)?;
        if is_generated_host(label) {
            return Some(Hit { kind: Kind::Host, key: label.to_owned(), end: qualified(text, label_end) });
        }
        // The longest name first: `node-1-2` is not `node-1`, unless it is no host by itself.
        let cuts = std::iter::once(label.len()).chain(label.rmatch_indices(['_', '-']).map(|it| it.0));
        let name = cuts.filter_map(|it| label.get(..it)).find(|it| self.hosts.contains(*it))?;
        let end = at + name.len();
        // `prterun-node-0-3157` names node-0; `hopper-tuned` need not name hopper.
        let part_of_more = left == Some(b'-') || byte(text, end) == Some(b'-');
        let distinct = looks_like_a_host(name);
        let meant = !self.ambiguous.contains(name) || is_host_place(text, at, end, name);
        if !meant || (part_of_more && !distinct) {
            return None;
        }
        let end = if name.len() == label.len() { qualified(text, end) } else { end };
        Some(Hit { kind: Kind::Host, key: name.to_owned(), end })
    }

    /// The name of a user, known from a home folder, or one who logs in to a known host.
    fn user(&self, text: &str, at: usize) -> Option<Hit> {
        if is_word(before(text, at)) || before(text, at) == Some(b'-') {
            return None;
        }
        let end = run(text, at, is_label);
        let name = text.get(at..end)?;
        let logs_in = || {
            let host = text.get(end..)?.strip_prefix('@')?;
            let label = host.get(..run(host, 0, is_label))?;
            self.hosts.contains(label).then_some(())
        };
        let found =
            self.users.contains(name) || (!name.is_empty() && !is_common_user(name) && logs_in().is_some());
        found.then(|| Hit { kind: Kind::Secret, key: name.to_owned(), end })
    }
}

// Bytes of a text. All that is looked for is ASCII, so a match begins and ends between characters.

fn byte(text: &str, at: usize) -> Option<u8> {
    text.as_bytes().get(at).copied()
}

/// What stands before `at`. A colour code counts as one sign: `ESC[36mnode-0`.
fn before(text: &str, at: usize) -> Option<u8> {
    let last = at.checked_sub(1)?;
    let code = || {
        text.get(..last).is_some_and(|it| {
            it.trim_end_matches(|it: char| it.is_ascii_digit() || it == ';').ends_with("\u{1b}[")
        })
    };
    byte(text, last).map(|it| if it == b'm' && code() { 0x1b } else { it })
}

/// Where the run of such bytes ends that begins at `at`.
fn run(text: &str, at: usize, is_part: impl Fn(u8) -> bool) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    at + rest.iter().take_while(|it| is_part(**it)).count()
}

/// Whether a list of words has this one.
fn listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}

/// Where the text begins that follows the last such character.
fn after_last(text: &str, is_limit: impl Fn(char) -> bool) -> usize {
    text.char_indices().rev().find(|it| is_limit(it.1)).map_or(0, |(at, it)| at + it.len_utf8())
}

fn is_word(it: Option<u8>) -> bool {
    it.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_')
}

fn is_label(it: u8) -> bool {
    it.is_ascii_alphanumeric() || it == b'-' || it == b'_'
}

fn is_name(it: u8) -> bool {
    is_label(it) || it == b'.'
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// `:29500` or `<29500>` at the beginning.
fn begins_with_port(text: &str) -> bool {
    matches!(text.as_bytes(), [b':' | b'<', digit, ..] if digit.is_ascii_digit())
}

// Hosts

/// Names that stand where only a host can stand.
fn hosts_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = run(text, at, is_name);
        if end == at {
            at += 1;
            continue;
        }
        if let Some(code) = (at..end).find(|it| before(text, *it) == Some(0x1b) && *it > at) {
            at = code;
            continue;
        }
        if let (Some(before), Some(name), Some(after)) = (text.get(..at), text.get(at..end), text.get(end..))
        {
            let name = name.trim_end_matches(['.', '-']);
            if is_named(before, name, after, text) {
                names.push(name);
            }
        }
        at = end;
    }
    // `mpirun --host a:8,b:8`
    for flag in [" -H ", " --host ", " --hosts ", "--host=", "--hosts="] {
        let Some((_, rest)) = text.split_once(flag) else { continue };
        let list = rest.split_ascii_whitespace().next().unwrap_or_default();
        names
            .extend(list.split(',').filter_map(|it| it.split(':').next()).filter(|it| looks_like_a_host(it)));
    }
    names
}

/// No word of a sentence.
fn looks_like_a_host(name: &str) -> bool {
    name.bytes().any(|it| it.is_ascii_digit() || matches!(it, b'-' | b'.'))
}

fn is_named(before: &str, name: &str, after: &str, line: &str) -> bool {
    let like_a_host = looks_like_a_host(name);
    // node-0:191:726 [0] NCCL INFO
    let thread = || {
        let mut parts = after.strip_prefix(':').unwrap_or_default().splitn(2, ':');
        let (pid, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let tid = run(rest, 0, |it| it.is_ascii_digit());
        let next = rest.get(tid..).unwrap_or_default();
        is_number(pid)
            && tid > 0
            && (next.starts_with(" [") || next.starts_with(" NCCL "))
            && !is_date(name)
            && !is_source(name)
    };
    // NCCL WARN socketProgress: Connection closed by remote peer node-2<55248>
    let socket = || {
        let digits = run(after, 1, |it| it.is_ascii_digit());
        let closed = after.starts_with('<') && digits > 1 && byte(after, digits) == Some(b'>');
        closed
            && !before.ends_with(['%', '>'])
            && !before.ends_with("::")
            && (like_a_host || ["peer ", "to ", "from ", "with "].iter().any(|it| before.ends_with(it)))
    };
    // #  Rank  0 Group  0 Pid 120 on node-0 device  0 [0x8d] NVIDIA H100
    let tested = || {
        before.trim_end().ends_with(" on")
            && after.trim_start().starts_with("device ")
            && line.contains("Pid")
    };
    // The client socket has failed to connect to [node-0]:29500, (node-0, 29500), host node-0:29500
    let asked = || {
        let bracketed = before.ends_with('[') && after.strip_prefix(']').is_some_and(begins_with_port);
        let paired = before.ends_with('(')
            && after.strip_prefix(", ").is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit()))
            && (before.contains("address") || before.contains("connect"));
        bracketed || paired || (before.ends_with("host ") && begins_with_port(after))
    };
    // tcp://node-0:29500, [pod/llama-0/trainer]
    let addressed = || before.ends_with("tcp://") || (before.ends_with("pod/") && like_a_host);
    let assigned =
        || key_before(before).is_some_and(|(key, _, _)| is_host_key(key) && (like_a_host || key != "host"));
    thread() || socket() || tested() || asked() || addressed() || assigned()
}

/// Variables and settings that hold a host.
fn is_host_key(key: &str) -> bool {
    let key = key.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    matches!(
        key.as_str(),
        "master_addr"
            | "nccl_hostid"
            | "nccl_comm_id"
            | "hostname"
            | "host"
            | "nodename"
            | "rdzv_endpoint"
            | "slurmd_nodename"
            | "node_name"
    )
}

/// The value of `SLURM_NODELIST=gpu[001-004]`.
fn host_list(text: &str, at: usize) -> Option<Hit> {
    if !matches!(before(text, at)?, b'=' | b'"' | b'\'' | b' ') {
        return None;
    }
    let (key, _, _) = key_before(text.get(..at)?)?;
    if !key.to_ascii_lowercase().ends_with("nodelist") {
        return None;
    }
    let end = run(text, at, |it| is_name(it) || b"[],".contains(&it));
    (end > at).then(|| Hit { kind: Kind::Host, key: text.get(at..end).unwrap_or_default().to_owned(), end })
}

/// Whether a label can be a host that is worth a name of its own.
fn is_host_label(label: &str) -> bool {
    let well_formed =
        !label.is_empty() && label.bytes().all(is_label) && label.bytes().any(|it| it.is_ascii_alphabetic());
    well_formed && !matches!(label, "localhost" | "unknown" | "none" | "null")
}

/// `ip-10-0-5-28` and `i-0123456789abcdef0` are hosts wherever they stand.
fn is_generated_host(label: &str) -> bool {
    if let Some(rest) = label.strip_prefix("ip-") {
        let parts: Vec<&str> = rest.split('-').collect();
        return parts.len() == 4 && parts.iter().all(|it| it.parse::<u8>().is_ok());
    }
    label
        .strip_prefix("i-")
        .is_some_and(|it| matches!(it.len(), 8 | 17) && it.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// Where a name ends together with its domain.
fn qualified(text: &str, end: usize) -> usize {
    let more = text.get(end..run(text, end, is_name)).unwrap_or_default();
    if !more.starts_with('.')
        || !more.get(1..).is_some_and(|it| it.starts_with(|it: char| it.is_ascii_alphanumeric()))
    {
        return end;
    }
    end + more.trim_end_matches(['.', '-', '_']).len()
}

/// Whether a word that could mean anything means a host here.
fn is_host_place(text: &str, at: usize, end: usize, name: &str) -> bool {
    let (Some(before), Some(after)) = (text.get(..at), text.get(end..)) else { return false };
    // `rank 3 on NAME`, as plumb writes it.
    let counted =
        || before.strip_suffix(" on ").is_some_and(|it| it.ends_with(|it: char| it.is_ascii_digit()));
    begins_with_port(after)
        || is_named(before, name, after, text)
        || (counted() && (name.len() > 2 || after.is_empty()))
}

fn is_date(name: &str) -> bool {
    let mut parts = name.splitn(3, '-');
    let mut next = |length: usize| parts.next().is_some_and(|it| it.len() == length && is_number(it));
    next(4) && next(2) && parts.next().is_some()
}

fn is_source(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|it| {
        matches!(it.1, "c" | "cc" | "cpp" | "cu" | "cuh" | "h" | "hpp" | "py" | "go" | "rs")
    })
}

/// Words that plumb or NCCL use themselves.
fn vocabulary() -> BTreeSet<&'static str> {
    static MORE: &str = "all and channel comm container cpu cuda device error file from gpu head host info init job \
        line main master memory nccl net network nic node not pid pod process rank ring root send \
        server socket test the trainer training tree version via warning worker";
    let all = rules::all();
    let texts = all.iter().flat_map(|it| [it.title, it.why, it.fix]);
    texts
        .flat_map(|it| it.split(|it: char| !it.is_ascii_alphabetic()))
        .chain(MORE.split_ascii_whitespace())
        .collect()
}

// Addresses

fn address(text: &str, at: usize) -> Option<Hit> {
    let (key, end) = ip_v4(text, at).or_else(|| coloned(text, at))?;
    Some(Hit { kind: Kind::Address, key, end })
}

/// `10.77.0.11`, but not a release with four parts.
fn ip_v4(text: &str, at: usize) -> Option<(String, usize)> {
    let left = before(text, at);
    if left.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'.') {
        return None;
    }
    let end = run(text, at, |it| it.is_ascii_digit() || it == b'.');
    let found = text.get(at..end)?.trim_end_matches('.');
    let end = at + found.len();
    let address: Ipv4Addr = found.parse().ok()?;
    let right = byte(text, end);
    if is_word(right) || right == Some(b'+') {
        return None;
    }
    // `libfoo-1.2.3.4` is a release, `rank-10.0.0.1` is not.
    let release = is_release(text, at) || (matches!(left, Some(b'-' | b'_')) && address.octets()[0] < 10);
    if release && !begins_with_port(text.get(end..)?) && right != Some(b'/') {
        return None;
    }
    let kept = address.is_loopback()
        || address.is_unspecified()
        || address.octets()[0] == 255
        || address == Ipv4Addr::new(169, 254, 169, 254);
    (!kept).then(|| (address.to_string(), end))
}

/// Whether the words before a number announce a release.
fn is_release(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    if before.ends_with("==") {
        return true;
    }
    let word = before
        .trim_end_matches([' ', ':', '=', '(', '"'])
        .rsplit(|it: char| !it.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    matches!(
        word.to_ascii_lowercase().as_str(),
        "version" | "ver" | "v" | "release" | "driver" | "firmware" | "fw" | "build"
    )
}

/// `fe80::1`, or `0a:58:0a:f4:00:0b`; not `12:34:56`, `0000:31:00.0`, `ec0d:9a03:0029:f5a2` or `c10d::`.
fn coloned(text: &str, at: usize) -> Option<(String, usize)> {
    let left = before(text, at);
    if is_word(left) || left == Some(b'.') || text.get(..at)?.ends_with("::") {
        return None;
    }
    let first = byte(text, at)?;
    if first == b':' && (left == Some(b':') || byte(text, at + 1) != Some(b':')) {
        return None;
    }
    let hex_end = run(text, at, |it| it.is_ascii_hexdigit() || it == b':');
    let hex = text.get(at..hex_end)?;
    let groups = hex.bytes().filter(|it| *it == b':').count() + 1;
    if groups < 3 || is_word(byte(text, hex_end)) {
        return None;
    }
    if matches!(groups, 6 | 8 | 20) && hex.split(':').all(|it| it.len() == 2) && left != Some(b':') {
        return Some((hex.to_ascii_lowercase(), hex_end));
    }
    // An IPv4 address may be embedded: `::ffff:10.0.0.6`.
    let long_end = run(text, at, |it| it.is_ascii_hexdigit() || it == b':' || it == b'.');
    for end in [long_end, hex_end] {
        let found = text.get(at..end)?.trim_end_matches('.');
        let found = if found.ends_with("::") { found } else { found.trim_end_matches(':') };
        let Ok(address) = found.parse::<Ipv6Addr>() else { continue };
        let parts = || found.split(':').filter(|it| !it.is_empty());
        // A list of small numbers is no address, nor is one word before `::`.
        if parts().count() < 2
            || (!found.contains("::") && parts().all(|it| it.len() < 3))
            || is_word(byte(text, at + found.len()))
        {
            return None;
        }
        let address = address.to_canonical();
        let kept = address.is_loopback() || address.is_unspecified();
        return (!kept).then(|| (address.to_string(), at + found.len()));
    }
    None
}

// Paths

/// Folders that are the same everywhere.
static SYSTEM: &str = "/bin /dev /etc /lib /lib32 /lib64 /opt/amazon /opt/aws /opt/aws-ofi-nccl /opt/conda /opt/hpcx \
    /opt/mellanox /opt/nvidia /opt/pytorch /proc /pytorch /run/nvidia-topologyd /sbin /sys /usr/bin \
    /usr/include /usr/lib /usr/lib32 /usr/lib64 /usr/libexec /usr/local/cuda /usr/local/lib \
    /usr/local/nvidia /usr/sbin /usr/share /var/run/nvidia-topologyd";

/// Hosts of the public internet.
static PUBLIC: &str = "amazon.com github.com githubusercontent.com huggingface.co nvidia.com openmpi.org open-mpi.org \
    python.org pytorch.org readthedocs.io w3.org localhost";

/// Where the path ends that begins at `at` and is worth hiding.
fn path_end(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let home = ["/home/", "/Users/"].iter().any(|it| rest.starts_with(it));
    // `//` after a colon belongs to a URL.
    if !rest.starts_with(['/', '~']) || (rest.starts_with("//") && before(text, at) == Some(b':')) {
        return None;
    }
    let free =
        before(text, at).is_none_or(|it| it.is_ascii_whitespace() || b"\"'`=:,;([{<>|@!".contains(&it));
    if !free && !home {
        return None;
    }
    let path = rest.get(..rest.find(is_path_limit).unwrap_or(rest.len()))?.trim_end_matches(['.', '/']);
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|it| !it.is_empty() && *it != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let deep = path.split('/').filter(|it| !it.is_empty()).count() >= 2;
    // `~/data` and `~alice/data`, but not `~0.5/s`.
    let tilde =
        path.strip_prefix('~').is_none_or(|it| !it.starts_with(|it: char| it.is_ascii_digit() || it == '~'));
    let real = format!("/{}", parts.join("/"));
    let system = SYSTEM
        .split_ascii_whitespace()
        .any(|it| real.strip_prefix(it).is_some_and(|it| it.is_empty() || it.starts_with('/')))
        || real.starts_with("/usr/local/cuda-");
    (deep && tilde && !system).then(|| at + path.len())
}

/// The user whose home a path names.
fn user_in(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    if let Some(name) = path.strip_prefix('~').and_then(|it| it.split('/').next()).filter(|it| !it.is_empty())
    {
        return Some(name).filter(|it| !is_common_user(it));
    }
    parts.find(|it| matches!(*it, "home" | "Users" | "users" | "user"))?;
    parts.next().filter(|it| it.bytes().all(is_name) && !is_common_user(it))
}

fn is_common_user(name: &str) -> bool {
    static COMMON: &str = "admin app centos debian ec2-user git hadoop jenkins jovyan nobody root runner shared slurm \
        ubuntu user users work workspace";
    listed(COMMON, name) || is_number(name)
}

/// The ending of a file's name, where it tells what the file is and nothing else.
fn extension(name: &str) -> String {
    static KNOWN: &str = "bin c cc cfg conf cpp cu csv err gz h hpp html ini json jsonl log md out pt py safetensors sh \
        so sock tar tgz toml txt xml yaml yml zip zst";
    let last = name.rsplit('/').next().unwrap_or_default();
    let mut kept: Vec<&str> = Vec::new();
    // From the end: `.log.gz`; a library's version after `.so` is passed over.
    for part in last.split('.').skip(1).collect::<Vec<_>>().into_iter().rev() {
        if listed(KNOWN, part) {
            kept.push(part);
            if !matches!(part, "gz" | "zst") {
                break;
            }
        } else if !is_number(part) || !kept.is_empty() {
            break;
        }
    }
    kept.iter().rev().fold(String::new(), |all, it| all + "." + it)
}

fn is_path_limit(it: char) -> bool {
    it.is_whitespace() || it.is_control() || "\"'`,;:()[]{}<>|\\".contains(it)
}

fn is_url_limit(it: char) -> bool {
    it.is_whitespace() || it.is_control() || "\"'`,;(){}<>|\\=".contains(it)
}

// Secrets

fn secret(text: &str, at: usize) -> Option<Hit> {
    let end = token_end(text, at)
        .or_else(|| assigned_end(text, at))
        .or_else(|| mail_end(text, at))
        .or_else(|| account_end(text, at))?;
    let key = text.get(at..end)?;
    // What was replaced before stays.
    let replaced = key.strip_prefix("secret-").is_some_and(is_number);
    (end > at && !replaced).then(|| Hit { kind: Kind::Secret, key: key.to_owned(), end })
}

/// How secrets begin, and how long at least they go on.
static FORMS: &[(&str, usize)] = &[
    ("AKIA", 16),
    ("ASIA", 16),
    ("hf_", 10),
    ("ghp_", 10),
    ("gho_", 10),
    ("ghu_", 10),
    ("ghs_", 10),
    ("ghr_", 10),
    ("github_pat_", 10),
    ("glpat-", 10),
    ("nvapi-", 10),
    ("sk-", 12),
    ("xoxb-", 10),
];

/// Secrets that are known by their form.
fn token_end(text: &str, at: usize) -> Option<usize> {
    if is_word(before(text, at)) {
        return None;
    }
    let rest = text.get(at..)?;
    for (name, least) in FORMS {
        let Some(body) = rest.strip_prefix(name) else { continue };
        let length = run(body, 0, is_label);
        let body = body.get(..length)?;
        if length >= *least
            && (length >= 20 || body.bytes().any(|it| it.is_ascii_digit() || it.is_ascii_uppercase()))
        {
            return Some(at + name.len() + length);
        }
    }
    jwt_end(text, at).or_else(|| bearer_end(text, at)).or_else(|| {
        // An API key of Weights & Biases is 40 hexadecimal digits, as is a commit: only where they are spoken of.
        let end = run(text, at, |it| it.is_ascii_hexdigit());
        (end - at == 40
            && !is_word(byte(text, end))
            && text.get(..at)?.to_ascii_lowercase().contains("wandb"))
        .then_some(end)
    })
}

/// `eyJ....eyJ....signature`
fn jwt_end(text: &str, at: usize) -> Option<usize> {
    if !text.get(at..)?.starts_with("eyJ") {
        return None;
    }
    let mut end = run(text, at, is_label);
    for _ in 0..2 {
        if byte(text, end) != Some(b'.') {
            return None;
        }
        end = run(text, end + 1, is_label);
    }
    (end - at > 12).then_some(end)
}

/// What follows `Bearer ` or `Basic `.
fn bearer_end(text: &str, at: usize) -> Option<usize> {
    let before = text.get(..at)?;
    let scheme = before.strip_suffix(' ')?.rsplit(|it: char| !it.is_ascii_alphabetic()).next()?;
    let basic = || scheme == "Basic" && before.to_ascii_lowercase().contains("authorization");
    if !(scheme.eq_ignore_ascii_case("bearer") || basic()) {
        return None;
    }
    let end = run(text, at, |it| it.is_ascii_alphanumeric() || b"._~+/=-".contains(&it));
    let token = text.get(at..end)?.trim_end_matches('.');
    let plain_word = token.len() < 16 && token.bytes().all(|it| it.is_ascii_lowercase());
    (token.len() >= 6 && !plain_word).then_some(at + token.len())
}

/// The value of `password=...`, `"token": "..."`, `--api-key ...`.
fn assigned_end(text: &str, at: usize) -> Option<usize> {
    if !matches!(before(text, at)?, b'=' | b':' | b' ' | b'"' | b'\'') {
        return None;
    }
    let (key, sure, quote) = key_before(text.get(..at)?)?;
    if !is_secret_key(key) {
        return None;
    }
    let rest = text.get(at..)?;
    let limit = |it: char| match quote {
        Some(quote) => it == quote,
        None => it.is_whitespace() || "\"'`,;&(){}[]<>|".contains(it),
    };
    let value = rest.get(..rest.find(limit).unwrap_or(rest.len()))?;
    is_secret_value(key, value, sure || quote.is_some()).then_some(at + value.len())
}

/// The key whose value begins after `before`, whether it is surely an assignment, and the quote that opens the value.
fn key_before(before: &str) -> Option<(&str, bool, Option<char>)> {
    let quote = before.chars().next_back().filter(|it| matches!(it, '"' | '\''));
    let left = quote.map_or(before, |it| before.strip_suffix(it).unwrap_or(before));
    let spaced = left.trim_end_matches(' ');
    let (left, sure) = if let Some(left) = spaced.strip_suffix('=') {
        (left, true)
    } else if let Some(left) = spaced.strip_suffix(':') {
        (left, false)
    } else if spaced.len() < left.len() {
        // `--token VALUE`
        let flag = spaced.rsplit(' ').next()?;
        return flag.strip_prefix("--").map(|it| (it, true, quote));
    } else {
        return None;
    };
    let left = left.trim_end_matches([' ', '"', '\'']);
    let key = left.get(after_last(left, |it| !u8::try_from(it).is_ok_and(is_label))..)?;
    (!key.is_empty()).then_some((key, sure, quote))
}

fn is_secret_key(key: &str) -> bool {
    // Tokens of a language model are no secret.
    static MODEL: &str = "added bos cls eos image mask max next num pad per sep special stop unk";
    static ENDINGS: &str = "password passwd passphrase secret token api_key apikey access_key accesskey access_key_id \
        secret_key private_key auth_key credential credentials";
    if is_user_key(key) {
        return true;
    }
    let key = key.trim_start_matches('-').to_ascii_lowercase().replace('-', "_");
    match key.strip_suffix("_token") {
        Some(kind) => !listed(MODEL, kind.rsplit('_').next().unwrap_or_default()),
        None => ENDINGS.split_ascii_whitespace().any(|it| key.ends_with(it)),
    }
}

fn is_user_key(key: &str) -> bool {
    matches!(key, "USER" | "USERNAME" | "LOGNAME")
}

/// Whether a value can be a secret: a reference to one, a number of tokens or a word of a sentence is none.
fn is_secret_value(key: &str, value: &str, sure: bool) -> bool {
    let lower = value.to_ascii_lowercase();
    let empty = matches!(
        lower.as_str(),
        "" | "none" | "null" | "nil" | "true" | "false" | "undefined" | "redacted" | "~"
    );
    let reference = value.starts_with('$')
        || value.starts_with('<')
        || value.bytes().all(|it| matches!(it, b'*' | b'x' | b'X' | b'.' | b'-'));
    let count = key.to_ascii_lowercase().ends_with("token") && is_number(value);
    let dense = value.len() >= 12
        || value.bytes().any(|it| it.is_ascii_digit())
        || value.bytes().skip(1).any(|it| it.is_ascii_uppercase());
    let everyone = is_user_key(key) && is_common_user(value);
    !empty && !reference && !count && !everyone && (sure || dense)
}

/// `someone@example.org`
fn mail_end(text: &str, at: usize) -> Option<usize> {
    let local = |it: u8| it.is_ascii_alphanumeric() || b"._%+-".contains(&it);
    if before(text, at).is_some_and(local) {
        return None;
    }
    let sign = run(text, at, local);
    if sign == at || byte(text, sign) != Some(b'@') {
        return None;
    }
    let end = run(text, sign + 1, |it| it.is_ascii_alphanumeric() || it == b'.' || it == b'-');
    let domain = text.get(sign + 1..end)?.trim_end_matches(['.', '-']);
    let (name, top) = domain.rsplit_once('.')?;
    let valid = !name.is_empty() && top.len() >= 2 && top.bytes().all(|it| it.is_ascii_alphabetic());
    valid.then_some(sign + 1 + domain.len())
}

/// The number of an AWS account, in an ARN or before the name of a registry.
fn account_end(text: &str, at: usize) -> Option<usize> {
    let end = run(text, at, |it| it.is_ascii_digit());
    if end - at != 12 || is_word(before(text, at)) {
        return None;
    }
    let in_arn =
        || text.get(..at).is_some_and(|it| it.rsplit(' ').next().is_some_and(|it| it.contains("arn:aws")));
    (text.get(end..)?.starts_with(".dkr.ecr.") || in_arn()).then_some(end)
}

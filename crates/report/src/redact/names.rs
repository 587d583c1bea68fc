//! The names in an answer, and their aliases.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Role;
use super::addresses::address;
use super::hosts::{
    host_list, host_names, hosts_in, is_generated_host, is_host_key, is_host_label, is_host_place,
    looks_like_a_host, qualified, vocabulary,
};
use super::paths::{PUBLIC, extension, is_common_user, is_path_limit, is_url_limit, path_end, user_in};
use super::programs::program;
use super::scan::{after_last, before, byte, is_label, is_name, is_number, is_word, listed, run};
use super::secrets::{
    certain, is_block_line, is_secret_key, is_secret_value, is_suspect, is_user_key, secret,
};

/// Numbers in the order of first use.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    pub(super) fn of(&mut self, name: &str) -> usize {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        let number = self.0.len() + 1;
        self.0.insert(name.to_owned(), number);
        number
    }
}

/// A match that begins at the given position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) kind: Kind,
    /// The key of its alias.
    pub(super) key: String,
    /// Where it ends.
    pub(super) end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Address,
    Path,
    File,
    Program,
    Secret,
}

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Scope {
    /// Everything that identifies someone, and secrets.
    #[default]
    All,
    /// Secrets alone. In lines of files they keep their width, so that columns stay right.
    Secrets,
}

/// The names found so far, and their aliases.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) scope: Scope,
    /// Hosts by the part before the first dot, as NCCL names them.
    pub(super) hosts: BTreeSet<String>,
    /// Hosts that are also words of plumb or NCCL, such as `trainer`: replaced only in positions where only a host can be.
    pub(super) ambiguous: BTreeSet<String>,
    pub(super) users: BTreeSet<String>,
    pub(super) paths: BTreeSet<String>,
    pub(super) addresses: BTreeSet<String>,
    /// Secrets that are replaced wherever they appear, the longest first.
    pub(super) secrets: Vec<String>,
    /// From the name of a file as it may appear in texts to its name as an input.
    pub(super) files: BTreeMap<String, String>,
    pub(super) host_numbers: Numbers,
    pub(super) address_numbers: Numbers,
    pub(super) path_numbers: Numbers,
    pub(super) file_numbers: Numbers,
    pub(super) program_numbers: Numbers,
    pub(super) secret_numbers: Numbers,
}

impl Names {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, ..Self::default() }
    }

    pub(super) fn learn(&mut self, role: Role<'_>, text: &str) {
        let all = self.scope == Scope::All;
        match role {
            Role::Advice => {}
            Role::File if all => self.learn_file(text),
            Role::Host if all => self.learn_host(text),
            Role::File | Role::Host => {}
            Role::Text | Role::Line(_) => self.learn_text(text),
            Role::Value(name) => {
                if self.is_secret(name, text) {
                    self.learn_secret(text);
                } else if all && is_host_key(name) {
                    self.learn_host(text.rsplit_once(':').map_or(text, |it| it.0));
                }
                self.learn_text(text);
            }
        }
    }

    /// Whether the value of a variable is a secret as a whole.
    fn is_secret(&self, name: &str, value: &str) -> bool {
        let is_key = is_secret_key(name) || (self.scope == Scope::All && is_user_key(name));
        let replaced = value.strip_prefix("secret-").is_some_and(is_number);
        is_key && !replaced && is_secret_value(name, value, true)
    }

    pub(super) fn learn_file(&mut self, name: &str) {
        if name == "standard input" || name == "-" || name.is_empty() {
            return;
        }
        self.file_numbers.of(name);
        self.files.insert(name.to_owned(), name.to_owned());
    }

    pub(super) fn learn_host(&mut self, name: &str) {
        let label = name.trim().split('.').next().unwrap_or_default();
        if is_host_label(label) && name.parse::<IpAddr>().is_err() {
            self.hosts.insert(label.to_owned());
        }
    }

    pub(super) fn learn_secret(&mut self, secret: &str) {
        // Short or common words would also be replaced in unrelated sentences.
        if secret.len() >= 6 && !self.secrets.iter().any(|it| it == secret) {
            self.secrets.push(secret.to_owned());
        }
    }

    pub(super) fn learn_text(&mut self, text: &str) {
        if self.scope == Scope::All {
            for name in hosts_in(text) {
                self.learn_host(name);
            }
        } else if !is_suspect(text) {
            return;
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
                Kind::Host => {
                    for name in host_names(&hit.key) {
                        self.learn_host(&name);
                    }
                }
                Kind::File | Kind::Program => {}
            }
            at = hit.end.max(at + 1);
        }
    }

    /// All names are known: separate the ambiguous ones from the others.
    pub(super) fn settle(&mut self) {
        let words = vocabulary();
        let common = |name: &str| {
            words.contains(name) || (name.len() < 3 && name.bytes().all(|it| it.is_ascii_alphabetic()))
        };
        self.ambiguous = self.hosts.iter().filter(|it| common(it)).cloned().collect();
        self.users.retain(|it| !common(it));
        self.secrets.retain(|it| !common(it));
        self.secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        // The last part of a path also identifies the file if it is unique.
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

    pub(super) fn replace(&mut self, role: Role<'_>, text: &mut String) {
        let whole = match role {
            Role::File => self.files.get(text.as_str()).cloned().map(|it| (Kind::File, it)),
            Role::Value(name) if self.is_secret(name, text) => Some((Kind::Secret, text.clone())),
            Role::Host | Role::Text | Role::Line(_) | Role::Value(_) => {
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

    pub(super) fn replaced(&mut self, role: Role<'_>, text: &str) -> String {
        if is_block_line(text) {
            return self.alias(Kind::Secret, text.trim());
        }
        if self.scope == Scope::Secrets && self.secrets.is_empty() && !is_suspect(text) {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(next) = text.get(at..).and_then(|it| it.chars().next()) {
            match self.hit(text, at, role) {
                Some(hit) if hit.end > at => {
                    let alias = self.alias(hit.kind, &hit.key);
                    // A bucket has no slash before its name: `s3://path-1`.
                    let bare = hit.kind == Kind::Path && next != '/' && next != '~';
                    let alias = if bare { alias.trim_start_matches('/') } else { &alias };
                    let wide = text.get(at..hit.end).map_or(0, |it| it.chars().count());
                    match role {
                        Role::Line(_) if self.scope == Scope::Secrets => out.push_str(&fitted(alias, wide)),
                        Role::Line(columns) => {
                            let first = out.chars().count() as u64 + 1;
                            columns.set(columns.get().map(|it| moved(it, first, wide, alias)));
                            out.push_str(alias);
                        }
                        _ => out.push_str(alias),
                    }
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

    pub(super) fn alias(&mut self, kind: Kind, key: &str) -> String {
        match kind {
            Kind::Host => format!("host-{}", self.host_numbers.of(key)),
            Kind::Address => format!("addr-{}", self.address_numbers.of(key)),
            Kind::Path => format!("/path-{}{}", self.path_numbers.of(key), extension(key)),
            Kind::File => format!("input-{}{}", self.file_numbers.of(key), extension(key)),
            Kind::Program => format!("program-{}", self.program_numbers.of(key)),
            Kind::Secret => format!("secret-{}", self.secret_numbers.of(key)),
        }
    }

    /// The match that begins at `at`, the most specific kind first.
    pub(super) fn hit(&self, text: &str, at: usize, role: Role<'_>) -> Option<Hit> {
        let first = byte(text, at)?;
        if first.is_ascii_whitespace() {
            return None;
        }
        if self.scope == Scope::Secrets {
            return self.known_secret(text, at).or_else(|| certain(text, at));
        }
        self.known_secret(text, at)
            .or_else(|| secret(text, at))
            .or_else(|| self.url(text, at).filter(|_| role != Role::Advice))
            .or_else(|| self.file(text, at))
            .or_else(|| self.path(text, at).filter(|it| role != Role::Advice || self.paths.contains(&it.key)))
            .or_else(|| {
                address(text, at).filter(|it| role != Role::Advice || self.addresses.contains(&it.key))
            })
            .or_else(|| program(text, at))
            .or_else(|| host_list(text, at))
            .or_else(|| self.host(text, at))
            .or_else(|| self.user(text, at))
    }

    pub(super) fn known_secret(&self, text: &str, at: usize) -> Option<Hit> {
        let rest = text.get(at..)?;
        // A text that was cut off may end inside it.
        let cut = |it: &str| rest.len() >= CUT && it.starts_with(rest);
        let it = self.secrets.iter().find(|it| rest.starts_with(it.as_str()) || cut(it))?;
        let end = (at + it.len()).min(text.len());
        (!is_word(before(text, at)) && !is_word(byte(text, end))).then(|| Hit {
            kind: Kind::Secret,
            key: it.clone(),
            end,
        })
    }

    /// The name of an input inside a text.
    pub(super) fn file(&self, text: &str, at: usize) -> Option<Hit> {
        if before(text, at).is_some_and(|it| is_name(it) || it == b'/') {
            return None;
        }
        let rest = text.get(at..)?;
        let said = rest.get(..rest.find(is_path_limit).unwrap_or(rest.len()))?.trim_end_matches('.');
        let name = self.files.get(said).filter(|_| said.contains(['.', '/']))?;
        Some(Hit { kind: Kind::File, key: name.clone(), end: at + said.len() })
    }

    pub(super) fn path(&self, text: &str, at: usize) -> Option<Hit> {
        let end = path_end(text, at)?;
        let path = text.get(at..end)?;
        Some(match self.files.get(path) {
            Some(file) => Hit { kind: Kind::File, key: file.clone(), end },
            None => Hit { kind: Kind::Path, key: path.to_owned(), end },
        })
    }

    /// A part of a URL: who logs in, the host, or what follows it.
    pub(super) fn url(&self, text: &str, at: usize) -> Option<Hit> {
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

    pub(super) fn host(&self, text: &str, at: usize) -> Option<Hit> {
        let left = before(text, at);
        if left.is_some_and(|it| it.is_ascii_alphanumeric()) {
            return None;
        }
        let label_end = run(text, at, is_label);
        let label = text.get(at..label_end)?;
        if is_generated_host(label) {
            return Some(Hit { kind: Kind::Host, key: label.to_owned(), end: qualified(text, label_end) });
        }
        // The longest name first: `node-1-2` is not `node-1`, unless it is not a host itself.
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
    pub(super) fn user(&self, text: &str, at: usize) -> Option<Hit> {
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

/// The least that is left of a secret where a text is cut off.
const CUT: usize = 6;

/// An alias as wide as what it replaces: `secret-1****`.
fn fitted(alias: &str, wide: usize) -> String {
    match wide.checked_sub(alias.len()) {
        Some(more) => format!("{alias}{}", "*".repeat(more)),
        None => "*".repeat(wide),
    }
}

/// Where a column is after something so wide that begins at `first` was replaced with an alias.
fn moved(column: u64, first: u64, wide: usize, alias: &str) -> u64 {
    let (wide, new) = (wide as u64, alias.chars().count() as u64);
    match column.checked_sub(first) {
        None => column,
        Some(inside) if inside < wide => first + inside.min(new.saturating_sub(1)),
        Some(beyond) => first + beyond - wide + new,
    }
}

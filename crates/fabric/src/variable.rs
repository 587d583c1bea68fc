//! The environment variables of NCCL and related software: libfabric, aws-ofi-nccl, PyTorch and its launcher, CUDA.
//!
//! `data/variables.csv` says what each one does, since when, and the source. `data/advice.csv` says when not to set it, by version. Names
//! that people set although nothing reads them are listed too, because NCCL does not warn about unknown names.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::Version;

/// One environment variable, or a name that is mistaken for one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// The name, case-sensitive.
    pub name: String,
    /// What values it takes.
    pub kind: ValueKind,
    /// The value if it is unset.
    pub default: String,
    /// The release that introduced it, in words; empty if no source states it.
    pub since: String,
    /// The oldest of the examined releases that reads it.
    pub first_seen: String,
    /// The newest of the examined releases that reads it.
    pub last_seen: String,
    /// Whether it is still read.
    pub status: Status,
    /// The intended variable, or the replacement.
    pub instead: Option<String>,
    /// The default in the sources, by the release that changed it.
    pub default_history: String,
    /// What it does.
    pub effect: String,
    /// Where that is written.
    pub source: String,
    /// The program that reads it.
    pub read_by: Reader,
    /// When not to set it; may be empty.
    #[serde(skip)]
    pub advice: Vec<Advice>,
}

/// What values a variable takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum ValueKind {
    /// A switch, `0` or `1`.
    Bool,
    /// Another integer, as the data describes it: `bytes`, `0-7`.
    Integer(String),
    /// Anything else, as the data describes it: `path`, `list`.
    Other(String),
}

/// Descriptions of integers in the data; NCCL reads such values with `strtoll`.
const INTEGERS: &[&str] = &[
    "int", "bytes", "int64", "ms", "us", "ns", "int ms", "0/1/2", "0/1", "0-8", "0-7", "0-31", "1-128",
    "1/2", "1/2/3",
];

/// Whether a variable is still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Status {
    /// The current release reads it.
    Current,
    /// The current release reads it, but there is a replacement.
    Deprecated,
    /// The last release that reads it.
    RemovedAfter(Version),
    /// The first of the examined releases, which does not read it.
    RemovedBefore(Version),
    /// No release ever read it.
    NotAVariable,
}

/// A program that reads variables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Reader {
    /// NCCL.
    Nccl,
    /// The plugin for EFA.
    AwsOfiNccl,
    /// Libfabric.
    Libfabric,
    /// No program reads the name.
    Nobody,
    /// Another program, by its name in the data: `pytorch`, `cuda`.
    Other(String),
}

/// A reason not to set a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The id that code refers to; unique per variable.
    pub id: String,
    /// When not to set it, and why.
    pub when_not_to_set: String,
    /// The releases it applies to: all ranges must match; empty means every release.
    pub versions: Vec<Range>,
    /// Where that is written.
    pub source: String,
}

/// The releases of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// `nccl`, `aws-ofi-nccl` or `libfabric`.
    pub component: String,
    /// The first release of the range.
    pub from: Option<Version>,
    /// The first release after the range.
    pub before: Option<Version>,
}

impl ValueKind {
    /// What the data says of the values.
    pub fn description(&self) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Integer(text) | Self::Other(text) => text,
        }
    }

    /// Whether the value is an integer, which a switch is too.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Bool | Self::Integer(_))
    }
}

impl From<String> for ValueKind {
    fn from(text: String) -> Self {
        match text.as_str() {
            "bool" => Self::Bool,
            other if INTEGERS.contains(&other) => Self::Integer(text),
            _ => Self::Other(text),
        }
    }
}

impl TryFrom<String> for Status {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let release = |prefix: &str| text.strip_prefix(prefix).and_then(Version::parse);
        match text.as_str() {
            "current" => Ok(Self::Current),
            "deprecated" => Ok(Self::Deprecated),
            "not a variable" => Ok(Self::NotAVariable),
            _ => release("removed after ")
                .map(Self::RemovedAfter)
                .or_else(|| release("removed before ").map(Self::RemovedBefore))
                .ok_or_else(|| format!("`{text}` is not a status of a variable")),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Deprecated => f.write_str("deprecated"),
            Self::RemovedAfter(release) => write!(f, "removed after {release}"),
            Self::RemovedBefore(release) => write!(f, "removed before {release}"),
            Self::NotAVariable => f.write_str("not a variable"),
        }
    }
}

impl Reader {
    /// The name in the data.
    pub fn name(&self) -> &str {
        match self {
            Self::Nccl => "nccl",
            Self::AwsOfiNccl => "aws-ofi-nccl",
            Self::Libfabric => "libfabric",
            Self::Nobody => "none",
            Self::Other(name) => name,
        }
    }
}

impl From<String> for Reader {
    fn from(name: String) -> Self {
        match name.as_str() {
            "nccl" => Self::Nccl,
            "aws-ofi-nccl" => Self::AwsOfiNccl,
            "libfabric" => Self::Libfabric,
            "none" => Self::Nobody,
            _ => Self::Other(name),
        }
    }
}

/// The name as messages print it.
impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Nccl { "NCCL" } else { self.name() })
    }
}

impl Variable {
    /// Whether a program reads it or once did.
    pub fn is_variable(&self) -> bool {
        self.status != Status::NotAVariable
    }

    /// The advice of this id.
    pub fn find_advice(&self, id: &str) -> Option<&Advice> {
        self.advice.iter().find(|it| it.id == id)
    }

    /// Whether a current release reads it.
    fn is_current(&self) -> bool {
        matches!(self.status, Status::Current | Status::Deprecated)
    }
}

impl Advice {
    /// Whether the advice applies to the given releases; `None` if it depends on a release that is not known.
    pub fn applies(&self, version_of: impl Fn(&str) -> Option<Version>) -> Option<bool> {
        let mut known = true;
        for range in &self.versions {
            match version_of(&range.component) {
                Some(version) if !range.contains(version) => return Some(false),
                Some(_) => {}
                None => known = false,
            }
        }
        known.then_some(true)
    }
}

impl Range {
    /// Whether a release is in the range.
    pub fn contains(&self, version: Version) -> bool {
        self.from.is_none_or(|from| from <= version) && self.before.is_none_or(|before| version < before)
    }

    /// Reads `nccl >=2.27.0 <2.29.0`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mut range = Self { component: words.next()?.to_owned(), from: None, before: None };
        for word in words {
            if let Some(version) = word.strip_prefix(">=") {
                range.from = Some(Version::parse(version)?);
            } else {
                range.before = Some(Version::parse(word.strip_prefix('<')?)?);
            }
        }
        (range.from.is_some() || range.before.is_some()).then_some(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.component)?;
        match (self.from, self.before) {
            (Some(from), Some(before)) => write!(f, " {from} up to before {before}"),
            (Some(from), None) => write!(f, " {from} and newer"),
            (None, Some(before)) => write!(f, " before {before}"),
            (None, None) => Ok(()),
        }
    }
}

/// Every variable, by name.
pub fn all() -> &'static [Variable] {
    static ALL: OnceLock<Vec<Variable>> = OnceLock::new();
    // The data is part of the binary, and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

/// The entry with exactly this name, including names that are not variables.
pub fn find(name: &str) -> Option<&'static Variable> {
    let index = all().binary_search_by(|it| it.name.as_str().cmp(name)).ok()?;
    all().get(index)
}

/// The variable that was probably meant by this name.
///
/// If the data names a replacement, the result is that. A name in the wrong case, with its words in another order or with up to three
/// wrong letters leads to the nearest one. A correct name, or one unlike any known, has no result.
pub fn suggest(name: &str) -> Option<&'static Variable> {
    let upper = name.to_ascii_uppercase();
    if let Some(known) = find(&upper) {
        return match &known.instead {
            Some(instead) => find(instead),
            None => (known.is_variable() && upper != name).then_some(known),
        };
    }
    let (family, stem) = upper.split_once('_')?;
    // Short names are similar to many others: at most a third of the letters may be wrong.
    let allowed = (stem.len() / 3).min(3);
    let words = sorted_words(&upper);
    let mut letters = [0_i32; 256];
    upper.bytes().for_each(|it| letters[usize::from(it)] += 1);
    all()
        .iter()
        .filter(|it| it.is_current())
        // A cheap bound on the distance: the edit distance is quadratic, and most names fail here.
        .filter(|it| it.name.len().abs_diff(upper.len()) <= allowed && missing(letters, &it.name) <= allowed)
        .filter_map(|it| {
            let (its_family, _) = it.name.split_once('_')?;
            let distance = if it.name.len() == upper.len() && sorted_words(&it.name) == words {
                0
            } else if family != its_family && strsim::osa_distance(family, its_family) > 1 {
                return None;
            } else {
                strsim::osa_distance(&upper, &it.name)
            };
            (distance <= allowed).then_some((distance, upper.len() - common_prefix(&upper, &it.name), it))
        })
        .min_by_key(|&(distance, rest, _)| (distance, rest))
        .map(|(_, _, it)| it)
}

/// How many letters of `name` are not among `letters`; each needs an edit of its own.
fn missing(mut letters: [i32; 256], name: &str) -> usize {
    let absent = |it: &u8| {
        let left = &mut letters[usize::from(*it)];
        *left -= 1;
        *left < 0
    };
    name.bytes().filter(absent).count()
}

fn sorted_words(name: &str) -> Vec<&str> {
    let mut words: Vec<_> = name.split('_').collect();
    words.sort_unstable();
    words
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count()
}

/// A row of `data/advice.csv`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdviceRow {
    name: String,
    id: String,
    when_not_to_set: String,
    versions: String,
    source: String,
}

fn read() -> Result<Vec<Variable>, Box<dyn Error>> {
    let mut advice: BTreeMap<String, Vec<Advice>> = BTreeMap::new();
    for row in csv::Reader::from_reader(include_bytes!("../data/advice.csv").as_slice()).deserialize() {
        let AdviceRow { name, id, when_not_to_set, versions, source } = row?;
        let Some(versions) = read_versions(&versions) else {
            return Err(format!("`{versions}` is not a list of releases").into());
        };
        advice.entry(name).or_default().push(Advice { id, when_not_to_set, versions, source });
    }
    let mut variables: Vec<Variable> = Vec::new();
    for row in csv::Reader::from_reader(include_bytes!("../data/variables.csv").as_slice()).deserialize() {
        let mut variable: Variable = row?;
        variable.advice = advice.remove(&variable.name).unwrap_or_default();
        variables.push(variable);
    }
    match advice.into_keys().next() {
        Some(name) => Err(format!("advice on {name}, which is not in the table of variables").into()),
        None => Ok(variables),
    }
}

/// Reads `all`, or ranges separated by semicolons.
fn read_versions(text: &str) -> Option<Vec<Range>> {
    if text == "all" { Some(Vec::new()) } else { text.split(';').map(Range::parse).collect() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Range, Reader, Status, ValueKind, all, find, read, suggest};
    use crate::Version;

    #[test]
    fn the_data_can_be_read() {
        read().unwrap();
        assert!(all().len() > 450, "{}", all().len());
    }

    #[test]
    fn names_are_sorted_and_unique() {
        for pair in all().windows(2) {
            assert!(pair[0].name < pair[1].name, "{} must come before {}", pair[1].name, pair[0].name);
        }
    }

    #[test]
    fn every_row_says_what_and_where() {
        for it in all() {
            let name = &it.name;
            assert!(
                !name.is_empty()
                    && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(!it.effect.is_empty(), "{name} has no effect");
            assert!(!it.source.is_empty(), "{name} has no source");
            assert!(!it.kind.description().is_empty(), "{name} has no kind");
            assert!(!it.read_by.name().is_empty(), "{name} has no reader");
            assert_eq!(it.is_variable(), it.read_by != Reader::Nobody, "{name}");
            for text in [it.effect.as_str(), &it.default, it.kind.description(), &it.source] {
                assert_eq!(text.trim(), text, "{name}");
            }
            if let Some(instead) = &it.instead {
                assert!(find(instead).is_some_and(super::Variable::is_current), "{name} sends to {instead}");
            }
            let ids: BTreeSet<_> = it.advice.iter().map(|it| &it.id).collect();
            assert_eq!(ids.len(), it.advice.len(), "{name}: two pieces of advice with one id");
            for advice in &it.advice {
                let kebab = |it: u8| it == b'-' || it.is_ascii_lowercase() || it.is_ascii_digit();
                assert!(!advice.id.is_empty() && advice.id.bytes().all(kebab), "{name}: {}", advice.id);
                assert!(advice.when_not_to_set.starts_with('N'), "{name}: say when not to set it");
                assert!(advice.when_not_to_set.ends_with('.'), "{name}: a full sentence");
                assert!(!advice.source.is_empty(), "{name}");
                for range in &advice.versions {
                    assert!(
                        ["nccl", "aws-ofi-nccl", "libfabric"].contains(&range.component.as_str()),
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn finds_exact_names_only() {
        assert_eq!(find("NCCL_BUFFSIZE").unwrap().default, "4194304");
        assert!(find("nccl_buffsize").is_none());
        assert!(find("NCCL_BUFF").is_none());
        assert_eq!(
            find("NCCL_SHM_MEMCPY_MODE").unwrap().status,
            Status::RemovedAfter(Version::new(2, 30, 4))
        );
    }

    #[test]
    fn a_status_is_printed_as_it_is_written() {
        for text in ["current", "deprecated", "not a variable", "removed after 2.4.8", "removed before 2.3.5"]
        {
            assert_eq!(Status::try_from(text.to_owned()).map(|it| it.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "removed", "removed after x"] {
            assert!(Status::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_switch_is_an_integer_too() {
        let kind = |name| &find(name).unwrap().kind;
        assert_eq!(kind("NCCL_P2P_DISABLE"), &ValueKind::Bool);
        assert_eq!(kind("NCCL_BUFFSIZE"), &ValueKind::Integer("bytes".to_owned()));
        assert!(kind("NCCL_P2P_DISABLE").is_integer() && !kind("NCCL_ALGO").is_integer());
    }

    #[test]
    fn names_that_nobody_reads_are_known_as_such() {
        for name in ["NCCL_P2P_DIRECT_READ", "NCCL_P2P_DIRECT_WRITE", "NCCL_TIMEOUT"] {
            assert!(!find(name).unwrap().is_variable(), "{name}");
        }
        assert!(find("NCCL_TIMEOUT").unwrap().effect.contains("init_process_group"));
    }

    #[test]
    fn suggests_what_was_meant() {
        for (wrong, right) in [
            ("NCCL_P2P_DIRECT_READ", Some("NCCL_P2P_READ_ENABLE")),
            ("NCCL_ASYNC_ERROR_HANDLING", Some("TORCH_NCCL_ASYNC_ERROR_HANDLING")),
            ("NCCL_DEBUGG", Some("NCCL_DEBUG")),
            ("nccl_debug", Some("NCCL_DEBUG")),
            ("NCLL_DEBUG", Some("NCCL_DEBUG")),
            ("NCCL_BUFFSZIE", Some("NCCL_BUFFSIZE")),
            ("NCCL_SOCKET_IFACE", Some("NCCL_SOCKET_IFNAME")),
            ("NCCL_DISABLE_P2P", Some("NCCL_P2P_DISABLE")),
            ("FI_EFA_FORKSAFE", Some("FI_EFA_FORK_SAFE")),
            ("NCCL_TIMEOUT", None),
            ("NCCL_DEBUG", None),
            ("NCCL_FOO", None),
            ("MY_OWN_SETTING", None),
            ("HOME", None),
            ("NCCL_", None),
            ("", None),
        ] {
            assert_eq!(suggest(wrong).map(|it| it.name.as_str()), right, "{wrong}");
        }
    }

    #[test]
    fn advice_depends_on_the_release() {
        let advice = find("FI_PROVIDER").unwrap().find_advice("not-needed").unwrap();
        assert_eq!(advice.versions[0].to_string(), "aws-ofi-nccl 1.6.0 and newer");
        let plugin = |version| move |component: &str| (component == "aws-ofi-nccl").then_some(version);
        assert_eq!(advice.applies(plugin(Version::new(1, 16, 2))), Some(true));
        assert_eq!(advice.applies(plugin(Version::new(1, 5, 0))), Some(false));
        assert_eq!(advice.applies(|_| None), None);
        assert_eq!(find("NCCL_TIMEOUT").unwrap().advice[0].applies(|_| None), Some(true));
    }

    #[test]
    fn reads_ranges() {
        let range = Range::parse("nccl >=2.27.0 <2.29.0").unwrap();
        assert!(range.contains(Version::new(2, 28, 9)));
        assert!(!range.contains(Version::new(2, 29, 0)));
        for text in ["", "nccl", "nccl 2.1", "nccl >2.1", "nccl >=x"] {
            assert!(Range::parse(text).is_none(), "{text}");
        }
    }
}

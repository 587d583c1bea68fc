//! The environment variables of NCCL and of what stands around it: libfabric,
//! aws-ofi-nccl, PyTorch and its launcher, CUDA.
//!
//! `data/variables.csv` says what each one does, since when, and where that is
//! written. `data/advice.csv` says when it is better left alone, by version.
//! Names that people set although nothing reads them are listed too, because
//! NCCL never complains about a name it does not know.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use crate::Version;

/// One environment variable, or a name that is taken for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name, case-sensitive.
    pub name: String,
    /// What values it takes.
    pub kind: String,
    /// The value that holds when it is unset.
    pub default: String,
    /// The release that brought it, in words; empty where no source says so.
    pub since: String,
    /// The oldest release seen to read it, among those looked at.
    pub first_seen: String,
    /// The newest release seen to read it, among those looked at.
    pub last_seen: String,
    /// `current`, `deprecated`, `removed after <release>`, `removed before <release>`, or `not a variable`.
    pub status: String,
    /// The variable that is meant, or that took its place.
    pub instead: Option<String>,
    /// The default as it stands in the sources, by the release that changed it.
    pub default_history: String,
    /// What it does.
    pub effect: String,
    /// Where that is written.
    pub source: String,
    /// The program that reads it: `nccl`, `libfabric`, `pytorch`, ...
    pub read_by: String,
    /// When not to set it; empty where nothing speaks against it.
    pub advice: Vec<Advice>,
}

/// A reason not to set a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// When not to set it, and why.
    pub when_not_to_set: String,
    /// The releases it is about: all of these must hold; empty means every release.
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

impl Variable {
    /// Whether some program reads or once read it.
    pub fn is_variable(&self) -> bool {
        self.status != "not a variable"
    }

    /// The last release that reads it, where it is gone and that is known.
    pub fn removed_after(&self) -> Option<Version> {
        Version::parse(self.status.strip_prefix("removed after ")?)
    }

    /// Whether a current release reads it.
    fn is_current(&self) -> bool {
        self.status == "current" || self.status == "deprecated"
    }
}

impl Advice {
    /// Whether the advice is about the releases at hand; none when it depends on one that is not known.
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
    /// Whether a release lies in the range.
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
    // The data is part of the binary, and a test reads it: there is nobody to
    // tell about an error here, and nothing to panic about.
    ALL.get_or_init(|| read().unwrap_or_default())
}

/// The variable of exactly this name, also one that is not a variable.
pub fn find(name: &str) -> Option<&'static Variable> {
    let index = all().binary_search_by(|it| it.name.as_str().cmp(name)).ok()?;
    all().get(index)
}

/// What somebody meant who wrote this name.
///
/// A name that the data sends elsewhere goes there, so an old or an invented
/// one is answered by hand; a name in the wrong case, with its words in
/// another order or with a slip of up to three letters goes to the nearest
/// one. A name that is right, or like nothing known, gets no answer.
pub fn suggest(name: &str) -> Option<&'static Variable> {
    let upper = name.to_ascii_uppercase();
    if let Some(known) = find(&upper) {
        return match &known.instead {
            Some(instead) => find(instead),
            None => (known.is_variable() && upper != name).then_some(known),
        };
    }
    let (family, stem) = upper.split_once('_')?;
    // A short name is near to everything: a third of its letters may be wrong.
    let allowed = (stem.len() / 3).min(3);
    let words = sorted_words(&upper);
    all()
        .iter()
        .filter(|it| it.is_current())
        .filter_map(|it| {
            let (its_family, _) = it.name.split_once('_')?;
            let distance = if sorted_words(&it.name) == words {
                0
            } else if it.name.len().abs_diff(upper.len()) > allowed || edits(family, its_family) > 1 {
                return None;
            } else {
                edits(&upper, &it.name)
            };
            (distance <= allowed).then_some((distance, upper.len() - common_prefix(&upper, &it.name), it))
        })
        .min_by_key(|&(distance, rest, _)| (distance, rest))
        .map(|(_, _, it)| it)
}

fn sorted_words(name: &str) -> Vec<&str> {
    let mut words: Vec<_> = name.split('_').collect();
    words.sort_unstable();
    words
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count()
}

/// How many letters must be put in, taken out, replaced or swapped with their neighbour.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // Three rows of the usual table: swaps look back two.
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

fn read() -> Result<Vec<Variable>, Malformed> {
    let mut advice: BTreeMap<String, Vec<Advice>> = BTreeMap::new();
    let rows = table(include_str!("../data/advice.csv"), ["name", "when_not_to_set", "versions", "source"])?;
    for (line, [name, when_not_to_set, versions, source]) in rows {
        let versions = read_versions(&versions).ok_or(Malformed { line, what: "not a list of releases" })?;
        advice.entry(name).or_default().push(Advice { when_not_to_set, versions, source });
    }
    let header = [
        "name",
        "kind",
        "default",
        "since",
        "first_seen",
        "last_seen",
        "status",
        "instead",
        "default_history",
        "effect",
        "source",
        "read_by",
    ];
    let rows = table(include_str!("../data/variables.csv"), header)?;
    let variables = rows.into_iter().map(|(_, row)| {
        let [
            name,
            kind,
            default,
            since,
            first_seen,
            last_seen,
            status,
            instead,
            default_history,
            effect,
            source,
            read_by,
        ] = row;
        Variable {
            advice: advice.remove(&name).unwrap_or_default(),
            instead: (!instead.is_empty()).then_some(instead),
            name,
            kind,
            default,
            since,
            first_seen,
            last_seen,
            status,
            default_history,
            effect,
            source,
            read_by,
        }
    });
    let variables = variables.collect();
    // What is left would be advice about nothing.
    if advice.is_empty() {
        Ok(variables)
    } else {
        Err(Malformed { line: 0, what: "advice on an unknown variable" })
    }
}

/// Reads `all`, or ranges separated by semicolons.
fn read_versions(text: &str) -> Option<Vec<Range>> {
    if text == "all" { Some(Vec::new()) } else { text.split(';').map(Range::parse).collect() }
}

/// What is wrong with a table, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    line: usize,
    what: &'static str,
}

/// The rows of a CSV file (RFC 4180) under this header, each with its line.
///
/// Strict, because the data is ours: a row with too few or too many fields or
/// a stray quote is a mistake to be seen, not to be guessed around.
pub(crate) fn table<const N: usize>(
    text: &str,
    header: [&str; N],
) -> Result<Vec<(usize, [String; N])>, Malformed> {
    let mut rows = records(text)?.into_iter().map(|(line, fields)| {
        let row = <[String; N]>::try_from(fields)
            .map_err(|_| Malformed { line, what: "wrong number of fields" })?;
        Ok((line, row))
    });
    match rows.next() {
        Some(Ok((_, row))) if row == header => rows.collect(),
        Some(Err(error)) => Err(error),
        _ => Err(Malformed { line: 1, what: "not the expected header" }),
    }
}

fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, Malformed> {
    let mut records = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while !rest.is_empty() {
        let start = line;
        let mut fields = Vec::new();
        loop {
            let (field, after) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    quoted_field(quoted).ok_or(Malformed { line, what: "a quote is not closed" })?
                }
                None => plain_field(rest),
            };
            line += field.matches('\n').count();
            if !rest.starts_with('"') && field.contains(['"', '\r']) {
                return Err(Malformed { line, what: "a quote or a carriage return outside of quotes" });
            }
            fields.push(field);
            if let Some(next) = after.strip_prefix(',') {
                rest = next;
            } else if let Some(next) = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')) {
                rest = next;
                line += 1;
                break;
            } else if after.is_empty() {
                rest = after;
                break;
            } else {
                return Err(Malformed { line, what: "text after a closing quote" });
            }
        }
        records.push((start, fields));
    }
    Ok(records)
}

/// A field up to its comma or line end, and what follows.
fn plain_field(text: &str) -> (String, &str) {
    let end = text.find([',', '\n']).unwrap_or(text.len());
    let (field, after) = text.split_at(end);
    match field.strip_suffix('\r') {
        Some(field) if after.starts_with('\n') => (field.to_owned(), after),
        _ => (field.to_owned(), after),
    }
}

/// A field whose opening quote is read already, and what follows its closing quote.
fn quoted_field(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        // Two quotes stand for one; one alone ends the field.
        let Some(next) = after.strip_prefix('"') else { return Some((field, after)) };
        field.push('"');
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, Range, all, edits, find, read, records, suggest, table};
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
            assert!(!it.kind.is_empty(), "{name} has no kind");
            assert!(!it.read_by.is_empty(), "{name} is read by nobody");
            let removed = it.removed_after().is_some() || it.status.starts_with("removed before ");
            assert!(
                removed || ["current", "deprecated", "not a variable"].contains(&it.status.as_str()),
                "{name}"
            );
            assert_eq!(it.is_variable(), it.read_by != "none", "{name}");
            for text in [&it.effect, &it.default, &it.kind, &it.source] {
                assert_eq!(text.trim(), text, "{name}");
            }
            if let Some(instead) = &it.instead {
                assert!(find(instead).is_some_and(super::Variable::is_current), "{name} sends to {instead}");
            }
            for advice in &it.advice {
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
        assert_eq!(find("NCCL_SHM_MEMCPY_MODE").unwrap().removed_after(), Some(Version::new(2, 30, 4)));
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
    fn counts_edits() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "AB", 2),
            ("AB", "", 2),
            ("ABC", "ABC", 0),
            ("ABC", "ACB", 1),
            ("KITTEN", "SITTING", 3),
        ] {
            assert_eq!(edits(a, b), want, "{a} {b}");
        }
    }

    #[test]
    fn advice_depends_on_the_release() {
        let advice = &find("FI_PROVIDER").unwrap().advice[0];
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

    #[test]
    fn reads_csv_as_written() {
        let text = "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\"\",\n";
        let rows = table(text, ["a", "b"]).unwrap();
        assert_eq!(
            rows,
            [(2, ["1".to_owned(), "x, \"y\"\nz".to_owned()]), (4, [String::new(), String::new()]),]
        );
        assert_eq!(table("a\n1", ["a"]).unwrap(), [(2, ["1".to_owned()])]);
        assert_eq!(records("").unwrap(), []);
    }

    #[test]
    fn refuses_csv_that_is_wrong() {
        for (text, line, what) in [
            ("a,b\n1\n", 2, "wrong number of fields"),
            ("a,b\n1,2,3\n", 2, "wrong number of fields"),
            ("a,b\n\n", 2, "wrong number of fields"),
            ("a,c\n", 1, "not the expected header"),
            ("", 1, "not the expected header"),
            ("a,b\n1,\"2\n", 2, "a quote is not closed"),
            ("a,b\n1,\"2\"3\n", 2, "text after a closing quote"),
            ("a,b\n1,2\"\n", 2, "a quote or a carriage return outside of quotes"),
            ("a,b\n1\r,2\n", 2, "a quote or a carriage return outside of quotes"),
        ] {
            assert_eq!(table(text, ["a", "b"]).unwrap_err(), Malformed { line, what }, "{text:?}");
        }
    }
}

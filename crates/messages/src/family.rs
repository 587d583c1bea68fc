//! What the wordings of one message mean.
//!
//! `data/families.toml` has one entry for each message that people meet. Its patterns select the wordings of all releases: the fixed parts of
//! a message in their order, with `{}` between them. Case, blanks before colons and double blanks do not matter. Harmless messages are
//! known by their whole text: their patterns must begin and end it, unless they begin or end with `{}`. A pattern of another class
//! that ends with `$` must end the message.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::values::{self, Table, Value};

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Names what is wrong.
    Cause,
    /// Follows from an earlier failure, here or in another process.
    Consequence,
    /// Nothing is wrong.
    Harmless,
    /// A setting has a value that NCCL cannot use, or forbids what the job needs.
    Setting,
    /// The program calls NCCL in a way that is not allowed.
    Usage,
    /// A check inside NCCL or a plugin failed.
    Internal,
}

impl Class {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Consequence => "consequence",
            Self::Harmless => "harmless",
            Self::Setting => "setting",
            Self::Usage => "usage",
            Self::Internal => "internal",
        }
    }
}

/// How sure a cause is, given only the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// One of several.
    Possible,
    /// The usual one.
    Likely,
    /// The message says so itself.
    Certain,
}

/// A cause of a message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The cause, as the end of ‘because ...’.
    pub text: Box<str>,
    /// How sure it is.
    pub confidence: Confidence,
}

/// What a message means with one of these values, in one of these files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Codes of the family's table; empty for all.
    #[serde(default)]
    pub codes: Vec<i64>,
    /// Ends of the path of the source file that prints the message; empty for all.
    #[serde(default)]
    pub files: Vec<Box<str>>,
    /// What it means then.
    pub meaning: Box<str>,
    /// What to do then.
    pub remedy: Box<str>,
    /// The class, where it differs from the family's.
    pub class: Option<Class>,
}

/// A message that people meet, in all its wordings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// A unique name.
    pub id: Box<str>,
    /// What kind of message it is.
    pub class: Class,
    /// Who prints it, where the wording alone does not tell: `nccl`, `aws-ofi-nccl`, `libfabric`.
    pub product: Option<Box<str>>,
    /// What selects its wordings.
    pub patterns: Vec<Box<str>>,
    /// Ends of the paths of the source files that print it; empty for any.
    #[serde(default)]
    pub files: Vec<Box<str>>,
    /// The table that the deciding value of the message belongs to.
    pub value: Option<Table>,
    /// What it means.
    pub meaning: Box<str>,
    /// Why it happens.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// What to do.
    pub remedy: Box<str>,
    /// What else to look at.
    #[serde(default)]
    pub look: Box<str>,
    /// File and function of the source, and threads.
    #[serde(default)]
    pub references: Vec<Box<str>>,
    /// What it means with a value or in a file.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

/// What a message means with the value and the file it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The family.
    pub family: &'static Family,
    /// The value in the message, if the family has a table and the message a value of it.
    pub value: Option<&'static Value>,
    /// The variant that value and file select.
    pub variant: Option<&'static Variant>,
}

impl Reading {
    /// The class of the message.
    pub fn class(&self) -> Class {
        self.variant.and_then(|it| it.class).unwrap_or(self.family.class)
    }

    /// What the message means: of the variant, else of the family.
    pub fn meaning(&self) -> &'static str {
        self.variant.map_or(&self.family.meaning, |it| &it.meaning)
    }

    /// What to do: of the variant, else of the family.
    pub fn remedy(&self) -> &'static str {
        self.variant.map_or(&self.family.remedy, |it| &it.remedy)
    }
}

/// All families.
pub fn all() -> &'static [Family] {
    static FAMILIES: OnceLock<Vec<Family>> = OnceLock::new();
    // A test proves that the data can be read.
    FAMILIES.get_or_init(|| read().unwrap_or_default())
}

/// The family with this id.
pub fn find(id: &str) -> Option<&'static Family> {
    all().iter().find(|it| &*it.id == id)
}

/// The family of a message or of a wording with `{}` for its holes, the one with the longest pattern. `file` is the source file that
/// prints it, where the line says so.
pub fn of(text: &str, file: Option<&str>) -> Option<&'static Family> {
    let text = normalised(text);
    let fits = |it: &&Pattern| {
        let family = it.family();
        let here = family.files.is_empty()
            || file.is_none_or(|file| family.files.iter().any(|end| file.ends_with(&**end)));
        here && it.matches(&text)
    };
    patterns().iter().filter(fits).max_by_key(|it| it.length).map(Pattern::family)
}

/// What a message means, with its value and file.
pub fn reading(text: &str, file: Option<&str>) -> Option<Reading> {
    let family = of(text, file)?;
    let value = family.value.and_then(|table| values::in_text(table, text));
    let variant = family.variants.iter().find(|it| {
        let code = it.codes.is_empty() || value.is_some_and(|value| it.codes.contains(&value.code));
        let here =
            it.files.is_empty() || file.is_some_and(|file| it.files.iter().any(|end| file.ends_with(&**end)));
        code && here
    });
    Some(Reading { family, value, variant })
}

#[derive(Debug)]
struct Pattern {
    family: usize,
    parts: Vec<String>,
    /// Whether the first part must begin the message.
    from_start: bool,
    /// Whether the last part must end it, but for a full stop.
    to_end: bool,
    length: usize,
}

impl Pattern {
    fn family(&self) -> &'static Family {
        // The index is that of the family it was made from.
        &all()[self.family]
    }

    fn matches(&self, text: &str) -> bool {
        let mut rest = text;
        for (n, part) in self.parts.iter().enumerate() {
            let Some(at) = rest.find(part.as_str()) else { return false };
            if n == 0 && self.from_start && at != 0 {
                return false;
            }
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        !self.to_end || rest.trim_matches(['.', ' ']).is_empty()
    }
}

fn patterns() -> &'static [Pattern] {
    static PATTERNS: OnceLock<Vec<Pattern>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let mut patterns = Vec::new();
        for (family, it) in all().iter().enumerate() {
            for text in &it.patterns {
                let harmless = it.class == Class::Harmless;
                let from_start = harmless && !text.starts_with("{}");
                let to_end = text.ends_with('$') || (harmless && !text.ends_with("{}"));
                let parts: Vec<String> = text
                    .trim_end_matches('$')
                    .split("{}")
                    .map(normalised)
                    .filter(|it| !it.is_empty())
                    .collect();
                let length = parts.iter().map(String::len).sum();
                patterns.push(Pattern { family, parts, from_start, to_end, length });
            }
        }
        patterns
    })
}

/// Lower case, single blanks, none before a colon.
fn normalised(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    text.replace(" :", ":")
}

fn read() -> Result<Vec<Family>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        family: Vec<Family>,
    }
    let file: File = toml::from_str(include_str!("../data/families.toml"))?;
    Ok(file.family)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Class, all, find, of, read, reading};

    #[test]
    fn the_data_can_be_read_and_is_complete() {
        let families = read().unwrap();
        assert!(families.len() >= 150, "{}", families.len());
        let mut ids = BTreeSet::new();
        for it in &families {
            assert!(ids.insert(&it.id), "two families are called {}", it.id);
            assert!(
                it.id.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-'),
                "{}",
                it.id
            );
            assert!(!it.patterns.is_empty(), "{}", it.id);
            assert!(it.meaning.ends_with('.') && it.remedy.ends_with('.'), "{}", it.id);
            assert!(
                it.variants.iter().all(|it| it.meaning.ends_with('.') && it.remedy.ends_with('.')),
                "{}",
                it.id
            );
            assert!(it.class == Class::Harmless || !it.references.is_empty(), "{}", it.id);
        }
    }

    #[test]
    fn every_pattern_selects_its_own_family() {
        for family in all() {
            for pattern in &family.patterns {
                let text = pattern.trim_end_matches('$').replace("{}", " 7 ");
                let found = of(&text, family.files.first().map(|it| &**it)).map(|it| &it.id);
                assert_eq!(found, Some(&family.id), "{pattern}");
            }
        }
    }

    #[test]
    fn value_and_file_decide() {
        let meaning = |text, file| reading(text, file).map(|it| it.meaning()).unwrap();
        let peer = "Cuda failure 217 'peer access is not supported between these two devices'";
        assert!(meaning(peer, Some("transport/p2p.cc")) != meaning(peer, Some("transport/shm.cc")));
        let asserted = reading("Cuda failure 710 'device-side assert triggered'", Some("proxy.cc")).unwrap();
        assert_eq!(asserted.value.map(|it| it.code), Some(710));
        assert!(asserted.variant.is_some());
        let ending = reading("Cuda failure 4 'driver shutting down'", None).unwrap();
        assert_eq!(ending.class(), Class::Consequence);
    }

    #[test]
    fn harmless_ones_are_known_by_their_whole_text() {
        let class = |text| of(text, None).map(|it| it.class);
        assert_eq!(class("Failed to open libibverbs.so[.1]"), Some(Class::Harmless));
        assert_ne!(
            class("Failed to open libibverbs.so[.1] and then the building burnt down"),
            Some(Class::Harmless)
        );
        assert!(of("a line of something else", None).is_none());
        assert!(find("cuda-failure").is_some());
    }
}

//! A job file in the making: values from several inputs, each with its place.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// Where a value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or a flag of the command line.
    pub file: Box<str>,
    /// The line; 0 where there is none.
    pub line: usize,
}

impl Place {
    /// A line of a file.
    pub fn new(file: &str, line: usize) -> Self {
        Self { file: file.into(), line }
    }

    /// A flag.
    pub fn flag(name: &str) -> Self {
        Self::new(name, 0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// How much a value weighs against another of the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A default of the program that reads the file.
    Assumed,
    /// Follows from something else, such as a configuration that a file names.
    Follows,
    /// Written down in a file of settings of accelerate, which its command line overrides.
    Configured,
    /// Written down.
    Stated,
    /// A flag of plumb.
    Flag,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) place: Place,
    pub(super) weight: Weight,
    /// What the input calls it: `--micro-batch-size`.
    pub(super) called: String,
}

/// `--micro-batch-size is 4 (train.sh:7)`; a flag names itself and its value.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        if place == self.called {
            f.write_str(&place)
        } else {
            write!(f, "{} is {} ({place})", self.called, shown(&self.value))
        }
    }
}

/// The value of one key and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated<'a> {
    /// The value.
    pub value: &'a Value,
    /// Its place.
    pub place: &'a Place,
    /// What the input calls it.
    pub called: &'a str,
}

/// Values of a job file by table and key, as `run.tp`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    entries: BTreeMap<String, Entry>,
    /// What contradicts, in sentences.
    pub conflicts: Vec<String>,
    /// What a reader should know, in sentences.
    pub notes: Vec<String>,
    /// Settings that change time or memory and are not modelled.
    pub not_modelled: Vec<String>,
    /// A setting of a kind of training that is not predicted, in a sentence.
    pub(super) refused: Option<String>,
    /// What was assumed: the key and the value in words.
    pub assumed: Vec<String>,
    /// Files of measurements, with the place that names them.
    pub measured: Vec<(String, Place)>,
    /// What to call the model, where its shape comes from a file.
    pub title: Option<String>,
}

impl Draft {
    /// Gives a key a value. Of two values the heavier counts; of equal weight they must agree.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, called: &str, place: &Place, weight: Weight) {
        let entry = Entry { value: value.into(), place: place.clone(), weight, called: called.to_owned() };
        let Some(old) = self.entries.get(key) else {
            self.entries.insert(key.to_owned(), entry);
            return;
        };
        let differs = old.value != entry.value;
        let (lighter, heavier) = if old.weight > weight { (&entry, old) } else { (old, &entry) };
        if differs && lighter.weight == heavier.weight && weight > Weight::Follows {
            self.conflicts.push(format!("{old}, but {entry}"));
        } else if differs && (lighter.weight, heavier.weight) == (Weight::Configured, Weight::Stated) {
            self.notes.push(format!("{lighter}, but {heavier}, which counts"));
        }
        if old.weight < weight || (old.weight == weight && !differs) {
            self.entries.insert(key.to_owned(), entry);
        }
    }

    /// A value that a file states.
    pub fn state(&mut self, key: &str, value: impl Into<Value>, called: &str, place: &Place) {
        self.set(key, value, called, place, Weight::Stated);
    }

    /// A value for a key that has none.
    pub(super) fn assume(&mut self, key: &str, value: impl Into<Value>, why: &str) {
        if !self.has(key) {
            self.set(key, value, key, &Place::flag("assumed"), Weight::Assumed);
            self.assumed.push(why.to_owned());
        }
    }

    /// What a key has.
    pub fn get(&self, key: &str) -> Option<Stated<'_>> {
        let entry = self.entries.get(key)?;
        Some(Stated { value: &entry.value, place: &entry.place, called: &entry.called })
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.entries.get(key)?.value.as_u64()
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.entries.get(key)?.value.as_str()
    }

    /// Whether a key has a value.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn weight(&self, key: &str) -> Option<Weight> {
        self.entries.get(key).map(|it| it.weight)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Entry> {
        self.entries.remove(key)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str, Weight) -> bool) {
        self.entries.retain(|key, entry| keep(key, entry.weight));
    }

    /// Of several such settings, the first is named.
    pub(super) fn refuse(&mut self, called: &str, place: &Place, why: &str) {
        self.refused.get_or_insert_with(|| format!("{called} ({place}): {why}"));
    }

    pub(super) fn not_modelled(&mut self, what: &str) {
        if !self.not_modelled.iter().any(|it| it == what) {
            self.not_modelled.push(what.to_owned());
        }
    }

    /// The job file: tables of keys.
    pub(super) fn value(&self) -> Value {
        let mut root = Map::new();
        for (key, entry) in &self.entries {
            let mut parts = key.split('.');
            let table = parts.next().unwrap_or_default();
            // What only inputs have.
            if ["batch", "launch", "deepspeed"].contains(&table) {
                continue;
            }
            let Some(name) = parts.next() else {
                root.insert(table.to_owned(), entry.value.clone());
                continue;
            };
            let table = root.entry(table).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(table) = table else { continue };
            match parts.next() {
                // A table without keys.
                None if name.is_empty() => {}
                None => {
                    table.insert(name.to_owned(), entry.value.clone());
                }
                Some(inner) => {
                    let group = table.entry(name).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(group) = group {
                        group.insert(inner.to_owned(), entry.value.clone());
                    }
                }
            }
        }
        Value::Object(root)
    }
}

/// A value as a sentence has it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

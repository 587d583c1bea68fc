//! Settings by name, whether they come from a command line or from a file: `--micro-batch-size 4`, `"micro_batch_size": 4`.

use evidence::shell::{Commands, Spelled};
use evidence::yaml::{Kind, NodeId, Tree};

use super::draft::Place;

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// Without dashes at its beginning, in small letters, `_` for `-`.
    pub(super) name: String,
    /// As the input writes it.
    pub(super) called: String,
    /// Its values; empty for a flag without one.
    pub(super) values: Vec<String>,
    pub(super) place: Place,
}

impl Setting {
    /// The first value.
    pub(super) fn text(&self) -> &str {
        self.values.first().map(String::as_str).unwrap_or_default()
    }

    /// A whole number. Python takes `1_000`.
    pub(super) fn number(&self) -> Option<u64> {
        self.text().trim().replace('_', "").parse().ok()
    }

    /// Whether it is on: given without a value, or with one that means yes.
    pub(super) fn is_on(&self) -> bool {
        let text = self.text().trim().trim_matches('"').to_ascii_lowercase();
        !matches!(text.as_str(), "false" | "no" | "0" | "none" | "null" | "off" | "~") && !text.contains('$')
    }

    /// What a value depends on that the input does not say: `NUM_LAYERS` of `${NUM_LAYERS}`.
    pub(super) fn open(&self) -> Option<&str> {
        let text = self.text();
        text.contains(['$', '`']).then_some(text)
    }
}

/// All settings of one command or file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Options(pub(super) Vec<Setting>);

fn normal(name: &str) -> String {
    name.trim_start_matches('-').to_ascii_lowercase().replace('-', "_")
}

impl Options {
    /// The options among the words of a command.
    pub(super) fn of_words(words: &[Spelled], place: impl Fn(&Spelled) -> Place) -> Self {
        let mut all: Vec<Setting> = Vec::new();
        for word in words {
            // Hydra and torchtune write `name=value`, others `--name value` or `--name=value`.
            if let Some(name) = word.text.strip_prefix("--").filter(|it| !it.is_empty()) {
                let (name, value) = match name.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (name, None),
                };
                all.push(Setting {
                    name: normal(name),
                    called: format!("--{name}"),
                    values: value.map(|it| unquoted(it).to_owned()).into_iter().collect(),
                    place: place(word),
                });
            } else if let Some(last) = all.last_mut() {
                // The line of the value is the one to change.
                if last.values.is_empty() {
                    last.place = place(word);
                }
                last.values.push(unquoted(&word.text).to_owned());
            }
        }
        Self(all)
    }

    /// The keys and values of a mapping.
    pub(super) fn of_tree(tree: &Tree, root: NodeId, file: &str) -> Self {
        let setting = |&(key, value): &(NodeId, NodeId)| {
            let called = tree.text(key)?.to_owned();
            if tree.is_null(value) {
                return None;
            }
            let values = match &tree.node(value).kind {
                Kind::Scalar { text, .. } => vec![text.to_string()],
                Kind::Sequence(items) => {
                    items.iter().filter_map(|it| tree.text(*it)).map(ToOwned::to_owned).collect()
                }
                Kind::Mapping(_) => return None,
            };
            let place = Place::new(file, tree.node(key).span.line);
            Some(Setting { name: normal(&called), called, values, place })
        };
        Self(tree.entries(root).iter().filter_map(setting).collect())
    }

    /// The last setting of one of these names, as argparse takes it.
    pub(super) fn get(&self, names: &[&str]) -> Option<&Setting> {
        self.0.iter().rev().find(|it| names.contains(&it.name.as_str()))
    }

    /// Whether a flag is on.
    pub(super) fn on(&self, names: &[&str]) -> bool {
        self.get(names).is_some_and(Setting::is_on)
    }

    /// The number of a setting.
    pub(super) fn number(&self, names: &[&str]) -> Option<u64> {
        self.get(names)?.number()
    }

    /// How many of these names it has.
    pub(super) fn count(&self, names: &[&str]) -> usize {
        names.iter().filter(|name| self.get(&[name]).is_some()).count()
    }
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

/// The place of a word of a script.
pub(super) fn place_in(commands: &Commands, word: &Spelled) -> Place {
    Place::new(commands.files.get(word.file).map(String::as_str).unwrap_or_default(), word.line)
}

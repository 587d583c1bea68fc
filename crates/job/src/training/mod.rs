//! A training job from what people have: job files, settings of `DeepSpeed` and of the Hugging Face Trainer, command lines of
//! Megatron, manifests.
//!
//! ```text
//! texts, recognised by content -> Draft: keys of a job file, each with file and line -> Finished: the job file, and what was assumed
//! ```
//!
//! Two inputs that contradict each other are named with both places. What no input says takes the default of the program that
//! reads it, and is listed; a model and a machine are never assumed.

mod accelerate;
mod arguments;
mod config;
mod deepspeed;
mod draft;
mod finish;
mod manifest;
mod megatron;
mod options;
mod pipeline_layout;
mod script;

use evidence::yaml::{NodeId, Tree};
use serde_json::Value;

pub use draft::{Draft, Place, Stated, Weight};
pub use finish::Finished;

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its name, as messages print it.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Reads files that inputs name.
pub trait Files {
    /// The file `path`, as the file `from` names it. The error names the file.
    fn read(&mut self, from: &str, path: &str) -> Result<Text, String>;
}

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// plumb's own job file, TOML or JSON.
    Job,
    /// `config.json` of a model on Hugging Face.
    Config,
    /// Settings of `DeepSpeed`.
    DeepSpeed,
    /// `TrainingArguments` of Hugging Face.
    Arguments,
    /// Settings of accelerate.
    Accelerate,
    /// Objects for Kubernetes.
    Manifest,
    /// A script of a shell, or one command.
    Script,
}

/// How deep files can name each other.
const DEEPEST: usize = 8;

/// Inputs of one job.
pub struct Inputs<'f> {
    draft: Draft,
    files: &'f mut dyn Files,
    /// Variables of scripts that the user gives.
    variables: Vec<(String, String)>,
    /// The files that are being read, the innermost last.
    open: Vec<String>,
    /// Whether anything but job files was read.
    foreign: bool,
}

impl<'f> Inputs<'f> {
    /// No input yet. Variables are those that scripts get from outside, the positional ones as `1`, `2`, ...
    pub fn new(files: &'f mut dyn Files, variables: Vec<(String, String)>) -> Self {
        Self { draft: Draft::default(), files, variables, open: Vec::new(), foreign: false }
    }

    /// A value of a job file's key, as `run.seq`, that the user gives by a flag.
    pub fn flag(&mut self, key: &str, value: impl Into<Value>, flag: &str) {
        self.draft.set(key, value, flag, &Place::flag(flag), Weight::Flag);
        self.foreign = true;
    }

    /// The model that the user gives: its name, or a configuration.
    pub fn model(&mut self, text: &Text) -> Result<(), String> {
        let (tree, root) = tree(text)?;
        config::read(&tree, root, &text.name, Weight::Flag, &mut self.draft)?;
        self.foreign = true;
        Ok(())
    }

    /// A file, or a command line. What it is, is seen from its content unless it is given.
    pub fn add(&mut self, text: &Text, kind: Option<Kind>) -> Result<(), String> {
        let kind = match kind {
            Some(kind) => kind,
            None => recognise(text)?,
        };
        self.enter(&text.name, &Place::new(&text.name, 0))?;
        self.foreign |= kind != Kind::Job;
        let read = self.read(text, kind);
        self.open.pop();
        read
    }

    fn read(&mut self, text: &Text, kind: Kind) -> Result<(), String> {
        let name = text.name.as_str();
        match kind {
            Kind::Job => self.job(text),
            Kind::Script => script::read(self, text),
            Kind::Manifest => manifest::read(self, text),
            Kind::Config => {
                let (tree, root) = tree(text)?;
                config::read(&tree, root, name, Weight::Stated, &mut self.draft)
            }
            Kind::DeepSpeed => {
                let (tree, root) = tree(text)?;
                deepspeed::read(&tree, root, name, 1, &mut self.draft)
            }
            Kind::Accelerate => {
                let (tree, root) = tree(text)?;
                accelerate::read(self, &tree, root, name)
            }
            Kind::Arguments => {
                let (tree, root) = tree(text)?;
                // Settings of DeepSpeed and FSDP can stand in the file itself.
                if let Some(inner) = tree.get(root, "deepspeed").filter(|it| !tree.entries(*it).is_empty()) {
                    deepspeed::read(&tree, inner, name, 1, &mut self.draft)?;
                }
                let mut options = options::Options::of_tree(&tree, root, name);
                if let Some(inner) = tree.get(root, "fsdp_config") {
                    options.0.extend(options::Options::of_tree(&tree, inner, name).0);
                }
                self.arguments(&options, &Place::new(name, 1))
            }
        }
    }

    fn enter(&mut self, name: &str, place: &Place) -> Result<(), String> {
        if self.open.iter().any(|it| it == name) || self.open.len() >= DEEPEST {
            return Err(format!("{place}: names {name}, which is already being read: a circle"));
        }
        self.open.push(name.to_owned());
        Ok(())
    }

    /// Reads a file that another names.
    fn named(&mut self, path: &str, place: &Place, kind: Kind) -> Result<(), String> {
        let text = self.files.read(&place.file, path).map_err(|error| format!("{place}: {error}"))?;
        self.enter(&text.name, place)?;
        let read = self.read(&text, kind);
        self.open.pop();
        read
    }

    fn arguments(&mut self, options: &options::Options, place: &Place) -> Result<(), String> {
        let named = arguments::read(options, place, &mut self.draft).map_err(|open| {
            let names: Vec<String> = open.iter().filter_map(|it| variable(it.text())).collect();
            unset(&open, &names)
        })?;
        if let Some((path, place)) = named.deepspeed {
            self.deepspeed_file(&path, &place)?;
        }
        if let Some((name, place)) = named.model
            && !self.draft.has("model.name")
            && !self.draft.has("model.layers")
        {
            let folder = format!("{}/config.json", name.trim_end_matches('/'));
            if let Ok(text) = self.files.read(&place.file, &folder) {
                let (tree, root) = tree(&text)?;
                config::read(&tree, root, &text.name, Weight::Follows, &mut self.draft)?;
            } else {
                self.draft.set("model.name", common_name(&name), "the model", &place, Weight::Follows);
            }
        }
        Ok(())
    }

    /// Settings of `DeepSpeed` that a command or a file names; that they are not here is said, not refused.
    fn deepspeed_file(&mut self, path: &str, place: &Place) -> Result<(), String> {
        if path.contains(['$', '`']) {
            return Ok(());
        }
        if self.draft.weight("deepspeed.given").is_some() {
            return Ok(());
        }
        match self.files.read(&place.file, path) {
            Ok(_) => self.named(path, place, Kind::DeepSpeed),
            Err(_) => {
                self.draft.notes.push(format!(
                    "{place}: {path} is not here: give the settings of DeepSpeed with --deepspeed"
                ));
                Ok(())
            }
        }
    }

    /// Settings of `DeepSpeed` by a flag: a file that a command names is not read then.
    pub fn deepspeed(&mut self, text: &Text) -> Result<(), String> {
        self.draft.set("deepspeed.given", true, "--deepspeed", &Place::flag("--deepspeed"), Weight::Flag);
        self.add(text, Some(Kind::DeepSpeed))
    }

    fn job(&mut self, text: &Text) -> Result<(), String> {
        let name = text.name.as_str();
        let value: Value = if text.text.trim_start().starts_with('{') {
            serde_json::from_str(&text.text).map_err(|error| format!("{name}:{}: {error}", error.line()))?
        } else {
            toml::from_str(&text.text).map_err(|error| format!("{name}: {}", error.to_string().trim_end()))?
        };
        let Some(tables) = value.as_object() else {
            return Err(format!("{name}: is not a job: it has no tables"));
        };
        for (table, keys) in tables {
            let Some(keys) = keys.as_object() else {
                self.draft.state(
                    table,
                    keys.clone(),
                    table,
                    &Place::new(name, line_of(&text.text, "", table)),
                );
                continue;
            };
            if keys.is_empty() {
                self.draft.state(&format!("{table}."), Value::Null, table, &Place::new(name, 0));
            }
            for (key, value) in keys {
                let place = Place::new(name, line_of(&text.text, table, key));
                match (table.as_str(), key.as_str(), value) {
                    ("model", "config", Value::String(path)) => self.named_config(path, &place)?,
                    ("cluster", "measured", Value::String(path)) => {
                        self.draft.measured.push((path.clone(), place));
                    }
                    ("cluster", "measured", Value::Array(paths)) => {
                        let paths = paths.iter().filter_map(Value::as_str);
                        self.draft.measured.extend(paths.map(|it| (it.to_owned(), place.clone())));
                    }
                    (_, "offload" | "inter", Value::Object(inner)) => {
                        for (part, value) in inner {
                            self.draft.state(&format!("{table}.{key}.{part}"), value.clone(), key, &place);
                        }
                    }
                    _ => self.draft.state(&format!("{table}.{key}"), value.clone(), key, &place),
                }
            }
        }
        Ok(())
    }

    fn named_config(&mut self, path: &str, place: &Place) -> Result<(), String> {
        let text = self.files.read(&place.file, path).map_err(|error| format!("{place}: {error}"))?;
        let (tree, root) = tree(&text)?;
        config::read(&tree, root, &text.name, Weight::Follows, &mut self.draft)
    }

    /// The job file that all inputs make together.
    pub fn finish(self) -> Result<Finished, String> {
        finish::finish(self.draft, self.foreign)
    }

    /// The tables that all inputs make together, which something else completes: nothing is assumed.
    pub fn incomplete(self) -> Result<Finished, String> {
        finish::finish(self.draft, false)
    }
}

/// The line of a key in a job file; 0 where it is not found.
fn line_of(text: &str, table: &str, key: &str) -> usize {
    let mut inside = table.is_empty() || text.trim_start().starts_with('{');
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            inside = head.trim_end_matches(']').trim() == table;
        }
        let named = line.trim_start_matches('"').strip_prefix(key);
        if inside && named.is_some_and(|it| it.trim_start_matches('"').trim_start().starts_with(['=', ':'])) {
            return at + 1;
        }
    }
    0
}

/// The first document of YAML or JSON; the error has file and line.
fn tree(text: &Text) -> Result<(Tree, NodeId), String> {
    let name = &text.name;
    // JSON as JSON, so that what is missing at its end is called so.
    if text.text.trim_start().starts_with('{')
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text.text)
        && error.is_eof()
    {
        return Err(format!("{name}:{}: ends in the middle of a value", error.line()));
    }
    let tree =
        Tree::read(&text.text).map_err(|trouble| format!("{name}:{}: {}", trouble.line, trouble.text))?;
    let root = tree.documents.first().copied().ok_or_else(|| format!("{name}: is empty"))?;
    Ok((tree, root))
}

/// What a text is.
fn recognise(text: &Text) -> Result<Kind, String> {
    let (name, body) = (&text.name, text.text.as_str());
    let extension = name.rsplit('.').next().unwrap_or_default();
    if body.trim().is_empty() && extension != "toml" {
        return Err(format!("{name}: is empty"));
    }
    if body.contains('\0') {
        return Err(format!("{name}: is not a text"));
    }
    if let Some((whose, keys)) =
        FOREIGN.iter().find(|it| it.lines.iter().all(|it| has_line(body, it))).map(|it| (it.whose, it.keys))
    {
        return Err(format!(
            "{name}: has settings of {whose}, which plumb does not read: write a job file, where {keys}"
        ));
    }
    let is_table = |line: &str| {
        ["[model]", "[cluster]", "[run]", "[cluster.inter]", "[run.offload]"].contains(&line.trim())
    };
    if extension == "toml" || body.lines().any(is_table) {
        return Ok(Kind::Job);
    }
    if script::is_script(name, body) {
        return Ok(Kind::Script);
    }
    // A manifest that cannot be read is refused as one, with what is said of templates.
    let kinds = body.lines().any(|it| it.starts_with("kind:"))
        && body.lines().any(|it| it.starts_with("apiVersion:"));
    let (tree, root) = match tree(text) {
        Err(_) if kinds => return Ok(Kind::Manifest),
        read => read?,
    };
    let has = |key: &str| tree.get(root, key).is_some();
    let any = |keys: &[&str]| keys.iter().any(|it| has(it));
    Ok(
        if ["model", "cluster", "run"]
            .iter()
            .any(|it| tree.get(root, it).is_some_and(|it| !tree.entries(it).is_empty()))
        {
            Kind::Job
        } else if has("kind") && (any(&["apiVersion", "spec", "items"])) {
            Kind::Manifest
        } else if any(&["per_device_train_batch_size", "per_gpu_train_batch_size"]) {
            Kind::Arguments
        } else if any(&["distributed_type", "compute_environment"]) {
            Kind::Accelerate
        } else if any(&deepspeed::KEYS) {
            Kind::DeepSpeed
        } else if config::is_config(&tree, root) {
            Kind::Config
        } else if any(&["gradient_accumulation_steps", "gradient_checkpointing", "model_name_or_path"]) {
            Kind::Arguments
        } else if ["fp16", "bf16", "optimizer", "activation_checkpointing"]
            .iter()
            .any(|it| tree.at(root, &[it]).is_some_and(|it| !tree.entries(it).is_empty()))
        {
            Kind::DeepSpeed
        } else {
            return Err(format!(
                "{name}: is not a job that plumb reads: give a job file with [model], [cluster] and [run], settings of DeepSpeed, TrainingArguments, settings of accelerate, config.json of a model, a manifest, or a script that trains"
            ));
        },
    )
}

/// Settings of a framework that are not read, and what they are called in a job file.
struct Foreign {
    whose: &'static str,
    /// Lines that all of its files have.
    lines: &'static [&'static str],
    keys: &'static str,
}

const FOREIGN: [Foreign; 2] = [
    Foreign {
        whose: "NeMo",
        lines: &["trainer:", "model:"],
        keys: "trainer.num_nodes is `nodes` and trainer.devices `gpus_per_node` of [cluster]; tensor_model_parallel_size is `tp`, \
               pipeline_model_parallel_size `pp`, context_parallel_size `cp`, micro_batch_size `micro_batch`, global_batch_size \
               `global_batch` and encoder_seq_length `seq` of [run], with framework = \"megatron\"",
    },
    Foreign {
        whose: "torchtitan",
        lines: &["[training]", "[parallelism]"],
        keys: "flavor is a `name` of [model], as llama-3-8b; tensor_parallel_degree is `tp`, pipeline_parallel_degree `pp`, \
               context_parallel_degree `cp`, local_batch_size `micro_batch`, global_batch_size `global_batch` and seq_len `seq` of \
               [run], with framework = \"fsdp\"",
    },
];

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|it| it.trim_end() == line)
}

/// The name by which the catalogue has a model of Hugging Face.
fn common_name(name: &str) -> String {
    let name = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let name = name.strip_prefix("meta-").unwrap_or(&name);
    let mut name = name.to_owned();
    for suffix in ["-hf", "-instruct", "-chat", "-base", "-it", "-v0.1", "-v0.2", "-v0.3", "-bf16"] {
        if let Some(shorter) = name.strip_suffix(suffix) {
            name = shorter.to_owned();
        }
    }
    name
}

/// Says which values an input leaves to the outside, and which variables give them.
fn unset(open: &[options::Setting], variables: &[String]) -> String {
    let file = open.first().map(|it| it.place.file.clone()).unwrap_or_default();
    let shown = |it: &options::Setting| {
        let value = if it.text().is_empty() { "without a value" } else { it.text() };
        format!("{} {value} (line {})", it.called, it.place.line)
    };
    let mut settings: Vec<String> = open.iter().take(4).map(shown).collect();
    if open.len() > 4 {
        settings.push(format!("{} more", open.len() - 4));
    }
    let mut names: Vec<&String> = Vec::new();
    for name in variables {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let defines: Vec<String> = names.iter().take(10).map(|it| format!("--define {it}=...")).collect();
    let call = if names.iter().any(|it| it.bytes().all(|it| it.is_ascii_digit())) {
        format!("give its arguments, as in plumb predict 'bash {file} ARGUMENTS', or ")
    } else {
        String::new()
    };
    let how = if defines.is_empty() {
        "give numbers".to_owned()
    } else {
        format!("{call}add {}", defines.join(" "))
    };
    format!("{file}: does not set {}: {how}", settings.join(", "))
}

/// `NUM_LAYERS` of `${NUM_LAYERS}`.
fn variable(text: &str) -> Option<String> {
    // A part of a list is not given from outside.
    if text.contains('[') {
        return None;
    }
    let rest = text.split('$').nth(1)?.trim_start_matches('{');
    let name: String = rest.chars().take_while(|it| *it == '_' || it.is_ascii_alphanumeric()).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;

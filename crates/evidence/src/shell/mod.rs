//! The commands that a script of a shell runs, with variables filled in as far as the script defines them.
//!
//! Nothing is run. What depends on the machine stays as it is written: `$HOSTNAME`, `$(nproc)`. A condition that cannot be decided is
//! passed over with both of its branches, and named. Loops over a list run once, with the first item; `while` does not run.

mod arithmetic;
mod expand;
mod lex;
mod parse;
mod test;
mod traced;

use std::collections::BTreeMap;

use crate::yaml::Trouble;
use lex::Raw;
use parse::{After, Node, Step};
pub use traced::Traced;

/// A word of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Spelled {
    /// Without quotes, variables filled in.
    pub text: String,
    /// The file in which it is written: the script, or one that it sources.
    pub file: usize,
    /// The line.
    pub line: usize,
}

/// A file that the script writes itself: `cat <<EOT > ds.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenFile {
    /// Its name, as far as it is known.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The line at which its text begins.
    pub line: usize,
    /// The file in which it is written.
    pub file: usize,
}

/// A condition that cannot be decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Undecided {
    /// What it depends on: `$AC`.
    pub on: String,
    /// The file.
    pub file: usize,
    /// The line.
    pub line: usize,
}

/// What a script does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commands {
    /// The files: the script, and those it sources.
    pub files: Vec<String>,
    /// Every command, in order.
    pub commands: Vec<Vec<Spelled>>,
    /// Files it writes.
    pub written: Vec<WrittenFile>,
    /// Conditions that were passed over.
    pub undecided: Vec<Undecided>,
    /// Variables at the end.
    pub variables: BTreeMap<String, String>,
    /// The words of variables that hold options, `ARGS="--num-layers 32"`, for a script that only sets them.
    pub options: Vec<Spelled>,
}

/// Why a script cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptTrouble {
    /// The file.
    pub file: String,
    /// Where and why.
    pub trouble: Trouble,
}

/// Finds the text of a file that a script sources: the file that sources it, and the name there. None where it is not there.
pub type Sourced<'a> = dyn FnMut(&str, &str) -> Option<(String, String)> + 'a;

/// The most commands that are followed.
const MOST_COMMANDS: usize = 20_000;
/// The deepest calls of functions, `eval` and sourced files.
const DEEPEST: usize = 16;
/// The longest value of a variable.
const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone)]
enum Value {
    Text(Traced),
    List(Vec<Traced>),
}

struct Shell<'a, 's> {
    variables: BTreeMap<String, Value>,
    functions: BTreeMap<String, Vec<Step>>,
    found: Commands,
    source: &'a mut Sourced<'s>,
    /// The files that are open, the innermost last.
    open: Vec<usize>,
    depth: usize,
    steps: usize,
}

/// Follows a script. Some variables can be given, the positional ones as `1`, `2`, ...
pub fn follow(
    name: &str,
    text: &str,
    variables: &[(String, String)],
    source: &mut Sourced<'_>,
) -> Result<Commands, ScriptTrouble> {
    let given = variables.iter().map(|(name, value)| {
        let mut traced = Traced::default();
        traced.push(value, 0, 0);
        (name.clone(), Value::Text(traced))
    });
    let mut shell = Shell {
        variables: given.collect(),
        functions: BTreeMap::new(),
        found: Commands { files: vec![name.to_owned()], ..Commands::default() },
        source,
        open: vec![0],
        depth: 0,
        steps: 0,
    };
    let steps = parse::parse(text, 1).map_err(|trouble| ScriptTrouble { file: name.to_owned(), trouble })?;
    shell.run(&steps)?;
    shell.found.options = shell.options();
    let texts = shell.variables.iter().map(|(name, value)| (name.clone(), joined(value).text));
    shell.found.variables = texts.collect();
    Ok(shell.found)
}

fn joined(value: &Value) -> Traced {
    match value {
        Value::Text(text) => text.clone(),
        Value::List(items) => {
            let mut all = Traced::default();
            for item in items {
                if !all.text.is_empty() {
                    all.text.push(' ');
                }
                all.append(item);
            }
            all
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .enumerate()
            .all(|(at, it)| it == b'_' || it.is_ascii_alphabetic() || (at > 0 && it.is_ascii_digit()))
}

/// The name, whether it is added to, and the value as written: `NAME=value`, `NAME+=value`.
fn assignment(raw: &str) -> Option<(&str, bool, &str)> {
    let (name, value) = raw.split_once('=')?;
    let (name, adds) = name.strip_suffix('+').map_or((name, false), |it| (it, true));
    is_name(name).then_some((name, adds, value))
}

impl Shell<'_, '_> {
    fn file(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    fn trouble(&self, line: usize, text: String) -> ScriptTrouble {
        let file = self.found.files.get(self.file()).cloned().unwrap_or_default();
        ScriptTrouble { file, trouble: Trouble { line, column: 1, text } }
    }

    /// Whether the last command succeeded, where that can be known.
    fn run(&mut self, steps: &[Step]) -> Result<Option<bool>, ScriptTrouble> {
        let mut status = Some(true);
        for step in steps {
            let runs = match step.after {
                After::Anything => true,
                After::Success => status == Some(true),
                After::Failure => status == Some(false),
            };
            if runs {
                status = self.node(&step.node)?;
            }
        }
        Ok(status)
    }

    fn node(&mut self, node: &Node) -> Result<Option<bool>, ScriptTrouble> {
        self.steps += 1;
        if self.steps > MOST_COMMANDS {
            return Err(self.trouble(1, format!("runs more than {MOST_COMMANDS} commands")));
        }
        match node {
            Node::Command { words, here, target } => self.command(words, here.as_ref(), target.as_ref()),
            Node::Test(words) => Ok(self.test(words)),
            Node::Group(steps) => self.run(steps),
            Node::Loop => Ok(Some(true)),
            Node::Function { name, body } => {
                self.functions.insert(name.clone(), body.clone());
                Ok(Some(true))
            }
            Node::If { arms, otherwise } => {
                for (test, body) in arms {
                    match self.run(test)? {
                        Some(true) => return self.run(body),
                        Some(false) => {}
                        None => {
                            self.undecided(test);
                            return Ok(Some(true));
                        }
                    }
                }
                self.run(otherwise)
            }
            Node::For { name, items, body } => {
                let items: Vec<Traced> = items.iter().flat_map(|it| self.expand(it)).collect();
                let Some(first) = items.first() else { return Ok(Some(true)) };
                self.variables.insert(name.clone(), Value::Text(first.clone()));
                self.run(body)
            }
            Node::Case { word, arms } => {
                let text = self.expand_text(word).text;
                if text.contains(['$', '`']) {
                    self.note_undecided(&text, word.line);
                    return Ok(Some(true));
                }
                for (patterns, body) in arms {
                    let patterns: Vec<String> = patterns.iter().map(|it| self.expand_text(it).text).collect();
                    if patterns.iter().any(|it| test::matches(it, &text)) {
                        return self.run(body);
                    }
                }
                Ok(Some(true))
            }
        }
    }

    fn undecided(&mut self, steps: &[Step]) {
        let Some(Node::Test(words) | Node::Command { words, .. }) = steps.last().map(|it| &it.node) else {
            return;
        };
        let words = words.clone();
        let open = words.iter().find_map(|it| {
            let text = self.expand_text(it).text;
            let named = text.split('$').nth(1).is_some_and(|it| {
                it.starts_with(|it: char| it == '{' || it == '_' || it.is_ascii_alphanumeric())
            });
            named.then_some((text, it.line))
        });
        if let Some((on, line)) = open {
            self.note_undecided(&on, line);
        }
    }

    fn note_undecided(&mut self, on: &str, line: usize) {
        let file = self.file();
        self.found.undecided.push(Undecided { on: on.chars().take(40).collect(), file, line });
    }

    fn assign(&mut self, raw: &Raw, offset: usize) -> bool {
        let Some((name, adds, value)) = raw.text.get(offset..).and_then(assignment) else { return false };
        let list = value.strip_prefix('(').map(|it| it.strip_suffix(')').unwrap_or(it));
        let new = match list {
            Some(items) => {
                let steps = parse::parse(items, raw.line).unwrap_or_default();
                let mut all = Vec::new();
                for step in &steps {
                    if let Node::Command { words, .. } = &step.node {
                        all.extend(words.iter().flat_map(|it| self.expand(it)));
                    }
                }
                Value::List(all)
            }
            None => Value::Text(self.expand_text(&Raw { text: value.to_owned(), line: raw.line })),
        };
        let old = adds.then(|| self.variables.remove(name)).flatten();
        let value = match (old, new) {
            (Some(Value::List(mut old)), Value::List(new)) => {
                old.extend(new);
                Value::List(old)
            }
            (Some(Value::Text(mut old)), Value::Text(new)) => {
                old.append(&new);
                Value::Text(old)
            }
            (Some(Value::Text(old)), Value::List(mut new)) => {
                new.insert(0, old);
                Value::List(new)
            }
            (Some(Value::List(mut old)), Value::Text(new)) => {
                match old.first_mut() {
                    Some(first) => first.append(&new),
                    None => old.push(new),
                }
                Value::List(old)
            }
            (None, new) => new,
        };
        let size = match &value {
            Value::Text(text) => text.text.len(),
            Value::List(items) => items.iter().map(|it| it.text.len() + 1).sum(),
        };
        if size <= LONGEST {
            self.variables.insert(name.to_owned(), value);
        }
        true
    }

    fn command(
        &mut self,
        raw: &[Raw],
        here: Option<&lex::Here>,
        target: Option<&Raw>,
    ) -> Result<Option<bool>, ScriptTrouble> {
        let mut rest = raw;
        while let Some((first, others)) = rest.split_first() {
            if !self.assign(first, 0) {
                break;
            }
            rest = others;
        }
        if let Some((first, others)) = rest.split_first()
            && matches!(first.text.as_str(), "export" | "declare" | "local" | "readonly" | "typeset")
        {
            for word in others {
                self.assign(word, 0);
            }
            return Ok(Some(true));
        }
        let words: Vec<Traced> = rest.iter().flat_map(|it| self.expand(it)).collect();
        let line = rest.first().map_or(1, |it| it.line);
        let name = words.first().map(|it| it.text.clone()).unwrap_or_default();
        let called = name.rsplit('/').next().unwrap_or_default().to_owned();
        if let (Some(target), true) = (target, here.is_some() || matches!(called.as_str(), "echo" | "printf"))
        {
            self.write(target, here, &words);
        }
        match called.as_str() {
            "" | "true" | ":" | "set" | "cd" | "shift" | "mkdir" | "exit" | "wait" | "echo" | "printf"
            | "unset" | "cat" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            "[" | "test" => Ok(self.test(rest.get(1..).unwrap_or_default())),
            "source" | "." => {
                if let Some(file) = words.get(1) {
                    self.source(&file.text.clone(), line)?;
                }
                Ok(Some(true))
            }
            "eval" => {
                let text = joined(&Value::List(words.get(1..).unwrap_or_default().to_vec()));
                self.again(&text, line)
            }
            _ if self.functions.contains_key(&name) => {
                let body = self.functions.get(&name).cloned().unwrap_or_default();
                self.deeper(line, |shell| shell.run(&body))
            }
            _ => {
                if let Some(at) = called_script(&words) {
                    return self.call(&words, at, line);
                }
                if let Some((own, inner)) = remote_script(&words) {
                    self.keep(own);
                    return self.again(&inner, line);
                }
                self.keep(&words);
                if let Some(inner) = inner_script(&words) {
                    let inner = inner.clone();
                    return self.again(&inner, line);
                }
                Ok(None)
            }
        }
    }

    /// A text that a shell reads again: `eval`, `bash -c`, `ssh`.
    fn again(&mut self, text: &Traced, line: usize) -> Result<Option<bool>, ScriptTrouble> {
        let (first, _) = text.place(0);
        let steps = match parse::parse(&text.text, if first == 0 { line } else { first }) {
            Ok(steps) => steps,
            Err(trouble) => return Err(self.trouble(line, trouble.text)),
        };
        // Words that come from variables keep their places where the text was joined from them.
        let mut steps = steps;
        trace(&mut steps, text);
        self.deeper(line, |shell| shell.run(&steps))
    }

    fn deeper<T>(
        &mut self,
        line: usize,
        act: impl FnOnce(&mut Self) -> Result<T, ScriptTrouble>,
    ) -> Result<T, ScriptTrouble> {
        if self.depth >= DEEPEST {
            return Err(self.trouble(line, format!("calls itself, or is nested more than {DEEPEST} deep")));
        }
        self.depth += 1;
        let done = act(self);
        self.depth -= 1;
        done
    }

    /// A script that the command at `at` of the words starts, with its arguments.
    fn call(&mut self, words: &[Traced], at: usize, line: usize) -> Result<Option<bool>, ScriptTrouble> {
        let positional = |name: &String| name.bytes().all(|it| it.is_ascii_digit());
        let before = self.variables.clone();
        self.variables.retain(|name, _| !positional(name));
        let arguments = words.get(at + 1..).unwrap_or_default();
        for (number, argument) in arguments.iter().enumerate() {
            self.variables.insert((number + 1).to_string(), Value::Text(argument.clone()));
        }
        let path = words.get(at).map(|it| it.text.clone()).unwrap_or_default();
        let read = self.source(&path, line)?;
        self.variables = before;
        if !read {
            self.keep(words);
        }
        Ok(None)
    }

    /// The words of variables that hold options.
    fn options(&self) -> Vec<Spelled> {
        let mut all = Vec::new();
        for value in self.variables.values() {
            let text = joined(value);
            if !text.text.trim_start().starts_with("--") {
                continue;
            }
            let mut from = 0;
            for word in text.text.split_whitespace() {
                let at = text.text.get(from..).and_then(|it| it.find(word)).map_or(from, |it| from + it);
                from = at + word.len();
                let (line, of) = text.place(at);
                all.push(Spelled { text: word.to_owned(), file: of.saturating_sub(1), line });
            }
        }
        all
    }

    /// Follows a file; whether it is there.
    fn source(&mut self, path: &str, line: usize) -> Result<bool, ScriptTrouble> {
        let from = self.found.files.get(self.file()).cloned().unwrap_or_default();
        if path.contains(['$', '`']) {
            return Ok(false);
        }
        let Some((name, text)) = (self.source)(&from, path) else { return Ok(false) };
        let open = |it: &usize| self.found.files.get(*it) == Some(&name);
        if self.open.iter().any(open) {
            return Err(self.trouble(line, format!("sources {name}, which is already being read: a circle")));
        }
        let steps =
            parse::parse(&text, 1).map_err(|trouble| ScriptTrouble { file: name.clone(), trouble })?;
        self.found.files.push(name);
        self.open.push(self.found.files.len() - 1);
        let done = self.deeper(line, |shell| shell.run(&steps));
        self.open.pop();
        done.map(|_| true)
    }

    fn write(&mut self, target: &Raw, here: Option<&lex::Here>, words: &[Traced]) {
        let name = self.expand_text(target).text;
        let (text, line) = match here {
            Some(here) if here.expands => (self.expand_here(&here.text, here.line).text, here.line),
            Some(here) => (here.text.clone(), here.line),
            None => (joined(&Value::List(words.get(1..).unwrap_or_default().to_vec())).text, target.line),
        };
        let file = self.file();
        self.found.written.push(WrittenFile { name, text, line, file });
    }

    fn keep(&mut self, words: &[Traced]) {
        let file = self.file();
        let spelled = |it: &Traced| {
            let (line, of) = it.place(0);
            Spelled { text: it.text.clone(), file: if of == 0 { file } else { of - 1 }, line }
        };
        self.found.commands.push(words.iter().map(spelled).collect());
    }
}

/// Gives words the lines that the text they are cut from has.
fn trace(steps: &mut [Step], text: &Traced) {
    let mut from = 0;
    for step in steps {
        if let Node::Command { words, .. } = &mut step.node {
            for word in words {
                if let Some(at) = text.text.get(from..).and_then(|it| it.find(&word.text)) {
                    let (line, _) = text.place(from + at);
                    word.line = if line == 0 { word.line } else { line };
                    from += at + word.text.len();
                }
            }
        }
    }
}

/// The word that names a script which the command starts: `bash train.sh 7B`, `./train.sh 7B`.
fn called_script(words: &[Traced]) -> Option<usize> {
    let is_script = |it: &Traced| {
        let extension = it.text.rsplit('.').next().unwrap_or_default();
        it.text.contains('.') && matches!(extension, "sh" | "bash" | "slurm" | "sbatch")
    };
    let shell = matches!(words.first()?.text.rsplit('/').next(), Some("bash" | "sh" | "sbatch"));
    let at = if shell { words.iter().skip(1).position(|it| !it.text.starts_with('-'))? + 1 } else { 0 };
    words.get(at).filter(|it| is_script(it)).map(|_| at)
}

/// The text after `bash -c`.
fn inner_script(words: &[Traced]) -> Option<&Traced> {
    let shell = words.iter().position(|it| matches!(it.text.rsplit('/').next(), Some("bash" | "sh")))?;
    let rest = words.get(shell + 1..)?;
    let flag = rest.iter().take(3).position(|it| it.text.starts_with('-') && it.text.ends_with('c'))?;
    rest.get(flag + 1)
}

/// Options of ssh that take a value.
const SSH_VALUES: &str = "BbcDEeFIiJLlmOopPQRSWw";

/// The words of ssh itself, and the text that the shell on the other machine reads: all other words with blanks between them.
fn remote_script(words: &[Traced]) -> Option<(&[Traced], Traced)> {
    let is_ssh = |it: &Traced| it.text.rsplit('/').next() == Some("ssh");
    let before = |it: &Traced| matches!(it.text.as_str(), "nohup" | "exec" | "time");
    let ssh = words.iter().position(|it| !before(it)).filter(|at| words.get(*at).is_some_and(is_ssh))?;
    let mut at = ssh + 1;
    let mut host = false;
    while let Some(word) = words.get(at) {
        match word.text.strip_prefix('-') {
            Some(letters) => {
                // A value is the rest of the word, else the next one.
                let value = letters.find(|it| SSH_VALUES.contains(it));
                at += if value.is_some_and(|it| it + 1 == letters.len()) { 2 } else { 1 };
            }
            None if host => break,
            None => {
                host = true;
                at += 1;
            }
        }
    }
    let (own, rest) = words.split_at_checked(at).filter(|it| !it.1.is_empty())?;
    Some((own, joined(&Value::List(rest.to_vec()))))
}

#[cfg(test)]
mod tests;

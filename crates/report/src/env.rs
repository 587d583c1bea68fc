//! The answer of `plumb env`: what to set, to remove and to leave alone. Schema `plumb.env/1`.

use std::io::{self, Write};

use manifest::environment::{Action, Recommendation};
use serde::Serialize;

use crate::text::{Style, wrap};

/// What was asked, and the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Env {
    /// `plumb.env/1`.
    pub schema: &'static str,
    /// The instance type, where it was told.
    pub instance: Option<String>,
    /// The release of NCCL, where it was told.
    pub nccl: Option<String>,
    /// The release of aws-ofi-nccl, where it was told.
    pub plugin: Option<String>,
    /// Variables, what to set first.
    pub variables: Vec<Line>,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The value to set, or the one to remove.
    pub value: Option<String>,
    /// `set`, `remove`, `leave`.
    pub action: &'static str,
    /// Why.
    pub reason: String,
    /// Where that is written.
    pub source: String,
}

/// The reason without the assignment it begins with: that stands above it.
fn without_name(it: &Recommendation) -> String {
    let assignment = format!("{}={}: ", it.name, it.value.as_deref().unwrap_or_default());
    let Some(rest) = it.reason.strip_prefix(&assignment) else { return it.reason.clone() };
    let mut chars = rest.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

impl Env {
    /// The answer for what was asked.
    pub fn new(
        instance: Option<&str>,
        nccl: Option<fabric::Version>,
        plugin: Option<fabric::Version>,
        all: &[Recommendation],
    ) -> Self {
        let line = |it: &Recommendation| Line {
            name: it.name.clone(),
            value: it.value.clone(),
            action: it.action.name(),
            reason: without_name(it),
            source: it.source.clone(),
        };
        Self {
            schema: "plumb.env/1",
            instance: instance.map(str::to_owned),
            nccl: nccl.map(|it| it.to_string()),
            plugin: plugin.map(|it| it.to_string()),
            variables: all.iter().map(line).collect(),
        }
    }

    fn lines(&self, action: Action) -> impl Iterator<Item = &Line> {
        self.variables.iter().filter(move |it| it.action == action.name())
    }

    /// `p5.48xlarge, NCCL 2.27.3, aws-ofi-nccl 1.16.2`
    fn subject(&self) -> String {
        let instance = self.instance.clone().unwrap_or_else(|| "any machine".to_owned());
        let release = |name: &str, version: &Option<String>| {
            version.as_ref().map_or_else(String::new, |it| format!(", {name} {it}"))
        };
        format!("{instance}{}{}", release("NCCL", &self.nccl), release("aws-ofi-nccl", &self.plugin))
    }

    /// The answer in one sentence: mostly that nothing is needed.
    fn verdict(&self) -> String {
        let (set, remove) = (self.lines(Action::Set).count(), self.lines(Action::Remove).count());
        let variables =
            |count: usize| if count == 1 { "1 variable".to_owned() } else { format!("{count} variables") };
        match (set, remove) {
            (0, 0) => "nothing to set: the defaults are right".to_owned(),
            (0, _) => format!("nothing to set, {} to remove", variables(remove)),
            (_, 0) => format!("{} to set", variables(set)),
            _ => format!("{} to set, {} to remove", variables(set), variables(remove)),
        }
    }

    /// For a person.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let width = style.width.clamp(40, 160);
        writeln!(out, "{}: {}", self.subject(), self.verdict())?;
        let titles = [(Action::Set, "Set"), (Action::Remove, "Remove"), (Action::Leave, "Leave unset")];
        for (action, title) in titles {
            if self.lines(action).next().is_none() {
                continue;
            }
            writeln!(out, "\n{title}")?;
            for line in self.lines(action) {
                match &line.value {
                    Some(value) => writeln!(out, "  {}={}", line.name, shell(value))?,
                    None => writeln!(out, "  {}", line.name)?,
                }
                for part in wrap(&line.reason, width.saturating_sub(4)) {
                    writeln!(out, "    {part}")?;
                }
                if style.verbose {
                    for part in wrap(&format!("({})", line.source), width.saturating_sub(4)) {
                        writeln!(out, "    {part}")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lines for a shell: `export` and `unset`.
    pub fn sh(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}: {}", self.subject(), self.verdict())?;
        for line in self.lines(Action::Set) {
            comment(out, "", &line.reason)?;
            writeln!(out, "export {}={}", line.name, shell(line.value.as_deref().unwrap_or_default()))?;
        }
        for line in self.lines(Action::Remove) {
            comment(out, "", &line.reason)?;
            writeln!(out, "unset {}", line.name)?;
        }
        Ok(())
    }

    /// `env` of a container.
    pub fn yaml(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}: {}", self.subject(), self.verdict())?;
        for line in self.lines(Action::Remove) {
            comment(out, "", &format!("remove {}: {}", line.name, line.reason))?;
        }
        if self.lines(Action::Set).next().is_none() {
            return writeln!(out, "env: []");
        }
        writeln!(out, "env:")?;
        for line in self.lines(Action::Set) {
            comment(out, "", &line.reason)?;
            let value = serde_json::Value::from(line.value.as_deref().unwrap_or_default());
            writeln!(out, "- name: {}\n  value: {value}", line.name)?;
        }
        Ok(())
    }

    /// `ENV` lines. What an image below has set can only be set empty, so removals are comments.
    pub fn dockerfile(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}: {}", self.subject(), self.verdict())?;
        for line in self.lines(Action::Remove) {
            comment(out, "", &format!("remove {}: {}", line.name, line.reason))?;
        }
        for line in self.lines(Action::Set) {
            comment(out, "", &line.reason)?;
            let value = serde_json::Value::from(line.value.as_deref().unwrap_or_default());
            writeln!(out, "ENV {}={value}", line.name)?;
        }
        Ok(())
    }

    /// Schema `plumb.env/1`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

/// A comment, wrapped; what comes from a file cannot leave it.
fn comment(out: &mut impl Write, indent: &str, text: &str) -> io::Result<()> {
    for part in wrap(text, 98) {
        writeln!(out, "{indent}# {part}")?;
    }
    Ok(())
}

/// A value as a shell takes it.
fn shell(value: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"_-.,:/=+%@^".contains(&it);
    if !value.is_empty() && value.bytes().all(plain) {
        return value.to_owned();
    }
    let printable: String = value.chars().filter(|it| !it.is_control()).collect();
    format!("'{}'", printable.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use fabric::{Version, catalogue};
    use manifest::environment::recommend;

    use super::{Env, shell};
    use crate::text::Style;

    fn env(plugin: Version) -> Env {
        let all = recommend(catalogue::find("p4d.24xlarge"), None, Some(plugin), Vec::new());
        Env::new(Some("p4d.24xlarge"), None, Some(plugin), &all)
    }

    fn written(write: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_usual_answer_is_short() {
        let env = env(Version::new(1, 16, 2));
        let head = "p4d.24xlarge, aws-ofi-nccl 1.16.2: nothing to set: the defaults are right\n";
        assert!(written(|it| env.text(Style::default(), it)).starts_with(head));
        assert_eq!(written(|it| env.sh(it)), format!("# {head}"));
        assert_eq!(written(|it| env.yaml(it)), format!("# {head}env: []\n"));
        assert_eq!(written(|it| env.dockerfile(it)), format!("# {head}"));
    }

    #[test]
    fn every_form_says_what_to_set() {
        let env = env(Version::new(1, 5, 0));
        assert!(written(|it| env.sh(it)).contains("\nexport FI_PROVIDER=efa\n"));
        assert!(written(|it| env.yaml(it)).contains("\n- name: FI_PROVIDER\n  value: \"efa\"\n"));
        assert!(written(|it| env.dockerfile(it)).contains("\nENV FI_PROVIDER=\"efa\"\n"));
        let json: serde_json::Value = serde_json::from_str(&written(|it| env.json(it))).unwrap();
        assert_eq!(json["schema"], "plumb.env/1");
        assert_eq!(json["variables"][0]["action"], "set");
    }

    #[test]
    fn values_are_quoted_for_a_shell() {
        for (value, want) in
            [("efa", "efa"), ("", "''"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("$(x)", "'$(x)'")]
        {
            assert_eq!(shell(value), want);
        }
    }
}

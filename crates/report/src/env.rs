//! The answer of `plumb env`: which variables to set, to remove and to leave unset. Schema `plumb.env/1`.

use std::io::{self, Write};

use manifest::environment::{Action, Recommendation};
use serde::Serialize;

use crate::json::{NOT_IN_YAML, escaped, write_json};
use crate::text::{Style, clean, is_unprintable, wrap};

/// The request and the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Env {
    /// `plumb.env/1`.
    pub schema: &'static str,
    /// The instance type, if it was given.
    pub instance: Option<String>,
    /// The GPU model, if it was given.
    pub gpu: Option<String>,
    /// The release of NCCL, if it was given.
    pub nccl: Option<String>,
    /// The release of aws-ofi-nccl, if it was given.
    pub plugin: Option<String>,
    /// How many variables the files of `--job` set; none without files.
    pub checked: Option<usize>,
    /// Variables; those to set first.
    pub variables: Vec<Line>,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The value to set, or the one to remove.
    pub value: Option<String>,
    /// What to do with it.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// The source.
    pub source: String,
}

impl Env {
    /// Builds the answer.
    pub fn new(
        instance: Option<&str>,
        nccl: Option<fabric::Version>,
        plugin: Option<fabric::Version>,
        all: &[Recommendation],
    ) -> Self {
        let line = |it: &Recommendation| Line {
            name: it.name.clone(),
            value: it.value.clone(),
            action: it.action,
            reason: it.reason.clone(),
            source: it.source.clone(),
        };
        Self {
            schema: "plumb.env/1",
            instance: instance.map(str::to_owned),
            gpu: None,
            nccl: nccl.map(|it| it.to_string()),
            plugin: plugin.map(|it| it.to_string()),
            checked: None,
            variables: all.iter().map(line).collect(),
        }
    }

    pub(crate) fn lines(&self, action: Action) -> impl Iterator<Item = &Line> {
        self.variables.iter().filter(move |it| it.action == action)
    }

    /// `p5.48xlarge, NCCL 2.27.3, aws-ofi-nccl 1.16.2`
    pub(crate) fn subject(&self) -> String {
        let instance = clean(self.instance.as_deref().or(self.gpu.as_deref()).unwrap_or("any machine"));
        let release = |name: &str, version: &Option<String>| {
            version.as_ref().map_or_else(String::new, |it| format!(", {name} {it}"))
        };
        format!("{instance}{}{}", release("NCCL", &self.nccl), release("aws-ofi-nccl", &self.plugin))
    }

    /// The answer in one sentence; mostly nothing is needed.
    pub(crate) fn verdict(&self) -> String {
        let (set, remove) = (self.lines(Action::Set).count(), self.lines(Action::Remove).count());
        let variables =
            |count: usize| if count == 1 { "1 variable".to_owned() } else { format!("{count} variables") };
        match (set, remove) {
            (0, 0) => match self.checked {
                Some(0) => "nothing to set; the files set no variable that plumb could check".to_owned(),
                Some(n) => format!("nothing to change: {} checked", variables(n)),
                None => "nothing to set: the defaults are right".to_owned(),
            },
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
                    Some(value) => writeln!(out, "  {}={}", clean(&line.name), shell(&clean(value)))?,
                    None => writeln!(out, "  {}", clean(&line.name))?,
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

    /// Shell code for `eval`: `export`, `unset` and comments.
    pub fn sh(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}: {}", self.subject(), self.verdict())?;
        for line in self.lines(Action::Set) {
            let value = line.value.as_deref().unwrap_or_default();
            if let Some(reason) = bad_name(&line.name).or_else(|| bad_value(value)) {
                left_out(out, line, reason)?;
                continue;
            }
            comment(out, &line.reason)?;
            writeln!(out, "export {}={}", line.name, shell(value))?;
        }
        for line in self.lines(Action::Remove) {
            if let Some(reason) = bad_name(&line.name) {
                left_out(out, line, reason)?;
                continue;
            }
            comment(out, &line.reason)?;
            writeln!(out, "unset {}", line.name)?;
        }
        Ok(())
    }

    /// `env` of a container.
    pub fn yaml(&self, out: &mut impl Write) -> io::Result<()> {
        self.heading(out)?;
        let (set, refused): (Vec<&Line>, Vec<&Line>) =
            self.lines(Action::Set).partition(|it| bad_name(&it.name).is_none());
        for line in refused {
            left_out(out, line, NO_NAME)?;
        }
        if set.is_empty() {
            return writeln!(out, "env: []");
        }
        writeln!(out, "env:")?;
        for line in set {
            comment(out, &line.reason)?;
            let name = if is_yaml_word(&line.name) { quoted(&line.name) } else { line.name.clone() };
            // Kubernetes expands `$(NAME)`, and reads `$$` as `$`.
            let value = quoted(&line.value.as_deref().unwrap_or_default().replace('$', "$$"));
            writeln!(out, "- name: {name}\n  value: {value}")?;
        }
        Ok(())
    }

    /// `ENV` lines. A variable of the base image can only be set empty, so removals are comments.
    pub fn dockerfile(&self, out: &mut impl Write) -> io::Result<()> {
        self.heading(out)?;
        for line in self.lines(Action::Set) {
            let value = line.value.as_deref().unwrap_or_default();
            if let Some(reason) = bad_name(&line.name).or_else(|| bad_value(value)) {
                left_out(out, line, reason)?;
                continue;
            }
            comment(out, &line.reason)?;
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
            writeln!(out, "ENV {}=\"{value}\"", line.name)?;
        }
        Ok(())
    }

    /// The subject of the answer and the variables to remove, as comments.
    fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}: {}", self.subject(), self.verdict())?;
        for line in self.lines(Action::Remove) {
            comment(out, &format!("remove {}: {}", clean(&line.name), line.reason))?;
        }
        Ok(())
    }

    /// Schema `plumb.env/1`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        write_json(self, out)
    }
}

/// A wrapped comment; text from a file cannot end it.
fn comment(out: &mut impl Write, text: &str) -> io::Result<()> {
    for part in wrap(&text.replace(NOT_IN_YAML, ""), 98) {
        writeln!(out, "# {part}")?;
    }
    Ok(())
}

/// A comment that a variable is left out, and why.
fn left_out(out: &mut impl Write, line: &Line, reason: &str) -> io::Result<()> {
    comment(out, &format!("left out: `{}` {reason}", clean(&line.name)))
}

const NO_NAME: &str = "is not the name of a variable: letters, digits and _, not beginning with a digit";

/// Why a name cannot appear in code: only POSIX names are safe without quotes.
fn bad_name(name: &str) -> Option<&'static str> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
    let is_name = first && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_');
    (!is_name).then_some(NO_NAME)
}

/// Why a value cannot appear in a line of code.
fn bad_value(value: &str) -> Option<&'static str> {
    value.contains(is_unprintable).then_some("has a value with control characters")
}

/// Names that YAML reads as a boolean or as null.
fn is_yaml_word(name: &str) -> bool {
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
        .iter()
        .any(|it| name.eq_ignore_ascii_case(it))
}

/// A double-quoted string for YAML and JSON.
fn quoted(text: &str) -> String {
    escaped(&serde_json::Value::from(text).to_string())
}

/// A value quoted for a shell.
fn shell(value: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"_-.,:/=+%@^".contains(&it);
    if !value.is_empty() && value.bytes().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use fabric::{Version, catalogue};
    use manifest::environment::{Action, Recommendation, recommend};
    use proptest::prelude::*;

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

    fn advice(action: Action, name: &str, value: &str, reason: &str) -> Recommendation {
        let [name, value, reason, source] = [name, value, reason, "source\u{1b}"].map(str::to_owned);
        Recommendation { name, value: Some(value), action, reason, source }
    }

    /// All formats for these; verbose, so that sources are written too.
    fn all_formats(all: &[Recommendation]) -> [String; 5] {
        let env = Env::new(None, None, None, all);
        let style = Style { colour: true, width: 80, verbose: true };
        [
            written(|it| env.text(style, it)),
            written(|it| env.sh(it)),
            written(|it| env.yaml(it)),
            written(|it| env.dockerfile(it)),
            written(|it| env.json(it)),
        ]
    }

    #[test]
    fn what_is_not_a_name_is_left_out_and_said() {
        for name in ["A;id", "A B", "", "1A", "A=B", "A\nid", "$(id)", "a[$(id)]", "é", "A'", "A#", "-f"] {
            for action in [Action::Set, Action::Remove] {
                let [_, sh, yaml, dockerfile, json] = all_formats(&[advice(action, name, "1", "why")]);
                for text in [&sh, &dockerfile] {
                    assert!(text.lines().all(|it| it.starts_with('#')), "{name:?}: {text}");
                }
                assert!(sh.contains("\n# left out: `"), "{name:?}: {sh}");
                assert!(yaml.lines().all(|it| it.starts_with('#') || it == "env: []"), "{name:?}: {yaml}");
                let json: serde_json::Value = serde_json::from_str(&json).unwrap();
                assert_eq!(json["variables"][0]["name"], name);
            }
        }
    }

    #[test]
    fn a_comment_cannot_be_left() {
        for end in ["\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{2029}", "\u{b}", "\u{c}"] {
            let reason = format!("why{end}touch hacked");
            let [_, sh, yaml, dockerfile, _] = all_formats(&[advice(Action::Remove, "A", "1", &reason)]);
            for text in [sh, yaml, dockerfile] {
                let code: Vec<&str> = text
                    .split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
                    .filter(|it| !it.is_empty() && !it.starts_with('#'))
                    .collect();
                assert!(code.iter().all(|it| ["unset A", "env: []"].contains(it)), "{end:?}: {code:?}");
            }
        }
    }

    #[test]
    fn values_keep_their_meaning() {
        let value = "a\"b'c\\d$(e)`f`";
        let [_, sh, yaml, dockerfile, _] = all_formats(&[advice(Action::Set, "NO", value, "why")]);
        assert!(sh.contains("export NO='a\"b'\\''c\\d$(e)`f`'\n"), "{sh}");
        assert!(yaml.contains("- name: \"NO\"\n  value: \"a\\\"b'c\\\\d$$(e)`f`\"\n"), "{yaml}");
        assert!(dockerfile.contains("ENV NO=\"a\\\"b'c\\\\d\\$(e)`f`\"\n"), "{dockerfile}");
        let [_, sh, yaml, dockerfile, _] = all_formats(&[advice(Action::Set, "A", "a\nb\u{9b}", "why")]);
        for text in [&sh, &dockerfile] {
            assert!(text.ends_with("# left out: `A` has a value with control characters\n"), "{text}");
        }
        assert!(yaml.ends_with("- name: A\n  value: \"a\\nb\\u009b\"\n"), "{yaml}");
    }

    /// The one word that a shell makes of `text`, if it is one and nothing in it is expanded.
    fn one_word(text: &str) -> Option<String> {
        let (mut word, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            let (part, after) = match first {
                '\'' => rest[1..].split_once('\'')?,
                '\\' => ("'", rest.strip_prefix("\\'")?),
                it if it.is_ascii_alphanumeric() || "_-.,:/=+%@^".contains(it) => rest.split_at(1),
                _ => return None,
            };
            word.push_str(part);
            rest = after;
        }
        Some(word)
    }

    fn any_action() -> impl Strategy<Value = Action> {
        prop_oneof![Just(Action::Set), Just(Action::Remove), Just(Action::Leave)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_names_and_values_give_only_assignments(
            all in prop::collection::vec(
                (any_action(), "[A-Z_a-z]{1,4}|\\PC{0,6}|.{0,6}|(?s:.{0,6})", "(?s:.{0,12})", "(?s:.{0,12})"), 0..6
            )
        ) {
            let all: Vec<Recommendation> = all.iter().map(|it| advice(it.0, &it.1, &it.2, &it.3)).collect();
            let [text, sh, yaml, dockerfile, json] = all_formats(&all);
            for text in [&text, &sh, &yaml, &dockerfile, &json] {
                prop_assert!(text.chars().all(|it| it == '\n' || !crate::text::is_unprintable(it)), "{text:?}");
            }
            for line in sh.lines().filter(|it| !it.starts_with('#')) {
                let (kind, rest) = line.split_once(' ').unwrap();
                let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
                prop_assert!(kind == "export" || (kind == "unset" && rest == name), "{line:?}");
                let known = all.iter().any(|it| it.name == name && (kind == "unset" || it.value == one_word(value)));
                prop_assert!(known && super::bad_name(name).is_none(), "{line:?}");
            }
            prop_assert!(dockerfile.lines().all(|it| it.starts_with('#') || it.starts_with("ENV ")), "{dockerfile:?}");
            prop_assert!(evidence::yaml::Tree::read(&yaml).is_ok(), "{yaml:?}");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(json["variables"].as_array().map(Vec::len), Some(all.len()));
        }
    }
}

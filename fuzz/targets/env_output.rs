//! `plumb env`: whatever a manifest calls its variables, the text for a shell holds only comments and assignments.
#![no_main]

use manifest::environment::{Action, Recommendation};
use report::Env;

// Fields between NULs: the name after `+` (set), `-` (remove) or anything else (leave), the value, the reason, the source.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut fields = text.split('\0');
    let mut all = Vec::new();
    while let Some(name) = fields.next() {
        let mut chars = name.chars();
        let action = match chars.next() {
            Some('+') => Action::Set,
            Some('-') => Action::Remove,
            _ => Action::Leave,
        };
        let value = fields.next().map(str::to_owned);
        let [reason, source] = [0; 2].map(|_| fields.next().unwrap_or_default().to_owned());
        all.push(Recommendation { name: chars.as_str().to_owned(), value, action, reason, source });
    }
    let env = Env::new(None, None, None, &all);
    let written = |write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut out = Vec::new();
        write(&mut out).expect("memory takes all");
        String::from_utf8(out).expect("UTF-8")
    };
    let style = report::Style { colour: false, width: 80, verbose: true };
    let [plain, sh, yaml, dockerfile, json] = [
        written(&|it| env.text(style, it)),
        written(&|it| env.sh(it)),
        written(&|it| env.yaml(it)),
        written(&|it| env.dockerfile(it)),
        written(&|it| env.json(it)),
    ];
    for text in [&plain, &sh, &yaml, &dockerfile, &json] {
        assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
    }
    for line in sh.lines() {
        assert!(is_harmless(line), "{line:?}");
    }
    for line in dockerfile.lines() {
        assert!(line.starts_with("# ") || line == "#" || line.strip_prefix("ENV ").is_some_and(begins_with_name), "{line:?}");
    }
    assert!(evidence::yaml::Tree::read(&yaml).is_ok(), "{yaml:?}");
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json:?}");
});

/// A comment, `unset NAME` or `export NAME=` with one word that a shell takes as it stands.
fn is_harmless(line: &str) -> bool {
    if line.starts_with('#') {
        return true;
    }
    if let Some(name) = line.strip_prefix("unset ") {
        return is_name(name);
    }
    let Some((name, value)) = line.strip_prefix("export ").and_then(|it| it.split_once('=')) else { return false };
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '\'' => match rest[1..].split_once('\'') {
                Some((_, after)) => after,
                None => return false,
            },
            '\\' if rest.starts_with("\\'") => &rest[2..],
            it if it.is_ascii_alphanumeric() || "_-.,:/=+%@^".contains(it) => &rest[1..],
            _ => return false,
        };
    }
    is_name(name)
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_')
        && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

fn begins_with_name(text: &str) -> bool {
    text.split_once("=\"").is_some_and(|(name, rest)| is_name(name) && rest.ends_with('"'))
}

//! The variables that logs and what is pasted beside them show.

use std::collections::BTreeSet;

use evidence::facts::Assignment;
use evidence::signals::notes::{ASSIGNMENT, COMMAND};
use evidence::submission::words;
use evidence::{Case, Quote, Seen, Spot};

use crate::known::Source;
use crate::settings::{Scope, Setter, Settings, Variable};

impl Settings {
    /// The variables of a case: those NCCL read, those only a plugin reports, those of manifests, those of pasted lines.
    pub fn of_case(case: &Case) -> Self {
        let mut variables = Vec::new();
        for (at, process) in case.processes.iter().enumerate() {
            let environment = &process.facts.environment;
            for seen in environment {
                let plugin = process.added_by_plugin(&seen.value.name);
                let setter = if plugin { Setter::Plugin } else { Setter::Job };
                variables.push(Variable { read_by_nccl: true, ..assigned(seen, setter, Scope::Process(at)) });
            }
            // libfabric and the plugin read some variables that NCCL never prints.
            let only_plugin = process.facts.plugin.added.iter();
            for seen in
                only_plugin.filter(|it| !environment.iter().any(|read| read.value.name == it.value.name))
            {
                variables.push(assigned(seen, Setter::Plugin, Scope::Process(at)));
            }
        }
        for seen in case.manifests.iter().flat_map(|it| it.environment.iter()) {
            variables.push(assigned(seen, Setter::Submission, Scope::Job));
        }
        let pasted = variables.len();
        let commands: BTreeSet<Spot> = case.sightings_of(&COMMAND).map(|it| it.quote.spot).collect();
        for sighting in case.sightings_of(&ASSIGNMENT).chain(case.sightings_of(&COMMAND)) {
            let quote = &sighting.quote;
            let found = if commands.contains(&quote.spot) { of_command(quote) } else { of_prose(quote) };
            for variable in found {
                let new: &[Variable] = &variables[pasted..];
                if !new.iter().any(|it| it.name == variable.name && it.value == variable.value) {
                    variables.push(variable);
                }
            }
        }
        Self { variables }
    }
}

fn assigned(seen: &Seen<Assignment>, setter: Setter, scope: Scope) -> Variable {
    Variable {
        name: seen.value.name.clone(),
        value: Some(seen.value.value.clone()),
        setter,
        scope,
        read_by_nccl: false,
        source: Source::Line(seen.quote.clone()),
    }
}

fn note(name: &str, value: Option<&str>, quote: &Quote) -> Variable {
    Variable {
        name: name.into(),
        value: value.map(Into::into),
        setter: Setter::Note,
        scope: Scope::Job,
        read_by_nccl: false,
        source: Source::Line(quote.clone()),
    }
}

/// The words of a command that assign: `A_B=1 mpirun -x C_D=2`, `srun --export=ALL,A_B=1`, `bash -c "export A_B=1; ..."`.
fn of_command(quote: &Quote) -> Vec<Variable> {
    // Backticks are those of Markdown.
    let line = quote.text.replace('`', " ");
    // Before the first option, `#` ends a prompt.
    let line = line.split_once('#').filter(|it| !it.0.contains(" -")).map_or(&*line, |it| it.1);
    let mut all = Vec::new();
    for word in words(line, 0).iter().flatten() {
        assignments(&word.text, quote, &mut all);
        if word.text.contains(char::is_whitespace) && assignment(&word.text).is_none() {
            words(&word.text, 0).iter().flatten().for_each(|it| assignments(&it.text, quote, &mut all));
        }
    }
    all
}

fn assignments(word: &str, quote: &Quote, all: &mut Vec<Variable>) {
    let list = word.strip_prefix("--export=").map(|it| it.split(','));
    for part in list.into_iter().flatten().chain([word]) {
        if let Some((name, value)) = assignment(part) {
            // The shell fills in the rest.
            all.push(note(name, Some(value).filter(|it| !it.contains('$')), quote));
        }
    }
}

/// `NCCL_DEBUG=INFO`
fn assignment(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| is_name(name, u8::is_ascii_alphabetic))
}

/// Whether programs name variables so: with an underscore.
fn is_name(name: &str, letter: impl Fn(&u8) -> bool) -> bool {
    name.contains('_')
        && name.bytes().all(|it| letter(&it) || it.is_ascii_digit() || it == b'_')
        && name.bytes().next().is_some_and(|it| letter(&it))
}

/// All `NAME=value` and `NAME: value` of a line that is not a command.
fn of_prose(quote: &Quote) -> Vec<Variable> {
    let line = &*quote.text;
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(at) = line.get(from..).and_then(|it| it.find(['=', ':'])).map(|it| from + it) {
        from = at + 1;
        let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
        let colon = line.as_bytes().get(at) == Some(&b':');
        let after = match after.strip_prefix(' ') {
            Some(rest) if colon => rest.trim_start(),
            None if colon => continue,
            _ => after,
        };
        let start =
            before.rfind(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).map_or(0, |it| it + 1);
        let name = before.get(start..).unwrap_or_default();
        // `some_word: text` is prose.
        let letter = |it: &u8| it.is_ascii_uppercase() || (!colon && it.is_ascii_lowercase());
        let mark = after.chars().next().filter(|it| matches!(it, '"' | '\''));
        let value = match mark {
            Some(mark) => after.get(1..).and_then(|it| it.split(mark).next()).unwrap_or_default(),
            None => after.split([' ', ';', '"', '\'', '\t', '`']).next().unwrap_or_default(),
        };
        if is_name(name, letter) && (mark.is_some() || !value.is_empty()) {
            all.push(note(name, Some(value), quote));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use crate::settings::Setter;
    use crate::testing::case;

    fn all(text: &str) -> Vec<(String, String, Setter)> {
        let found = Settings::of_case(&case(text));
        let it = found.variables.iter();
        it.map(|it| (it.name.to_string(), it.value.as_deref().unwrap_or_default().to_owned(), it.setter))
            .collect()
    }

    #[test]
    fn who_set_it() {
        let log = "a:1:2 [0] NCCL INFO NET/OFI Adding NCCL_PROTO=simple to environment\n\
                   a:1:2 [0] NCCL INFO NCCL_PROTO set by environment to simple\n\
                   a:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n";
        let found = all(log);
        let setter = |name: &str| found.iter().find(|it| it.0 == name).map(|it| it.2);
        assert_eq!(setter("NCCL_PROTO"), Some(Setter::Plugin));
        assert_eq!(setter("NCCL_DEBUG"), Some(Setter::Job));
    }

    #[test]
    fn what_nccl_read_is_grouped_by_process() {
        let log = "a:1:2 [0] NCCL INFO NET/OFI Adding FI_EFA_FORK_SAFE=1 to environment\n\
                   b:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n";
        let settings = Settings::of_case(&case(log));
        assert_eq!(settings.named("FI_EFA_FORK_SAFE").count(), 1);
        let by_process = settings.by_process();
        let read: Vec<(usize, &str)> =
            by_process.iter().flat_map(|(at, all)| all.iter().map(|it| (*at, &*it.name))).collect();
        assert_eq!(read, [(1, "NCCL_DEBUG")]);
    }

    #[test]
    fn pasted_commands_and_settings() {
        let command = all("mpirun -np 2 -x NCCL_DEBUG=INFO -x NCCL_P2P_LEVEL=5 ./a\n");
        let names: Vec<(&str, &str)> = command.iter().map(|it| (&*it.0, &*it.1)).collect();
        assert_eq!(names, [("NCCL_DEBUG", "INFO"), ("NCCL_P2P_LEVEL", "5")]);
        for (line, want) in [
            (
                "srun --export=ALL,NCCL_DEBUG=INFO,NCCL_ALGO=Ring ./a",
                vec![("NCCL_DEBUG", "INFO"), ("NCCL_ALGO", "Ring")],
            ),
            (
                "root@a:~ # mpirun -np 2 -x NCCL_DEBUG=INFO ./a # NCCL_ALGO=Ring hangs",
                vec![("NCCL_DEBUG", "INFO")],
            ),
            ("$ NCCL_DEBUG=INFO torchrun --nproc_per_node=8 a.py", vec![("NCCL_DEBUG", "INFO")]),
            ("srun -n 2 bash -c \"export NCCL_DEBUG=INFO; ./a\"", vec![("NCCL_DEBUG", "INFO")]),
            ("mpirun -np 2 -x NCCL_TESTS_SPLIT='DIV 2' ./a", vec![("NCCL_TESTS_SPLIT", "DIV 2")]),
            ("I ran `mpirun -np 2 -x NCCL_DEBUG=$LEVEL`", vec![("NCCL_DEBUG", "")]),
        ] {
            let found = all(&format!("{line}\n"));
            let found: Vec<(&str, &str)> = found.iter().map(|it| (&*it.0, &*it.1)).collect();
            assert_eq!(found, want, "{line}");
        }
        assert_eq!(all("NCCL_TESTS_SPLIT=\"DIV 2\"\n")[0].1, "DIV 2");
        let yaml = all("NCCL_IB_HCA: mlx5_0 \n");
        assert_eq!(
            (yaml[0].0.as_str(), yaml[0].1.as_str(), yaml[0].2),
            ("NCCL_IB_HCA", "mlx5_0", Setter::Note)
        );
    }
}

//! The variables that logs and what is pasted beside them show.

use evidence::facts::Assignment;
use evidence::signals::notes::{ASSIGNMENT, COMMAND};
use evidence::{Case, Quote, Seen};

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
        for sighting in case.sightings_of(&ASSIGNMENT).chain(case.sightings_of(&COMMAND)) {
            for Pair { name, value } in pairs(&sighting.quote.text) {
                let new: &[Variable] = &variables[pasted..];
                if !new.iter().any(|it| &*it.name == name && it.value.as_deref() == Some(value)) {
                    variables.push(note(name, value, &sighting.quote));
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

fn note(name: &str, value: &str, quote: &Quote) -> Variable {
    Variable {
        name: name.into(),
        value: Some(value.into()),
        setter: Setter::Note,
        scope: Scope::Job,
        read_by_nccl: false,
        source: Source::Line(quote.clone()),
    }
}

struct Pair<'a> {
    name: &'a str,
    value: &'a str,
}

/// All `NAME=value` and `NAME: value` of a line, where the name is one that programs give variables: with an underscore.
fn pairs(line: &str) -> Vec<Pair<'_>> {
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
        let letter = |it: u8| it.is_ascii_uppercase() || (!colon && it.is_ascii_lowercase());
        let is_name = name.contains('_')
            && name.bytes().all(|it| letter(it) || it.is_ascii_digit() || it == b'_')
            && name.bytes().next().is_some_and(letter);
        let quote = after.chars().next().filter(|it| matches!(it, '"' | '\''));
        let value = match quote {
            Some(quote) => after.get(1..).and_then(|it| it.split(quote).next()).unwrap_or_default(),
            None => after.split([' ', ';', '"', '\'', '\t', '`']).next().unwrap_or_default(),
        };
        if is_name && (quote.is_some() || !value.is_empty()) {
            all.push(Pair { name, value });
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
        assert_eq!(all("NCCL_TESTS_SPLIT=\"DIV 2\"\n")[0].1, "DIV 2");
        let yaml = all("NCCL_IB_HCA: mlx5_0 \n");
        assert_eq!(
            (yaml[0].0.as_str(), yaml[0].1.as_str(), yaml[0].2),
            ("NCCL_IB_HCA", "mlx5_0", Setter::Note)
        );
    }
}

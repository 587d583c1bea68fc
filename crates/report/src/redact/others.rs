//! The same in the answers of other commands.

use evidence::submission::Submission;

use super::{Redactor, Role, each, finding};
use crate::compare::{Causes, Fact, Part, Setting};
use crate::lint::{Lint, LintFile, LintProblem};
use crate::predict::{OfLog, Saying};
use crate::{Compare, Env, Predict};

impl Redactor {
    /// What files that are about to be submitted set: a secret on a line of its own has its name on another.
    #[must_use]
    pub fn of_files(mut self, files: &[Submission]) -> Self {
        for it in files.iter().flat_map(|it| &it.settings) {
            if let Some(value) = &it.value {
                self.names.learn(Role::Value(&it.name), value);
            }
        }
        self.names.settle();
        self
    }

    /// Replaces names in an answer of `plumb lint`.
    pub fn lint(&mut self, lint: &mut Lint) {
        let Lint { schema: _, files, findings } = lint;
        self.both(|see| {
            for LintFile { file, kind: _, pods: _, settings: _, launches: _, problem } in &mut *files {
                see(Role::File, file);
                if let Some(LintProblem { line: _, column: _, text }) = problem {
                    see(Role::Text, text);
                }
            }
            for it in &mut *findings {
                finding(it, see);
            }
        });
    }

    /// Replaces names in an answer of `plumb compare`.
    pub fn compare(&mut self, compare: &mut Compare) {
        let Compare { answer, runs, baseline, differs, same, causes, settings, .. } = compare;
        self.both(|see| {
            each(&mut *runs, Role::Text, see);
            see(Role::Text, baseline);
            each(&mut *answer, Role::Text, see);
            for Fact { name, values } in differs.iter_mut().chain(&mut *same) {
                each(values.iter_mut().flatten(), Role::Value(name), see);
            }
            for Setting { run, name, value, baseline, .. } in &mut *settings {
                see(Role::Text, run);
                see(Role::Value(name), value);
                see(Role::Value(name), baseline);
            }
            for Causes { run, parts, not_predicted, .. } in &mut *causes {
                see(Role::Text, run);
                for Part { what, .. } in parts {
                    see(Role::Text, what);
                }
                each(not_predicted, Role::Text, see);
            }
        });
    }

    /// Replaces names in an answer of `plumb env`.
    pub fn env(&mut self, env: &mut Env) {
        self.both(|see| {
            for it in &mut env.variables {
                each(&mut it.value, Role::Value(&it.name), see);
                see(Role::Text, &mut it.reason);
            }
        });
    }

    /// Replaces names in an answer of `plumb predict`.
    pub fn predict(&mut self, predict: &mut Predict) {
        let Predict { job, notes, what_if, log, .. } = predict;
        self.both(|see| {
            see(Role::Text, job);
            each(&mut *notes, Role::Text, see);
            for it in &mut *what_if {
                see(Role::Text, &mut it.change);
                see(Role::Text, &mut it.text);
            }
            let Some(OfLog { files, says, paths }) = &mut *log else { return };
            each(files, Role::File, see);
            each(paths, Role::Text, see);
            for Saying { key, value, source } in says {
                if let serde_json::Value::String(text) = value {
                    see(Role::Value(key), text);
                }
                each(source, Role::Text, see);
            }
        });
    }
}

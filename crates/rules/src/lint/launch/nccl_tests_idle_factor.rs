//! A step factor although nccl-tests measures one size.

use std::ops::Range;

use evidence::submission::{Launch, Word};
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "nccl-tests-idle-factor",
    title: "a step factor although only one size is measured",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "With -b equal to -e nccl-tests measures one size, and the step factor (-f) has no effect. A single size does not show whether \
          latency or bandwidth is wrong.",
    fix: "Remove -f, or measure a range: `-b 8 -e 8G -f 2`.",
    references: &["https://github.com/NVIDIA/nccl-tests#readme"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.launches().filter_map(|it| one(&it)).collect())
}

fn one(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let tests = command.launch.nccl_tests()?;
    let inner = command.with(&tests);
    let size = |names: &[&str]| inner.literal(names).map(str::to_ascii_uppercase);
    let (from, to) = (size(&["-b", "--minbytes"])?, size(&["-e", "--maxbytes"])?);
    let factor = tests.option(&["-f", "--stepfactor"]).filter(|_| from == to)?.word;
    let finding = Finding::at(
        command.file,
        &inner.word_span(factor),
        format!("-f has no effect: only {from} is measured"),
    );
    Some(match removable(&tests, factor, &command.submission.text) {
        Some(range) => finding.edit(range, ""),
        None => finding,
    })
}

/// The option and its value with the blanks before them, if they are on one line of a shell script.
fn removable(tests: &Launch, value: &Word, text: &str) -> Option<Range<usize>> {
    let option = tests.words.iter().find(|it| &*it.text == "-f")?;
    let between = text.get(option.range.end..value.range.start)?;
    let before = text.get(..option.range.start)?;
    let start = before.trim_end_matches([' ', '\t']).len();
    let after = text.get(value.range.end..)?;
    let blanks = !between.is_empty() && between.bytes().all(|it| it == b' ');
    let ends = after.is_empty() || after.starts_with([' ', '\n', '\r', '"', '\'', ';']);
    let inside = start < option.range.start && !before[..start].ends_with('\n');
    (blanks && ends && inside).then_some(start..value.range.end)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, fixed, quiet};

    #[test]
    fn an_idle_factor_is_taken_out() {
        let text =
            "#!/bin/sh\n# big\nmpirun -np 16 -N 8 \\\n  ./all_reduce_perf -b 8G -e 8g -f 2 -g 1 # once\n";
        assert_eq!(findings(&RULE, text)[0].message, "-f has no effect: only 8G is measured");
        assert_eq!(fixed(&RULE, text), text.replace(" -f 2", ""));
        let list =
            "kind: Pod\nspec:\n  containers:\n  - command: [all_reduce_perf, -b, 8G, -e, 8G, -f, \"2\"]\n";
        assert_eq!((findings(&RULE, list).len(), findings(&RULE, list)[0].edits.len()), (1, 0));
    }

    #[test]
    fn a_range_is_quiet() {
        quiet(
            &RULE,
            "#!/bin/sh\n./all_reduce_perf -b 8 -e 8G -f 2 -g 8\n./all_reduce_perf -b 8G -e 8G -g 8\n",
        );
        quiet(&RULE, "#!/bin/sh\n./other -b 8 -e 8 -f 2\n");
    }
}

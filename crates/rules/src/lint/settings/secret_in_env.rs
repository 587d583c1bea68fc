//! A key or token in plain text.

use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "secret-in-env",
    title: "a key or token in plain text",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "Everyone who can read the file, the object or the image has the key, and `kubectl describe` prints it.",
    fix: "Revoke it, store a new one in a Secret, and refer to it with valueFrom.secretKeyRef.",
    references: &["https://kubernetes.io/docs/concepts/configuration/secret/"],
    checks: &[Check::Submission(check)],
};

/// Prefix of a token, its kind, and the minimum number of characters after the prefix.
const TOKENS: &[(&str, &str, usize)] = &[
    ("AKIA", "an AWS access key", 16),
    ("ASIA", "a temporary AWS access key", 16),
    ("hf_", "a Hugging Face token", 30),
    ("ghp_", "a GitHub token", 36),
    ("github_pat_", "a GitHub token", 40),
    ("glpat-", "a GitLab token", 20),
];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables()
        .filter_map(|it| {
            let value = it.value()?.trim();
            let kind = TOKENS.iter().find(|(prefix, _, least)| is_token(value, prefix, *least))?.1;
            let span = it.setting.value_span.as_ref()?;
            let name = it.name();
            // The value itself is not repeated.
            Some(Finding::at(it.file, span, format!("{name} holds {kind} in plain text")).label(kind))
        })
        .collect())
}

fn is_token(value: &str, prefix: &str, least: usize) -> bool {
    let Some(rest) = value.strip_prefix(prefix) else { return false };
    let letters = if prefix.ends_with("IA") {
        rest.len() == least && rest.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit())
    } else {
        rest.len() >= least && rest.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-')
    };
    // Examples from documentation: AKIAIOSFODNN7EXAMPLE, hf_xxxxxxxx.
    let mut different: Vec<u8> = rest.bytes().collect();
    different.sort_unstable();
    different.dedup();
    let lower = rest.to_ascii_lowercase();
    letters && different.len() > 7 && !["example", "your", "xxxx"].iter().any(|it| lower.contains(it))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_token_is_seen_and_not_repeated() {
        let token = format!("hf_{}", "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567");
        let found = findings(&RULE, &pod(&[("HF_TOKEN", &token)]));
        assert_eq!(found[0].message, "HF_TOKEN holds a Hugging Face token in plain text");
        let key = format!("AKIA{}", "Q3EGRIZK7L2M9N4P");
        assert_eq!(findings(&RULE, &pod(&[("AWS_ACCESS_KEY_ID", &key)])).len(), 1);
    }

    #[test]
    fn examples_and_references_are_left_alone() {
        quiet(
            &RULE,
            &pod(&[
                ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
                ("HF_TOKEN", "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
                ("HF_TOKEN", "<your token>"),
                ("HF_TOKEN", "$(TOKEN)"),
                ("HF_HUB", "hf_transfer"),
            ]),
        );
    }
}

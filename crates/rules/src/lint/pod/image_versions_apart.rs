//! Variables that state other releases than the image has.

use job::submitted::Submitted;

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "image-versions-apart",
    title: "a variable states another release than the image has",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "A variable does not install anything: the release in the image runs. Scripts and people that read the variable are misled, and \
          libraries built for the other release fail to load or are skipped.",
    fix: "Remove the variable, or use the image it was written for.",
    references: &["https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html"],
    checks: &[Check::Submission(check)],
};

/// A variable, and the word that precedes the same release in image tags.
const RELEASES: &[(&str, &[&str])] = &[
    ("CUDA_VERSION", &["cuda"]),
    ("NCCL_VERSION", &["ncclv", "nccl"]),
    ("EFA_INSTALLER_VERSION", &["efa"]),
    ("EFA_VERSION", &["efa"]),
    ("AWS_OFI_NCCL_VERSION", &["ofi"]),
];

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for (at, file) in submitted.files.iter().enumerate() {
        for setting in &file.settings {
            let Some((_, marks)) = RELEASES.iter().find(|it| it.0 == &*setting.name) else { continue };
            let Some(container) = setting.owner.and_then(|it| file.container(it)) else { continue };
            let (Some(image), Some(value)) = (&container.image, setting.value.as_deref()) else {
                continue;
            };
            let Some((_, tag)) = image.text.rsplit('/').next().and_then(|it| it.split_once(':')) else {
                continue;
            };
            let Some(theirs) = marks.iter().find_map(|it| release(tag, it)) else { continue };
            let ours = parts(value.trim_start_matches('v'));
            if ours.is_empty() || ours.iter().zip(&theirs).all(|it| it.0 == it.1) {
                continue;
            }
            let shown: Vec<String> = theirs.iter().map(u64::to_string).collect();
            let message =
                format!("{}={value}, but the tag of the image says {}", setting.name, shown.join("."));
            findings.push(
                Finding::at(at, &setting.span, message)
                    .also_at(&image.span, "installed release")
                    .confidence(Confidence::Likely),
            );
        }
    }
    Ok(findings)
}

/// The release after a word in a tag: `cuda12.8.1-efa1.43.2-ofi1.16.3-ncclv2.27.7-1`; `cu129` is 12.9.
fn release(tag: &str, mark: &str) -> Option<Vec<u64>> {
    for part in tag.split(['-', '_', '+']) {
        let found = part.strip_prefix(mark).map(parts).filter(|it| it.len() > 1);
        if found.is_some() {
            return found;
        }
        let short = part.strip_prefix("cu").filter(|it| mark == "cuda" && it.len() == 3);
        if let Some(number) = short.and_then(|it| it.parse::<u64>().ok()) {
            return Some(vec![number / 10, number % 10]);
        }
    }
    None
}

/// `2.27.3-1` is 2, 27, 3: the rest is a build number.
fn parts(text: &str) -> Vec<u64> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    text.get(..end).unwrap_or_default().split('.').map_while(|it| it.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn pod(tag: &str, name: &str, value: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: public.ecr.aws/x/y:{tag}\n    env:\n    - name: {name}\n      value: \"{value}\"\n"
        )
    }
    const TAG: &str = "cuda12.8.1-efa1.43.2-ofi1.16.3-ncclv2.27.7-1-testsv2.16.9";

    #[test]
    fn the_tag_says_another_release() {
        let found = findings(&RULE, &pod(TAG, "NCCL_VERSION", "2.23.4-1"));
        assert_eq!(found[0].message, "NCCL_VERSION=2.23.4-1, but the tag of the image says 2.27.7");
        assert_eq!((found[0].evidence[0].at().line, found[0].evidence[1].at().line), (7, 5));
        assert_eq!(findings(&RULE, &pod(TAG, "EFA_INSTALLER_VERSION", "1.30.0")).len(), 1);
        assert_eq!(
            findings(&RULE, &pod("2.8.0-gpu-py312-cu129-ubuntu22.04-ec2", "CUDA_VERSION", "12.4")).len(),
            1
        );
    }

    #[test]
    fn quiet_elsewhere() {
        quiet(&RULE, &pod(TAG, "NCCL_VERSION", "v2.27.7-1"));
        quiet(&RULE, &pod(TAG, "CUDA_VERSION", "12.8"));
        quiet(&RULE, &pod(TAG, "OTHER_VERSION", "1.0"));
        quiet(&RULE, &pod("latest", "NCCL_VERSION", "2.23.4"));
        quiet(&RULE, &pod("2.8.0-gpu-py312-cu129-ubuntu22.04-ec2", "CUDA_VERSION", "12.9.1"));
        quiet(&RULE, &pod(TAG, "NCCL_VERSION", "$(X)"));
    }
}

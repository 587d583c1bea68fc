//! An image tag that does not name a fixed release.

use job::submitted::Submitted;

use super::{called, unique};
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "image-latest-tag",
    title: "a training image without a fixed tag",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "Each node pulls the image that the tag points to at that time. A job that starts or restarts on a new node can run other \
          releases of NCCL, the EFA plugin and PyTorch than its other ranks: NCCL rejects ranks with different releases, and \
          measurements of different days cannot be compared.",
    fix: "Use a release tag or a digest: `image: NAME:TAG` or `image: NAME@sha256:...`.",
    references: &["https://kubernetes.io/docs/concepts/containers/images/#image-names"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings: Vec<Finding> = Vec::new();
    for it in submitted.gpu_containers() {
        let service = matches!(it.job.kind, "Deployment" | "ReplicaSet" | "DaemonSet" | "InferenceService");
        let Some(image) = it.container.image.as_ref().filter(|it| !service && is_loose(&it.text)) else {
            continue;
        };
        let pods = it.job.nodes.pods;
        let among = if pods > 1 { format!("; {pods} pods pull it independently") } else { String::new() };
        let message =
            format!("{} runs `{}`, which is not a fixed release{among}", called(it.container), image.text);
        let finding = Finding::at(it.job.file, &image.span, message);
        findings.push(finding);
    }
    Ok(unique(findings, |it| (it.file(), it.message.clone())))
}

/// No tag or `latest`, and no digest. Templates that are filled in later do not count.
fn is_loose(image: &str) -> bool {
    if image.is_empty() || image.contains(['@', '$', '{', '<', ' ']) {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    let written =
        image.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"/:._-".contains(&it));
    match name.split_once(':') {
        Some((_, tag)) => tag == "latest",
        // A word in capitals is a placeholder.
        None => written,
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn pod(image: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - name: train\n    image: {image}\n    resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }

    #[test]
    fn no_tag_or_latest() {
        let found = findings(&RULE, &pod("pytorch/pytorch:latest"));
        assert_eq!(
            found[0].message,
            "container `train` runs `pytorch/pytorch:latest`, which is not a fixed release"
        );
        assert_eq!(found[0].evidence[0].at().line, 5);
        assert_eq!(findings(&RULE, &pod("registry:5000/train")).len(), 1);
    }

    #[test]
    fn quiet_elsewhere() {
        for image in [
            "pytorch/pytorch:2.8.0-cuda12.9-cudnn9-runtime",
            "a@sha256:00",
            "registry:5000/a:1",
            "${IMAGE}",
            "<image>",
            "IMAGE_URI",
        ] {
            quiet(&RULE, &pod(image));
        }
        quiet(&RULE, &pod("pytorch/pytorch").replace("nvidia.com/gpu", "cpu"));
        quiet(&RULE, &pod("vllm/vllm-openai:latest").replace("kind: Pod", "kind: Deployment"));
    }
}

//! Files that are not YAML: scripts for Slurm or a shell, Dockerfiles, files of settings.

use super::{Directives, Kind, Setting, Submission, Written, command};

/// What a file is, by its content; its name only where the content leaves it open.
pub(super) fn kind(name: &str, text: &str) -> Kind {
    let lines = || text.lines().map(str::trim).filter(|it| !it.is_empty());
    if lines().any(|it| it.starts_with("#SBATCH")) {
        return Kind::Sbatch;
    }
    if lines().next().is_some_and(|it| it.starts_with("#!")) {
        return Kind::Script;
    }
    let code = || lines().filter(|it| !it.starts_with('#'));
    if code().next().is_some_and(|it| it.starts_with("FROM ") || it.starts_with("ARG "))
        && code().any(|it| it.starts_with("FROM "))
    {
        return Kind::Dockerfile;
    }
    let assigns = |line: &str| {
        let line = line.strip_prefix("export ").unwrap_or(line);
        line.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|it| it == b'_' || it.is_ascii_alphanumeric())
        })
    };
    if code().next().is_some() && code().all(assigns) {
        return Kind::Environment;
    }
    let extension = name.rsplit_once('.').map(|it| it.1.to_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "sh" | "bash" | "slurm" | "sbatch" => Kind::Script,
        _ => Kind::Other,
    }
}

pub(super) fn read(submission: &mut Submission) {
    let text = submission.text.clone();
    submission.directives = Directives::read(submission);
    match submission.kind {
        Kind::Dockerfile => dockerfile(submission, &text),
        _ => command::take(submission, &text, 0, None),
    }
}

/// `ENV X=Y Z=W`, `ENV X Y`; commands of `RUN` and `CMD` are read as a shell would.
fn dockerfile(submission: &mut Submission, text: &str) {
    let mut at = 0;
    let mut rest = text;
    while !rest.is_empty() {
        // An instruction ends at a line end without `\`.
        let mut length = 0;
        for line in rest.split_inclusive('\n') {
            length += line.len();
            if !line.trim_end().ends_with('\\') {
                break;
            }
        }
        let (instruction, after) = rest.split_at(length);
        let body = |name: &str| {
            let inner = instruction.trim_start();
            let head = inner.get(..name.len()).filter(|it| it.eq_ignore_ascii_case(name))?;
            let begin = at + (instruction.len() - inner.len()) + head.len();
            inner.get(head.len()..).filter(|it| it.starts_with([' ', '\t'])).map(|it| (it.to_owned(), begin))
        };
        if let Some((body, begin)) = body("ENV") {
            let before = submission.settings.len();
            for words in super::words(&body, begin) {
                // The old form has a blank between name and value.
                let old = words.first().is_some_and(|it| !it.text.contains('='));
                if let (true, [name, value, ..]) = (old, words.as_slice()) {
                    let end = words.last().map_or(value.range.end, |it| it.range.end);
                    let setting = Setting {
                        name: name.text.clone(),
                        value: Some(value.text.clone()),
                        name_span: submission.span(name.range.clone()),
                        value_span: Some(submission.span(value.range.start..end)),
                        span: submission.span(name.range.start..end),
                        owner: None,
                        written: Written::Line,
                    };
                    submission.settings.push(setting);
                } else {
                    command::take_assignments(submission, &words);
                }
            }
            for setting in submission.settings.iter_mut().skip(before) {
                setting.written = Written::Line;
            }
        } else if let Some((body, begin)) = body("RUN").or_else(|| body("CMD")).or_else(|| body("ENTRYPOINT"))
        {
            command::take(submission, &body, begin, None);
        }
        at += length;
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use crate::submission::{Kind, Launcher, Submission};

    #[test]
    fn kinds_are_found_by_content() {
        for (text, kind) in [
            ("#!/bin/bash\n#SBATCH -N 2\nsrun hostname\n", Kind::Sbatch),
            ("#!/bin/sh\necho\n", Kind::Script),
            ("# build\nFROM nvcr.io/nvidia/pytorch\nENV A=1\n", Kind::Dockerfile),
            ("# settings\nexport NCCL_DEBUG=INFO\nFI_PROVIDER=efa\n", Kind::Environment),
            ("kind: Pod\nspec: {containers: [{name: a}]}\n", Kind::Kubernetes),
            ("{\"zero_optimization\": {\"stage\": 3}}", Kind::DeepSpeed),
            ("a: 1\n", Kind::Other),
        ] {
            assert_eq!(Submission::read("x", text).unwrap().kind, kind, "{text}");
        }
    }

    #[test]
    fn settings_of_a_dockerfile_are_read() {
        let text = "FROM a\nENV NCCL_DEBUG=INFO \\\n    FI_PROVIDER=efa\nENV NCCL_PROTO simple\nRUN mpirun -np 2 x\n";
        let it = Submission::read("Dockerfile", text).unwrap();
        let all: Vec<(&str, Option<&str>, usize)> =
            it.settings.iter().map(|it| (&*it.name, it.value.as_deref(), it.span.line)).collect();
        assert_eq!(
            all,
            [
                ("NCCL_DEBUG", Some("INFO"), 2),
                ("FI_PROVIDER", Some("efa"), 3),
                ("NCCL_PROTO", Some("simple"), 4)
            ]
        );
        assert_eq!(it.launches[0].launcher, Launcher::Mpirun);
    }

    #[test]
    fn variables_come_one_or_several_at_once() {
        let text = "#!/bin/sh\ntorchx run ddp --env NCCL_P2P_DISABLE=1,SEED=2 --gpu 1\ndocker run --env NCCL_ALGO=Ring,Tree x\n\
                    sbatch --export=ALL,NCCL_DEBUG=INFO job\n";
        let it = Submission::read("job.sh", text).unwrap();
        let all: Vec<(&str, Option<&str>, &str)> = it
            .settings
            .iter()
            .map(|it| (&*it.name, it.value.as_deref(), &text[it.span.range.clone()]))
            .collect();
        assert_eq!(
            all,
            [
                ("NCCL_P2P_DISABLE", Some("1"), "NCCL_P2P_DISABLE=1"),
                ("SEED", Some("2"), "SEED=2"),
                ("NCCL_ALGO", Some("Ring,Tree"), "NCCL_ALGO=Ring,Tree"),
                ("NCCL_DEBUG", Some("INFO"), "NCCL_DEBUG=INFO"),
            ]
        );
    }

    #[test]
    fn a_template_that_cannot_be_read_is_called_one() {
        let said = |text: &str| Submission::read("pod.yaml", text).unwrap_err().text.contains("template");
        assert!(said("metadata: {name: ${NAME}, namespace: a}\n"));
        assert!(said("spec:\n{{- if .Values.gpu }}\n  a: b\n{{- end }}\n"));
        assert!(!said("a: \"${A}\"\nb: [1, 2\nc: 3\n"));
    }

    #[test]
    fn lines_of_a_block_are_commands_of_their_own() {
        let text = "kind: Pod\nspec:\n  containers:\n  - command: [bash, -c]\n    args:\n    - |\n      sleep 3\n      echo all_reduce_perf\n      true\n";
        let it = Submission::read("pod.yaml", text).unwrap();
        assert!(it.launches.is_empty(), "{:?}", it.launches);
        let folded = Submission::read("pod.yaml", &text.replace("- |", "- >-  # one")).unwrap();
        assert_eq!(folded.launches.len(), 1);
    }
}

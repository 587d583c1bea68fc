//! The NCCL release has no code for the GPU.

use evidence::Source;
use evidence::signals::versions::{
    ERROR_VERSION, GPU_MODEL, GPU_NOT_IN_BUILD, NO_CODE_FOR_GPU, NO_KERNEL_IMAGE, NO_REVERSE_PATH,
    OLD_CAPABILITY,
};
use fabric::Version;
use fabric::support::gpu_unknown_to_nccl;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-too-old-for-gpu",
    title: "the NCCL release is older than the GPU",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL contains kernels for the GPU generations known at its release, or chosen when it was built. On a newer GPU they cannot be \
          started, or its links are misread.",
    fix: "Use a newer NCCL: at least 2.7.3 with CUDA 11 for A100, 2.15.1 with CUDA 11.8 or 12 for H100, 2.25.1 with CUDA 12.8 for Blackwell; \
          with PyTorch, a newer wheel. If NCCL was built by hand, add the GPU to NVCC_GENCODE (-gencode=arch=compute_90,code=sm_90).",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/792",
        "https://github.com/NVIDIA/nccl/issues/1372",
        "https://docs.nvidia.com/deeplearning/nccl/release-notes/",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(
        &[&NO_CODE_FOR_GPU, &GPU_NOT_IN_BUILD, &NO_KERNEL_IMAGE, &NO_REVERSE_PATH, &OLD_CAPABILITY],
        Source::JobOutput,
    )?;
    // An error of PyTorch names the release as well.
    let reported = || {
        let sighting = log.case.sightings_of(&ERROR_VERSION).next()?;
        Some((Version::parse(sighting.get("version"))?, &sighting.quote))
    };
    let logged = log.job.releases.nccl.as_ref().and_then(|it| Some((it.value, it.quote()?)));
    let version = logged.or_else(reported);
    let old = version.and_then(|(version, quote)| too_old(log, version).map(|gpu| (version, gpu, quote)));
    let failed: Vec<_> = found
        .iter()
        .copied()
        .filter(|it| [&NO_CODE_FOR_GPU, &GPU_NOT_IN_BUILD].contains(&it.signal))
        .collect();
    if !failed.is_empty() {
        let message = match (&old, failed.iter().find(|it| *it.signal == GPU_NOT_IN_BUILD), version) {
            (Some((version, gpu, _)), _, _) => format!("NCCL {version} does not support the {gpu}"),
            (None, Some(build), _) => format!("this build has no kernels for sm_{}", build.get("capability")),
            (None, None, Some((version, _))) => {
                format!("this build of NCCL {version} has no kernels for the GPU")
            }
            (None, None, None) => "this build of NCCL has no kernels for the GPU".to_owned(),
        };
        let confidence = if old.is_some() { Confidence::Certain } else { Confidence::Likely };
        return Ok(vec![Finding::new(confidence, message).by(log, &failed).seen_all(version.map(|it| it.1))]);
    }
    if let Some(first) = found.iter().find(|it| *it.signal == NO_KERNEL_IMAGE) {
        let message = match &old {
            Some((version, gpu, _)) => {
                format!("NCCL {version} is older than the {gpu}, and kernels for it are missing")
            }
            None => "a library of the program has no kernels for the GPU; it may be NCCL".to_owned(),
        };
        let confidence = if old.is_some() { Confidence::Likely } else { Confidence::Possible };
        return Ok(vec![Finding::new(confidence, message).seen(&first.quote)]);
    }
    let worked =
        log.case.communicators.iter().any(|it| it.members.values().any(evidence::Member::is_complete));
    // 2.4 prints the generation of the GPUs: 8 is Ampere, which came with 2.7.
    let ampere = found
        .iter()
        .find(|it| *it.signal == OLD_CAPABILITY && it.number("capability").is_some_and(|it| it >= 8));
    if let Some(it) = ampere.filter(|_| !worked) {
        return Ok(vec![
            Finding::new(Confidence::Likely, "NCCL 2.4 runs on GPUs of the Ampere generation or later")
                .seen(&it.quote),
        ]);
    }
    let Some((version, gpu, quote)) = old else { return Ok(Vec::new()) };
    let cuda_failed = log.case.processes.iter().any(|it| it.facts.propagated.iter().any(|it| it.value == 1));
    let misread: Vec<_> = found.iter().copied().filter(|it| *it.signal == NO_REVERSE_PATH).collect();
    let message = format!("NCCL {version} is older than the {gpu}");
    Ok(if !misread.is_empty() {
        vec![
            Finding::new(Confidence::Likely, format!("{message} and misreads its links"))
                .by(log, &misread)
                .seen(quote),
        ]
    } else if worked {
        Vec::new()
    } else if cuda_failed {
        vec![Finding::new(Confidence::Likely, format!("{message}, and a CUDA call failed")).seen(quote)]
    } else {
        vec![Finding::new(Confidence::Possible, message).severity(Severity::Warning).seen(quote)]
    })
}

/// The GPU that this release does not support, if nccl-tests or a note names one.
fn too_old(log: &Log, version: Version) -> Option<&'static str> {
    let tested =
        log.case.tests.iter().filter(|it| it.rows.is_empty()).flat_map(|it| &it.devices).map(|it| &*it.name);
    let noted = log.case.sightings_of(&GPU_MODEL).map(|it| &*it.quote.text);
    tested.chain(noted).find_map(|name| gpu_unknown_to_nccl(name, version))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_every_form() {
        for (log, message) in [
            (
                "NCCL version 2.14.3+cuda11.8\nn:1:1 [0] enqueue.cc:58 NCCL WARN Cuda failure 'named symbol not found'\n",
                "this build of NCCL 2.14.3 has no kernels for the GPU",
            ),
            (
                "n:1:1 [0] NCCL WARN Cuda failure 'invalid device function'\n",
                "this build of NCCL has no kernels for the GPU",
            ),
            (
                "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n",
                "this build has no kernels for sm_120",
            ),
            (
                "#  Rank  0 Group  0 Pid   7 on  n device  0 [0x16] NVIDIA A100-SXM4-40GB\nNCCL version 2.4.8+cuda10.2\nn: Test NCCL failure common.cu:9 x\n\
                 n:7:7 [0] NCCL WARN Cuda failure 'no kernel image is available for execution on the device'\n",
                "NCCL 2.4.8 does not support the A100",
            ),
        ] {
            assert_eq!(findings(&RULE, log)[0].message, message);
        }
    }

    #[test]
    fn quiet_on_a_release_that_fits() {
        quiet(
            &RULE,
            "#  Rank  0 Group  0 Pid   7 on  n device  0 [0x16] NVIDIA H100 80GB HBM3\nNCCL version 2.18.1+cuda12.1\n",
        );
    }

    #[test]
    fn a_library_that_is_not_named_is_a_possibility() {
        let torch = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n";
        assert_eq!(findings(&RULE, torch)[0].confidence, Confidence::Possible);
        let tests =
            "n: Test CUDA failure common.cu:253 'no kernel image is available for execution on the device'\n";
        assert_eq!(findings(&RULE, tests)[0].confidence, Confidence::Likely);
    }
}

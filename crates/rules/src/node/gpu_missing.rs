//! GPUs that should be there are not.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{count, list, model, name, title};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gpu-missing",
    title: "a GPU of the node is missing or does not answer",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::Devices, Source::GpuDriver, Source::ExpectedGpus],
    why: "A job starts one rank per GPU on every node. With fewer GPUs on one node the launch fails, or NCCL waits for ranks that never come.",
    fix: "Take the node out. `lspci -d 10de:` and `nvidia-smi -L` show which GPU is gone, `dmesg | grep -iE 'NVRM|xid'` why. Reboot; if the GPU \
          does not come back, replace the machine.",
    references: &[
        "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let listed = state.gpus.as_ref();
    if listed.is_none() && state.pci.gpus.is_none() {
        return Err(Missing(Source::Devices));
    }
    let mut found = Vec::new();
    for gpu in listed.into_iter().flatten() {
        if let Some(problem) = &gpu.problem {
            let message = format!("{} does not answer the driver: {problem}", name(gpu));
            found.push(Finding::new(Confidence::Certain, message).about_gpu(gpu.index));
        }
    }
    let (seen, on_bus) = (listed.map(|it| number(it.len())), state.pci.gpus);
    let most = number(count(state));
    let told = state.machine.expected_gpus.is_some() || model(state).is_some();
    if most == 0 && !told {
        // A login node, or a machine whose GPUs have all fallen off the bus.
        return Err(Missing(Source::ExpectedGpus));
    }
    if let Some(expected) = state.machine.expected_gpus {
        let here = seen.unwrap_or(most);
        if here != expected {
            let message = match expected {
                0 => format!("the node should have no GPU (--gpus 0), but has {here}"),
                _ => format!("the node has {here} of {expected} GPUs (--gpus {expected})"),
            };
            found.push(Finding::new(Confidence::Certain, message));
            return Ok(found);
        }
    }
    if let Some(model) = model(state)
        && most < model.gpus
    {
        let message = format!("the node has {most} of the {} GPUs of a {}", model.gpus, title(model));
        let finding = Finding::new(Confidence::Certain, message);
        // A container or a job may be given some GPUs; a sandbox may hide the bus as well.
        let part = state.in_container() && most > 0;
        found.push(if part {
            finding.severity(Severity::Info).confidence(Confidence::Possible)
        } else {
            finding
        });
        return Ok(found);
    }
    if let (Some(seen), Some(on_bus)) = (seen, on_bus)
        && seen < on_bus
    {
        let bound = state.driver.as_ref().and_then(|it| it.bound_gpus);
        let message = format!("the driver lists {seen} GPUs, but {on_bus} are on the PCI bus");
        let finding = Finding::new(Confidence::Likely, message);
        found.push(if state.in_container() || bound.is_some_and(|it| it >= on_bus) {
            let why = "A container or a scheduler lets this process use some of the GPUs.";
            finding
                .severity(Severity::Info)
                .why(why)
                .fix("To judge all GPUs, run `plumb node` on the host, outside of a job.")
        } else {
            finding
        });
    }
    if let (Some(gpus), Some(model)) = (listed.or(state.kernel_gpus.as_ref()), model(state)) {
        let unlike: Vec<String> = gpus
            .iter()
            .filter(|it| {
                it.name.as_deref().and_then(fabric::gpu::find).is_some_and(|it| it.family != model.gpu.family)
            })
            .map(|it| format!("{} is a {}", name(it), it.name.as_deref().unwrap_or_default()))
            .collect();
        if !unlike.is_empty() {
            let message =
                format!("a {} has {} GPUs, but {}", title(model), model.gpu.family, list(&unlike, 3));
            found.push(Finding::new(Confidence::Likely, message).severity(Severity::Warning));
        }
    }
    Ok(found)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

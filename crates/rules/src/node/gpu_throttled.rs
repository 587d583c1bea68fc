//! GPUs that run slower than they could.

use evidence::Source;
use evidence::node::{Gpu, NodeState};

use super::facts::{gpus, list, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gpu-throttled",
    title: "a GPU of the node slows itself down, or is hot enough to",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "The GPU lowers its clocks because it is too hot or its power supply asks for it. All ranks of a job wait for the slowest GPU.",
    fix: "`nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` shows the reason. Heat: check fans, filters, liquid cooling and the inlet temperature. \
          Power brake: check the power supplies and cables of the machine.",
    references: &["https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"],
    checks: &[Check::Node(check)],
};

/// Reasons that are a fault of the machine. A power cap under load and idle clocks are normal.
const FAULTS: &[(&str, &str)] = &[
    ("hw_thermal_slowdown", "too hot"),
    ("sw_thermal_slowdown", "too hot"),
    ("hw_power_brake", "the power supply asks for it"),
    ("hw_slowdown", "the hardware asks for it"),
];

fn check(state: &NodeState) -> Checked {
    let gpus = gpus(state)?;
    let mut slow = Vec::new();
    let mut hot = Vec::new();
    for gpu in gpus {
        let reasons = gpu.throttle.as_deref().unwrap_or_default();
        let Some((_, why)) = FAULTS.iter().find(|it| reasons.iter().any(|reason| reason == it.0)) else {
            hot.extend(heat(gpu).map(|it| (gpu.index, it)));
            continue;
        };
        let clock = match (gpu.sm_mhz, gpu.sm_max_mhz) {
            (Some(now), Some(most)) => format!(", {now} of {most} MHz"),
            _ => String::new(),
        };
        let degrees = gpu.temperature_c.map_or(String::new(), |it| format!(", {it} °C"));
        slow.push((gpu.index, format!("{} ({why}{clock}{degrees})", name(gpu))));
    }
    let slow = finding("clocks are lowered on", &slow);
    let hot = finding("the slowdown temperature is reached on", &hot);
    Ok(slow.into_iter().chain(hot).collect())
}

/// The clocks of an idle GPU are low anyway, and no reason is given: the temperature alone says it.
fn heat(gpu: &Gpu) -> Option<String> {
    let (now, limit) = (gpu.temperature_c?, gpu.slowdown_c.filter(|it| *it > 0)?);
    (now >= limit).then(|| format!("{} ({now} °C, slowdown at {limit})", name(gpu)))
}

fn finding(what: &str, gpus: &[(u32, String)]) -> Option<Finding> {
    let names: Vec<String> = gpus.iter().map(|it| it.1.clone()).collect();
    let finding = Finding::new(Confidence::Certain, format!("{what} {}", list(&names, 3)));
    (!gpus.is_empty()).then(|| gpus.iter().fold(finding, |it, gpu| it.about_gpu(gpu.0)))
}

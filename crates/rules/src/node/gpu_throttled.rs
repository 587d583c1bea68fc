//! GPUs that run slower than they could.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{gpus, list, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gpu-throttled",
    title: "a GPU of the node slows itself down",
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
    let mut found = Vec::new();
    let mut slow = Vec::new();
    for gpu in gpus {
        let reasons = gpu.throttle.as_deref().unwrap_or_default();
        let Some((_, why)) = FAULTS.iter().find(|it| reasons.iter().any(|reason| reason == it.0)) else {
            continue;
        };
        let clock = match (gpu.sm_mhz, gpu.sm_max_mhz) {
            (Some(now), Some(most)) => format!(", {now} of {most} MHz"),
            _ => String::new(),
        };
        let heat = gpu.temperature_c.map_or(String::new(), |it| format!(", {it} °C"));
        slow.push((gpu.index, format!("{} ({why}{clock}{heat})", name(gpu))));
    }
    if !slow.is_empty() {
        let names: Vec<String> = slow.iter().map(|it| it.1.clone()).collect();
        let finding = Finding::new(Confidence::Certain, format!("clocks are lowered on {}", list(&names, 3)));
        found.push(slow.iter().fold(finding, |it, gpu| it.about_gpu(gpu.0)));
    }
    Ok(found)
}

//! What the NVIDIA driver reports of the state of its GPUs, through NVML.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use evidence::node::{Ecc, Gpu, LinkWidth, NvLinks, RemappedRows};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode, EccCounter, MemoryError, P2pCapabilitiesIndex, P2pStatus, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use crate::driver;

/// What NVML reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<String>,
    pub(super) gpus: Vec<Gpu>,
}

/// NVML waits without end where a GPU has failed in certain ways; a health check must not.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks NVML. The error says why it does not answer.
pub(super) fn read() -> Result<Report, String> {
    let (give, take) = mpsc::channel();
    let asked = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
        let _ = give.send(ask());
    });
    if asked.is_err() {
        return Err("no thread could be started to ask it".to_owned());
    }
    take.recv_timeout(PATIENCE)
        .unwrap_or_else(|_| Err(format!("it did not answer within {} s", PATIENCE.as_secs())))
}

fn ask() -> Result<Report, String> {
    let nvml = Nvml::init().map_err(|it| driver::problem(&it))?;
    let count = nvml.device_count().map_err(|it| it.to_string().to_lowercase())?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let devices: Vec<_> = (0..count).map(|it| nvml.device_by_index(it)).collect();
    let gpu = |(index, device): (u32, &Result<Device<'_>, _>)| match device {
        Ok(device) => gpu(device, index, &devices),
        Err(error) => Gpu { index, problem: Some(format!("{error}").to_lowercase()), ..Gpu::default() },
    };
    Ok(Report {
        driver: nvml.sys_driver_version().ok(),
        cuda: cuda.map(|it| format!("{}.{}", cuda_driver_version_major(it), cuda_driver_version_minor(it))),
        gpus: (0..).zip(&devices).map(gpu).collect(),
    })
}

fn gpu<E>(device: &Device<'_>, index: u32, all: &[Result<Device<'_>, E>]) -> Gpu {
    let name = device.name().ok();
    let memory = device.memory_info();
    let temperature = device.temperature(TemperatureSensor::Gpu);
    // A GPU that has fallen off the bus is still listed, and every question fails.
    let lost = memory
        .as_ref()
        .err()
        .zip(temperature.as_ref().err())
        .map(|(error, _)| error.to_string().to_lowercase());
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    Gpu {
        index,
        bus: device.pci_info().ok().map(|it| bus(&it.bus_id)),
        name: name.map(|it| it.strip_prefix("NVIDIA ").map_or(it.clone(), str::to_owned)),
        uuid: device.uuid().ok(),
        serial: device.serial().ok().filter(|it| !it.is_empty() && it.bytes().any(|it| it != b'0')),
        vbios: device.vbios_version().ok(),
        memory_bytes: memory.as_ref().ok().map(|it| it.total),
        memory_used_bytes: memory.as_ref().ok().map(|it| it.used),
        problem: lost,
        ecc: ecc(device),
        remapped_rows: remapped_rows(device),
        persistence: device.is_in_persistent_mode().ok(),
        mig: device.mig_mode().ok().map(|it| it.current != 0),
        compute_mode: device.compute_mode().ok().map(|it| compute_mode(it).to_owned()),
        temperature_c: temperature.ok(),
        slowdown_c: device.temperature_threshold(TemperatureThreshold::Slowdown).ok(),
        power_w: device.power_usage().ok().map(watts),
        power_limit_w: device
            .power_management_limit()
            .or_else(|_| device.enforced_power_limit())
            .ok()
            .map(watts),
        power_default_w: device.power_management_limit_default().ok().map(watts),
        sm_mhz: device.clock_info(Clock::SM).ok(),
        sm_max_mhz: device.max_clock_info(Clock::SM).ok(),
        memory_mhz: device.clock_info(Clock::Memory).ok(),
        memory_max_mhz: device.max_clock_info(Clock::Memory).ok(),
        throttle: device.current_throttle_reasons().ok().map(reasons),
        pcie: Some(LinkWidth {
            generation: device.current_pcie_link_gen().ok(),
            max_generation: device.max_pcie_link_gen().ok(),
            width: device.current_pcie_link_width().ok(),
            max_width: device.max_pcie_link_width().ok(),
        })
        .filter(|it| *it != LinkWidth::default()),
        pcie_replays: device.pcie_replay_counter().ok().map(u64::from),
        nvlink: nvlinks(device, index, all),
        processes: device.running_compute_processes_count().ok(),
    }
}

/// `00000000:18:00.0` of NVML as `0000:18:00.0` of sysfs.
fn bus(text: &str) -> String {
    let text = text.trim().to_lowercase();
    match text.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => format!("{}:{rest}", domain.get(4..).unwrap_or(domain)),
        _ => text,
    }
}

fn ecc(device: &Device<'_>) -> Option<Ecc> {
    let errors = |kind, since| device.total_ecc_errors(kind, since).ok();
    let ecc = Ecc {
        enabled: device.is_ecc_enabled().ok().map(|it| it.currently_enabled),
        volatile_uncorrected: errors(MemoryError::Uncorrected, EccCounter::Volatile),
        volatile_corrected: errors(MemoryError::Corrected, EccCounter::Volatile),
        aggregate_uncorrected: errors(MemoryError::Uncorrected, EccCounter::Aggregate),
        aggregate_corrected: errors(MemoryError::Corrected, EccCounter::Aggregate),
    };
    Some(ecc).filter(|it| *it != Ecc::default())
}

fn remapped_rows(device: &Device<'_>) -> Option<RemappedRows> {
    let fields = [
        field_id::NVML_FI_DEV_REMAPPED_COR,
        field_id::NVML_FI_DEV_REMAPPED_UNC,
        field_id::NVML_FI_DEV_REMAPPED_PENDING,
        field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    ];
    let samples = device.field_values_for(&fields.map(FieldId)).ok()?;
    let value = |at: usize| match samples.get(at)?.as_ref().ok()?.value.as_ref().ok()? {
        SampleValue::U32(it) => Some(u64::from(*it)),
        SampleValue::U64(it) => Some(*it),
        SampleValue::I64(it) => u64::try_from(*it).ok(),
        SampleValue::F64(_) => None,
    };
    let rows = RemappedRows {
        corrected: value(0),
        uncorrected: value(1),
        pending: value(2).map(|it| it != 0),
        failed: value(3).map(|it| it != 0),
    };
    Some(rows).filter(|it| *it != RemappedRows::default())
}

fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Default => "default",
        ComputeMode::ExclusiveThread => "exclusive_thread",
        ComputeMode::Prohibited => "prohibited",
        ComputeMode::ExclusiveProcess => "exclusive_process",
    }
}

fn reasons(set: ThrottleReasons) -> Vec<String> {
    let names = [
        (ThrottleReasons::GPU_IDLE, "gpu_idle"),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "applications_clocks_setting"),
        (ThrottleReasons::SW_POWER_CAP, "sw_power_cap"),
        (ThrottleReasons::HW_SLOWDOWN, "hw_slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync_boost"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw_thermal_slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw_thermal_slowdown"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hw_power_brake"),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display_clock_setting"),
    ];
    names.into_iter().filter(|it| set.contains(it.0)).map(|it| it.1.to_owned()).collect()
}

fn nvlinks<E>(device: &Device<'_>, index: u32, all: &[Result<Device<'_>, E>]) -> Option<NvLinks> {
    let mut found = NvLinks::default();
    let mut known = false;
    let add = |sum: &mut Option<u64>, count: Option<u64>| {
        if let Some(count) = count {
            *sum = Some(sum.unwrap_or(0).saturating_add(count));
        }
    };
    for number in 0..driver::NVLINKS {
        let link = device.link_wrapper_for(number);
        // A link that the GPU does not have is an error.
        let Ok(active) = link.is_active() else { continue };
        known = true;
        if !active {
            found.down.push(number);
            continue;
        }
        found.up += 1;
        add(&mut found.replay_errors, link.error_counter(ErrorCounter::DlReplay).ok());
        add(&mut found.recovery_errors, link.error_counter(ErrorCounter::DlRecovery).ok());
        add(&mut found.crc_errors, link.error_counter(ErrorCounter::DlCrcFlit).ok());
    }
    if !known {
        return None;
    }
    let others = (0..).zip(all).filter(|it: &(u32, _)| it.0 != index).filter_map(|it| it.1.as_ref().ok());
    let peers: Vec<_> = others.map(|it| device.p2p_status(it, P2pCapabilitiesIndex::NvLink)).collect();
    if !peers.is_empty() && peers.iter().all(Result::is_ok) {
        let reached = peers.iter().filter(|it| matches!(it, Ok(P2pStatus::Ok))).count();
        found.peers = u32::try_from(reached).ok();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bus_ids_are_those_of_sysfs() {
        assert_eq!(super::bus("00000000:1B:00.0"), "0000:1b:00.0");
        assert_eq!(super::bus("0000:1b:00.0"), "0000:1b:00.0");
        // Not a bus id, and not a panic: eight bytes that cannot be cut after four.
        assert_eq!(super::bus("\u{20ac}\u{20ac}aa:1"), "\u{20ac}\u{20ac}aa:1");
    }
}

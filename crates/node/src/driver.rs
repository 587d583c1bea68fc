//! What the NVIDIA driver reports, through NVML.

use fabric::machine::{BusId, PciLink};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// What the driver reports of all GPUs.
#[derive(Debug, Clone, Default)]
pub(super) struct Driver {
    /// The GPUs it shows.
    pub(super) gpus: Vec<DriverGpu>,
    /// What it does not report.
    pub(super) notes: Vec<String>,
}

/// A GPU, as the driver reports it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DriverGpu {
    pub(super) index: u32,
    pub(super) bus: BusId,
    /// `H200`
    pub(super) name: Option<String>,
    /// `90`
    pub(super) compute: Option<u32>,
    /// The best link that GPU and slot allow.
    pub(super) link: Option<PciLink>,
    /// Whether MIG is on.
    pub(super) mig: bool,
    /// What is at the other end of each active NVLink, where the driver reports it.
    pub(super) nvlinks: Vec<Option<BusId>>,
}

impl Default for DriverGpu {
    fn default() -> Self {
        let (name, compute, link) = (None, None, None);
        Self { index: 0, bus: BusId(0), name, compute, link, mig: false, nvlinks: Vec::new() }
    }
}

/// The most NVLinks NVML counts on a GPU.
pub(super) const NVLINKS: u32 = 18;

/// A static build (musl) has no dynamic loader, so NVML cannot be loaded.
pub(super) const IS_STATIC: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

/// Reads all GPUs. The error says why NVML is not available.
pub(super) fn read() -> Result<Driver, String> {
    let nvml = Nvml::init().map_err(|it| problem(&it))?;
    let mut driver = Driver::default();
    let n = nvml.device_count().map_err(|it| it.to_string())?;
    for index in 0..n {
        match nvml.device_by_index(index).and_then(|it| gpu(&it, index)) {
            Ok(Some(gpu)) => driver.gpus.push(gpu),
            Ok(None) => driver.notes.push(format!("The bus id of GPU{index} cannot be read.")),
            Err(error) => driver.notes.push(format!("GPU{index} does not answer: {error}.")),
        }
    }
    Ok(driver)
}

/// Why NVML does not start.
pub(super) fn problem(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) if IS_STATIC => {
            "the static build of plumb cannot load libnvidia-ml.so.1".to_owned()
        }
        NvmlError::LibloadingError(_) => "libnvidia-ml.so.1 is not found".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn gpu(device: &Device<'_>, index: u32) -> Result<Option<DriverGpu>, NvmlError> {
    let Some(bus) = BusId::parse(&device.pci_info()?.bus_id) else { return Ok(None) };
    let name = device.name().ok();
    let compute = device.cuda_compute_capability().ok();
    let compute = compute.and_then(|it| u32::try_from(it.major.checked_mul(10)?.checked_add(it.minor)?).ok());
    let generation = device.max_pcie_link_gen().ok().and_then(|it| u8::try_from(it).ok());
    let width = device.max_pcie_link_width().ok();
    let link = generation.and_then(PciLink::generation).zip(width);
    Ok(Some(DriverGpu {
        index,
        bus,
        name: name.map(|it| it.strip_prefix("NVIDIA ").map_or(it.clone(), str::to_owned)),
        compute,
        link: link.map(|(link, width)| PciLink { width, ..link }),
        mig: device.mig_mode().is_ok_and(|it| it.current != 0),
        nvlinks: nvlinks(device),
    }))
}

fn nvlinks(device: &Device<'_>) -> Vec<Option<BusId>> {
    (0..NVLINKS)
        .map(|it| device.link_wrapper_for(it))
        .filter(|it| it.is_active().unwrap_or(false))
        .map(|it| it.remote_pci_info().ok().and_then(|it| BusId::parse(&it.bus_id)))
        .collect()
}

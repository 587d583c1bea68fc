//! What was seen, in the words of a screen.

use std::collections::BTreeMap;

use evidence::node::{Gpu, Interface, Library, LibraryKind, Limit, NodeState};

use crate::text::counted;

/// `8 x H100 80GB HBM3, 32 EFA devices`
pub(crate) fn devices(state: &NodeState) -> String {
    let mut parts = vec![gpu_models(state)];
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for port in state.rdma.iter().flatten() {
        *kinds.entry(kind(&port.kind)).or_default() += 1;
    }
    for (kind, count) in kinds {
        parts.push(counted(count, &format!("{kind} device")));
    }
    parts.join(", ")
}

/// Whether the driver, the kernel module or the PCI bus shows a GPU.
pub(super) fn has_gpus(state: &NodeState) -> bool {
    let listed = state.gpus.as_ref().or(state.kernel_gpus.as_ref()).is_some_and(|it| !it.is_empty());
    listed || state.pci.gpus.is_some_and(|it| it > 0)
}

fn gpu_models(state: &NodeState) -> String {
    let Some(gpus) = state.gpus.as_ref().or(state.kernel_gpus.as_ref()) else {
        return match state.pci.gpus {
            Some(0) => "no NVIDIA GPU".to_owned(),
            Some(count) => counted(usize::try_from(count).unwrap_or(usize::MAX), "GPU"),
            None => "GPUs not visible".to_owned(),
        };
    };
    let mut models: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        *models.entry(gpu.name.as_deref().unwrap_or("NVIDIA GPU of unknown model")).or_default() += 1;
    }
    let said: Vec<String> = models.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    if said.is_empty() { "no NVIDIA GPU".to_owned() } else { said.join(", ") }
}

fn kind(name: &str) -> &str {
    match name {
        "efa" => "EFA",
        "infiniband" => "InfiniBand",
        "roce" => "RoCE",
        _ => "RDMA",
    }
}

/// Machine and software in one line.
pub(crate) fn stack(state: &NodeState) -> String {
    let mut parts = Vec::new();
    let machine = state.machine.named.as_deref().or(state.machine.product.as_deref());
    parts.extend(machine.map(str::to_owned));
    if let Some(driver) = &state.driver {
        parts.extend(driver.version.as_ref().map(|it| format!("driver {it}")));
        parts.extend(driver.cuda.as_ref().map(|it| format!("CUDA {it}")));
    }
    for (kind, name) in [
        (LibraryKind::Nccl, "NCCL"),
        (LibraryKind::AwsOfiNccl, "aws-ofi-nccl"),
        (LibraryKind::Libfabric, "libfabric"),
    ] {
        let mut versions: Vec<&str> =
            state.libraries_of(kind).filter_map(|it| it.version.as_deref()).collect();
        versions.dedup();
        if !versions.is_empty() {
            parts.push(format!("{name} {}", versions.join(" and ")));
        }
    }
    parts.extend(state.system.distribution.clone());
    parts.extend(state.system.kernel.as_ref().map(|it| format!("Linux {it}")));
    parts.extend(state.system.container.as_ref().map(|it| format!("in a container ({it})")));
    parts.join(", ")
}

/// The facts, a name and a sentence each.
pub(crate) fn rows(state: &NodeState, verbose: bool) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    if let Some(gpus) = state.gpus.as_deref().filter(|it| !it.is_empty()) {
        rows.push(("GPUs", gpus_row(state, gpus)));
        rows.push(("clocks", clocks(gpus)));
        rows.extend(nvlink(gpus).map(|it| ("NVLink", it)));
        if verbose {
            rows.extend(gpus.iter().map(|it| ("", one_gpu(it))));
        }
    }
    if let (None, Some(gpus)) = (&state.gpus, state.kernel_gpus.as_deref().filter(|it| !it.is_empty())) {
        let unknown = "memory errors, clocks, temperatures and NVLinks are not known without NVML";
        rows.push(("GPUs", format!("{}, as the kernel shows them; {unknown}", gpu_models(state))));
        rows.extend(gpus.iter().filter(|_| verbose).map(|it| ("", one_gpu(it))));
    }
    rows.push(("network", network(state)));
    if verbose {
        for port in state.rdma.iter().flatten() {
            let errors: Vec<String> = port.errors.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
            let rate = port.gbps.map_or(String::new(), |it| format!(", {it} Gbit/s"));
            let state = port.state.as_deref().unwrap_or("state unknown").to_lowercase();
            let errors = if errors.is_empty() { "no errors".to_owned() } else { errors.join(", ") };
            rows.push((
                "",
                format!("{} port {} {}: {state}{rate}; {errors}", port.device, port.port, kind(&port.kind)),
            ));
        }
    }
    rows.push(("CPU", cpu(state)));
    rows.push(("memory", memory(state)));
    rows.push(("limits", limits(state)));
    rows.push(("software", software(state, verbose)));
    if let Some(modules) = &state.modules {
        let names: Vec<String> = modules.iter().map(|it| it.name.clone()).collect();
        rows.push((
            "modules",
            if names.is_empty() { "none for GPUs or RDMA".to_owned() } else { names.join(", ") },
        ));
    }
    if let Some(services) = &state.services {
        let mut names: Vec<&str> = services.iter().map(|it| full_name(&it.name)).collect();
        names.dedup();
        rows.push((
            "services",
            if names.is_empty() { "none of NVIDIA or for the clock".to_owned() } else { names.join(", ") },
        ));
    }
    rows.push(("PCI", pci(state)));
    if let Some(log) = &state.kernel_log {
        let xids: u64 = log.xids.iter().map(|it| it.count).fold(0, u64::saturating_add);
        let aer: u64 = log.aer.iter().map(|it| it.count).fold(0, u64::saturating_add);
        let count = |count: u64, what: &str| match count {
            0 => format!("no {what}"),
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let since = log
            .oldest_s
            .filter(|it| *it > 60)
            .map_or(String::new(), |it| format!(" (since {it} s after the start)"));
        rows.push((
            "kernel log",
            format!(
                "{}, {} in {} messages{since}",
                count(xids, "Xid"),
                count(aer, "PCI error"),
                log.messages
            ),
        ));
    }
    rows.retain(|it| !it.1.is_empty());
    rows
}

fn gpus_row(state: &NodeState, gpus: &[Gpu]) -> String {
    let mut parts = vec![gpu_models(state)];
    let memory = gpus.iter().filter_map(|it| it.memory_bytes).min();
    parts.extend(memory.map(|it| format!("{} each", size(it))));
    let errors: Vec<u64> = gpus.iter().filter_map(|it| it.ecc?.volatile_uncorrected).collect();
    if !errors.is_empty() {
        parts.push(format!("{} uncorrected memory errors", errors.iter().sum::<u64>()));
    }
    let pending =
        gpus.iter().filter(|it| it.remapped_rows.is_some_and(|it| it.pending == Some(true))).count();
    if pending > 0 {
        parts.push(format!("{pending} with rows to remap"));
    }
    let off = gpus.iter().filter(|it| it.persistence == Some(false)).count();
    parts.push(if off == 0 { "persistence on".to_owned() } else { format!("persistence off on {off}") });
    let mig = gpus.iter().filter(|it| it.mig == Some(true)).count();
    if mig > 0 {
        parts.push(format!("MIG on {mig}"));
    }
    let busy: u32 = gpus.iter().filter_map(|it| it.processes).sum();
    if busy > 0 {
        parts.push(format!("{busy} programs on them"));
    }
    parts.join(", ")
}

fn clocks(gpus: &[Gpu]) -> String {
    let mut parts = Vec::new();
    parts.extend(range(gpus.iter().filter_map(|it| it.sm_mhz)).map(|it| format!("{it} MHz now")));
    parts.extend(range(gpus.iter().filter_map(|it| it.sm_max_mhz)).map(|it| format!("{it} at most")));
    parts.extend(range(gpus.iter().filter_map(|it| it.temperature_c)).map(|it| format!("{it} °C")));
    let watts = |value: fn(&Gpu) -> Option<f64>| range(gpus.iter().filter_map(value).map(whole));
    if let (Some(now), Some(limit)) = (watts(|it| it.power_w), watts(|it| it.power_limit_w)) {
        parts.push(format!("{now} of {limit} W"));
    }
    let mut reasons: Vec<&str> =
        gpus.iter().flat_map(|it| it.throttle.iter().flatten()).map(String::as_str).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons.retain(|it| *it != "gpu_idle");
    if !reasons.is_empty() {
        parts.push(format!("lowered: {}", reasons.join(", ")));
    }
    parts.join(", ")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "watts of a GPU")]
fn whole(watts: f64) -> u32 {
    watts.clamp(0.0, 1e6) as u32
}

fn nvlink(gpus: &[Gpu]) -> Option<String> {
    let up = range(gpus.iter().filter_map(|it| it.nvlink.as_ref()).map(|it| it.up))?;
    let down: usize = gpus.iter().filter_map(|it| it.nvlink.as_ref()).map(|it| it.down.len()).sum();
    let errors = gpus
        .iter()
        .filter_map(|it| it.nvlink.as_ref())
        .flat_map(|it| [it.replay_errors, it.recovery_errors, it.crc_errors]);
    let errors: Vec<u64> = errors.flatten().collect();
    let errors = match errors.iter().fold(0, |a: u64, b| a.saturating_add(*b)) {
        _ if errors.is_empty() => String::new(),
        0 => ", no errors".to_owned(),
        sum => format!(", {sum} errors"),
    };
    Some(format!("{up} links up per GPU, {down} down{errors}"))
}

fn one_gpu(gpu: &Gpu) -> String {
    let bus = gpu.bus.as_deref().unwrap_or("bus unknown");
    let uuid = gpu.uuid.as_deref().unwrap_or("no UUID");
    let serial = gpu.serial.as_ref().map_or(String::new(), |it| format!(", serial {it}"));
    let pcie = gpu.pcie.map_or(String::new(), |it| {
        let shown = |it: Option<u32>| it.map_or("?".to_owned(), |it| it.to_string());
        format!(
            ", PCIe gen {} x{} (at most {} x{})",
            shown(it.generation),
            shown(it.width),
            shown(it.max_generation),
            shown(it.max_width)
        )
    });
    format!("GPU{} {bus} {uuid}{serial}{pcie}", gpu.index)
}

fn network(state: &NodeState) -> String {
    let mut parts = Vec::new();
    let mut groups: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    for port in state.rdma.iter().flatten() {
        let rate = port.gbps.map_or("rate unknown".to_owned(), |it| format!("{it} Gbit/s"));
        let group = groups.entry((kind(&port.kind).to_owned(), rate)).or_default();
        group.0 += 1;
        group.1 += usize::from(port.state.as_deref().is_none_or(|it| it == "ACTIVE"));
    }
    for ((kind, rate), (all, active)) in groups {
        parts.push(format!("{all} x {kind} {rate} ({active} active)"));
    }
    if state.rdma.as_ref().is_some_and(Vec::is_empty) {
        parts.push("no RDMA device".to_owned());
    }
    let interfaces = state.interfaces.as_deref().unwrap_or_default();
    let up: Vec<&Interface> = interfaces.iter().filter(|it| it.state.as_deref() == Some("up")).collect();
    for it in up.iter().take(3) {
        let rate = it.gbps.map_or(String::new(), |it| format!(" {it} Gbit/s"));
        let mtu = it.mtu.map_or(String::new(), |it| format!(" MTU {it}"));
        parts.push(format!("{}{rate}{mtu}", it.name));
    }
    if up.len() > 3 {
        parts.push(format!("{} more interfaces", up.len() - 3));
    }
    parts.join("; ")
}

fn cpu(state: &NodeState) -> String {
    let cpu = &state.cpu;
    let mut parts = Vec::new();
    let count = cpu.online.map_or(String::new(), |it| format!("{it} x "));
    parts.extend(cpu.model.as_ref().map(|it| format!("{count}{it}")));
    if cpu.model.is_none() {
        parts.extend(cpu.online.map(|it| format!("{it} CPUs")));
    }
    if let (Some(allowed), Some(online)) = (cpu.allowed, cpu.online)
        && allowed < online
    {
        parts.push(format!("{allowed} allowed here"));
    }
    parts.extend(cpu.cgroup.cpus.map(|it| format!("quota {it:.1} CPUs")));
    if cpu.numa.len() > 1 {
        parts.push(counted(cpu.numa.len(), "NUMA node"));
    }
    if !cpu.governors.is_empty() {
        parts.push(format!("governor {}", cpu.governors.join(", ")));
    }
    parts.extend(state.clock.source.as_ref().map(|it| format!("clock {it}")));
    parts.join(", ")
}

fn memory(state: &NodeState) -> String {
    let memory = &state.memory;
    let mut parts = Vec::new();
    if let Some(total) = memory.total_bytes {
        let free = memory.available_bytes.map_or(String::new(), |it| format!(" ({} available)", size(it)));
        parts.push(format!("{}{free}", size(total)));
    }
    parts.extend(state.cpu.cgroup.memory_bytes.map(|it| format!("limited to {}", size(it))));
    parts.extend(memory.shm_bytes.map(|it| format!("/dev/shm {}", size(it))));
    for it in memory.hugepages.iter().filter(|it| it.total > 0) {
        parts.push(format!("{} huge pages of {}, {} free", it.total, size(it.page_bytes), it.free));
    }
    parts.join(", ")
}

fn limits(state: &NodeState) -> String {
    let mut parts = Vec::new();
    let said = |it: Option<u64>, show: fn(u64) -> String| it.map_or("unlimited".to_owned(), show);
    let both = |limit: Limit, show: fn(u64) -> String| match (limit.soft, limit.hard) {
        (soft, hard) if soft == hard => said(soft, show),
        (soft, hard) => format!("{} (hard {})", said(soft, show), said(hard, show)),
    };
    parts.extend(state.limits.memlock.map(|it| format!("memlock {}", both(it, size))));
    if state.limits.ipc_lock == Some(true) {
        parts.push("may lock any memory (CAP_IPC_LOCK)".to_owned());
    }
    parts.extend(state.limits.open_files.map(|it| format!("open files {}", both(it, |it| it.to_string()))));
    parts.extend(state.limits.processes.map(|it| format!("processes {}", both(it, |it| it.to_string()))));
    parts.join(", ")
}

fn software(state: &NodeState, verbose: bool) -> String {
    let names = |kind| match kind {
        LibraryKind::Nccl => "NCCL",
        LibraryKind::AwsOfiNccl => "aws-ofi-nccl",
        LibraryKind::NetPlugin => "network plugin",
        LibraryKind::Libfabric => "libfabric",
        LibraryKind::EfaProvider => "EFA provider",
        LibraryKind::CudaRuntime => "CUDA runtime",
        LibraryKind::GdrCopy => "GDRCopy",
    };
    let said = |it: &Library| {
        let version = it.version.as_ref().map_or(String::new(), |it| format!(" {it}"));
        let with = match it.providers.len() {
            0 => String::new(),
            1 => format!(" with provider {}", it.providers.join(" ")),
            _ => format!(" with providers {}", it.providers.join(" ")),
        };
        if verbose {
            format!("{}{version}{with} ({})", names(it.kind), it.path)
        } else {
            format!("{}{version}{with}", names(it.kind))
        }
    };
    let mut parts: Vec<String> = state.libraries.iter().map(said).collect();
    parts.dedup();
    if parts.is_empty() { "no NCCL and no plugin in the usual folders".to_owned() } else { parts.join(", ") }
}

/// The kernel keeps 15 bytes of a name.
fn full_name(name: &str) -> &str {
    match name {
        "nv-fabricmanage" => "nv-fabricmanager",
        "nvidia-persiste" => "nvidia-persistenced",
        "systemd-timesyn" => "systemd-timesyncd",
        other => other,
    }
}

fn pci(state: &NodeState) -> String {
    let mut parts = Vec::new();
    if let Some(kinds) = state.pci.iommu.as_ref().filter(|_| state.pci.bridges.is_some_and(|it| it > 0)) {
        parts.push(if kinds.is_empty() {
            "no IOMMU".to_owned()
        } else {
            format!("IOMMU {}", kinds.join(", "))
        });
    }
    if let (Some(bridges), Some(acs)) = (state.pci.bridges.filter(|it| *it > 0), &state.pci.acs) {
        parts.push(format!("ACS redirects at {} of {bridges} bridges", acs.len()));
    }
    parts.extend(state.pci.nvswitches.filter(|it| *it > 0).map(|it| format!("{it} NVSwitches")));
    parts.extend(state.pci.imex_channels.filter(|it| *it > 0).map(|it| format!("{it} IMEX channels")));
    parts.join(", ")
}

/// `31`, or `31 to 35`.
fn range(values: impl Iterator<Item = u32>) -> Option<String> {
    let (low, high) = values.fold((u32::MAX, 0), |it, value| (it.0.min(value), it.1.max(value)));
    (low <= high).then(|| if low == high { low.to_string() } else { format!("{low} to {high}") })
}

/// `141 GiB`, `62.7 GiB`
pub(super) fn size(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, one)) = units.into_iter().find(|it| bytes >= it.1) else { return format!("{bytes} B") };
    let tenths = u128::from(bytes) * 10 / u128::from(one);
    if tenths % 10 == 0 || tenths >= 1000 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

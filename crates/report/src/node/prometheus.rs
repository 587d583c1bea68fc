//! The state as metrics, in the text format of Prometheus, for the textfile collector of `node_exporter`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use evidence::node::{AerSeverity, Gpu, LibraryKind, Limit};
use rules::Severity;
use rules::node::Fitness;

use super::Node;

/// One metric with its samples.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// The metrics of one machine.
#[derive(Default)]
struct Page(Vec<Metric>);

impl Page {
    fn metric(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut Metric {
        let at = self.0.iter().position(|it| it.name == name).unwrap_or_else(|| {
            self.0.push(Metric { name, kind, help, samples: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.metric(name, "gauge", help).samples.push((labels, value));
        }
    }

    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
        value: Option<u64>,
    ) {
        if let Some(value) = value {
            self.metric(name, "counter", help).samples.push((labels, number(value)));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "values of Prometheus are floating point numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

impl Node {
    /// Writes the metrics. The names begin with `plumb_node_`, units are those of Prometheus (bytes, seconds, hertz, celsius, watts).
    pub fn prometheus(&self, out: &mut impl Write) -> io::Result<()> {
        let mut page = Page::default();
        self.verdict_metrics(&mut page);
        self.gpu_metrics(&mut page);
        self.network_metrics(&mut page);
        self.host_metrics(&mut page);
        let mut text = String::new();
        for metric in page.0.iter().filter(|it| !it.samples.is_empty()) {
            let _ = writeln!(text, "# HELP {} {}", metric.name, metric.help);
            let _ = writeln!(text, "# TYPE {} {}", metric.name, metric.kind);
            // Two samples with the same labels would make the whole page invalid.
            let samples: BTreeMap<String, f64> =
                metric.samples.iter().map(|it| (labels(&it.0), it.1)).collect();
            for (labels, value) in samples {
                let _ = writeln!(text, "{}{labels} {}", metric.name, shown(value));
            }
        }
        out.write_all(text.as_bytes())
    }

    fn verdict_metrics(&self, page: &mut Page) {
        let state = &self.state;
        let version = |kind| {
            state.libraries_of(kind).find_map(|it| it.version.as_deref()).unwrap_or_default().to_owned()
        };
        let driver = state.driver.clone().unwrap_or_default();
        let info = vec![
            ("host", state.host.clone()),
            ("machine", state.machine.named.clone().or(state.machine.product.clone()).unwrap_or_default()),
            ("kernel", state.system.kernel.clone().unwrap_or_default()),
            ("driver", driver.version.unwrap_or_default()),
            ("cuda", driver.cuda.unwrap_or_default()),
            ("nccl", version(LibraryKind::Nccl)),
            ("aws_ofi_nccl", version(LibraryKind::AwsOfiNccl)),
            ("plumb", state.plumb.clone().unwrap_or_default()),
        ];
        page.gauge("plumb_node_info", "Machine and releases, as labels; always 1.", info, Some(1.0));
        for verdict in [Fitness::Fit, Fitness::Warnings, Fitness::NotFit, Fitness::Unknown] {
            let name = super::text::word(verdict).replace(' ', "_");
            let value = f64::from(u8::from(self.verdict == verdict));
            page.gauge(
                "plumb_node_verdict",
                "1 for the verdict on this node, 0 for the others.",
                vec![("verdict", name)],
                Some(value),
            );
        }
        for severity in [Severity::Error, Severity::Warning, Severity::Info] {
            let label = vec![("severity", severity.name().to_owned())];
            let count = u32::try_from(self.count(severity)).map(f64::from).ok();
            page.gauge("plumb_node_findings", "Findings about this node.", label, count);
        }
        for it in &self.findings {
            let label = vec![("rule", it.id.clone()), ("severity", it.severity.name().to_owned())];
            page.gauge(
                "plumb_node_finding",
                "1 for every rule that found something; `plumb explain RULE` says more.",
                label,
                Some(1.0),
            );
        }
        let unseen = u32::try_from(state.not_seen.len()).map(f64::from).ok();
        page.gauge("plumb_node_not_seen", "Facts that could not be seen.", vec![], unseen);
        page.gauge(
            "plumb_node_taken_timestamp_seconds",
            "When the node was looked at.",
            vec![],
            state.taken_unix_s.map(number),
        );
    }

    fn gpu_metrics(&self, page: &mut Page) {
        let state = &self.state;
        page.gauge(
            "plumb_node_pci_gpus",
            "NVIDIA GPUs on the PCI bus.",
            vec![],
            state.pci.gpus.map(f64::from),
        );
        let Some(gpus) = &state.gpus else { return };
        let count = u32::try_from(gpus.len()).map(f64::from).ok();
        page.gauge("plumb_node_gpus", "GPUs that the driver lists.", vec![], count);
        for gpu in gpus {
            one_gpu(page, gpu);
        }
    }

    fn network_metrics(&self, page: &mut Page) {
        for port in self.state.rdma.iter().flatten() {
            let labels = || {
                vec![
                    ("device", port.device.clone()),
                    ("port", port.port.to_string()),
                    ("kind", port.kind.clone()),
                ]
            };
            let up = port.state.as_deref().map(|it| f64::from(u8::from(it == "ACTIVE")));
            page.gauge(
                "plumb_node_rdma_port_active",
                "Whether the port of an RDMA device is active.",
                labels(),
                up,
            );
            page.gauge(
                "plumb_node_rdma_rate_bytes_per_second",
                "Rate of the port.",
                labels(),
                port.gbps.map(|it| it * 1e9 / 8.0),
            );
            for (name, count) in &port.errors {
                let mut labels = labels();
                labels.push(("counter", name.clone()));
                page.counter(
                    "plumb_node_rdma_errors_total",
                    "Errors that the port counted; counters at zero are left out.",
                    labels,
                    Some(*count),
                );
            }
        }
        for it in self.state.interfaces.iter().flatten() {
            let labels = || vec![("device", it.name.clone())];
            let up = it.state.as_deref().map(|it| f64::from(u8::from(it == "up")));
            page.gauge("plumb_node_interface_up", "Whether the network interface is up.", labels(), up);
            page.gauge(
                "plumb_node_interface_mtu_bytes",
                "MTU of the network interface.",
                labels(),
                it.mtu.map(f64::from),
            );
        }
    }

    fn host_metrics(&self, page: &mut Page) {
        let (memory, limits) = (&self.state.memory, &self.state.limits);
        let bytes = |it: Option<u64>| it.map(number);
        page.gauge("plumb_node_memory_bytes", "Host memory.", vec![], bytes(memory.total_bytes));
        page.gauge("plumb_node_shm_bytes", "Size of /dev/shm.", vec![], bytes(memory.shm_bytes));
        page.gauge(
            "plumb_node_shm_free_bytes",
            "Free space of /dev/shm.",
            vec![],
            bytes(memory.shm_free_bytes),
        );
        let soft = |it: Option<Limit>| it.map(|it| it.soft.map_or(f64::INFINITY, number));
        page.gauge("plumb_node_memlock_bytes", "Limit on locked memory.", vec![], soft(limits.memlock));
        page.gauge("plumb_node_open_files_limit", "Limit on open files.", vec![], soft(limits.open_files));
        page.gauge("plumb_node_processes_limit", "Limit on processes.", vec![], soft(limits.processes));
        for it in &memory.hugepages {
            let labels = vec![("page_bytes", it.page_bytes.to_string())];
            page.gauge("plumb_node_hugepages", "Huge pages.", labels, Some(number(it.total)));
        }
        let Some(log) = &self.state.kernel_log else { return };
        page.counter(
            "plumb_node_kernel_messages_total",
            "Messages of the kernel that were read.",
            vec![],
            Some(log.messages),
        );
        for it in &log.xids {
            let labels = vec![("code", it.code.to_string()), ("gpu", it.gpu.clone())];
            page.counter(
                "plumb_node_xid_total",
                "Xid errors in the log of the kernel.",
                labels,
                Some(it.count),
            );
        }
        for it in &log.aer {
            let severity = match it.severity {
                AerSeverity::Corrected => "corrected",
                AerSeverity::NonFatal => "non_fatal",
                AerSeverity::Fatal => "fatal",
            };
            let labels = vec![("device", it.device.clone()), ("severity", severity.to_owned())];
            page.counter(
                "plumb_node_pcie_errors_total",
                "Errors of the PCI bus in the log of the kernel.",
                labels,
                Some(it.count),
            );
        }
    }
}

fn one_gpu(page: &mut Page, gpu: &Gpu) {
    let own = || vec![("gpu", gpu.index.to_string()), ("uuid", gpu.uuid.clone().unwrap_or_default())];
    let with = |name, value: &str| {
        let mut labels = own();
        labels.push((name, value.to_owned()));
        labels
    };
    let flag = |it: Option<bool>| it.map(|it| f64::from(u8::from(it)));
    let hertz = |it: Option<u32>| it.map(|it| f64::from(it) * 1e6);
    page.gauge(
        "plumb_node_gpu_temperature_celsius",
        "Temperature of the GPU.",
        own(),
        gpu.temperature_c.map(f64::from),
    );
    page.gauge("plumb_node_gpu_power_watts", "Power that the GPU draws.", own(), gpu.power_w);
    page.gauge("plumb_node_gpu_power_limit_watts", "Power limit of the GPU.", own(), gpu.power_limit_w);
    page.gauge("plumb_node_gpu_clock_hertz", "Clock of the GPU now.", own(), hertz(gpu.sm_mhz));
    page.gauge("plumb_node_gpu_clock_max_hertz", "Highest clock of the GPU.", own(), hertz(gpu.sm_max_mhz));
    page.gauge("plumb_node_gpu_memory_bytes", "Memory of the GPU.", own(), gpu.memory_bytes.map(number));
    page.gauge(
        "plumb_node_gpu_memory_used_bytes",
        "Memory of the GPU that is in use.",
        own(),
        gpu.memory_used_bytes.map(number),
    );
    page.gauge("plumb_node_gpu_persistence", "Whether persistence is on.", own(), flag(gpu.persistence));
    page.gauge("plumb_node_gpu_mig", "Whether MIG is on.", own(), flag(gpu.mig));
    if let Some(ecc) = gpu.ecc {
        let help = "Memory errors since the driver was loaded (volatile) or the GPU was made (aggregate).";
        for (kind, since, count) in [
            ("uncorrected", "volatile", ecc.volatile_uncorrected),
            ("corrected", "volatile", ecc.volatile_corrected),
            ("uncorrected", "aggregate", ecc.aggregate_uncorrected),
            ("corrected", "aggregate", ecc.aggregate_corrected),
        ] {
            let mut labels = with("kind", kind);
            labels.push(("since", since.to_owned()));
            page.counter("plumb_node_gpu_ecc_errors_total", help, labels, count);
        }
    }
    if let Some(rows) = gpu.remapped_rows {
        page.gauge(
            "plumb_node_gpu_remap_pending",
            "Whether a reset is needed to remap rows.",
            own(),
            flag(rows.pending),
        );
        page.gauge(
            "plumb_node_gpu_remap_failed",
            "Whether a row could not be remapped.",
            own(),
            flag(rows.failed),
        );
        page.counter(
            "plumb_node_gpu_remapped_rows_total",
            "Rows remapped for uncorrected errors.",
            own(),
            rows.uncorrected,
        );
    }
    for reason in gpu.throttle.iter().flatten() {
        page.gauge(
            "plumb_node_gpu_clock_reason",
            "1 for every reason why clocks are below their maximum now.",
            with("reason", reason),
            Some(1.0),
        );
    }
    page.gauge(
        "plumb_node_gpu_pcie_lanes",
        "Lanes of the PCI Express link.",
        own(),
        gpu.pcie.and_then(|it| it.width).map(f64::from),
    );
    page.counter(
        "plumb_node_gpu_pcie_replays_total",
        "Packets that the PCI Express link repeated.",
        own(),
        gpu.pcie_replays,
    );
    if let Some(links) = &gpu.nvlink {
        let down = u32::try_from(links.down.len()).unwrap_or(u32::MAX);
        page.gauge(
            "plumb_node_gpu_nvlinks",
            "NVLinks by state.",
            with("state", "up"),
            Some(f64::from(links.up)),
        );
        page.gauge(
            "plumb_node_gpu_nvlinks",
            "NVLinks by state.",
            with("state", "down"),
            Some(f64::from(down)),
        );
        for (kind, count) in
            [("replay", links.replay_errors), ("recovery", links.recovery_errors), ("crc", links.crc_errors)]
        {
            page.counter(
                "plumb_node_gpu_nvlink_errors_total",
                "Errors of NVLinks.",
                with("kind", kind),
                count,
            );
        }
    }
}

/// `{gpu="0",uuid="..."}`; empty without labels.
fn labels(all: &[(&'static str, String)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let escaped = |it: &str| {
        let it: String = it.chars().filter(|it| *it == '\n' || !crate::text::is_unprintable(*it)).collect();
        it.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
    };
    let said: Vec<String> =
        all.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", said.join(","))
}

fn shown(value: f64) -> String {
    match value {
        it if it.is_infinite() => "+Inf".to_owned(),
        it => it.to_string(),
    }
}

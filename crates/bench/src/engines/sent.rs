//! What this rank sent over the network, and how much of it again.

use std::fs;
use std::path::Path;

use collective::Communicator;

use crate::data::EngineKind;
use crate::failure::Failure;
use crate::run::Segments;

/// The devices of the kernel's RDMA subsystem.
const RDMA: &str = "/sys/class/infiniband";

/// So far. Connections of this process, and with NCCL the packets of EFA: its counters are of the whole machine.
pub(super) fn now(engine: EngineKind) -> Option<Segments> {
    let tcp = collective::Segments::of_this_process().ok().flatten();
    let tcp = tcp.map(|it| Segments { sent: it.sent, resent: it.resent });
    let efa = if engine == EngineKind::Nccl { efa(Path::new(RDMA)) } else { None };
    match (tcp, efa) {
        (Some(tcp), Some(efa)) => Some(sum(tcp, efa)),
        (tcp, efa) => tcp.or(efa),
    }
}

/// Counters that were reset, or connections that were closed, leave nothing.
pub(super) const fn since(now: Segments, before: Segments) -> Segments {
    Segments { sent: now.sent.saturating_sub(before.sent), resent: now.resent.saturating_sub(before.resent) }
}

/// Of all ranks, by rank; empty where one of them does not know. All ranks call it.
pub(super) fn of_all(control: &mut Communicator, own: Option<Segments>) -> Result<Vec<Segments>, Failure> {
    // Numbers: it cannot fail.
    let parts = control.share(&serde_json::to_vec(&own).unwrap_or_default())?;
    let all = parts.iter().map(|it| serde_json::from_slice::<Option<Segments>>(it).ok().flatten());
    Ok(all.collect::<Option<Vec<_>>>().unwrap_or_default())
}

/// Packets of SRD by port (`tx_pkts`, `retrans_pkts`: Amazon EC2 User Guide, "Monitor an Elastic Fabric Adapter", EFA driver metrics).
/// InfiniBand and RoCE count events and not packets; losses cost them bandwidth, which shows in the measurement itself.
fn efa(devices: &Path) -> Option<Segments> {
    let mut all: Option<Segments> = None;
    for device in fs::read_dir(devices).ok()?.flatten() {
        let Ok(ports) = fs::read_dir(device.path().join("ports")) else { continue };
        for port in ports.flatten() {
            let number = |name: &str| {
                let text = fs::read_to_string(port.path().join("hw_counters").join(name)).ok()?;
                text.trim().parse::<u64>().ok()
            };
            if let (Some(sent), Some(resent)) = (number("tx_pkts"), number("retrans_pkts")) {
                all = Some(sum(all.unwrap_or_default(), Segments { sent, resent }));
            }
        }
    }
    all
}

const fn sum(one: Segments, other: Segments) -> Segments {
    Segments { sent: one.sent.saturating_add(other.sent), resent: one.resent.saturating_add(other.resent) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Segments, efa, since};

    #[test]
    fn packets_of_every_port() {
        let folder = testbed::Folder::new("efa-counters");
        for (device, sent, resent) in [("rdmap0s6", "1000\n", "7\n"), ("rdmap1s6", "500\n", "0\n")] {
            let counters = folder.file(device).join("ports/1/hw_counters");
            fs::create_dir_all(&counters).expect("a folder");
            fs::write(counters.join("tx_pkts"), sent).expect("a file");
            fs::write(counters.join("retrans_pkts"), resent).expect("a file");
        }
        // Another kind of device.
        fs::create_dir_all(folder.file("mlx5_0").join("ports/1/hw_counters")).expect("a folder");
        assert_eq!(efa(folder.path()), Some(Segments { sent: 1500, resent: 7 }));
        assert_eq!(efa(&folder.file("missing")), None);
    }

    #[test]
    fn a_reset_counter_leaves_nothing() {
        let now = Segments { sent: 900, resent: 1 };
        assert_eq!(since(now, Segments { sent: 1000, resent: 0 }), Segments { sent: 0, resent: 1 });
        assert_eq!(Segments { sent: 1000, resent: 20 }.share(), Some(0.02));
        assert_eq!(Segments { sent: 10, resent: 2 }.share(), None);
    }
}

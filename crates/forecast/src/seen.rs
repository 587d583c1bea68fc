//! Network devices as NCCL sees them.

use fabric::machine::{Machine, Nic, NicKind};
use fabric::units::GigabitsPerSecond;
use fabric::{Settings, catalogue};

/// The machine with the network devices that NCCL sees: aws-ofi-nccl joins the interfaces of a GPU, and since 2.20 NCCL joins the
/// ports of one card (`NCCL_IB_MERGE_NICS`, `src/transport/net_ib.cc`).
pub(crate) fn seen_by_nccl(machine: &Machine, settings: &Settings) -> Machine {
    if machine.name.as_deref().is_some_and(catalogue::groups_nics) {
        return machine.grouped();
    }
    let merges = settings.since(2, 20, 0) && settings.number("NCCL_IB_MERGE_NICS", 1) != 0;
    let mut nics: Vec<Nic> = Vec::new();
    let mut joined = false;
    for nic in &machine.nics {
        let port_of = |last: &&mut Nic| {
            let kind = matches!(nic.kind, NicKind::InfiniBand | NicKind::Roce) && last.kind == nic.kind;
            let card = match (last.bus, nic.bus) {
                (Some(one), Some(other)) => one == other,
                // A catalogue has no bus ids: two ports for each GPU below one switch.
                _ => last.at == nic.at && ports_per_gpu(machine, nic) == 2,
            };
            merges && kind && card
        };
        match nics.last_mut().filter(port_of).filter(|_| !joined) {
            Some(last) => {
                let rates = last.rate.zip(nic.rate);
                last.rate = rates.map(|(one, other)| GigabitsPerSecond(one.0 + other.0));
                joined = true;
            }
            None => {
                nics.push(nic.clone());
                joined = false;
            }
        }
    }
    for (index, nic) in (0..).zip(&mut nics) {
        nic.index = index;
    }
    Machine { nics, ..machine.clone() }
}

/// Ports for each GPU that is attached to the same place as a NIC; 0 where they do not divide evenly.
fn ports_per_gpu(machine: &Machine, nic: &Nic) -> usize {
    let gpus = machine.gpus.iter().filter(|it| it.at == nic.at).count();
    let ports = machine.nics.iter().filter(|it| it.at == nic.at).count();
    if gpus > 0 && ports.is_multiple_of(gpus) { ports / gpus } else { 0 }
}

#[cfg(test)]
mod tests {
    use fabric::{Settings, Version, catalogue};

    use super::seen_by_nccl;

    #[test]
    fn ports_of_a_card_are_one_device_since_2_20() {
        let devices = |name: &str, version| {
            let machine = catalogue::machine(name).expect("in the catalogue");
            let seen = seen_by_nccl(&machine, &Settings::new(version));
            let rate = seen.nics.first().and_then(|it| it.rate).map(|it| it.0.round());
            (seen.nics.len(), rate)
        };
        let (old, new) = (Version::new(2, 18, 5), Version::new(2, 20, 5));
        assert_eq!(devices("BM.GPU.H100.8", old), (16, Some(200.0)));
        assert_eq!(devices("BM.GPU.H100.8", new), (8, Some(400.0)));
        assert_eq!(devices("p5.48xlarge", new), (8, Some(400.0)));
        assert_eq!(devices("hgx-h100", new), (8, Some(400.0)));
        assert_eq!(devices("p4d.24xlarge", new), (4, Some(100.0)));
    }
}
